"""What byte shuffling before zstd gains, and what it costs.

- **Data.** 20,000 records of 12 KiB, seeded, of two kinds. Waves: float32, one slow sine a record with a little noise.
  Tokens: int32, ids out of 50,257 in the order of how frequent they are, drawn by Zipf's law. Items of 4 bytes, and
  zstd's level 3.
- **Stored.** Mean bytes of a stored record: as it is, with zstd, with zstd of the shuffled record (``zstd_shuffle``).
- **Gather.** 256 fresh random indices, all cores, page cache warm, by the compiled core into fresh memory, ready to
  use. The bound is the store's: frames of the same shuffled bytes, made beforehand in memory, decompressed by libzstd
  alone to one reused buffer, 2 threads, one context each; what it leaves is shuffled.
- **Compress.** The first 2,000 records, from memory to reused memory, with the checksums that an append makes. libzstd
  alone: the same bytes, shuffled beforehand, compressed by 2 threads and thrown away.
- **In cache.** One core, 21 records of 12 KiB that lie in its second-level cache, unshuffled into one buffer, over and
  over: with each kernel that works here, and with the best one for items of other sizes. `shuffle_rounds.c` is compiled
  with `cc -O3` when the benchmark starts and includes the source of the kernels that the package is built from.
- **Turns.** As in the benchmark of checksums: in turn, each for the same time, again where other programs ran
  meanwhile; a ratio within a round, the median over rounds.
"""

from __future__ import annotations

import argparse
import ctypes
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.bounds import ZSTD_LEVEL, CompressBound, ZstdBound, compile_bounds, run_tool
from benchmarks.checksum import HEADERS
from benchmarks.contenders import NotInstalledError
from benchmarks.data import make_tokens, make_waves
from benchmarks.environment import describe_environment
from benchmarks.options import add_folder_arguments, add_result_arguments, run_in_folder
from benchmarks.results import Result, Table, make_table
from benchmarks.turns import QUICK, Size, measure_rows

SOURCE = Path(__file__).with_name("shuffle_rounds.c")
RECORDS_IN_CACHE = 21
ROUNDS_A_CALL = 50
ITEM_SIZE = 4
OTHER_ITEM_SIZES = (2, 3, 8, 12, 16, 24)
RECORDS_TO_COMPRESS = 2_000
CODECS = {"zstd_shuffle": 3, "zstd": 1}
BEST = "the best kernel"
BOUND = "libzstd bound"
ALONE = "libzstd alone"

Bytes = NDArray[np.uint8]


class Memory:
    """Records in cache and room for one, and the functions of shuffle_rounds.c on them.

    Raises
    ------
    NotInstalledError
        There is no C compiler.
    """

    def __init__(self, library: Path, size: Size) -> None:
        run_tool(["cc", "-O3", "-shared", "-fPIC", f"-I{HEADERS}", "-o", str(library), str(SOURCE)])
        self._library = ctypes.CDLL(str(library))
        self._library.shuffle_kernel.restype = ctypes.c_char_p
        self._size = size
        self._target: Bytes = np.zeros(size.record_bytes, np.uint8)
        self._source = np.random.default_rng(0).integers(
            0, 256, RECORDS_IN_CACHE * size.record_bytes, dtype=np.uint8
        )
        self.kernels: dict[str, int] = {}
        for number in range(self._library.shuffle_kernels()):
            name = self._library.shuffle_kernel(ctypes.c_int64(number))
            if name is not None:
                self.kernels[name.decode()] = number

    def rate(self, kernel: str | None, item_size: int, undo: bool = True) -> float:
        """Take one turn: GiB/s."""
        run = partial(
            self._library.shuffle_run,
            ctypes.c_int64(-1 if kernel is None else self.kernels[kernel]),
            ctypes.c_int64(undo),
            ctypes.c_void_p(self._target.ctypes.data),
            ctypes.c_void_p(self._source.ctypes.data),
            ctypes.c_int64(self._size.record_bytes),
            ctypes.c_int64(item_size),
            ctypes.c_int64(RECORDS_IN_CACHE),
        )
        num_rounds, start = 0, time.perf_counter()
        while (seconds := time.perf_counter() - start) < self._size.turn_s:
            run(ctypes.c_int64(ROUNDS_A_CALL))
            num_rounds += ROUNDS_A_CALL
        return num_rounds * len(self._source) / seconds / 2**30

    def tables(self) -> dict[str, Table]:
        """Measure every kernel, and the best one with items of every size and both ways."""
        best, *others = self.kernels
        rows: dict[str, Callable[[], float]] = {BEST: partial(self.rate, best, ITEM_SIZE)}
        rows["memcpy"] = partial(self.rate, None, ITEM_SIZE)
        rows |= {name: partial(self.rate, name, ITEM_SIZE) for name in others}
        sizes: dict[str, Callable[[], float]] = {f"{ITEM_SIZE} bytes": partial(self.rate, best, ITEM_SIZE)}
        sizes |= {f"{item} bytes": partial(self.rate, best, item) for item in OTHER_ITEM_SIZES}
        sizes[f"{ITEM_SIZE} bytes, shuffled"] = partial(self.rate, best, ITEM_SIZE, False)
        return {
            "cache": measure_rows(self._size, "In cache, items of 4 bytes", "GiB/s", rows),
            "cache_items": measure_rows(self._size, f"In cache, by size of items, {BEST}", "GiB/s", sizes),
        }


def make_room(records: Bytes) -> Bytes:
    """Return memory for the compressed records, mapped."""
    from loaderx._core.compress import compress_bound

    n, record_bytes = records.shape
    room: Bytes = np.ones(compress_bound(np.full(n, record_bytes, np.uint32)), np.uint8)
    return room


def compress_records(records: Bytes, codec: int, out: Bytes) -> tuple[Bytes, Bytes, NDArray[np.uint32]]:
    """Return stored bytes, in `out`, and of each record the codec and the stored length, as an append makes them."""
    from loaderx._core import compress

    n, record_bytes = records.shape
    lens = np.full(n, record_bytes, np.uint32)
    starts = np.arange(n, dtype=np.int64) * record_bytes
    phys, codecs, sums = np.empty(n, np.uint32), np.empty(n, np.uint8), np.empty(n, np.uint32)
    total = compress.compress(
        records, starts, lens, out, phys, codecs, codec, ZSTD_LEVEL, None, cpus(), sums, ITEM_SIZE
    )
    return out[:total], codecs, phys


def cpus() -> int:
    """Return how many threads the core would use."""
    from loaderx._core.threads import available_cpus

    return available_cpus()


def open_store(
    folder: Path, stored: Bytes, codecs: Bytes, phys: NDArray[np.uint32], record_bytes: int
) -> Any:
    """Write what `compress_records` gave as a store's table and chunk, and return a snapshot of them."""
    from loaderx._core.maps import FileMap
    from loaderx._core.snapshot import Gate, Snapshot
    from loaderx.store.format import CHUNK_BYTES, HEADER, META_BYTES, RECORD

    entries = np.zeros(len(phys), RECORD)
    entries["offset"] = np.cumsum(phys, dtype=np.int64) - phys
    entries["phys_length"], entries["logic_length"] = phys, record_bytes
    entries["codec"], entries["reserved"] = codecs, np.where(codecs >= CODECS["zstd_shuffle"], ITEM_SIZE, 0)
    folder.mkdir()
    (folder / "meta.zr").write_bytes(bytes(HEADER.itemsize) + entries.tobytes())
    stored.tofile(folder / "0.zr")
    table, chunk = FileMap(folder / "meta.zr", META_BYTES), FileMap(folder / "0.zr", CHUNK_BYTES)
    return Snapshot(table, (chunk,), len(phys), None, Gate(), record_bytes, None, CODECS["zstd_shuffle"])


def gather_from(snapshot: Any, record_bytes: int, idxs: NDArray[np.int64]) -> Bytes:
    """Return records, in fresh memory."""
    from loaderx._core import gather

    batch: Bytes = np.empty((len(idxs), record_bytes), np.uint8)
    if gather.gather(snapshot, idxs, batch, record_bytes, True, None, cpus()) is not None:
        raise ValueError("a record could not be read")
    return batch


class Kind:
    """One kind of data: its records, and the same shuffled."""

    def __init__(self, name: str, records: Bytes, size: Size, folder: Path) -> None:
        from loaderx._core.shuffle import shuffle

        self._name, self._records, self._size, self._folder = name, records, size, folder
        pieces = b"".join(shuffle(record, ITEM_SIZE) for record in records)
        self._shuffled: Bytes = np.frombuffer(pieces, np.uint8).reshape(records.shape)

    def stores(self) -> tuple[dict[str, Any], Table]:
        """Write a store of each codec: snapshots, and bytes a record."""
        snapshots: dict[str, Any] = {}
        record_bytes = self._size.record_bytes
        rows = {"raw": [float(record_bytes)]}
        room = make_room(self._records)
        for name, codec in CODECS.items():
            stored, codecs, phys = compress_records(self._records, codec, room)
            rows[name] = [len(stored) / len(phys)]
            folder = self._folder / f"{self._name}-{name}"
            snapshots[name] = open_store(folder, stored, codecs, phys, record_bytes)
        table = make_table(f"{self._name.capitalize()}, stored", "bytes a record", "zstd_shuffle", rows)
        return snapshots, table

    def gathers(self, snapshots: dict[str, Any], bound: ZstdBound | None) -> Table:
        """Measure gathers, and libzstd alone on the shuffled bytes."""
        size, rng = self._size, np.random.default_rng(1)
        every = rng.permutation(len(self._records))
        calls: dict[str, Callable[[NDArray[np.int64]], Bytes]] = {
            name: partial(gather_from, snapshot, size.record_bytes) for name, snapshot in snapshots.items()
        }
        expected = dict.fromkeys(calls, self._records)
        if bound is not None:
            calls[BOUND] = bound.bind(self._shuffled, size.record_bytes)
            expected[BOUND] = self._shuffled
        for name, call in calls.items():
            for idxs in np.array_split(every, max(1, len(every) // size.batch)):
                if not np.array_equal(call(idxs), expected[name][idxs]):
                    raise ValueError("a gather gave other bytes than were written")

        def rate(call: Callable[[NDArray[np.int64]], Bytes]) -> float:
            clock, took, num_calls = time.perf_counter, 0.0, 0
            for _ in range(3):
                call(rng.integers(0, len(every), size.batch))
            deadline = clock() + size.turn_s
            while num_calls == 0 or clock() < deadline:
                idxs = rng.integers(0, len(every), size.batch)
                start = clock()
                result = call(idxs)
                took += clock() - start
                num_calls += 1
                del result
            return num_calls * size.batch * size.record_bytes / took / 2**20

        rows: dict[str, Callable[[], float]] = {name: partial(rate, call) for name, call in calls.items()}
        return measure_rows(size, f"{self._name.capitalize()}, gather", "MiB/s", rows)

    def writes(self, bound: CompressBound | None) -> Table:
        """Measure compression, and libzstd alone on the shuffled bytes."""
        records, shuffled = self._records[:RECORDS_TO_COMPRESS], self._shuffled[:RECORDS_TO_COMPRESS]
        room = make_room(records)

        def rate(call: Callable[[], Any]) -> float:
            start = time.perf_counter()
            call()
            return records.nbytes / (time.perf_counter() - start) / 2**20

        calls: dict[str, Callable[[], Any]] = {
            name: partial(compress_records, records, codec, room) for name, codec in CODECS.items()
        }
        if bound is not None:
            calls[ALONE] = partial(bound.write, self._folder, shuffled)
        rows: dict[str, Callable[[], float]] = {name: partial(rate, call) for name, call in calls.items()}
        return measure_rows(self._size, f"{self._name.capitalize()}, compress", "MiB/s", rows)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    add_result_arguments(parser, Size.num_rounds)
    add_folder_arguments(parser, "for the stores to gather from")


def run(options: argparse.Namespace) -> int:
    """Run the benchmark, print its tables, and write its result; 2 when an option is wrong."""
    size = QUICK if options.quick else Size(num_rounds=options.rounds)
    return run_in_folder(options, partial(measure, size))


def measure(size: Size, folder: Path) -> Result:
    """Measure everything in `folder`, which is left full."""
    environment = describe_environment()
    tables: dict[str, Table] = {}
    missing: dict[str, str] = {}
    decompresses: ZstdBound | None = None
    compresses: CompressBound | None = None
    try:
        compile_bounds(folder / "bounds.so")
        decompresses, compresses = ZstdBound(folder / "bounds.so"), CompressBound(folder / "bounds.so")
        environment["libzstd of the bounds"] = decompresses.prepare()
        compresses.prepare()
    except NotInstalledError as error:
        decompresses = compresses = None
        missing["bounds"] = f"not measured ({error}); a C compiler, OpenMP, pkg-config, libzstd's header"
    for name, make in (("waves", make_waves), ("tokens", make_tokens)):
        records = make(size.num_records, size.record_bytes // ITEM_SIZE).view(np.uint8)
        kind = Kind(name, records, size, folder)
        snapshots, tables[f"{name}_stored"] = kind.stores()
        tables[f"{name}_gather"] = kind.gathers(snapshots, decompresses)
        tables[f"{name}_compress"] = kind.writes(compresses)
    try:
        memory = Memory(folder / "shuffle.so", size)
        tables |= memory.tables()
        environment["kernels, the best first"] = ", ".join(memory.kernels)
    except NotInstalledError as error:
        missing["in cache"] = f"not measured ({error}); a C compiler"
    return {
        "benchmark": "shuffle",
        "settings": {
            "records": size.num_records,
            "bytes a record": size.record_bytes,
            "records compressed a turn": min(RECORDS_TO_COMPRESS, size.num_records),
            "records in cache": RECORDS_IN_CACHE,
            "batch": size.batch,
            "rounds": size.num_rounds,
            "seconds a turn": size.turn_s,
        },
        "environment": environment,
        "tables": tables,
        "missing": missing,
    }
