"""Workers and items taken ahead: the same items in the same order, resumed exactly, and nothing left behind."""

from __future__ import annotations

import gc
import json
import multiprocessing
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
import traceback
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from loaderx.errors import ClosedError, LoaderError, OptionError, StateMismatchError, StreamError
from loaderx.stream import Stream
from loaderx.stream.failure import load_failure, save_failure
from tests.forking import in_child
from tests.stream import workers_kit as kit
from tests.stream.workers_kit import Watched

ROOT = Path(__file__).resolve().parents[2]
TYPES = ("thread", "process")
SHARDS = [list(range(7)), [], list(range(7, 20))]

linux_only = pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")


def numbers() -> Stream:
    return Stream.from_shards(SHARDS)


def until(is_so: Callable[[], bool], seconds: float = 10.0) -> None:
    deadline = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < deadline, "it did not come to pass"
        time.sleep(0.005)


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def ours() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("loaderx")]


@pytest.fixture(autouse=True)
def _nothing_is_left() -> Iterator[None]:
    before = set(threading.enumerate())
    yield
    gc.collect()
    until(lambda: not multiprocessing.active_children(), 5)
    until(lambda: set(threading.enumerate()) <= before, 2)


class Gate:
    """A function that waits until it is opened."""

    def __init__(self) -> None:
        self.opened = threading.Event()
        self.entered: list[Any] = []

    def __call__(self, x: Any) -> Any:
        self.entered.append(x)
        assert self.opened.wait(20)
        return x


def play(passing: Iterator[Any], most: int = 1000) -> list[Any]:
    """Return what an iterator gives, to its end: items, and what it raises between them."""
    seen: list[Any] = []
    for _ in range(most):
        try:
            seen.append(next(passing))
        except StopIteration:
            return seen
        except StreamError as error:
            seen.append(("error", error.node, error.where, str(error)))
    pytest.fail("it does not end")


def step(passing: Iterator[Any]) -> Any:
    try:
        return next(passing)
    except StreamError as error:
        return ("error", error.node, error.where, str(error))


def shape(state: Any) -> Any:
    return {name: shape(value) for name, value in state.items()} if isinstance(state, dict) else None


def through_json(state: Any) -> Any:
    return json.loads(json.dumps(state))


def check_resume(make: Callable[[], Stream], n_errors: int = 0) -> list[Any]:
    """Save before every element, go on in a fresh stream, save there at once and go on again."""
    whole = play(iter(make()))
    assert sum(isinstance(each, tuple) and each[0] == "error" for each in whole) == n_errors
    running = iter(make())
    shapes = []
    for i in range(len(whole) + 1):
        state = through_json(running.state_dict())
        shapes.append(shape(state["position"]))
        first = make()
        first.load_state_dict(state)
        passing = iter(first)
        again = through_json(passing.state_dict())
        second = make()
        second.load_state_dict(again)
        assert play(iter(second)) == whole[i:]
        if i < len(whole):
            assert step(passing) == whole[i]
            third = make()
            third.load_state_dict(through_json(passing.state_dict()))
            assert play(passing) == play(iter(third)) == whole[i + 1 :]
            assert step(running) == whole[i]
        passing.close()
    assert all(each == shapes[0] for each in shapes)
    with pytest.raises(StopIteration):
        next(running)
    return whole


# ---- The same items -------------------------------------------------------------------------------------------------

MAPS: dict[str, tuple[Callable[..., Any], dict[str, Any]]] = {
    "items": (kit.ten, {}),
    "numbers": (kit.with_all, {"with_index": True, "with_rng": True}),
    "batches": (kit.odd_batches, {"batched": True, "batch_size": 3}),
    "whole batches": (kit.odd_batches, {"batched": True, "batch_size": 3, "drop_last": True}),
    "numbered batches": (
        kit.batch_with_all,
        {"batched": True, "batch_size": 4, "with_index": True, "with_rng": True, "seed": 5},
    ),
}


@pytest.mark.parametrize("worker_type", TYPES)
@pytest.mark.parametrize("name", MAPS)
def test_workers_give_what_none_give(name: str, worker_type: Any) -> None:
    function, options = MAPS[name]
    for epoch in (0, 3) if worker_type == "thread" else (3,):
        plain = numbers().shuffle(4).map(function, **options)
        parallel = numbers().shuffle(4).map(function, **options, num_workers=3, worker_type=worker_type)
        plain.set_epoch(epoch)
        parallel.set_epoch(epoch)
        assert list(plain) == list(parallel)
        assert plain.num_shards == parallel.num_shards


def test_no_workers_is_the_plain_step() -> None:
    stream = numbers()
    assert stream.map(kit.ten, num_workers=0)._recipe == stream.map(kit.ten)._recipe
    assert list(stream.map(kit.ten, num_workers=0, worker_type="process")) == [10 * i for i in range(20)]


def test_the_order_is_kept_whoever_is_quicker() -> None:
    def later_is_quicker(x: int) -> int:
        time.sleep(0.02 if x % 4 == 0 else 0)
        return x

    assert list(numbers().map(later_is_quicker, num_workers=4)) == list(range(20))


def test_so_many_calls_are_made_at_once() -> None:
    barrier = threading.Barrier(3, timeout=10)

    def meet(x: int) -> int:
        barrier.wait()
        return x

    assert list(Stream.from_shards([range(9)]).map(meet, num_workers=3)) == list(range(9))


def test_each_worker_is_a_process() -> None:
    pids = set(Stream.from_shards([range(200)]).map(kit.pid_of, num_workers=2, worker_type="process"))
    assert len(pids) == 2 and os.getpid() not in pids


def test_an_empty_source_starts_nobody() -> None:
    empty = Stream.from_shards([[], []])
    assert list(empty.map(kit.ten, num_workers=2, worker_type="process").prefetch(2)) == []


@pytest.mark.parametrize("num_workers", [1, 3])
def test_few_items_are_under_way_at_once(num_workers: int) -> None:
    source = Watched(50)
    passing = iter(Stream.from_shards([source]).map(kit.ten, num_workers=num_workers))
    for i in range(50):
        assert next(passing) == 10 * i
        assert len(source.read) <= i + 1 + num_workers + 1
    assert list(passing) == []


def test_prefetch_takes_so_many_ahead_and_no_more() -> None:
    source = Watched(50)
    passing = iter(Stream.from_shards([source]).prefetch(5))
    time.sleep(0.02)
    assert source.read == []
    for i in range(50):
        assert next(passing) == i
        assert len(source.read) <= i + 1 + 5
        if i < 40:
            until(lambda i=i: len(source.read) >= i + 1 + 2)  # type: ignore[misc]
    assert list(passing) == []
    assert source.read == list(range(50))


def test_what_is_below_is_used_by_one_thread_at_a_time() -> None:
    source = Watched(500)
    stream = Stream.from_shards([source]).map(kit.ten).prefetch(7)
    passing = iter(stream)
    for i in range(500):
        assert next(passing) == 10 * i
        state = passing.state_dict()
        held = len(state["position"]["keys"])
        for _, _, at in state["position"]["upstream"]["open"]:
            assert at == i + 1 + held
    assert source.clashes == 0


def test_two_passes_at_once_do_not_disturb_each_other() -> None:
    stream = numbers().map(kit.ten, num_workers=2).prefetch(2)
    first, second = iter(stream), iter(stream)
    assert [(next(first), next(second)) for _ in range(20)] == [(10 * i, 10 * i) for i in range(20)]
    assert list(first) == list(second) == []


# ---- Going on from a state ------------------------------------------------------------------------------------------


def mapped(stream: Stream, **options: Any) -> Stream:
    return stream.map(kit.ten, num_workers=2, **options)


CHAINS: dict[str, Callable[[], Stream]] = {
    "map": lambda: mapped(numbers()),
    "map of numbers": lambda: numbers().map(kit.with_all, with_index=True, with_rng=True, num_workers=2),
    "map of batches": lambda: numbers().map(kit.odd_batches, batched=True, batch_size=3, num_workers=2),
    "map of numbered batches": lambda: numbers().map(
        kit.batch_with_all, batched=True, batch_size=4, with_index=True, with_rng=True, num_workers=2
    ),
    "prefetch": lambda: numbers().prefetch(3),
    "prefetch of map": lambda: mapped(numbers()).prefetch(4),
    "map of prefetch": lambda: mapped(numbers().prefetch(4)),
    "map of map": lambda: mapped(mapped(numbers())),
    "prefetch of prefetch": lambda: numbers().prefetch(2).prefetch(3),
    "shuffled": lambda: mapped(numbers().shuffle(4, seed=1)).shuffle(5, seed=2).prefetch(2),
    "batches of them": lambda: mapped(numbers()).batch(3).prefetch(2).map(len, num_workers=2),
    "map of batches, shuffled": lambda: (
        numbers().map(kit.odd_batches, batched=True, batch_size=3, num_workers=2).shuffle(4).prefetch(3)
    ),
    "map of batches of map of batches": lambda: mapped(
        numbers()
        .map(kit.odd_batches, batched=True, batch_size=3, num_workers=2)
        .prefetch(2)
        .map(kit.odd_batches, batched=True, batch_size=4, num_workers=1)
    ),
    "repeated": lambda: mapped(numbers().shuffle(3)).repeat(2).prefetch(3),
    "flat": lambda: mapped(numbers()).flat_map(lambda x: [x] * (x % 30 // 10)).prefetch(3),
    "filtered": lambda: mapped(numbers().filter(lambda x: x % 3)).prefetch(3).filter(lambda x: x % 40),
    "mixed": lambda: Stream.interleave(
        [mapped(numbers()), numbers().prefetch(2)], [0.6, 0.4], stopping="all_exhausted"
    ).prefetch(2),
    "side by side": lambda: mapped(Stream.zip([mapped(numbers()).prefetch(2), numbers()]).map(sum)),
    "behind one another": lambda: mapped(Stream.concatenate([numbers().prefetch(9), mapped(numbers())])),
    "taken": lambda: mapped(numbers()).prefetch(3).skip(2).take(11).prefetch(4),
    "empty": lambda: mapped(Stream.from_shards([[], []])).prefetch(3),
}


@pytest.mark.parametrize("name", CHAINS)
def test_it_goes_on_exactly_from_any_item(name: str) -> None:
    check_resume(CHAINS[name])


def test_it_goes_on_exactly_with_worker_processes() -> None:
    def make() -> Stream:
        stream = Stream.from_shards([range(6)]).map(kit.ten, num_workers=2, worker_type="process")
        return stream.prefetch(2)

    running = iter(make())
    for i in range(7):
        state = through_json(running.state_dict())
        if i in (0, 2, 5, 6):
            stream = make()
            stream.load_state_dict(state)
            assert list(stream) == [10 * x for x in range(i, 6)]
        if i < 6:
            assert next(running) == 10 * i
    running.close()


def test_another_number_and_kind_of_workers_goes_on_too() -> None:
    for options in MAPS.values():
        function, more = options
        many = numbers().map(function, **more, num_workers=6).prefetch(5)
        few = numbers().map(function, **more, num_workers=1, worker_type="process").prefetch(1)
        whole = list(many)
        passing = iter(many)
        begun = [next(passing) for _ in range(3)]
        few.load_state_dict(through_json(passing.state_dict()))
        assert begun + list(few) == whole
        passing.close()


@pytest.mark.parametrize("options", [{}, {"batched": True}])
def test_a_state_of_workers_is_not_one_of_none(options: dict[str, Any]) -> None:
    state = iter(numbers().map(list, num_workers=2, **options)).state_dict()
    with pytest.raises(StateMismatchError):
        numbers().map(list, **options).load_state_dict(state)


def test_what_was_under_way_is_given_to_the_workers_anew() -> None:
    gate = Gate()
    stream = numbers().map(gate, num_workers=2)
    gate.opened.set()
    passing = iter(stream)
    assert [next(passing) for _ in range(3)] == [0, 1, 2]
    state = through_json(passing.state_dict())
    assert state["position"]["keys"] == [[0, 3], [0, 4], [0, 5]]
    passing.close()
    gate.entered.clear()
    gate.opened.clear()
    stream.load_state_dict(state)
    resumed = iter(stream)
    until(lambda: sorted(gate.entered) == [3, 4])  # before anybody asks for an item
    gate.opened.set()
    assert list(resumed) == list(range(3, 20))
    assert sorted(gate.entered) == list(range(3, 20))


def test_the_state_at_the_end_and_behind_it() -> None:
    stream = mapped(numbers()).prefetch(3)
    passing = iter(stream)
    assert len(list(passing)) == 20 and ours() == []
    state = through_json(passing.state_dict())
    assert state == through_json(stream.state_dict())
    stream.load_state_dict(state)
    assert list(stream) == []
    passing.load_state_dict(iter(stream).state_dict())
    assert len(list(passing)) == 20


def test_load_state_dict_ends_what_the_iterator_had() -> None:
    passing = iter(mapped(numbers()).prefetch(3))
    state = through_json(passing.state_dict())
    next(passing)
    passing.load_state_dict(state)
    assert ours() == []
    assert list(passing) == [10 * i for i in range(20)]


# ---- Errors ---------------------------------------------------------------------------------------------------------

WRONG = [5, 7, 14]


@pytest.mark.parametrize("worker_type", TYPES)
def test_an_error_comes_at_its_own_item_and_the_stream_goes_on(worker_type: Any) -> None:
    stream = numbers().map(kit.ten_or_raise, num_workers=3, worker_type=worker_type)
    passing = iter(stream)
    assert [next(passing) for _ in range(5)] == [0, 10, 20, 30, 40]
    with pytest.raises(StreamError) as caught:
        next(passing)
    error = caught.value
    assert (error.node, error.function, error.where) == (
        "map",
        "ten_or_raise",
        "from_shards: shard 0, index 5",
    )
    assert (
        str(error)
        == "map: ten_or_raise raised ValueError: not 5 (for the item of from_shards: shard 0, index 5)"
    )
    assert type(error.__cause__) is ValueError and "ten_or_raise" in "".join(
        traceback.format_exception(error)
    )
    assert next(passing) == 60
    with pytest.raises(StreamError, match="from_shards: shard 2, index 0"):
        next(passing)
    assert play(passing)[:1] == [80]


ERRORS: dict[str, tuple[int, Callable[[], Stream]]] = {
    "map": (3, lambda: numbers().map(kit.ten_or_raise, num_workers=2)),
    "map of batches": (
        1,
        lambda: numbers().map(kit.failing_batches, batched=True, batch_size=2, num_workers=2),
    ),
    "below map": (3, lambda: mapped(numbers().filter(kit.ten_or_raise))),
    "below prefetch": (3, lambda: numbers().map(kit.ten_or_raise).prefetch(4)),
    "map below prefetch": (3, lambda: numbers().map(kit.ten_or_raise, num_workers=3).prefetch(4)),
    "map below map": (3, lambda: mapped(numbers().map(kit.ten_or_raise, num_workers=2))),
    "deep": (3, lambda: mapped(mapped(numbers().map(kit.ten_or_raise).prefetch(2)).prefetch(2)).batch(3)),
}


@pytest.mark.parametrize("name", ERRORS)
def test_errors_come_again_where_a_state_was_saved_before_them(name: str) -> None:
    n, make = ERRORS[name]
    whole = check_resume(make, n)
    if name in ("map", "below prefetch", "below map"):
        at = [i for i, each in enumerate(whole) if isinstance(each, tuple)]
        assert at == ([4, 6, 13] if name == "below map" else WRONG)


def test_what_is_not_of_ours_comes_again_as_a_stream_error() -> None:
    saved = through_json(save_failure(KeyError("x")))
    loaded = load_failure(saved)
    assert isinstance(loaded, StreamError) and "KeyError: 'x'" in str(loaded)
    error = StreamError("map: what", node="map", function="f", where="there")
    again = load_failure(through_json(save_failure(error)))
    assert isinstance(again, StreamError)
    assert (str(again), again.node, again.function, again.where) == ("map: what", "map", "f", "there")
    assert load_failure(save_failure(None)) is None


def test_an_error_of_the_system_is_one_of_its_kind_again() -> None:
    for error in (
        FileNotFoundError(2, "not there", Path("a.jsonl")),
        PermissionError(13, "no"),
        OSError(5, "EIO"),
    ):
        again = load_failure(through_json(save_failure(error)))
        assert type(again) is type(error)
        assert str(again) == str(error).replace("PosixPath('a.jsonl')", "'a.jsonl'")
    assert isinstance(load_failure(through_json(save_failure(OSError("without a number")))), StreamError)


def test_a_path_in_an_error_stays_one() -> None:
    from loaderx.errors import JsonlError

    error = JsonlError("bad line", file=Path("a.jsonl"), line_number=3, byte_offset=7, excerpt="{")
    again = load_failure(through_json(save_failure(error)))
    assert isinstance(again, JsonlError)
    assert (again.file, again.line_number, again.byte_offset, again.excerpt) == (Path("a.jsonl"), 3, 7, "{")


@pytest.mark.parametrize("worker_type", TYPES)
@pytest.mark.parametrize(
    "kind", ["StopIteration()", "GeneratorExit()", "SystemExit(3)", "KeyboardInterrupt()"]
)
def test_no_exception_ends_the_stream_without_a_word(worker_type: Any, kind: str) -> None:
    items = [1, f"fail({kind})", 2, 3]
    passing = iter(Stream.from_shards([items]).map(kit.do, num_workers=2, worker_type=worker_type))
    assert next(passing) == 1
    expected = StreamError if kind.startswith("Stop") else type(eval(kind))
    with pytest.raises(expected):
        next(passing)
    assert list(passing) == [2, 3]


def test_an_exception_that_does_not_pickle_is_told_all_the_same() -> None:
    items = ["fail(Unpicklable(4, __import__('threading').Lock()))", 2]
    passing = iter(Stream.from_shards([items]).map(kit.do, num_workers=1, worker_type="process"))
    with pytest.raises(StreamError, match="number 4"):
        next(passing)
    assert list(passing) == [2]


@pytest.mark.parametrize("prefetched", [False, True])
def test_an_error_that_is_let_go_lets_go_of_its_item(prefetched: bool) -> None:
    class Item:
        pass

    made: list[weakref.ref[Item]] = []

    def make_item(x: int) -> Item:
        item = Item()
        made.append(weakref.ref(item))
        return item

    stream = Stream.from_shards([range(6)]).map(make_item).map(kit.ten, num_workers=1)  # type: ignore[arg-type]
    passing = iter(stream.prefetch(1) if prefetched else stream)
    gc.disable()
    try:
        assert [step(passing)[0] for _ in range(6)] == ["error"] * 6
        passing.close()
        assert len(made) == 6 and all(ref() is None for ref in made)
    finally:
        gc.enable()


# ---- What is skipped ------------------------------------------------------------------------------------------------

SKIPPING: dict[str, tuple[int, list[int], Callable[[], Stream]]] = {
    "map": (3, WRONG, lambda: numbers().map(kit.ten_or_raise, on_error="skip")),
    "workers": (3, WRONG, lambda: numbers().map(kit.ten_or_raise, on_error="skip", num_workers=2)),
    "filter": (3, [0, *WRONG], lambda: numbers().filter(kit.ten_or_raise, on_error="skip")),
    "flat_map": (
        3,
        WRONG,
        lambda: numbers().flat_map(lambda x: [kit.ten_or_raise(x)], on_error="skip"),
    ),
    "batches": (
        2,
        [4, 5],
        lambda: numbers().map(kit.failing_batches, batched=True, batch_size=2, on_error="skip"),
    ),
    "workers of batches": (
        2,
        [4, 5],
        lambda: numbers().map(
            kit.failing_batches, batched=True, batch_size=2, on_error="skip", num_workers=2
        ),
    ),
    "numbers": (
        3,
        WRONG,
        lambda: numbers().map(lambda x, i: kit.ten_or_raise(i), with_index=True, on_error="skip"),
    ),
    "workers of numbers": (
        3,
        WRONG,
        lambda: numbers().map(
            lambda x, i: kit.ten_or_raise(i), with_index=True, on_error="skip", num_workers=2
        ),
    ),
    "filter of numbers": (
        3,
        [0, *WRONG],
        lambda: numbers().filter(lambda x, i: kit.ten_or_raise(i), with_index=True, on_error="skip"),
    ),
}


@pytest.mark.parametrize("name", SKIPPING)
def test_what_is_skipped_is_counted_over_a_resume_too(name: str) -> None:
    n, missing, make = SKIPPING[name]
    passing = iter(make())
    whole = list(passing)
    left = {x // 10 if x > 19 or ("filter" not in name and "batches" not in name) else x for x in whole}
    assert left == set(range(20)) - set(missing)
    assert [count["skipped"] for count in passing.counts()] == [n]
    running = iter(make())
    for i in range(len(whole) + 1):
        stream = make()
        stream.load_state_dict(through_json(running.state_dict()))
        resumed = iter(stream)
        resumed.load_state_dict(through_json(resumed.state_dict()))
        assert list(resumed) == whole[i:]
        assert [count["skipped"] for count in resumed.counts()] == [n]
        if i < len(whole):
            next(running)
    check_resume(make)


def test_skipping_is_part_of_what_a_stream_is() -> None:
    state = iter(numbers().map(kit.ten)).state_dict()
    with pytest.raises(StateMismatchError):
        numbers().map(kit.ten, on_error="skip").load_state_dict(state)


def test_nothing_is_counted_where_nothing_is_skipped() -> None:
    assert iter(numbers().map(kit.ten, num_workers=1).filter(bool)).counts() == []


# ---- Arguments ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "option"),
    [
        ({"num_workers": -1}, "num_workers"),
        ({"num_workers": 1.5}, "num_workers"),
        ({"num_workers": 10**6}, "num_workers"),
        ({"worker_type": "fibre"}, "worker_type"),
        ({"on_error": "ignore"}, "on_error"),
    ],
)
def test_arguments_are_checked(options: dict[str, Any], option: str) -> None:
    with pytest.raises(OptionError) as caught:
        numbers().map(kit.ten, **options)
    assert caught.value.option == option


def test_prefetch_takes_one_at_least() -> None:
    with pytest.raises(OptionError, match="n is 0"):
        numbers().prefetch(0)


@pytest.mark.parametrize("step", ["filter", "flat_map"])
def test_on_error_is_checked(step: str) -> None:
    with pytest.raises(OptionError, match="on_error"):
        getattr(numbers(), step)(kit.ten, on_error="no")


def test_a_function_that_does_not_pickle_is_named_at_once() -> None:
    def inner(x: int) -> int:
        return x

    for function, name in ((inner, "inner"), (lambda x: x, "<lambda>")):
        with pytest.raises(OptionError, match=name) as caught:
            numbers().map(function, num_workers=2, worker_type="process")
        assert "worker_type='thread'" in str(caught.value) and "a function of a module" in str(caught.value)
        assert caught.value.option == "function" and caught.value.value is function
        list(numbers().map(function, num_workers=2))


def test_a_stream_with_workers_pickles() -> None:
    stream = numbers().map(kit.ten, num_workers=2).prefetch(2)
    next(iter(stream))
    assert list(pickle.loads(pickle.dumps(stream))) == [10 * i for i in range(20)]


# ---- Worker processes that die or cannot ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ("os.kill(os.getpid(), signal.SIGKILL)", "was killed by signal 9, SIGKILL: perhaps by the system"),
        ("os.kill(os.getpid(), signal.SIGSEGV)", "was killed by signal 11, SIGSEGV"),
        ("os._exit(3)", "ended with exit code 3"),
    ],
)
@pytest.mark.parametrize("on_error", ["raise", "skip"])
def test_a_worker_that_dies_is_named_and_the_stream_goes_on(how: str, said: str, on_error: Any) -> None:
    items = ["os.getpid()", 1, how, 3, 4, 5, "os.getpid()"]
    stream = Stream.from_shards([items]).map(kit.do, num_workers=1, worker_type="process", on_error=on_error)
    passing = iter(stream)
    first, one = next(passing), next(passing)
    assert one == 1
    with pytest.raises(StreamError) as caught:
        next(passing)
    assert f"worker process {first} {said}" in str(caught.value) and "from_shards: shard 0, index 2" in str(
        caught.value
    )
    cause = caught.value.__cause__
    assert isinstance(cause, LoaderError) and cause.worker == first and cause.exit_code in (-9, -11, 3)
    *rest, last = passing
    assert rest == [3, 4, 5] and last != first
    assert all(count == {"step": "map", "skipped": 0} for count in passing.counts())


def test_a_worker_that_is_killed_from_outside_is_no_hang() -> None:
    passing = iter(
        Stream.from_shards([["os.getpid()", "time.sleep(30)", 2]]).map(
            kit.do, num_workers=1, worker_type="process"
        )
    )
    pid = next(passing)
    killer = threading.Timer(0.2, os.kill, (pid, signal.SIGKILL))
    killer.start()
    with pytest.raises(StreamError, match=f"worker process {pid} was killed by signal 9"):
        next(passing)
    killer.join()
    assert list(passing) == [2]


@pytest.mark.parametrize(
    ("item", "said"),
    [
        (lambda: 1, "the item does not pickle"),
        ("lambda: 1", "what the function returned does not pickle"),
        ("DoesNotUnpickle()", "does not unpickle here: RuntimeError: it stays there"),
    ],
)
@pytest.mark.parametrize("on_error", ["raise", "skip"])
def test_what_cannot_be_sent_is_told(item: Any, said: str, on_error: Any) -> None:
    stream = Stream.from_shards([[1, item, 3]])
    passing = iter(stream.map(kit.do, num_workers=2, worker_type="process", on_error=on_error))
    assert next(passing) == 1
    with pytest.raises(StreamError, match=said) as caught:
        next(passing)
    assert caught.value.where == "from_shards: shard 0, index 1"
    assert list(passing) == [3]


def test_large_items_and_arrays_come_through() -> None:
    import numpy as np

    items = [np.arange(1_000_000), np.zeros((0, 3)), np.full((3, 5), 2, np.int8)]
    found = list(Stream.from_shards([items]).map(kit.do, num_workers=2, worker_type="process"))
    for item, same in zip(items, found, strict=True):
        assert item.dtype == same.dtype and np.array_equal(item, same) and same.flags.writeable


def test_a_fork_in_a_function_answers_once() -> None:
    items = ["fork_and_return()", 2, 3]
    assert list(Stream.from_shards([items]).map(kit.do, num_workers=1, worker_type="process")) == [1, 2, 3]


def run_program(tmp_path: Path, text: str, code: int = 0) -> tuple[str, str]:
    program = tmp_path / "program.py"
    program.write_text(text)
    run = subprocess.run(
        [sys.executable, program],
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert run.returncode == code, run.stderr
    return run.stdout, run.stderr


def test_an_unguarded_program_is_told_to_guard_itself(tmp_path: Path) -> None:
    text = """
from loaderx.stream import Stream
from tests.stream.workers_kit import ten
print(list(Stream.from_shards([range(5)]).map(ten, num_workers=2, worker_type="process")))
"""
    _, said = run_program(tmp_path, text, 1)
    assert "if __name__ == '__main__'" in said.splitlines()[-1]


@pytest.mark.parametrize("way", ["-c", "-"])
def test_a_function_that_workers_cannot_import_is_told_where_to_go(way: str) -> None:
    text = """
from loaderx.stream import Stream
def mine(x): return x
passing = iter(Stream.from_shards([range(9)]).map(mine, num_workers=2, worker_type="process"))
for _ in range(3):
    try:
        next(passing)
    except Exception as error:
        print(error)
passing.close()
"""
    run = subprocess.run(
        [sys.executable, *((way, text) if way == "-c" else (way,))],
        input=None if way == "-c" else text,
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        check=True,
    )
    lines = run.stdout.splitlines()
    assert len(lines) == 3 and all("worker_type='thread'" in line for line in lines), run.stdout
    assert "cannot import the main module of a notebook, a prompt or standard input" in run.stdout


# ---- Ends -----------------------------------------------------------------------------------------------------------

ENDED: dict[str, Callable[[], Stream]] = {
    "threads": lambda: mapped(numbers()),
    "processes": lambda: mapped(numbers(), worker_type="process"),
    "prefetch": lambda: numbers().prefetch(3),
    "both": lambda: mapped(numbers().prefetch(2)).prefetch(2),
    "repeated": lambda: mapped(numbers()).prefetch(2).repeat(),
}


@pytest.mark.parametrize("name", ENDED)
@pytest.mark.parametrize("how", ["end", "take", "close", "with", "drop", "break", "error"])
def test_nothing_is_left(name: str, how: str) -> None:
    stream = ENDED[name]()
    if how == "end":
        list(stream.take(40) if name == "repeated" else stream)
    elif how == "take":
        list(stream.take(3))
    elif how == "close":
        passing = iter(stream)
        next(passing)
        passing.close()
        passing.close()
        with pytest.raises(ClosedError):
            next(passing)
        with pytest.raises(ClosedError):
            passing.state_dict()
    elif how == "with":
        with iter(stream) as passing:
            next(passing)
    elif how == "drop":
        passing = iter(stream)
        next(passing)
        del passing, stream
    elif how == "break":
        for _ in stream:
            break
        assert ours() != []
        for _ in stream:  # the pass before is let go
            break
        del stream
    else:
        with pytest.raises(ZeroDivisionError):
            for _ in stream:
                raise ZeroDivisionError
        del stream
    gc.collect()
    until(lambda: ours() == [] and not multiprocessing.active_children(), 1)


def closes_soon(passing: Any) -> threading.Timer:
    timer = threading.Timer(0.1, passing.close)
    timer.start()
    return timer


@pytest.mark.parametrize("prefetched", [False, True])
@pytest.mark.parametrize("worker_type", TYPES)
def test_closing_wakes_who_waits(worker_type: Any, prefetched: bool) -> None:
    gate = Gate()
    function: Any = gate if worker_type == "thread" else kit.slowly
    stream = numbers().map(function, num_workers=2, worker_type=worker_type)
    passing = iter(stream.prefetch(2) if prefetched else stream)
    timer = closes_soon(passing)
    began = time.monotonic()
    with pytest.raises(ClosedError):
        next(passing)
    assert time.monotonic() - began < 5
    timer.join(5)
    assert not timer.is_alive()
    gate.opened.set()
    until(lambda: ours() == [], 5)


def test_closing_does_not_wait_for_a_slow_step_below_prefetch() -> None:
    gate = Gate()
    passing = iter(numbers().map(gate).prefetch(2))
    timer = closes_soon(passing)
    with pytest.raises(ClosedError):
        next(passing)
    timer.join(5)
    assert not timer.is_alive() and ours() == ["loaderx-prefetch"]
    gate.opened.set()
    until(lambda: ours() == [], 5)


@pytest.mark.parametrize("which", ["map", "prefetch", "prefetch of map", "map of prefetch"])
def test_ctrl_c_while_waiting_loses_nothing(which: str) -> None:
    gate = Gate()
    stream = {
        "map": lambda: numbers().map(gate, num_workers=2),
        "prefetch": lambda: numbers().map(gate).prefetch(2),
        "prefetch of map": lambda: numbers().map(gate, num_workers=2).prefetch(2),
        "map of prefetch": lambda: numbers().prefetch(2).map(gate, num_workers=2),
    }[which]()
    passing = iter(stream)
    for _ in range(3):
        killer = threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGINT))
        killer.start()
        with pytest.raises(KeyboardInterrupt):
            next(passing)
        killer.join()
    gate.opened.set()
    assert list(passing) == list(range(20))


def test_ctrl_c_while_a_state_is_waited_for_loses_nothing() -> None:
    gate = Gate()
    passing = iter(numbers().map(lambda x: gate(x) if x == 4 else x).prefetch(2))
    assert [next(passing) for _ in range(3)] == [0, 1, 2]
    until(lambda: gate.entered == [4])
    killer = threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGINT))
    killer.start()
    with pytest.raises(KeyboardInterrupt):
        passing.state_dict()
    killer.join()
    gate.opened.set()
    assert list(passing) == list(range(3, 20))


def test_ctrl_c_in_a_terminal_leaves_the_processes_to_the_parent(tmp_path: Path) -> None:
    text = """
import os, signal, threading
from loaderx.stream import Stream
from tests.stream.workers_kit import do
if __name__ == "__main__":
    passing = iter(Stream.from_shards([[1, "time.sleep(0.5)", 3, 4]]).map(do, num_workers=2, worker_type="process"))
    print(next(passing))
    os.setpgrp()
    threading.Timer(0.2, os.killpg, (os.getpgrp(), signal.SIGINT)).start()
    try:
        next(passing)
    except KeyboardInterrupt:
        print("interrupted")
    print(list(passing))
"""
    assert run_program(tmp_path, text) == ("1\ninterrupted\n[None, 3, 4]\n", "")


EXIT = """
import os, sys, time, multiprocessing
from loaderx.stream import Stream
from tests.stream.workers_kit import *
from tests.stream.workers_kit import ten, pid_of, slowly
if __name__ == "__main__":
    stream = Stream.from_shards([range(10**6)]).map(FUNCTION, num_workers=2, worker_type=TYPE).prefetch(3)
    passing = iter(stream)
    print([next(passing) for _ in range(3)], flush=True)
    END
"""


@linux_only
@pytest.mark.parametrize("worker_type", TYPES)
@pytest.mark.parametrize(
    ("end", "code", "said"),
    [
        ("pass", 0, ""),
        ("sys.exit(3)", 3, ""),
        ("raise ValueError('mine')", 1, "ValueError: mine"),
        ("os.kill(os.getpid(), 2); time.sleep(5)", -2, "KeyboardInterrupt"),
    ],
)
def test_the_interpreter_ends_with_open_iterators(
    tmp_path: Path, worker_type: str, end: str, code: int, said: str
) -> None:
    text = EXIT.replace("FUNCTION", "pid_of").replace("TYPE", repr(worker_type)).replace("END", end)
    began = time.monotonic()
    out, error = run_program(tmp_path, text, code)
    assert time.monotonic() - began < 30
    assert said in error and error.count("Traceback") == (1 if said else 0)
    pids = set(json.loads(out.splitlines()[0]))
    until(lambda: not any(map(is_alive, pids)), 3)


def test_the_interpreter_ends_while_functions_are_slow(tmp_path: Path) -> None:
    text = """
import threading, time
from loaderx.stream import Stream
from tests.stream.workers_kit import slowly
passing = iter(Stream.from_shards([range(100)]).map(slowly, num_workers=2).prefetch(3))
threading.Thread(target=lambda: next(passing), daemon=True).start()
time.sleep(0.3)
print("done")
"""
    began = time.monotonic()
    out, error = run_program(tmp_path, text)
    assert time.monotonic() - began < 20
    assert out == "done\n" and "Fatal" not in error


@linux_only
def test_a_parent_that_is_killed_leaves_no_workers(tmp_path: Path) -> None:
    text = (
        EXIT.replace("FUNCTION", "pid_of")
        .replace("TYPE", "'process'")
        .replace("END", "os.kill(os.getpid(), 9)")
    )
    out, _ = run_program(tmp_path, text, -9)
    pids = set(json.loads(out.splitlines()[0]))
    until(lambda: not any(map(is_alive, pids)), 5)


# ---- Forks ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["threads", "processes", "prefetch", "both"])
def test_a_forked_child_is_told_and_can_begin_anew(name: str) -> None:
    make = ENDED[name]
    expected = list(make())
    stream = make()
    passing = iter(stream)
    begun = [next(passing) for _ in range(3)]
    state = through_json(passing.state_dict())

    def use() -> None:
        with pytest.raises(LoaderError, match="fork"):
            play(passing)
        own = make()
        own.load_state_dict(state)
        assert begun + list(own) == expected
        passing.load_state_dict(state)
        assert begun + list(passing) == expected
        passing.close()
        del own
        gc.collect()

    assert in_child(use) == 0
    assert begun + list(passing) == expected


def test_a_child_that_is_forked_before_the_first_item_begins_itself() -> None:
    passing = iter(mapped(numbers()).prefetch(2))
    assert in_child(lambda: list(passing) == [10 * i for i in range(20)] or 1 / 0) == 0
    assert list(passing) == [10 * i for i in range(20)]


def test_a_forked_child_that_ends_harms_nobody() -> None:
    passing = iter(mapped(numbers(), worker_type="process"))
    assert next(passing) == 0

    def end() -> None:
        passing.close()
        for child in multiprocessing.active_children():
            child.terminate()  # as multiprocessing does when a process ends

    assert in_child(end) == 0
    assert list(passing) == [10 * i for i in range(1, 20)]
