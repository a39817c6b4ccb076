"""The items that a function is true of."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from loaderx.stream.calling import explain
from loaderx.stream.node import Item, Key, Node, Transparent


class Filter(Transparent):
    """The items that a function is true of. What is made anew was let through before, and is not asked about again.

    Parameters
    ----------
    upstream : Node
    function : callable
    skips : bool
        Leave out the items that the function raises for, and count them.

    Attributes
    ----------
    n_skipped : int
    """

    is_itemwise = True

    def __init__(self, upstream: Node, function: Callable[[Item], Any], skips: bool = False) -> None:
        super().__init__(upstream)
        self._function = function
        self._skips = skips
        self.n_skipped = 0

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
