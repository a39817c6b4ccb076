"""Every step, every pair of steps, and chains of them: each goes on exactly where it was, from every state."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loaderx.errors import OptionError
from loaderx.stream import Stream
from tests.resume import check_stream_resumes
from tests.stream.pipelines import rows

Row = dict[str, Any]
Step = Callable[[Stream], Stream]

FULL_EXAMPLES = 1500
CI_EXAMPLES = 90
MOST_ITEMS = 40


def first_number(item: Any) -> int:
    """Return a number of an item, whatever the steps before have made of it."""
    while not isinstance(item, int):
        if isinstance(item, dict):
            item = next(iter(item.values()), 0)
        elif isinstance(item, list | tuple):
            item = item[0] if item else 0
        elif hasattr(item, "tolist"):
            item = item.tolist()
        else:
            item = int(item or 0)
    return item


def grow(item: Any) -> Row:
    return {"a": first_number(item) + 1, "b": item}


def number(item: Any, index: int) -> Row:
    return {"a": index, "b": item}


def draw(item: Any, rng: Any) -> Row:
    return {"a": int(rng.integers(100)), "b": item}


def is_kept(item: Any) -> bool:
    return first_number(item) % 3 != 1


def is_third(item: Any, index: int) -> bool:
    return index % 3 != 0


def several(item: Any) -> Iterator[Row]:
    for i in range(first_number(item) % 3):
        yield {"a": i, "b": item}


def fail_at_some(item: Any) -> Row:
    n = first_number(item)
    if n % 4 == 2:
        raise ValueError(n)
    return {"a": n, "b": item}


def swap(batch: Any) -> list[Row]:
    """Return the items of a batch of whatever kind, the last first, and the first of them twice."""
    items = batch if isinstance(batch, list) else [dict(zip(batch, row)) for row in zip(*batch.values())]  # noqa: B905
    return [{"a": first_number(item), "b": item} for item in [*items[::-1], *items[:1]]]


def rebatch(stream: Stream) -> Stream:
    return stream.batch(3).rebatch(2)


def as_arrays(stream: Stream) -> Stream:
    return stream.map(plain).with_format("numpy")


def plain(item: Any) -> Row:
    return {"a": first_number(item), "b": [first_number(item)] * 2}


def padded(stream: Stream) -> Stream:
    return stream.map(ragged).batch(2).pad(lengths="_n")


def ragged(item: Any) -> Row:
    n = first_number(item)
    return {"a": n, "b": [n] * (n % 3)}


def mixed(stream: Stream) -> Stream:
    return Stream.interleave([stream, rows().take(4), stream.skip(1)], [2, 1, 1], stopping="all_exhausted")


#: A form of every step, of streams whatever their items are.
STEPS: dict[str, Step] = {
    "map": lambda stream: stream.map(grow),
    "map with_index": lambda stream: stream.map(number, with_index=True),
    "map with_rng": lambda stream: stream.map(draw, with_rng=True),
    "map on_error": lambda stream: stream.map(fail_at_some, on_error="skip"),
    "map batched": lambda stream: stream.map(swap, batched=True, batch_size=3),
    "map workers": lambda stream: stream.map(grow, num_workers=2),
    "map with_rng workers": lambda stream: stream.map(draw, with_rng=True, num_workers=2),
    "filter": lambda stream: stream.filter(is_kept),
    "filter with_index": lambda stream: stream.filter(is_third, with_index=True),
    "flat_map": lambda stream: stream.flat_map(several),
    "tap": lambda stream: stream.tap(first_number),
    "prefetch": lambda stream: stream.prefetch(3),
    "shuffle": lambda stream: stream.shuffle(4, seed=3, max_input_shards=2),
    "skip": lambda stream: stream.skip(2),
    "take": lambda stream: stream.take(7),
    "step": lambda stream: stream.step(2, 1),
    "repeat": lambda stream: stream.repeat(2),
    "batch": lambda stream: stream.batch(3),
    "batch drop_last": lambda stream: stream.batch(2, drop_last=True),
    "rebatch": rebatch,
    "pad": padded,
    "select": lambda stream: stream.map(grow).select(["b"]),
    "rename": lambda stream: stream.map(grow).rename({"a": "c"}),
    "drop": lambda stream: stream.map(grow).drop("b"),
    "with_format": as_arrays,
    "interleave": lambda stream: Stream.interleave([stream, rows()], stopping="all_exhausted"),
    "interleave drawn": mixed,
    "interleave once": lambda stream: Stream.interleave(
        [rows(), stream], [1, 1], stopping="all_exhausted_without_replacement"
    ),
    "concatenate": lambda stream: Stream.concatenate([stream, rows().take(3)]),
    "zip": lambda stream: Stream.zip([stream, rows()]),
}


def generated(shard: list[int]) -> Iterator[Row]:
    for x in shard:
        yield {"a": x, "b": [x]}


#: Sources in memory, with shards that are empty first, in the midst and last, and sources of nothing.
SOURCES: dict[str, Callable[[], Stream]] = {
    "rows": rows,
    "one shard": lambda: Stream.from_shards([range(6)]),
    "empty shards": lambda: Stream.from_shards([[], [5, 6], [], [], [7], []]),
    "no items": lambda: Stream.from_shards([[], []]),
    "no shards": lambda: Stream.from_shards([]),
    "dataset": lambda: Stream.from_dataset(range(9), num_shards=4),
    "permuted": lambda: Stream.from_dataset(range(9)).shuffle(None, seed=5),
    "generator": lambda: Stream.from_generator(generated, [[1, 2, 3], [], [4, 5]]),
    "iterable": lambda: Stream.from_iterable(dict.fromkeys(range(5))),
}
SHORT = {name: STEPS[name] for name in STEPS if "workers" not in name and name != "prefetch"}


def chain(source: Callable[[], Stream], steps: list[Step], epoch: int = 0) -> Stream:
    """Return a stream of some steps; those that an order refuses are left out."""
    stream = source()
    for step in steps:
        try:
            stream = step(stream)
        except OptionError:
            continue
    stream.set_epoch(epoch)
    return stream


@pytest.mark.parametrize("source", SOURCES)
def test_every_source_alone_and_shuffled(source: str) -> None:
    whole = check_stream_resumes(SOURCES[source])
    shuffled = check_stream_resumes(lambda: SOURCES[source]().shuffle(3).repeat(2))
    assert sorted(map(first_number, shuffled)) == sorted(map(first_number, whole * 2))


@pytest.mark.parametrize("step", STEPS)
def test_every_step(step: str) -> None:
    for source in ("rows", "empty shards", "no items"):
        for epoch in (0, 2):
            check_stream_resumes(functools.partial(chain, SOURCES[source], [STEPS[step]], epoch))


@pytest.mark.parametrize("first", SHORT)
def test_every_pair_of_steps(first: str, size: str) -> None:
    """Each behind each, on few items: those with workers have a test of their own below."""
    for second in SHORT:
        check_stream_resumes(functools.partial(chain, few, [SHORT[first], SHORT[second]], 1), MOST_ITEMS)


def few() -> Stream:
    return Stream.from_shards(
        [[], [{"a": 0, "b": 4}, {"a": 5, "b": 1}, {"a": 2, "b": 3}], [{"a": 8, "b": 0}]]
    )


@pytest.mark.parametrize("threaded", ["map workers", "map with_rng workers", "prefetch"])
def test_every_pair_with_threads(threaded: str) -> None:
    for other in STEPS:
        for pair in ([threaded, other], [other, threaded]):
            make = functools.partial(chain, few, [STEPS[name] for name in pair])
            check_stream_resumes(make, runs_ahead=True)


CHAINS = st.tuples(
    st.sampled_from(sorted(SOURCES)), st.lists(st.sampled_from(sorted(STEPS)), max_size=6), st.integers(0, 3)
)


def check_chain(source: str, names: list[str], epoch: int) -> None:
    """Check a chain, the beginning of one that gives many items."""
    make = functools.partial(chain, SOURCES[source], [STEPS[name] for name in names], epoch)
    with iter(make()) as passing:
        is_long = sum(1 for _ in itertools.islice(passing, MOST_ITEMS + 1)) > MOST_ITEMS
    check_stream_resumes(make, MOST_ITEMS if is_long else None, runs_ahead=not set(names) <= set(SHORT))


@settings(max_examples=CI_EXAMPLES)
@given(CHAINS)
def test_chains(drawn: tuple[str, list[str], int]) -> None:
    check_chain(*drawn)


@pytest.mark.slow
@settings(max_examples=FULL_EXAMPLES)
@given(CHAINS)
def test_many_chains(drawn: tuple[str, list[str], int]) -> None:
    check_chain(*drawn)


def test_each_step_makes_something_of_everything() -> None:
    """Steps that the checks above go over do give items: nothing is shown by runs of none."""
    for step in STEPS:
        assert list(chain(rows, [STEPS[step]])), step
    for first, second in itertools.product(SHORT, repeat=2):
        made = list(itertools.islice(chain(rows, [SHORT[first], SHORT[second]]), 2))
        assert made or {first, second} & {"skip", "take", "step", "zip"}, (first, second)
