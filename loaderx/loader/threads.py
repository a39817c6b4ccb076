"""Worker threads: they take tasks as they come, and each task says when it is done."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, NamedTuple, NoReturn, Protocol, TypeAlias

from loaderx._core.threads import limit_this_thread
from loaderx.loader.fetch import Batch, Costs, put_note

#: How long the end of a loader waits for workers that are in a transform.
PATIENCE_S = 0.8


class Fetcher(Protocol):
    """What a worker thread makes batches with."""

    def __call__(self, step: int, /) -> tuple[Batch, Costs]: ...


#: Returns the fetcher of a worker, and what ends it.
MakeFetcher: TypeAlias = Callable[[], tuple[Fetcher, Callable[[], None]]]


class Outcome(NamedTuple):
    """What became of a task: a batch, or the exception in its place."""

    batch: Batch
    error: BaseException | None


class Task:
    """The batch of one step, once it is there.

    One thread runs it, or nobody; one waits for it.

    Attributes
    ----------
    step : int
    costs : Costs
    outcome : Outcome or None
        None: not yet, or nobody wants it any more.
    is_done : bool
        No worker is at it, nor will be.
    is_dropped : bool
        Nobody wants it any more: a worker that has not begun it leaves it.
    """

    __slots__ = ("_bell", "costs", "is_done", "is_dropped", "outcome", "step")

    def __init__(self, step: int) -> None:
        self.step = step
        self.costs = Costs()
        self.outcome: Outcome | None = None
        self.is_done = False
        self.is_dropped = False
        self._bell: SimpleQueue[None] = SimpleQueue()

    def run(self, fetch: Fetcher) -> None:
        """Make the batch, or keep the exception for whoever takes it."""
        try:
            batch, self.costs = fetch(self.step)
        except BaseException as error:
            self.fail(error)
        else:
            self._finish(Outcome(batch, None))

    def fail(self, error: BaseException) -> None:
        """Give whoever waits an exception instead of the batch."""
        self._finish(Outcome(None, error))

    def _finish(self, outcome: Outcome) -> None:
        self.outcome = outcome
        if self.is_dropped:  # asked behind the change, for `drop` may have come between
            self.outcome = None
        self.ring()

    def ring(self) -> None:
        """Wake whoever waits."""
        self.is_done = True
        self._bell.put(None)

    def drop(self) -> None:
        """Let go of the batch, if it is there, or of making it."""
        self.is_dropped = True
        self.outcome = None

    def wait(self) -> None:
        """Wait until the task is done. A signal may interrupt it, and it may be called again, by its handler too."""
        while not self.is_done:
            self._bell.get()
            self._bell.put(None)  # for the call that this one interrupted


def raise_at(error: BaseException, step: int) -> NoReturn:
    """Raise an exception, with a note of the step it belongs to.

    Raises
    ------
    RuntimeError
        The exception was a StopIteration, which would end the user's loop without a word.
    """
    try:
        if isinstance(error, StopIteration | StopAsyncIteration):
            told = RuntimeError(f"a stream or the transform raised {type(error).__name__}")
            told.__cause__ = error
            error = told
        put_note(error, "at step ", f"{step} of the loader")
        raise error
    finally:
        del error  # it refers to this frame


class ThreadWorkers:
    """Threads that run tasks in the order they are submitted, each with one thread for its gathers.

    Parameters
    ----------
    n : int
        How many.
    make_fetcher : callable
        Called in each thread, at its beginning.
    interrupt : callable
        Called by `stop`: has the fetchers that wait for something give up. Never waits, and may be called again.

    Raises
    ------
    RuntimeError
        The system starts no more threads.
    """

    # The process whose threads they are; set last of all that `__del__` needs.
    _pid = 0

    def __init__(
        self, n: int, make_fetcher: MakeFetcher, interrupt: Callable[[], None] = lambda: None
    ) -> None:
        self._interrupt = interrupt
        self._n = n
        self._tasks: SimpleQueue[Task | None] = SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._pid = os.getpid()
        try:
            for i in range(n):
                # A daemon, or the interpreter would wait for it before it calls what ends it.
                thread = threading.Thread(
                    target=_work, args=(self._tasks, make_fetcher), name=f"loaderx-worker-{i}", daemon=True
                )
                thread.start()
                self._threads.append(thread)
        except BaseException:
            self.stop()
            raise

    def submit(self, task: Task) -> None:
        """Have a task run. Never waits."""
        self._tasks.put(task)

    def stop(self) -> None:
        """Have every worker end when it is through with what it is at. Never waits, and may be called again."""
        if os.getpid() == self._pid:  # a fork has no such threads
            for _ in range(self._n):
                self._tasks.put(None)
            self._interrupt()

    def __del__(self) -> None:
        self.stop()  # where Ctrl-C came before anybody had them, too

    def join(self, deadline: float) -> None:
        """Wait for the workers until a time of `time.monotonic`: who is in a long transform ends after it."""
        if os.getpid() != self._pid:
            return
        for thread in self._threads:
            # The last reference to a loader may go in one of its own workers.
            if thread is not threading.current_thread():
                thread.join(max(0.0, deadline - time.monotonic()))


def _work(tasks: SimpleQueue[Task | None], make_fetcher: MakeFetcher) -> None:
    limit_this_thread(1)
    fetch: Any = None
    end: Callable[[], None] | None = None
    try:
        while (task := tasks.get()) is not None:
            if task.is_dropped:
                task.ring()
            else:
                try:
                    if fetch is None:
                        fetch, end = make_fetcher()
                except BaseException as error:
                    task.fail(error)
                else:
                    task.run(fetch)
            del task  # or a worker that waits would keep its last batch
    finally:
        if end is not None:
            end()
