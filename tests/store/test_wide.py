"""Stores of version 4: records over 1 MiB, places above 4 GiB, long tables, chunks beyond 4,095.

What is large here is a hole: the files are sparse, and the memory that a call may take is limited.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import resource
import struct
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import loaderx
from loaderx import Zrecord
from loaderx.store import append, header, snapshot
from loaderx.store.format import META_BYTES, VERSION_AT, entry_at, room_for
from tests.conftest import MANY_FILES, rss_anon_bytes
from tests.oracle import LIMITS, RAW, VERSION, WIDE, ZSTD, ZSTD_SHUFFLE, Forge, OracleStore
from tests.store.children import in_child
from tests.store.samples import (
    ITEMS,
    LARGE,
    OVER,
    SmallChunks,
    contents,
    fill,
    read,
    start_of_meta,
    version_of,
)
from tests.store.sums import check_sums, header_bytes

pytestmark = pytest.mark.usefixtures("nothing_is_made_durable")

MIB = 1 << 20
NARROW_RECORDS = 1 << 24


# --- large records -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("io", ["mmap", "pread"])
@pytest.mark.parametrize(
    ("codec", "item_size"),
    [
        ("raw", None),
        ("zstd", None),
        ("zstd_shuffle", 4),
        ("zstd_shuffle", 3),
        ("zstd_dict", None),
        ("zstd_shuffle_dict", 2),
    ],
)
def test_records_around_1_mib(tmp_path: Path, codec: Any, item_size: int | None, io: Any) -> None:
    rng = np.random.default_rng(1)
    sizes = [0, 1, MIB - 1, MIB, OVER, 3 * MIB + 7]
    records = [np.cumsum(rng.integers(0, 9, size), dtype=np.uint8).tobytes() for size in sizes]
    path = tmp_path / "a.zr"
    with Zrecord(path, codec, io=io, level=None if codec == "raw" else 1) as z:
        if codec.endswith("dict"):
            samples = [records[-1][at : at + 2000] for at in range(0, 2 * MIB, 2000)]
            z.train_dict(b"".join(samples), [2000] * len(samples), 4096, item_size=item_size)
        z.append_var(b"".join(records), np.cumsum([0, *sizes])[:-1], sizes, item_size=item_size)
        assert read(z) == records
        assert z.lengths(np.arange(6)).tolist() == sizes
        out = np.zeros((2, 4 * MIB), np.uint8)
        z.gather([5, 4], out, 4 * MIB)
        assert out[0, : sizes[5]].tobytes() == records[5] and out[1, :OVER].tobytes() == records[4]
    written = OracleStore(path)
    assert written.version == WIDE
    assert written.records() == records
    assert written.faults() == []
    check_sums(path)
    with Zrecord(path, mode="r", verify=True) as z:
        assert read(z) == records


def test_a_record_of_1_mib_leaves_the_version(tmp_path: Path) -> None:
    with Zrecord(tmp_path / "a.zr", "raw") as z:
        z.append(bytes(MIB), 1, MIB)
    assert OracleStore(tmp_path / "a.zr", newest=VERSION).records() == [bytes(MIB)]


@contextlib.contextmanager
def memory_limit(more_bytes: int) -> Iterator[None]:
    """Refuse this process memory beyond what it has and so much. For a child only."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    now = int(status.split("VmData:")[1].split()[0]) * 1024
    resource.setrlimit(resource.RLIMIT_DATA, (now + more_bytes, resource.RLIM_INFINITY))
    yield


@pytest.mark.parametrize(
    ("codec", "io"), [("raw", "mmap"), ("zstd", "mmap"), ("zstd_shuffle", "mmap"), ("zstd_shuffle", "pread")]
)
def test_a_record_of_100_mib_in_bounded_memory(tmp_path: Path, codec: Any, io: Any) -> None:
    """Written, read, verified, moved by a delete and by a compaction: never with more than some copies of it."""
    n_bytes = 100 * MIB
    path, source_path, target_path = tmp_path / "a.zr", tmp_path / "source", tmp_path / "target"
    step = np.arange(MIB // 4, dtype="<u4")
    with source_path.open("wb") as file:
        for number in range(100):
            file.write((step + number).tobytes())
    with target_path.open("wb") as file:
        file.truncate(n_bytes)

    def work() -> list[int]:
        source = np.memmap(source_path, np.uint8, "r")
        target = np.memmap(target_path, np.uint8, "r+")
        before = rss_anon_bytes()
        grown = []
        level = None if codec == "raw" else 1
        with memory_limit(340 * MIB), Zrecord(path, codec, io=io, threads=1, level=level, upgrade=True) as z:
            for call in (
                lambda: z.append(b"small" * 20, 1, 100, "raw"),
                lambda: z.append(source, 1, n_bytes, item_size=4),
                lambda: z.append(b"other" * 20, 1, 100, "raw"),
                lambda: z.gather([1], target, n_bytes),
                lambda: z.delete([0]),  # the last takes its place
                lambda: z.delete([0]),  # and now the large one does
                lambda: z.compact(),
            ):
                call()
                grown.append(rss_anon_bytes() - before)
            assert len(z) == 1 and np.array_equal(source, target)
            target[:] = 0
            z.gather([0], target, n_bytes)
            assert np.array_equal(source, target)
        with memory_limit(230 * MIB):
            report = loaderx.verify(path, threads=1)
        assert report.ok and (report.records, report.checked) == (1, 1)
        return [*grown, rss_anon_bytes() - before]

    assert max(in_child(work, timeout_s=120)) < 24 * MIB, "what a call took is given back"
    assert version_of(path) == WIDE
    assert OracleStore(path).limits == LIMITS[WIDE]
    stored = sum(file.stat().st_blocks * 512 for file in path.iterdir())
    assert stored < n_bytes + MIB, "what was freed is given back"
    for large in (source_path, target_path, path / "0.zr"):
        large.unlink()  # pytest keeps what a test leaves


# --- places above 4 GiB ------------------------------------------------------------------------------------------

FAR = (1 << 32) - 1


@pytest.fixture
def far_apart(tmp_path: Path) -> tuple[Path, list[bytes]]:
    """A store whose records lie at the beginning and at the end of chunks, most of each a hole."""
    forge = Forge(version=WIDE)
    records = [b"first", LARGE, b"near the end", b"c" * 700, b"over" * 1000, ITEMS, b"last", LARGE[::-1]]
    forge.add(records[0])
    forge.add(records[1], at=(0, (1 << 31) - 3))
    forge.add(records[2], at=(0, FAR - len(records[2])))
    forge.add(records[3], ZSTD, at=(1, 0), keep=True)
    forge.add(records[4], at=(1, FAR - 4000))
    forge.add(records[5], ZSTD_SHUFFLE, item_size=4, at=(3, FAR - 8001))
    forge.add(records[6])
    forge.add(records[7], ZSTD, at=(7, 5))
    return forge.write(tmp_path / "far.zr"), records


@pytest.mark.parametrize("io", ["mmap", "pread"])
@pytest.mark.parametrize("threads", [1, 3])
def test_reads_across_4_gib(far_apart: tuple[Path, list[bytes]], io: Any, threads: int) -> None:
    path, records = far_apart
    assert OracleStore(path).records() == records
    with Zrecord(path, mode="r", io=io, threads=threads) as z:
        assert read(z) == records
        order = np.random.default_rng(2).integers(0, len(records), 200)
        data, splits = z.gather_packed(order)
        assert data.tobytes() == b"".join(records[index] for index in order)
        assert splits[-1] == sum(len(records[index]) for index in order)
        z.prefetch(order)
        out = np.zeros((len(records), OVER), np.uint8)
        z.gather(np.arange(len(records)), out, OVER)
        assert [row[: len(record)].tobytes() for row, record in zip(out, records, strict=True)] == records
    report = loaderx.verify(path)
    assert report.ok and report.unchecked == len(records)


def test_appends_deletes_and_compacts_across_4_gib(far_apart: tuple[Path, list[bytes]]) -> None:
    path, records = far_apart
    with Zrecord(path, "raw") as z:
        fill(z, [b"behind", LARGE])
        assert read(z) == [*records, b"behind", LARGE]
        z.delete([0, 9])
        assert read(z) == [b"behind", *records[1:]]
        z.compact()
        assert read(z) == [b"behind", *records[1:]]
    assert contents(path) == [b"behind", *records[1:]]
    assert OracleStore(path).faults() == []
    check_sums(path, unchecked=range(1, 8))
    assert sorted(name for name in os.listdir(path) if name[0].isdigit()) == ["0.zr"]


def test_a_chunk_ends_before_4_gib(tmp_path: Path) -> None:
    """A record that would end at 2**32 - 1, with no byte of room behind it, goes to the next chunk."""
    forge = Forge(version=WIDE)
    forge.add(b"x", at=(0, FAR - 2000))
    path = forge.write(tmp_path / "a.zr")
    with Zrecord(path, "raw") as z:
        fill(z, [b"y" * 1998])
        assert z.stats()["chunk_bytes"] == FAR - 1
        fill(z, [b"z", b""])
        assert read(z) == [b"x", b"y" * 1998, b"z", b""]
        assert z.stats()["chunk_bytes"] == (1 << 32) + 1
    table = OracleStore(path).table
    assert table["chunk_id"].tolist() == [0, 0, 1, 1]
    assert table["offset"].tolist() == [FAR - 2000, FAR - 1999, 0, 1]
    check_sums(path, unchecked=[0])


def test_the_largest_record(tmp_path: Path) -> None:
    """One that fills its chunk, of a hole: found and measured, and refused where nobody has room for it."""
    forge = Forge(version=WIDE)
    forge.add(b"before")
    forge.entries.append(
        {"offset": 0, "phys_length": FAR, "logic_length": FAR, "chunk_id": 1, "codec": RAW, "reserved": 0}
    )
    forge.length, forge.tail_chunk, forge.tail_offset = 2, 1, FAR
    forge.chunks[1] = bytearray()
    path = forge.write(tmp_path / "a.zr")
    for io in ("mmap", "pread"):
        with Zrecord(path, mode="r", io=io) as z:
            os.truncate(path / "1.zr", FAR)
            assert z.lengths([1, 0]).tolist() == [FAR, 6]
            with pytest.raises(loaderx.DestinationError) as short:
                z.gather([0, 1], bytearray(200), 100)
            assert str(FAR) in str(short.value)
            with pytest.raises(loaderx.DestinationError):
                z.gather_var([1], bytearray(200), [0])
            with pytest.raises(loaderx.OptionError):
                z.gather_packed([0, 1], max_bytes=1 << 32)
            with pytest.raises(loaderx.OptionError):
                z.gather_padded([0, 1], max_bytes=1 << 32)
            stats = z.stats()
            assert (stats["logical_bytes"], stats["reclaimable"]) == (FAR + 6, (1 << 32) - 6)
    os.truncate(path / "1.zr", FAR - 1)
    (damage,) = loaderx.verify(path).damaged
    assert (damage.record, damage.chunk, damage.byte_offset) == (1, 1, 0)
    assert f"{FAR - 1} bytes" in damage.problem
    with (path / "meta.zr").open("r+b") as file:
        file.seek(VERSION_AT)
        file.write(struct.pack("<H", VERSION))
    with Zrecord(path, mode="r") as z, pytest.raises(loaderx.CorruptRecordError, match="1048576"):
        z.lengths([1])


def test_a_read_that_gives_less_than_asked_costs_no_sum(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A system reads no more than 2 GiB at once; here it is 1,000 bytes."""
    path = tmp_path / "a.zr"
    with Zrecord(path, "raw") as z:
        fill(z, [LARGE, ITEMS])
    with (path / "meta.zr").open("r+b") as file:  # another tail, so that the last records are looked at
        file.seek(8)
        file.write(struct.pack("<I", len(LARGE) + len(ITEMS) + 1))
    preadv, pread = os.preadv, os.pread
    monkeypatch.setattr(os, "preadv", lambda fd, views, at: preadv(fd, [views[0][:1000]], at))
    monkeypatch.setattr(os, "pread", lambda fd, n_bytes, at: pread(fd, min(n_bytes, 1000), at))
    with Zrecord(path, "raw") as z:
        fill(z, [b"behind"])
        assert read(z) == [LARGE, ITEMS, b"behind"]
    assert loaderx.verify(path).unchecked == 0


def test_a_record_over_every_limit_is_refused_before_a_byte_is_read(tmp_path: Path) -> None:
    with (tmp_path / "source").open("wb") as file:
        file.truncate((1 << 32) + 5)
    source = np.memmap(tmp_path / "source", np.uint8, "r")
    with Zrecord(tmp_path / "a.zr", "raw", upgrade=True) as z:
        for refused in (
            lambda: z.append(source, 1, 1 << 32),
            lambda: z.append_var(source, [0, 5], [3, 1 << 32]),
        ):
            with pytest.raises(loaderx.RecordTooLargeError) as caught:
                refused()
            assert (caught.value.record_bytes, caught.value.limit_bytes) == (1 << 32, FAR)
            assert "upgrade" not in str(caught.value), "no version takes it"
        assert z.append(source, 0, 1 << 33) == 0
        assert len(z) == 0
    assert version_of(tmp_path / "a.zr") == VERSION


# --- long tables -------------------------------------------------------------------------------------------------


def long_store(path: Path, length: int, *, summed: bool = True) -> list[bytes]:
    """Make a store of many records of no bytes, a hole in its table, and three at its end; return those.

    `summed`: with a sums.zr whose mark is right, so that nobody need look through the table.
    """
    last = [b"last but two", b"last but one", b"the last"]
    forge = Forge(version=WIDE if length > NARROW_RECORDS else VERSION, blank=length - 3)
    for record in last:
        forge.add(record)
    forge.write(path)
    if summed:
        with (path / "sums.zr").open("wb") as file:
            file.write(header_bytes(forge.tail_chunk, forge.tail_offset, length))
            file.truncate(entry_at(0) + 16 + 8 * length)
    return last


@pytest.mark.parametrize("io", ["mmap", "pread"])
@pytest.mark.parametrize("length", [NARROW_RECORDS, NARROW_RECORDS + 5, 1 << 26, (1 << 32) - 1])
def test_opens_a_table_of_any_length(tmp_path: Path, length: int, io: Any) -> None:
    path = tmp_path / "a.zr"
    last = long_store(path, length, summed=False)
    with Zrecord(path, mode="r", io=io):
        pass  # what is loaded but once
    before = rss_anon_bytes()
    begin = time.perf_counter()
    with Zrecord(path, mode="r", io=io, verify=True) as z:
        took = time.perf_counter() - begin
        assert rss_anon_bytes() - before < 2 * MIB
        assert len(z) == length
        indices = [length - 1, 0, length // 2, -2, length - 3, -length]
        data, _ = z.gather_packed(indices)
        assert data.tobytes() == last[2] + last[1] + last[0]
        assert rss_anon_bytes() - before < 2 * MIB
        with pytest.raises(loaderx.RecordIndexError):
            z.lengths([length])
    assert took < 1, "opening costs no look at the table"


@pytest.mark.parametrize("io", ["mmap", "pread"])
@pytest.mark.parametrize("length", [NARROW_RECORDS + 5, 1 << 26])
def test_appends_to_a_long_table_and_deletes_from_it(tmp_path: Path, length: int, io: Any) -> None:
    path = tmp_path / "a.zr"
    last = long_store(path, length)
    with Zrecord(path, mode="r", io=io) as other, contextlib.closing(Zrecord(path, "raw", io=io)) as z:
        before = rss_anon_bytes()
        assert fill(z, [b"a", LARGE]) == length
        assert other.refresh() == len(z) == length + 2
        for handle in (z, other):
            assert handle.gather_packed([length - 1, length, -1])[0].tobytes() == last[2] + b"a" + LARGE
        other.close()
        z.delete([length + 1])
        assert len(z) == length + 1
        z.delete([2, length - 1])
        assert z.lengths([2, -1]).tolist() == [1, len(last[1])]
        assert z.gather_packed([2, -1])[0].tobytes() == b"a" + last[1]
        assert fill(z, [b"b"]) == length - 1
        assert rss_anon_bytes() - before < 8 * MIB
    store = OracleStore(path)
    assert (store.length, store.version) == (length, WIDE)
    assert [store.record(index) for index in (2, length - 2, length - 1)] == [b"a", last[1], b"b"]


def test_a_table_grows_over_2_24_under_other_handles(tmp_path: Path) -> None:
    """The map that reaches to 16,777,216 records gives way to a longer one, with each way of reading."""
    path = tmp_path / "a.zr"
    long_store(path, NARROW_RECORDS - 2)
    with (
        Zrecord(path, mode="r", verify=True) as mapped,
        Zrecord(path, mode="r", io="pread") as unmapped,
        Zrecord(path, "raw", upgrade=True, verify=True) as z,
    ):
        tables = [handle._snapshot.table for handle in (mapped, unmapped)]
        assert [table.capacity for table in tables] == [META_BYTES] * 2
        fill(z, [b"A", b"B"])
        assert version_of(path) == VERSION, "as many as version 3 holds"
        assert [mapped.refresh(), unmapped.refresh()] == [NARROW_RECORDS] * 2
        assert [mapped._snapshot.table, unmapped._snapshot.table] == tables, "the maps still reach"
        fill(z, [b"C"])
        assert version_of(path) == WIDE
        fill(z, [b"D", b"E"])
        for handle in (mapped, unmapped):
            assert len(handle) == NARROW_RECORDS
            assert handle.refresh() == NARROW_RECORDS + 3
        for handle in (mapped, unmapped, z):
            assert handle.gather_packed(np.arange(-6, 0))[0].tobytes() == b"the lastABCDE"
        assert mapped._snapshot.table.capacity == entry_at(room_for(NARROW_RECORDS + 3))


def test_more_records_than_any_store_has_room_for(store_path: Path) -> None:
    """A new store becomes whatever version it has to be, so the limit is the last version's."""
    with Zrecord(store_path) as z:
        with pytest.raises(
            loaderx.StoreFullError, match="a store of format version 4 ends at 4294967295 records"
        ):
            z.append(b"", 1 << 32, 0)
        z.append(b"", 1, 0)
        with pytest.raises(loaderx.StoreFullError, match=r"version 3 ends at 16777216 records.*upgrade=True"):
            z.append(b"", 1 << 31, 0)
        with pytest.raises(loaderx.StoreFullError, match=r"Begin another store$"):
            z.append(b"", 1 << 32, 0)  # which an upgrade would not help


def test_a_full_store_of_version_4(tmp_path: Path) -> None:
    path = tmp_path / "a.zr"
    long_store(path, (1 << 32) - 3)
    with Zrecord(path, "raw", upgrade=True) as z:
        assert fill(z, [b"x"]) == (1 << 32) - 3
        with pytest.raises(loaderx.StoreFullError) as caught:
            fill(z, [b"y", b"z"])
        assert (caught.value.length, caught.value.limit) == ((1 << 32) - 2, (1 << 32) - 1)
        assert "upgrade" not in str(caught.value)
        assert "a store of format version 4 ends at 4294967295 records" in str(caught.value)
        assert fill(z, [b"y"]) == (1 << 32) - 2
        assert z.gather_packed([-2, -1])[0].tobytes() == b"xy"
        with pytest.raises(loaderx.StoreFullError):
            fill(z, [b""])


@pytest.mark.parametrize("io", ["mmap", "pread"])
def test_maps_that_are_too_short_are_made_anew(
    tmp_path: Path, io: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With maps of a few records the same as with those of millions: after every change every handle sees all."""
    monkeypatch.setattr(snapshot, "META_BYTES", entry_at(8))
    monkeypatch.setattr(snapshot, "room_for", lambda length: max(8, 1 << (2 * length).bit_length()))
    path = tmp_path / "a.zr"
    expected: list[bytes] = []
    rng = np.random.default_rng(3)
    with Zrecord(path, "raw", io=io, verify=True) as z:
        for turn in range(60):
            if turn % 7 == 5:
                gone = sorted(rng.permutation(len(expected))[2:].tolist(), reverse=True)
                z.delete(gone)
                for index in gone:
                    expected[index] = expected[-1]
                    expected.pop()
            else:
                new = [b"%d of %d" % (number, turn) for number in range(int(rng.integers(1, 12)))]
                fill(z, new)
                expected += new
            assert read(z) == expected
            snap = z._snapshot
            assert entry_at(len(z)) <= snap.table.capacity
            assert 8 * len(z) <= snap.sums.capacity - 32
            if turn % 3 == 0:
                with Zrecord(path, mode="r", io=io, verify=True) as fresh:
                    assert read(fresh) == expected
    check_sums(path)


# --- chunk numbers -----------------------------------------------------------------------------------------------


@pytest.fixture
def many_files() -> Iterator[None]:
    """Let this process have more files open than the chunks that version 3 allows."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < MANY_FILES:
        resource.setrlimit(resource.RLIMIT_NOFILE, (MANY_FILES, hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def last_chunk(path: Path, chunk: int = 4095, version: int = VERSION, records: int = 1) -> list[bytes]:
    """Make a store whose tail is in a chunk of a high number, all but full in the eyes of `SmallChunks`."""
    forge = Forge(version=version)
    held = [b"%d" % number * 300 for number in range(records)]
    for record in held:
        forge.add(record, at=(chunk, 0) if record is held[0] else None)
    forge.tail_chunk, forge.tail_offset = chunk, 300 * records
    for number in range(chunk + 1):
        forge.chunks.setdefault(number, bytearray())
    forge.write(path)
    return held


@pytest.mark.needs_open_files
@pytest.mark.usefixtures("many_files")
def test_chunk_4096(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.zr"
    held = last_chunk(path)
    with SmallChunks(path, "raw", io="pread") as z, SmallChunks(path, mode="r", io="pread") as other:
        before = start_of_meta(path), sorted(os.listdir(path))
        with pytest.raises(loaderx.StoreFullError, match=r"4096 chunks.*upgrade=True"):
            fill(z, [b"a" * 400, b"b" * 400])
        assert (start_of_meta(path)[:6], read(z)) == (before[0][:6], held)
        assert not (path / "4096.zr").exists()
        fill(z, [b"a" * 400])
        assert version_of(path) == VERSION
        assert other.refresh() == 2
    # The last chunk of version 4 is 65,535: more files than a test should make.
    short = dataclasses.replace(append.WIDE, max_chunks=4098)
    monkeypatch.setattr(append, "WIDE", short)
    monkeypatch.setitem(header.VERSIONS, WIDE, short)
    with SmallChunks(path, "raw", upgrade=True) as z:
        fill(z, [b"b" * 400, b"c" * 700])
        assert read(z) == [*held, b"a" * 400, b"b" * 400, b"c" * 700]
        assert (version_of(path), (path / "4097.zr").stat().st_size) == (WIDE, 700)
        with pytest.raises(loaderx.StoreFullError, match="4098 chunks") as caught:
            fill(z, [b"d" * 700])
        assert "upgrade" not in str(caught.value)
        z.delete([0])
        z.compact()
        assert read(z) == [b"c" * 700, b"a" * 400, b"b" * 400]
    assert OracleStore(path).version == WIDE
    assert sorted(name for name in os.listdir(path) if name[0].isdigit()) == ["0.zr", "1.zr"]


@pytest.mark.needs_open_files
@pytest.mark.usefixtures("many_files")
def test_an_emptied_store_goes_on_to_chunk_4096(tmp_path: Path) -> None:
    path = tmp_path / "a.zr"
    last_chunk(path, records=0)
    with SmallChunks(path, "raw", io="pread") as z:
        fill(z, [b"a" * 900, b"b" * 900])
        assert read(z) == [b"a" * 900, b"b" * 900]
    assert (version_of(path), OracleStore(path).tail_chunk) == (WIDE, 4096)


def test_numbers_up_to_65535_name_chunks(tmp_path: Path) -> None:
    forge = Forge(version=WIDE)
    forge.add(b"x")
    forge.entries[0]["chunk_id"] = 65535
    forge.tail_chunk = 65535
    path = forge.write(tmp_path / "a.zr", meta_bytes=None)
    with pytest.raises(loaderx.CorruptRecordError, match=r"1\.zr is missing"):
        Zrecord(path, mode="r", io="pread")
    with (path / "65535.zr").open("wb") as file:
        file.write(b"x")
    (path / "65536.zr").write_bytes(b"somebody's")
    forge = Forge()
    forge.add(b"x")
    (path / "meta.zr").write_bytes(forge.header_bytes() + np.zeros(1, "V16").tobytes())
    with Zrecord(path, "raw") as z:
        fill(z, [b"sweeps what killed appends left"])
    assert sorted(os.listdir(path)) == ["0.zr", "65536.zr", "lock.zr", "meta.zr", "sums.zr"]
