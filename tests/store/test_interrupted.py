"""Changes and closes that are interrupted or refused at each of their operations: what is left, and how it goes on."""

from __future__ import annotations

import contextlib
import errno
import gc
import itertools
import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import loaderx
from loaderx import Zrecord
from loaderx._core.maps import OpenFile
from loaderx.store import files
from tests.oracle import OracleStore, swap_delete
from tests.store.children import in_child
from tests.store.crashes import DELETED, JOURNAL, MARK, RECORDS, TARGETS, journal_store
from tests.store.refusals import refusing
from tests.store.samples import SmallChunks, contents, fill, numbered, read, some_records
from tests.store.sums import check_sums

pytestmark = pytest.mark.usefixtures("nothing_is_made_durable")

# ---- closing -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("operation", ["fsync", "write", "unlink", "truncate"])
def test_a_close_that_is_refused(operation: str, store_path: Path) -> None:
    """It says so; the lock is free all the same, and what could not be made sure stays marked."""
    for after in range(20):
        path = store_path.with_name(f"{after}.zr")
        z = Zrecord(path, "raw")
        fill(z, numbered(0, 10))
        refused = False
        with refusing(operation, after=after, number=errno.EIO) as seen:
            try:
                z.close()
            except loaderx.StoreIOError as error:
                refused = True
                assert error.errno == errno.EIO
        assert refused == (seen.count(operation) > after)
        with pytest.raises(loaderx.ClosedError):
            len(z)
        z.close()
        with Zrecord(path, "raw", verify=True) as again:
            assert read(again) == numbered(0, 10)
            fill(again, [b"x"])
        assert not (path / MARK).exists()
        assert contents(path) == [*numbered(0, 10), b"x"]
        assert OracleStore(path).faults() == []
        check_sums(path)
        if not refused:
            break
    assert after > 0


# ---- interrupts --------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def interrupting(number: int) -> Iterator[list[str]]:
    """Raise `KeyboardInterrupt` at operation `number`; gives the operations seen."""
    seen: list[str] = []

    def observe(operation: str, *_: object) -> None:
        seen.append(operation)
        if len(seen) == number:
            raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(files, "observe", observe)
        yield seen


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("kind", ["delete", "compact"])
@pytest.mark.parametrize("then", ["go on", "close", "kill"])
def test_interrupted_at_every_operation(kind: str, then: str, store_path: Path) -> None:
    """Ctrl-C at any point: the handle reads on, others read on, and doing it again finishes it."""
    for number in itertools.count(1):
        path = store_path.with_name(f"{number}.zr")
        old = journal_store(path, kind)

        def interrupt(path: Path = path, old: list[bytes] = old, number: int = number) -> bool:
            z = SmallChunks(path, "raw", verify=True)
            try:
                with interrupting(number):
                    z.delete(TARGETS) if kind == "delete" else z.compact()
                interrupted = False
            except KeyboardInterrupt:
                interrupted = True
            found = read(z)
            assert found in (old, DELETED)
            if then == "kill":
                os.kill(os.getpid(), signal.SIGKILL) if interrupted else None
                return interrupted
            with SmallChunks(path, mode="r", verify=True) as reader:
                assert read(reader) == found
            if then == "go on":
                if found == old:
                    z.delete(TARGETS) if kind == "delete" else z.compact()
                assert read(z) == DELETED
                z.delete([0])
                fill(z, [b"x"])
                assert read(z) == [*swap_delete(DELETED, [0]), b"x"]
            z.close()
            return interrupted

        interrupted = not ends_by_itself(interrupt) if then == "kill" else interrupt()
        with SmallChunks(path, "raw", verify=True) as z:
            if then == "go on":
                assert read(z) == [*swap_delete(DELETED, [0]), b"x"]
            else:
                assert read(z) in (old, DELETED)
                if kind == "compact":
                    z.compact()
                    assert z.stats()["reclaimable"] <= 200 * (1 + OracleStore(path).tail_chunk)
        assert not (path / JOURNAL).exists()
        assert OracleStore(path).faults() == []
        check_sums(path)
        if not interrupted:
            break
    assert number > (8 if kind == "delete" else 30)


def ends_by_itself(call: Callable[[], Any]) -> bool:
    """Run a call in a child; return False where it was killed, and raise what it raised."""
    try:
        in_child(call)
    except RuntimeError as error:
        assert "signal 9" in str(error)
        return False
    return True


@pytest.mark.usefixtures("small_blocks")
def test_a_compaction_reports_and_may_be_stopped_by_its_report(store_path: Path) -> None:
    old = journal_store(store_path, "compact")
    seen: list[tuple[int, int]] = []
    with SmallChunks(store_path, "raw") as z:

        def stop(done: int, total: int) -> None:
            seen.append((done, total))
            if len(seen) == 3:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            z.compact(progress=stop)
        assert read(z) == old and len(seen) == 3
        again: list[tuple[int, int]] = []
        z.compact(progress=lambda done, total: again.append((done, total)))
        assert again[-1][0] == again[-1][1] and again == sorted(again)
        assert again[0][0] <= again[-1][1]
        assert read(z) == old
        assert z.stats()["reclaimable"] <= 200 * (1 + OracleStore(store_path).tail_chunk)
    assert contents(store_path) == old
    check_sums(store_path)


def test_a_compaction_that_moves_nothing_reports_its_end(store_path: Path) -> None:
    seen: list[tuple[int, int]] = []
    with Zrecord(store_path, "raw") as z:

        def report(done: int, total: int) -> None:
            seen.append((done, total))

        z.compact(report)
        fill(z, [*RECORDS, b"last"])
        z.compact(report)
        z.delete([len(RECORDS)])  # what lies last: only the tail moves
        z.compact(report)
        assert seen == [(0, 0)] * 3 and z.stats()["reclaimable"] == 0
        z.delete([0])
        z.compact(report)
        moved, total = seen[-1]
        assert moved == total > 0


@pytest.mark.usefixtures("small_blocks")
def test_a_compacted_store_is_left_alone(store_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What lies in place already is not moved, and not written."""
    with Zrecord(store_path, "raw") as z:
        fill(z, RECORDS)
        z.delete([50])
        z.compact()
        written: dict[str, int] = {}

        def observe(operation: str, where: Any, *details: Any) -> None:
            if operation == "write" and isinstance(where, int):
                name = os.path.basename(os.readlink(f"/proc/self/fd/{where}"))
                written[name] = written.get(name, 0) + len(memoryview(details[0]).cast("B"))

        monkeypatch.setattr(files, "observe", observe)
        z.compact()
        assert "0.zr" not in written and written.get("meta.zr", 0) < 64
        written.clear()
        z.delete([len(z) - 1])  # the last entry; its bytes are somewhere before the end
        z.compact()
        assert written.get("0.zr", 0) < sum(map(len, RECORDS))


# ---- refusals ----------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("once", [True, False], ids=["once", "from then on"])
@pytest.mark.parametrize("kind", ["append", "delete", "compact"])
def test_a_full_disk_at_every_operation(kind: str, once: bool, store_path: Path) -> None:
    """An error that says so; nothing is lost, whoever reads; and with space again the same call works."""
    new = some_records(40, seed=1)
    first_path = store_path.with_name("first.zr")
    journal_store(first_path, kind)
    with SmallChunks(first_path, "raw") as z, refusing("nothing") as seen:
        do(z, kind, new)
        z.close()
    operations = sorted(set(seen) & {"write", "fsync", "create", "truncate", "rename", "unlink"})
    for operation in operations:
        for after in range(seen.count(operation)):
            path = store_path.with_name(f"{operation}-{after}.zr")
            old = journal_store(path, kind)
            goal = [*old, *new] if kind == "append" else DELETED
            z = SmallChunks(path, "raw", verify=True)
            refused = closed = False
            with refusing(operation, after=after, once=once):
                try:
                    do(z, kind, new)
                except loaderx.StoreIOError as error:
                    refused = True
                    assert error.errno == errno.ENOSPC
                found = read(z)
                assert found in (old, goal), (operation, after)
                assert refused or found == goal
                with SmallChunks(path, mode="r", verify=True) as reader:
                    assert read(reader) == found
                try:
                    z.close()
                    closed = True
                except loaderx.StoreIOError:
                    pass
            assert refused or not closed or once or operation == "unlink", "something must have been refused"
            with SmallChunks(path, mode="r", verify=True) as reader:
                assert read(reader) == found
            with SmallChunks(path, "raw", verify=True) as z:
                assert read(z) == found
                if found != goal or kind == "compact":
                    do(z, kind, new)
                assert read(z) == goal
                fill(z, [b"x"])
            assert contents(path) == [*goal, b"x"], (operation, after)
            assert OracleStore(path).faults() == []
            assert not (path / JOURNAL).exists() and not (path / MARK).exists()
            check_sums(path)


def do(z: Zrecord, kind: str, new: list[bytes]) -> None:
    if kind == "append":
        fill(z, new)
    elif kind == "delete":
        z.delete(TARGETS)
    else:
        z.compact()


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("n_refused", [1, 3, 10_000], ids=["one", "three", "all that follow"])
@pytest.mark.parametrize("kind", ["append", "delete", "compact"])
def test_refused_operations_and_the_same_handle_again(kind: str, n_refused: int, store_path: Path) -> None:
    """With space again the handle that was refused goes on, without being opened anew."""
    new = some_records(40, seed=1)
    for number in itertools.count():
        path = store_path.with_name(f"{number}.zr")
        old = journal_store(path, kind)
        goal = [*old, *new] if kind == "append" else DELETED
        with SmallChunks(path, "raw", verify=True) as z:
            with refusing_from(number, n_refused) as seen:
                try:
                    do(z, kind, new)
                    refused = False
                except loaderx.StoreIOError:
                    refused = True
            found = read(z)
            assert found in (old, goal)
            if found != goal or kind == "compact":
                do(z, kind, new)
            assert read(z) == goal
            fill(z, [b"x"])
            z.delete([0])
            assert read(z) == swap_delete([*goal, b"x"], [0])
        assert contents(path) == swap_delete([*goal, b"x"], [0])
        assert not (path / JOURNAL).exists() and not (path / MARK).exists()
        check_sums(path)
        if not refused and len(seen) <= number:
            break
    assert number > 8


@contextlib.contextmanager
def refusing_from(number: int, n_refused: int) -> Iterator[list[str]]:
    """Refuse so many operations of any kind from one on, as a disk does that has gone for a while."""
    seen: list[str] = []

    def observe(operation: str, *_: object) -> None:
        seen.append(operation)
        if number < len(seen) <= number + n_refused:
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(files, "observe", observe)
        yield seen


# ---- interrupted twice -------------------------------------------------------------------------------------------


@contextlib.contextmanager
def interrupting_twice(first: int, second: int) -> Iterator[list[str]]:
    """Raise `KeyboardInterrupt` at two operations; gives the operations seen."""
    seen: list[str] = []

    def observe(operation: str, *_: object) -> None:
        seen.append(operation)
        if len(seen) in (first, second):
            raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(files, "observe", observe)
        yield seen


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("kind", ["delete", "compact"])
def test_interrupted_a_second_time(kind: str, store_path: Path) -> None:
    """Ctrl-C at any operation, and again at any of those that clean up behind it."""
    n_pairs = 0
    for first in itertools.count(1):
        interrupted = False
        for second in [first + behind for behind in (1, 2, 3, 4, 6, 9, 14)]:
            path = store_path.with_name(f"{first}-{second}.zr")
            old = journal_store(path, kind)
            with SmallChunks(path, "raw", verify=True) as z:
                try:
                    with interrupting_twice(first, second) as seen:
                        z.delete(TARGETS) if kind == "delete" else z.compact()
                except KeyboardInterrupt:
                    interrupted = True
                assert read(z) in (old, DELETED), (first, second)
                if kind == "compact":
                    z.compact()
                elif read(z) == old:
                    z.delete(TARGETS)
                assert read(z) == DELETED, (first, second)
                fill(z, [b"x"])
            assert contents(path) == [*DELETED, b"x"], (first, second)
            assert loaderx.verify(path).ok, (first, second)
            assert not (path / JOURNAL).exists()
            n_pairs += 1
            if len(seen) < second:
                break
        if not interrupted:
            break
    assert n_pairs > (60 if kind == "delete" else 200)


def test_interrupted_behind_the_commit(store_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was committed is shown, so that nobody appends it again."""
    with Zrecord(store_path, "raw") as z:
        fill(z, [b"a"])

        def interrupt(*_: object) -> None:
            monkeypatch.undo()
            raise KeyboardInterrupt

        monkeypatch.setattr(z, "_install", interrupt)
        with pytest.raises(KeyboardInterrupt):
            fill(z, [b"b"])
        assert read(z) == [b"a", b"b"] == contents(store_path)
        fill(z, [b"c"])
    assert contents(store_path) == [b"a", b"b", b"c"]


@pytest.mark.parametrize("operation", ["mkdir", "create", "write", "truncate", "fsync", "rename"])
def test_a_creation_that_is_refused_leaves_nothing(operation: str, tmp_path: Path) -> None:
    for after in itertools.count():
        path = tmp_path / str(after) / "b" / "new.zr"
        with refusing(operation, after=after, once=True) as seen:
            try:
                Zrecord(path).close()
            except loaderx.StoreIOError as error:
                assert error.errno == errno.ENOSPC
                # The last sync comes behind the rename: the store is there, and whole.
                assert not (tmp_path / str(after)).exists() or contents(path) == [], after
                continue
        break
    assert after > 0 and seen.count(operation) == after
    assert contents(path) == []


# ---- interrupted at every call -----------------------------------------------------------------------------------


@contextlib.contextmanager
def interrupting_at_call(number: int) -> Iterator[None]:
    """Raise `KeyboardInterrupt` at one of the moments in loaderx's code at which Python lets signals in.

    Which are the beginning of a function, and the return from one that is not Python's.
    """
    count = 0
    folder = os.path.dirname(loaderx.__file__)

    def profile(frame: FrameType, event: str, _: Any) -> None:
        nonlocal count
        if event in ("call", "c_return") and frame.f_code.co_filename.startswith(folder):
            count += 1
            if count == number:
                raise KeyboardInterrupt

    sys.setprofile(profile)
    try:
        yield
    finally:
        sys.setprofile(None)


@pytest.fixture
def what_is_here_stays() -> Iterator[None]:
    """Have collections look only at what the test makes: all that pytest holds takes much longer."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.mark.usefixtures("what_is_here_stays")
@pytest.mark.parametrize(
    "kind", ["open", "append", "delete", "compact", "sync", "refresh", "close", "pack", "unpack"]
)
def test_interrupted_at_every_call(kind: str, store_path: Path) -> None:
    """Once the handle is gone, it holds nothing: no lock, no open file, no record that is half there."""
    records = numbered(0, 10)
    with Zrecord(store_path, "raw") as z:
        fill(z, records)
    start = 1
    while True:
        z = None
        interrupted = False
        if kind == "unpack":
            loaderx.pack(store_path)
        gc.collect()
        before = open_files()
        try:
            if kind != "open":
                z = Zrecord(store_path, "raw")
                if kind in ("sync", "close"):
                    fill(z, [b"new"])
            with interrupting_at_call(start):
                if z is None:
                    z = Zrecord(store_path, "raw")
                elif kind == "append":
                    fill(z, [b"new"])
                elif kind == "delete":
                    z.delete([len(z) - 1])
                else:
                    getattr(z, kind)()
        except KeyboardInterrupt:
            interrupted = True
        if z is not None:
            z.close()
        gc.collect()  # frames and exceptions that hold each other
        assert open_files() == before, start
        with Zrecord(store_path, "raw", timeout_s=0.2, verify=True) as again:
            found = read(again)
            assert found[:9] == records[:9] and set(found[9:]) <= {records[9], b"new"}, start
            again.delete(range(9, len(again)))
            fill(again, records[9:])
            again.compact()
            assert read(again) == records
        if not interrupted:
            break
        start += 1
    assert loaderx.verify(store_path).ok
    assert start > 25


def open_files() -> list[str]:
    """Return the descriptors of this process, and the one that it takes to list them."""
    return sorted(os.listdir("/dev/fd"))


def test_files_are_closed_once(tmp_path: Path) -> None:
    """Whoever is interrupted while a file is closed leaves no descriptor that is another file's by then."""
    (tmp_path / "x").touch()
    opened = OpenFile(tmp_path / "x", os.O_RDONLY)
    descriptor = opened.fileno()
    opened.close()
    other = os.open(tmp_path / "x", os.O_RDONLY)
    try:
        assert other == descriptor
        opened.close()
        del opened
        os.fstat(other)
    finally:
        os.close(other)
    with pytest.raises(FileNotFoundError):
        OpenFile(tmp_path / "y", os.O_RDONLY)
