"""Gathers and writes of the store, beside its peers and beside what the hardware allows.

- **Data.** 20,000 records of uint8(3, 64, 64), 12 KiB each, seeded: pieces of 12 bytes, 30.5 % of them out of 340
  that all records share, the rest random. zstd reaches a ratio of 1.08 on them. All contenders get the same array.
- **Gather.** `__getitems__(idx)`, or what the peer has in its place, on 256 fresh random indices, with a fresh result
  for every contender alike; drawing the indices and dropping the result are not timed. Every store is read whole once
  before, in random order, and compared with the array: the page cache is warm and the answers are right.
- **Bounds.** memcpy: the same copies from an array in memory to one reused buffer, by 2 threads. libzstd: frames made
  beforehand in memory, decompressed by libzstd to one reused buffer, 2 threads, one context each. libzstd alone:
  all records compressed one by one at level 3 by 2 threads and thrown away. `bounds.c` is compiled with `cc -O3
  -fopenmp` when the benchmark starts and links the libzstd that pkg-config names.
- **Write.** From an array in memory to a new, closed store on a memory file system, without syncing to a disk.
- **Turns.** Every contender has a process of its own and they are measured in turn: a round measures each once for
  the same time, and each round begins with the next one. The number of a round is the throughput over all its calls.
  A ratio is taken within a round; its median over the rounds is given, and the least and the greatest.
- **Quiet.** A turn during which other programs used more than a tenth of a core is measured again, at most five
  times; how many turns stayed disturbed is given with the settings.
- **Beside a busy process.** The same raw and zstd gathers while one process computes without a pause, with all cores
  and with one thread, in turns twice as long. The number of a round is the mean time of a call; percentiles are over
  all calls.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from benchmarks.bounds import compile_bounds
from benchmarks.contenders import Contender, NotInstalledError
from benchmarks.data import make_records
from benchmarks.environment import describe_environment
from benchmarks.neighbour import ForeignLoad, busy_process
from benchmarks.options import (
    add_folder_arguments,
    add_peers_argument,
    add_result_arguments,
    run_in_folder,
)
from benchmarks.pairing import run_rounds
from benchmarks.process import WORKER, ContenderProcess
from benchmarks.registry import list_contenders
from benchmarks.results import Result, Table, make_table, round_number
from benchmarks.turns import MOST_FOREIGN_CORES, MOST_TRIES

GATHER_RAW = (
    "loaderx raw",
    "memcpy bound",
    "loaderx 0.7.3 raw",
    "npy memmap",
    "lmdb",
    "h5py",
    "loaderx raw, 1 thread",
)
GATHER_ZSTD = ("loaderx zstd", "libzstd bound", "loaderx 0.7.3 zstd", "arrayrecord", "loaderx zstd, 1 thread")
WRITE_RAW = ("loaderx raw", "loaderx 0.7.3 raw", "npy memmap", "lmdb", "h5py")
WRITE_ZSTD = ("loaderx zstd", "libzstd alone", "loaderx 0.7.3 zstd", "arrayrecord")
BUSY_RAW = ("loaderx raw", "loaderx raw, 1 thread", "loaderx 0.7.3 raw", "memcpy bound")
BUSY_ZSTD = ("loaderx zstd", "loaderx zstd, 1 thread", "loaderx 0.7.3 zstd", "libzstd bound")


@dataclass(frozen=True)
class Size:
    """How much data, how large a batch, how many rounds, and how long one turn is."""

    num_records: int = 20_000
    shape: tuple[int, ...] = (3, 64, 64)
    batch: int = 256
    num_rounds: int = 11
    turn_s: float = 0.25
    redo: bool = True

    @property
    def batch_mib(self) -> float:
        """MiB of one batch."""
        return self.batch * float(np.prod(self.shape)) / 2**20

    @property
    def data_mib(self) -> float:
        """MiB of all records."""
        return self.num_records * float(np.prod(self.shape)) / 2**20


QUICK = Size(num_records=300, shape=(3, 16, 16), batch=32, num_rounds=2, turn_s=0.01, redo=False)


@dataclass
class Bench:
    """The running contenders, their stores, and the measurements on them."""

    size: Size
    folder: Path
    tmpfs: Path
    data: Path
    contenders: dict[str, ContenderProcess] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    more: dict[str, dict[str, float]] = field(default_factory=dict)
    neighbours: list[int] = field(default_factory=list)
    num_disturbed: int = 0
    worker: ClassVar[Path] = WORKER

    def list_contenders(self, bounds_library: Path) -> dict[str, Contender]:
        """Return every contender by its name."""
        return list_contenders(bounds_library)

    def start(self, names: Sequence[str], bounds_library: Path, peers: Path | None) -> None:
        """Start each contender; one that is not installed is noted with how to install it."""
        every = self.list_contenders(bounds_library)
        for name in names:
            try:
                started = ContenderProcess(every[name], bounds_library, peers, self.worker)
                self.contenders[name] = started
                self.versions[every[name].package] = started.version
            except NotInstalledError as error:
                self.missing[name] = f"not installed ({error}); {every[name].hint}"

    def stop(self) -> None:
        """End all contenders."""
        for contender in self.contenders.values():
            contender.close()

    def choose(self, names: Sequence[str]) -> list[str]:
        """Return those of the names that are running."""
        return [name for name in names if name in self.contenders]

    def take_turn(self, name: str, command: str, **values: str | int | float) -> Any:
        """Let a contender obey a timed command, again where other programs ran meanwhile, and return its answer."""
        contender = self.contenders[name]
        for _ in range(MOST_TRIES if self.size.redo else 1):
            foreign = ForeignLoad([contender.pid, *self.neighbours])
            answer = contender.ask(command, **values)
            if foreign.measure() <= MOST_FOREIGN_CORES:
                return answer
        self.num_disturbed += 1
        return answer

    def table(
        self,
        title: str,
        unit: str,
        names: Sequence[str],
        measure: Callable[[str, int], float],
        more: dict[str, dict[str, float]],
    ) -> Table:
        """Measure the named contenders in rounds; the row of one that is not installed is empty."""
        rows = run_rounds(self.choose(names), measure, self.size.num_rounds)
        rows |= {name: [] for name in names if name in self.missing}
        return make_table(title, unit, names[0], rows, more)

    def write_once(self, name: str, index: int) -> float:
        """Write a store on the memory file system, remove it, and return MiB/s."""
        seconds = self.take_turn(name, "write_scratch", data=str(self.data), folder=str(self.tmpfs))
        return self.size.data_mib / float(seconds)

    def open_once(self, name: str, codec_mate: str | None) -> None:
        """Write the store to gather from (one thread reads what all threads wrote) and read it whole."""
        path = self.folder / (codec_mate or name).replace(" ", "-")
        contender = self.contenders[name]
        if not path.exists():
            contender.ask("write", data=str(self.data), path=str(path))
        if path.is_dir():
            stored = sum(file.stat().st_blocks * 512 for file in path.rglob("*") if file.is_file())
        else:
            stored = path.stat().st_blocks * 512
        self.more[name] = {} if name.endswith("bound") else {"MiB on disk": stored / 2**20}
        contender.ask("open", path=str(path), data=str(self.data), batch=self.size.batch)

    def gather_ns(self, name: str, index: int, seconds: float) -> list[int]:
        """Take one turn of gathers: the nanoseconds of each call."""
        took: list[int] = self.take_turn(
            name, "run", seconds=seconds, batch=self.size.batch, seed=1000 + index
        )
        return took

    def gather_rate(self, name: str, index: int) -> float:
        """Take one turn of gathers: MiB/s over all its calls."""
        took = self.gather_ns(name, index, self.size.turn_s)
        return self.size.batch_mib * len(took) / (sum(took) / 1e9)

    def gather_mean(self, calls: dict[str, list[int]], name: str, index: int) -> float:
        """Take one turn of gathers: the mean microseconds of a call; all calls are kept in `calls`."""
        took = self.gather_ns(name, index, 2 * self.size.turn_s)
        calls.setdefault(name, []).extend(took)
        return sum(took) / len(took) / 1e3

    def gathers(self, title: str, names: Sequence[str]) -> Table:
        """Measure gathers in rounds."""
        more = {name: self.more[name] for name in self.choose(names)}
        return self.table(title, "MiB/s", names, self.gather_rate, more)

    def writes(self, title: str, names: Sequence[str]) -> Table:
        """Measure writes in rounds, after one that warms up."""
        for name in self.choose(names):
            self.write_once(name, -1)
        return self.table(title, "MiB/s", names, self.write_once, {})

    def busy(self, title: str, names: Sequence[str]) -> Table:
        """Measure gathers in rounds beside a busy process."""
        calls: dict[str, list[int]] = {}
        with busy_process() as neighbour:
            self.neighbours = [neighbour]
            table = self.table(title, "us", names, partial(self.gather_mean, calls), {})
        self.neighbours = []
        for name, took in calls.items():
            p50, p99 = np.percentile(took, [50, 99]) / 1e3
            table["more"][name] = {"p50": round_number(p50), "p99": round_number(p99)}
        return table


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    add_result_arguments(parser, Size.num_rounds)
    add_peers_argument(parser)
    add_folder_arguments(parser, "for the stores to gather from")
    parser.add_argument(
        "--tmpfs", type=Path, default=Path("/dev/shm"), help="a memory file system to write on"
    )
    parser.add_argument(
        "--only", action="append", metavar="NAME", help="a contender to measure; may be repeated"
    )


def run(options: argparse.Namespace) -> int:
    """Run the benchmark, print its tables, and write its result; 2 when an option is wrong."""
    size = QUICK if options.quick else Size(num_rounds=options.rounds)
    names = list(dict.fromkeys(GATHER_RAW + GATHER_ZSTD + WRITE_RAW + WRITE_ZSTD))
    if unknown := sorted(set(options.only or ()) - set(names)):
        print(f"unknown contender: {unknown[0]}")
        return 2
    if options.only:
        names = [name for name in names if name in options.only]
    return run_in_folder(options, partial(measure, size, names, options.tmpfs, options.peers))


def measure(size: Size, names: Sequence[str], tmpfs: Path, peers: Path | None, folder: Path) -> Result:
    """Measure the named contenders in `folder`, which is left full."""
    environment = describe_environment()
    bounds_library = folder / "bounds.so"
    try:
        compile_bounds(bounds_library)
    except NotInstalledError as error:
        print(f"no bounds: {error}")
    data = folder / "data.npy"
    np.save(data, make_records(size.num_records, size.shape))
    bench = Bench(size, folder, tmpfs, data)
    try:
        bench.start(names, bounds_library, peers)
        for name in bench.choose(GATHER_RAW + GATHER_ZSTD):
            mate = name.removesuffix(", 1 thread")
            bench.open_once(name, mate if mate in bench.contenders else None)
        tables = {
            "gather_raw": bench.gathers("Gather, records stored as they are", GATHER_RAW),
            "gather_zstd": bench.gathers("Gather, zstd", GATHER_ZSTD),
            "write_raw": bench.writes("Write, records stored as they are", WRITE_RAW),
            "write_zstd": bench.writes("Write, zstd", WRITE_ZSTD),
            "busy_raw": bench.busy("Gather beside a busy process, records stored as they are", BUSY_RAW),
            "busy_zstd": bench.busy("Gather beside a busy process, zstd", BUSY_ZSTD),
        }
        environment |= bench.versions
    finally:
        bench.stop()
    return {
        "benchmark": "store",
        "settings": {
            "records": size.num_records,
            "shape": " x ".join(map(str, size.shape)),
            "batch": size.batch,
            "rounds": size.num_rounds,
            "seconds a turn": size.turn_s,
            "turns disturbed by other programs": bench.num_disturbed,
        },
        "environment": environment,
        "tables": tables,
        "missing": bench.missing,
    }
