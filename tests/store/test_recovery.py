"""After a crash: marks of this boot and of another, and journals whole, torn and overtaken."""

from __future__ import annotations

import contextlib
import itertools
import os
import struct
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import loaderx
from loaderx import StoreWarning, Zrecord
from loaderx.store import files, mark
from tests.oracle import OracleStore, swap_delete
from tests.store.children import Pause, finishes_before, other_process
from tests.store.crashes import (
    DELETED,
    JOURNAL,
    MARK,
    TARGETS,
    carry_out,
    journal_store,
    killed_session,
    left_by,
    warnings_aside,
)
from tests.store.samples import SmallChunks, contents, fill, flip, numbered, read, start_of, state
from tests.store.sums import SUMS, check_sums

pytestmark = pytest.mark.usefixtures("nothing_is_made_durable")

# ---- a session that was killed -----------------------------------------------------------------------------------


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


@pytest.mark.parametrize("mode", ["r", "a"])
@pytest.mark.parametrize("left", [99, 100, 101, 102])
@pytest.mark.parametrize("lost", [False, True])
def test_a_record_that_would_end_at_the_last_byte_of_a_chunk(
    mode: Any, left: int, lost: bool, store_path: Path, next_boot: Any
) -> None:
    """There is no room behind it for the byte by which a session's tail is known, so it goes to the next chunk."""
    fill_up_to = (1 << 32) - 1 - left
    with Zrecord(store_path, "raw") as z:
        fill(z, [b"first"])
    with (store_path / "0.zr").open("r+b") as chunk:
        chunk.truncate(fill_up_to)
    with (store_path / "meta.zr").open("r+b") as table:
        os.pwrite(table.fileno(), struct.pack("<I", fill_up_to), 8)

    def body(pause: Pause) -> None:
        z = Zrecord(store_path, "raw")
        fill(z, [b"b" * 100])
        pause()

    with other_process(body) as other:
        other.kill()
    with (store_path / "meta.zr").open("rb") as table:
        chunk_id, tail = struct.unpack_from("<HI", table.read(16), 6)
    assert (chunk_id, tail) == ((1, 101) if left < 101 else (0, fill_up_to + 101))
    if lost:
        zero(store_path, f"{chunk_id}.zr", 0 if chunk_id else fill_up_to, 100)
    next_boot()
    if lost:
        with pytest.warns(StoreWarning), Zrecord(store_path, mode=mode) as z:
            assert read(z) == [b"first"] and z.recovery is not None and z.recovery.cut == range(1, 2)
    else:
        with Zrecord(store_path, mode=mode) as z:
            assert read(z) == [b"first", b"b" * 100] and z.recovery is None


def test_the_longest_record_of_all_that_did_not_reach_the_disk(store_path: Path, next_boot: Any) -> None:
    """It takes the whole of its chunk, and leaves no room."""
    with Zrecord(store_path, "raw") as z:
        fill(z, [b"first"])

    def body(pause: Pause) -> None:
        z = Zrecord(store_path, "raw")
        fill(z, [b"x" * 10])
        pause()

    with other_process(body) as other:
        other.kill()
    longest = (1 << 32) - 1
    with (store_path / "meta.zr").open("r+b") as table:
        os.pwrite(table.fileno(), struct.pack("<4sHHII", b"ZREC", 4, 1, longest, 2), 0)
        os.pwrite(table.fileno(), struct.pack("<IIIHBB", 0, longest, longest, 1, 0, 0), 32)
    (store_path / "1.zr").touch()
    zero(store_path, "sums.zr", (store_path / "sums.zr").stat().st_size - 8, 8)
    next_boot()
    with pytest.warns(StoreWarning), Zrecord(store_path, mode="r") as z:
        assert read(z) == [b"first"] and z.recovery is not None and z.recovery.cut == range(1, 2)


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


# ---- journals ----------------------------------------------------------------------------------------------------


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


@pytest.mark.parametrize("mode", ["a", "r"])
def test_sync_of_a_store_with_a_journal_that_nobody_may_mend(mode: Any, store_path: Path) -> None:
    """Beside another reader: what the journal holds, which is read as a chunk, is no file of that name."""
    with warnings_aside():
        left_by(store_path, "compact", "staged")
        with Zrecord(store_path, mode="r"), Zrecord(store_path, "raw", mode=mode) as z:
            z.sync()
            assert read(z) == DELETED


@pytest.mark.parametrize("moment", ["staged", "half", "entries"])
@pytest.mark.parametrize("kind", ["delete", "compact"])
def test_records_of_a_journal_are_checked(kind: str, moment: str, store_path: Path) -> None:
    """Their sums are in the journal: none of our own records passes for another program's."""
    left_by(store_path, kind, moment)
    with warnings_aside(), Zrecord(store_path, mode="r"):
        report = loaderx.verify(store_path)
    assert (report.ok, report.checked, report.unchecked) == (True, len(DELETED), 0)


def test_a_handle_that_reads_what_a_crash_left_is_known_as_this_processs(store_path: Path) -> None:
    left_by(store_path, "compact", "staged")
    with warnings_aside(), Zrecord(store_path, mode="r"), Zrecord(store_path, "raw", timeout_s=30) as z:
        begun = time.monotonic()
        with pytest.raises(loaderx.StoreLockedError, match="another handle of this process"):
            fill(z, [b"x"])
        assert time.monotonic() - begun < 5
