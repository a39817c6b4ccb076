"""The stream itself: passes, epochs, states, what it says of itself, and orders that it refuses."""

from __future__ import annotations

import functools
import json
import pickle
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from loaderx import DataLoader
from loaderx.errors import ClosedError, OptionError, StateMismatchError, StreamError
from loaderx.stream import Stream, StreamIterator
from tests.stream.pipelines import ITEMS, double, is_odd, numbers, rows


def shuffled() -> Stream:
    return numbers().map(double).shuffle(5).batch(2)


def test_a_step_leaves_the_stream_as_it_is() -> None:
    stream = numbers()
    stream.map(double).shuffle(3)
    assert list(stream) == list(stream) == ITEMS


def test_two_passes_do_not_disturb_each_other() -> None:
    stream = shuffled()
    expected = list(stream)
    first, second = iter(stream), iter(stream)
    given: tuple[list[Any], list[Any]] = ([], [])
    for i in range(3 * len(expected)):
        passing, into = ((first, given[0]), (second, given[1]))[i % 3 == 0]
        into += [item for item in [next(passing, None)] if item is not None]
    given[1].extend(second)
    assert given == (expected, expected)


def test_epochs() -> None:
    stream = shuffled()
    orders = []
    for epoch in (0, 1, 2, 0):
        stream.set_epoch(epoch)
        assert stream.epoch == epoch
        orders.append(list(stream))
    assert orders[0] == orders[3]
    assert orders[0] != orders[1] != orders[2]
    assert all(sorted(x for batch in order for x in batch) == [2 * x for x in ITEMS] for order in orders)


def test_the_state_of_a_stream_is_that_of_its_newest_pass() -> None:
    stream = shuffled()
    beginning = stream.state_dict()
    assert beginning == iter(shuffled()).state_dict()
    older, newer = iter(stream), iter(stream)
    next(older)
    assert stream.state_dict() == newer.state_dict() != older.state_dict()
    next(newer), next(newer)
    assert stream.state_dict() == newer.state_dict()


def test_a_state_is_good_for_one_pass() -> None:
    stream = shuffled()
    whole = list(stream)
    passing = iter(stream)
    next(passing)
    state = json.loads(json.dumps(stream.state_dict()))
    other = shuffled()
    other.load_state_dict(state)
    assert other.state_dict() == state
    assert list(other) == whole[1:]
    assert list(other) == whole


def test_a_state_brings_its_epoch() -> None:
    stream = shuffled()
    stream.set_epoch(3)
    whole = list(stream)
    passing = iter(stream)
    next(passing)
    for epoch, expected in ((3, whole[1:]), (None, whole[1:])):
        other = shuffled()
        other.load_state_dict(passing.state_dict())
        if epoch is not None:
            other.set_epoch(epoch)
        assert other.epoch == 3 and list(other) == expected
    # Another epoch begins at its beginning.
    other = shuffled()
    other.load_state_dict(passing.state_dict())
    other.set_epoch(0)
    assert list(other) == list(shuffled())


def test_the_state_at_the_end_has_nothing_left() -> None:
    stream = shuffled()
    list(stream)
    other = shuffled()
    other.load_state_dict(stream.state_dict())
    assert list(other) == []
    other.set_epoch(1)
    assert len(list(other)) == 7


@pytest.mark.parametrize(
    "make",
    [
        lambda: numbers().map(is_odd).shuffle(5).batch(2),
        lambda: numbers().map(double).shuffle(6).batch(2),
        lambda: numbers().map(double).shuffle(5, seed=1).batch(2),
        lambda: numbers().map(double).shuffle(5, max_input_shards=2).batch(2),
        lambda: numbers().map(double).shuffle(5).batch(3),
        lambda: numbers().map(double).shuffle(5),
        lambda: Stream.from_shards([[1]]).map(double).shuffle(5).batch(2),
    ],
)
def test_a_state_of_another_stream_is_refused(make: Callable[[], Stream]) -> None:
    state = shuffled().state_dict()
    with pytest.raises(StateMismatchError) as caught:
        make().load_state_dict(state)
    saved, here = caught.value.mismatches["pipeline"]
    assert saved == json.loads(json.dumps(state["pipeline"])) != here
    passing = iter(make())
    first = next(iter(make()))
    with pytest.raises(StateMismatchError):
        passing.load_state_dict(state)
    assert next(passing) == first


def test_functions_have_the_same_name_in_every_process() -> None:
    class Adder:
        def __call__(self, x: int) -> int:
            return x + 1

    def told(function: Callable[..., Any]) -> str:
        return str(numbers().map(function).state_dict()["pipeline"][1]["function"])

    assert told(double) == "double"
    assert told(functools.partial(double)) == "partial(double)"
    assert told(Adder()).endswith("Adder")


def test_pickles() -> None:
    stream = shuffled()
    stream.set_epoch(2)
    copy = pickle.loads(pickle.dumps(stream))
    assert copy.epoch == 2 and list(copy) == list(stream)
    passing = iter(stream)
    next(passing)
    stream.load_state_dict(passing.state_dict())
    copy = pickle.loads(pickle.dumps(stream))
    assert list(copy) == list(passing)


def test_repr_shows_the_steps() -> None:
    assert repr(shuffled()) == (
        "<Stream from_shards(shards=4, items=13).map(function='double')"
        ".shuffle(buffer_size=5, seed=42, max_input_shards=10).batch(n=2, drop_last=False)>"
    )
    both = Stream.concatenate([numbers(), numbers().take(2)])
    assert (
        repr(both)
        == "<Stream concatenate([from_shards(shards=4, items=13), from_shards(shards=4, items=13).take(n=2)])>"
    )


def test_repr_of_a_pass_shows_where_it_is() -> None:
    stream = numbers().map(double)
    stream.set_epoch(2)
    passing = iter(stream)
    assert repr(passing) == f"<StreamIterator of {repr(stream)[8:-1]}, epoch 2, 0% read>"
    list(passing)
    assert repr(passing).endswith(", epoch 2, 100% read>")
    passing.close()
    assert repr(passing).endswith(", epoch 2, closed>")
    assert repr(iter(numbers().repeat())).endswith(", epoch 0, under way>")
    assert repr(iter(Stream.from_jsonl(["missing.jsonl"]))).endswith(", epoch 0, under way>")


def test_wrong_arguments_are_those_of_a_stream() -> None:
    for call, name in (
        (lambda: numbers().map(), "map"),  # type: ignore[call-arg]
        (lambda: numbers().shuffle(3, size=4), "shuffle"),  # type: ignore[call-arg]
        (lambda: Stream.from_jsonl(path="x"), "from_jsonl"),  # type: ignore[call-arg]
    ):
        with pytest.raises(TypeError, match=rf"^Stream\.{name}\(\) "):
            call()


def test_a_stream_has_no_length_and_a_loader_says_what_to_do() -> None:
    with pytest.raises(TypeError, match="has no len"):
        len(numbers())  # type: ignore[arg-type]
    for given in (numbers(), {"x": numbers()}):
        with pytest.raises(OptionError, match=r"A Stream needs no loader: its batch\(n\) makes batches"):
            DataLoader(given)  # type: ignore[arg-type]


def test_a_loop_over_epochs_goes_on_in_the_epoch_of_a_state() -> None:
    def train(stream: Stream, most: int) -> list[tuple[int, int]]:
        given = []
        for epoch in range(stream.epoch, 3):
            stream.set_epoch(epoch)
            for item in stream:
                given.append((epoch, item))
                if len(given) == most:
                    return given
        return given

    whole = train(numbers().shuffle(5), 100)
    for n in (1, 12, 13, 14, 20, 38, 39):
        stream = numbers().shuffle(5)
        begun = train(stream, n)
        state = stream.state_dict()
        again = numbers().shuffle(5)
        again.load_state_dict(state)
        assert begun + train(again, 100) == whole


def test_num_shards() -> None:
    two = Stream.from_shards([[1], [2]])
    assert numbers().num_shards == 4
    every = numbers().map(double).filter(is_odd).flat_map(lambda x: [x]).tap(double).shuffle(3)
    assert every.num_shards == 4
    for numbering in (
        every.skip(1),
        every.take(3),
        every.step(2),
        every.map(lambda x, n: n, with_index=True),
        every.filter(lambda x, n: bool(n), with_index=True),
        every.map(lambda x, n: n, with_index=True, batched=True),
        every.map(lambda x, n: n, with_index=True, num_workers=2),
    ):
        # Which items there are depends on all shards.
        assert numbering.num_shards == numbering.prefetch(2).num_shards == 1
    assert Stream.from_shards([]).take(3).num_shards == 0
    assert numbers().map(list, batched=True).batch(2).rebatch(3).repeat().num_shards == 4
    assert rows().select("a").rename({"a": "b"}).drop("b").with_format("numpy").num_shards == 4
    assert Stream.concatenate([numbers(), two]).num_shards == 6
    assert Stream.interleave([numbers(), two]).shuffle(3).num_shards == 2
    assert Stream.zip([numbers(), two]).num_shards == 1
    assert Stream.from_shards([]).num_shards == 0


def later(x: int) -> Iterator[int]:
    yield x


async def awaited(x: int) -> int:
    return x


class Later:
    def __call__(self, x: int) -> Iterator[int]:
        yield x


WRONG: list[tuple[Callable[[], Any], str]] = [
    (lambda: numbers().map(None), "function is None"),  # type: ignore[arg-type]
    (lambda: numbers().map(3), "function is 3: give a function$"),  # type: ignore[arg-type]
    (lambda: numbers().map(later), "map: the function yields, .* or flat_map"),
    (lambda: numbers().map(functools.partial(later)), "map: the function yields, .* or flat_map"),
    (lambda: numbers().map(Later()), "map: the function yields, .* or flat_map"),
    (lambda: numbers().filter(later), "filter: the function yields"),
    (lambda: numbers().tap(later), "tap: the function yields"),
    (lambda: numbers().map(awaited), "map: the function is asynchronous"),
    (lambda: numbers().flat_map(awaited), "flat_map: the function is asynchronous"),  # type: ignore[arg-type]
    (lambda: numbers().map(double, batch_size=3), "batch_size is for functions of batches"),
    (lambda: numbers().map(double, drop_last=True), "drop_last is for functions of batches"),
    (lambda: numbers().map(double, seed=3), "seed is for functions that are given random numbers"),
    (lambda: numbers().map(double, batched=True, batch_size=0), "batch_size is 0"),
    (lambda: numbers().map(double, batched=1), "batched is 1"),  # type: ignore[arg-type]
    (lambda: numbers().shuffle(0), "buffer_size is 0"),
    (lambda: numbers().shuffle(3, seed=-1), "seed is -1"),
    (lambda: numbers().shuffle(3, max_input_shards=0), "max_input_shards is 0"),
    (lambda: numbers().skip(-1), "n is -1"),
    (lambda: numbers().take(1.5), "n is 1.5"),  # type: ignore[arg-type]
    (lambda: numbers().step(0), "n is 0"),
    (lambda: numbers().step(3, 3), r"first is 3, and has to be below n=3: .*use skip\(3\)"),
    (lambda: numbers().batch(0), "n is 0"),
    (lambda: numbers().batch(True), "n is True"),
    (lambda: numbers().rebatch(0), "n is 0"),
    (lambda: numbers().pad(length=-1), "length is -1"),
    (lambda: numbers().pad(lengths=True), "lengths is True"),  # type: ignore[arg-type]
    (lambda: numbers().select([]), r"names is \[\]"),
    (lambda: numbers().select(["a", "a"]), "different ones"),
    (lambda: numbers().drop(3), "names is 3"),  # type: ignore[arg-type]
    (lambda: numbers().rename({}), "names is {}"),
    (lambda: numbers().rename({"a": "c", "b": "c"}), "different ones"),
    (lambda: numbers().repeat(-1), "n is -1"),
    (lambda: numbers().repeat().batch(3).repeat(2), "no second pass over a stream without end"),
    (lambda: Stream.concatenate([numbers(), numbers().repeat(), numbers()]), "stream 1 has no end"),
    (lambda: Stream.interleave([]), "streams is empty"),
    (lambda: Stream.interleave(numbers()), "one stream: give a list"),  # type: ignore[arg-type]
    (lambda: Stream.zip([numbers(), [1, 2]]), r"streams\[1\] is a list"),  # type: ignore[list-item]
    (lambda: Stream.concatenate(3), "streams is 3"),  # type: ignore[arg-type]
    (lambda: Stream.interleave([numbers()], stopping="never"), "stopping is 'never'"),  # type: ignore[arg-type]
    (lambda: Stream.interleave([numbers()], seed=0.5), "seed is 0.5"),  # type: ignore[arg-type]
    (lambda: numbers().set_epoch(-1), "epoch is -1"),
]


@pytest.mark.parametrize(("make", "message"), WRONG, ids=[message for _, message in WRONG])
def test_what_cannot_mean_anything_is_refused_with_the_reason(make: Callable[[], Any], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        make()


def test_what_has_an_end_after_all() -> None:
    endless = numbers().repeat()
    assert list(endless.take(2).repeat(2)) == [0, 1, 0, 1]
    assert list(Stream.zip([endless, numbers()]).repeat(2))[13:] == list(zip(ITEMS, ITEMS, strict=True))
    assert len(list(Stream.interleave([endless, numbers()]).repeat(2))) == 52
    assert isinstance(iter(Stream.concatenate([numbers(), endless])), StreamIterator)
    with pytest.raises(OptionError, match="without end"):
        Stream.interleave([endless, numbers()], stopping="all_exhausted").repeat(2)


def long(buffer_size: int = 20, n: int = 2) -> Stream:
    return numbers().map(double).shuffle(buffer_size, seed=1).batch(n)


@pytest.mark.parametrize(
    ("other", "difference"),
    [
        (
            lambda: long(30, 3),
            "n of Batch was 2, and is 3 here; buffer_size of Shuffle was 20, and is 30 here",
        ),
        (
            lambda: long().take(3),
            "it was from_shards > Map > Shuffle > Batch, and is from_shards > Map > Shuffle > Batch > Take here",
        ),
        (
            lambda: Stream.zip([numbers(), long()]),
            "is Zip(from_shards, from_shards > Map > Shuffle > Batch) here",
        ),
        (
            lambda: numbers().map(abs).shuffle(20, seed=1).batch(2),
            'function of Map was "double", and is "abs"',
        ),
    ],
)
def test_a_mismatch_says_what_is_different(other: Callable[[], Stream], difference: str) -> None:
    with pytest.raises(StateMismatchError) as caught:
        other().load_state_dict(long().state_dict())
    assert difference in str(caught.value)


@pytest.mark.parametrize(
    ("part", "value", "message"),
    [
        ("version", True, "of version True, and this release reads 1"),
        ("version", 2, "of version 2, and this release reads 1"),
        ("epoch", "abc", "its epoch is 'abc'"),
        ("epoch", -1, "its epoch is -1"),
        ("epoch", True, "its epoch is True"),
        ("pipeline", 3, "no description of one: 3"),
        ("pipeline", ["Batch", {}, ["Map", 1]], "no description of one"),
        ("pipeline", {1, 2}, "no description of one"),
    ],
)
def test_a_state_that_was_changed_by_hand(part: str, value: Any, message: str) -> None:
    stream = long()
    state = {**stream.state_dict(), part: value}
    with pytest.raises(StateMismatchError, match=message):
        stream.load_state_dict(state)
    assert list(stream) == list(long())


@pytest.mark.parametrize("position", [3, "x", [], {}, {"upstream": None}, [None, None, None]])
def test_a_position_that_none_was_ever_at(position: Any) -> None:
    stream = long()
    passing = iter(stream)
    first = next(passing)
    stream.load_state_dict({**stream.state_dict(), "position": position})
    with pytest.raises(StateMismatchError, match="the saved state is damaged: its position fits no pass"):
        iter(stream)
    with pytest.raises(StateMismatchError, match="damaged"):
        passing.load_state_dict({**stream.state_dict(), "position": position})
    stream.load_state_dict(None)  # to begin anew
    assert next(iter(stream)) == first
    assert [first, *passing] == list(long())


def test_a_number_of_passes_beyond_the_last_is_the_end() -> None:
    stream = numbers().repeat(2)
    state = stream.state_dict()
    state["position"][1] = 10**6
    stream.load_state_dict(state)
    assert list(stream) == []


def test_a_state_that_was_loaded_is_the_streams_own() -> None:
    stream = long()
    passing = iter(stream)
    next(passing)
    state = json.loads(json.dumps(passing.state_dict()))
    expected = list(passing)
    stream.load_state_dict(state)
    loaded = iter(long())
    loaded.load_state_dict(state)
    state["position"].clear()
    state["epoch"] = 7
    assert list(stream) == expected
    assert list(loaded) == expected


@pytest.mark.parametrize("make", [lambda: numbers(), lambda: numbers().repeat(2).batch(2)])
@pytest.mark.parametrize("n_given", range(4))
def test_closed_by_another_thread_is_not_the_end(make: Callable[[], Stream], n_given: int) -> None:
    n_seen = 0

    def close(item: Any) -> Any:
        nonlocal n_seen
        if n_seen == n_given:
            thread = threading.Thread(target=passing.close)
            thread.start()
            thread.join()
        n_seen += 1
        return item

    passing = iter(make().map(close))
    for _ in range(n_given):
        next(passing)
    # What it was at is given, or it is said that it was closed.
    with pytest.raises(ClosedError):
        for _ in range(2):
            next(passing)
    with pytest.raises(ClosedError):
        next(passing)


@pytest.mark.parametrize("ask", [lambda passing: passing.state_dict(), next])
def test_what_prefetch_runs_does_not_wait_for_itself(ask: Callable[[StreamIterator], Any]) -> None:
    passing = iter(numbers().tap(lambda _: ask(passing)).prefetch(2))
    with pytest.raises(StreamError, match="would wait for itself: ask for it where the items are taken"):
        next(passing)
    passing.close()
