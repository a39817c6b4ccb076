"""sums.zr byte for byte, reads that check it, and `loaderx.verify`."""

from __future__ import annotations

import errno
import json
import os
import pickle
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xxhash

import loaderx
from loaderx import CorruptRecordError, Dataset, RaggedDataset, Zrecord
from loaderx.store import memory, table
from loaderx.store.format import RECORD
from tests.oracle import ENTRY, RAW, ZSTD, ZSTD_DICT, Forge, OracleStore, swap_delete, train
from tests.store.samples import SmallChunks, contents, fill, flip, numbered, some_records, state
from tests.store.sums import SUMS, check_sums, checksum32, header_bytes, slot_bytes

pytestmark = pytest.mark.usefixtures("nothing_is_made_durable")


def test_known_vectors() -> None:
    """XXH3 as its specification has it: of nothing, and with the low half taken."""
    assert xxhash.xxh3_64_intdigest(b"") == 0x2D06800538D394C2
    assert checksum32(b"") == 0x38D394C2
    assert len(header_bytes(0, 0, 0)) == 32


# ---- the file ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("codec", ["raw", "zstd"])
@pytest.mark.parametrize("cls", [Zrecord, SmallChunks])
def test_after_every_append(cls: type[Zrecord], codec: Any, store_path: Path) -> None:
    with cls(store_path, codec) as z:
        for number in range(4):
            fill(z, some_records(30, seed=number))
            fill(z, [b"", b"\0" * 150, b""])
            z.append(np.arange(60, dtype=np.uint8), 3, 20)
            z.append(b"", 0, 20)
            fill(z, [])
    check_sums(store_path)
    assert (store_path / SUMS).stat().st_size == 32 + 8 * len(OracleStore(store_path))
    if cls is SmallChunks:
        assert OracleStore(store_path).tail_chunk > 2


@pytest.mark.parametrize(
    "size", [1, 3, 4, 8, 9, 16, 17, 128, 129, 240, 241, 256, 1023, 1024, 1025, 4096, 99_999]
)
@pytest.mark.parametrize("codec", ["raw", "zstd"])
def test_records_of_every_length(codec: Any, size: int, store_path: Path) -> None:
    """XXH3 has a way of its own for short, middling and long input."""
    rng = np.random.default_rng(size)
    with Zrecord(store_path, codec) as z:
        z.append(rng.bytes(5 * size), 5, size)
        z.append(rng.integers(0, 2, 5 * size, dtype=np.uint8), 5, size)
        z.append_var(rng.bytes(2 * size), [0, size // 2, size, 1], [size, size, size, size - 1])
    check_sums(store_path)


@pytest.mark.parametrize("codec", ["raw", "zstd"])
def test_blocks_of_many_bytes(codec: Any, store_path: Path) -> None:
    """More than is compressed at a time, on every core."""
    rows = np.random.default_rng(0).integers(0, 5, (300, 50_000), dtype=np.uint8)
    with Zrecord(store_path, codec) as z:
        z.append(rows, *rows.shape)
        z.append_var(rows, np.arange(200)[::-1] * 50_007, np.arange(200) * 200)
    check_sums(store_path)


def test_with_a_dictionary(store_path: Path) -> None:
    records = [f"user={i % 17};item={i * 7919 % 1000};country=NL;device=phone".encode() for i in range(1000)]
    with Zrecord(store_path, "zstd_dict", level=3) as z:
        z.train_dict(b"".join(records), [len(record) for record in records], 2000)
        fill(z, records)
        fill(z, records[:9], "raw")
    check_sums(store_path)


def test_after_parts_and_after_an_append_that_failed(store_path: Path) -> None:
    with Zrecord(store_path, "raw") as z:
        fill(z, [b"first"])
        with z.appending() as append:
            append.add(b"abcd", 2, 2)
            append.add_var(b"xyz", [1, 0], [2, 3], "zstd")
        with pytest.raises(KeyboardInterrupt), z.appending() as append:
            append.add(bytes(100), 10, 10)
            raise KeyboardInterrupt
        fill(z, [b"last"])
    check_sums(store_path)


@pytest.mark.parametrize("cls", [Zrecord, SmallChunks])
def test_after_delete_and_compact(cls: type[Zrecord], store_path: Path) -> None:
    records = some_records(100)
    with cls(store_path, "raw") as z:
        fill(z, records)
        z.delete(np.arange(0, 60, 2))
    check_sums(store_path)
    with cls(store_path, "raw") as z:
        z.compact()
    check_sums(store_path)
    with cls(store_path, "raw") as z:
        fill(z, some_records(20, seed=1))
        z.delete([0, 1, 89, 50])
        z.compact()
        fill(z, some_records(20, seed=2))
    check_sums(store_path)
    model = swap_delete(swap_delete(records, range(0, 60, 2)) + some_records(20, seed=1), [0, 1, 89, 50])
    assert contents(store_path) == model + some_records(20, seed=2)


def test_after_all_were_deleted(store_path: Path) -> None:
    with Zrecord(store_path, "raw") as z:
        fill(z, some_records(10))
        z.delete(np.arange(10))
    check_sums(store_path)
    with Zrecord(store_path, "raw") as z:
        z.compact()
    check_sums(store_path)
    with Zrecord(store_path, "raw") as z:
        fill(z, [b"again"])
    check_sums(store_path)
    assert loaderx.verify(store_path).checked == 1


def test_a_new_store_and_conversions(store_path: Path, tmp_path: Path) -> None:
    with Zrecord(store_path) as z:
        assert len(z) == 0
    assert loaderx.verify(store_path).ok and loaderx.verify(store_path).records == 0
    for overwrite in (False, False, True):
        loaderx.write_dataset(
            tmp_path / "d.zr", np.arange(300).reshape(30, 10), progress=False, overwrite=overwrite
        )
        check_sums(tmp_path / "d.zr")
        loaderx.write_ragged(
            tmp_path / "r.zr",
            [np.arange(i) for i in range(30)],
            dtype=np.int64,
            item_shape=(),
            progress=False,
            overwrite=overwrite,
        )
        check_sums(tmp_path / "r.zr")


def test_what_was_there_before_has_no_sums(store_path: Path) -> None:
    """A store that another program wrote: its records are never accused, and ours beside them are checked."""
    forge = Forge()
    for number in range(5):
        forge.add(bytes([number]) * 100, ZSTD)
    forge.write(store_path)
    assert loaderx.verify(store_path).unchecked == 5
    with Zrecord(store_path, "raw") as z:
        fill(z, [b"ours"] * 3)
    check_sums(store_path, unchecked=range(5))
    with Zrecord(store_path, "raw", verify=True) as z:
        z.delete([1])  # the last, with its sum, takes its place
        assert z.gather_packed([1])[0].tobytes() == b"ours"
    check_sums(store_path, unchecked=[0, 2, 3, 4])
    with Zrecord(store_path, "raw") as z:
        z.compact()
    assert loaderx.verify(store_path).ok
    assert loaderx.verify(store_path).unchecked <= 4


@pytest.mark.parametrize(
    "change",
    [
        lambda path: (path / SUMS).unlink(),
        lambda path: (path / SUMS).write_bytes(b""),
        lambda path: (path / SUMS).write_bytes(b"ZSUM"),
        lambda path: (path / SUMS).write_bytes(os.urandom(500)),
        lambda path: (path / SUMS).write_bytes(bytes(500)),
        lambda path: os.truncate(path / SUMS, 32),
        lambda path: os.truncate(path / SUMS, 32 + 8 * 7),
        lambda path: os.truncate(path / SUMS, 32 + 8 * 7 + 3),
        lambda path: flip(path, SUMS, 0),
        lambda path: flip(path, SUMS, 4),
        lambda path: flip(path, SUMS, 9),
        lambda path: flip(path, SUMS, 17),
        lambda path: flip(path, SUMS, 31),
        lambda path: (path / SUMS).write_bytes(other_version((path / SUMS).read_bytes())),
    ],
    ids=[
        "none", "empty", "short", "noise", "zeros", "header only", "cut", "cut in a slot", "magic", "version",
        "chunk", "length", "check", "another version",
    ],
)  # fmt: skip
def test_a_sums_file_that_is_none(change: Callable[[Path], Any], store_path: Path) -> None:
    """It is no evidence against any record; and what is appended afterwards has sums again."""
    records = some_records(20)
    with Zrecord(store_path, "raw") as z:
        fill(z, records)
    change(store_path)
    report = loaderx.verify(store_path)
    assert report.ok and report.unchecked >= 13 and report.checked + report.unchecked == 20
    with Zrecord(store_path, "raw", verify=True) as z:
        assert z.gather_packed(np.arange(20))[0].tobytes() == b"".join(records)
        fill(z, [b"new"] * 4)
        assert z.gather_packed(np.arange(20, 24))[0].tobytes() == b"new" * 4
    report = loaderx.verify(store_path)
    assert report.ok and report.checked >= 4
    check_sums(store_path, unchecked=range(report.checked - 4, 20))
    flip(store_path, "0.zr", OracleStore(store_path).tail_offset - 1)
    assert [damage.record for damage in loaderx.verify(store_path).damaged] == [23]


def other_version(data: bytes) -> bytes:
    """Return the file as a later version might have it, whose slots mean something else."""
    front = data[:4] + struct.pack("<H", 2) + data[6:28]
    return front + struct.pack("<I", checksum32(front)) + os.urandom(len(data) - 32)


@pytest.fixture
def no_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "_LITTLE_BYTES", 0)
    monkeypatch.setattr(memory, "available_bytes", lambda: 100)


def test_records_in_their_order_need_no_memory_each(store_path: Path, no_memory: None) -> None:
    with Zrecord(store_path, "raw") as z:
        fill(z, [b"", *numbered(0, 20), b"", b"x"])
    report = loaderx.verify(store_path)
    assert report.ok and report.records == report.checked == 23


def test_work_that_the_memory_is_too_small_for_is_refused(store_path: Path, no_memory: None) -> None:
    """And not begun, so that the system does not end the process for it."""
    with Zrecord(store_path, "raw") as z:
        fill(z, numbered(0, 20))
        z.delete([3])
        before = state(store_path)
        with pytest.raises(loaderx.StoreIOError, match=r"compact it: .* 1900 bytes .* 100 are") as caught:
            z.compact()
        assert caught.value.errno == errno.ENOMEM and len(z) == 19
        assert state(store_path).keys() == before.keys() - {"mark.zr"}
    with pytest.raises(loaderx.StoreIOError, match=r"verify it: .* 1900 bytes .* 100 are") as caught:
        loaderx.verify(store_path)
    assert caught.value.errno == errno.ENOMEM


def test_a_report_that_the_memory_is_too_small_for_is_refused(store_path: Path, no_memory: None) -> None:
    with Zrecord(store_path, "raw") as z:
        fill(z, numbered(0, 20))
    flip(store_path, "0.zr", 5)
    with pytest.raises(loaderx.StoreIOError, match=r"verify it: .* 600 bytes .* 100 are"):
        loaderx.verify(store_path)


def test_memory_that_is_available() -> None:
    total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    assert 1 << 20 < memory.available_bytes() <= total


@pytest.mark.parametrize(
    ("limit", "stat", "available"),
    [
        ("max", "anon 5\nfile 7\n", 3 << 30),
        (str(2 << 30), f"anon {1 << 30}\nfile {1 << 30}\n", 1 << 30),
        ("5", "anon 9\n", 0),
    ],
)
def test_memory_of_a_container(
    limit: str, stat: str, available: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "meminfo").write_text(f"MemTotal: 8388608 kB\nMemAvailable:   {3 << 20} kB\n")
    (tmp_path / "memory.max").write_text(limit + "\n")
    (tmp_path / "memory.stat").write_text(stat)
    monkeypatch.setattr(memory, "_MEMORY", tmp_path / "meminfo")
    monkeypatch.setattr(memory, "_CGROUP", tmp_path)
    assert memory.available_bytes() == available


@pytest.mark.parametrize("block", [1, 4, 1 << 18])
def test_overlaps_are_found_whatever_the_order(
    block: int, store_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Against all pairs of records; in tables that are in order, nearly so, and not at all."""
    monkeypatch.setattr(table, "_BLOCK_ENTRIES", block)
    rng = np.random.default_rng(0)
    with SmallChunks(store_path, "raw") as z:
        fill(z, [bytes(60)] * 20)
    (store_path / SUMS).unlink()
    sizes, found = np.repeat([3, 0], [9, 3]), 0
    for round_ in range(60):
        entries = np.zeros(12, RECORD)
        entries["phys_length"] = entries["logic_length"] = rng.permutation(sizes)
        begins = np.cumsum(entries["phys_length"]) - entries["phys_length"]
        if round_ % 3:
            moved = rng.integers(0, 12, round_ % 3)
            begins[moved] = np.maximum(0, begins[moved] + rng.integers(-4, 5, len(moved)))
        elif round_ % 2:
            order = rng.permutation(12)
            entries, begins = entries[order], begins[order]
        entries["offset"] = begins
        entries["chunk_id"] = rng.integers(0, 2) if round_ % 5 else np.arange(12) // 7
        with (store_path / "meta.zr").open("r+b") as file:
            os.pwrite(file.fileno(), entries.tobytes(), 16)
            os.pwrite(file.fileno(), struct.pack("<I", 12), 12)
        places = [set(range(int(e["offset"]), int(e["offset"]) + int(e["phys_length"]))) for e in entries]
        expected = {
            i
            for i in range(12)
            for k in range(12)
            if i != k and entries["chunk_id"][i] == entries["chunk_id"][k] and places[i] & places[k]
        }
        assert {damage.record for damage in loaderx.verify(store_path).damaged} == expected
        found += len(expected)
    assert found > 20


# ---- reading with verify=True ------------------------------------------------------------------------------------

READS: dict[str, Callable[[Zrecord, list[int]], Any]] = {
    "gather": lambda z, idxs: z.gather(idxs, bytearray(5000 * len(idxs)), 5000),
    "gather exact": lambda z, idxs: z.gather(idxs, bytearray(5000 * len(idxs)), 5000, exact=True),
    "gather_var": lambda z, idxs: z.gather_var(
        idxs, bytearray(5000 * len(idxs)), np.arange(len(idxs))[::-1] * 5000
    ),
    "gather_stacked": lambda z, idxs: z.gather_stacked(idxs, 5000),
    "gather_packed": lambda z, idxs: z.gather_packed(idxs),
    "gather_padded": lambda z, idxs: z.gather_padded(idxs),
}


@pytest.fixture(params=["raw", "zstd", "zstd_dict"], scope="module")
def damaged(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a store, to be read only, of 300 records of 5000 bytes, of which 7 and 200 have one bit flipped."""
    store_path = tmp_path_factory.mktemp("damaged") / "store.zr"
    rows = np.random.default_rng(0).integers(0, 9, (300, 5000), dtype=np.uint8)
    with Zrecord(store_path, request.param) as z:
        if request.param == "zstd_dict":
            z.train_dict(rows, [5000] * 300, 8000)
        z.append(rows, *rows.shape)
    for index in (7, 200):
        entry = OracleStore(store_path).table[index]
        flip(store_path, "0.zr", int(entry["offset"]) + int(entry["phys_length"]) // 2)
    return store_path


@pytest.mark.parametrize("read", READS.values(), ids=READS.keys())
@pytest.mark.parametrize("io", ["mmap", "pread"])
@pytest.mark.parametrize("threads", [1, 3])
def test_every_read_finds_a_flipped_bit(
    read: Callable[[Zrecord, list[int]], Any], io: Any, threads: int, damaged: Path
) -> None:
    entry = OracleStore(damaged).table[7]
    with Zrecord(damaged, mode="r", io=io, threads=threads, verify=True) as z:
        for idxs in ([7], [0, 7, 1], [*range(199, 0, -1), 200], [7, 200] * 200, [-293]):
            with pytest.raises(CorruptRecordError, match=r"record 7 .*byte") as caught:
                read(z, idxs)
            error = caught.value
            assert (error.store, error.record) == (damaged, 7)
            assert (error.chunk, error.byte_offset) == (0, int(entry["offset"]))
        with pytest.raises(CorruptRecordError) as caught:
            read(z, [1, 200, 2, 7])
        assert caught.value.record == 200, "the lowest position"
        good = [index for index in range(300) if index not in (7, 200)]
        read(z, good)
        read(z, good * 8)
        read(z, [])


def test_without_verify_a_raw_record_is_read_as_it_lies(store_path: Path) -> None:
    with Zrecord(store_path, "raw") as z:
        fill(z, [b"abcd"] * 3)
    flip(store_path, "0.zr", 5, 1)
    with Zrecord(store_path) as z:
        assert not z.verify and z.gather_packed([1])[0].tobytes() == b"accd"
    with Zrecord(store_path, verify=True) as z:
        assert z.verify
        with pytest.raises(CorruptRecordError):
            z.gather_packed([1])


def test_another_records_frame_in_its_place(store_path: Path) -> None:
    """A frame that decompresses to the right length, and is not the record's."""
    with Zrecord(store_path, "zstd") as z:
        fill(z, [b"a" * 1000, b"b" * 1000, b"c" * 1000])
    table = OracleStore(store_path).table
    assert len(set(table["phys_length"].tolist())) == 1 and set(table["codec"].tolist()) == {ZSTD}
    size, first = int(table["phys_length"][0]), int(table["offset"][0])
    with (store_path / "0.zr").open("r+b") as file:
        file.seek(int(table["offset"][1]))
        frame = file.read(size)
        file.seek(first)
        file.write(frame)
    with Zrecord(store_path) as z:
        assert z.gather_packed([0])[0].tobytes() == b"b" * 1000
    with Zrecord(store_path, verify=True) as z:
        with pytest.raises(CorruptRecordError) as caught:
            z.gather_packed([2, 0])
        assert caught.value.record == 0
        assert z.gather_packed([1, 2])[0].tobytes() == b"b" * 1000 + b"c" * 1000


def test_another_records_entry_in_its_place(store_path: Path) -> None:
    """An entry that is a good one, of another record: only its tag tells."""
    with Zrecord(store_path, "raw") as z:
        fill(z, [b"a" * 100, b"b" * 100, b"c" * 100])
    with (store_path / "meta.zr").open("r+b") as meta:
        meta.seek(16 + 16)
        entry = meta.read(16)
        meta.seek(16 + 32)
        meta.write(entry)
    with Zrecord(store_path, verify=True) as z:
        with pytest.raises(CorruptRecordError) as caught:
            z.gather_packed([0, 2])
        assert caught.value.record == 2
        assert z.gather_packed([1, 0])[0].tobytes() == b"b" * 100 + b"a" * 100
    assert 2 in {damage.record for damage in loaderx.verify(store_path).damaged}


def test_datasets_that_verify(tmp_path: Path) -> None:
    array = np.arange(3000, dtype="<i4").reshape(100, 30)
    for codec in ("raw", "zstd"):
        path = tmp_path / f"{codec}.zr"
        loaderx.write_dataset(path, array, codec, progress=False)  # type: ignore[arg-type]
        flip(path, "0.zr", int(OracleStore(path).table["offset"][7]) + 15)
        with Dataset(path, verify=True) as ds:
            reads: list[Callable[[], Any]] = [
                lambda: ds[7],
                lambda: ds[-93],
                lambda: ds[:],
                lambda: ds[[1, 7]],
                lambda: ds[np.arange(100) < 20],
                lambda: ds.__getitems__([3, 7]),
                lambda: ds.__getitems__([3, 7], out=np.empty((2, 30), "<i4")),
                lambda: list(ds),
            ]
            for read in reads:
                with pytest.raises(CorruptRecordError) as caught:
                    read()
                assert caught.value.record == 7
            assert np.array_equal(ds[8:], array[8:])
            with pickle.loads(pickle.dumps(ds)) as copy, pytest.raises(CorruptRecordError):
                copy[7]
        with Dataset(path) as ds:
            assert np.array_equal(ds[:7], array[:7])


def test_ragged_datasets_that_verify(tmp_path: Path) -> None:
    arrays = [np.full((1 + i % 30, 3), i, "<i4") for i in range(100)]
    for codec in ("raw", "zstd"):
        path = tmp_path / f"{codec}.zr"
        loaderx.write_ragged(path, arrays, codec=codec, progress=False)  # type: ignore[arg-type]
        flip(path, "0.zr", int(OracleStore(path).table["offset"][7]) + 15)
        with RaggedDataset(path, verify=True) as ds:
            reads: list[Callable[[], Any]] = [
                lambda: ds[7],
                lambda: ds[:],
                lambda: ds[[1, 7]],
                lambda: ds.__getitems__([3, 7]),
                lambda: ds.getitems_padded([3, 7]),
                lambda: ds.getitems_padded([3, 7], 40, -1),
                lambda: list(ds),
            ]
            for read in reads:
                with pytest.raises(CorruptRecordError) as caught:
                    read()
                assert caught.value.record == 7
            assert np.array_equal(ds[[8, 99]][0], np.concatenate([arrays[8], arrays[99]]))
            with pickle.loads(pickle.dumps(ds)) as copy, pytest.raises(CorruptRecordError):
                copy[7]


@pytest.mark.parametrize("codec", ["raw", "zstd"])
def test_good_records_are_never_accused(codec: Any, store_path: Path) -> None:
    """Through one handle that reads, appends, deletes and compacts by turns."""
    rng = np.random.default_rng(3)
    model: list[bytes] = []
    with (
        SmallChunks(store_path, codec, verify=True) as z,
        SmallChunks(store_path, mode="r", verify=True) as reader,
    ):
        for step in range(12):
            new = some_records(20, seed=step)
            fill(z, new)
            model += new
            assert z.gather_packed(np.arange(len(model)))[0].tobytes() == b"".join(model)
            assert reader.refresh() == len(model)
            assert reader.gather_packed(np.arange(len(model)))[0].tobytes() == b"".join(model)
        reader.close()
        for step in range(12):
            targets = rng.integers(0, len(model), 10).tolist()
            z.delete(targets)
            model = swap_delete(model, targets)
            assert z.gather_packed(np.arange(len(model)))[0].tobytes() == b"".join(model)
            if step % 3 == 0:
                z.compact()
                assert z.gather_packed(np.arange(len(model)))[0].tobytes() == b"".join(model)
            new = some_records(5, seed=100 + step)
            fill(z, new)
            model += new
        assert z.gather_packed(np.arange(len(model)))[0].tobytes() == b"".join(model)
    check_sums(store_path)


def test_beside_a_writer_in_the_middle_of_a_session(store_path: Path) -> None:
    """The sums' mark and the header change one after the other: whoever opens in between accuses nobody."""
    with Zrecord(store_path, "raw") as z:
        for number in range(20):
            fill(z, [bytes([number]) * 100])
            with Zrecord(store_path, mode="r", verify=True) as reader:
                assert reader.gather_packed([number])[0].tobytes() == bytes([number]) * 100
            report = loaderx.verify(store_path)
            assert report.ok and report.records == report.checked == number + 1
        flip(store_path, "0.zr", 50)
        with Zrecord(store_path, mode="r", verify=True) as reader, pytest.raises(CorruptRecordError):
            reader.gather_packed([0])


# ---- loaderx.verify ----------------------------------------------------------------------------------------------


def damages(path: Path) -> dict[int | None, str]:
    """Return what is damaged by the report, which must agree with reading record by record."""
    report = loaderx.verify(path)
    found: dict[int | None, str] = {damage.record: damage.problem for damage in report.damaged}
    assert len(found) == len(report.damaged), "a record is named once"
    assert report.ok == (not found and report.dictionary in (None, "good", "unchecked"))
    assert list(found) == sorted(found, key=lambda record: -1 if record is None else record)
    plain = report.as_dict()
    assert json.loads(json.dumps(plain)) == plain
    assert (plain["records"], plain["checked"], plain["unchecked"]) == (
        report.records,
        report.checked,
        report.unchecked,
    )
    assert [damage["record"] for damage in plain["damaged"]] == list(found)
    for threads in (1, 3):
        assert loaderx.verify(path, threads=threads) == report
    return found


def test_a_good_store(store_path: Path) -> None:
    with SmallChunks(store_path, "zstd") as z:
        fill(z, some_records(500))
    seen: list[tuple[int, int]] = []
    report = loaderx.verify(store_path, progress=lambda done, total: seen.append((done, total)))
    assert report.path == store_path
    assert (report.records, report.checked, report.unchecked) == (500, 500, 0)
    assert report.ok and report.damaged == () and report.recovery is None
    assert damages(store_path) == {}
    assert seen and seen[-1][0] == seen[-1][1] and seen == sorted(seen)


def test_verify_changes_nothing(damaged: Path) -> None:
    before = {file.name: (file.stat().st_mtime_ns, file.stat().st_ctime_ns) for file in damaged.iterdir()}
    loaderx.verify(damaged)
    after = {file.name: (file.stat().st_mtime_ns, file.stat().st_ctime_ns) for file in damaged.iterdir()}
    assert after == before


def test_flipped_bits_are_named_with_their_place(damaged: Path) -> None:
    table = OracleStore(damaged).table
    assert list(damages(damaged)) == [7, 200]
    for damage in loaderx.verify(damaged).damaged:
        assert damage.record is not None
        assert (damage.chunk, damage.byte_offset) == (0, int(table["offset"][damage.record]))
        assert damage.problem
    report = loaderx.verify(damaged)
    assert report.records == 300 and report.unchecked == 0


def test_every_bit_of_a_store_is_watched(store_path: Path) -> None:
    """A flip anywhere in the entries, the stored bytes or the slots is found, and nothing else is accused."""
    with Zrecord(store_path, "zstd") as z:
        fill(z, [bytes([number]) * 30 for number in range(4)] + [b"short", b"x"])
    ends = {"meta.zr": 16 + 16 * 6, "0.zr": OracleStore(store_path).tail_offset, SUMS: 32 + 8 * 6}
    begins = {"meta.zr": 16, "0.zr": 0, SUMS: 32}
    table = OracleStore(store_path).table
    for name, end in ends.items():
        for offset in range(begins[name], end):
            bits = 1 << offset % 8
            flip(store_path, name, offset, bits)
            if name == "meta.zr":
                owner = (offset - 16) // 16
            elif name == SUMS:
                owner = (offset - 32) // 8
            else:
                owner = int(np.searchsorted(table["offset"] + table["phys_length"], offset, side="right"))
            found = {damage.record for damage in loaderx.verify(store_path).damaged}
            assert owner in found, (name, offset)
            if name != "meta.zr":  # an entry may claim the bytes of others
                assert found == {owner}, (name, offset)
            flip(store_path, name, offset, bits)
    assert loaderx.verify(store_path).ok


@pytest.mark.parametrize("with_sums", [True, False])
def test_records_that_share_bytes(with_sums: bool, store_path: Path) -> None:
    forge = Forge()
    for _ in range(4):
        forge.add(bytes(range(100)))
    forge.entries[2]["offset"] = 150
    forge.write(store_path, meta_bytes=None)
    if with_sums:
        store = OracleStore(store_path)
        slots = [slot_bytes(store.table[i].tobytes(), store.stored(i)) for i in range(4)]
        (store_path / SUMS).write_bytes(header_bytes(0, 400, 4) + b"".join(slots))
    found = damages(store_path)
    assert set(found) <= {1, 2, 3} and len(found) >= 1, "1 and 2 share bytes, and so do 2 and 3"
    assert any(word in " ".join(found.values()) for word in ("share", "overlap"))


def test_empty_records_share_no_bytes(store_path: Path) -> None:
    with Zrecord(store_path, "raw") as z:
        fill(z, [b"", b"abc", b"", b"", b"def", b""])
        z.delete([1])
        z.compact()
        fill(z, [b"", b"x", b""])
    assert damages(store_path) == {}


@pytest.mark.parametrize("with_sums", [True, False])
def test_a_chunk_cut_short(with_sums: bool, store_path: Path) -> None:
    with Zrecord(store_path, "raw") as z:
        fill(z, [bytes([number]) * 100 for number in range(20)])
    if not with_sums:
        (store_path / SUMS).unlink()
    os.truncate(store_path / "0.zr", 1250)
    found = damages(store_path)
    assert list(found) == list(range(12, 20))
    report = loaderx.verify(store_path)
    assert (report.checked, report.unchecked) == ((12, 0) if with_sums else (0, 12))
    assert "1250" in found[12]


def test_a_chunk_with_a_hole(store_path: Path) -> None:
    """Zeros where records were, as a file system leaves them after a power loss."""
    with Zrecord(store_path, "raw") as z:
        fill(z, [bytes([1 + number]) * 100 for number in range(20)])
    with (store_path / "0.zr").open("r+b") as file:
        file.seek(500)
        file.write(bytes(300))
    assert list(damages(store_path)) == [5, 6, 7]


@pytest.mark.parametrize("with_sums", [True, False])
def test_a_dictionary_that_is_missing(with_sums: bool, store_path: Path) -> None:
    """Is no damage of the records: they are counted, and not among those that a caller may delete."""
    records = [f"user={i % 17};item={i * 7919 % 1000};country=NL;device=phone".encode() for i in range(1000)]
    with Zrecord(store_path, "zstd_dict", level=3) as z:
        z.train_dict(b"".join(records), [len(record) for record in records], 2000)
        fill(z, records[:10], "raw")
        fill(z, records[:5])
    if not with_sums:
        (store_path / SUMS).unlink()
    (store_path / "dict.zr").unlink()
    assert damages(store_path) == {}
    report = loaderx.verify(store_path)
    assert (report.ok, report.dictionary, report.unreadable) == (False, "missing", 5)
    assert (report.checked, report.unchecked) == ((15, 0) if with_sums else (0, 15))


def test_another_dictionary_in_its_place(store_path: Path) -> None:
    records = [f"user={i % 17};item={i * 7919 % 1000};country=NL;device=phone".encode() for i in range(1000)]
    with Zrecord(store_path, "zstd_dict", level=3) as z:
        z.train_dict(b"".join(records), [len(record) for record in records], 2000)
        fill(z, records[:5])
    (store_path / "dict.zr").write_bytes(train([record[::-1] for record in records]))
    assert damages(store_path) == {}
    report = loaderx.verify(store_path)
    assert (report.ok, report.dictionary, report.unreadable) == (False, "damaged", 5)
    (store_path / SUMS).unlink()
    assert list(damages(store_path)) == [0, 1, 2, 3, 4], "nobody knows whether they are, or the dictionary"


@pytest.mark.parametrize(
    ("field", "value"), [("codec", 7), ("chunk_id", 3), ("offset", 4_000_000_000), ("phys_length", 99)]
)
@pytest.mark.parametrize("with_sums", [True, False])
def test_an_entry_that_cannot_be_right(field: str, value: int, with_sums: bool, store_path: Path) -> None:
    with Zrecord(store_path, "raw") as z:
        fill(z, [bytes([number]) * 100 for number in range(5)])
    table = OracleStore(store_path).table.copy()
    table[field][2] = value
    with (store_path / "meta.zr").open("r+b") as meta:
        meta.seek(16)
        meta.write(table.tobytes())
    if not with_sums:
        (store_path / SUMS).unlink()
    assert list(damages(store_path)) == [2]


def test_frames_are_decompressed_where_there_is_no_sum(store_path: Path) -> None:
    forge = Forge()
    for number in range(5):
        forge.add(f"{number}".encode() * 500, ZSTD)
    forge.chunks[0][forge.entries[3]["offset"]] ^= 0xFF
    forge.entries[1]["logic_length"] -= 1
    forge.add(b"raw", RAW)
    forge.write(store_path, meta_bytes=None)
    assert list(damages(store_path)) == [1, 3]
    report = loaderx.verify(store_path)
    assert report.records == 6 and report.checked == 0


def test_a_whole_store_without_sums(store_path: Path) -> None:
    forge = Forge(dictionary=train([b"user=%d;country=NL;device=phone" % i for i in range(1000)]))
    for number in range(30):
        forge.add(b"user=%d;country=NL;device=phone" % number, (RAW, ZSTD, ZSTD_DICT)[number % 3], keep=True)
    forge.write(store_path)
    assert damages(store_path) == {}
    report = loaderx.verify(store_path)
    assert (report.records, report.checked, report.unchecked) == (30, 0, 30)


def test_a_table_that_says_nothing_of_its_records(store_path: Path) -> None:
    """Zeroed entries behind the first: with sums they are named, for an empty record is none of ours."""
    with Zrecord(store_path, "raw") as z:
        fill(z, [bytes([number]) * 100 for number in range(20)])
    with (store_path / "meta.zr").open("r+b") as meta:
        meta.seek(16 + 16 * 8)
        meta.write(bytes(ENTRY.itemsize * 4))
    assert list(damages(store_path)) == [8, 9, 10, 11]


def test_what_cannot_be_verified(store_path: Path, tmp_path: Path) -> None:
    with pytest.raises(loaderx.NotAStoreError):
        loaderx.verify(store_path)
    assert not store_path.exists()
    with pytest.raises(loaderx.OptionError):
        loaderx.verify(store_path, threads=-1)
    with Zrecord(store_path, "raw") as z:
        fill(z, [b"x"])
    (store_path / "0.zr").unlink()
    with pytest.raises(CorruptRecordError):
        loaderx.verify(store_path)
