"""Worker processes: each is asked by a worker thread of the parent, which is its proxy.

The threads of `ThreadWorkers` take the tasks, so order, state, errors and closing are the same code for both kinds of
workers. All that is different is where a thread gets its batch from.
"""

from __future__ import annotations

import os
import pickle
import weakref
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from loaderx._core.lease import SharedBlock
from loaderx.errors import LoaderError, OptionError
from loaderx.loader import parcel, remote
from loaderx.loader.blocks import Blocks
from loaderx.loader.fetch import Batch, Costs, Fetch
from loaderx.loader.proxies import Processes, Proxy
from loaderx.loader.worker import Worker, advise_on_main, describe_end, say_where_to_define

# So many blocks are kept for batches that the user holds, beyond those that the loader has.
_HELD_BLOCKS = 8


class RemoteFetchers(Processes):
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
        super().__init__(_pickle(fetch), most, start_method, remote.work, gathers is not None)
        self.gathers = gathers
        self.blocks = Blocks(most + _HELD_BLOCKS)
        self.failure: LoaderError | None = None
        _live[id(self)] = self

    def __call__(self) -> tuple[RemoteFetcher, Callable[[], None]]:
        """Return a fetcher for one thread, and what ends it."""
        fetcher = RemoteFetcher(self)
        return fetcher, fetcher.end

    def interrupt(self) -> None:
        """Have every thread that waits for its process, or for memory, give up. Never waits."""
        super().interrupt()
        self.blocks.close()


class RemoteFetcher(Proxy):
    """Makes batches by asking a worker process, which it starts when it is first asked and when the last one died.

    For one thread.

    Parameters
    ----------
    shared : RemoteFetchers
    """

    def __init__(self, shared: RemoteFetchers) -> None:
        super().__init__(shared, "the loader was closed")
        self._shared = shared

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
        self.check_open()
        worker = self._worker or self._start(step)
        block = shared.blocks.take()
        try:
            kind, *answer = self._ask(worker, step, block)
        except (EOFError, OSError):
            shared.blocks.give_back(block)
            code = self.bury()
            raise LoaderError(
                f"worker process {worker.pid} {describe_end(code)}, at step {step}. The next step has another worker; "
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
            self.bury()
            raise LoaderError(
                f"worker process {worker.pid} answered for step {given}, and was asked for step {step}: something else "
                "than the worker uses its socket, such as a fork that its transform made",
                step=step,
                worker=worker.pid,
            )
        if not sizes:
            shared.blocks.give_back(block)
        return parcel.unpack(data, sizes, lambda n: shared.blocks.lend(block, n)), Costs(*costs)

    def _ask(self, worker: Worker, step: int, block: SharedBlock) -> remote.Message:
        if self._shared.gathers is not None:
            # Held here and not there, so that it is let go whatever becomes of the worker.
            with self._shared.gathers:
                remote.send(worker.channel, step, fds=(block.fd,))
                worker.hear()
        else:
            remote.send(worker.channel, step, fds=(block.fd,))
        return worker.hear()

    def _start(self, step: int) -> Worker:
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

    def _start_one(self, step: int) -> Worker:
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
            code = self.bury()
            raise LoaderError(
                f"worker process {worker.pid} {describe_end(code)} while it started, before it had the streams and "
                f"the transform. What it printed says why. {advise_on_main()}",
                step=step,
                worker=worker.pid,
                exit_code=code,
            ) from None
        if kind == remote.ERROR:
            cause = remote.load_error(*answer, step=step)
            code = self.bury()
            cure = ""
            if isinstance(cause, ImportError | AttributeError):
                cure = f". It imports by name what they are made of: {say_where_to_define()}"
            raise LoaderError(
                f"worker process {worker.pid} could not load the streams and the transform: {type(cause).__name__}: "
                f"{cause}{cure}",
                step=step,
                worker=worker.pid,
                exit_code=code,
            ) from cause
        return worker


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
# A child that the program forks may not see a batch that it has turn into another one. What becomes of the workers is
# in `worker`.

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
    for block in _lent_at_fork:
        block.close_file()
    _lent_at_fork.clear()
    for fetchers in _fetchers():
        fetchers.blocks.close()


os.register_at_fork(
    before=_before_fork, after_in_parent=_after_fork_in_parent, after_in_child=_after_fork_in_child
)
