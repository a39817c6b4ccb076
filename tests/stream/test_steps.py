"""Steps of one stream: what they give, in literal orders, and that they resume before every item."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from loaderx.errors import StreamError
from loaderx.stream import Stream
from tests.resume import check_stream_resumes
from tests.stream.pipelines import ITEMS, double, fail_at_11, fail_batch_of_11, is_odd, numbers, pairs, rows


def lazily(x: int) -> Iterator[int]:
    for i in range(x % 4):
        yield 10 * x + i


def drawn(x: int, rng: np.random.Generator) -> tuple[int, int]:
    return x, int(rng.integers(1000))


CASES: dict[str, tuple[Callable[[], Stream], list[Any]]] = {
    "source": (numbers, ITEMS),
    "map": (lambda: numbers().map(double), [2 * x for x in ITEMS]),
    "map with_index": (
        lambda: numbers().map(lambda x, i: (i, x), with_index=True),
        list(enumerate(ITEMS)),
    ),
    "map with_rng": (
        lambda: numbers().take(5).map(drawn, with_rng=True),
        [(0, 407), (1, 692), (2, 850), (3, 164), (4, 21)],
    ),
    "map with both": (
        lambda: (
            numbers().take(3).map(lambda x, i, rng: (x, i, drawn(x, rng)[1]), with_index=True, with_rng=True)
        ),
        [(0, 0, 407), (1, 1, 692), (2, 2, 850)],
    ),
    "filter": (lambda: numbers().filter(is_odd), [1, 3, 11, 13, 15]),
    "filter with_index": (
        lambda: numbers().filter(lambda x, i: i % 3 == 0, with_index=True),
        [0, 3, 11, 14, 20],
    ),
    "filter all": (lambda: numbers().filter(lambda x: False), []),
    "flat_map": (
        lambda: numbers().take(6).flat_map(pairs),
        [(1, 0), (2, 0), (2, 1), (4, 0), (10, 0)],
    ),
    "flat_map of a generator": (lambda: numbers().take(5).flat_map(lazily), [10, 20, 21, 30, 31, 32]),
    "tap": (lambda: numbers().tap(double), ITEMS),
    "shuffle": (lambda: numbers().shuffle(4), [10, 1, 11, 20, 0, 12, 4, 3, 2, 13, 14, 16, 15]),
    "skip": (lambda: numbers().skip(4), ITEMS[4:]),
    "skip more": (lambda: numbers().skip(40), []),
    "take": (lambda: numbers().take(7), ITEMS[:7]),
    "take none": (lambda: numbers().take(0), []),
    "take more": (lambda: numbers().take(40), ITEMS),
    "step": (lambda: numbers().step(3, 1), ITEMS[1::3]),
    "repeat": (lambda: numbers().take(3).repeat(3), ITEMS[:3] * 3),
    "repeat never": (lambda: numbers().repeat(0), []),
    "repeat nothing": (lambda: Stream.from_shards([]).repeat(), []),
    "shuffled repeat": (
        lambda: Stream.from_shards([[1, 2, 3]]).shuffle(3).repeat(3),
        [2, 3, 1, 1, 3, 2, 2, 3, 1],
    ),
    "select": (lambda: rows().take(2).select(["b", "a"]), [{"b": [], "a": 0}, {"b": [1], "a": 1}]),
    "select one": (lambda: rows().take(2).select("a"), [{"a": 0}, {"a": 1}]),
    "drop": (lambda: rows().take(2).drop("b"), [{"a": 0}, {"a": 1}]),
    "rename": (lambda: rows().take(1).rename({"a": "b", "b": "a"}), [{"b": 0, "a": []}]),
    "no shards": (lambda: Stream.from_shards([]).shuffle(3).batch(2), []),
}


@pytest.mark.parametrize("name", CASES)
def test_it_gives_what_it_should_and_resumes_everywhere(name: str) -> None:
    make, expected = CASES[name]
    assert check_stream_resumes(make) == expected


@pytest.mark.parametrize("name", CASES)
def test_it_resumes_below_others_and_in_another_epoch(name: str) -> None:
    def make() -> Stream:
        stream = CASES[name][0]().shuffle(3).batch(2).take(30).repeat(2)
        stream.set_epoch(5)
        return stream

    check_stream_resumes(make)


def test_without_end() -> None:
    items = check_stream_resumes(lambda: numbers().shuffle(5).repeat(), 60)
    passes = [items[i : i + 13] for i in range(0, 52, 13)]
    assert all(sorted(each) == ITEMS for each in passes)
    assert len({tuple(each) for each in passes}) == 4


def test_tap_sees_each_item_once_also_when_a_buffer_is_made_anew() -> None:
    seen: list[int] = []
    stream = numbers().tap(seen.append).shuffle(6)
    passing = iter(stream)
    given = [next(passing) for _ in range(4)]
    state = passing.state_dict()
    stream.load_state_dict(state)
    n_seen = len(seen)
    given += list(stream)
    assert sorted(given) == ITEMS
    assert n_seen == 10 and sorted(seen) == ITEMS


def test_random_numbers_are_those_of_the_seed_the_epoch_and_the_place() -> None:
    def draw(seed: int, epoch: int) -> list[Any]:
        stream = numbers().map(drawn, with_rng=True, seed=seed)
        stream.set_epoch(epoch)
        return list(stream)

    assert draw(1, 0) == draw(1, 0)
    assert len({tuple(draw(seed, epoch)) for seed in (1, 2) for epoch in (0, 1)}) == 4


def test_of_two_steps_with_one_seed_each_has_random_numbers_of_its_own() -> None:
    first = numbers().take(5).map(drawn, with_rng=True)
    expected = [((0, 407), 402), ((1, 692), 782), ((2, 850), 49), ((3, 164), 845), ((4, 21), 714)]
    assert check_stream_resumes(lambda: first.map(drawn, with_rng=True)) == expected
    assert list(first.map(drawn, with_rng=True, num_workers=2)) == expected
    batched = first.map(
        lambda batch, rng: [drawn(x, rng) for x in batch], batched=True, batch_size=1, with_rng=True
    )
    assert list(batched) == expected
    # Another seed is left alone, and so is what has another step between.
    other = first.map(drawn, with_rng=True, seed=1)
    assert [n for _, n in other] == [n for _, n in numbers().take(5).map(drawn, with_rng=True, seed=1)]
    assert [n for _, n in first.map(double).skip(0).map(drawn, with_rng=True)] == [n for _, n in expected]


def test_of_two_shuffles_with_one_seed_each_has_an_order_of_its_own() -> None:
    once = Stream.from_shards([range(10)]).shuffle(10)
    assert list(once) == [6, 9, 4, 0, 1, 2, 7, 8, 5, 3]
    twice = check_stream_resumes(lambda: once.shuffle(10))
    assert twice == [8, 0, 1, 2, 3, 9, 7, 6, 5, 4]
    # With the same draws, the second one would have moved what is at each place as the first one did.
    assert twice != [list(once)[i] for i in once]


def test_streams_side_by_side_with_one_seed_have_one_order() -> None:
    images, labels = numbers().map(double), numbers()
    for size in (4, 100):
        zipped = Stream.zip(
            [images.shuffle(size, seed=7), labels.tap(double).shuffle(size, seed=7)], strict=True
        )
        for epoch in range(2):
            zipped.set_epoch(epoch)
            assert sorted(zipped) == [(2 * x, x) for x in ITEMS]
    augmented = Stream.zip([numbers().map(drawn, with_rng=True), numbers().map(drawn, with_rng=True)])
    assert all(left == right for left, right in augmented)


def test_parts_of_a_stream_that_are_shuffled_then_never_overlap() -> None:
    test, train = numbers().take(4).shuffle(3), numbers().skip(4).shuffle(100)
    for epoch in range(4):
        train.set_epoch(epoch)
        test.set_epoch(3 - epoch)
        assert sorted(test) == ITEMS[:4] and sorted(train) == ITEMS[4:]


def test_an_index_keeps_its_item_when_shards_are_shuffled_later() -> None:
    indexed = numbers().map(lambda x, i: (i, x), with_index=True)
    assert sorted(indexed.shuffle(20)) == list(enumerate(ITEMS))
    chosen = numbers().filter(lambda x, i: i % 2 == 0, with_index=True)
    assert sorted(chosen.shuffle(20)) == ITEMS[::2]


def test_shuffle_behind_take_leaves_the_items_that_were_taken() -> None:
    for epoch in range(3):
        stream = numbers().take(6).shuffle(4)
        stream.set_epoch(epoch)
        assert sorted(stream) == ITEMS[:6]


FAILING: dict[str, tuple[Stream, list[int]]] = {
    "map": (numbers().map(fail_at_11), ITEMS[:6] + ITEMS[7:]),
    "filter": (numbers().filter(lambda x: fail_at_11(x) >= 0), ITEMS[:6] + ITEMS[7:]),
    "tap": (numbers().tap(fail_at_11), ITEMS[:6] + ITEMS[7:]),
    "flat_map": (numbers().flat_map(lambda x: [fail_at_11(x)]), ITEMS[:6] + ITEMS[7:]),
    "map of batches": (numbers().map(fail_batch_of_11, batched=True, batch_size=2), ITEMS[:6] + ITEMS[8:]),
    "map with_index": (numbers().map(lambda x, i: fail_at_11(x), with_index=True), ITEMS[:6] + ITEMS[7:]),
}


@pytest.mark.parametrize("name", FAILING)
def test_what_a_function_raises_says_where_and_the_pass_goes_on_behind_it(name: str) -> None:
    stream, rest = FAILING[name]
    passing = iter(stream)
    given = [next(passing) for _ in range(6)]
    with pytest.raises(StreamError, match="ValueError: eleven") as caught:
        next(passing)
    error = caught.value
    assert isinstance(error.__cause__, ValueError)
    assert error.node == name.split()[0] and error.where.startswith("from_shards: shard 2, index 1")
    copy = pickle.loads(pickle.dumps(error))
    assert (str(copy), copy.node, copy.function, copy.where) == (
        str(error),
        error.node,
        error.function,
        error.where,
    )
    state = passing.state_dict()
    assert given + list(passing) == rest
    stream.load_state_dict(state)
    assert list(stream) == rest[6:]


@pytest.mark.parametrize("name", FAILING)
def test_no_item_is_lost_above_a_function_that_raises(name: str) -> None:
    stream, rest = FAILING[name]
    for above in (stream.batch(4), stream.shuffle(3).batch(1), Stream.interleave([stream]).batch(1)):
        passing, given, n_raised = iter(above), [], 0
        while True:
            try:
                given += next(passing)
            except StreamError:
                n_raised += 1
            except StopIteration:
                break
        assert n_raised == 1 and len(given) == len(rest) and 11 not in given
        # Another order of the shards has other batches.
        assert sorted(given) == rest or (name == "map of batches" and "shuffle" in repr(above))


def test_steps_of_ours_say_what_item_they_cannot_take() -> None:
    for stream, message in (
        (numbers().select("a"), "select: .*a int, and has to be a dict.*shard 0, index 0"),
        (rows().drop(["a", "z"]), "drop: .*'z' not in the item, which has 'a', 'b'"),
        (rows().rename({"a": "b"}), "rename: .*'b' is in the item already"),
        (numbers().pad(), "pad: .*a int, and has to be a batch"),
        (numbers().rebatch(2), "rebatch: .*a int, and has to be a batch"),
        (numbers().batch(2).pad(), "pad: .*no rows of lengths"),
    ):
        with pytest.raises(StreamError, match=message) as caught:
            next(iter(stream))
        assert caught.value.function is None


async def awaited(x: int) -> int:
    return x


LAZY: dict[str, tuple[Stream, str]] = {
    "generator": (numbers().map(lambda x: (i for i in range(x))), "map: .*a generator, which is no item"),
    "generator of workers": (
        numbers().map(lambda x: (i for i in range(x)), num_workers=2),
        "map: .*a generator, which is no item",
    ),
    "generator, with_index": (
        numbers().map(lambda x, i: (j for j in range(i)), with_index=True),
        "map: .*a generator, which is no item",
    ),
    "coroutine": (numbers().map(lambda x: awaited(x)), "map: .*has to be awaited"),
    "parts that are awaited": (numbers().flat_map(lambda x: awaited(x)), "flat_map: .*has to be awaited"),  # type: ignore[arg-type, return-value]
    "no parts": (numbers().flat_map(lambda x: None), "flat_map: .*returned None: .*an empty one"),  # type: ignore[arg-type, return-value]
    "parts of text": (numbers().flat_map(lambda x: "abc"), r"flat_map: .*letter by letter.*\[item\] for one"),
    "parts of a dict": (numbers().flat_map(lambda x: {"a": [x]}), r"flat_map: .*a dict, .*\[item\] for one"),
}


@pytest.mark.parametrize("name", LAZY)
def test_what_a_function_returns_that_is_surely_no_item(name: str) -> None:
    stream, message = LAZY[name]
    passing = iter(stream)
    for place in ("index 0", "index 1"):
        with pytest.raises(StreamError, match=f"{message}.*shard 0, {place}"):
            next(passing)
    passing.close()


def test_none_is_an_item() -> None:
    assert list(numbers().take(3).map(lambda x: None)) == [None] * 3


def test_a_function_that_raises_stop_iteration_does_not_end_the_stream() -> None:
    def stop(x: int) -> int:
        raise StopIteration

    with pytest.raises(StreamError, match="StopIteration"):
        next(iter(numbers().map(stop)))
    with pytest.raises(StreamError, match="StopIteration"):
        next(iter(numbers().flat_map(stop)))  # type: ignore[arg-type]
