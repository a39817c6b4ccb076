"""Shards that are in memory, or can be read at any index: lists, datasets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from loaderx.stream.node import Item


class Sequences:
    """Sequences as shards, an item for each of their elements; a place is an index.

    Parameters
    ----------
    sequences : sequence of sequences
        Each with ``len()`` and ``[i]``. One with ``__getitems__`` too, which returns a list, is read some at a time.
    """

    def __init__(self, sequences: Sequence[Sequence[Any]]) -> None:
        self._sequences = list(sequences)

    def __len__(self) -> int:
        return len(self._sequences)

    def describe(self) -> dict[str, Any]:
        return {"shards": len(self), "items": sum(map(len, self._sequences))}

    def measure(self, shard: int) -> int:
        return len(self._sequences[shard])

    def name(self, shard: int) -> str:
        return f"shard {shard}"

    def open(self, shard: int, state: int | None = None) -> _SequenceReader:
        return _SequenceReader(self._sequences[shard], state or 0)

    def rebuild(self, shard: int, places: Sequence[int]) -> list[Item]:
        sequence = self._sequences[shard]
        return [sequence[place] for place in places]


class _SequenceReader:
    __slots__ = ("_at", "_n", "_sequence")

    def __init__(self, sequence: Sequence[Any], at: int) -> None:
        self._sequence = sequence
        self._at = at
        self._n = len(sequence)

    def next(self) -> tuple[int, Item]:
        at = self._at
        if at >= self._n:
            raise StopIteration
        self._at = at + 1
        return at, self._sequence[at]

    def get_state(self) -> int:
        return self._at

    def close(self) -> None:
        pass
