"""Worker processes: the same batches, arrays without copies, errors that say what died, and nothing left behind."""

from __future__ import annotations

import gc
import multiprocessing
import os
import re
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from loaderx import DataLoader, Dataset, RaggedDataset, write_dataset, write_ragged
from loaderx._core.threads import available_cpus
from loaderx.errors import ClosedError, LoaderError, NotAStoreError, OptionError
from tests.loader import remote_kit
from tests.loader.kit import ArrayStream, fail_on_sevens, jittered
from tests.loader.remote_kit import Lines
from tests.resume import same

ROOT = Path(__file__).resolve().parents[2]
METHODS = ("spawn", "forkserver")
N = 10_000

linux_only = pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")


def lines_loader(
    lines: list[str], num_workers: int = 1, prefetch_size: int = 0, **options: Any
) -> DataLoader:
    """Return a loader whose step k is what line k says."""
    streams = {"line": Lines(lines), "step": ArrayStream(np.arange(N))}
    options = {"transform": remote_kit.run, "worker_type": "process", **options}
    return DataLoader(streams, num_workers, 1, prefetch_size, "sequential", **options)


def until(is_so: Callable[[], bool], seconds: float = 10.0) -> None:
    deadline = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < deadline, "it did not come to pass"
        time.sleep(0.005)


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except ProcessLookupError:
        return False
    except FileNotFoundError:
        return not Path("/proc/self/stat").exists()
    return state != "Z"


def workers_of(loader: DataLoader) -> list[int]:
    """Return the pids of the processes that a loader has now."""
    names = {process.name: process.pid for process in multiprocessing.active_children()}
    assert names.keys() <= {"loaderx-worker"}
    return [process.pid or 0 for process in multiprocessing.active_children()]


def blocks_mapped() -> int:
    """Return how many blocks this process maps or has open."""
    if sys.platform != "linux":
        return 0
    maps = Path("/proc/self/maps").read_text().count("memfd:loaderx")
    files = [entry for entry in Path("/proc/self/fd").iterdir() if entry.is_symlink()]
    return maps + sum("memfd:loaderx" in os.readlink(entry) for entry in files)


@pytest.fixture(autouse=True)
def _nothing_is_left() -> Iterator[None]:
    assert blocks_mapped() == 0
    before = set(threading.enumerate())
    yield
    gc.collect()
    until(lambda: not multiprocessing.active_children(), 5)
    assert set(threading.enumerate()) <= before
    assert blocks_mapped() == 0


# ---- The same batches -----------------------------------------------------------------------------------------------

RESULTS = [
    "np.arange(5)",
    "{'x': np.full((3, 4), step, np.float32), 'y': [np.int8(3), (np.zeros(2), 'text')], 'z': {'deep': np.ones(1)}}",
    "step",
    "None",
    "'text'",
    "np.float64(step)",
    "np.empty((0, 3), np.int16)",
    "np.arange(24).reshape(2, 3, 4)[:, ::2, ::-1]",
    "np.asfortranarray(np.arange(12.0).reshape(3, 4))",
    "np.array(['2020-01-01'], 'M8[D]')",
    "np.array(7)",
    "np.array([(1, 2.0)], 'i4,f8')",
    "[np.arange(i) for i in range(50)]",
    "'x' * 100_000",
    "np.frombuffer(bytes(100), np.uint8)",
    "np.zeros(3_000_000, np.uint8)",
]


@pytest.mark.parametrize("method", METHODS)
def test_whatever_a_transform_returns_arrives_as_it_is(method: str) -> None:
    n_steps = 2 * len(RESULTS)
    with lines_loader(RESULTS, 0) as here:
        expected = [next(here) for _ in range(n_steps)]
    with lines_loader(RESULTS, 2, 3, start_method=method) as loader:
        for step in range(n_steps):
            batch = next(loader)
            assert same(batch, expected[step]), RESULTS[step % len(RESULTS)]
            if isinstance(batch, np.ndarray) and batch.nbytes:
                assert batch.ctypes.data % 64 == 0
                assert batch.flags.writeable == expected[step].flags.writeable
        assert len(set(workers_of(loader))) == 2
        objects = ["np.array([1, 'x', None], object)"]
    with lines_loader([*objects, "os.getpid()", "sys.modules['__main__'].__name__"], 1) as loader:
        assert next(loader).tolist() == [1, "x", None]
        assert next(loader) != os.getpid()
        next(loader)


@pytest.mark.parametrize("method", METHODS)
def test_stores_are_opened_by_the_workers_and_order_state_and_seek_are_the_same(
    tmp_path: Path, method: str
) -> None:
    write_dataset(tmp_path / "x.zr", np.arange(300), codec="zstd")
    write_ragged(tmp_path / "r.zr", [np.arange(i % 7) for i in range(300)])
    streams = {"x": Dataset(tmp_path / "x.zr"), "r": RaggedDataset(tmp_path / "r.zr")}

    def make(num_workers: int) -> DataLoader:
        return DataLoader(
            streams, num_workers, 8, 3, "cyclic", 5, jittered, worker_type="process", start_method=method
        )

    with make(0) as here, make(2) as loader:
        for _ in range(20):
            assert same(next(loader), next(here))
        state = loader.state_dict()
        assert state == here.state_dict()
        tail = [next(loader) for _ in range(5)]
        loader.seek(3)
        here.seek(3)
        assert same(next(loader), next(here))
        loader.load_state_dict(state)
        assert same([next(loader) for _ in range(5)], tail)
        stats = loader.stats()
        assert stats.steps == 31 and stats.gather_s > 0 and stats.transform_s > 0.001
        with pytest.raises(ClosedError):
            loader.close()
            next(loader)
    for stream in streams.values():
        stream.close()


def test_random_numbers_of_a_step_are_the_same() -> None:
    def make(num_workers: int, **options: Any) -> DataLoader:
        return lines_loader(["0"], num_workers, transform=remote_kit.run_rng, transform_rng=True, **options)

    with make(0) as here, make(2) as loader:
        for _ in range(6):
            assert same(next(loader), next(here))


def test_at_most_as_many_gathers_as_cores_run_at_once_and_none_is_lost_with_a_worker() -> None:
    n = available_cpus() + 2
    lines = ["os._exit(1) if step in (3, 4, 5) else None"]
    spans = []
    with DataLoader(
        {"span": remote_kit.SpanStream(), "line": Lines(lines), "step": ArrayStream(np.arange(N))},
        n,
        1,
        4,
        "sequential",
        transform=_keep_span,
        worker_type="process",
        start_method="forkserver",
    ) as loader:
        for step in range(40):
            try:
                spans.append(next(loader))
            except LoaderError:
                assert step in range(3, 6)
    assert len(spans) == 37
    began, ended = np.array(spans).T
    at_once = [int(((began <= moment) & (moment < ended)).sum()) for moment in began]
    assert 1 <= max(at_once) <= available_cpus()


def _keep_span(batch: dict[str, Any]) -> Any:
    remote_kit.run(batch)
    return batch["span"]


def test_two_loaders_at_once_do_not_disturb_each_other() -> None:
    with (
        lines_loader(["np.full(100, step)"], 1, 2) as one,
        lines_loader(["np.full(100, -step)"], 1, 2) as two,
    ):
        for step in range(50):
            assert next(one)[0] == step and next(two)[-1] == -step


# ---- Memory ---------------------------------------------------------------------------------------------------------


def blocks_of(loader: DataLoader) -> Any:
    """Return the loader's shared memory."""
    from loaderx.loader.processes import _fetchers

    (fetchers,) = _fetchers()
    return fetchers.blocks


VIEWS: list[Callable[[dict[str, Any]], Any]] = [
    lambda batch: batch["a"],
    lambda batch: batch["b"][3:9, ::2],
    lambda batch: memoryview(batch["a"])[5:],
    lambda batch: batch["b"].reshape(-1).view(np.uint16)[7:],
    lambda batch: batch["a"].T[::-1][:1],
]


def test_memory_is_used_again_when_the_last_view_goes_and_not_before() -> None:
    rng = np.random.default_rng(0)
    held: dict[int, Any] = {}
    places = set()
    with lines_loader(
        ["{'a': np.full(70_000, step), 'b': np.full((50, 40), step, np.int16)}"], 2, 2
    ) as loader:
        for step in range(300):
            batch = next(loader)
            assert (batch["a"] == step).all() and (batch["b"] == step).all()
            batch["a"][0] = -1  # it is the user's own
            batch["a"][0] = step
            places.add(batch["a"].ctypes.data)
            if rng.random() < 0.3:
                held[step] = VIEWS[step % len(VIEWS)](batch)
            del batch
            if len(held) > 4:
                del held[next(iter(held))]
            for kept_step, kept in held.items():
                assert (np.asarray(kept) == kept_step).all()
        blocks = blocks_of(loader)
        assert blocks.n_kept <= 4 + 1 + 5
        assert len(places) < 30
    for kept_step, kept in held.items():
        assert (np.asarray(kept) == kept_step).all()


@pytest.mark.needs_torch
def test_a_tensor_keeps_its_memory() -> None:
    import torch

    with lines_loader(["np.full(10_000, step)"], 1, 2) as loader:
        tensors = [torch.from_numpy(next(loader)) for _ in range(5)]
        for _ in range(50):
            next(loader)
        for step, tensor in enumerate(tensors):
            assert bool((tensor == step).all())


def test_no_more_blocks_than_batches() -> None:
    with lines_loader(["np.full(10_000, step)"], 2, 3) as loader:
        for _ in range(100):
            next(loader)
        blocks = blocks_of(loader)
        assert blocks.n_kept <= 2 + 3 + 1
        held = [next(loader) for _ in range(30)]
        assert blocks.n_kept <= 2 + 3 + 8
        assert [int(batch[0]) for batch in held] == list(range(100, 130))
        del held
        for _ in range(200):
            next(loader)
        assert blocks.n_kept <= 2 + 3 + 1


@linux_only
def test_memory_stays_flat(rss_anon: Callable[[], int]) -> None:
    def shared() -> int:
        match = re.search(r"^RssShmem:\s+(\d+) kB$", Path("/proc/self/status").read_text(), re.MULTILINE)
        assert match is not None
        return int(match[1]) * 1024

    with lines_loader(["np.full((100 + step % 50, 1000), step % 256, np.uint8)"], 2, 2) as loader:
        for _ in range(300):
            next(loader)
        before = rss_anon(), shared()
        for _ in range(1000):
            next(loader)
        after = rss_anon(), shared()
    assert after[0] - before[0] < 1 << 20 and after[1] - before[1] < 1 << 20


# ---- Errors ---------------------------------------------------------------------------------------------------------


def test_an_exception_comes_as_itself_with_the_lines_of_the_worker() -> None:
    lines = ["fail_inside()", "fail(Awkward(1, 2))", "lambda: 0", "threading.Lock()", "fail(SystemExit(3))"]
    lines += ["fail(StopIteration())", "fail(MemoryError())", "step"]
    with lines_loader(lines, 2, 2) as loader:
        with pytest.raises(ValueError, match=r"^my own") as caught:
            next(loader)
        told = "".join(traceback.format_exception(caught.value))
        assert 'raise ValueError("my own") from error' in told and "key of the cause" in told
        assert re.search(r"in worker process \d+:", told)
        assert "at step 0 of the loader" in caught.value.__notes__
        with pytest.raises(LoaderError, match="Awkward: awkward 1 and 2") as awkward:
            next(loader)
        assert awkward.value.step == 1 and awkward.value.worker is not None
        assert "remote_kit.py" in "".join(traceback.format_exception(awkward.value))
        for step in (2, 3):
            with pytest.raises(
                LoaderError, match=r"the transform run returned, does not pickle.*worker_type='thread'"
            ) as e:
                next(loader)
            assert e.value.step == step
        with pytest.raises(SystemExit):
            next(loader)
        with pytest.raises(RuntimeError, match="StopIteration"):
            next(loader)
        with pytest.raises(MemoryError):
            next(loader)
        assert next(loader) == 7
        assert len(workers_of(loader)) == 2  # none of it ended a worker


def test_a_streams_error_is_named_and_steps_behind_it_come() -> None:
    streams = {"good": ArrayStream(np.arange(100)), "bad": remote_kit.FailingStream()}
    with DataLoader(streams, 1, 1, 0, worker_type="process") as loader:
        with pytest.raises(OSError, match="no disk") as caught:
            next(loader)
        assert caught.value.errno == 5
        assert caught.value.__notes__ == ["in stream 'bad'", "at step 0 of the loader"]
    numbers = {"x": ArrayStream(np.arange(N))}
    with DataLoader(
        numbers, 2, 1, 2, "sequential", transform=fail_on_sevens, worker_type="process"
    ) as loader:
        for step in range(15):
            if step % 7:
                assert next(loader)["x"].tolist() == [step]
            else:
                with pytest.raises(KeyError, match=f"seven at {step}"):
                    next(loader)


@pytest.mark.parametrize("method", METHODS)
def test_a_worker_that_dies_is_named_and_another_takes_its_place(tmp_path: Path, method: str) -> None:
    lines = [
        "os.getpid()",
        "os._exit(3)",
        "step",
        "os.kill(os.getpid(), 9)",
        "step",
        "sys.exit(4) or os._exit(4)",
    ]
    lines += ["os.kill(os.getpid(), 11)", "fork_and_die()", "step"]
    with lines_loader(lines, 1, 0, start_method=method) as loader:
        pid = next(loader)
        with pytest.raises(
            LoaderError, match=f"worker process {pid} ended with exit code 3, at step 1"
        ) as caught:
            next(loader)
        assert (caught.value.step, caught.value.worker, caught.value.exit_code) == (1, pid, 3)
        assert not is_alive(pid)
        assert next(loader) == 2
        with pytest.raises(LoaderError, match=r"killed by signal 9, SIGKILL: perhaps .* memory") as caught:
            next(loader)
        assert (caught.value.step, caught.value.exit_code) == (3, -9)
        assert next(loader) == 4
        with pytest.raises(SystemExit):
            next(loader)
        with pytest.raises(LoaderError, match="SIGSEGV: compiled code") as caught:
            next(loader)
        assert caught.value.exit_code == -11
        began = time.monotonic()
        with pytest.raises(LoaderError, match="SIGKILL"):
            next(loader)
        assert next(loader) == 8 and time.monotonic() - began < 4  # though a child of it lives on
        loader.seek(4)
        assert next(loader) == 4


@pytest.mark.parametrize("method", METHODS)
def test_workers_that_are_killed_from_outside(tmp_path: Path, method: str) -> None:
    entered = tmp_path / "entered"
    lines = ["os.getpid()", "step", f"hang({str(entered)!r})", "step"]
    with lines_loader(lines, 1, 0, start_method=method) as loader:
        idle = next(loader)
        until(lambda: loader.stats().queue_depth == 1)
        os.kill(idle, signal.SIGKILL)  # it has made step 1 already
        assert next(loader) == 1
        with pytest.raises(LoaderError, match="SIGKILL") as caught:
            next(loader)
        assert (caught.value.step, caught.value.worker) == (2, idle)
        loader.seek(2)
        killer = threading.Thread(target=lambda: (until(entered.exists), _kill_named(entered)))
        killer.start()
        with pytest.raises(LoaderError, match="SIGKILL") as caught:
            next(loader)
        killer.join()
        assert (caught.value.step, caught.value.worker) == (2, int(entered.read_text()))
        assert next(loader) == 3


def _kill_named(path: Path) -> None:
    until(lambda: bool(path.read_text()))
    os.kill(int(path.read_text()), signal.SIGKILL)


def test_what_does_not_pickle_is_named_before_a_process_starts() -> None:
    numbers = {"x": ArrayStream(np.arange(10))}
    with DataLoader(numbers, 1, 1, transform=lambda batch: batch, worker_type="process") as loader:
        with pytest.raises(
            OptionError, match=r"the transform .*<lambda> does not pickle.*worker_type='thread'"
        ) as caught:
            next(loader)
        assert caught.value.option == "transform"
        assert not multiprocessing.active_children()
    locked = ArrayStream(np.arange(10))
    locked.lock = threading.Lock()  # type: ignore[attr-defined]
    with DataLoader({**numbers, "y": locked}, 1, 1, worker_type="process") as loader:
        with pytest.raises(OptionError, match=r"stream 'y' does not pickle.*lock") as caught:
            next(loader)
        assert caught.value.option == "streams"


def test_streams_that_do_not_load_are_an_error_that_says_so(tmp_path: Path) -> None:
    with DataLoader({"x": remote_kit.UnloadableStream()}, 1, 1, 0, worker_type="process") as loader:
        with pytest.raises(LoaderError, match=r"could not load the streams .* not mounted here") as caught:
            next(loader)
        assert isinstance(caught.value.__cause__, RuntimeError)
        assert caught.value.step == 0
    with DataLoader({"x": remote_kit.EndingStream()}, 1, 1, 0, worker_type="process") as loader:
        with pytest.raises(LoaderError, match=r"exit code 7 while it started.*__main__") as caught:
            next(loader)
        assert caught.value.exit_code == 7
    write_dataset(tmp_path / "x.zr", np.arange(10))
    with Dataset(tmp_path / "x.zr") as ds, DataLoader({"x": ds}, 1, 1, 0, worker_type="process") as loader:
        (tmp_path / "x.zr").rename(tmp_path / "y.zr")
        with pytest.raises(LoaderError, match=r"could not load .* not a Zrecord store") as caught:
            next(loader)
        assert isinstance(caught.value.__cause__, NotAStoreError)


# ---- Ends -----------------------------------------------------------------------------------------------------------


def test_closing_in_the_middle_of_a_transform(tmp_path: Path) -> None:
    entered = tmp_path / "entered"
    loader = lines_loader([f"hang({str(entered)!r})"], 1, 0)
    errors: list[BaseException] = []

    def wait() -> None:
        try:
            next(loader)
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=wait)
    thread.start()
    until(lambda: entered.exists() and bool(entered.read_text()))
    began = time.monotonic()
    loader.close()
    assert time.monotonic() - began < 1.0
    thread.join(5)
    assert isinstance(errors[0], ClosedError)
    until(lambda: not is_alive(int(entered.read_text())), 1)


def test_a_worker_that_does_not_listen_is_killed(tmp_path: Path) -> None:
    entered = tmp_path / "entered"
    line = f"[signal.signal(signal.SIGTERM, signal.SIG_IGN), hang({str(entered)!r})]"
    loader = lines_loader([line], 1, 0)
    threading.Thread(target=_drain_until_closed, args=(loader,)).start()
    until(lambda: entered.exists() and bool(entered.read_text()))
    began = time.monotonic()
    loader.close()
    assert time.monotonic() - began < 1.5
    until(lambda: not is_alive(int(entered.read_text())), 1)


def test_a_loader_that_nothing_refers_to_ends_its_processes() -> None:
    loader = lines_loader(["os.getpid()"], 1, 1)
    pid = next(loader)
    del loader
    gc.collect()
    until(lambda: not is_alive(pid), 2)


def test_closing_while_workers_start() -> None:
    for pause in (0.0, 0.05, 0.15):
        loader = lines_loader(["step"], 2, 2, start_method="forkserver")
        thread = threading.Thread(target=_drain_until_closed, args=(loader,))
        thread.start()
        time.sleep(pause)
        began = time.monotonic()
        loader.close()
        assert time.monotonic() - began < 1.5
        thread.join(5)
        assert not thread.is_alive()


def _drain_until_closed(loader: DataLoader) -> None:
    with pytest.raises(ClosedError):
        while True:
            next(loader)


def test_a_forked_child_harms_nobody() -> None:
    with lines_loader(["np.full(5000, step)"], 2, 2) as loader:
        held = [next(loader) for _ in range(3)]
        go, gone = os.pipe()
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                os.read(go, 1)  # the parent has gone on for a long time
                if [int(batch.min()) for batch in held] == [int(batch.max()) for batch in held] == [0, 1, 2]:
                    code = 0
                loader.close()
                for child in multiprocessing.active_children():
                    child.terminate()  # as multiprocessing does when a process ends
            finally:
                os._exit(code)
        del held
        for step in range(3, 60):
            assert (next(loader) == step).all()
        os.write(gone, b"x")
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        for step in range(60, 80):
            assert (next(loader) == step).all()
        os.close(go)
        os.close(gone)


HEAD = """
import os, signal, sys, threading, time
import numpy as np
from loaderx import DataLoader
from tests.loader.kit import ArrayStream
from tests.loader.remote_kit import *

def make(transform=as_is, num_workers=2, **options):
    return DataLoader({"x": ArrayStream(np.arange(10000))}, num_workers, 4, 2, 0, transform=transform,
                      worker_type="process", **options)
"""


def write_script(folder: Path, body: str) -> list[str]:
    (folder / "script.py").write_text(HEAD + body)
    return [sys.executable, "-W", "error", str(folder / "script.py")]


@contextmanager
def started(folder: Path, body: str) -> Iterator[subprocess.Popen[str]]:
    """Run a script in a process group of its own; nothing of the group is left at the end."""
    run = subprocess.Popen(
        write_script(folder, body),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        start_new_session=True,
    )
    try:
        yield run
        assert members(run.pid) == []
    finally:
        with run:
            for pid in members(run.pid):
                os.kill(pid, signal.SIGKILL)


def members(group: int) -> list[int]:
    """Return the processes of a session that live."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[3]) == group and fields[0] != "Z":
            found.append(int(path.parent.name))
    return found


def finish(run: subprocess.Popen[str]) -> tuple[int, str, str]:
    out, err = run.communicate(timeout=60)
    until(lambda: members(run.pid) == [], 5)
    return run.returncode, out, err


@linux_only
def test_a_main_module_without_a_guard_is_told_what_to_do_once(tmp_path: Path) -> None:
    with started(tmp_path, "next(make(num_workers=4))") as run:
        code, _, err = finish(run)
    assert code == 1
    last = err.strip().splitlines()[-2:]
    assert "exit code 1 while it started" in last[0] and "if __name__ == '__main__':" in last[0]
    assert last[1] == "at step 0 of the loader"
    assert err.count("this is a worker process") == 1


PROMPTED = """
import numpy as np
from loaderx import DataLoader
def augment(batch):
    return batch
if __name__ == "__main__":
    try:
        next(DataLoader({"x": np.arange(8)}, 1, 2, transform=augment, worker_type="process"))
    except Exception as error:
        print(error)
"""


@pytest.mark.parametrize("way", ["-c", "-"])
def test_a_main_module_that_no_worker_can_import_is_told_to_use_a_module(tmp_path: Path, way: str) -> None:
    command, stdin = ([way, PROMPTED], "") if way == "-c" else ([way], PROMPTED)
    run = subprocess.run(
        [sys.executable, *command],
        cwd=tmp_path,
        input=stdin,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert "cannot import the main module of a notebook, a prompt or standard input" in run.stdout
    assert "worker_type='thread'" in run.stdout and "__name__" not in run.stdout
    expected = "define functions and classes in a module of their own" if way == "-c" else "from a file"
    assert expected in run.stdout


def test_steps_that_were_asked_for_with_a_failed_start_fail_with_it(tmp_path: Path) -> None:
    ready = tmp_path / "ready"
    streams = {"x": remote_kit.StreamFrom(ready)}
    with DataLoader(streams, 2, 1, 2, 0, worker_type="process", start_method="forkserver") as loader:
        with pytest.raises(LoaderError, match="could not load"):
            next(loader)
        until(lambda: loader.stats().queue_depth == 4)
        ready.touch()
        for step in range(1, 5):
            with pytest.raises(LoaderError, match=r"could not load.*not yet") as caught:
                next(loader)
            assert caught.value.step == step
        assert [next(loader)["x"].tolist() for _ in range(5, 8)] == [[5], [6], [7]]
        loader.seek(0)
        assert next(loader)["x"].tolist() == [0]


@linux_only
@pytest.mark.parametrize("method", METHODS)
def test_leaving_the_interpreter_mid_iteration_is_clean(tmp_path: Path, method: str) -> None:
    body = f"""
def mine(batch):
    return {{"y": batch["x"] * 2}}

if __name__ == "__main__":
    loader = make(mine, start_method={method!r})
    for step, batch in enumerate(loader):
        assert batch["y"].tolist() == [8 * step + 2 * i for i in range(4)]
        if step == 5:
            break
    print("done")
"""
    with started(tmp_path, body) as run:
        assert finish(run) == (0, "done\n", "")


@linux_only
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("seconds", [0.0, 1.0])
def test_a_parent_that_is_killed_leaves_nothing(tmp_path: Path, method: str, seconds: float) -> None:
    body = f"""
def pid(batch):
    time.sleep({seconds} if batch["x"][0] >= 24 else 0)
    return os.getpid(), np.zeros(100_000)

if __name__ == "__main__":
    loader = make(pid, start_method={method!r})
    print(*[next(loader)[0] for _ in range(4)], flush=True)
    held = [next(loader) for _ in range(2)]
    if os.fork() == 0:  # a child that lives on has copies of what its parent had open
        time.sleep(20)
        os._exit(0)
    time.sleep(0.05)
    os.kill(os.getpid(), 9)
"""
    with started(tmp_path, body) as run:
        assert run.stdout is not None
        pids = list(map(int, run.stdout.readline().split()))
        assert pids and run.wait(10) == -9
        until(lambda: not any(map(is_alive, pids)), 3)
        # The one that forked itself off still has the pipes of multiprocessing's own helpers.
        for pid in members(run.pid):
            if "script.py" in Path(f"/proc/{pid}/cmdline").read_text():
                os.kill(pid, signal.SIGKILL)
        until(lambda: members(run.pid) == [], 5)
        assert run.stderr is not None and run.stderr.read() == ""


@linux_only
@pytest.mark.parametrize("method", METHODS)
def test_ctrl_c_in_a_terminal_is_the_parents(tmp_path: Path, method: str) -> None:
    body = f"""
def slowly(batch):
    time.sleep(0.03)
    return batch["x"][0], os.getpid()

if __name__ == "__main__":
    loader = make(slowly, start_method={method!r})
    got, stopped = [], 0
    while len(set(next(loader)[1] for _ in range(4))) < 2:
        pass  # until both have begun
    print("ready", flush=True)
    loader.seek(0)
    while len(got) < 40:
        try:
            got.append(int(next(loader)[0]))
        except KeyboardInterrupt:
            stopped += 1
            loader.seek(len(got))
    assert got == [4 * step for step in range(40)], got
    print(stopped > 0)
    try:
        print("again", flush=True)
        while True:
            next(loader)
    except KeyboardInterrupt:
        loader.close()
"""
    with started(tmp_path, body) as run:
        assert run.stdout is not None and run.stdout.readline() == "ready\n"
        for _ in range(3):
            time.sleep(0.1)
            os.killpg(run.pid, signal.SIGINT)
        assert run.stdout.readline() == "True\n" and run.stdout.readline() == "again\n"
        time.sleep(0.1)
        os.killpg(run.pid, signal.SIGINT)
        assert finish(run) == (0, "", "")


@linux_only
def test_ctrl_c_while_workers_start(tmp_path: Path) -> None:
    body = """
if __name__ == "__main__":
    loader = make()
    threading.Timer(0.08, os.killpg, (os.getpid(), signal.SIGINT)).start()
    try:
        print("ready", flush=True)
        next(loader)
        time.sleep(5)
    except KeyboardInterrupt:
        pass
    print(next(loader)["x"].tolist())
"""
    with started(tmp_path, body) as run:
        code, out, err = finish(run)
    assert (code, err) == (0, "") and out in ("ready\n[0, 1, 2, 3]\n", "ready\n[4, 5, 6, 7]\n")


def test_a_child_of_a_worker_that_comes_back_from_the_transform_is_not_heard() -> None:
    streams = {"x": np.arange(1000)}
    with DataLoader(
        streams, 1, 1, 2, 0, transform=remote_kit.fork_and_return, worker_type="process"
    ) as loader:
        assert [next(loader)["x"].tolist() for _ in range(10)] == [[step] for step in range(10)]


def test_an_exception_of_which_nothing_can_be_told_ends_no_worker() -> None:
    with DataLoader(
        {"x": np.arange(10)}, 1, 1, 1, 0, transform=remote_kit.fail_silently, worker_type="process"
    ) as loader:
        for step in range(3):
            with pytest.raises(LoaderError, match="SilentError") as caught:
                next(loader)
            assert caught.value.step == step
        assert len(workers_of(loader)) == 1
