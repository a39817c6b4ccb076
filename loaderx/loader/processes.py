"""Worker processes: each is asked by a worker thread of the parent, which is its proxy.

The threads of `ThreadWorkers` take the tasks, so order, state, errors and closing are the same code for both kinds of
workers. All that is different is where a thread gets its batch from.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import multiprocessing.forkserver
import multiprocessing.process
import multiprocessing.resource_tracker
import multiprocessing.util
import os
import pickle
import select
import signal
import socket
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

from loaderx._core.lease import SharedBlock
from loaderx.errors import ClosedError, LoaderError, OptionError
from loaderx.loader import parcel, remote
from loaderx.loader.blocks import Blocks
from loaderx.loader.channel import Channel
from loaderx.loader.fetch import Batch, Costs, Fetch

#: How long a worker that is told to end may take for it; then, how long one that was sent SIGTERM.
END_S = 0.3
TERMINATE_S = 0.2
# How long a worker that closed its end of the channel may take to be gone. One that died is gone at once.
_DIE_S = 1.0
# So many blocks are kept for batches that the user holds, beyond those that the loader has.
_HELD_BLOCKS = 8

_CURES = {
    signal.SIGKILL: ": perhaps by the system, because memory ran out",
    signal.SIGSEGV: ": compiled code that a stream or the transform calls crashed",
    signal.SIGBUS: ": compiled code that a stream or the transform calls crashed, or a file was cut that it had mapped",
    signal.SIGABRT: ": compiled code that a stream or the transform calls gave up",
}

# Two that start or look after processes at once would take exit codes from each other.
_processes_lock = threading.Lock()


class _Worker:
    """A worker process, as its proxy sees it.

    Parameters
    ----------
    start_method : str
    tell_gathered : bool
        Whether it has to say when a gather is over.

    Raises
    ------
    Exception
        The system starts no more processes, or this one may not have any.
    """

    def __init__(self, start_method: str, tell_gathered: bool) -> None:
        context: Any = multiprocessing.get_context(start_method)
        ours, theirs = socket.socketpair()
        self.channel = Channel(ours)
        try:
            with theirs:
                self.process = context.Process(
                    target=remote.work, args=(theirs, tell_gathered), name="loaderx-worker", daemon=True
                )
                with _processes_lock, _interrupts_blocked(start_method):
                    self.process.start()
        except BaseException:
            self.channel.close()
            raise
        self.pid: int = self.process.pid
        self._end_fd = _open_pidfd(self.pid)
        self._poller = select.poll()
        self._poller.register(self.channel, select.POLLIN)
        self._poller.register(self._sentinel(), select.POLLIN)

    def _sentinel(self) -> int:
        """Return a descriptor that can be read when the process is gone."""
        return int(self.process.sentinel) if self._end_fd is None else self._end_fd

    def hear(self) -> remote.Message:
        """Wait for a message of the worker.

        Raises
        ------
        EOFError, OSError
            It is gone, or the channel was shut.
        """
        # Not the channel alone: a process that the worker forked may have the other end too.
        ready = [fd for fd, _ in self._poller.poll()]
        if self.channel.fileno() not in ready and self.channel.fileno() not in [
            fd for fd, _ in self._poller.poll(0)
        ]:
            raise EOFError
        message, _ = self.channel.recv()
        heard: remote.Message = pickle.loads(message)
        return heard

    def end(self, patience_s: float) -> int | None:
        """End the process, if need be by force, and return its exit code; None: nobody knows it."""
        self.channel.close()  # which tells the worker
        if not self._is_gone(patience_s):
            self.process.terminate()
            if not self._is_gone(TERMINATE_S):
                self.process.kill()
                self._is_gone(_DIE_S)
        # Not closed: multiprocessing, which ends all processes when the interpreter ends, may just be about to join it.
        code = self._exit_code()
        if self._end_fd is not None:
            os.close(self._end_fd)
            self._end_fd = None
        return code

    def _is_gone(self, patience_s: float) -> bool:
        poller = select.poll()
        poller.register(self._sentinel(), select.POLLIN)
        return bool(poller.poll(patience_s * 1000))

    def _exit_code(self) -> int | None:
        deadline = time.monotonic() + END_S
        while True:
            with _processes_lock:
                self.process.join(0.02)
                code: int | None = self.process.exitcode
            # Whoever else looks after this program's children may have been told, and is about to note it.
            if code is not None or time.monotonic() > deadline:
                return code


def _open_pidfd(pid: int) -> int | None:
    try:
        return os.pidfd_open(pid)
    except (AttributeError, OSError):
        return None


@contextlib.contextmanager
def _interrupts_blocked(start_method: str) -> Iterator[None]:
    """Have a process that is started inside leave Ctrl-C alone until it has said that it ignores it.

    A fork server's children inherit what is blocked from the server, which is started here unless somebody else has.
    """
    multiprocessing.resource_tracker.ensure_running()  # or starting it would unblock it again
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        if start_method == "forkserver":
            multiprocessing.forkserver.ensure_running()
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


class RemoteFetchers:
    """Makes the fetchers of a loader's worker threads, each with a process of its own.

    Parameters
    ----------
    fetch : Fetch
        Pickled here, once.
    gathers : context manager or None
        Bounds the gathers of all the processes: every one runs inside it.
    most : int
        How many batches the loader has at once.
    start_method : str
        "spawn" or "forkserver".

    Raises
    ------
    OptionError
        A stream or the transform does not pickle.
    LoaderError
        This process is a worker process itself, importing the main module.
    """

    def __init__(
        self, fetch: Fetch, gathers: AbstractContextManager[Any] | None, most: int, start_method: str
    ) -> None:
        if getattr(multiprocessing.current_process(), "_inheriting", False):
            raise LoaderError(
                "this is a worker process, which imports the program's main module to begin, and that module uses a "
                "loader with worker processes as it is imported. Guard it: put what the program does into "
                "if __name__ == '__main__':"
            )
        self.pickled = _pickle(fetch)
        self.gathers = gathers
        self.start_method = start_method
        self.most = most
        self.blocks = Blocks(most + _HELD_BLOCKS)
        self.is_closing = False
        # The first worker starts alone: what is wrong with the program is then wrong once, and said once; and the first
        # batch comes sooner. Held while it does.
        self.starting = threading.Lock()
        self.has_started = False
        self.failure: LoaderError | None = None
        self.workers: set[_Worker] = set()
        _live[id(self)] = self
        # Before multiprocessing ends its children when the interpreter ends, or others would be started in their place.
        multiprocessing.util.Finalize(self, _interrupt, (weakref.ref(self),), exitpriority=0)

    def __call__(self) -> tuple[RemoteFetcher, Callable[[], None]]:
        """Return a fetcher for one thread, and what ends it."""
        fetcher = RemoteFetcher(self)
        return fetcher, fetcher.end

    def start(self) -> _Worker:
        """Return a new worker process, which has not said yet that it is ready."""
        worker = _Worker(self.start_method, self.gathers is not None)
        self.workers.add(worker)
        if self.is_closing:  # asked behind the change, for `interrupt` may have come between
            worker.channel.shut()
        return worker

    def end(self, worker: _Worker, patience_s: float) -> int | None:
        """End a worker process, and return its exit code."""
        self.workers.discard(worker)
        return worker.end(patience_s)

    def interrupt(self) -> None:
        """Have every thread that waits for its process give up. Never waits."""
        self.is_closing = True
        for worker in list(self.workers):
            worker.channel.shut()
        self.blocks.close()


def _interrupt(fetchers: weakref.ref[RemoteFetchers]) -> None:
    alive = fetchers()
    if alive is not None:
        alive.interrupt()


class RemoteFetcher:
    """Makes batches by asking a worker process, which it starts when it is first asked and when the last one died.

    For one thread.

    Parameters
    ----------
    shared : RemoteFetchers
    """

    def __init__(self, shared: RemoteFetchers) -> None:
        self._shared = shared
        self._worker: _Worker | None = None

    def __call__(self, step: int, /) -> tuple[Batch, Costs]:
        """Return the batch of a step, and what it took in the worker process.

        Raises
        ------
        LoaderError
            The worker process could not be started, or died.
        Exception
            What a stream or the transform raised there.
        """
        shared = self._shared
        if shared.is_closing:
            raise _closed()
        worker = self._worker or self._start(step)
        block = shared.blocks.take()
        try:
            kind, *answer = self._ask(worker, step, block)
        except (EOFError, OSError):
            shared.blocks.give_back(block)
            code = self._bury()
            raise LoaderError(
                f"worker process {worker.pid} {_describe_end(code)}, at step {step}. The next step has another worker; "
                f"seek({step}) tries this one again",
                step=step,
                worker=worker.pid,
                exit_code=code,
            ) from None
        if kind == remote.ERROR:
            shared.blocks.give_back(block)
            raise remote.load_error(*answer, step=step)
        given, costs, data, sizes = answer
        if given != step or os.fstat(block.fd).st_size < sum(sizes):
            shared.blocks.give_back(block)
            self._bury()
            raise LoaderError(
                f"worker process {worker.pid} answered for step {given}, and was asked for step {step}: something else "
                "than the worker uses its socket, such as a fork that its transform made",
                step=step,
                worker=worker.pid,
            )
        if not sizes:
            shared.blocks.give_back(block)
        return parcel.unpack(data, sizes, lambda n: shared.blocks.lend(block, n)), Costs(*costs)

    def _ask(self, worker: _Worker, step: int, block: SharedBlock) -> remote.Message:
        if self._shared.gathers is not None:
            # Held here and not there, so that it is let go whatever becomes of the worker.
            with self._shared.gathers:
                remote.send(worker.channel, step, fds=(block.fd,))
                worker.hear()
        else:
            remote.send(worker.channel, step, fds=(block.fd,))
        return worker.hear()

    def _start(self, step: int) -> _Worker:
        shared = self._shared
        with shared.starting:
            if not shared.has_started:
                failure = shared.failure
                # What was asked for before the user can have seen it fails with it: so many steps.
                if (
                    failure is not None
                    and failure.step is not None
                    and 0 < step - failure.step <= shared.most
                ):
                    raise LoaderError(
                        failure.message, step=step, worker=failure.worker, exit_code=failure.exit_code
                    ) from failure.__cause__
                try:
                    worker = self._start_one(step)
                except LoaderError as error:
                    shared.failure = error
                    raise
                shared.has_started = True
                return worker
        return self._start_one(step)

    def _start_one(self, step: int) -> _Worker:
        try:
            worker = self._worker = self._shared.start()
        except Exception as error:
            raise LoaderError(
                f"no worker process could be started: {type(error).__name__}: {error}. worker_type='thread' needs none",
                step=step,
            ) from error
        try:
            worker.channel.send(self._shared.pickled)
            kind, *answer = worker.hear()
        except (EOFError, OSError):
            code = self._bury()
            raise LoaderError(
                f"worker process {worker.pid} {_describe_end(code)} while it started, before it had the streams and "
                f"the transform. What it printed says why. {_advise_on_main()}",
                step=step,
                worker=worker.pid,
                exit_code=code,
            ) from None
        if kind == remote.ERROR:
            cause = remote.load_error(*answer, step=step)
            code = self._bury()
            cure = ""
            if isinstance(cause, ImportError | AttributeError):
                cure = f". It imports by name what they are made of: {_say_where_to_define()}"
            raise LoaderError(
                f"worker process {worker.pid} could not load the streams and the transform: {type(cause).__name__}: "
                f"{cause}{cure}",
                step=step,
                worker=worker.pid,
                exit_code=code,
            ) from cause
        return worker

    def _bury(self) -> int | None:
        """See to a worker that is gone, or should be, and return its exit code."""
        worker, self._worker = self._worker, None
        assert worker is not None
        if self._shared.is_closing:
            self._shared.end(worker, END_S)
            raise _closed() from None
        return self._shared.end(worker, _DIE_S)

    def end(self) -> None:
        """End the process, if there is one."""
        worker, self._worker = self._worker, None
        if worker is not None:
            self._shared.end(worker, END_S)


def _closed() -> ClosedError:
    return ClosedError("the loader was closed")


def _describe_end(code: int | None) -> str:
    if code is None:
        return "ended, nobody knows how"
    if code >= 0:
        return f"ended with exit code {code}"
    with contextlib.suppress(ValueError):
        name = signal.Signals(-code)
        return f"was killed by signal {-code}, {name.name}{_CURES.get(name, '')}"
    return f"was killed by signal {-code}"


def _main_has_file() -> bool:
    """Return whether a worker process can import the main module: not that of a notebook, a prompt or stdin."""
    main = sys.modules.get("__main__")
    return getattr(main, "__spec__", None) is not None or os.path.exists(
        getattr(main, "__file__", None) or ""
    )


def _advise_on_main() -> str:
    if _main_has_file():
        return "It imports the program's main module anew: put what the program does into if __name__ == '__main__':"
    return (
        "It cannot import the main module of a notebook, a prompt or standard input: run the program from a file, or "
        "use worker_type='thread'"
    )


def _say_where_to_define() -> str:
    if _main_has_file():
        return "define functions and classes in a module, or in the main one above if __name__ == '__main__':"
    return (
        "define functions and classes in a module of their own, for it cannot import the main module of a notebook, a "
        "prompt or standard input; or use worker_type='thread'"
    )


def _pickle(fetch: Fetch) -> bytes:
    try:
        return pickle.dumps(fetch, protocol=5)
    except Exception as error:
        for name, part in fetch.parts().items():
            try:
                pickle.dumps(part, protocol=5)
            except Exception as reason:
                raise OptionError(
                    f"{name} does not pickle, and so cannot be sent to a worker process: {type(reason).__name__}: "
                    f"{reason}. Use functions and classes of a module, not lambdas or functions inside functions, or "
                    "worker_type='thread'",
                    option="streams" if name.startswith("stream ") else "transform",
                    value=part,
                ) from error
        raise


# ---- Forks --------------------------------------------------------------------------------------------------------
# A child that the program forks has copies of everything but the threads. It may not end the workers, nor keep them
# from seeing that their parent is gone, nor see a batch that it has turn into another one.

_live: weakref.WeakValueDictionary[int, RemoteFetchers] = weakref.WeakValueDictionary()
_lent_at_fork: list[SharedBlock] = []


def _fetchers() -> list[RemoteFetchers]:
    return [alive for ref in _live.valuerefs() if (alive := ref()) is not None]


def _before_fork() -> None:
    for fetchers in _fetchers():
        _lent_at_fork.extend(fetchers.blocks.forget_lent())


def _after_fork_in_parent() -> None:
    _lent_at_fork.clear()


def _after_fork_in_child() -> None:
    global _processes_lock
    _processes_lock = threading.Lock()
    for block in _lent_at_fork:
        block.close_file()
    _lent_at_fork.clear()
    for fetchers in _fetchers():
        fetchers.blocks.close()
        for worker in list(fetchers.workers):
            worker.channel.close_copy()
            # Or multiprocessing would end them when the child ends.
            getattr(multiprocessing.process, "_children", set()).discard(worker.process)


os.register_at_fork(
    before=_before_fork, after_in_parent=_after_fork_in_parent, after_in_child=_after_fork_in_child
)
