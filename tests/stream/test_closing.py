"""What is closed when something raises there: all the rest; and where the pass stands then."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from loaderx.errors import StreamError
from loaderx.stream import Stream

closed: list[str] = []


def failing(shard: int) -> Iterator[int]:
    """Yield ten numbers; raise where it is not gone through to its end."""
    at = shard
    try:
        for at in range(shard, shard + 10):
            yield at
    finally:
        closed.append(f"failing at {at}")
        if at < shard + 9:
            raise ValueError(f"in the midst of {shard}")


def noting(shard: int) -> Iterator[int]:
    try:
        yield from range(shard, shard + 10)
    finally:
        closed.append(f"noting {shard}")


def bad(shard: int = 0) -> Stream:
    return Stream.from_generator(failing, [shard])


def good(shard: int = 100) -> Stream:
    return Stream.from_generator(noting, [shard])


def read(passing: Iterator[Any]) -> list[Any]:
    """Return what a pass gives, with what it raises between."""
    found: list[Any] = []
    while True:
        try:
            found.append(next(passing))
        except StopIteration:
            return found
        except StreamError as error:
            found.append(str(error.__cause__))


OPEN: dict[str, Callable[[], Stream]] = {
    "zip": lambda: Stream.zip([good(), bad(), good(200)]),
    "zip of two that raise": lambda: Stream.zip([good(), bad(), bad(50), good(200)]),
    "mixture": lambda: Stream.interleave([good(), bad(), good(200)]),
    "shards in turns": lambda: Stream.zip(
        [Stream.from_generator(failing, [0, 50]).shuffle(4), good(), good(200)]
    ),
    "workers": lambda: Stream.zip([bad().map(abs, num_workers=1), good(), good(200)]),
}


@pytest.mark.parametrize("name", OPEN)
def test_all_are_closed_where_one_raises_and_the_first_error_is_told(name: str) -> None:
    passing = iter(OPEN[name]())
    for _ in range(3):
        next(passing)
    closed.clear()
    with pytest.raises(
        StreamError, match="from_generator: failing raised ValueError: in the midst of"
    ) as caught:
        passing.close()
    assert isinstance(caught.value.__cause__, ValueError)
    assert {"noting 100", "noting 200"} <= set(closed)
    passing.close()  # there is nothing left to close


ENDS: dict[str, tuple[Callable[[], Stream], list[Any]]] = {
    "take": (lambda: bad().take(2), [0, 1, "in the midst of 0"]),
    "concatenate": (
        lambda: Stream.concatenate([bad().take(2), bad(20).take(1), good().take(1)]),
        [0, 1, "in the midst of 0", 20, "in the midst of 20", 100],
    ),
    "repeat": (lambda: bad().take(2).repeat(2), [0, 1, "in the midst of 0", 0, 1, "in the midst of 0"]),
    "shuffle": (lambda: bad().take(3).shuffle(2, seed=2), [1, "in the midst of 0", 2, 0]),
    "shuffle of less": (lambda: bad().take(2).shuffle(5, seed=1), ["in the midst of 0", 0, 1]),
    "mixture": (
        lambda: Stream.interleave(
            [bad().take(1), good().take(2)], stopping="all_exhausted_without_replacement"
        ),
        [0, "in the midst of 0", 100, 101],
    ),
    "mixture with replacement": (
        lambda: Stream.interleave([bad().take(1), good().take(2)], stopping="all_exhausted"),
        [0, "in the midst of 0", 100, 0, "in the midst of 0", 101],
    ),
}


@pytest.mark.parametrize("name", ENDS)
def test_what_raises_as_an_input_ends_comes_once_and_the_pass_goes_on(name: str) -> None:
    make, expected = ENDS[name]
    passing = iter(make())
    assert read(passing) == expected
    assert list(passing) == []


@pytest.mark.parametrize("name", sorted(ENDS.keys() - {"shuffle", "shuffle of less"}))
def test_a_state_behind_such_an_error_knows_that_the_input_has_ended(name: str) -> None:
    """But a shuffle: the items that it held are made anew by the generator, which is dropped in its midst."""
    make, expected = ENDS[name]
    for place in range(len(expected)):
        passing = iter(make())
        for _ in range(place + 1):
            with contextlib.suppress(StreamError):
                next(passing)
        again = make()
        again.load_state_dict(passing.state_dict())
        rest = read(passing)
        assert rest == expected[place + 1 :]
        # What is not opened again has nothing to raise.
        assert [x for x in read(iter(again)) if isinstance(x, int)] == [x for x in rest if isinstance(x, int)]


def test_zip_strict_raises_the_same_each_time_and_swallows_nothing() -> None:
    seen: list[int] = []

    def make() -> Stream:
        longer = Stream.from_shards([range(10, 16)]).tap(seen.append)
        return Stream.zip(
            [Stream.from_shards([range(2)]), Stream.from_shards([range(2)]), longer], strict=True
        )

    passing = iter(make())
    assert [next(passing), next(passing)] == [(0, 0, 10), (1, 1, 11)]
    before = passing.state_dict()
    states = []
    for _ in range(6):
        with pytest.raises(StreamError, match=r"stream 0 has ended, and stream 2 has not.*index 2") as caught:
            next(passing)
        assert caught.value.where is not None and caught.value.where.endswith("index 2")
        states.append(passing.state_dict())
    assert states == states[:1] * 6
    assert states[0]["position"]["upstreams"][2] == before["position"]["upstreams"][2]
    assert seen == [10, 11, 12]
    again = iter(make())
    again.load_state_dict(states[-1])
    for _ in range(2):
        with pytest.raises(StreamError, match=r"stream 0 has ended, and stream 2 has not.*index 2"):
            next(again)


def test_zip_strict_goes_on_when_a_later_stream_raised_as_it_was_asked() -> None:
    def fail_once(x: int) -> int:
        if x == 1 and not failed:
            failed.append(x)
            raise ValueError(x)
        return x

    failed: list[int] = []
    passing = iter(
        Stream.zip([Stream.from_shards([[0]]), Stream.from_shards([[0, 1, 2]]).map(fail_once)], strict=True)
    )
    assert next(passing) == (0, 0)
    with pytest.raises(StreamError, match=r"map: .*fail_once raised"):
        next(passing)
    with pytest.raises(StreamError, match=r"stream 0 has ended, and stream 1 has not.*index 2"):
        next(passing)
