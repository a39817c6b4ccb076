"""After a crash: marks of this boot and of another, journals whole, torn and overtaken, interrupts, and full disks."""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import signal
import struct
import subprocess
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import loaderx
from loaderx import StoreWarning, Zrecord
from loaderx.store import compact as compaction
from loaderx.store import files, mark
from tests.oracle import OracleStore, swap_delete
from tests.store.children import in_child
from tests.store.refusals import refusing
from tests.store.test_changing import SmallChunks, contents, fill, some_records
from tests.store.test_locks import Pause, numbered, other_process, state
from tests.store.test_sums import check_sums, flip

MARK, JOURNAL, SUMS = "mark.zr", "journal.zr", "sums.zr"


def read(z: Zrecord) -> list[bytes]:
    """Return every record through a handle."""
    data, splits = z.gather_packed(np.arange(len(z)))
    return [data[a:b].tobytes() for a, b in itertools.pairwise(splits)]


@contextlib.contextmanager
def warnings_aside() -> Iterator[None]:
    """Let a `StoreWarning` pass that may come and need not."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", StoreWarning)
        yield


# ---- a session that was killed -----------------------------------------------------------------------------------


def killed_session(path: Path, cls: type[Zrecord] = Zrecord, codec: Any = "raw") -> None:
    """Leave a store whose writer was killed: ten records synced, ten more committed in two appends, five on the way."""

    def body(pause: Pause) -> None:
        z = cls(path, codec)
        fill(z, numbered(0, 10))
        z.sync()
        fill(z, numbered(10, 14))
        fill(z, numbered(14, 20))
        with z.appending() as append:
            append.add(bytes(500), 5, 100)
            pause()

    with other_process(body) as other:
        other.kill()
    assert (path / MARK).exists()


@pytest.fixture
def next_boot(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Return the function that starts the machine again."""
    return lambda: monkeypatch.setattr(mark, "boot_id", lambda: b"another boot....")


@pytest.mark.parametrize("cls", [Zrecord, SmallChunks])
@pytest.mark.parametrize("codec", ["raw", "zstd"])
def test_a_mark_of_this_boot(cls: type[Zrecord], codec: Any, store_path: Path) -> None:
    """Memory outlives a process: everything committed is there, and the append that was cut off is not."""
    killed_session(store_path, cls, codec)
    before = state(store_path)
    with cls(store_path, mode="r", verify=True) as z:
        assert read(z) == numbered(0, 20) and z.recovery is None
    assert state(store_path) == before
    assert loaderx.verify(store_path).ok and loaderx.verify(store_path).recovery is None
    with cls(store_path, codec, verify=True) as z:
        assert read(z) == numbered(0, 20) and z.recovery is None
        fill(z, numbered(20, 30))
        assert read(z) == numbered(0, 30)
    assert not (store_path / MARK).exists()
    assert contents(store_path) == numbered(0, 30)
    assert OracleStore(store_path).faults() == []
    check_sums(store_path)


def test_a_mark_of_this_boot_stays_for_the_next_writer(store_path: Path, next_boot: Any) -> None:
    """Who takes over a session that was killed takes over its doubts, until it has synced."""
    killed_session(store_path)

    def body(pause: Pause) -> None:
        z = Zrecord(store_path, "raw")
        fill(z, numbered(20, 25))
        pause()

    with other_process(body) as other:
        other.kill()
    next_boot()
    zero(store_path, "meta.zr", 16 + 16 * 22, 16 * 3)
    with pytest.warns(StoreWarning), Zrecord(store_path, mode="r") as z:
        assert read(z) == numbered(0, 22)


@pytest.mark.parametrize("change", ["delete", "compact", "train_dict", "sync"])
def test_other_changes_after_a_killed_session(change: str, store_path: Path) -> None:
    killed_session(store_path)
    model = numbered(0, 20)
    with Zrecord(store_path, "raw") as z:
        if change == "delete":
            z.delete([3, 19])
            model = swap_delete(model, [3, 19])
        elif change == "compact":
            z.delete([0, 1, 2])
            z.compact()
            model = swap_delete(model, [0, 1, 2])
        elif change == "train_dict":
            z.train_dict(np.random.default_rng(0).integers(0, 4, 100_000, dtype=np.uint8), [100] * 1000, 2000)
        else:
            z.sync()
        assert read(z) == model
    with Zrecord(store_path, "raw") as z:
        assert read(z) == model
        fill(z, [b"x"])
    check_sums(store_path)
    assert not (store_path / MARK).exists()


@pytest.mark.parametrize("new", [[b""], [b"", b"", b"x", b""], [b"x", b""]])
def test_empty_records_behind_a_killed_session(new: list[bytes], store_path: Path) -> None:
    """They have no bytes, and lie within the file all the same, behind the byte of room that the session left."""

    def body(pause: Pause) -> None:
        fill(Zrecord(store_path, "raw"), numbered(0, 5))
        z = Zrecord(store_path, "raw")
        fill(z, numbered(5, 10))
        pause()

    with other_process(body) as other:
        other.kill()
    with Zrecord(store_path, "raw", verify=True) as z:
        fill(z, new)
        assert read(z) == [*numbered(0, 10), *new]
    assert contents(store_path) == [*numbered(0, 10), *new]
    assert OracleStore(store_path).faults() == []
    check_sums(store_path)


def zero(path: Path, name: str, offset: int, n_bytes: int) -> None:
    """Zero a stretch of a file, as a block that never reached the disk."""
    with (path / name).open("r+b") as file:
        file.seek(offset)
        file.write(bytes(n_bytes))


def start_of(path: Path, index: int) -> int:
    return int(OracleStore(path).table["offset"][index])


#: What a power loss may leave of the killed session, and how many records may be kept of it.
LOSSES: dict[str, tuple[Callable[[Path], Any], int]] = {
    "a bit": (lambda path: flip(path, "0.zr", start_of(path, 15)), 15),
    "bytes": (lambda path: zero(path, "0.zr", start_of(path, 15) + 2, 3), 15),
    "all bytes from a record on": (lambda path: zero(path, "0.zr", start_of(path, 15), 2000), 15),
    "the end of the file": (lambda path: os.truncate(path / "0.zr", start_of(path, 15) + 1), 15),
    "all the file's end": (lambda path: os.truncate(path / "0.zr", start_of(path, 10)), 10),
    "an entry": (lambda path: zero(path, "meta.zr", 16 + 16 * 15, 16), 15),
    "entries": (lambda path: zero(path, "meta.zr", 16 + 16 * 15, 16 * 5), 15),
    "all entries": (lambda path: zero(path, "meta.zr", 16 + 16 * 10, 16 * 10), 10),
    "a slot": (lambda path: zero(path, SUMS, 32 + 8 * 15, 8), 15),
    "slots": (lambda path: zero(path, SUMS, 32 + 8 * 15, 40), 15),
    "the end of the sums": (lambda path: os.truncate(path / SUMS, 32 + 8 * 15), 15),
    "entries and slots": (
        lambda path: (zero(path, "meta.zr", 16 + 16 * 12, 128), zero(path, SUMS, 32 + 8 * 12, 64)),
        12,
    ),
    "bytes, entries and slots": (
        lambda path: (
            zero(path, "0.zr", start_of(path, 10), 2000),
            zero(path, "meta.zr", 16 + 16 * 10, 16 * 10),
            zero(path, SUMS, 32 + 8 * 10, 80),
        ),
        10,
    ),
    "the last record": (lambda path: flip(path, "0.zr", start_of(path, 19) + 3), 19),
}


@pytest.mark.parametrize(("lose", "kept"), LOSSES.values(), ids=LOSSES.keys())
def test_a_mark_of_another_boot(
    lose: Callable[[Path], Any], kept: int, store_path: Path, next_boot: Any
) -> None:
    """The records up to the first that did not reach the disk are kept, and what goes is said."""
    killed_session(store_path)
    lose(store_path)
    next_boot()
    before = state(store_path)
    for verify in (False, True):
        with (
            pytest.warns(StoreWarning, match=str(20 - kept)),
            Zrecord(store_path, mode="r", verify=verify) as z,
        ):
            assert read(z) == numbered(0, kept)
            assert z.recovery is not None
            with warnings_aside():
                assert z.refresh() == kept
            with pytest.raises(loaderx.RecordIndexError):
                z.gather_packed([kept])
    with warnings_aside():
        report = loaderx.verify(store_path)
    assert report.records == kept and report.damaged == () and report.recovery is not None
    assert state(store_path) == before, "a reader changes nothing"
    with pytest.warns(StoreWarning, match=str(20 - kept)), Zrecord(store_path, "raw", verify=True) as z:
        assert read(z) == numbered(0, kept) and z.recovery is not None
        assert fill(z, [b"after"] * 3) == kept
        assert read(z) == [*numbered(0, kept), *[b"after"] * 3]
    with Zrecord(store_path, mode="r", verify=True) as z:
        assert read(z) == [*numbered(0, kept), *[b"after"] * 3] and z.recovery is None
    assert contents(store_path) == [*numbered(0, kept), *[b"after"] * 3]
    assert OracleStore(store_path).faults() == []
    check_sums(store_path)
    assert not (store_path / MARK).exists()


@pytest.mark.parametrize("cls", [Zrecord, SmallChunks])
@pytest.mark.parametrize("codec", ["raw", "zstd"])
def test_all_of_it_reached_the_disk(cls: type[Zrecord], codec: Any, store_path: Path, next_boot: Any) -> None:
    killed_session(store_path, cls, codec)
    next_boot()
    for mode in ("r", "a", "r"):
        with cls(store_path, codec, mode=mode, verify=True) as z:  # type: ignore[arg-type]
            assert read(z) == numbered(0, 20) and z.recovery is None
    with cls(store_path, codec) as z:
        fill(z, [b"more"])
    assert contents(store_path) == [*numbered(0, 20), b"more"]
    check_sums(store_path)


def test_the_length_did_not_reach_the_disk(store_path: Path, next_boot: Any) -> None:
    killed_session(store_path)
    next_boot()
    for length in (14, 10):
        with (store_path / "meta.zr").open("r+b") as meta:
            meta.seek(12)
            meta.write(struct.pack("<I", length))
        with warnings_aside(), Zrecord(store_path, mode="r") as z:
            assert read(z) == numbered(0, length)
    with warnings_aside(), Zrecord(store_path, "raw") as z:
        assert fill(z, [b"next"]) == 10
    assert contents(store_path) == [*numbered(0, 10), b"next"]
    assert OracleStore(store_path).faults() == []
    check_sums(store_path)


@pytest.mark.parametrize("lost", ["the last chunk", "its name", "all but the first"])
def test_chunks_that_did_not_reach_the_disk(lost: str, store_path: Path, next_boot: Any) -> None:
    records = [bytes([1 + number]) * 300 for number in range(20)]

    def body(pause: Pause) -> None:
        z = SmallChunks(store_path, "raw")
        fill(z, records[:5])
        z.sync()
        for record in records[5:]:
            fill(z, [record])
        pause()

    with other_process(body) as other:
        other.kill()
    store = OracleStore(store_path)
    assert store.tail_chunk == 6
    if lost == "the last chunk":
        os.truncate(store_path / "6.zr", 0)
        kept = 18
    elif lost == "its name":
        (store_path / "6.zr").unlink()
        kept = 18
    else:
        for chunk in range(2, 7):
            (store_path / f"{chunk}.zr").unlink()
        kept = 6
    next_boot()
    before = state(store_path)
    with pytest.warns(StoreWarning), SmallChunks(store_path, mode="r") as z:
        assert read(z) == records[:kept]
    assert state(store_path) == before
    with pytest.warns(StoreWarning), SmallChunks(store_path, "raw") as z:
        assert read(z) == records[:kept]
        fill(z, records[:4])
    assert contents(store_path) == records[:kept] + records[:4]
    assert OracleStore(store_path).faults() == []
    check_sums(store_path)


def test_what_had_been_synced_is_never_cut(store_path: Path, next_boot: Any) -> None:
    """Damage before the base is damage: it is found by a check, and no reason to cut what comes behind it."""
    killed_session(store_path)
    flip(store_path, "0.zr", start_of(store_path, 5))
    next_boot()
    for mode in ("r", "a"):
        with Zrecord(store_path, mode=mode) as z:  # type: ignore[arg-type]
            assert len(z) == 20 and z.recovery is None
    assert [damage.record for damage in loaderx.verify(store_path).damaged] == [5]


def test_a_writer_that_lives_is_trusted(store_path: Path, next_boot: Any) -> None:
    """A reader that knows of another boot (in a container, say) must not cut what a living writer writes."""

    def body(pause: Pause) -> None:
        z = Zrecord(store_path, "raw")
        fill(z, numbered(0, 5))
        pause()
        fill(z, numbered(5, 10))
        pause()

    with other_process(body) as other:
        next_boot()
        with Zrecord(store_path, mode="r", verify=True) as z:
            assert read(z) == numbered(0, 5) and z.recovery is None
            other.go()
            assert z.refresh() == 10 and read(z) == numbered(0, 10)


@pytest.mark.parametrize("mode", ["r", "a"])
def test_recovery_says_what_was_cut(mode: Any, store_path: Path, next_boot: Any) -> None:
    killed_session(store_path)
    flip(store_path, "0.zr", start_of(store_path, 17))
    next_boot()
    with pytest.warns(StoreWarning, match=r"store\.zr: .*3 .*17 to 19") as caught:
        z = Zrecord(store_path, mode=mode)
    assert len(caught) == 1
    assert z.recovery is not None
    assert z.recovery.cut == range(17, 20) and not z.recovery.finished
    assert z.recovery.on_disk == (mode == "a")
    z.close()


@pytest.mark.parametrize("content", [b"", b"ZMRK", bytes(52), b"\xff" * 52, os.urandom(300)])
def test_a_mark_that_is_none(content: bytes, store_path: Path) -> None:
    """It is not followed, and it is said; the store is as its table says."""
    with Zrecord(store_path, "raw") as z:
        fill(z, numbered(0, 10))
    (store_path / MARK).write_bytes(content)
    with pytest.warns(StoreWarning, match=r"mark\.zr"), Zrecord(store_path, mode="r") as z:
        assert read(z) == numbered(0, 10)
    with warnings_aside(), Zrecord(store_path, "raw") as z:
        fill(z, [b"x"])
    assert not (store_path / MARK).exists()
    assert contents(store_path) == [*numbered(0, 10), b"x"]


def test_a_cut_that_is_cut_off_itself(store_path: Path, next_boot: Any) -> None:
    """Kill the process that recovers at each of its operations; the next one finishes."""
    for number in itertools.count(1):
        path = store_path.with_name(f"{number}.zr")
        killed_session(path)
        flip(path, "0.zr", start_of(path, 15))

        def recover(path: Path = path) -> None:
            mark.boot_id = lambda: b"another boot...."  # type: ignore[assignment]
            with warnings_aside(), Zrecord(path, "raw") as z:
                fill(z, [b"x"])

        killed = not finishes_before(number, recover)
        with pytest.MonkeyPatch.context() as patch, warnings_aside():
            patch.setattr(mark, "boot_id", lambda: b"a third boot....")
            with Zrecord(path, mode="r") as z:
                assert read(z) in (numbered(0, 15), [*numbered(0, 15), b"x"])
            with Zrecord(path, "raw") as z:
                found = read(z)
                fill(z, [b"y"])
        assert found in (numbered(0, 15), [*numbered(0, 15), b"x"])
        assert contents(path) == [*found, b"y"]
        check_sums(path)
        if not killed:
            break
    assert number > 10


def finishes_before(number: int, call: Callable[[], Any]) -> bool:
    """Run a call in a child that is killed at its operation `number` on files; return whether it ended before."""
    pid = os.fork()
    if pid == 0:
        seen = itertools.count(1)

        def observe(*_: object) -> None:
            if next(seen) == number:
                os.kill(os.getpid(), signal.SIGKILL)

        try:
            files.observe = observe
            call()
        except BaseException:
            os._exit(1)
        os._exit(0)
    _, status = os.waitpid(pid, 0)
    if os.WIFSIGNALED(status):
        assert os.WTERMSIG(status) == signal.SIGKILL
        return False
    assert os.WEXITSTATUS(status) == 0, "the call failed in the child"
    return True


# ---- journals ----------------------------------------------------------------------------------------------------

RECORDS = some_records(60)
TARGETS = [*range(0, 40, 3), 58]
DELETED = swap_delete(RECORDS, TARGETS)


def journal_store(path: Path, kind: str) -> list[bytes]:
    """Make a store that is to be deleted from or compacted, and return its records."""
    with SmallChunks(path, "raw") as z:
        fill(z, RECORDS)
        if kind == "compact":
            z.delete(TARGETS)
    return DELETED if kind == "compact" else RECORDS


def carry_out(path: Path, kind: str) -> None:
    with SmallChunks(path, "raw") as z:
        if kind == "delete":
            z.delete(TARGETS)
        else:
            z.compact()


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have compactions go in many blocks."""
    monkeypatch.setattr(compaction, "_BLOCK_BYTES", 900)
    monkeypatch.setattr(compaction, "_LEAST_BLOCK_BYTES", 900)


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("kind", ["delete", "compact"])
def test_killed_at_every_operation(kind: str, store_path: Path) -> None:
    """A reader sees one of the two states and changes nothing; a writer finishes or undoes what it finds."""
    outcomes = set()
    for number in itertools.count(1):
        path = store_path.with_name(f"{number}.zr")
        old = journal_store(path, kind)
        killed = not finishes_before(number, lambda path=path: carry_out(path, kind))
        before = state(path)
        for io in ("mmap", "pread"):
            with SmallChunks(path, mode="r", io=io, verify=True) as z:  # type: ignore[arg-type]
                found = read(z)
        assert found in (old, DELETED)
        assert state(path) == before
        assert loaderx.verify(path).ok
        with SmallChunks(path, "raw", verify=True) as z:
            assert read(z) == found, "a writer comes to the same end as a reader"
            fill(z, [b"x"])
            z.delete([len(z) - 1])
            z.compact()
            assert read(z) == found
        assert contents(path) == found
        assert not (path / JOURNAL).exists() and not (path / MARK).exists()
        assert OracleStore(path).faults() == []
        check_sums(path)
        outcomes.add(found == old)
        if not killed:
            break
    assert number > (10 if kind == "delete" else 40)
    assert outcomes == ({True, False} if kind == "delete" else {True})


def left_by(path: Path, kind: str, moment: str) -> list[bytes]:
    """Make a store on which a change was cut off with its journal whole; return the records before.

    Parameters
    ----------
    path : Path
    kind : {"delete", "compact"}
    moment : {"staged", "half", "entries"}
        Before the first change outside the journal, after one, or after those of the sums and the table.
    """
    old = journal_store(path, kind)
    scratch = path.with_name(path.name + "-scratch")
    journal_store(scratch, kind)
    seen: list[tuple[str, str]] = []

    def observe(operation: str, where: Any, *_: object) -> None:
        name = (
            os.path.basename(os.readlink(f"/proc/self/fd/{where}")) if isinstance(where, int) else where.name
        )
        seen.append((operation, name))

    with pytest.MonkeyPatch.context() as patch, SmallChunks(scratch, "raw") as z:
        patch.setattr(files, "observe", observe)
        z.delete(TARGETS) if kind == "delete" else z.compact()
        patch.setattr(files, "observe", None)
    staged = max(
        number
        for number, (operation, name) in enumerate(seen)
        if operation == "write" and name.startswith("journal") and not wrote_elsewhere(seen[:number], kind)
    )
    changes = [
        number
        for number, (operation, name) in enumerate(seen)
        if number > staged and operation == "write" and not name.startswith("journal")
    ]
    table = [number for number in changes if seen[number] == ("write", "meta.zr")]
    chosen = {"staged": changes[0], "half": changes[1], "entries": table[0] + 1}[moment]
    assert not finishes_before(1 + chosen, lambda: carry_out(path, kind))
    assert (path / JOURNAL).exists()
    return old


def wrote_elsewhere(seen: list[tuple[str, str]], kind: str) -> bool:
    """Return whether a change has touched a chunk (compact) or an entry (delete) yet."""
    touched = {"delete": ("meta.zr",), "compact": tuple(f"{chunk}.zr" for chunk in range(100))}[kind]
    journaled = False
    for operation, name in seen:
        journaled = journaled or name.startswith("journal")
        if journaled and operation == "write" and name in touched:
            return True
    return False


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("kind", ["delete", "compact"])
@pytest.mark.parametrize("moment", ["staged", "half", "entries"])
def test_a_whole_journal(kind: str, moment: str, store_path: Path) -> None:
    left_by(store_path, kind, moment)
    before = state(store_path)
    with SmallChunks(store_path, mode="r", verify=True) as z:
        assert read(z) == DELETED
    assert state(store_path) == before
    with SmallChunks(store_path, "raw"):
        pass
    assert not (store_path / JOURNAL).exists(), "an open for writing carries it out"
    assert contents(store_path) == DELETED
    check_sums(store_path)


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("kind", ["delete", "compact"])
@pytest.mark.parametrize("tear", ["empty", "cut", "cut by one", "a bit", "the last bit", "zeros", "noise"])
def test_a_torn_journal(kind: str, tear: str, store_path: Path) -> None:
    """It is from before the change: nothing has happened yet, and nothing does."""
    old = left_by(store_path, kind, "staged")
    journal = store_path / JOURNAL
    data = bytearray(journal.read_bytes())
    if tear == "empty":
        data = bytearray()
    elif tear == "cut":
        del data[len(data) // 2 :]
    elif tear == "cut by one":
        del data[-1]
    elif tear == "a bit":
        data[len(data) // 3] ^= 4
    elif tear == "the last bit":
        data[-1] ^= 1
    elif tear == "zeros":
        data = bytearray(len(data))
    else:
        data = bytearray(os.urandom(len(data)))
    journal.write_bytes(data)
    before = state(store_path)
    with SmallChunks(store_path, mode="r", verify=True) as z:
        assert read(z) == old
    assert state(store_path) == before
    with SmallChunks(store_path, "raw") as z:
        assert read(z) == old
        fill(z, [b"x"])
        z.delete([0])
    assert not (store_path / JOURNAL).exists()
    assert contents(store_path) == swap_delete([*old, b"x"], [0])
    check_sums(store_path)


def append_as_others_do(path: Path, record: bytes) -> None:
    """Append a record as a program does that knows nothing but the format."""
    store = OracleStore(path)
    with (path / f"{store.tail_chunk}.zr").open("r+b") as chunk:
        chunk.seek(store.tail_offset)
        chunk.write(record)
    with (path / "meta.zr").open("r+b") as meta:
        meta.seek(16 + 16 * store.length)
        meta.write(
            struct.pack("<IIIHBB", store.tail_offset, len(record), len(record), store.tail_chunk, 0, 0)
        )
        meta.seek(6)
        meta.write(struct.pack("<HII", store.tail_chunk, store.tail_offset + len(record), store.length + 1))


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("moment", ["staged", "half", "entries"])
def test_a_delete_that_another_program_has_overtaken(moment: str, store_path: Path) -> None:
    """It is not carried out over what the other program wrote; a writer sets it aside and says so."""
    old = left_by(store_path, "delete", moment)
    append_as_others_do(store_path, b"foreign")
    there = contents(store_path)
    assert there[-1] == b"foreign"
    if moment == "staged":
        assert there == [*old, b"foreign"]
    before = state(store_path)
    with warnings_aside(), SmallChunks(store_path, mode="r", verify=True) as z:
        assert read(z) == there
    assert state(store_path) == before
    with pytest.warns(StoreWarning, match=r"journal\.zr"), SmallChunks(store_path, "raw") as z:
        fill(z, [b"ours"])
        assert read(z) == [*there, b"ours"]
    assert not (store_path / JOURNAL).exists()
    assert len(list(store_path.glob("journal-aside-*.zr"))) == 1
    with SmallChunks(store_path, "raw", verify=True) as z:  # it is in nobody's way
        assert read(z) == [*there, b"ours"]
        z.delete([0])
        z.compact() if moment == "staged" else None  # else two entries may name the same bytes
    assert contents(store_path) == swap_delete([*there, b"ours"], [0])
    assert moment != "staged" or loaderx.verify(store_path).ok


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("moment", ["staged", "half", "entries"])
def test_a_compaction_that_another_program_has_overtaken(moment: str, store_path: Path) -> None:
    """Half of a block has moved and another program appends: no record is lost, neither ours nor the other's."""
    old = left_by(store_path, "compact", moment)
    append_as_others_do(store_path, b"foreign")
    before = state(store_path)
    with warnings_aside(), SmallChunks(store_path, mode="r", verify=True) as z:
        assert read(z) == [*old, b"foreign"]
    assert state(store_path) == before
    with warnings_aside(), SmallChunks(store_path, "raw", verify=True) as z:
        fill(z, [b"ours"])
        assert read(z) == [*old, b"foreign", b"ours"]
    assert not (store_path / JOURNAL).exists()
    assert contents(store_path) == [*old, b"foreign", b"ours"]
    assert loaderx.verify(store_path).ok


@pytest.mark.usefixtures("small_blocks")
def test_a_journal_meets_an_entry_that_another_program_has_changed(store_path: Path) -> None:
    old = left_by(store_path, "delete", "staged")
    with (store_path / "meta.zr").open("r+b") as meta:
        meta.seek(16 + 16 * 50)
        entry = meta.read(16)
        meta.seek(16 + 16 * TARGETS[0])
        meta.write(entry)
    with pytest.warns(StoreWarning, match=r"journal\.zr"), SmallChunks(store_path, "raw") as z:
        fill(z, [b"x"])
    expected = [*old, b"x"]
    expected[TARGETS[0]] = old[50]
    assert contents(store_path) == expected


def test_a_journal_waits_for_a_writer_that_lives(store_path: Path) -> None:
    """A reader must not meddle with a change that a living process is carrying out: it waits, and is refused."""
    journal_store(store_path, "delete")

    def body(pause: Pause) -> None:
        z = SmallChunks(store_path, "raw")
        waiting = True

        def observe(operation: str, *_: object) -> None:
            nonlocal waiting
            if operation == "write" and waiting and (store_path / JOURNAL).exists():
                waiting = False
                pause("in the middle")

        files.observe = observe
        z.delete(TARGETS)
        pause("done")

    with other_process(lambda pause: (pause(), body(pause))) as other:
        assert other.go() == "in the middle"
        before = state(store_path)
        for mode in ("r", "a"):
            with pytest.raises(loaderx.StoreLockedError):
                SmallChunks(store_path, mode=mode, timeout_s=0.2)  # type: ignore[arg-type]
        assert state(store_path) == before
        assert other.go() == "done"
        with SmallChunks(store_path, mode="r") as z:
            assert read(z) == DELETED


@pytest.mark.parametrize("kind", ["delete", "compact"])
def test_many_open_a_store_at_once_after_a_crash(kind: str, store_path: Path) -> None:
    """One of them carries the journal out, or all read beside it; nobody sees anything else."""
    left_by(store_path, kind, "half")

    def look(mode: Any, pause: Pause) -> bool:
        pause()
        with SmallChunks(store_path, mode=mode, verify=True, timeout_s=60) as z:
            return read(z) == DELETED

    with contextlib.ExitStack() as stack:
        readers = [
            stack.enter_context(other_process(lambda pause, mode=mode: look(mode, pause)))
            for mode in "rarara"
        ]
        for reader in readers:
            reader.tell()
        assert [reader.wait() for reader in readers] == [True] * 6
    with SmallChunks(store_path, "raw") as z:
        assert read(z) == DELETED
    assert not (store_path / JOURNAL).exists()


@pytest.mark.parametrize("left", ["a journal", "a mark"])
def test_a_writer_waits_for_those_who_read_what_a_crash_left(
    left: str, store_path: Path, next_boot: Any
) -> None:
    """To mend the files it needs the store alone; until then it reads beside them as they do."""
    if left == "a journal":
        left_by(store_path, "compact", "half")
        expected = DELETED
    else:
        killed_session(store_path)
        flip(store_path, "0.zr", start_of(store_path, 15))
        expected = numbered(0, 15)
    next_boot()

    def body(pause: Pause) -> None:
        with warnings_aside(), SmallChunks(store_path, mode="r") as z:
            for _ in range(2):
                assert read(z) == expected
                pause()
        pause()

    with other_process(body) as other, warnings_aside(), SmallChunks(store_path, "raw", timeout_s=0.2) as z:
        assert read(z) == expected
        with pytest.raises(loaderx.StoreLockedError):
            fill(z, [b"x"])
        assert read(z) == expected
        other.go()
        other.go()
        assert fill(z, [b"x"]) == len(expected)
        assert read(z) == [*expected, b"x"]
    assert contents(store_path) == [*expected, b"x"]
    check_sums(store_path)


@pytest.mark.root
@pytest.mark.parametrize("left", ["a journal", "a mark"])
def test_what_a_crash_left_on_a_read_only_medium(left: str, tmp_path: Path, next_boot: Any) -> None:
    mount = tmp_path / "medium"
    mount.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "tmpfs", mount], check=True)
    path = mount / "s.zr"
    try:
        if left == "a journal":
            left_by(path, "compact", "half")
            expected = DELETED
        else:
            killed_session(path)
            flip(path, "0.zr", start_of(path, 15))
            expected = numbered(0, 15)
        next_boot()
        subprocess.run(["mount", "-o", "remount,ro", mount], check=True)
        with warnings_aside():
            for mode in ("r", "a"):
                with SmallChunks(path, mode=mode, verify=True) as z:  # type: ignore[arg-type]
                    assert read(z) == expected and z.recovery is not None and not z.recovery.on_disk
            report = loaderx.verify(path)
            assert report.ok and report.records == len(expected)
    finally:
        subprocess.run(["umount", mount], check=True)


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


def test_a_handle_that_is_dropped_leaves_its_mark(store_path: Path, next_boot: Any) -> None:
    """Without a close nothing is made to reach the disk, and the mark says so."""
    z = Zrecord(store_path, "raw")
    fill(z, numbered(0, 10))
    del z
    assert (store_path / MARK).exists()
    flip(store_path, "0.zr", start_of(store_path, 5))
    next_boot()
    with pytest.warns(StoreWarning), Zrecord(store_path, mode="r") as reader:
        assert read(reader) == numbered(0, 5)


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
