"""Several streams as one, one behind the other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from loaderx.stream.node import Item, Key, State
from loaderx.stream.seeds import mix, permutation
from loaderx.stream.several import Several


class Concatenate(Several):
    """All items of each input, one input behind the other. A key is (number of the input, key in it).

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

    @classmethod
    def count_shards(cls, options: Mapping[str, Any], inputs: Sequence[int]) -> int:
        return sum(inputs)

    @classmethod
    def is_endless(cls, options: Mapping[str, Any], inputs: Sequence[bool]) -> bool:
        return any(inputs)

    def reset(self, state: State | None = None) -> None:
        self._reset_inputs(None if state is None else state["upstreams"])
        self._go_to(0 if state is None else state["at"])

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
                self._go_to(self._at + 1)
                continue
            return (self._number, key), item
        raise StopIteration

    def get_state(self) -> State:
        return {"upstreams": self._input_states(), "at": self._at}

    def rebuild(self, keys: Sequence[Key]) -> list[Item]:
        return self._rebuild_inputs(keys)

    def locate(self, key: Key) -> str:
        number, inner = key
        return f"{self._upstreams[number].locate(inner)}, of stream {number}"
