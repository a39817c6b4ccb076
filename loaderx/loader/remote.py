"""What a worker process does: make the batches it is asked for, and answer with them or with what went wrong."""

from __future__ import annotations

import contextlib
import os
import pickle
import signal
import socket
import traceback
from typing import Any, TypeAlias

from loaderx._core.threads import limit_this_thread
from loaderx.errors import LoaderError
from loaderx.loader import parcel
from loaderx.loader.channel import Channel
from loaderx.loader.fetch import BoundedFetch, Fetch

#: Kind of a message, and what belongs to it.
Message: TypeAlias = tuple[Any, ...]

READY = "ready"
#: The gather is over. Sent only where the parent bounds them.
GATHERED = "gathered"
#: Costs, the pickle or None, the sizes of the buffers in the file.
BATCH = "batch"
#: The arguments of `load_error`.
ERROR = "error"


def send(channel: Channel, *message: Any, fds: tuple[int, ...] = ()) -> None:
    """Send a message: a kind, and what belongs to it."""
    channel.send(pickle.dumps(message, protocol=5), fds)


class _TellGathered:
    """What a worker's gathers run inside: at the end of each, the parent is told."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel

    def __enter__(self) -> None:
        pass

    def __exit__(self, *error: object) -> None:
        send(self._channel, GATHERED)


def settle() -> None:
    """Be a worker process: leave Ctrl-C to the parent, and use one thread."""
    # Ctrl-C in a terminal goes to every process of the job; it is the parent that says what it means. While a worker
    # starts it is blocked (see `worker`).
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    limit_this_thread(1)


def work(sock: socket.socket, tell_gathered: bool) -> None:
    """Be a worker process, until the parent closes its end of the socket, or is gone.

    The first message is the pickle of a `Fetch`. Each later one is a step, with the file that its arrays go into.
    """
    settle()
    pid = os.getpid()
    channel = Channel(sock)
    try:
        pickled, _ = channel.recv()
        try:
            fetch: Fetch = pickle.loads(pickled)
        except BaseException as error:
            send(channel, *describe_error(error))
            return
        del pickled
        if tell_gathered:
            fetch = BoundedFetch(fetch, _TellGathered(channel))
        send(channel, READY)
        while True:
            message, (fd,) = channel.recv()
            (step,) = pickle.loads(message)
            try:
                answer = _make_answer(fetch, step, fd)
            finally:
                os.close(fd)
            if os.getpid() != pid:
                os._exit(0)  # a fork that came back from a transform: the answer is the worker's to give
            send(channel, *answer)
            del answer
    except (EOFError, ConnectionError):
        pass
    finally:
        channel.close()


def _make_answer(fetch: Fetch, step: int, fd: int) -> Message:
    try:
        batch, costs = fetch(step)
        try:
            data, buffers = parcel.pack(batch)
        except Exception as error:
            *_, transform = fetch.parts()
            raise LoaderError(
                f"the batch of step {step}, what {transform} returned, does not pickle, and so cannot leave its worker "
                f"process: {text_of(error)}. Return arrays, and dicts, lists or tuples of them, or use "
                "worker_type='thread'",
                step=step,
                worker=os.getpid(),
            ) from error
        parcel.write(fd, buffers)
    except BaseException as error:
        return describe_error(error)
    return BATCH, step, tuple(costs), data, [buffer.nbytes for buffer in buffers]


def text_of(error: BaseException) -> str:
    """Return what an exception says, whatever it is."""
    try:
        return f"{type(error).__name__}: {error}"
    except BaseException as other:
        return f"{type(error).__name__}, which has no text ({type(other).__name__})"


def describe_error(error: BaseException) -> Message:
    """Return the message of an exception: `ERROR`, and the arguments of `load_error`."""
    try:
        pickled = pickle.dumps(error)
        pickle.loads(pickled)
    except BaseException:  # whatever it is, it is of the exception's own
        pickled = None
    # Not every exception takes its notes with it.
    notes = list(getattr(error, "__notes__", ()))
    try:
        lines = "".join(traceback.format_exception(error))
    except BaseException:
        lines = "".join(traceback.format_tb(error.__traceback__))
    return ERROR, pickled, text_of(error), notes, lines, os.getpid()


class _RemoteTraceback(Exception):
    """Where in a worker process an exception comes from: its cause in the parent, so that its lines are printed."""

    def __str__(self) -> str:
        return str(self.args[0])


def load_error(
    pickled: bytes | None, text: str, notes: list[str], trace: str, pid: int, *, step: int | None = None
) -> BaseException:
    """Return a worker's exception as itself, or a LoaderError with its text where it does not pickle."""
    error: BaseException | None = None
    if pickled is not None:
        try:
            error = pickle.loads(pickled)
        except Exception as failure:
            notes = [*notes, f"it does not unpickle here: {text_of(failure)}"]
    if not isinstance(error, BaseException):
        error = LoaderError(f"in worker process {pid}: {text}", step=step, worker=pid)
    with contextlib.suppress(Exception):  # an exception may refuse to be written to
        for note in notes:
            if note not in getattr(error, "__notes__", ()):
                error.add_note(note)
        error.__cause__ = _RemoteTraceback(f'\n"""\nin worker process {pid}:\n{trace}"""')
    return error
