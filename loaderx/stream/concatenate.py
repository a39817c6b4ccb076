"""Several streams as one, one behind the other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any

from loaderx.stream.ended import Ended, remains
from loaderx.stream.node import Item, Key, State, average
from loaderx.stream.seeds import mix, permutation
from loaderx.stream.several import Several
from loaderx.stream.tally import Tally


class Concatenate(Several):
    """All items of each input, one input behind the other. A key is (number of the input, key in it).

    An input that has ended is closed: at most one is open at a time.

    Parameters
    ----------
    *upstreams : Node
    seed : int or None
        Of the order of the inputs; None: as they are listed.
    epoch : int
        Another one has another order, where there is a seed.
    """

    called = "concatenate"
    is_seeded = True

    def __init__(self, *upstreams: Any, seed: int | None = None, epoch: int = 0) -> None:
        super().__init__(*upstreams)
        n = len(upstreams)
        self._order: Sequence[int] = (
            range(n) if seed is None else permutation(mix(seed, "concatenate", epoch), n)
        )
        self._ended: dict[int, Ended] = {}

    @classmethod
    def count_shards(cls, options: Mapping[str, Any], inputs: Sequence[int]) -> int:
        return sum(inputs)

    @classmethod
    def is_endless(cls, options: Mapping[str, Any], inputs: Sequence[bool]) -> bool:
        return any(inputs)

    def reset(self, state: State | None = None) -> None:
        self._ended = {}
        at: int = 0 if state is None else state["at"]
        for place, number in enumerate(self._order):
            # Those that have ended, too: a file that has changed since is noticed here.
            self._upstreams[number].reset(None if state is None else state["upstreams"][number])
            if place < at:
                self._ended[number] = remains(self._upstreams[number])
                self._upstreams[number].close()
        self._go_to(at)

    def _go_to(self, at: int) -> None:
        self._at = at
        if at < len(self._order):
            self._number = self._order[at]
            self._next = self._upstreams[self._number].next

    def next(self) -> tuple[Key, Item]:
        while self._at < len(self._order):
            try:
                key, item = self._next()
            except StopIteration:
                before = self._upstreams[self._number]
                self._ended[self._number] = remains(before)
                self._go_to(self._at + 1)
                before.close()
                continue
            return (self._number, key), item
        raise StopIteration

    def get_state(self) -> State:
        states = [
            self._ended[number].state if number in self._ended else upstream.get_state()
            for number, upstream in enumerate(self._upstreams)
        ]
        return {"upstreams": states, "at": self._at}

    def tally(self) -> Tally:
        below = [
            self._ended[number].tally if number in self._ended else upstream.tally()
            for number, upstream in enumerate(self._upstreams)
        ]
        return [{"step": self.called}, *chain.from_iterable(below)]

    def fraction(self) -> float | None:
        return average(
            [
                1.0 if number in self._ended else upstream.fraction()
                for number, upstream in enumerate(self._upstreams)
            ]
        )

    def rebuild(self, keys: Sequence[Key]) -> list[Item]:
        return self._rebuild_inputs(keys)

    def _rebuild_input(self, number: int, keys: Sequence[Key]) -> list[Item]:
        upstream = self._upstreams[number]
        if number not in self._ended:
            return upstream.rebuild(keys)
        upstream.reset()
        try:
            return upstream.rebuild(keys)
        finally:
            upstream.close()

    def locate(self, key: Key) -> str:
        number, inner = key
        return f"{self._upstreams[number].locate(inner)}, of stream {number}"
