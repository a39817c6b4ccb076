"""Some items as one: a dict of lists, or a list."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice

from loaderx.stream.collating import collate
from loaderx.stream.keys import load_keys, save_keys
from loaderx.stream.node import Item, Key, Node, State


class Batch(Node):
    """Batches of `size` items, as `collate` makes them; a key is the list of their keys.

    Parameters
    ----------
    upstream : Node
    size : int
    drop_last : bool
        Leave out a last batch that is shorter.
    """

    called = "batch"
    makes_batches = True

    def __init__(self, upstream: Node, size: int, drop_last: bool = False) -> None:
        self._upstream = upstream
        self._size = size
        self._drop_last = drop_last
        self._keys: list[Key] = []
        self._items: list[Item] = []

    def reset(self, state: State | None = None) -> None:
        self._upstream.reset(None if state is None else state["upstream"])
        self._keys = [] if state is None else load_keys(state["keys"])
        self._items = self._upstream.rebuild(self._keys) if self._keys else []

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
        return keys, collate(items)

    def get_state(self) -> State:
        return {"upstream": self._upstream.get_state(), "keys": save_keys(self._keys, self.shares_keys)}

    def rebuild(self, keys: Sequence[Key]) -> list[Item]:
        items = iter(self._upstream.rebuild([each for key in keys for each in key]))
        return [collate(list(islice(items, len(key)))) for key in keys]

    def locate(self, key: Key) -> str:
        first = self._upstream.locate(key[0])
        return first if len(key) == 1 else f"{first}, and {len(key) - 1} more"

    def close(self) -> None:
        self._keys, self._items = [], []
        self._upstream.close()
