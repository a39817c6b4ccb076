"""The lowest node: the items of shards, one shard after the other or some in turns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from loaderx.errors import StateMismatchError
from loaderx.stream.node import Item, Key, Node, State
from loaderx.stream.seeds import mix, permutation
from loaderx.stream.shards import Reader, Shards, by_shard


class Source(Node):
    """The items of shards. A key is (number of the shard, place in it).

    Parameters
    ----------
    shards : Shards
    seed : int or None
        Of the order of the shards; None: as they are listed.
    most_open : int
        How many shards are read in turns, an item of each; where one ends, the next one takes its place.
    epoch : int
        Another one has another order, where there is a seed.
    """

    called = "source"
    is_seeded = True
    makes_batches = False

    def __init__(self, shards: Shards, seed: int | None = None, most_open: int = 1, epoch: int = 0) -> None:
        self._shards = shards
        n = len(shards)
        self._order: Sequence[int] = range(n) if seed is None else permutation(mix(seed, "shards", epoch), n)
        self._most_open = min(most_open, n)
        self._slots: list[_Slot] = []

    @classmethod
    def count_shards(cls, options: Mapping[str, Any], inputs: Sequence[int]) -> int:
        return len(options["shards"])

    def reset(self, state: State | None = None) -> None:
        self.close()
        self._turn = 0
        self._n_begun = 0
        # Of the shards that have ended: their measures, so that a changed one is noticed.
        self._ended = 0
        if state is None:
            while len(self._slots) < self._most_open:
                if not self._begin(len(self._slots)):
                    break
        else:
            self._restore(state)

    def _begin(self, place: int) -> bool:
        """Have the next shard of the order take a place; False: there is none, and the place goes."""
        if self._n_begun == len(self._order):
            del self._slots[place : place + 1]
            return False
        shard = self._order[self._n_begun]
        slot = _Slot(shard, self._shards.measure(shard), self._shards.open(shard))
        self._n_begun += 1
        self._slots[place : place + 1] = [slot]
        return True

    def next(self) -> tuple[Key, Item]:
        while True:
            try:
                slot = self._slots[self._turn]
            except IndexError:
                if not self._slots:
                    raise StopIteration from None
                self._turn = 0
                continue
            try:
                place, item = slot.next()
            except StopIteration:
                self._end(slot)
                continue
            if self._most_open > 1:
                self._turn += 1
            return (slot.shard, place), item

    def _end(self, slot: _Slot) -> None:
        slot.reader.close()
        self._ended = _add_measure(self._ended, slot.shard, slot.measure)
        self._begin(self._turn)

    def get_state(self) -> State:
        return {
            "begun": self._n_begun,
            "ended": self._ended,
            "turn": self._turn,
            "open": [[slot.shard, slot.measure, slot.reader.get_state()] for slot in self._slots],
        }

    def _restore(self, state: State) -> None:
        self._n_begun, self._ended, self._turn = state["begun"], state["ended"], state["turn"]
        opened = {shard for shard, _, _ in state["open"]}
        ended = 0
        for shard in self._order[: self._n_begun]:
            if shard not in opened:
                ended = _add_measure(ended, shard, self._shards.measure(shard))
        if ended != self._ended:
            raise StateMismatchError(
                "the saved state has read shards that have changed since, or are listed in another order: one of "
                f"{len(self._shards)}, such as {self._shards.name(self._order[0])}. Begin anew",
                mismatches={"shards": (self._ended, ended)},
            )
        for shard, measure, inner in state["open"]:
            here = self._shards.measure(shard)
            if here != measure:
                name = self._shards.name(shard)
                raise StateMismatchError(
                    f"the saved state is in the middle of {name}, which has changed: it measured {measure}, and is "
                    f"{here} here. Begin anew",
                    mismatches={name: (measure, here)},
                )
            self._slots.append(_Slot(shard, measure, self._shards.open(shard, inner)))

    def rebuild(self, keys: Sequence[Key]) -> list[Item]:
        items: list[Item] = [None] * len(keys)
        for shard, group in by_shard(keys).items():
            found = self._shards.rebuild(shard, [place for place, _ in group])
            for (_, position), item in zip(group, found, strict=True):
                items[position] = item
        return items

    def locate(self, key: Key) -> str:
        shard, place = key
        return f"{self._shards.name(shard)}, at {place}"

    def close(self) -> None:
        for slot in self._slots:
            slot.reader.close()
        self._slots = []


class _Slot:
    """A shard that is being read."""

    __slots__ = ("measure", "next", "reader", "shard")

    def __init__(self, shard: int, measure: int | None, reader: Reader) -> None:
        self.shard = shard
        self.measure = measure
        self.reader = reader
        self.next = reader.next


def _add_measure(ended: int, shard: int, measure: Any) -> int:
    # A sum, for shards that are read in turns end in another order than they begin.
    return (ended + mix(shard, str(measure))) % (1 << 53)
