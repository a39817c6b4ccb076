"""Functions that change their item, as Hugging Face's may: what a source holds in memory stays as it is."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from loaderx.stream import Stream
from tests.resume import check_stream_resumes


def add_ten(row: dict[str, Any]) -> dict[str, Any]:
    row["a"] += 10
    return row


def held() -> list[Any]:
    return [{"a": i} for i in range(6)]


class Samples:
    """A dataset that gives the dicts that it holds."""

    def __init__(self, rows: list[Any]) -> None:
        self._rows = rows

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, index: int) -> Any:
        return self._rows[index]


class Batches(Samples):
    def __getitems__(self, indices: list[int]) -> list[Any]:
        return [self._rows[index] for index in indices]


class Walk:
    """What can only be iterated."""

    def __init__(self, rows: list[Any]) -> None:
        self._rows = rows

    def __iter__(self) -> Iterator[Any]:
        return iter(self._rows)


SOURCES: dict[str, Callable[[list[Any]], Stream]] = {
    "from_shards": lambda rows: Stream.from_shards([rows[:4], tuple(rows[4:])]),
    "from_shards of others": lambda rows: Stream.from_shards([Samples(rows)]),
    "from_iterable": Stream.from_iterable,
    "from_iterable, by replay": lambda rows: Stream.from_iterable(Walk(rows)),
    "from_dataset": Stream.from_dataset,
    "from_dataset, one by one": lambda rows: Stream.from_dataset(Samples(rows)),
    "from_dataset, in batches": lambda rows: Stream.from_dataset(Batches(rows)),
    "from_shards of arrays of objects": lambda rows: Stream.from_shards([np.array(rows, object)]),
}
SHUFFLES: dict[str, Callable[[Stream], Stream]] = {
    "": lambda stream: stream,
    "shuffled": lambda stream: stream.shuffle(3),
    "in any order": lambda stream: stream.shuffle(None),
}


@pytest.mark.parametrize("name", SOURCES)
@pytest.mark.parametrize("shuffle", SHUFFLES)
def test_dicts_that_a_source_holds_are_not_changed(name: str, shuffle: str) -> None:
    if "replay" in name and shuffle == "in any order":
        return
    rows = held()
    stream = SHUFFLES[shuffle](SOURCES[name](rows).map(add_ten))
    for _ in range(2):
        given = []
        for row in stream.repeat(2):
            given.append(row["a"])
            row["a"] = -1
        assert sorted(given) == sorted([10, 11, 12, 13, 14, 15] * 2)
    assert rows == held()
    # A state in this process makes what was held anew.
    check_stream_resumes(lambda: SHUFFLES[shuffle](SOURCES[name](rows).map(add_ten)).batch(2))
    assert rows == held()


def test_long_lists_are_read_to_their_end() -> None:
    rows: list[Any] = [*range(5000), {"a": 1}, *range(5000)]
    stream = Stream.from_shards([rows])
    assert list(stream) == rows and list(stream.skip(4000).take(200)) == rows[4000:4200]
    next(iter(stream.skip(5000)))["a"] = 2
    assert rows[5000] == {"a": 1}
    passing = iter(stream)
    for at in range(len(rows)):
        if at in (0, 1, 4095, 4096, 4097, 8192, 10000):
            again = iter(stream)
            again.load_state_dict(passing.state_dict())
            assert list(again) == rows[at:]
        next(passing)


def test_what_is_in_them_is_shared_as_said() -> None:
    rows = [{"a": [1]}]
    before = copy.deepcopy(rows)
    next(iter(Stream.from_shards([rows])))["a"].append(2)
    assert before == [{"a": [1]}] and rows == [{"a": [1, 2]}]
    array = np.zeros(2)
    next(iter(Stream.from_shards([[array]]).with_format("numpy")))[0] = 1
    assert array.tolist() == [1, 0]
