"""``convert`` stopped on its way, or refused by the disk, at every operation: nothing half-written stays."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from loaderx import Dataset, LoaderxError, Zrecord, write_dataset
from loaderx.store import files
from tests.commands.conftest import Run, listing

IMAGES = np.random.default_rng(0).integers(0, 4, (400, 16, 16), dtype=np.uint8)
OLD = IMAGES[::-1]

SOURCES = ["one", "folder", "npz"]
DESTINATIONS = ["new", "append", "force"]


#: The functions that change files or take locks: the only door to them.
OPERATIONS = (
    "create",
    "write_at",
    "set_size",
    "sync",
    "sync_directory",
    "rename",
    "exchange",
    "unlink",
    "make_directory",
    "remove_directory",
    "hold_directory",
)

AtOperation = Callable[..., list[str]]


@pytest.fixture
def at_operation(monkeypatch: pytest.MonkeyPatch) -> AtOperation:
    """Have something happen before or after the nth operation on files, and record the operations."""
    monkeypatch.setattr(
        os, "fsync", lambda _descriptor: None
    )  # nobody pulls the plug here, and it takes long
    real = {name: getattr(files, name) for name in OPERATIONS}

    def arrange(number: int = 0, action: Callable[[], None] = print, *, moment: str = "before") -> list[str]:
        operations: list[str] = []

        def wrap(name: str) -> Callable[..., object]:
            def operation(*arguments: object, **options: object) -> object:
                operations.append(name)
                chosen = len(operations) == number
                if chosen and moment == "before":
                    action()
                try:
                    return real[name](*arguments, **options)
                finally:
                    if chosen and moment == "after":
                        action()

            return operation

        for name in OPERATIONS:
            monkeypatch.setattr(files, name, wrap(name))
        return operations

    return arrange


def prepare(folder: Path, source: str, destination: str) -> list[object]:
    """Make source and destination below a folder, and give the arguments for `convert`."""
    if source == "npz":
        np.savez(folder / "in.npz", a=IMAGES, b=IMAGES[::-1])
        sources = [folder / "in.npz"]
    elif source == "folder":
        (folder / "in").mkdir()
        for number, part in enumerate(np.split(IMAGES, 4)):
            np.save(folder / f"in/{number}.npy", part)
        sources = [folder / "in"]
    else:
        np.save(folder / "in.npy", IMAGES)
        sources = [folder / "in.npy"]
    path = folder / "out"
    if destination != "new":
        for store in [path / "a.zr", path / "b.zr"] if source == "npz" else [path]:
            write_dataset(store, OLD)
    options = [] if destination == "new" else [f"--{destination}"]
    return ["convert", *sources, path, "--chunk-bytes", "30KiB", "--threads", "1", *options]


def contents(folder: Path) -> dict[str, object]:
    """All names below the folder, and of every store its records and counts, or why it cannot be read."""
    # The mark of a session stays where a stop came into its end: it is there for the machine that stops.
    found: dict[str, object] = dict.fromkeys(name for name in listing(folder) if not name.endswith("mark.zr"))
    for name in list(found):
        if name.endswith("schema.json"):
            store = (folder / name).parent
            try:
                with Zrecord(store, mode="r") as records, Dataset(store) as dataset:
                    counts = records.stats()
                    found[name] = (counts["records"], counts["live_bytes"], dataset[:].tobytes())
            except LoaderxError as error:
                found[name] = str(error)
    return found


def run_whole(
    run: Run, at_operation: AtOperation, folder: Path, source: str, destination: str
) -> tuple[int, object]:
    """Convert without a fault: the number of operations it takes, and what is there afterwards."""
    folder.mkdir()
    arguments = prepare(folder, source, destination)
    operations = at_operation()
    assert run(*arguments).code == 0
    at_operation()
    assert len(operations) > 5
    return len(operations), contents(folder)


def numbers(source: str, total: int) -> range:
    """Which operations to fail at: of the long list for a .npz file every third."""
    return range(1, total + 1, 3 if source == "npz" else 1)


@pytest.mark.parametrize("destination", DESTINATIONS)
@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("moment", ["before", "after"])
def test_stopped_at_any_operation(
    run: Run, at_operation: AtOperation, tmp_path: Path, moment: str, source: str, destination: str
) -> None:
    total, done = run_whole(run, at_operation, tmp_path / "whole", source, destination)
    half_way = []
    for number in numbers(source, total):
        folder = tmp_path / str(number)
        folder.mkdir()
        arguments = prepare(folder, source, destination)
        before = contents(folder)
        operations = at_operation(number, lambda: signal.raise_signal(signal.SIGINT), moment=moment)
        code, out, err = run(*arguments)
        at_operation()
        after = contents(folder)
        assert (code, out, err) == (130, "", "loaderx convert: interrupted\n"), (number, operations)
        if after not in (before, done):
            half_way.append((number, operations[number - 1], sorted(set(after) ^ set(before))))
    assert half_way == []


@pytest.mark.parametrize("destination", DESTINATIONS)
@pytest.mark.parametrize("source", SOURCES)
def test_full_disk_at_any_operation(
    run: Run, at_operation: AtOperation, tmp_path: Path, source: str, destination: str
) -> None:
    def full_disk() -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    total, done = run_whole(run, at_operation, tmp_path / "whole", source, destination)
    half_way = []
    passed_over = 0
    for number in numbers(source, total):
        folder = tmp_path / str(number)
        folder.mkdir()
        arguments = prepare(folder, source, destination)
        before = contents(folder)
        operations = at_operation(number, full_disk)
        code, _, err = run(*arguments)
        at_operation()
        after = contents(folder)
        # What cannot be cleaned away is no reason to fail; what cannot be written is, but for the note in a lock.
        if code == 0 and operations[number - 1] == "write_at":
            assert after == done
            passed_over += 1
        elif code != 0 or operations[number - 1] in ("write_at", "create", "make_directory", "rename"):
            assert code == 2, (number, operations)
            assert "No space left on device" in err and err.count("\n") == 1, err
        if after not in (before, done):
            half_way.append((number, operations[number - 1], sorted(set(after) ^ set(before))))
    assert half_way == []
    assert passed_over <= (0 if destination == "new" else 2 if source == "npz" else 1)


@pytest.mark.parametrize(
    ("sent", "code", "line"),
    [
        (signal.SIGINT, 130, "interrupted"),
        (signal.SIGTERM, 143, "terminated"),
        (signal.SIGHUP, 129, "terminated"),
    ],
)
@pytest.mark.parametrize("written_bytes", [0, 1 << 20, 3 << 20])
def test_signal_from_outside(
    start: Callable[..., subprocess.Popen[str]],
    tmp_path: Path,
    sent: signal.Signals,
    code: int,
    line: str,
    written_bytes: int,
) -> None:
    np.save(tmp_path / "in.npy", np.random.default_rng(0).integers(0, 64, (8_000, 1024), dtype=np.uint8))
    options = ["--level", "9", "--chunk-bytes", "256KiB", "--threads", "1"]
    with start("loaderx.convert", tmp_path / "in.npy", tmp_path / "out", *options) as process:
        while partial_bytes(tmp_path) < written_bytes:
            assert process.poll() is None, process.communicate()
            os.sched_yield()
        process.send_signal(sent)
        out, err = process.communicate()
    assert (process.returncode, out, err) == (code, "", f"loaderx convert: {line}\n")
    assert listing(tmp_path) == ["in.npy"]


def partial_bytes(folder: Path) -> int:
    """Bytes written so far below the one folder beside in.npy, or -1 when there is none yet."""
    try:
        partial = [entry for entry in folder.iterdir() if entry.is_dir()]
        return sum(entry.stat().st_blocks * 512 for entry in partial[0].iterdir()) if partial else -1
    except FileNotFoundError:
        return -1
