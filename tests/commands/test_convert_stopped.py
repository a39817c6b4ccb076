"""``convert`` stopped on its way, or refused by the disk, at every operation: nothing half-written stays."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from loaderx import Dataset, Zrecord, write_dataset
from loaderx.store import files
from tests.commands.conftest import Run, listing

IMAGES = np.random.default_rng(0).integers(0, 4, (400, 16, 16), dtype=np.uint8)
OLD = IMAGES[::-1]

SOURCES = ["one", "folder", "npz"]
DESTINATIONS = ["new", "append", "force"]


@pytest.fixture
def at_operation(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[int, Callable[[], None]], list[str]]]:
    """Have something happen before the nth change to any file, and record the changes."""
    monkeypatch.setattr(
        os, "fsync", lambda _descriptor: None
    )  # nobody pulls the plug here, and it takes long

    def arrange(number: int, action: Callable[[], None]) -> list[str]:
        operations: list[str] = []

        def observe(operation: str, *_details: object) -> None:
            operations.append(operation)
            if len(operations) == number:
                action()

        monkeypatch.setattr(files, "observe", observe)
        return operations

    return arrange


def prepare(folder: Path, source: str, destination: str) -> list[object]:
    """Make source and destination below a folder, and give the arguments for `convert`."""
    if source == "npz":
        np.savez(folder / "in.npz", a=IMAGES, b=IMAGES[:10])
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
    """All names below the folder, and of every store its records and counts."""
    found: dict[str, object] = dict.fromkeys(listing(folder))
    for name in list(found):
        if name.endswith("schema.json"):
            store = (folder / name).parent
            with Zrecord(store, mode="r") as records:
                counts = records.stats()
            with Dataset(store) as dataset:
                found[name] = (counts["records"], counts["live_bytes"], dataset[:].tobytes())
    return found


@pytest.mark.parametrize("destination", DESTINATIONS)
@pytest.mark.parametrize("source", SOURCES)
def test_stopped_before_any_operation(
    run: Run,
    at_operation: Callable[[int, Callable[[], None]], list[str]],
    tmp_path: Path,
    source: str,
    destination: str,
) -> None:
    (tmp_path / "whole").mkdir()
    arguments = prepare(tmp_path / "whole", source, destination)
    operations = at_operation(0, lambda: None)
    assert run(*arguments).code == 0
    total = len(operations)
    done = contents(tmp_path / "whole")
    assert total > 5
    half_way = []
    for number in range(1, total + 1):
        folder = tmp_path / str(number)
        folder.mkdir()
        at_operation(0, lambda: None)
        arguments = prepare(folder, source, destination)
        before = contents(folder)
        operations = at_operation(number, lambda: signal.raise_signal(signal.SIGINT))
        code, out, err = run(*arguments)
        after = contents(folder)
        assert (code, out, err) == (130, "", "loaderx convert: interrupted\n"), (number, operations)
        if after not in (before, done):
            half_way.append((number, operations[number - 1], sorted(set(after) ^ set(before))))
    assert half_way == []


@pytest.mark.parametrize("destination", DESTINATIONS)
@pytest.mark.parametrize("source", SOURCES)
def test_full_disk_before_any_operation(
    fails: Callable[..., str],
    run: Run,
    at_operation: Callable[[int, Callable[[], None]], list[str]],
    tmp_path: Path,
    source: str,
    destination: str,
) -> None:
    (tmp_path / "whole").mkdir()
    arguments = prepare(tmp_path / "whole", source, destination)
    operations = at_operation(0, lambda: None)
    assert run(*arguments).code == 0
    total = len(operations)
    done = contents(tmp_path / "whole")
    half_way = []

    def full_disk() -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    for number in range(1, total + 1):
        folder = tmp_path / str(number)
        folder.mkdir()
        at_operation(0, lambda: None)
        arguments = prepare(folder, source, destination)
        before = contents(folder)
        seen = at_operation(number, full_disk)
        code, _, err = run(*arguments)
        # Not every operation matters so much: what cannot be cleaned away is no reason to fail.
        if code != 0 or seen[number - 1] in ("write", "create", "mkdir", "rename"):
            assert code == 2, (number, seen)
            assert "No space left on device" in err and err.count("\n") == 1, err
        after = contents(folder)
        if after not in (before, done):
            half_way.append((number, seen[number - 1], sorted(set(after) ^ set(before))))
    assert half_way == []


@pytest.mark.parametrize("moment", ["before", "after"])
def test_stopped_while_the_partial_folder_is_made(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    real = files.hold_directory

    def hold_directory(path: Path, *, wait: bool) -> int | None:
        if moment == "before":
            signal.raise_signal(signal.SIGINT)
        lock = real(path, wait=wait)
        if moment == "after":
            if lock is not None:
                os.close(lock)
            signal.raise_signal(signal.SIGINT)
        return lock

    arguments = prepare(tmp_path, "one", "new")
    monkeypatch.setattr(files, "hold_directory", hold_directory)
    assert run(*arguments) == (130, "", "loaderx convert: interrupted\n")
    assert listing(tmp_path) == ["in.npy"]


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
