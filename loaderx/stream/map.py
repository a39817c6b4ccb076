"""A function of each item."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from loaderx.stream.calling import explain
from loaderx.stream.node import Item, Key, Node, State, Transparent
from loaderx.stream.seeds import item_rng, mix


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


class NumberedMap(Node):
    """A function of each item and its number, or random numbers of its own: the number is in the key.

    Parameters
    ----------
    upstream : Node
    function : callable
    seed : int or None
        None: ``function(item, number)``; else ``function(item, rng)``.
    skips : bool
    epoch : int
        Another one has other random numbers.
    """

    is_seeded = True

    def __init__(
        self,
        upstream: Node,
        function: Callable[..., Item],
        seed: int | None = None,
        skips: bool = False,
        epoch: int = 0,
    ) -> None:
        self._upstream = upstream
        self._function = function
        self._seed = None if seed is None else mix(seed, "map", epoch)
        self._skips = skips
        self.n_skipped = 0

    def reset(self, state: State | None = None) -> None:
        inner, self._n = (None, 0) if state is None else state
        self._upstream.reset(inner)

    def next(self) -> tuple[Key, Item]:
        while True:
            key, item = self._upstream.next()
            number = self._n
            self._n = number + 1
            try:
                return (key, number), self._call(item, number)
            except Exception as error:
                if not self._skips:
                    raise explain(error, "map", self._function, self._upstream.locate(key)) from error
                self.n_skipped += 1

    def _call(self, item: Item, number: int) -> Item:
        return self._function(item, number if self._seed is None else item_rng(self._seed, number))

    def get_state(self) -> State:
        return [self._upstream.get_state(), self._n]

    def rebuild(self, keys: Sequence[Key]) -> list[Item]:
        items = self._upstream.rebuild([key for key, _ in keys])
        return [self._call(item, number) for item, (_, number) in zip(items, keys, strict=True)]

    def locate(self, key: Key) -> str:
        return self._upstream.locate(key[0])

    def close(self) -> None:
        self._upstream.close()
