"""A function of each item, called by workers; the items come in their order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from loaderx.stream.calling import complain, explain
from loaderx.stream.calls import Calls, WorkerType, pickle_function
from loaderx.stream.failure import Carried, load_failure, save_failure
from loaderx.stream.fault import FaultError
from loaderx.stream.keys import load_keys, save_keys
from loaderx.stream.lazy import refuse_lazy
from loaderx.stream.node import Item, Key, Node, State
from loaderx.stream.skipping import MaySkip


class ParallelMap(MaySkip):
    """A function of each item, of the same key. Some items more than there are workers are under way at once.

    What the input raises comes in its turn, behind the items before it.

    Parameters
    ----------
    upstream : Node
    function : callable
        The user's.
    num_workers : int
    worker_type : str
    skips : bool
        Leave out the items that the function raises for, and count them. A worker process that dies is an error all the
        same.
    call : callable, optional
        What calls `function`, where that gets something else than the item.
    """

    called = "map"
    is_itemwise = True

    def __init__(
        self,
        upstream: Node,
        function: Callable[..., Any],
        num_workers: int,
        worker_type: WorkerType,
        skips: bool = False,
        call: Callable[[Item], Item] | None = None,
    ) -> None:
        self._upstream = upstream
        self._function = function
        self._skips = skips
        self._is_looked_at = False
        call = function if call is None else call
        pickled = pickle_function(call, function) if worker_type == "process" else None
        self._calls = Calls(call, num_workers, pickled)

    def reset(self, state: State | None = None) -> None:
        state = self.load_skipped(state)
        self._calls.open()
        self._has_ended = False
        self._failure = None if state is None else load_failure(state["failure"])
        self._upstream.reset(None if state is None else state["upstream"])
        keys = [] if state is None else load_keys(state["keys"])
        if keys:
            for key, item in zip(keys, self._upstream.rebuild(keys), strict=True):
                self._calls.submit(key, item)

    def next(self) -> tuple[Key, Item]:
        while True:
            self._fill()
            if not self._calls:
                self._end_or_fail()
            key, (item, error) = self._calls.take()
            if error is None:
                if self._is_looked_at:
                    return key, item
                try:
                    refuse_lazy(item)
                except TypeError as refused:
                    error = refused
                else:
                    self._is_looked_at = True  # once: a function that does so does it for every item
                    return key, item
            try:
                if not self._skips or not isinstance(error, Exception) or isinstance(error, FaultError):
                    self._raise(key, error)
            finally:
                del error  # its frames refer to this one
            self.n_skipped += self.weigh(key)

    def _fill(self) -> None:
        calls, upstream = self._calls, self._upstream.next
        calls.check_open()
        while len(calls) < calls.most and not self._has_ended and self._failure is None:
            try:
                key, item = upstream()
            except StopIteration:
                self._has_ended = True
            except Exception as error:
                if isinstance(error, Carried) and not error.is_behind:
                    raise
                self._failure = error
            else:
                calls.submit(key, item)

    def _end_or_fail(self) -> NoReturn:
        """Raise what comes when nothing is under way any more."""
        failure, self._failure = self._failure, None
        if failure is not None:
            try:
                raise failure
            finally:
                del failure
        self._calls.rest()
        raise StopIteration

    def _raise(self, key: Key, error: BaseException, is_held: bool = False) -> NoReturn:
        """Raise what came of a call; `is_held`: for an item that a state holds."""
        if isinstance(error, FaultError):
            raise complain(error.reason, "map", self.locate(key), is_held) from error.reason
        if isinstance(error, Exception):
            raise explain(error, "map", self._function, self.locate(key), is_held) from error
        raise Carried(error, is_behind=True)

    def get_state(self) -> State:
        return self.save_skipped(
            {
                "upstream": self._upstream.get_state(),
                "keys": save_keys(self._calls.keys(), self.shares_keys),
                "failure": save_failure(self._failure),
            }
        )

    def rebuild(self, keys: Sequence[Key]) -> list[Item]:
        items = []
        for key, (item, error) in zip(keys, self._calls.run(keys, self._upstream.rebuild(keys)), strict=True):
            if error is not None:
                try:
                    self._raise(key, error, is_held=True)
                finally:
                    del error  # its frames refer to this one
            items.append(item)
        return items

    def locate(self, key: Key) -> str:
        return self._upstream.locate(key)

    def interrupt(self) -> None:
        self._calls.interrupt()
        super().interrupt()

    def close(self) -> None:
        self._calls.close()
        self._upstream.close()
