"""Several streams as one: mixtures, one behind the other, side by side."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from itertools import islice
from typing import Any

import pytest

from loaderx.errors import OptionError, StreamError
from loaderx.stream import Stream
from loaderx.stream.interleave import STOPPING, Stopping
from tests.resume import check_stream_resumes
from tests.stream.pipelines import ITEMS, double, fail_at_11, numbers


def of_sizes(*sizes: int) -> list[Stream]:
    """Return streams whose items are 100, 101 ... in the second one, and so on."""
    return [Stream.from_shards([list(range(100 * i, 100 * i + n))]) for i, n in enumerate(sizes)]


#: (sizes, probabilities, stopping) and the order for seed 7: what datasets.interleave_datasets of 5.2.0 gives too.
ORDERS: list[tuple[tuple[int, ...], list[float] | None, Stopping, list[int]]] = [
    ((3, 4, 5), None, "first_exhausted", [0, 100, 200, 1, 101, 201, 2]),
    ((1, 2, 3), None, "all_exhausted", [0, 100, 200, 0, 101, 201, 0, 100, 202]),
    ((1, 2, 3), None, "all_exhausted_without_replacement", [0, 100, 200, 101, 201, 202]),
    ((5, 9, 2), [0.5, 0.3, 0.2], "first_exhausted", [100, 200, 101, 0, 1, 201]),
    (
        (5, 9, 2),
        [0.5, 0.3, 0.2],
        "all_exhausted",
        [
            100,
            200,
            101,
            0,
            1,
            201,
            2,
            200,
            102,
            3,
            4,
            0,
            1,
            2,
            103,
            104,
            201,
            105,
            106,
            200,
            3,
            4,
            107,
            0,
            1,
            108,
        ],
    ),
    (
        (5, 9, 2),
        [0.5, 0.3, 0.2],
        "all_exhausted_without_replacement",
        [100, 200, 101, 0, 1, 201, 2, 102, 3, 4, 103, 104, 105, 106, 107, 108],
    ),
    ((3, 0, 3), None, "first_exhausted", [0]),
    ((3, 0, 3), None, "all_exhausted", [0, 200, 1, 201, 2, 202]),
    ((3, 0, 3), None, "all_exhausted_without_replacement", [0, 200, 1, 201, 2, 202]),
    ((0, 0), None, "all_exhausted", []),
    ((0,), [1.0], "first_exhausted", []),
]


@pytest.mark.parametrize(("sizes", "probabilities", "stopping", "expected"), ORDERS)
def test_orders(
    sizes: tuple[int, ...], probabilities: list[float] | None, stopping: Stopping, expected: list[int]
) -> None:
    def make() -> Stream:
        return Stream.interleave(of_sizes(*sizes), probabilities, seed=7, stopping=stopping)

    assert check_stream_resumes(make) == expected


WEIGHTS: list[Any] = [None, [0.5, 0.3, 0.2], {0: [1, 0, 0], 3: [2, 8, 0], 9: [0, 0, 1]}]


@pytest.mark.parametrize("stopping", STOPPING)
@pytest.mark.parametrize("weights", WEIGHTS, ids=["in turns", "drawn", "phases"])
def test_it_resumes_with_shuffles_below_and_above(weights: Any, stopping: Stopping) -> None:
    def make() -> Stream:
        streams = [
            numbers().shuffle(3),
            Stream.from_shards([[]]),
            Stream.from_shards([[201], [202]]).map(double),
        ]
        mixture = Stream.interleave(streams, weights, stopping=stopping).shuffle(4).repeat(2)
        mixture.set_epoch(3)
        return mixture

    check_stream_resumes(make)


def test_weights_change_with_the_items_given() -> None:
    streams = [each.repeat() for each in of_sizes(50, 50)]
    mixture = Stream.interleave(streams, {0: [1, 0], 10: [0, 1], 1500: [1, 3]}, seed=3)
    passing = iter(mixture)
    items = list(islice(passing, 5500))
    assert {x // 100 for x in items[:10]} == {0} and {x // 100 for x in items[10:1500]} == {1}
    share = Counter(x // 100 for x in items[1500:])[1] / 4000
    assert abs(share - 0.75) < 0.03
    counted = Counter(x // 100 for x in items)
    assert passing.counts() == [{"step": "interleave", "given": [counted[0], counted[1]], "passes": [0, 0]}]
    check_stream_resumes(lambda: Stream.interleave(streams, {0: [1, 0], 5: [0, 1], 15: [1, 3]}), 30)


def test_counts_go_on_over_a_resume() -> None:
    def make() -> Stream:
        return Stream.interleave(of_sizes(3, 8), [1, 1], stopping="all_exhausted").batch(1)

    whole = iter(make())
    list(whole)
    part = iter(make())
    for _ in range(4):
        next(part)
    resumed = iter(make())
    resumed.load_state_dict(part.state_dict())
    list(resumed)
    assert resumed.counts() == whole.counts()
    assert whole.counts()[0]["passes"][0] >= 1


def test_a_stream_that_is_never_drawn_is_not_waited_for() -> None:
    for stopping in STOPPING:
        mixture = Stream.interleave(of_sizes(2, 3), [1, 0], stopping=stopping)
        assert list(mixture) == [0, 1]


def test_a_phase_with_nothing_left_gives_way_to_the_next() -> None:
    phases = {0: [1, 0], 100: [0, 1]}
    for stopping in ("all_exhausted_without_replacement",):
        assert list(Stream.interleave(of_sizes(2, 3), phases, stopping=stopping)) == [0, 1, 100, 101, 102]
    assert list(Stream.interleave(of_sizes(0, 2), phases, stopping="all_exhausted")) == [100, 101]


def test_streams_that_begin_again_are_shuffled_anew() -> None:
    streams = [Stream.from_shards([range(6)]).shuffle(6), Stream.from_shards([range(100, 160)])]
    items = [x for x in Stream.interleave(streams, stopping="all_exhausted") if x < 100]
    passes = [tuple(items[i : i + 6]) for i in range(0, 60, 6)]
    assert all(sorted(each) == list(range(6)) for each in passes) and len(set(passes)) > 5


def test_a_mixture_in_a_mixture_of_the_same_seed_has_draws_of_its_own() -> None:
    streams = [each.repeat() for each in of_sizes(9, 9, 9)]
    inner = Stream.interleave(streams[:2], [1, 1], seed=3)
    alone = [x // 100 for x in islice(inner, 2000)]
    outer = Stream.interleave([inner, streams[2]], [1, 1], seed=3)
    # The second draws as often as not from the inner one where that draws from its first; with the same draws always.
    drawn = [x // 100 for x in islice(outer, 2000)]
    assert [x for x in drawn if x < 2] == alone[: sum(x < 2 for x in drawn)]
    agree = sum((of_outer < 2) == (of_inner == 0) for of_outer, of_inner in zip(drawn, alone, strict=True))
    assert 900 < agree < 1100


def test_another_epoch_draws_others() -> None:
    mixture = Stream.interleave([each.repeat() for each in of_sizes(5, 5)], [1, 1])
    first = list(islice(mixture, 50))
    mixture.set_epoch(1)
    assert list(islice(mixture, 50)) != first
    mixture.set_epoch(0)
    assert list(islice(mixture, 50)) == first


SEVERAL: dict[str, tuple[Callable[[], Stream], list[Any]]] = {
    "concatenate": (lambda: Stream.concatenate([numbers(), *of_sizes(0, 2)]), [*ITEMS, 100, 101]),
    "shuffled concatenate": (
        lambda: Stream.concatenate(of_sizes(3, 0, 3)).shuffle(2),
        [1, 2, 200, 0, 202, 201],
    ),
    "zip": (
        lambda: Stream.zip([numbers(), numbers().skip(2), numbers().map(double)]),
        [(ITEMS[i], ITEMS[i + 2], 2 * ITEMS[i]) for i in range(11)],
    ),
    "zip with nothing": (lambda: Stream.zip(of_sizes(3, 0)), []),
}


@pytest.mark.parametrize("name", SEVERAL)
def test_other_ways_to_combine(name: str) -> None:
    make, expected = SEVERAL[name]
    assert check_stream_resumes(make) == expected
    check_stream_resumes(lambda: make().shuffle(3).batch(2).repeat(2))


def test_zip_keeps_together_what_belongs_together() -> None:
    pairs = Stream.zip([numbers(), numbers().map(double)]).shuffle(5)
    assert sorted(pairs) == [(x, 2 * x) for x in ITEMS]
    failing = Stream.zip([numbers().map(fail_at_11), numbers(), numbers().map(fail_at_11)])
    passing, given, n_raised = iter(failing), [], 0
    while True:
        try:
            given.append(next(passing))
        except StreamError:
            n_raised += 1
            assert passing.state_dict()["position"]["keys"] in ([], [[2, 1], [2, 1]], [(2, 2), (2, 1)])
        except StopIteration:
            break
    # The first and the last stream have lost the item that raised, the middle one has not.
    left = [x for x in ITEMS if x != 11]
    assert given == list(zip(left, ITEMS, left, strict=False)) and n_raised == 2


def test_strict_zip_says_which_stream_is_longer() -> None:
    assert len(list(Stream.zip(of_sizes(3, 3), strict=True))) == 3
    for sizes, message in (
        ((3, 2), "stream 1 has ended, and stream 0"),
        ((2, 3), "stream 0 has ended, and stream 1"),
    ):
        passing = iter(Stream.zip(of_sizes(*sizes), strict=True))
        next(passing), next(passing)
        with pytest.raises(StreamError, match=message):
            next(passing)


def test_where_an_item_comes_from() -> None:
    mixture = Stream.interleave([numbers(), numbers().map(fail_at_11)], stopping="all_exhausted")
    with pytest.raises(StreamError, match="from_shards: shard 2, index 1"):
        list(mixture)
    failing = Stream.interleave([*of_sizes(1), numbers()], stopping="all_exhausted").map(fail_at_11)
    with pytest.raises(StreamError, match="from_shards: shard 2, index 1, of stream 1"):
        list(failing)


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ([1], "a number for each of the 2"),
        ([1, "x"], "a number for each of the 2"),
        ([1, -1], "0 or more"),
        ([0, 0], "one of them above 0"),
        ([1, float("nan")], "0 or more"),
        (0.5, "a number for each of the 2"),
        ({5: [1, 1]}, "begins with item 5"),
        ({}, "begins with item None"),
        ({0: [1, 1], -1: [1, 1]}, "whole number"),
    ],
)
def test_weights_that_are_none(weights: Any, message: str) -> None:
    with pytest.raises(OptionError, match=message):
        Stream.interleave(of_sizes(2, 2), weights)
