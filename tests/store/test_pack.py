"""Packing: every file ends where its last byte in use does, and the store is the same to whoever reads it."""

from __future__ import annotations

import errno
import os
import resource
import shutil
import signal
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import loaderx
from loaderx import Dataset, NotAStoreError, OptionError, StoreLockedError, Zrecord, pack, unpack
from loaderx.store import files
from loaderx.store.header import Header
from loaderx.store.pack import SizeChange, plan_pack
from tests.oracle import META_BYTES, WIDE, OracleStore, swap_delete
from tests.store.children import Pause, hold, in_child, other_process
from tests.store.crashes import journal_store, killed_session, left_by
from tests.store.refusals import refusing
from tests.store.samples import SmallChunks, contents, fill, numbered, read, some_records, state
from tests.store.sums import check_sums

pytestmark = pytest.mark.usefixtures("nothing_is_made_durable")

RECORDS = some_records(60)


@pytest.mark.parametrize("lost", [1, 3])
def test_the_way_out_where_others_have_appended_to_a_packed_store(lost: int, store_path: Path) -> None:
    """Without lengthening the table: the header counts records that have no entries."""
    with Zrecord(store_path, "raw") as z:
        fill(z, RECORDS)
    pack(store_path)
    with (store_path / "meta.zr").open("r+b") as table:
        os.pwrite(table.fileno(), (60 + lost).to_bytes(4, "little"), 12)
    with pytest.raises(loaderx.CorruptRecordError) as caught:
        unpack(store_path)
    assert f"the entries of records 60 to {59 + lost} were never in the file" in str(caught.value)
    assert "truncate -s 268435472 meta.zr" in str(caught.value)
    os.truncate(store_path / "meta.zr", 268_435_472)
    with Zrecord(store_path, "raw") as z:
        assert read(z) == [*RECORDS, *[b""] * lost]
        z.delete(list(range(60, 60 + lost)))
    assert contents(store_path) == RECORDS and loaderx.verify(store_path).ok
    check_sums(store_path)


def sizes(path: Path) -> dict[str, int]:
    """Return the sizes of a store's files, but of the lock."""
    return {file.name: file.stat().st_size for file in path.iterdir() if file.name != "lock.zr"}


def needed(path: Path) -> dict[str, int]:
    """Return how long each file that holds records has to be, by the oracle."""
    store = OracleStore(path, newest=WIDE)
    found = {"meta.zr": 16 + 16 * len(store), "sums.zr": 32 + 8 * len(store)}
    for chunk in range(store.tail_chunk + 1):
        entries = store.table[store.table["chunk_id"] == chunk]
        ends = [int(entry["offset"]) + int(entry["phys_length"]) for entry in entries]
        found[f"{chunk}.zr"] = max([0, *ends, store.tail_offset if chunk == store.tail_chunk else 0])
    return found


def check_packed(path: Path, records: list[bytes]) -> None:
    """Check that a store is packed, and holds these records, each with its sum."""
    assert sizes(path) | needed(path) == sizes(path)
    assert contents(path) == records
    report = loaderx.verify(path)
    assert report.ok and report.checked == len(records)
    with Zrecord(path, mode="r", verify=True) as z:
        assert read(z) == records
    check_sums(path)


@pytest.mark.parametrize("codec", ["raw", "zstd"])
@pytest.mark.parametrize("cls", [Zrecord, SmallChunks])
@pytest.mark.parametrize("deleted", [[], [59], [3, 17, 58, 59], range(60)], ids=len)
def test_every_file_ends_with_its_last_byte_in_use(
    cls: type[Zrecord], codec: Any, deleted: Any, store_path: Path
) -> None:
    with cls(store_path, codec) as z:
        fill(z, RECORDS)
        z.delete(deleted)
    records = swap_delete(RECORDS, list(deleted))
    for name in sizes(store_path):  # as loaderx 0.7.3 makes chunks
        if name[0].isdigit():
            os.truncate(store_path / name, 1 << 32)
    before = sizes(store_path)
    change = pack(store_path)
    check_packed(store_path, records)
    after = sizes(store_path)
    assert change.bytes_before == sum(before.values()) and change.bytes_after == sum(after.values())
    assert change.resized == tuple(sorted(name for name in before if before[name] != after[name]))
    assert "meta.zr" in change.resized and "0.zr" in change.resized and change.removed == ()
    assert 0 < change.allocated_after <= change.allocated_before
    assert (store_path / "lock.zr").stat().st_size == 0


def test_packing_twice_changes_nothing(store_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with SmallChunks(store_path) as z:
        fill(z, RECORDS)
    first = pack(store_path)
    before = state(store_path)
    seen: list[Any] = []
    monkeypatch.setattr(files, "observe", lambda *details: seen.append(details))
    second = pack(store_path)
    monkeypatch.undo()
    del before["lock.zr"]
    assert {name: held for name, held in state(store_path).items() if name != "lock.zr"} == before
    assert {details[0] for details in seen} == {"write", "truncate", "fsync"}  # of the lock, and syncs
    assert second.changed == () and second.bytes_before == second.bytes_after == first.bytes_after


def test_an_empty_store(store_path: Path) -> None:
    Zrecord(store_path).close()
    assert pack(store_path).bytes_after == 16
    assert sizes(store_path) == {"meta.zr": 16, "0.zr": 0}
    with Zrecord(store_path) as z:
        assert len(z) == 0 and fill(z, [b"first"]) == 0
    assert contents(store_path) == [b"first"]


def test_empty_records_lie_inside_their_chunks(store_path: Path) -> None:
    """Also where they are the last of a chunk that was left for the next one: a reader refuses them beyond its end."""
    records = [b"a" * 500, b"b" * 400, b"", b"c" * 300, b""]
    with SmallChunks(store_path, "raw") as z:
        fill(z, records)
        z.delete([1])
    pack(store_path)
    check_packed(store_path, swap_delete(records, [1]))


@pytest.mark.parametrize("kind", ["same handle", "another", "Dataset"])
def test_an_append_makes_meta_long_again(kind: str, store_path: Path) -> None:
    rows = np.arange(400, dtype="<i4").reshape(100, 4)
    loaderx.write_dataset(store_path, rows, "raw", progress=False)
    records = [row.tobytes() for row in rows]
    if kind == "same handle":
        with Zrecord(store_path, "raw") as z:
            fill(z, records[:1])
            assert z.pack().resized == ("meta.zr",)
            assert sizes(store_path)["meta.zr"] == 16 + 16 * 101 and read(z) == [*records, records[0]]
            fill(z, records[:1])
            assert sizes(store_path)["meta.zr"] == META_BYTES and read(z) == [*records, *records[:1] * 2]
        assert contents(store_path) == [*records, *records[:1] * 2]
        return
    pack(store_path)
    if kind == "another":
        with Zrecord(store_path, "raw") as z:
            fill(z, records[:2])
    else:
        loaderx.write_dataset(store_path, rows[:2], progress=False)
    assert sizes(store_path)["meta.zr"] == META_BYTES
    assert contents(store_path) == records + records[:2]
    with Dataset(store_path, verify=True) as ds:
        np.testing.assert_array_equal(ds[:], np.concatenate([rows, rows[:2]]))
    assert loaderx.verify(store_path).checked == 102


@pytest.mark.parametrize("cls", [Zrecord, SmallChunks])
def test_deletes_and_compactions_of_a_packed_store(cls: type[Zrecord], store_path: Path) -> None:
    with cls(store_path, "raw") as z:
        fill(z, RECORDS)
    pack(store_path)
    records = swap_delete(RECORDS, [0, 7, 59])
    with cls(store_path, "raw", verify=True) as z:
        z.delete([0, 7, 59])
        assert read(z) == records
        z.compact()
        assert read(z) == records
        assert "sums.zr" not in z.pack().resized
        check_packed_here = read(z)
    assert check_packed_here == records
    check_packed(store_path, records)


def test_a_plain_copy_has_the_packed_bytes(store_path: Path) -> None:
    loaderx.write_dataset(store_path, np.arange(30_000).reshape(-1, 3), "zstd_dict", level=1, progress=False)
    change = pack(store_path)
    copy = store_path.with_name("copy.zr")
    copy.mkdir()
    for file in store_path.iterdir():  # a plain read and write, which knows no holes
        (copy / file.name).write_bytes(file.read_bytes())
    written = sum(file.stat().st_size for file in copy.iterdir())
    assert written == change.bytes_after < 1 << 20
    shutil.rmtree(store_path)
    with Dataset(copy, verify=True) as ds:
        np.testing.assert_array_equal(ds[:], np.arange(30_000).reshape(-1, 3))
    report = loaderx.verify(copy)
    assert report.ok and report.checked == 10_000 and report.recovery is None
    assert unpack(copy).bytes_after == written + META_BYTES - (16 + 16 * 10_000)
    loaderx.write_dataset(copy, np.arange(3).reshape(1, 3), progress=False)
    assert len(Dataset(copy)) == 10_001


def test_unpack(store_path: Path) -> None:
    with SmallChunks(store_path) as z:
        fill(z, RECORDS)
    full = sizes(store_path)
    assert unpack(store_path).changed == ()
    assert sizes(store_path) == full
    packed = pack(store_path)
    change = unpack(store_path)
    assert change.resized == ("meta.zr",) and sizes(store_path) == full
    assert (change.bytes_before, change.bytes_after) == (packed.bytes_after, packed.bytes_before)
    assert change.allocated_after < 1 << 20
    assert contents(store_path) == RECORDS and loaderx.verify(store_path).checked == 60


def test_a_wide_store(store_path: Path) -> None:
    records = [np.arange(at, at + 500, dtype="<f4").tobytes() for at in range(20)]
    with Zrecord(store_path, "zstd_shuffle") as z:
        z.append(b"".join(records), 20, 2000, item_size=4)
        z.delete([19])
    pack(store_path)
    packed = sizes(store_path)
    assert packed | needed(store_path) == packed and packed["meta.zr"] == 16 + 16 * 19
    assert unpack(store_path).changed == () and sizes(store_path) == packed
    with Zrecord(store_path, "zstd_shuffle", verify=True) as z:
        assert read(z) == records[:19]
        z.append(records[19], 1, 2000, item_size=4)
        assert read(z) == records
    assert sizes(store_path)["meta.zr"] == 16 + 16 * 20
    assert loaderx.verify(store_path).checked == 20


def test_leftovers_are_swept(store_path: Path) -> None:
    with SmallChunks(store_path) as z:
        fill(z, RECORDS[:20])
    tail = OracleStore(store_path).tail_chunk
    left = [f"{tail + 1}.zr", f"{tail + 2}.zr", ".dict.zr.partial-1-ab", ".meta.zr.partial-9999-cd"]
    aside = "journal-aside-0f1e2d3c.zr"
    for name in [*left, aside, "notes.txt", "007.zr"]:
        (store_path / name).write_bytes(b"left" * 100)
    (store_path / ".NAME.partial-1-ab").mkdir()
    change = pack(store_path)
    assert change.removed == tuple(sorted(left)) and change.set_aside == (aside,)
    assert set(change.changed) == {*left, *change.resized}
    for name in [aside, "notes.txt", "007.zr"]:
        assert (store_path / name).read_bytes() == b"left" * 100
    assert change.bytes_after == sum(needed(store_path).values()) + 400
    assert (store_path / ".NAME.partial-1-ab").is_dir()
    assert not {*left} & {*os.listdir(store_path)}
    with Zrecord(store_path, mode="r") as z:
        assert read(z) == RECORDS[:20]


def test_what_a_living_writer_is_about_to_finish_stays(store_path: Path) -> None:
    Zrecord(store_path).close()
    path = store_path / ".dict.zr.partial-1-ab"

    def body(pause: Pause) -> None:
        import fcntl

        with path.open("wb") as stream:
            fcntl.flock(stream, fcntl.LOCK_EX)
            pause()

    with other_process(body):
        assert pack(store_path).removed == () and path.exists()
    assert pack(store_path).removed == (path.name,)


def test_no_bytes_that_an_entry_names_are_removed(store_path: Path) -> None:
    """Of a damaged store neither, in which an entry names a chunk behind the tail, or bytes behind it."""
    with Zrecord(store_path, "raw") as z:
        fill(z, numbered(0, 10))
    tail = (store_path / "0.zr").stat().st_size
    os.truncate(store_path / "0.zr", tail + 50)
    (store_path / "3.zr").write_bytes(b"x" * 90)
    with (store_path / "meta.zr").open("r+b") as meta:
        for index, (offset, length, chunk) in {2: (40, 30, 3), 5: (tail, 20, 0)}.items():
            words = np.array([(offset, length, length, chunk, 0, 0)], "<u4,<u4,<u4,<u2,u1,u1")
            os.pwrite(meta.fileno(), words.tobytes(), 16 + 16 * index)
    pack(store_path)
    assert sizes(store_path)["3.zr"] == 70 and sizes(store_path)["0.zr"] == tail + 20
    assert (store_path / "3.zr").read_bytes() == b"x" * 70


def test_the_plan_never_makes_a_file_longer() -> None:
    ends = np.full(1 << 16, -1, np.int64)
    ends[[0, 2]] = 7, 9
    short = {"meta.zr": 3, "sums.zr": 32, "0.zr": 7, "1.zr": 0, "2.zr": 8, "dict.zr": 900, "schema.json": 70}
    assert plan_pack(Header(2, 10, 4), ends, short) == ({}, [])
    long = {"meta.zr": 1 << 28, "sums.zr": 99, "0.zr": 99, "1.zr": 99, "2.zr": 99, "3.zr": 0, "dict.zr": 9}
    cuts = {"meta.zr": 80, "sums.zr": 64, "0.zr": 7, "1.zr": 0, "2.zr": 10}
    assert plan_pack(Header(2, 10, 4), ends, long) == (cuts, [3])


# ---- who may do it, and when -------------------------------------------------------------------------------------


@pytest.mark.parametrize("change", [pack, unpack])
@pytest.mark.parametrize("mode", ["r", "a"])
def test_others_who_have_the_store(change: Callable[..., SizeChange], mode: Any, store_path: Path) -> None:
    with Zrecord(store_path, "raw") as z:
        fill(z, numbered(0, 10))
    with other_process(lambda pause: hold(store_path, pause, mode=mode)) as other:
        before = sizes(store_path)
        with pytest.raises(StoreLockedError) as caught:
            change(store_path, timeout_s=0.2)
        assert caught.value.holder == other.pid and sizes(store_path) == before
        assert other.go() == "closed"
    with Zrecord(store_path, mode=mode) as here:
        with pytest.raises(StoreLockedError, match="this process"):
            change(store_path)
        assert read(here)[:10] == numbered(0, 10)
    pack(store_path)
    check_packed(store_path, contents(store_path))


def test_mode_r_refuses(store_path: Path) -> None:
    Zrecord(store_path).close()
    with Zrecord(store_path, mode="r") as z:
        for change in (z.pack, z.unpack):
            with pytest.raises(OptionError, match="mode 'a'"):
                change()
    assert sizes(store_path)["meta.zr"] == META_BYTES


@pytest.mark.parametrize("change", [pack, unpack])
@pytest.mark.parametrize("kind", ["nothing", "file", "folder"])
def test_what_is_no_store(change: Callable[..., SizeChange], kind: str, tmp_path: Path) -> None:
    path = tmp_path / "x"
    if kind == "file":
        path.write_text("text")
    elif kind == "folder":
        path.mkdir()
    with pytest.raises(NotAStoreError):
        change(path)
    assert [file.name for file in tmp_path.rglob("*")] == ([] if kind == "nothing" else ["x"])


def test_gathers_beside_it(store_path: Path) -> None:
    with SmallChunks(store_path) as z, ThreadPoolExecutor(3) as pool:
        fill(z, RECORDS)
        stop = False

        def gather() -> int:
            n = 0
            while not stop:
                assert read(z) == RECORDS
                n += 1
            return n

        running = [pool.submit(gather) for _ in range(3)]
        try:
            for _ in range(20):
                z.pack()
                z.unpack()
        finally:
            stop = True
        assert all(future.result() for future in running)


# ---- what a crash, a full disk and a signal leave ----------------------------------------------------------------


def test_a_killed_session(store_path: Path) -> None:
    killed_session(store_path)
    change = pack(store_path)
    assert change.resized == ("0.zr", "meta.zr", "sums.zr") and change.removed == ()
    check_packed(store_path, numbered(0, 20))


@pytest.mark.parametrize("kind", ["delete", "compact"])
def test_a_journal_is_carried_out_before(kind: str, store_path: Path) -> None:
    left_by(store_path, kind, "half")
    pack(store_path)
    records = contents(store_path)
    assert len(records) == 45
    check_packed(store_path, records)
    assert not (store_path / "journal.zr").exists()


def test_a_store_without_sums(store_path: Path) -> None:
    with Zrecord(store_path) as z:
        fill(z, RECORDS)
    (store_path / "sums.zr").unlink()
    assert pack(store_path).resized == ("meta.zr",)
    assert contents(store_path) == RECORDS and not (store_path / "sums.zr").exists()


@pytest.mark.parametrize("once", [True, False], ids=["once", "from then on"])
@pytest.mark.parametrize("operation", ["truncate", "fsync", "unlink"])
def test_a_refused_operation(operation: str, once: bool, store_path: Path) -> None:
    """Every record is there, whoever reads, and packing again is all there is to do."""
    for after in range(100):
        path = store_path.with_name(f"{after}.zr")
        records = journal_store(path, "compact")
        os.truncate(path / "0.zr", 5000)
        (path / "99.zr").write_bytes(b"left")
        z = SmallChunks(path)
        refused = False
        with refusing(operation, after=after, once=once) as seen:
            try:
                z.pack()
            except loaderx.StoreIOError as error:
                refused = True
                assert error.errno == errno.ENOSPC and error.store == path
            assert read(z) == records
        z.close()
        if not refused:
            break
        with SmallChunks(path, verify=True) as z:
            assert read(z) == records
            z.pack()
        check_packed(path, records)
    assert not refused and 0 < after <= seen.count(operation)


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_is_no_reason_not_to_pack(number: int, store_path: Path) -> None:
    """Packing only cuts and removes; a note of who holds the store is all that would be written."""
    with SmallChunks(store_path) as z:
        fill(z, RECORDS)
    (store_path / "99.zr").write_bytes(b"left")
    (store_path / "lock.zr").write_bytes(b'{"pid": 1, "host": "another"}')  # a killed writer's
    with SmallChunks(store_path) as z, refusing("write", number=number) as seen:
        assert z.pack().removed == ("99.zr",)
        assert "write" in seen
        assert (store_path / "lock.zr").read_bytes() == b"", "another's note would be a lie"
    check_packed(store_path, RECORDS)
    with SmallChunks(store_path) as z, refusing("write", number=number):
        with pytest.raises(loaderx.StoreIOError) as caught:
            fill(z, RECORDS[:1])
        assert caught.value.errno == number


def test_another_failure_of_the_lock_is_one(store_path: Path) -> None:
    with SmallChunks(store_path) as z:
        fill(z, RECORDS)
        z.close()
    with refusing("write", number=errno.EIO), pytest.raises(loaderx.StoreIOError) as caught:
        pack(store_path)
    assert caught.value.errno == errno.EIO


def test_a_limit_on_sizes(store_path: Path) -> None:
    with Zrecord(store_path) as z:
        fill(z, RECORDS)
    pack(store_path)

    def limited() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))
        unpack(store_path)

    with pytest.raises(loaderx.StoreIOError, match="could not unpack it: File too large"):
        in_child(limited)
    check_packed(store_path, RECORDS)
