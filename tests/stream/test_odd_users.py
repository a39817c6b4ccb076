"""What users give that has no text, is too large, or makes a pipeline too deep: an error of ours that says so."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from loaderx.errors import OptionError, StreamError
from loaderx.stream import Stream
from loaderx.stream.node import MOST_DEEP
from tests.resume import check_stream_resumes
from tests.stream.pipelines import double, numbers


class MuteError(Exception):
    def __str__(self) -> str:
        raise ZeroDivisionError


class Mute:
    def __repr__(self) -> str:
        raise ZeroDivisionError


class Caller:
    """A function that has no name, and raises another thing than AttributeError when it is asked for it."""

    def __getattr__(self, name: str) -> Any:
        raise KeyError(name)

    def __call__(self, item: Any) -> Any:
        raise MuteError


def fail(item: Any) -> Any:
    raise MuteError


def fail_in_the_midst(item: int) -> Any:
    yield item
    raise MuteError


MUTE = r"MuteError: it has no text \(ZeroDivisionError\)"
RAISING: dict[str, Callable[[], Stream]] = {
    "map": lambda: numbers().map(fail),
    "map with_rng": lambda: numbers().map(lambda item, rng: fail(item), with_rng=True),
    "map workers": lambda: numbers().map(fail, num_workers=1),
    "map processes": lambda: numbers().map(fail, num_workers=1, worker_type="process"),
    "map batched": lambda: numbers().map(fail, batched=True),
    "filter": lambda: numbers().filter(fail),
    "flat_map": lambda: numbers().flat_map(fail),
    "tap": lambda: numbers().tap(fail),
    "prefetch": lambda: numbers().map(fail).prefetch(1),
    "generator": lambda: Stream.from_generator(fail_in_the_midst, [1]).filter(bool).skip(1),
}


@pytest.mark.parametrize("name", RAISING)
def test_an_exception_without_text_is_told_with_node_and_place(name: str) -> None:
    with pytest.raises(
        StreamError, match=rf"(fail|lambda>|fail_in_the_midst) raised {MUTE} \(for the item of"
    ) as caught:
        next(iter(RAISING[name]()))
    assert isinstance(caught.value.__cause__, MuteError)


def test_it_is_told_in_a_state_too() -> None:
    def give_then_fail(shard: int) -> Any:
        yield 1
        raise MuteError

    passing = iter(Stream.from_generator(give_then_fail, [0]).prefetch(5))
    assert next(passing) == 1
    json.dumps(passing.state_dict())
    with pytest.raises(StreamError, match=MUTE):
        next(passing)


def test_a_function_is_named_by_its_type_where_its_own_name_cannot_be_had() -> None:
    with pytest.raises(StreamError, match=rf"map: Caller raised {MUTE}"):
        next(iter(numbers().map(Caller())))


NUMBER = 10**5000  # of more digits than Python writes
REFUSED: dict[str, tuple[Callable[[], Any], str]] = {
    "a weight that is no float": (
        lambda: Stream.interleave([numbers()] * 2, [2**2000, 1]),
        r"probabilities is \[\d+, 1\]: give a number for each of the 2 streams",
    ),
    "a weight of too many digits": (
        lambda: Stream.interleave([numbers()] * 2, [NUMBER, 1]),
        r"probabilities is a list, which has no repr \(ValueError\): give a number",
    ),
    "weights without repr": (
        lambda: Stream.interleave([numbers()] * 2, [Mute(), 1]),
        r"probabilities is a list, which has no repr \(ZeroDivisionError\): give a number",
    ),
    "streams without repr": (lambda: Stream.zip(Mute()), "streams is a Mute, which has no repr"),
    "a number": (lambda: numbers().take(Mute()), "n is a Mute, which has no repr"),
    "a negative number": (lambda: numbers().take(-NUMBER), "n is a int, which has no repr"),
    "a flag": (lambda: numbers().batch(1, drop_last=Mute()), "drop_last is a Mute, which has no repr"),
    "a choice": (lambda: numbers().with_format(Mute()), "kind is a Mute, which has no repr"),
    "a function": (lambda: numbers().map(Mute()), "function is a Mute, which has no repr"),
    "names": (lambda: numbers().select(Mute()), "names is a Mute, which has no repr"),
    "names of names": (lambda: numbers().rename(Mute()), "names is a Mute, which has no repr"),
    "a value": (lambda: numbers().batch(1).pad(value=[Mute()]), "value is a list, which has no repr"),
    "paths": (lambda: Stream.from_jsonl(Mute()), "is a Mute, which has no repr"),
    "an iterable": (lambda: Stream.from_iterable(Mute()), "iterable is a Mute, which has no repr"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_value_without_repr_is_refused_all_the_same(name: str) -> None:
    make, message = REFUSED[name]
    with pytest.raises(OptionError, match=message):
        make()


def test_values_that_a_function_returns_without_repr() -> None:
    with pytest.raises(StreamError, match="it returned a Mute"):
        next(iter(numbers().flat_map(lambda x: Mute())))


LAYERS: dict[str, Callable[[Stream], Stream]] = {
    "map": lambda stream: stream.map(double),
    "batch": lambda stream: stream.batch(1),
    "shuffle": lambda stream: stream.shuffle(2),
    "repeat": lambda stream: stream.repeat(1),
    "zip": lambda stream: Stream.zip([stream, numbers()]),
    "strict zip": lambda stream: Stream.zip([stream, numbers()], strict=True),
    "interleave": lambda stream: Stream.interleave([stream, numbers()]),
    "concatenate of maps": lambda stream: Stream.concatenate([stream.map(double), numbers()]),
}


@pytest.mark.parametrize("name", LAYERS)
def test_a_pipeline_has_a_most_of_steps_behind_one_another_and_runs_with_them(name: str) -> None:
    stream = numbers()
    with pytest.raises(OptionError, match=f"has {MOST_DEEP + 1} steps, .* may have {MOST_DEEP}: put several"):
        for _ in range(MOST_DEEP):
            last, stream = stream, LAYERS[name](stream)
    passing = iter(last)
    next(passing)
    state = json.loads(json.dumps(passing.state_dict()))
    rest = list(passing)
    again = iter(last)
    again.load_state_dict(state)
    assert list(again) == rest
    repr(last)


def test_streams_that_a_loop_puts_behind_one_another_are_one_concatenate() -> None:
    stream = Stream.from_shards([[0]])
    for i in range(1, 500):
        stream = Stream.concatenate([stream, Stream.from_shards([[i]])])
    assert list(stream) == list(range(500))
    assert stream.num_shards == 500
    parts = [Stream.from_shards([range(3 * i, 3 * i + 3)]) for i in range(4)]
    nested = Stream.concatenate([Stream.concatenate(parts[:2]), Stream.concatenate([parts[2], parts[3]])])
    assert check_stream_resumes(lambda: nested) == list(range(12))
    assert repr(nested) == repr(Stream.concatenate(parts))
    shuffled = Stream.concatenate([Stream.concatenate(parts).shuffle(1), parts[0]])
    assert shuffled._recipe.depth == 4  # what is shuffled by itself stays so
