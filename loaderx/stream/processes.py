"""Worker processes of a stream: each is asked by a worker thread of the parent, which is its proxy."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any, NoReturn

from loaderx.errors import LoaderError
from loaderx.loader.proxies import Processes, Proxy
from loaderx.loader.remote import ERROR, Message, load_error
from loaderx.loader.worker import Worker, advise_on_main, describe_end, say_where_to_define
from loaderx.store.telling import said
from loaderx.stream.fault import FaultError
from loaderx.stream.remote import STUCK, work

_START_METHOD = "spawn"


class RemoteCallers(Processes):
    """Makes the callers of a node's worker threads, each with a process of its own.

    Parameters
    ----------
    pickled : bytes
        The function.
    most : int
        How many calls there are at once.

    Raises
    ------
    LoaderError
        This process is a worker process itself, importing the main module.
    """

    def __init__(self, pickled: bytes, most: int) -> None:
        super().__init__(pickled, most, _START_METHOD, work)
        # Why the first worker did not start, and which call it was for.
        self.failure: tuple[LoaderError, int] | None = None

    def __call__(self) -> tuple[RemoteCaller, Callable[[], None]]:
        """Return a caller for one thread, and what ends it."""
        caller = RemoteCaller(self)
        return caller, caller.end


class RemoteCaller(Proxy):
    """Calls the function in a worker process, which it starts when it is first asked and when the last one died.

    For one thread.

    Parameters
    ----------
    shared : RemoteCallers
    """

    def __init__(self, shared: RemoteCallers) -> None:
        super().__init__(shared, "the iterator was closed")
        self._shared = shared

    def __call__(self, item: Any, number: int) -> Any:
        """Return what the function makes of an item.

        Parameters
        ----------
        item : object
        number : int
            Of the call, from 0.

        Raises
        ------
        FaultError
            The process could not be started, or died; or item or result cannot be sent.
        ClosedError
        BaseException
            What the function raised there.
        """
        self.check_open()
        worker = self._worker or self._start(number)
        try:
            message = pickle.dumps(item, protocol=5)
        except Exception as error:
            _fault(
                f"the item does not pickle, and so cannot be sent to a worker process: {type(error).__name__}: "
                f"{said(error)}. worker_type='thread' sends nothing",
                cause=error,
            )
        try:
            worker.channel.send(message)
            del message
            received = worker.receive()
        except (EOFError, OSError):
            code = self.bury()
            _fault(
                f"worker process {worker.pid} {describe_end(code)}. The next item has another worker",
                worker=worker.pid,
                exit_code=code,
            )
        answer: Message = self._read(received, worker)
        if answer[0] == STUCK:
            _fault(
                f"what the function returned does not pickle, and so cannot leave worker process {worker.pid}: "
                f"{answer[1]}. Return what does, or use worker_type='thread'",
                worker=worker.pid,
            )
        if answer[0] == ERROR:
            raise load_error(*answer[1:])
        return answer[1]

    def _read(self, received: bytes, worker: Worker) -> Message:
        try:
            answer: Message = pickle.loads(received)
        except Exception as error:
            _fault(
                f"what the function returned in worker process {worker.pid} does not unpickle here: "
                f"{type(error).__name__}: {said(error)}",
                worker=worker.pid,
                cause=error,
            )
        return answer

    def _start(self, number: int) -> Worker:
        shared = self._shared
        with shared.starting:
            if not shared.has_started:
                # What was asked for before the user can have seen it fails with it.
                if shared.failure is not None and 0 < number - shared.failure[1] <= shared.most:
                    raise FaultError(shared.failure[0])
                try:
                    worker = self._start_one()
                except FaultError as error:
                    shared.failure = error.reason, number
                    raise
                shared.has_started = True
                return worker
        return self._start_one()

    def _start_one(self) -> Worker:
        try:
            worker = self._worker = self._shared.start()
        except Exception as error:
            _fault(
                f"no worker process could be started: {type(error).__name__}: {said(error)}. "
                "worker_type='thread' needs none",
                cause=error,
            )
        try:
            worker.channel.send(self._shared.pickled)
            kind, *answer = worker.hear()
        except (EOFError, OSError):
            code = self.bury()
            _fault(
                f"worker process {worker.pid} {describe_end(code)} while it started, before it had the function. What "
                f"it printed says why. {advise_on_main()}",
                worker=worker.pid,
                exit_code=code,
            )
        if kind == ERROR:
            cause = load_error(*answer)
            code = self.bury()
            cure = ""
            if isinstance(cause, ImportError | AttributeError):
                cure = f". It imports the function by its name: {say_where_to_define()}"
            _fault(
                f"worker process {worker.pid} could not load the function: {type(cause).__name__}: {said(cause)}{cure}",
                worker=worker.pid,
                exit_code=code,
                cause=cause,
            )
        return worker


def _fault(
    message: str,
    worker: int | None = None,
    exit_code: int | None = None,
    cause: BaseException | None = None,
) -> NoReturn:
    reason = LoaderError(message, worker=worker, exit_code=exit_code)
    reason.__cause__ = cause
    raise FaultError(reason) from None
