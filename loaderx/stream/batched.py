"""A function of batches of items, which may give another number of items than it got."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from loaderx.stream.calling import Extras, refuse_fewer
from loaderx.stream.calls import WorkerType
from loaderx.stream.gather import Gather, GatheredCall
from loaderx.stream.keys import Shared, load_keys, save_keys
from loaderx.stream.map import Map
from loaderx.stream.node import Item, Key, Node, State
from loaderx.stream.parallel import ParallelMap


class BatchedMap(Node):
    """A function of each batch of items; its items come one by one.

    A key is (what the batch is made of, number of the item among those that the function gave): the first is the key of
    `Gather`, which puts the batches together.

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
    num_workers : int
        0: the function is called here.
    worker_type : str
    epoch : int
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
        num_workers: int = 0,
        worker_type: WorkerType = "thread",
        epoch: int = 0,
    ) -> None:
        self._function = function
        gather = Gather(upstream, size, drop_last)
        call = GatheredCall(function, Extras("map", with_index, seed, epoch))
        self._upstream: Node = (
            _ParallelBatches(gather, function, num_workers, worker_type, skips, call)
            if num_workers
            else _Batches(gather, function, skips, call)
        )

    def reset(self, state: State | None = None) -> None:
        self._upstream.reset(None if state is None else state["upstream"])
        # The batch whose items are being given: what its keys share, its items, and how many of them were given.
        self._made_of: Shared | None = None
        self._items: list[Item] = []
        self._at = 0
        keys = [] if state is None else load_keys(state["made_of"])
        if state is not None and keys:
            (made_of,), at = keys, state["at"]
            (items,) = self._upstream.rebuild(keys)
            self._check_length(made_of, at, items)
            self._made_of, self._items, self._at = made_of, items, at

    def next(self) -> tuple[Key, Item]:
        while True:
            at = self._at
            try:
                item = self._items[at]
            except IndexError:
                self._made_of, self._items, self._at = None, [], 0
                self._made_of, self._items = self._upstream.next()
                continue
            self._at = at + 1
            return (self._made_of, at), item

    def get_state(self) -> State:
        has_more = self._at < len(self._items)
        return {
            "upstream": self._upstream.get_state(),
            "made_of": save_keys([self._made_of] if has_more else [], True),
            "at": self._at if has_more else 0,
        }

    def rebuild(self, keys: Sequence[Key]) -> list[Item]:
        batches: dict[int, tuple[Key, list[tuple[int, int]]]] = {}
        for position, (made_of, at) in enumerate(keys):
            batches.setdefault(id(made_of), (made_of, []))[1].append((at, position))
        made = self._upstream.rebuild([made_of for made_of, _ in batches.values()])
        items: list[Item] = [None] * len(keys)
        for of_batch, (made_of, wanted) in zip(made, batches.values(), strict=True):
            self._check_length(made_of, max(at for at, _ in wanted), of_batch)
            for at, position in wanted:
                items[position] = of_batch[at]
        return items

    def _check_length(self, made_of: Key, at: int, items: list[Item]) -> None:
        """Raise where the function has given fewer items than before."""
        if len(items) <= at:
            refuse_fewer("map", self._function, self._upstream.locate(made_of), at, len(items))

    def locate(self, key: Key) -> str:
        return self._upstream.locate(key[0])

    def close(self) -> None:
        self._items = []
        self._upstream.close()


class IndexedBatchedMap(BatchedMap):
    """A function that is given the items' numbers: which item has which number must not change with the epoch."""

    freezes_order = True


class _Batches(Map):
    def weigh(self, key: Key) -> int:
        return int(key.n)


class _ParallelBatches(ParallelMap):
    def weigh(self, key: Key) -> int:
        return int(key.n)
