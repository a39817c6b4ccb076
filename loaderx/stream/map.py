"""A function of each item."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from loaderx.stream.calling import explain
from loaderx.stream.node import Item, Key, Node, Transparent


class Map(Transparent):
    """A function of each item, of the same key.

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

    called = "map"
    is_itemwise = True

    def __init__(self, upstream: Node, function: Callable[[Item], Item], skips: bool = False) -> None:
        super().__init__(upstream)
        self._function = function
        self._skips = skips
        self.n_skipped = 0

    def next(self) -> tuple[Key, Item]:
        while True:
            key, item = self._next()
            try:
                return key, self._function(item)
            except Exception as error:
                if not self._skips:
                    raise explain(error, "map", self._function, self.locate(key)) from error
                self.n_skipped += 1

    def rebuild(self, keys: Sequence[Key]) -> list[Item]:
        return list(map(self._function, self._upstream.rebuild(keys)))
