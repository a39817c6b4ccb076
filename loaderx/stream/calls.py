"""Calls of a function by workers: in any order there, and in their own order here."""

from __future__ import annotations

import os
import pickle
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Literal, TypeAlias

from loaderx.errors import ClosedError, LoaderError, OptionError
from loaderx.loader.ending import Ending
from loaderx.loader.threads import Outcome, Task, ThreadWorkers
from loaderx.stream.calling import describe
from loaderx.stream.failure import Carried
from loaderx.stream.node import Item, Key

WorkerType: TypeAlias = Literal["thread", "process"]
WORKER_TYPES: tuple[WorkerType, ...] = ("thread", "process")

# So many calls wait for a worker, beyond those that workers are at: the next one need not wait for the user.
_WAITING = 2


def pickle_function(call: Callable[..., Any], function: Callable[..., Any]) -> bytes:
    """Return the pickle of what is to be called in worker processes.

    Parameters
    ----------
    call : callable
    function : callable
        The user's function, which is in it.

    Raises
    ------
    OptionError
        It does not pickle.
    """
    try:
        return pickle.dumps(call, protocol=5)
    except Exception as error:
        raise OptionError(
            f"map: {describe(function)} does not pickle, and so cannot be sent to a worker process: "
            f"{type(error).__name__}: {error}. Use a function of a module, not a lambda or a function inside a "
            "function, or worker_type='thread'",
            option="function",
            value=function,
        ) from error


class Call(Task):
    """A call of the function for an item, and what came of it.

    Parameters
    ----------
    key : Key
        Of the item.
    item : object
    number : int
    """

    __slots__ = ("_item", "key")

    def __init__(self, key: Key, item: Item, number: int) -> None:
        super().__init__(number)
        self.key = key
        self._item = item

    def run(self, caller: Callable[[Item, int], Any]) -> None:  # type: ignore[override]
        try:
            result = caller(self._item, self.step)
        except BaseException as error:
            self._item = None
            self.fail(error)
        else:
            self._item = None
            self._finish(Outcome(result, None))


class Calls:
    """Calls of a function by workers, which begin with the first of them.

    Parameters
    ----------
    function : callable
        Called with an item. Several threads call it at once.
    num_workers : int
    pickled : bytes or None
        The function, for worker processes; None: workers are threads.

    Attributes
    ----------
    most : int
        How many calls there should be at once.

    Notes
    -----
    For one thread at a time, but for `close`. Where Ctrl-C comes while one waits, no call is lost.
    """

    def __init__(self, function: Callable[[Item], Any], num_workers: int, pickled: bytes | None) -> None:
        self._function = function
        self._num_workers = num_workers
        self._pickled = pickled
        self.most = num_workers + _WAITING
        self._n = 0
        self._pending: deque[Call] = deque()
        self._ending: Ending | None = None
        self._workers: ThreadWorkers | None = None
        self._finalizer: Any = None
        self._is_closed = False
        self._pid = os.getpid()

    def __len__(self) -> int:
        return len(self._pending)

    def keys(self) -> list[Key]:
        """Return the keys of the calls that have not been taken, in order."""
        return [call.key for call in self._pending]

    def submit(self, key: Key, item: Item) -> None:
        """Have an item's call made. Never waits."""
        if self._ending is None:
            self._start()
        elif os.getpid() != self._pid:
            raise self._in_fork()
        assert self._workers is not None
        call = Call(key, item, self._n)
        self._n += 1
        # In this order, or Ctrl-C between the two would have left a call to be waited for that nobody makes.
        self._workers.submit(call)
        self._pending.append(call)

    def take(self) -> tuple[Key, Outcome]:
        """Wait for the first of the calls, and return its key and what came of it.

        Raises
        ------
        ClosedError
            `close` was called.
        LoaderError
            This process is a fork of that whose workers they are.
        """
        call = self._pending[0]
        outcome = self._wait(call)
        self._pending.popleft()
        call.outcome = None  # the frames of an exception refer to its call
        return call.key, outcome

    def run(self, keys: Sequence[Key], items: Sequence[Item]) -> list[Outcome]:
        """Return what comes of the calls for some items. The others are left as they are."""
        before = len(self._pending)
        try:
            for key, item in zip(keys, items, strict=True):
                self.submit(key, item)
            return [self._wait(call) for call in list(self._pending)[before:]]
        finally:
            while len(self._pending) > before:
                self._pending.pop().drop()

    def _wait(self, call: Call) -> Outcome:
        if os.getpid() != self._pid:
            raise self._in_fork()
        self.check_open()  # or `close`, which rings for what was pending, has not seen this one
        try:
            call.wait()
        except Exception:
            raise
        except BaseException as error:  # Ctrl-C: the call is still to be taken
            raise Carried(error, is_behind=False) from None
        outcome = call.outcome  # from here on `close` cannot take it away
        if outcome is None:
            raise _closed()
        return outcome

    def _start(self) -> None:
        self._pid = os.getpid()
        if self._pickled is None:
            workers = ThreadWorkers(self._num_workers, _call_here(self._function))
        else:
            from loaderx.stream.processes import RemoteCallers

            callers: Any = RemoteCallers(self._pickled, self.most)
            workers = ThreadWorkers(self._num_workers, callers, callers.interrupt)
        # Of these calls, without them: the workers must not keep them, nor what ends them.
        ending = Ending(self._pending)
        ending.workers = self._workers = workers
        self._finalizer = weakref.finalize(self, ending.end)
        self._finalizer.atexit = False
        self._ending = ending
        if self._is_closed:  # meanwhile, by another thread, which has found no workers to end
            ending.end()

    def drop(self) -> None:
        """Forget the calls that have not been taken: a worker that is at one comes to its end."""
        while self._pending:
            self._pending.pop().drop()

    def rest(self) -> None:
        """End the workers until there is another call: there is none now."""
        ending = self._ending
        if ending is not None:
            # In this order, or Ctrl-C between the two would have left workers that nobody ends.
            ending.end()
            self._finalizer.detach()
            self._ending = self._workers = None

    def open(self) -> None:
        """Begin anew, without a call."""
        self.drop()
        if os.getpid() != self._pid:
            self._ending = self._workers = None  # the parent ends its workers
        self._is_closed = False

    def close(self) -> None:
        """End the workers and drop what they made. From any thread: whoever waits gets a `ClosedError`.

        Returns within a second: a worker that is in the function for longer ends behind it.
        """
        self._is_closed = True
        self.rest()

    def interrupt(self) -> None:
        """Have whoever waits give up, and whoever comes. From any thread, and never waits."""
        self._is_closed = True
        ending = self._ending
        if ending is not None:
            ending.begin()

    def check_open(self) -> None:
        """Raise where `close` was called.

        Raises
        ------
        ClosedError
        """
        if self._is_closed:
            raise _closed()

    def _in_fork(self) -> LoaderError:
        return LoaderError(
            f"this iterator belongs to process {self._pid}, of which this one, {os.getpid()}, is a fork: its workers "
            "do not survive a fork. Make another iterator here, and load the state of this one to go on where it was"
        )


def _call_here(function: Callable[[Item], Any]) -> Any:
    def call(item: Item, number: int) -> Any:
        return function(item)

    def leave() -> None:
        pass

    return lambda: (call, leave)


def _closed() -> ClosedError:
    return ClosedError("the iterator is closed: make another one, and load its state to go on where it was")
