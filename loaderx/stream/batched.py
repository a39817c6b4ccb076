"""A function of batches of items, which may give another number of items than it got."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from loaderx.stream.calling import Extras, explain
from loaderx.stream.collating import collate, spread
from loaderx.stream.keys import Shared, load_keys, save_keys
from loaderx.stream.node import Item, Key, Node, State


class BatchedMap(Node):
    """A function of each batch of items; its items come one by one.

    A key is (what the batch is made of, number of the item among those that the function gave). What it is made of is a
    `Shared`: the number of its first item and its own, then the keys of its items.

    Parameters
    ----------
    upstream : Node
    function : callable
        Gets what `collate` makes of the items, and returns what `spread` takes.
    size : int
    drop_last : bool
        Leave out a last batch that is shorter.
    with_index : bool
        The function gets the list of the items' numbers, too.
    seed : int or None
        The function gets random numbers, too, of this seed, the epoch and the number of the batch.
    skips : bool
        Leave out the batches that the function raises for, and count their items.
    epoch : int

    Attributes
    ----------
    n_skipped : int
    """

    called = "map"
    is_seeded = True
    makes_batches = False
    makes_shared_keys = True

    def __init__(
        self,
        upstream: Node,
        function: Callable[..., Any],
        size: int,
        drop_last: bool = False,
        with_index: bool = False,
        seed: int | None = None,
        skips: bool = False,
        epoch: int = 0,
    ) -> None:
        self._upstream = upstream
        self._function = function
        self._size = size
        self._drop_last = drop_last
        self._extras = Extras("map", with_index, seed, epoch).of
        self._skips = skips
        self.n_skipped = 0

    def reset(self, state: State | None = None) -> None:
        # The batch whose items are being given: what its keys share, its items, and how many of them were given.
        self._made_of = Shared()
        self._items: list[Item] = []
        self._at = 0
        if state is None:
            state = {"upstream": None, "gathered": [], "made_of": [], "at": 0, "n": 0, "n_batches": 0}
        self._upstream.reset(state["upstream"])
        # How many items were in the batches so far, and how many batches.
        self._n, self._n_batches = state["n"], state["n_batches"]
        # What the next batch has already: kept while something below raises.
        self._keys = load_keys(state["gathered"])
        self._rows = self._upstream.rebuild(self._keys) if self._keys else []
        made_of = load_keys(state["made_of"])
        if made_of:
            self._made_of = Shared(made_of)
            self._items = self._make(self._made_of, self._upstream.rebuild(made_of[1:]))
            self._at = state["at"]

    def next(self) -> tuple[Key, Item]:
        while True:
            at = self._at
            try:
                item = self._items[at]
            except IndexError:
                self._begin_batch()
                continue
            self._at = at + 1
            return (self._made_of, at), item

    def _begin_batch(self) -> None:
        keys, rows, upstream = self._keys, self._rows, self._upstream.next
        try:
            for _ in range(self._size - len(keys)):
                key, row = upstream()
                keys.append(key)
                rows.append(row)
        except StopIteration:
            if not keys or self._drop_last:
                raise
        made_of = Shared([(self._n, self._n_batches), *keys])
        self._n += len(keys)
        self._n_batches += 1
        self._made_of, self._items, self._at = made_of, [], 0
        self._keys, self._rows = [], []
        try:
            self._items = self._make(made_of, rows)
        except Exception as error:
            if not self._skips:
                raise explain(error, "map", self._function, self.locate((made_of, 0))) from error
            self.n_skipped += len(rows)

    def _make(self, made_of: Sequence[Any], rows: list[Item]) -> list[Item]:
        first, number = made_of[0]
        return spread(
            self._function(collate(rows), *self._extras(number, list(range(first, first + len(rows)))))
        )

    def get_state(self) -> State:
        shares = self._upstream.shares_keys
        has_more = self._at < len(self._items)
        return {
            "upstream": self._upstream.get_state(),
            "gathered": save_keys(self._keys, shares),
            "made_of": save_keys(self._made_of if has_more else [], shares),
            "at": self._at if has_more else 0,
            "n": self._n,
            "n_batches": self._n_batches,
        }

    def rebuild(self, keys: Sequence[Key]) -> list[Item]:
        batches: dict[Any, tuple[Sequence[Any], list[tuple[int, int]]]] = {}
        for position, (made_of, at) in enumerate(keys):
            name = id(made_of) if type(made_of) is Shared else repr(made_of)
            batches.setdefault(name, (made_of, []))[1].append((at, position))
        rows = iter(self._upstream.rebuild([key for made_of, _ in batches.values() for key in made_of[1:]]))
        items: list[Item] = [None] * len(keys)
        for made_of, wanted in batches.values():
            made = self._make(made_of, [next(rows) for _ in made_of[1:]])
            for at, position in wanted:
                items[position] = made[at]
        return items

    def locate(self, key: Key) -> str:
        made_of = key[0]
        first = self._upstream.locate(made_of[1])
        return first if len(made_of) == 2 else f"{first}, and {len(made_of) - 2} more in its batch"

    def close(self) -> None:
        self._keys, self._rows, self._items = [], [], []
        self._upstream.close()


class IndexedBatchedMap(BatchedMap):
    """A function that is given the items' numbers: which item has which number must not change with the epoch."""

    freezes_order = True
