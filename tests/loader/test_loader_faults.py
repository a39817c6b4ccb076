"""What goes wrong in a loader: exceptions, Ctrl-C, closing, forks, the end of the interpreter."""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import subprocess
import sys
import threading
import time
import traceback
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from loaderx import ClosedError, CorruptRecordError, DataLoader, Dataset, LoaderError, write_dataset
from tests.forking import in_child
from tests.loader.kit import ArrayStream, CountingStream, Gate, fail_on_sevens
from tests.resume import same

N = 1000
WORKERS = (0, 1, 4, 16)


def numbers() -> dict[str, Any]:
    return {"x": ArrayStream(np.arange(N))}


@pytest.mark.parametrize("num_workers", WORKERS)
def test_an_exception_comes_at_its_own_step_and_the_loader_goes_on(num_workers: int) -> None:
    with DataLoader(numbers(), num_workers, 1, 4, "sequential", transform=fail_on_sevens) as loader:
        for step in range(30):
            if step % 7:
                assert next(loader)["x"].tolist() == [step]
                continue
            with pytest.raises(KeyError, match=f"seven at {step}") as caught:
                next(loader)
            assert f"at step {step} of the loader" in caught.value.__notes__
            assert "fail_on_sevens" in "".join(traceback.format_exception(caught.value))
            assert loader.step == step + 1
        loader.seek(28)
        with pytest.raises(KeyError, match="seven at 28"):
            next(loader)
        assert loader.stats().steps == 31


@pytest.mark.parametrize("num_workers", [0, 2])
def test_a_damaged_record_is_an_error_of_its_step_with_its_stream(tmp_path: Path, num_workers: int) -> None:
    write_dataset(tmp_path / "x.zr", np.arange(64, dtype=np.int64).repeat(100).reshape(64, 100))
    chunk = tmp_path / "x.zr" / "0.zr"
    stored = bytearray(chunk.read_bytes())
    size = len(stored) // 64
    stored[40 * size : 40 * size + 4] = b"\0\0\0\0"
    chunk.write_bytes(stored)
    good = 0
    with (
        Dataset(tmp_path / "x.zr", verify=True) as ds,
        DataLoader({"a": numbers_of(64), "b": ds}, num_workers, 4, mode="sequential") as loader,
    ):
        for step in range(16):
            try:
                next(loader)
                good += 1
            except CorruptRecordError as error:
                assert error.__notes__ == ["in stream 'b'", f"at step {step} of the loader"]
    assert good == 15


def numbers_of(n: int) -> ArrayStream:
    return ArrayStream(np.arange(n))


@pytest.mark.parametrize("num_workers", [0, 2])
@pytest.mark.parametrize("kind", [StopIteration, StopAsyncIteration])
def test_a_stop_iteration_does_not_end_the_loop_without_a_word(
    num_workers: int, kind: type[Exception]
) -> None:
    def stop(batch: Any) -> Any:
        raise kind

    with (
        DataLoader(numbers(), num_workers, 4, transform=stop) as loader,
        pytest.raises(RuntimeError, match=kind.__name__),
    ):
        for _ in loader:
            pass


def test_a_system_exit_in_a_transform_reaches_the_consumer() -> None:
    def leave(batch: Any) -> Any:
        sys.exit(7)

    with DataLoader(numbers(), 2, 4, transform=leave) as loader:
        for _ in range(5):
            with pytest.raises(SystemExit) as caught:
                next(loader)
            assert caught.value.code == 7
        assert loader.step == 5


def test_close_wakes_who_waits_and_comes_back_within_a_second() -> None:
    gate = Gate()
    loader = DataLoader(numbers(), 2, 4, transform=gate)
    caught: list[BaseException] = []

    def wait() -> None:
        try:
            next(loader)
        except BaseException as error:
            caught.append(error)

    waiter = threading.Thread(target=wait)
    waiter.start()
    assert gate.entered.acquire(timeout=10)
    began = time.monotonic()
    loader.close()
    waiter.join(timeout=5)
    assert time.monotonic() - began < 1.5
    assert [type(error) for error in caught] == [ClosedError]
    gate.opened.set()


def test_closing_under_load_always_ends_everybody() -> None:
    before = set(threading.enumerate())
    for turn in range(60):
        loader = DataLoader({"x": CountingStream(N, pause_s=0.0003 * (turn % 3))}, 1 + turn % 5, 8, turn % 4)
        ends: list[str] = []

        def consume(loader: DataLoader = loader, ends: list[str] = ends) -> None:
            try:
                while True:
                    next(loader)
            except ClosedError:
                ends.append("closed")

        consumers = [threading.Thread(target=consume) for _ in range(1 + turn % 3)]
        for consumer in consumers:
            consumer.start()
        time.sleep(0.0005 * (turn % 7))
        loader.close()
        loader.close()
        for consumer in consumers:
            consumer.join(timeout=10)
            assert not consumer.is_alive(), turn
        assert ends == ["closed"] * len(consumers)
    assert set(threading.enumerate()) <= before


@pytest.mark.parametrize("num_workers", [0, 2])
def test_a_closed_loader_says_so(num_workers: int) -> None:
    loader = DataLoader(numbers(), num_workers, 4)
    next(loader)
    state = loader.state_dict()
    loader.close()
    calls: list[Callable[[], object]] = [
        lambda: next(loader),
        lambda: loader.seek(0),
        lambda: loader.load_state_dict(state),
    ]
    for call in calls:
        with pytest.raises(ClosedError, match="loader is closed"):
            call()
    assert loader.state_dict() == state
    assert loader.stats().steps == 1
    loader.close()


def test_seek_while_workers_are_busy_drops_what_they_make() -> None:
    with DataLoader({"x": CountingStream(N, pause_s=0.001)}, 4, 2, 3, "sequential") as loader:
        for turn in range(50):
            step = (turn * 37) % 400
            loader.seek(step)
            for later in range(step, step + turn % 4):
                assert next(loader)["x"].tolist() == [2 * later, 2 * later + 1]


@pytest.mark.parametrize("num_workers", [0, 2])
def test_ctrl_c_in_next_loses_no_batch(num_workers: int) -> None:
    """The signal comes while `next` waits, and again and again: the batch that was not returned comes next."""
    if threading.current_thread() is not threading.main_thread():
        pytest.fail("signals reach the main thread only")
    rounds = 40
    with DataLoader({"x": CountingStream(N, pause_s=0.002)}, num_workers, 1, 1, "sequential") as loader:
        got: list[int] = []
        n_stopped = 0
        old = signal.signal(signal.SIGINT, signal.default_int_handler)
        timer = signal.getitimer(signal.ITIMER_REAL)
        assert timer == (0.0, 0.0)
        old_alarm = signal.signal(signal.SIGALRM, lambda *_: os.kill(os.getpid(), signal.SIGINT))
        try:
            while len(got) < rounds:
                signal.setitimer(signal.ITIMER_REAL, 0.0011 if n_stopped < 30 else 0)
                before = loader.step
                try:
                    batch = next(loader)
                except KeyboardInterrupt:
                    n_stopped += 1
                    # It was not returned, so it is the next one; or it came between return and assignment.
                    assert loader.step in (before, before + 1)
                    loader.seek(before)
                    continue
                finally:
                    signal.setitimer(signal.ITIMER_REAL, 0)
                got.append(int(batch["x"][0]))
        finally:
            signal.signal(signal.SIGINT, old)
            signal.signal(signal.SIGALRM, old_alarm)
    assert got == list(range(rounds))
    assert n_stopped > 0


def test_ctrl_c_while_waiting_leaves_the_step_as_it_was() -> None:
    gate = Gate()
    with DataLoader(numbers(), 1, 1, 2, "sequential", transform=gate) as loader:
        for _ in range(3):
            killer = threading.Timer(0.03, os.kill, (os.getpid(), signal.SIGINT))
            killer.start()
            with pytest.raises(KeyboardInterrupt):
                next(loader)
            killer.join()
            assert loader.step == 0
        gate.opened.set()
        assert [next(loader)["x"].tolist() for _ in range(4)] == [[0], [1], [2], [3]]


@pytest.mark.parametrize("num_workers", [0, 3])
@pytest.mark.parametrize("began", [False, True])
def test_a_forked_child_is_told_why_it_cannot(num_workers: int, began: bool) -> None:
    with DataLoader(numbers(), num_workers, 4) as loader:
        if began:
            next(loader)

        def use() -> None:
            with pytest.raises(LoaderError, match="fork"):
                next(loader)
            with pytest.raises(LoaderError, match="fork"):
                loader.seek(0)
            loader.close()
            with DataLoader(numbers(), num_workers, 4) as own:
                next(own)

        assert in_child(use) == 0
        next(loader)


EXIT = """
import sys, threading, time
import numpy as np
from loaderx import DataLoader

class Numbers:
    def __len__(self): return 1000
    def __getitems__(self, idxs): return np.asarray(idxs)

loader = DataLoader({"x": Numbers()}, 4, 64, transform=TRANSFORM)
for step, batch in enumerate(loader):
    if step == 5:
        END
"""


@pytest.mark.parametrize(
    ("end", "code", "said"),
    [
        ("break", 0, ""),
        ("sys.exit(3)", 3, ""),
        ("raise ValueError('mine')", 1, "ValueError: mine"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGINT); time.sleep(5)", -2, "KeyboardInterrupt"),
        (
            "threading.Thread(target=lambda: [next(loader) for _ in range(10**9)]).start(); time.sleep(.05); "
            "loader.close(); break",
            0,
            "ClosedError",
        ),
    ],
)
@pytest.mark.parametrize("transform", ["lambda batch: batch", "lambda batch: (time.sleep(.001), batch)[1]"])
def test_leaving_the_interpreter_mid_iteration_is_clean(
    end: str, code: int, said: str, transform: str
) -> None:
    script = EXIT.replace("TRANSFORM", transform).replace("END", end)
    began = time.monotonic()
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert done.returncode == code, done.stderr
    assert time.monotonic() - began < 20
    if said:
        assert said in done.stderr
        assert "Fatal" not in done.stderr
    else:
        assert done.stderr == ""


def test_a_transform_that_never_ends_does_not_keep_the_interpreter() -> None:
    script = EXIT.replace(
        "TRANSFORM", "lambda batch: batch if batch['x'][0] == 0 else time.sleep(3600), mode=0"
    )
    script = script.replace("if step == 5", "if True").replace("END", "break")
    began = time.monotonic()
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    assert time.monotonic() - began < 20


@pytest.mark.parametrize("num_workers", [0, 1])
def test_an_error_in_on_step_loses_no_batch(num_workers: int) -> None:
    failed = []

    def complain(stats: Any) -> None:
        if stats.step not in failed:
            failed.append(stats.step)
            raise ArithmeticError("mine")

    with DataLoader(numbers(), num_workers, 1, mode="sequential", on_step=complain) as loader:
        for step in range(5):
            with pytest.raises(ArithmeticError, match="mine"):
                next(loader)
            assert loader.step == step
            assert next(loader)["x"].tolist() == [step]
        assert loader.stats().steps == 5


@pytest.mark.parametrize("num_workers", [0, 2])
def test_what_an_exception_holds_goes_with_it(num_workers: int) -> None:
    """No cycle keeps the batch of a step that failed until the garbage collector runs."""
    made: list[weakref.ref[Any]] = []

    def fail(batch: Any) -> Any:
        made.append(weakref.ref(batch["x"]))
        raise ValueError("mine")

    gc.collect()
    gc.disable()
    try:
        with DataLoader({"x": CountingStream(N)}, num_workers, 4, 2, transform=fail) as loader:
            for _ in range(30):
                with contextlib.suppress(ValueError):
                    next(loader)
                assert sum(batch() is not None for batch in list(made)) <= num_workers + 2 + 1
    finally:
        gc.enable()


@dataclass(frozen=True)
class FrozenError(Exception):
    """An exception that takes no notes."""

    what: str


@pytest.mark.parametrize("num_workers", [0, 2])
def test_an_exception_that_takes_no_notes_arrives(num_workers: int) -> None:
    def fail(batch: Any) -> Any:
        raise FrozenError("mine")

    with DataLoader(numbers(), num_workers, 4, transform=fail) as loader, pytest.raises(FrozenError):
        next(loader)


def test_an_exception_that_is_raised_again_has_one_note() -> None:
    again = ValueError("mine")

    def fail(batch: Any) -> Any:
        raise again

    with DataLoader(numbers(), 2, 4, transform=fail) as loader:
        for step in range(20):
            with pytest.raises(ValueError, match="mine"):
                next(loader)
            assert again.__notes__[-1] == f"at step {step} of the loader"
            assert len(again.__notes__) <= 2


def test_loaders_that_are_left_open_end_together() -> None:
    script = EXIT.replace(
        "TRANSFORM", "lambda batch: batch if batch['x'][0] == 0 else time.sleep(3600), mode=0"
    )
    script = script.replace(
        "for step, batch in enumerate(loader):\n    if step == 5:\n        END", END_OF_TWENTY
    )
    began = time.monotonic()
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    assert time.monotonic() - began < 12  # 0.8 s for each would be 16


END_OF_TWENTY = """
def slow(batch):
    return batch if batch["x"][0] == 0 else time.sleep(3600)

others = [DataLoader({"x": Numbers()}, 1, 64, transform=slow, mode=0) for _ in range(20)]
for other in others:
    next(other)
"""


def test_next_behind_the_end_of_the_interpreter_is_an_error() -> None:
    script = EXIT.replace("TRANSFORM", "lambda batch: batch").replace("END", "break")
    script = "import atexit\natexit.register(lambda: late())\n" + script
    script += """
def late():
    for _ in range(3):
        try:
            next(loader)
        except Exception as error:
            print(type(error).__name__)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr, done.stdout) == (0, "", "ClosedError\n" * 3)


def test_two_loaders_over_one_dataset_do_not_disturb_each_other(tmp_path: Path) -> None:
    write_dataset(tmp_path / "x.zr", np.arange(N))
    with (
        Dataset(tmp_path / "x.zr") as ds,
        DataLoader({"x": ds}, 2, 16, seed=1) as one,
        DataLoader({"x": ds}, 2, 16, seed=2) as two,
    ):
        for step in range(50):
            assert same(next(one)["x"], one.sampler.indices(step).astype(np.int64))
            assert same(next(two)["x"], two.sampler.indices(step).astype(np.int64))
