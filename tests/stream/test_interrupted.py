"""Ctrl-C at any line of a stream, in the midst of an item, of a state, of what mends it: nothing is lost."""

from __future__ import annotations

import functools
import gc
import gzip
import io
import json
import tarfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import loaderx.stream
from loaderx.errors import ClosedError, StateMismatchError, StreamError
from loaderx.loader.ending import _end_all
from loaderx.stream import Stream
from tests.interrupting import Lines, interrupt, lines_of
from tests.resume import first_difference
from tests.stream.pipelines import ITEMS, fail_at_11, fail_batch_of_11, numbers, pairs, rows
from tests.stream.test_resume import SOURCES, STEPS, chain, few

# Ctrl-C comes too where Python drops it, when an object goes; and between a file that is opened and who gets it.
pytestmark = pytest.mark.filterwarnings(
    "ignore::pytest.PytestUnraisableExceptionWarning", "ignore::ResourceWarning"
)

Make = Callable[[], Stream]

LINES = Lines(
    Path(loaderx.stream.__file__).parent,
    # And at `try`, which is no instruction, and the first lines of `finally`: Python looks for no signals there either.
    ("with self._change:", "try:", "self._is_waited_for = False", "self._is_paused = False"),
)
at_line, interrupt_at = LINES.at, LINES.interrupt
WITH_THREADS = {"map workers", "map with_rng workers", "prefetch"}


@pytest.fixture(autouse=True)
def _no_worker_stays() -> Iterator[None]:
    before = set(threading.enumerate())
    yield
    gc.collect()
    _end_all()  # what was cut short when an object went
    for thread in set(threading.enumerate()) - before:
        thread.join(timeout=10)
    assert set(threading.enumerate()) <= before


def run_through(make: Make) -> tuple[list[Any], list[str]]:
    """Return all items, and the states before each, behind the last, and when it is known that it is the last."""
    with iter(make()) as passing:
        states, items = [json.dumps(passing.state_dict())], []
        for item in passing:
            items.append(item)
            states.append(json.dumps(passing.state_dict()))
        return items, [*states, json.dumps(passing.state_dict())]


def take(passing: Iterator[Any], n: int, given: list[Any]) -> None:
    """Take some items, as far as there are any."""
    for _ in range(n):
        try:
            given.append(next(passing))
        except StopIteration:
            return


def take_all(passing: Iterator[Any], n: int, given: list[Any], errors: list[StreamError]) -> None:
    """Take some items, and what a function has raised in place of others."""
    for _ in range(n):
        try:
            take(passing, 1, given)
        except StreamError as error:
            errors.append(error.with_traceback(None))


def check_interrupted(
    make: Make, *, known: int = 0, before: int = 1, n: int = 2, has_threads: bool = False
) -> int:
    """Interrupt some items at every line: what comes then, and the state, are those of the run that was left alone.

    Parameters
    ----------
    make : callable
    known : int
        Before so many items the state is asked for.
    before : int
        Behind that, so many items come before those that are interrupted.
    n : int
        How many these are.
    has_threads : bool
        How far these are ahead is in a state, and is not compared.

    Returns
    -------
    int
        How many lines there were.
    """
    whole, states = run_through(make)

    def attempt(number: int) -> bool:
        came = False
        for asks_state in (True, False):
            given: list[Any] = []
            with iter(make()) as passing:
                take(passing, known, given)
                if known:
                    passing.state_dict()
                take(passing, before, given)
                came = interrupt_at(number, functools.partial(take, passing, n, given))
                where = f"line {number}, behind {len(given)} items"
                if asks_state:
                    state = json.dumps(passing.state_dict())
                    place = len(given) if state != states[-1] else -1
                    assert has_threads or state == states[place], where
                    with iter(make()) as resumed:
                        resumed.load_state_dict(json.loads(state))
                        assert first_difference(whole, given + list(resumed)) is None, where
                given += passing
                assert first_difference(whole, given) is None, where
        return came

    return lines_of(attempt)


@pytest.mark.parametrize("step", STEPS)
def test_every_step(step: str) -> None:
    make = functools.partial(chain, few, [STEPS[step]], 1)
    for known, before in ((0, 0), (0, 1), (2, 1)):
        assert check_interrupted(make, known=known, before=before, has_threads=step in WITH_THREADS) > 5


@pytest.mark.parametrize(
    "names",
    [
        ["filter", "shuffle", "batch"],
        ["interleave drawn", "shuffle", "map with_rng", "take"],
        ["flat_map", "zip", "repeat"],
        ["map batched", "shuffle", "rebatch"],
        ["map workers", "shuffle", "batch"],
        ["shuffle", "prefetch", "filter with_index"],
        ["map on_error", "map with_rng workers", "prefetch", "batch"],
    ],
)
def test_chains(names: list[str]) -> None:
    make = functools.partial(chain, few, [STEPS[name] for name in names])
    check_interrupted(make, known=1, before=1, has_threads=not WITH_THREADS.isdisjoint(names))


@pytest.mark.parametrize("source", SOURCES)
def test_every_source(source: str) -> None:
    for make in (SOURCES[source], lambda: SOURCES[source]().shuffle(3)):
        check_interrupted(make, n=4)


def write_lines(folder: Path, write: Callable[[Path, bytes], object], suffix: str) -> str:
    for part in range(3):
        write(folder / f"{part}{suffix}", b"".join(b'{"a": %d}\n' % (10 * part + i) for i in range(2)))
    return str(folder / f"*{suffix}")


def as_archive(path: Path, lines: bytes) -> None:
    with tarfile.open(path, "w") as archive:
        for i, line in enumerate(lines.splitlines()):
            info = tarfile.TarInfo(f"{i}.json")
            info.size = len(line)
            archive.addfile(info, io.BytesIO(line))


FILES: dict[str, Callable[[Path], Make]] = {
    "jsonl": lambda folder: functools.partial(
        Stream.from_jsonl, write_lines(folder, Path.write_bytes, ".jsonl")
    ),
    "text": lambda folder: functools.partial(
        Stream.from_text,
        write_lines(folder, lambda path, lines: path.write_bytes(gzip.compress(lines)), ".txt.gz"),
    ),
    "webdataset": lambda folder: functools.partial(
        Stream.from_webdataset, write_lines(folder, as_archive, ".tar"), decode=True
    ),
}


@pytest.mark.parametrize("kind", FILES)
def test_files(kind: str, tmp_path: Path) -> None:
    make = FILES[kind](tmp_path)
    check_interrupted(make, before=0, n=4)
    check_interrupted(lambda: make().shuffle(2, max_input_shards=2), known=1)


@pytest.mark.needs_pyarrow
@pytest.mark.parametrize("kind", ["parquet", "arrow"])
def test_arrow_files(kind: str, tmp_path: Path) -> None:
    import pyarrow
    import pyarrow.parquet

    table = pyarrow.table({"a": list(range(6))})
    path = tmp_path / "a.parquet"
    pyarrow.parquet.write_table(table, path, row_group_size=2)

    def make() -> Stream:
        return Stream.from_parquet(path) if kind == "parquet" else Stream.from_arrow(table)

    check_interrupted(make, before=0, n=4)


@pytest.mark.parametrize("workers", [0, 2])
def test_items_that_raise(workers: int) -> None:
    """What a function raised before is passed over in silence when the items before are gone through again."""

    def make() -> Stream:
        return Stream.from_shards([[11, 1], [2, 11, 3, 4]]).map(fail_at_11, num_workers=workers).batch(2)

    def attempt(number: int) -> bool:
        with iter(make()) as passing:
            given: list[Any] = []
            errors: list[StreamError] = []
            came = interrupt_at(number, lambda: take_all(passing, 4, given, errors))
            take_all(passing, 9, given, errors)
            assert given == [[1, 2], [3, 4]], number
            # One may have been lost to what interrupted it.
            assert len(errors) in (1, 2) if came else len(errors) == 2, number
        return came

    assert lines_of(attempt) > 20


@pytest.mark.parametrize("name", ["shuffle", "map workers", "prefetch"])
def test_what_mends_it_is_interrupted_too(name: str) -> None:
    make = functools.partial(chain, few, [STEPS[name]])
    whole, _ = run_through(make)

    def attempt(number: int) -> bool:
        with iter(make()) as passing:
            given = [next(passing), next(passing)]
            with at_line(8, interrupt), pytest.raises(KeyboardInterrupt):
                next(passing)
            came = interrupt_at(number, lambda: take(passing, 1, given))
            given += passing
            assert first_difference(whole, given) is None, number
        return came

    assert lines_of(attempt) > 20


@pytest.mark.parametrize("name", ["shuffle", "map workers", "prefetch", "interleave"])
def test_a_state_that_is_asked_for_is_interrupted(name: str) -> None:
    make = functools.partial(chain, few, [STEPS[name]])
    whole, states = run_through(make)

    def attempt(number: int) -> bool:
        with iter(make()) as passing:
            given = [next(passing), next(passing)]
            came = interrupt_at(number, lambda: passing.state_dict())
            if name in ("shuffle", "interleave"):
                assert json.dumps(passing.state_dict()) == states[2]
            given += passing
            assert first_difference(whole, given) is None, number
        return came

    assert lines_of(attempt) > 5


@pytest.mark.parametrize("name", ["shuffle", "map workers", "prefetch", "interleave"])
def test_a_state_that_is_loaded_is_interrupted(name: str) -> None:
    """The iterator is where it was, or at the state."""
    make = functools.partial(chain, few, [STEPS[name]])
    whole, states = run_through(make)

    def attempt(number: int) -> bool:
        with iter(make()) as passing:
            next(passing)
            came = interrupt_at(number, lambda: passing.load_state_dict(json.loads(states[3])))
            rest = list(passing)
            places = (1, 3) if came else (3,)
            assert any(first_difference(whole[place:], rest) is None for place in places), number
        return came

    assert lines_of(attempt) > 20


def test_a_function_is_interrupted() -> None:
    """As by Ctrl-C in it: the item comes again, and those before it are made again, and not given."""
    called: list[int] = []

    def double(x: int) -> int:
        called.append(x)
        if called.count(12) == 1 and x == 12:
            raise KeyboardInterrupt
        return 2 * x

    passing = iter(numbers().map(double))
    given = [next(passing) for _ in range(3)]
    passing.state_dict()
    given += [next(passing) for _ in range(4)]
    with pytest.raises(KeyboardInterrupt):
        next(passing)
    assert called == [*ITEMS[:7], 12]
    given += passing
    assert given == [2 * x for x in ITEMS]
    assert called == [*ITEMS[:7], 12, *ITEMS[3:]]


def test_what_a_signals_handler_raises_is_no_end() -> None:
    class Alarm(BaseException):
        pass

    def ring() -> None:
        raise Alarm

    passing = iter(rows().shuffle(3).batch(2))
    whole = list(rows().shuffle(3).batch(2))
    given = [next(passing)]
    with at_line(12, ring), pytest.raises(Alarm):
        next(passing)
    assert given + list(passing) == whole


def test_it_is_closed_in_the_midst_of_an_item() -> None:
    """As a handler may do that ends the program: then it stays closed."""

    def close() -> None:
        passing.close()
        raise SystemExit

    passing = iter(rows().shuffle(3))
    next(passing)
    with at_line(5, close), pytest.raises(SystemExit):
        next(passing)
    with pytest.raises(ClosedError):
        next(passing)
    with pytest.raises(ClosedError):
        passing.state_dict()


def test_a_source_that_does_not_give_the_same_again() -> None:
    n = 9

    def fewer() -> Iterator[int]:
        yield from range(n)

    passing = iter(Stream.from_generator(fewer))
    assert [next(passing) for _ in range(4)] == [0, 1, 2, 3]
    n = 2
    with at_line(6, interrupt), pytest.raises(KeyboardInterrupt):
        next(passing)
    for _ in range(2):
        with pytest.raises(StateMismatchError, match="has not given again what it had given"):
            next(passing)
    n = 9
    assert list(passing) == [4, 5, 6, 7, 8]


def test_ctrl_c_that_waits_for_workers_costs_nothing() -> None:
    """Where nothing is half done, nothing is done again: also where two steps have workers."""
    import os
    import signal

    called: list[int] = []
    opened = threading.Event()

    def wait(x: int) -> int:
        called.append(x)
        assert x < 3 or opened.wait(30)
        return x

    for stream in (
        Stream.from_shards([range(9)]).map(wait, num_workers=1).map(abs, num_workers=1),
        Stream.from_shards([range(9)]).map(wait).prefetch(1).map(abs, num_workers=1).batch(1),
        Stream.from_shards([range(9)]).map(wait, num_workers=1).shuffle(1).prefetch(1).batch(1),
    ):
        called.clear()
        opened.clear()
        given: list[Any] = []
        with iter(stream) as passing:
            killer = threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT))
            killer.start()
            with pytest.raises(KeyboardInterrupt):
                while True:
                    given.append(next(passing))
            killer.join()
            assert len(given) < 4
            opened.set()
            given += passing
        assert [each[0] if isinstance(each, list) else each for each in given] == list(range(9))
        assert sorted(called) == list(range(9))


@pytest.mark.parametrize("step", STEPS)
def test_a_state_does_not_change_while_the_pass_goes_on(step: str) -> None:
    """It is what a pass is mended by, and what a program may write when it likes."""
    for names in ([step], [step, "shuffle"], ["batch", step], ["interleave", step]):
        with iter(chain(rows, [STEPS[name] for name in names])) as passing:
            states = []
            for _ in range(4):
                next(passing, None)
                state = passing.state_dict()
                states.append((state, json.dumps(state)))
            list(passing)
            assert [json.dumps(state) for state, _ in states] == [saved for _, saved in states]


@pytest.mark.parametrize(
    "stream", [numbers().map(fail_batch_of_11, batched=True, batch_size=2), numbers().flat_map(pairs)]
)
def test_functions_of_several_items(stream: Stream) -> None:
    whole: list[Any] = []
    take_all(iter(stream), 30, whole, [])

    def attempt(number: int) -> bool:
        passing = iter(stream)
        given: list[Any] = []
        came = interrupt_at(number, lambda: take_all(passing, 6, given, []))
        take_all(passing, 30, given, [])
        assert given == whole, number
        return came

    assert lines_of(attempt) > 20
