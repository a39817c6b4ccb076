"""Reading from a disk: everything is dropped from memory before each turn.

- **Root.** Only root can drop the page cache of the whole machine (`/proc/sys/vm/drop_caches`); without that right the
  command refuses. Everything else that runs on the machine is slower for a while.
- **Data.** 2 GiB of random bytes in records of 12 KiB, on the disk that holds the folder of temporary files (or
  ``--dir``). loaderx and loaderx 0.7.3 read the same store, stored as it is; the memmap reads a `.npy` with the same
  bytes.
- **Random.** 64 batches of 256 records in random order, each record once: 9 % of the data, so that what one batch
  brings does not serve the next. Opening is not timed, the first batch is. The percentiles are those of single batches,
  pooled over the rounds; with `prefetch`, each batch is asked for before the one before it is gathered.
- **Sequential.** The whole data in batches of 256, beside reading the store's file by `read` in pieces of a batch's
  size.
- **Bounds.** The device alone: the same random reads, and 1 MiB pieces in order, past the page cache (`O_DIRECT`) by
  many threads at a time. `cold.c` is compiled with `cc -O3 -pthread` when the benchmark starts.
- **Warm.** Gathers of 256 random records of 20,000 that are all in memory, beside an earlier commit that never asks
  ahead, whose wheel is installed in the folder ``loaderx-before`` of the peers.
- **Turns.** Each contender has a process of its own and they take turns; a ratio is taken within a round, its median
  over the rounds is given. A disk that others use too differs from turn to turn by far more than a processor.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.bounds import run_tool
from benchmarks.contenders import NotInstalledError
from benchmarks.environment import describe_environment
from benchmarks.options import (
    add_folder_arguments,
    add_peers_argument,
    add_result_arguments,
    run_in_folder,
)
from benchmarks.pairing import run_rounds
from benchmarks.process import ContenderProcess
from benchmarks.registry import list_contenders
from benchmarks.results import Result, Table, make_table

LEAST_ROUNDS = 5
DROP_CACHES = Path("/proc/sys/vm/drop_caches")
SOURCE = Path(__file__).with_name("cold.c")

OURS = "loaderx raw"
PREFETCHED = "loaderx raw, prefetch"
BEFORE = "loaderx before raw"
PREAD = "read of the file"
DEVICE = "the device alone"
CONTENDERS = (OURS, "loaderx raw, pread", "loaderx 0.7.3 raw", "npy memmap")
RANDOM = (OURS, PREFETCHED, *CONTENDERS[1:], DEVICE)
SEQUENTIAL = (*CONTENDERS, PREAD, DEVICE)
WARM = (OURS, BEFORE)

DEPTH = 64
SEQUENTIAL_DEPTH = 4
DIRECT_BYTES = 1 << 20
BLOCK_RECORDS = 4096
WARM_TURN_S = 0.25


@dataclass(frozen=True)
class Size:
    """How much data, how large a batch, how many batches of a random turn, how many rounds."""

    num_records: int = (2 << 30) // 12_288
    num_warm: int = 20_000
    record_bytes: int = 12_288
    batch: int = 256
    num_batches: int = 64
    num_rounds: int = 9
    drops: bool = True


QUICK = Size(num_records=2000, num_warm=300, batch=32, num_batches=8, num_rounds=2, drops=False)


class NotPermittedError(Exception):
    """The page cache cannot be dropped."""


def drop_caches() -> None:
    """Have everything that is written reach the disk, and the memory forget all files.

    Raises
    ------
    NotPermittedError
    """
    os.sync()
    try:
        DROP_CACHES.write_text("3\n", encoding="ascii")
    except OSError as error:
        raise NotPermittedError(
            f"{DROP_CACHES}: {error.strerror}: cold reads can only be measured by root"
        ) from None


def write_data(path: Path, size: Size) -> None:
    """Save random records as an array, a block at a time."""
    rng = np.random.default_rng(0)
    shape = (size.num_records, size.record_bytes)
    records = np.lib.format.open_memmap(path, "w+", np.uint8, shape)  # type: ignore[no-untyped-call]
    for start in range(0, size.num_records, BLOCK_RECORDS):
        block = records[start : start + BLOCK_RECORDS]
        block[:] = np.frombuffer(rng.bytes(block.nbytes), np.uint8).reshape(block.shape)


class Device:
    """Reads of one file past the page cache, and through it from its beginning to its end.

    Raises
    ------
    NotInstalledError
        There is no C compiler.
    """

    def __init__(self, library: Path, path: Path) -> None:
        run_tool(["cc", "-O3", "-shared", "-fPIC", "-pthread", "-o", str(library), str(SOURCE)])
        self._read = ctypes.CDLL(str(library)).cold_read
        self._read.restype = ctypes.c_double
        self._path = path

    def rate(self, offsets: NDArray[np.int64], n_bytes: int, depth: int) -> float:
        """Return MiB/s of reading `n_bytes` at each offset."""
        count = ctypes.c_int64(len(offsets))
        path, at = os.fsencode(self._path), ctypes.c_void_p(offsets.ctypes.data)
        seconds = self._read(path, at, count, ctypes.c_int64(n_bytes), ctypes.c_int(depth))
        if seconds < 0:
            raise OSError(f"{self._path} cannot be read with O_DIRECT: give --dir on another file system")
        return float(len(offsets) * n_bytes / seconds / 2**20)


def read_through(path: Path, piece_bytes: int) -> float:
    """Read a file from its beginning to its end; MiB/s."""
    piece = np.ones(piece_bytes, np.uint8)
    total, start = 0, time.perf_counter()
    with path.open("rb", buffering=0) as file:
        while got := file.readinto(piece.data):
            total += got
    return total / (time.perf_counter() - start) / 2**20


@dataclass
class Bench:
    """The running contenders and the files they read."""

    size: Size
    data: Path
    store: Path
    warm: Path
    contenders: dict[str, ContenderProcess] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    device: Device | None = None

    def start(self, names: Sequence[str], folder: Path, peers: Path | None) -> None:
        """Start each contender; one that is not installed is noted with how to install it."""
        every = list_contenders(folder / "none.so")
        for name in names:
            try:
                self.contenders[name] = started = ContenderProcess(every[name], folder / "none.so", peers)
                self.versions[every[name].package] = started.version
            except NotInstalledError as error:
                self.missing[name] = f"not installed ({error}); {every[name].hint}"

    def stop(self) -> None:
        """End all contenders."""
        for contender in self.contenders.values():
            contender.close()
        self.contenders.clear()

    def choose(self, names: Sequence[str]) -> list[str]:
        """Return those of the names that can be measured."""
        return [name for name in names if name in {*self.contenders, PREAD} or name == PREFETCHED or (
            name == DEVICE and self.device is not None
        )]  # fmt: skip

    def take_turn(self, name: str, order: str, num_batches: int, seed: int) -> list[int]:
        """Let a contender read batches; nanoseconds of each."""
        process = self.contenders[OURS if name == PREFETCHED else name]
        took: list[int] = process.ask(
            "run_cold",
            path=str(self.data if name == "npy memmap" else self.store),
            order=order,
            num_records=self.size.num_records,
            batch=self.size.batch,
            num_batches=num_batches,
            seed=seed,
            prefetch=name == PREFETCHED,
        )
        return took

    def random(self) -> Table:
        """Measure random batches, and how much they differ."""
        size, batches = self.size, dict[str, list[int]]()

        def measure(name: str, index: int) -> float:
            if size.drops:
                drop_caches()
            if name == DEVICE and self.device is not None:
                rng = np.random.default_rng(index)
                chosen = rng.permutation(size.num_records)[: size.num_batches * size.batch]
                return self.device.rate(chosen * size.record_bytes, size.record_bytes, DEPTH)
            took = self.take_turn(name, "random", size.num_batches, index)
            batches.setdefault(name, []).extend(took)
            return size.num_batches * size.batch * size.record_bytes / 2**20 / (sum(took) / 1e9)

        rows = run_rounds(self.choose(RANDOM), measure, size.num_rounds)
        more = {
            name: {f"p{share} ms": float(np.percentile(took, share)) / 1e6 for share in (5, 50, 95)}
            for name, took in batches.items()
        }
        return make_table(
            "Random batches, nothing in memory", "MiB/s", OURS, self.complete(rows, RANDOM), more
        )

    def sequential(self) -> Table:
        """Measure a pass over everything."""
        size = self.size
        num_batches = size.num_records // size.batch
        read_bytes = num_batches * size.batch * size.record_bytes

        def measure(name: str, index: int) -> float:
            if size.drops:
                drop_caches()
            if name == DEVICE and self.device is not None:
                offsets = np.arange(read_bytes // DIRECT_BYTES) * DIRECT_BYTES
                return self.device.rate(offsets, DIRECT_BYTES, SEQUENTIAL_DEPTH)
            if name == PREAD:
                return read_through(self.store / "0.zr", size.batch * size.record_bytes)
            return read_bytes / 2**20 / (sum(self.take_turn(name, "sequential", num_batches, index)) / 1e9)

        rows = run_rounds(self.choose(SEQUENTIAL), measure, size.num_rounds)
        title = "One pass in order, nothing in memory"
        return make_table(title, "MiB/s", OURS, self.complete(rows, SEQUENTIAL))

    def memory(self) -> Table:
        """Measure gathers from memory: the mean time of a call, without its slowest twentieth."""
        size = self.size
        for name in self.choose(WARM):
            self.contenders[name].ask(
                "open", path=str(self.warm), data=str(self.warm) + ".npy", batch=size.batch
            )

        def measure(name: str, index: int) -> float:
            took = self.contenders[name].ask(
                "run", seconds=WARM_TURN_S if size.drops else 0.01, batch=size.batch, seed=index
            )
            return float(np.mean(sorted(took)[: -(-len(took) * 19 // 20)])) / 1e3

        rows = run_rounds(self.choose(WARM), measure, 4 * size.num_rounds)
        return make_table("Random batches, everything in memory", "us", OURS, self.complete(rows, WARM))

    @staticmethod
    def complete(rows: dict[str, list[float]], names: Sequence[str]) -> dict[str, list[float]]:
        """Return rows with an empty one for each name that was not measured."""
        return rows | {name: [] for name in names if name not in rows}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    add_result_arguments(parser, Size.num_rounds, LEAST_ROUNDS)
    add_peers_argument(parser)
    add_folder_arguments(
        parser,
        "on the disk to measure, with room for 5 GiB",
        "tiny data, nothing dropped: shows that everything runs",
    )


def run(options: argparse.Namespace) -> int:
    """Run the benchmark, print its tables, and write its result; 2 when an option or the user is wrong."""
    size = QUICK if options.quick else Size(num_rounds=options.rounds)
    try:
        return run_in_folder(options, partial(measure, size, options.peers), LEAST_ROUNDS)
    except NotPermittedError as error:
        print(error)
        return 2


def measure(size: Size, peers: Path | None, folder: Path) -> Result:
    """Measure everything in `folder`, which is left full.

    Raises
    ------
    NotPermittedError
        At once, where caches are to be dropped.
    """
    if size.drops:
        drop_caches()
    environment = describe_environment()
    bench = Bench(size, folder / "data.npy", folder / "data.zr", folder / "warm.zr")
    write_data(bench.data, size)
    np.save(f"{bench.warm}.npy", np.load(bench.data, mmap_mode="r")[: size.num_warm])
    try:
        bench.start([*CONTENDERS, BEFORE], folder, peers)
        bench.contenders[OURS].ask("write", data=str(bench.data), path=str(bench.store))
        bench.contenders[OURS].ask("write", data=f"{bench.warm}.npy", path=str(bench.warm))
        try:
            bench.device = Device(folder / "cold.so", bench.store / "0.zr")
        except NotInstalledError as error:
            bench.missing[DEVICE] = f"not measured ({error})"
        tables = {"random": bench.random(), "sequential": bench.sequential()}
        # In new processes: one that has done much is not laid out in memory as one that has not.
        bench.stop()
        bench.start(WARM, folder, peers)
        tables["warm"] = bench.memory()
    finally:
        bench.stop()
    return {
        "benchmark": "cold",
        "settings": {
            "records": size.num_records,
            "record bytes": size.record_bytes,
            "batch": size.batch,
            "batches of a random turn": size.num_batches,
            "rounds": size.num_rounds,
            "requests at once, the device alone": f"{DEPTH} random, {SEQUENTIAL_DEPTH} in order",
        },
        "environment": environment | bench.versions,
        "tables": tables,
        "missing": bench.missing,
    }
