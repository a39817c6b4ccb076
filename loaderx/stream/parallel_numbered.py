"""A function of each item and its number, or of random numbers of its own, called by workers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from loaderx.stream.calling import Extras
from loaderx.stream.calls import WorkerType
from loaderx.stream.node import Item, Key, Node, State
from loaderx.stream.parallel import ParallelMap


class ParallelNumberedMap(ParallelMap):
    """A function of each item and its number, random numbers of its own, or both, as `NumberedMap`, called by workers.

    Parameters
    ----------
    upstream : Node
    function : callable
        Of a worker process: has to pickle.
    num_workers : int
    worker_type : str
    with_index : bool
    seed : int or None
    skips : bool
    epoch : int
    """

    is_seeded = True
    is_itemwise = False

    def __init__(
        self,
        upstream: Node,
        function: Callable[..., Any],
        num_workers: int,
        worker_type: WorkerType,
        with_index: bool = False,
        seed: int | None = None,
        skips: bool = False,
        epoch: int = 0,
    ) -> None:
        call = _NumberedCall(function, Extras("map", with_index, seed, epoch))
        super().__init__(_Number(upstream), function, num_workers, worker_type, skips, call)


class ParallelIndexedMap(ParallelNumberedMap):
    """A function that is given the item's number: which item has which number must not change with the epoch."""

    freezes_order = True


class _Number(Node):
    """Pairs of an item and its number, which is in the key, too."""

    def __init__(self, upstream: Node) -> None:
        self._upstream = upstream

    def reset(self, state: State | None = None) -> None:
        inner: State
        self._n: int
        inner, self._n = (None, 0) if state is None else state
        self._upstream.reset(inner)

    def next(self) -> tuple[Key, Item]:
        key, item = self._upstream.next()
        number = self._n
        self._n = number + 1
        return (key, number), (item, number)

    def get_state(self) -> State:
        return [self._upstream.get_state(), self._n]

    def rebuild(self, keys: Sequence[Key]) -> list[Item]:
        items = self._upstream.rebuild([key for key, _ in keys])
        return [(item, number) for item, (_, number) in zip(items, keys, strict=True)]

    def locate(self, key: Key) -> str:
        return self._upstream.locate(key[0])

    def close(self) -> None:
        self._upstream.close()


class _NumberedCall:
    """Calls a function for what `_Number` gives. It pickles."""

    def __init__(self, function: Callable[..., Any], extras: Extras) -> None:
        self._function = function
        self._extras = extras

    def __call__(self, numbered: tuple[Item, int]) -> Item:
        item, number = numbered
        return self._function(item, *self._extras.of(number, number))
