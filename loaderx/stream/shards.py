"""What a source reads: a list of shards, each of which can be read from any place on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from loaderx.stream.node import Item, Key, State


class Reader(Protocol):
    """A shard that is being read."""

    def next(self) -> tuple[Any, Item]:
        """Return where the next item is in the shard, as JSON that orders as the items do, and the item.

        Raises
        ------
        StopIteration
        """

    def get_state(self) -> State:
        """Return where it is, so that `Shards.open` goes on there. Always of the same shape."""

    def close(self) -> None:
        """Let go of the file."""


class Shards(Protocol):
    """A list of shards. Nothing of it changes, and it pickles."""

    def __len__(self) -> int: ...

    def describe(self) -> dict[str, Any]:
        """Return what they are, as JSON: small, for any number of them."""

    def open(self, shard: int, state: State | None = None) -> Reader:
        """Return a reader of a shard, at its beginning or at a state."""

    def measure(self, shard: int) -> int | None:
        """Return a number by which a changed shard is noticed, such as its size in bytes; None: there is none."""

    def rebuild(self, shard: int, places: Sequence[Any]) -> list[Item]:
        """Return the items at some places of a shard, which are in order and each there once."""

    def name(self, shard: int) -> str:
        """Return what errors and mismatches call a shard."""


def by_shard(keys: Sequence[Key]) -> dict[int, list[tuple[Any, int]]]:
    """Return for each shard the places in it, in order, each with its position among the keys."""
    groups: dict[int, list[tuple[Any, int]]] = {}
    for position, (shard, place) in enumerate(keys):
        groups.setdefault(shard, []).append((place, position))
    for group in groups.values():
        group.sort(key=lambda pair: pair[0])
    return groups
