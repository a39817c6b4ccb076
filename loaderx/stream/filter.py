"""The items that a function is true of."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from loaderx.stream.calling import explain
from loaderx.stream.node import Item, Key, Node, State, Transparent
from loaderx.stream.skipping import MaySkip


class Filter(MaySkip, Transparent):
    """The items that a function is true of. What is made anew was let through before, and is not asked about again.

    Parameters
    ----------
    upstream : Node
    function : callable
    skips : bool
        Leave out the items that the function raises for, and count them.
    """

    called = "filter"
    is_itemwise = True

    def __init__(self, upstream: Node, function: Callable[..., Any], skips: bool = False) -> None:
        super().__init__(upstream)
        self._function = function
        self._skips = skips

    def reset(self, state: State | None = None) -> None:
        super().reset(self.load_skipped(state))

    def next(self) -> tuple[Key, Item]:
        while True:
            pair = self._next()
            try:
                if self._function(pair[1]):
                    return pair
            except Exception as error:
                if not self._skips:
                    raise explain(error, "filter", self._function, self.locate(pair[0])) from error
                self.n_skipped += 1

    def get_state(self) -> State:
        return self.save_skipped(super().get_state())


class IndexedFilter(Filter):
    """The items that a function of the item and its number is true of: which those are must not change with the epoch.

    The number is that of the item in the input.
    """

    freezes_order = True
    is_itemwise = False

    def reset(self, state: State | None = None) -> None:
        inner: State
        self._n: int
        inner, self._n = (None, 0) if state is None else state
        super().reset(inner)

    def next(self) -> tuple[Key, Item]:
        while True:
            pair = self._next()
            number = self._n
            self._n = number + 1
            try:
                if self._function(pair[1], number):
                    return pair
            except Exception as error:
                if not self._skips:
                    raise explain(error, "filter", self._function, self.locate(pair[0])) from error
                self.n_skipped += 1

    def get_state(self) -> State:
        return [super().get_state(), self._n]
