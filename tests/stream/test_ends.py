"""Inputs that have ended: they are closed at once, what they counted stays, and their items are still located."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from loaderx.errors import StreamError
from loaderx.stream import Stream
from loaderx.stream.interleave import Stopping
from tests.resume import check_stream_resumes
from tests.stream.pipelines import double, numbers


class Opened:
    """Sources of numbers that know how many of them are open."""

    def __init__(self) -> None:
        self.now = 0

    def source(self, first: int, n: int) -> Stream:
        """Return a stream that has more items than are taken of it."""
        return Stream.from_generator(self._numbers, [range(first, first + n + 5)]).take(n)

    def _numbers(self, shard: range) -> Iterator[int]:
        self.now += 1
        try:
            yield from shard
        finally:
            self.now -= 1


#: How streams of 3 items are put together, and how many of them are open before each item and at the end.
ENDING: dict[str, tuple[Callable[[list[Stream]], Stream], list[int]]] = {
    "concatenate": (Stream.concatenate, [0, *[1] * 12]),
    "concatenate, shuffled": (
        lambda each: Stream.concatenate(each).shuffle(5),
        [0, 1, 1, 1, 1, 1, 1, 1, *[0] * 5],
    ),
    "repeat": (lambda each: each[0].repeat(4), [0, *[1] * 12]),
    "zip in a chain": (
        lambda each: Stream.concatenate([Stream.zip(each[:2]), Stream.zip(each[2:])]),
        [0, *[2] * 6],
    ),
}


@pytest.mark.parametrize("name", ENDING)
def test_an_input_is_closed_when_it_has_ended(name: str) -> None:
    opened = Opened()
    put_together, expected = ENDING[name]
    passing = iter(put_together([opened.source(10 * i, 3) for i in range(4)]))
    found = [opened.now]
    for _ in passing:
        found.append(opened.now)
    assert found == expected and opened.now == 0


@pytest.mark.parametrize(
    ("stopping", "expected"),
    [
        ("first_exhausted", [0, 1]),
        # 0, 10, 20, 0, 11, 21, 0, 10, 22: before each item the stream of the one before is asked for its next.
        ("all_exhausted", [0, 1, 1, 2, 3, 2, 1, 2, 2, 2]),
        # 0, 10, 20, 11, 21, 22
        ("all_exhausted_without_replacement", [0, 1, 1, 2, 2, 1, 1]),
    ],
)
def test_a_mixture_closes_what_is_exhausted(stopping: Stopping, expected: list[int]) -> None:
    opened = Opened()
    streams = [opened.source(0, 1), opened.source(10, 2), opened.source(20, 3)]
    passing = iter(Stream.interleave(streams, stopping=stopping))
    found = [opened.now]
    for _ in passing:
        found.append(opened.now)
    assert found == expected and opened.now == 0


def test_a_mixture_closes_what_no_weight_is_left_for() -> None:
    def make() -> Stream:
        streams = [opened.source(0, 9), opened.source(100, 9), opened.source(200, 9)]
        return Stream.interleave(streams, {0: [1, 0, 1], 4: [0, 0, 1]}, seed=1, stopping="all_exhausted")

    opened = Opened()
    passing = iter(make())
    found = [(item // 100, opened.now) for item in passing]
    assert max(n for _, n in found[:4]) == 2
    assert {stream for stream, _ in found[:4]} == {0, 2}
    assert found[4:] == [(2, 1)] * (len(found) - 4)
    check_stream_resumes(make)


def test_workers_end_with_their_input() -> None:
    before = threading.active_count()
    parts = [numbers().map(double, num_workers=2).take(1) for _ in range(10)]
    passing = iter(Stream.concatenate(parts))
    assert [threading.active_count() for _ in passing] == [before + 2] * 10
    once = iter(Stream.interleave(parts, stopping="all_exhausted_without_replacement"))
    assert [threading.active_count() for _ in once] == [before + 2] * 10
    passing = iter(numbers().map(double, num_workers=2).shuffle(5))
    n_threads = [threading.active_count() for _ in passing]
    assert n_threads[0] == before + 2 and n_threads[-5:] == [before] * 5


def test_a_resume_opens_what_is_read_and_no_more() -> None:
    opened = Opened()

    def make() -> Stream:
        return Stream.concatenate([opened.source(10 * i, 3) for i in range(6)]).shuffle(8)

    passing = iter(make())
    given = [next(passing) for _ in range(5)]
    state = json.dumps(passing.state_dict())
    rest = list(passing)
    again = make()
    again.load_state_dict(json.loads(state))
    resumed = iter(again)
    found = []
    for item in resumed:
        found.append(item)
        assert opened.now <= 1
    assert found == rest and sorted(given + rest) == sorted(10 * i + j for i in range(6) for j in range(3))


def test_a_stream_of_ended_streams_resumes_everywhere() -> None:
    opened = Opened()

    def make() -> Stream:
        inner = [opened.source(10 * i, 2).map(double, num_workers=2) for i in range(3)]
        once = Stream.interleave(inner, stopping="all_exhausted_without_replacement")
        return Stream.concatenate([once, Stream.concatenate(inner[:2]), once]).shuffle(4).batch(2)

    items = check_stream_resumes(make)
    assert sorted(x for batch in items for x in batch) == sorted([0, 2, 20, 22, 40, 42] * 2 + [0, 2, 20, 22])


def skip_some(x: int) -> int:
    if x % 4 == 1:
        raise ValueError(x)
    return x


def bad_lines(folder: Path) -> Path:
    path = folder / "bad.jsonl"
    path.write_text("1\n{\n2\n3\n4\n{\n")
    return path


#: Each with its counts at the end.
COUNTING: dict[str, tuple[Callable[[Path], Stream], list[dict[str, Any]]]] = {
    "repeat": (
        lambda folder: numbers().map(skip_some, on_error="skip").repeat(3),
        [{"step": "map", "skipped": 6}],
    ),
    "repeat of repeat": (
        lambda folder: numbers().map(skip_some, on_error="skip").repeat(2).shuffle(3).repeat(2),
        [{"step": "map", "skipped": 8}],
    ),
    "repeat of a source": (
        lambda folder: Stream.from_jsonl(bad_lines(folder), on_error="skip").repeat(2),
        [{"step": "source", "skipped": 4}],
    ),
    "take of a source": (
        lambda folder: Stream.from_jsonl(bad_lines(folder), on_error="skip").take(3),
        [{"step": "source", "skipped": 1}],
    ),
    "concatenate": (
        lambda folder: Stream.concatenate(
            [
                Stream.from_jsonl(bad_lines(folder), on_error="skip").take(2),
                numbers().map(skip_some, on_error="skip"),
            ]
        ).shuffle(4),
        [{"step": "source", "skipped": 1}, {"step": "map", "skipped": 2}],
    ),
    "a mixture that begins again": (
        lambda folder: Stream.interleave(
            [Stream.from_shards([[0, 1, 2]]).map(skip_some, on_error="skip"), numbers().skip(5)],
            stopping="all_exhausted",
        ),
        [
            {"step": "interleave", "given": [8, 8], "passes": [4, 0]},
            {"step": "map", "skipped": 4},
        ],
    ),
    "a mixture, twice": (
        lambda folder: Stream.interleave(
            [numbers().map(skip_some, on_error="skip"), numbers().take(4)],
            stopping="all_exhausted_without_replacement",
        ).repeat(2),
        [{"step": "interleave", "given": [22, 8], "passes": [0, 0]}, {"step": "map", "skipped": 4}],
    ),
}


@pytest.mark.parametrize("name", COUNTING)
def test_counts_go_on_over_passes_ends_and_resumes(name: str, tmp_path: Path) -> None:
    make, expected = COUNTING[name]
    whole = iter(make(tmp_path))
    states = [json.dumps(whole.state_dict())]
    for _ in whole:
        states.append(json.dumps(whole.state_dict()))
    states.append(json.dumps(whole.state_dict()))
    assert whole.counts() == expected
    whole.close()
    assert whole.counts() == expected
    for state in states:
        resumed = iter(make(tmp_path))
        resumed.load_state_dict(json.loads(state))
        for _ in resumed:
            pass
        assert resumed.counts() == expected
    check_stream_resumes(lambda: make(tmp_path))


def test_an_item_of_an_earlier_pass_is_located_in_its_order() -> None:
    permuted = Stream.from_shards([range(10)]).shuffle(None, seed=1)
    first = list(permuted)
    assert list(permuted.repeat(2))[10:] != first
    with pytest.raises(StreamError, match=f"shard 0, index {first[0]}, in pass 0, and 14 more"):
        next(iter(permuted.repeat(2).batch(15).map(fail)))
    mixture = Stream.interleave([permuted, Stream.from_shards([range(15)])], stopping="all_exhausted")
    with pytest.raises(StreamError, match=f"shard 0, index {first[0]}, of stream 0, and 24 more"):
        next(iter(mixture.batch(25).map(fail)))


def fail(item: Any) -> None:
    raise ValueError(item)
