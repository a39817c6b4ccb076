"""The worker processes of one parent, and what each of its threads does alike that asks one of them."""

from __future__ import annotations

import multiprocessing.util
import threading
import weakref
from collections.abc import Callable
from typing import Any

from loaderx.errors import ClosedError
from loaderx.loader.worker import DIE_S, END_S, Worker, check_not_starting


class Processes:
    """The worker processes that the threads of one parent start.

    Parameters
    ----------
    pickled : bytes
        What each process is given first.
    most : int
        How many requests there are at once.
    start_method : str
        "spawn" or "forkserver".
    work : callable
        What a process does.
    *arguments
        What it is called with, behind its channel.

    Raises
    ------
    LoaderError
        This process is a worker process itself, importing the main module.
    """

    def __init__(
        self, pickled: bytes, most: int, start_method: str, work: Callable[..., None], *arguments: Any
    ) -> None:
        check_not_starting()
        self.pickled = pickled
        self.most = most
        self.is_closing = False
        # The first worker starts alone: what is wrong with the program is then wrong once, and said once; and what is
        # asked for first comes sooner. Held while it does.
        self.starting = threading.Lock()
        self.has_started = False
        self._start_method = start_method
        self._work = work
        self._arguments = arguments
        self._workers: set[Worker] = set()
        # Before multiprocessing ends its children when the interpreter ends, or others would be started in their place.
        multiprocessing.util.Finalize(self, _interrupt, (weakref.ref(self),), exitpriority=0)

    def start(self) -> Worker:
        """Return a new worker process, which has not said yet that it is ready."""
        worker = Worker(self._start_method, self._work, *self._arguments)
        self._workers.add(worker)
        if self.is_closing:  # asked behind the change, for `interrupt` may have come between
            worker.channel.shut()
        return worker

    def end(self, worker: Worker, patience_s: float) -> int | None:
        """End a worker process, and return its exit code."""
        self._workers.discard(worker)
        return worker.end(patience_s)

    def interrupt(self) -> None:
        """Have every thread that waits for its process give up. Never waits."""
        self.is_closing = True
        for worker in list(self._workers):
            worker.channel.shut()


def _interrupt(processes: weakref.ref[Processes]) -> None:
    alive = processes()
    if alive is not None:
        alive.interrupt()


class Proxy:
    """Asks a worker process, which it starts when it is first asked and when the last one died. For one thread.

    Parameters
    ----------
    processes : Processes
    closed : str
        What a `ClosedError` says.
    """

    def __init__(self, processes: Processes, closed: str) -> None:
        self._processes = processes
        self._closed = closed
        self._worker: Worker | None = None

    def check_open(self) -> None:
        """Raise `ClosedError` where the parent is closing."""
        if self._processes.is_closing:
            raise ClosedError(self._closed)

    def bury(self) -> int | None:
        """See to a worker that is gone, or should be, and return its exit code.

        Raises
        ------
        ClosedError
        """
        worker, self._worker = self._worker, None
        assert worker is not None
        code = self._processes.end(worker, END_S if self._processes.is_closing else DIE_S)
        if self._processes.is_closing:
            raise ClosedError(self._closed) from None
        return code

    def end(self) -> None:
        """End the process, if there is one."""
        worker, self._worker = self._worker, None
        if worker is not None:
            self._processes.end(worker, END_S)
