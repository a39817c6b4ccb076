"""A look at each item."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from loaderx.stream.calling import explain
from loaderx.stream.node import Item, Key, Node, Transparent


class Tap(Transparent):
    """The items as they are, each of which a function has seen. Those that are made anew it has seen before.

    Parameters
    ----------
    upstream : Node
    function : callable
        What it returns is left alone.
    """

    called = "tap"
    is_itemwise = True

    def __init__(self, upstream: Node, function: Callable[[Item], Any]) -> None:
        super().__init__(upstream)
        self._function = function

    def next(self) -> tuple[Key, Item]:
        pair = self._next()
        try:
            self._function(pair[1])
        except Exception as error:
            raise explain(error, "tap", self._function, self.locate(pair[0])) from error
        return pair
