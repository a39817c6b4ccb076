"""Batches: what they are made of, functions of them, other sizes, rows of one length."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from loaderx.errors import StreamError
from loaderx.stream import Stream
from tests.resume import check_stream_resumes, same
from tests.stream.pipelines import ITEMS, numbers, rows


def odd_ones_and_the_first(batch: list[int]) -> list[int]:
    return [x for x in batch if x % 2] + batch[:1]


def odd_columns(batch: dict[str, list[Any]]) -> dict[str, list[Any]]:
    return {"a": [x for x in batch["a"] if x % 2]}


ARRAYS = [[np.arange(3), np.arange(0), np.arange(1)], [np.arange(5)]]

CASES: dict[str, tuple[Callable[[], Stream], list[Any]]] = {
    "batch": (lambda: numbers().batch(5), [ITEMS[:5], ITEMS[5:10], ITEMS[10:]]),
    "batch drop_last": (lambda: numbers().batch(5, drop_last=True), [ITEMS[:5], ITEMS[5:10]]),
    "batch of dicts": (
        lambda: rows().take(3).batch(2),
        [{"a": [0, 1], "b": [[], [1]]}, {"a": [2], "b": [[2, 2]]}],
    ),
    "batch of other dicts": (
        lambda: Stream.from_shards([[{"x": 1}, {"y": 2, "x": 3}, {}, {"z": 4}, {"z": 5}]]).batch(2),
        [{"x": [1, 3], "y": [None, 2]}, {"z": [None, 4]}, {"z": [5]}],
    ),
    "batch of dicts without a name": (
        lambda: Stream.from_shards([[{}, {}, {}, {"x": 1}]]).batch(2),
        [[{}, {}], {"x": [None, 1]}],
    ),
    "map of batches of dicts without a name": (
        lambda: Stream.from_shards([[{}, {}, {}]]).map(lambda batch: batch, batched=True, batch_size=2),
        [{}, {}, {}],
    ),
    "rebatch of dicts without a name": (
        lambda: Stream.from_shards([[{}, {}, {}]]).batch(1).rebatch(2),
        [[{}, {}], [{}]],
    ),
    "map of batches": (
        lambda: numbers().map(odd_ones_and_the_first, batched=True, batch_size=4),
        [1, 3, 0, 11, 4, 13, 15, 13, 20],
    ),
    "map of no items": (lambda: numbers().map(lambda batch: [], batched=True, batch_size=4), []),
    "map of batches of dicts": (
        lambda: rows().map(odd_columns, batched=True, batch_size=4),
        [{"a": x} for x in ITEMS if x % 2],
    ),
    "map of batches, drop_last": (
        lambda: numbers().map(list, batched=True, batch_size=5, drop_last=True),
        ITEMS[:10],
    ),
    "map of batches with_index": (
        lambda: numbers().map(
            lambda batch, i: list(zip(i, batch, strict=True)), batched=True, batch_size=4, with_index=True
        ),
        list(enumerate(ITEMS)),
    ),
    "map of batches with_rng": (
        lambda: numbers().map(
            lambda batch, rng: [(len(batch), int(rng.integers(100)))],
            batched=True,
            batch_size=5,
            with_rng=True,
        ),
        [(5, 40), (5, 69), (3, 85)],
    ),
    "shuffled items of batches": (
        lambda: numbers().map(odd_ones_and_the_first, batched=True, batch_size=4).shuffle(6),
        [3, 11, 15, 1, 20, 11, 13, 13, 16],
    ),
    "batches of batches": (
        lambda: (
            numbers()
            .map(odd_ones_and_the_first, batched=True, batch_size=4)
            .shuffle(6)
            .map(odd_ones_and_the_first, batched=True, batch_size=3)
            .shuffle(4)
            .batch(2)
        ),
        [[15, 11], [1, 3], [13, 11], [13, 3], [13, 1]],
    ),
    "rebatch": (lambda: numbers().batch(3).rebatch(5), [ITEMS[:5], ITEMS[5:10], ITEMS[10:]]),
    "rebatch smaller": (
        lambda: numbers().batch(5).rebatch(2, drop_last=True),
        [ITEMS[i : i + 2] for i in range(0, 12, 2)],
    ),
    "rebatch dicts": (
        lambda: rows().batch(2).take(3).select("a").rebatch(4),
        [{"a": ITEMS[:4]}, {"a": ITEMS[4:6]}],
    ),
    "rebatch arrays": (
        lambda: Stream.from_shards([[np.arange(3), np.arange(0), np.arange(4)]]).rebatch(5),
        [np.array([0, 1, 2, 0, 1]), np.array([2, 3])],
    ),
    "pad": (
        lambda: rows().take(3).batch(3).pad(lengths="_length"),
        [{"a": [0, 1, 2], "b": np.array([[0, 0], [1, 0], [2, 2]]), "b_length": np.array([0, 1, 2])}],
    ),
    "pad to a length": (
        lambda: rows().take(2).batch(3).pad("b", length=3, value=-1),
        [{"a": [0, 1], "b": np.array([[-1, -1, -1], [1, -1, -1]])}],
    ),
    "pad lists": (
        lambda: Stream.from_shards(ARRAYS).batch(3).pad(),
        [np.array([[0, 1, 2], [0, 0, 0], [0, 0, 0]]), np.array([[0, 1, 2, 3, 4]])],
    ),
    "pad empty rows": (lambda: Stream.from_shards([[[], []]]).batch(2).pad(), [np.zeros((2, 0), np.int64)]),
}


@pytest.mark.parametrize("name", CASES)
def test_it_gives_what_it_should_and_resumes_everywhere(name: str) -> None:
    make, expected = CASES[name]
    assert same(check_stream_resumes(make), expected)


@pytest.mark.parametrize("name", CASES)
def test_it_resumes_below_others_and_in_another_epoch(name: str) -> None:
    def make() -> Stream:
        stream = CASES[name][0]().shuffle(3).batch(2).take(30).repeat(2)
        stream.set_epoch(5)
        return stream

    check_stream_resumes(make)


def test_what_a_batch_is_made_of_is_saved_once() -> None:
    stream = Stream.from_shards([range(200)]).map(list, batched=True, batch_size=50).shuffle(100)
    passing = iter(stream)
    next(passing)
    keys = passing.state_dict()["position"]["keys"]
    assert len(keys["keys"]) == 100 and len(keys["shared"]) == 3


def test_what_a_function_of_batches_may_return() -> None:
    arrays = rows().map(lambda batch: {"a": np.array(batch["a"]) * 2}, batched=True, batch_size=4)
    assert [item["a"] for item in arrays] == [2 * x for x in ITEMS]
    for wrong, message in (
        (lambda batch: {"a": [1], "b": [1, 2]}, "of one length, and have {'a': 1, 'b': 2}"),
        (lambda batch: None, "returned None"),
        (lambda batch: "text", "returned 'text'"),
    ):
        with pytest.raises(StreamError, match=message):
            next(iter(rows().map(wrong, batched=True)))


def test_pad_says_which_row_is_too_long() -> None:
    with pytest.raises(StreamError, match="position 2 of the batch has 2 rows, over max_len=1"):
        next(iter(rows().batch(3).pad(length=1)))
    with pytest.raises(StreamError, match="'z' not in the batch"):
        next(iter(rows().batch(3).pad("z")))


def test_rebatch_says_that_batches_do_not_go_together() -> None:
    shards: list[list[Any]] = [[{"a": [1]}, {"b": [1]}]]
    with pytest.raises(StreamError, match=r"the same names: one has \['a'\], and one \['b'\]"):
        next(iter(Stream.from_shards(shards).rebatch(2)))
    with pytest.raises(StreamError, match=r"of one length, and have \{'a': 1, 'b': 2\}"):
        next(iter(Stream.from_shards([[{"a": [1], "b": [1, 2]}]]).rebatch(2)))
