"""The checksums: against literal values and the xxhash package, in every kernel, and a gather that compares them."""

from __future__ import annotations

import concurrent.futures
import itertools
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xxhash

from loaderx._core import checksum, compress, gather, survey
from loaderx._core.fault import Fault
from loaderx._core.maps import FileMap
from loaderx._core.snapshot import Gate, Snapshot
from loaderx.store.format import HEADER, RECORD, SUM
from loaderx.store.sums import SLOTS_AT
from tests.store.children import in_child

# XXH3-64, seed 0, of the first n bytes of PATTERN.
PATTERN = bytes((i * i * 31 + i * 7 + (i >> 8) * 13) & 255 for i in range(1 << 16))
DIGESTS = (
    (0, 0x2D06800538D394C2),
    (1, 0xC44BDFF4074EECDB),
    (2, 0x9AAF71D6A8C4DA34),
    (3, 0x1729C78F56EC7369),
    (4, 0xE5097D6D2A406DDE),
    (7, 0xA57BAF9771803FF1),
    (8, 0x89B9B1111ECD5976),
    (9, 0x442F901347EAC6D7),
    (15, 0x125EF2DFD85D52D3),
    (16, 0x3E094AB84274D7E2),
    (17, 0xF023CE206C53CB88),
    (31, 0x94A5DA1595B83F2A),
    (32, 0x4E0F827A00305880),
    (33, 0xCE95CB88847D6102),
    (64, 0x5926C2C628B8BD40),
    (65, 0x0BC4C752A7C50505),
    (96, 0xBEF5DF716E3026DE),
    (97, 0xC04301A5FBA9D36A),
    (127, 0x73645B056844B908),
    (128, 0x74CC793E51CBBF70),
    (129, 0x896BC9B5EE9A02DE),
    (144, 0x5AA24E1FE0CB7F98),
    (145, 0x65254249614FFDA5),
    (239, 0xCD0DA82B5D6619C0),
    (240, 0x168AC2EEA3381B59),
    (241, 0x5F15F12E172B51FA),
    (256, 0x2D280775D960610D),
    (257, 0xBA3D8817596D959B),
    (319, 0xFC6C25385AD296BE),
    (320, 0x9F07B23BAAF9638C),
    (321, 0xE1C6F0906CC7D304),
    (1023, 0xAAED026C9EB7EB3D),
    (1024, 0xDCEAED343CD1F797),
    (1025, 0xF37E09DAC8A20F64),
    (1087, 0x04B23500D9408280),
    (1088, 0x5CEC7B83CB062B80),
    (1089, 0x10F478E0678B623B),
    (2047, 0x6787987B5D8BC043),
    (2048, 0xDCEFB5BCBB88D2D4),
    (2049, 0x538173E5CF965355),
    (4096, 0xC2B42362E0BEE84D),
    (12288, 0xE2B1DAA5CB48CED9),
    (65535, 0x6B55F8908490694C),
    (65536, 0xC780E4C955859981),
)

# A table entry whose checksum is 0.
ENTRY_OF_ZERO = bytes.fromhex("9f71c5c7672c3e073a5296093bbc56af")


def low32(data: Any) -> int:
    return xxhash.xxh3_64_intdigest(data) & 0xFFFFFFFF


@pytest.fixture(params=checksum.kernels())
def kernel(request: pytest.FixtureRequest) -> Iterator[str]:
    checksum.use_kernel(request.param)
    yield request.param
    checksum.use_kernel(None)


# ---- The function --------------------------------------------------------------------------------------------


def test_literal_values(kernel: str) -> None:
    for n, digest in DIGESTS:
        assert checksum.checksum(PATTERN[:n]) == digest & 0xFFFFFFFF, n


def test_every_length_like_xxhash_and_copies_alike(kernel: str) -> None:
    rng = np.random.default_rng(1)
    data = memoryview(rng.bytes(4 << 20))
    lengths = [*range(2101), 4095, 4096, 4097, 12288, 65537, 100_003, (1 << 20) - 1, 1 << 20, (1 << 20) + 65]
    dst = np.empty(max(lengths) + 256, np.uint8)
    for n in lengths:
        offset, at = int(rng.integers(0, 64)), int(rng.integers(64, 128))
        source = data[offset : offset + n]
        expected = low32(source)
        assert checksum.checksum(source) == expected, (n, offset)
        dst[: at + n + 64] = 0xA5
        assert checksum.copy(dst[at : at + n], source) == expected, (n, offset, at)
        assert dst[at : at + n].tobytes() == source, (n, offset, at)
        assert (dst[at - 64 : at] == 0xA5).all() and (dst[at + n : at + n + 64] == 0xA5).all(), (n, at)


def test_every_alignment(kernel: str) -> None:
    data = memoryview(np.random.default_rng(2).bytes(9000))
    for n in (5, 13, 100, 200, 241, 1024, 1025, 4100):
        for offset in range(65):
            piece = data[offset : offset + n]
            assert checksum.checksum(piece) == low32(piece), (n, offset)


# Memory between two pages that may not be touched, so that one byte read or written outside ends the interpreter.
FENCED = """
import ctypes, mmap
import numpy as np
from loaderx._core import checksum

def fenced(n_pages):
    memory = mmap.mmap(-1, (n_pages + 2) * mmap.PAGESIZE)
    address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    for fence in (address, address + (n_pages + 1) * mmap.PAGESIZE):
        assert ctypes.CDLL(None).mprotect(ctypes.c_void_p(fence), mmap.PAGESIZE, 0) == 0
    return np.frombuffer(memory, np.uint8)[mmap.PAGESIZE : -mmap.PAGESIZE]

source, target = fenced(3), fenced(3)
source[:] = np.random.default_rng(3).integers(0, 256, len(source))
for name in checksum.kernels():
    checksum.use_kernel(name)
    for n in [*range(1400), *range(3000, 3200), len(source)]:
        at_end, at_begin = source[len(source) - n :], source[:n]
        assert checksum.copy(target[len(target) - n :], at_end) == checksum.checksum(at_end.tobytes()), (name, n)
        assert checksum.copy(target[:n], at_begin) == checksum.checksum(at_begin.tobytes()), (name, n)
        assert checksum.checksum(at_end) == checksum.checksum(at_end.tobytes())
        assert checksum.checksum(at_begin) == checksum.checksum(at_begin.tobytes())
print("nothing outside was touched")
"""


def test_nothing_outside_the_buffers_is_touched() -> None:
    done = subprocess.run([sys.executable, "-c", FENCED], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout) == (0, "nothing outside was touched\n"), done.stderr


def test_copy_refuses_what_it_cannot_do() -> None:
    buffer = bytearray(100)
    with pytest.raises(ValueError, match="same length"):
        checksum.copy(bytearray(5), bytes(6))
    with pytest.raises(ValueError, match="share no memory"):
        checksum.copy(memoryview(buffer)[:60], memoryview(buffer)[40:])
    with pytest.raises(BufferError):
        checksum.copy(bytes(5), bytes(5))


def test_kernels_are_chosen_by_name_for_every_module() -> None:
    names = checksum.kernels()
    assert names[-1] == "portable" and checksum.kernel() == names[0]
    try:
        for name in names:
            checksum.use_kernel(name)
            assert checksum.kernel() == name
    finally:
        checksum.use_kernel(None)
    assert checksum.kernel() == names[0]
    with pytest.raises(ValueError, match=r"no kernel 'abacus': here work .*portable"):
        checksum.use_kernel("abacus")
    assert checksum.kernel() == names[0]


# ---- Many at once --------------------------------------------------------------------------------------------


def pieces(rng: np.random.Generator, n: int, source_bytes: int) -> tuple[Any, Any]:
    lens = rng.integers(0, 6000, n).astype(np.uint32)
    lens[: min(n, 4)] = (0, 1, 240, 241)[: min(n, 4)]
    return rng.integers(0, source_bytes - 6000, n), lens


@pytest.mark.parametrize("threads", [1, 2, 5])
@pytest.mark.parametrize("n", [0, 1, 7, 500])
def test_checksums_of_many_pieces(n: int, threads: int) -> None:
    rng = np.random.default_rng(n)
    source = rng.integers(0, 256, 1 << 20, np.uint8)
    starts, lens = pieces(rng, n, len(source))
    out = np.full(n, 7, np.uint32)
    checksum.checksums(source, starts, lens, out, threads)
    assert out.tolist() == [low32(source[a : a + b]) for a, b in zip(starts, lens, strict=True)]


def test_checksums_in_threads_and_in_a_forked_child() -> None:
    rng = np.random.default_rng(5)
    source = rng.integers(0, 256, 1 << 20, np.uint8)
    starts, lens = pieces(rng, 300, len(source))
    expected = [low32(source[a : a + b]) for a, b in zip(starts, lens, strict=True)]

    def call(_: int = 0) -> bool:
        out = np.empty(300, np.uint32)
        checksum.checksums(source, starts, lens, out, 2)
        return out.tolist() == expected

    with concurrent.futures.ThreadPoolExecutor(4) as executor:
        assert all(executor.map(call, range(40)))
    assert in_child(call)


def test_checksums_refuse_buffers_that_do_not_fit() -> None:
    source, starts, lens = bytes(10), np.array([0, 5]), np.array([5, 5], np.uint32)
    out = np.zeros(2, np.uint32)
    with pytest.raises(ValueError, match="piece 1 lies outside"):
        checksum.checksums(source, starts, np.array([5, 6], np.uint32), out, 1)
    with pytest.raises(ValueError, match="piece 0 lies outside"):
        checksum.checksums(source, np.array([-1, 5]), lens, out, 1)
    with pytest.raises(ValueError, match="piece 1 lies outside"):
        checksum.checksums(source, np.array([0, np.iinfo(np.int64).max]), lens, out, 1)
    for bad in ((starts[:1], lens, out), (starts, lens[:1], out), (starts, lens, out[:1])):
        with pytest.raises(ValueError, match="one item for each piece"):
            checksum.checksums(source, *bad, 1)
    with pytest.raises(ValueError, match="shares memory"):
        checksum.checksums(source, starts, out, out, 1)


def test_tags_are_checksums_and_never_zero() -> None:
    entries = np.random.default_rng(6).integers(0, 256, (1000, 16), np.uint8)
    entries[500] = np.frombuffer(ENTRY_OF_ZERO, np.uint8)
    out = np.empty(1000, np.uint32)
    checksum.tags(entries, out)
    expected = [low32(entry) for entry in entries]
    assert expected[500] == 0
    expected[500] = 1
    assert out.tolist() == expected
    checksum.tags(entries.tobytes(), out)
    assert out.tolist() == expected


def test_tags_refuse_buffers_that_do_not_fit() -> None:
    for entries, out in ((bytes(32), 3), (bytes(31), 1), (bytes(31), 2)):
        with pytest.raises(ValueError, match="one uint32 for each"):
            checksum.tags(entries, np.zeros(out, np.uint32))
    memory = np.zeros(20, np.uint8)
    with pytest.raises(ValueError, match="shares memory"):
        checksum.tags(memory[:16], memory[12:16].view(np.uint32))


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("codec", [0, 1])
def test_compress_gives_the_checksums_of_what_it_stores(codec: int, threads: int, kernel: str) -> None:
    rng = np.random.default_rng(7)
    source = rng.integers(0, 256, 1 << 20, np.uint8)
    source[: 1 << 19] //= 64  # one half shrinks, the other does not
    starts, lens = pieces(rng, 400, len(source))
    out = np.empty(compress.compress_bound(lens), np.uint8)
    phys, codecs, sums = np.empty(400, np.uint32), np.empty(400, np.uint8), np.empty(400, np.uint32)
    n_bytes = compress.compress(source, starts, lens, out, phys, codecs, codec, 3, None, threads, sums)
    ends = np.cumsum(phys, dtype=np.int64)
    assert ends[-1] == n_bytes and set(codecs.tolist()) == {0, codec}
    assert sums.tolist() == [low32(out[end - size : end]) for end, size in zip(ends, phys, strict=True)]
    with pytest.raises(ValueError, match="one uint32 for each record"):
        compress.compress(source, starts, lens, out, phys, codecs, codec, 3, None, threads, sums[:-1])


# ---- Reading with sums ---------------------------------------------------------------------------------------


class Store:
    """A store of one chunk, made by hand: its files, and what was put in."""

    def __init__(self, folder: Path, codec: int) -> None:
        rng = np.random.default_rng(8)
        self.folder = folder
        self.records = [
            rng.integers(0, 4, int(size), np.uint8).tobytes() for size in rng.integers(1, 9000, 120)
        ]
        self.records[3], self.records[4] = b"", rng.bytes(3000)  # the second does not shrink
        lens = np.array([len(record) for record in self.records], np.uint32)
        starts = np.concatenate([[0], np.cumsum(lens[:-1], dtype=np.int64)])
        out = np.empty(compress.compress_bound(lens), np.uint8)
        phys, codecs, sums = np.empty(120, np.uint32), np.empty(120, np.uint8), np.empty(120, np.uint32)
        source = b"".join(self.records)
        n = compress.compress(source, starts, lens, out, phys, codecs, codec, 3, None, 1, sums)
        self.stored = bytearray(out[:n])
        self.entries = np.zeros(120, RECORD)
        self.entries["offset"] = np.cumsum(phys) - phys
        self.entries["phys_length"], self.entries["logic_length"] = phys, lens
        self.entries["codec"] = codecs
        self.sums = np.zeros(120, SUM)
        self.sums["checksum"] = sums
        self.sums["tag"] = [low32(entry.tobytes()) or 1 for entry in self.entries]

    def open(self, io: str, *, verify: bool = True) -> Snapshot:
        mapped = io == "mmap"
        (self.folder / "meta.zr").write_bytes(bytes(HEADER.itemsize) + self.entries.tobytes())
        (self.folder / "0.zr").write_bytes(self.stored)
        (self.folder / "sums.zr").write_bytes(bytes(SLOTS_AT) + self.sums.tobytes())
        table, chunk, sums = (
            FileMap(self.folder / name, 1 << 24, mapped) for name in ("meta.zr", "0.zr", "sums.zr")
        )
        return Snapshot(table, (chunk,), 120, None, Gate(), 1 << 20, sums if verify else None)

    def flip(self, record: int, at: int = -1) -> None:
        entry = self.entries[record]
        self.stored[int(entry["offset"]) + at % int(entry["phys_length"])] ^= 0x10


@pytest.fixture(params=[0, 1], ids=["raw", "zstd"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    return Store(tmp_path, request.param)


@pytest.fixture(params=["mmap", "pread"])
def io(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(params=[1, 2])
def threads(request: pytest.FixtureRequest) -> int:
    return int(request.param)


ALL = np.arange(120)


def read(snapshot: Snapshot, idxs: Any, threads: int, *, at: bool = False) -> Any:
    """Return the records, or the fault."""
    if not at:
        dst = np.empty((len(idxs), 9000), np.uint8)
        fault = gather.gather(snapshot, idxs, dst, 9000, False, bytes(1), threads)
        if fault is not None:
            return fault
        lens = np.empty(len(idxs), np.uint32)
        assert survey.lengths(snapshot, idxs, lens) is None
        return [row[:size].tobytes() for row, size in zip(dst, lens, strict=True)]
    lens = np.empty(len(idxs), np.uint32)
    assert survey.lengths(snapshot, idxs, lens) is None
    starts = np.concatenate([[0], np.cumsum(lens, dtype=np.int64)])
    dst = np.empty(starts[-1], np.uint8)
    fault = gather.gather_at(snapshot, idxs, dst, starts, lens, int(starts[-1]), threads)
    return fault or [dst[a:b].tobytes() for a, b in itertools.pairwise(starts)]


@pytest.mark.parametrize("at", [False, True])
def test_whole_records_are_read_as_ever(store: Store, io: str, threads: int, at: bool, kernel: str) -> None:
    idxs = np.concatenate([ALL[::-1], ALL - 120, ALL])
    expected = [store.records[i] for i in idxs]
    assert read(store.open(io), idxs, threads, at=at) == expected
    assert read(store.open(io, verify=False), idxs, threads, at=at) == expected


@pytest.mark.parametrize("record", [0, 4, 77, 119])
@pytest.mark.parametrize("at", [False, True])
def test_a_flipped_byte_is_found(
    store: Store, io: str, threads: int, at: bool, record: int, kernel: str
) -> None:
    store.flip(record)
    snapshot = store.open(io)
    entry = store.entries[record]
    end = int(entry["offset"]) + int(entry["phys_length"])
    found = low32(store.stored[int(entry["offset"]) : end])
    fault = read(snapshot, ALL, threads, at=at)
    assert fault[:3] == (Fault.SUM, record, record)
    assert fault[-1] & (1 << 64) - 1 == int(store.sums["checksum"][record]) << 32 | found
    others = np.delete(ALL, record)
    assert read(snapshot, others, threads, at=at) == [store.records[i] for i in others]


@pytest.mark.parametrize("field", ["offset", "logic_length", "codec", "reserved"])
def test_a_changed_entry_is_found(store: Store, io: str, threads: int, field: str) -> None:
    """One that could be an entry: other damage is found without sums."""
    store.entries[field][50] += 1
    if field == "logic_length" and store.entries["codec"][50] == 0:
        store.entries["phys_length"][50] += 1
    assert read(store.open(io), ALL, threads)[:3] == (Fault.SUM, 50, 50)
    assert read(store.open(io), np.array([0, 50 - 120]), threads)[-1] == 0


def test_a_changed_sum_is_found(store: Store, io: str, threads: int) -> None:
    store.sums["checksum"][9] ^= 1
    store.sums["tag"][8] ^= 1 << 20
    snapshot = store.open(io)
    assert read(snapshot, ALL, threads)[::9] == (Fault.SUM, 0)  # the entry of record 8, detail 0
    assert read(snapshot, ALL[9:], threads)[:3] == (Fault.SUM, 0, 9)


def test_records_without_a_sum_are_not_verified(store: Store, io: str, threads: int) -> None:
    store.sums[10] = 0
    store.sums = store.sums[:100]
    for record in (10, 110):
        if store.entries["codec"][record] == 0:
            store.flip(record)
            offset, size = (int(store.entries[name][record]) for name in ("offset", "phys_length"))
            store.records[record] = bytes(store.stored[offset : offset + size])
    snapshot = store.open(io)
    assert read(snapshot, ALL, threads) == store.records
    with open(store.folder / "sums.zr", "ab") as stream:
        stream.write(b"\x01\x00\x00")  # a slot cut off is none
    assert read(snapshot, ALL, threads) == store.records


def test_sums_that_come_later_are_seen(store: Store, io: str) -> None:
    whole, store.sums = store.sums, store.sums[:60]
    store.flip(90)
    snapshot = store.open(io)
    read(snapshot, ALL[:2], 1)
    with open(store.folder / "sums.zr", "ab") as stream:
        stream.write(whole[60:].tobytes())
    assert read(snapshot, ALL[90:91], 1)[:3] == (Fault.SUM, 0, 90)


def test_a_map_of_sums_ends_where_it_was_made_to_end(store: Store) -> None:
    """A file longer than its map is used as far as the map goes."""
    store.flip(119)
    snapshot = store.open("mmap")
    sums = FileMap(store.folder / "sums.zr", SLOTS_AT + 100 * SUM.itemsize)
    short = Snapshot(snapshot.table, snapshot.chunks, 120, None, Gate(), 1 << 20, sums)
    assert sums.size() == SLOTS_AT + 120 * SUM.itemsize
    assert len(memoryview(sums)) == SLOTS_AT + 100 * SUM.itemsize
    if store.entries["codec"][119] == 0:
        assert len(read(short, ALL[100:], 1)) == 20
    assert read(snapshot, ALL[119:], 1)[0] == Fault.SUM


def test_a_chunk_longer_than_its_map_is_not_read_beyond_it(store: Store) -> None:
    snapshot = store.open("mmap")
    chunk = FileMap(store.folder / "0.zr", 4096)
    cut = Snapshot(snapshot.table, (chunk,), 120, None, Gate(), 1 << 20)
    fault = read(cut, ALL, 1)
    assert fault[0] == Fault.OUTSIDE_FILE and fault[-1] == 4096 and chunk.size() == len(store.stored)


# ---- Inspecting ----------------------------------------------------------------------------------------------


def inspect(snapshot: Snapshot, idxs: Any, threads: int) -> tuple[Any, Any, Any]:
    n = len(idxs)
    faults, details, checked = np.full(n, -1, np.int32), np.full(n, -1, np.int64), np.full(n, 9, np.uint8)
    assert survey.inspect(snapshot, idxs, faults, details, checked, threads) is None
    return faults, details, checked


def test_inspect_finds_every_damage_and_goes_on(store: Store, io: str, threads: int) -> None:
    store.flip(0)
    store.flip(20, 0)
    store.entries["offset"][40] ^= 1
    store.entries["chunk_id"][41] = 9
    store.sums[60] = 0
    store.sums = store.sums[:119]
    idxs = np.concatenate([ALL, [120, -1]])
    faults, details, checked = inspect(store.open(io), idxs, threads)
    expected = np.zeros(122, np.int32)
    expected[[0, 20, 40]] = Fault.SUM
    expected[41], expected[120] = Fault.CHUNK, Fault.INDEX
    assert faults.tolist() == expected.tolist()
    assert details[40] == 0 and details[41] == 1 and (details[[0, 20]] != 0).all()
    assert not details[expected == 0].any()
    unchecked = [41, 60, 119, 120, 121]
    assert np.flatnonzero(checked == 0).tolist() == unchecked and set(checked.tolist()) == {0, 1}


def test_inspect_without_sums_finds_what_a_gather_would(store: Store, io: str, threads: int) -> None:
    frames = np.flatnonzero(store.entries["codec"] == 1)
    for record in frames[:3]:
        store.flip(int(record), 4)
    store.entries["offset"][100] = len(store.stored)
    faults, _, checked = inspect(store.open(io, verify=False), ALL, threads)
    assert not checked.any() and faults[100] == Fault.OUTSIDE_FILE
    for i in ALL:
        fault = read(store.open(io, verify=False), ALL[i : i + 1], 1)
        assert faults[i] == (fault[0] if isinstance(fault, tuple) else 0)


def test_inspect_works_in_threads_and_in_a_forked_child(store: Store) -> None:
    store.flip(5)
    snapshot = store.open("mmap")

    def call(_: int = 0) -> list[int]:
        return [int(i) for i in np.flatnonzero(inspect(snapshot, ALL, 2)[0])]

    with concurrent.futures.ThreadPoolExecutor(4) as executor:
        assert list(executor.map(call, range(20))) == [[5]] * 20
    assert in_child(call) == [5]


def test_inspect_refuses_what_it_cannot_do(store: Store) -> None:
    snapshot = store.open("mmap")
    faults, details, checked = np.zeros(120, np.int32), np.zeros(120, np.int64), np.zeros(120, np.uint8)
    for bad in (
        (faults[1:], details, checked),
        (faults, details[1:], checked),
        (faults, details, checked[1:]),
    ):
        with pytest.raises(ValueError, match="one item for each index"):
            survey.inspect(snapshot, ALL, *bad, 1)
    idxs = ALL.copy()
    assert survey.inspect(snapshot, idxs, faults, idxs, checked, 1) == (Fault.OVERLAP,)
    snapshot.gate.close()
    assert survey.inspect(snapshot, ALL, faults, details, checked, 1) == (Fault.GATE_CLOSED,)
