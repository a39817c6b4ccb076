"""Some items as one: a list."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice

from loaderx.stream.node import Item, Key, Node, State


class Batch(Node):
    """Lists of `size` items, whose key is the list of their keys.

    Parameters
    ----------
    upstream : Node
    size : int
    drop_last : bool
        Leave out a last batch that is shorter.
    """

    def __init__(self, upstream: Node, size: int, drop_last: bool = False) -> None:
        self._upstream = upstream
        self._size = size
        self._drop_last = drop_last
        self._keys: list[Key] = []
        self._items: list[Item] = []

    def reset(self, state: State | None = None) -> None:
        inner, keys = (None, []) if state is None else state
        self._upstream.reset(inner)
        self._keys = list(keys)
        self._items = self._upstream.rebuild(keys) if keys else []

    def next(self) -> tuple[Key, Item]:
        # They are kept while something below raises, so that no item is lost.
        keys, items, upstream = self._keys, self._items, self._upstream.next
        try:
            for _ in range(self._size - len(keys)):
                key, item = upstream()
                keys.append(key)
                items.append(item)
        except StopIteration:
            if not keys or self._drop_last:
                raise
        self._keys, self._items = [], []
        return keys, items

    def get_state(self) -> State:
        return [self._upstream.get_state(), list(self._keys)]

    def rebuild(self, keys: Sequence[Key]) -> list[Item]:
        items = iter(self._upstream.rebuild([each for key in keys for each in key]))
        return [list(islice(items, len(key))) for key in keys]

    def locate(self, key: Key) -> str:
        first = self._upstream.locate(key[0])
        return first if len(key) == 1 else f"{first}, and {len(key) - 1} more"

    def close(self) -> None:
        self._keys, self._items = [], []
        self._upstream.close()
