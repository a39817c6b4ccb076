"""Small streams that the tests of this folder share, and functions that pickle."""

from __future__ import annotations

from typing import Any

from loaderx.stream import Stream

SHARDS = [list(range(5)), [], list(range(10, 17)), [20]]
ITEMS = [0, 1, 2, 3, 4, 10, 11, 12, 13, 14, 15, 16, 20]


def numbers() -> Stream:
    """Return 13 numbers in four shards, one of them empty."""
    return Stream.from_shards(SHARDS)


def rows() -> Stream:
    """Return as many dicts: a number, and a list of up to three of it."""
    return numbers().map(as_row)


def as_row(x: int) -> dict[str, Any]:
    return {"a": x, "b": [x] * (x % 4)}


def double(x: int) -> int:
    return 2 * x


def is_odd(x: int) -> bool:
    return x % 2 == 1


def fail_at_11(x: int) -> int:
    if x == 11:
        raise ValueError("eleven")
    return x


def fail_batch_of_11(batch: list[int]) -> list[int]:
    return [fail_at_11(x) for x in batch]


def pairs(x: int) -> list[tuple[int, int]]:
    return [(x, i) for i in range(x % 3)]
