"""What it costs that nothing is lost: beside an earlier commit, and by itself.

- **Before.** Gathers and appends of this code beside those of an earlier commit, whose wheel is installed in the folder
  ``loaderx-before`` of the peers: here the last one without locks, journal, checksums and the mark of a session. The
  gathers are those of the store's benchmark. The appends go to one open store on a memory file system: batches of 256
  records of 12 KiB, and single records of 1 KiB; the first three, which begin the session, are not timed.
- **Read calls.** The raw gather through the map beside one with ``io="pread"``, which no file that is cut off can kill.
- **By itself.** Milliseconds, on the disk that holds the folder of temporary files (or ``--dir``), of: the first append
  of a handle, which begins its session; `sync` and `close` after an append of 3 MiB; `delete` of one record; and the
  whole of opening, appending one record and closing. Then how fast `verify` reads a store.
- **Turns.** As in the store's benchmark: in turn, a ratio within a round, the median over rounds.
"""

from __future__ import annotations

import argparse
import time
from functools import partial
from pathlib import Path

import numpy as np

import loaderx
from benchmarks.bounds import compile_bounds
from benchmarks.contenders import NotInstalledError
from benchmarks.data import make_records
from benchmarks.environment import describe_environment
from benchmarks.options import (
    add_folder_arguments,
    add_peers_argument,
    add_result_arguments,
    run_in_folder,
)
from benchmarks.results import Result, Table, make_table
from benchmarks.store import QUICK, Bench, Size

NUM_ROUNDS = 21
GATHERS = (
    "loaderx raw",
    "loaderx before raw",
    "loaderx raw, pread",
    "loaderx zstd",
    "loaderx before zstd",
)
SMALL_RECORD_BYTES = 1024


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    add_result_arguments(parser, NUM_ROUNDS)
    add_peers_argument(parser)
    add_folder_arguments(parser)
    parser.add_argument(
        "--tmpfs", type=Path, default=Path("/dev/shm"), help="a memory file system to append on"
    )


def run(options: argparse.Namespace) -> int:
    """Run the benchmark, print its tables, and write its result; 2 when an option is wrong."""
    size = QUICK if options.quick else Size(num_rounds=options.rounds)
    return run_in_folder(options, partial(measure, size, options.tmpfs, options.peers))


def measure(size: Size, tmpfs: Path, peers: Path | None, folder: Path) -> Result:
    """Measure in `folder`, which is left full."""
    environment = describe_environment()
    bounds_library = folder / "bounds.so"
    try:
        compile_bounds(bounds_library)
    except NotInstalledError as error:
        print(f"no bounds: {error}")
    data = folder / "data.npy"
    np.save(data, make_records(size.num_records, size.shape))
    bench = Bench(size, folder, tmpfs, data)
    tables: dict[str, Table] = {}
    try:
        bench.start(GATHERS, bounds_library, peers)
        for name in bench.choose(GATHERS):
            bench.open_once(name, None)
        bench.more = {}
        for codec in ("raw", "zstd"):
            names = [name for name in GATHERS if codec in name]
            bench.more = {name: {} for name in names}
            tables[f"gather_{codec}"] = bench.gathers(f"Gather, {codec}", names)
            pair = [f"loaderx {codec}", f"loaderx before {codec}"]
            record_bytes = int(np.prod(size.shape))
            append = partial(append_mean, bench, codec, size.batch, record_bytes)
            tables[f"append_{codec}"] = bench.table(f"Append of a batch, {codec}", "us", pair, append, {})
        small = partial(append_mean, bench, "raw", 1, SMALL_RECORD_BYTES)
        pair = ["loaderx raw", "loaderx before raw"]
        tables["append_one"] = bench.table("Append of one record of 1 KiB, raw", "us", pair, small, {})
    finally:
        bench.stop()
    tables["alone"] = measure_alone(size, folder)
    return {
        "benchmark": "safety",
        "settings": {
            "records": size.num_records,
            "shape": " x ".join(map(str, size.shape)),
            "batch": size.batch,
            "rounds": size.num_rounds,
            "seconds a turn": size.turn_s,
            "turns disturbed by other programs": bench.num_disturbed,
        },
        "environment": environment | bench.versions,
        "tables": tables,
        "missing": bench.missing,
    }


def append_mean(bench: Bench, codec: str, batch: int, record_bytes: int, name: str, index: int) -> float:
    """Take one turn of appends: the median microseconds of a call."""
    took = bench.take_turn(
        name,
        "append",
        data=str(bench.data),
        folder=str(bench.tmpfs),
        codec=codec,
        batch=batch,
        record_bytes=record_bytes,
        seconds=bench.size.turn_s,
    )
    return float(np.median(took)) / 1e3


def measure_alone(size: Size, folder: Path) -> Table:
    """Return the milliseconds of what a session does once, and of verifying the whole store."""
    records = make_records(size.batch, size.shape)
    n, record_bytes = len(records), records[0].nbytes
    rows: dict[str, list[float]] = {}

    def timed(name: str, start: float) -> None:
        rows.setdefault(name, []).append((time.perf_counter() - start) * 1e3)

    for number in range(size.num_rounds):
        path = folder / f"alone-{number}"
        store = loaderx.Zrecord(path, "raw")
        start = time.perf_counter()
        store.append(records, n, record_bytes)
        timed("first append of a handle", start)
        store.append(records, n, record_bytes)
        start = time.perf_counter()
        store.sync()
        timed("sync", start)
        store.append(records, n, record_bytes)
        start = time.perf_counter()
        store.delete([0])
        timed("delete of one record", start)
        store.append(records, n, record_bytes)
        start = time.perf_counter()
        store.close()
        timed("close", start)
        start = time.perf_counter()
        with loaderx.Zrecord(path, "raw") as store:
            store.append(records, 1, record_bytes)
        timed("open, append one record, close", start)
        start = time.perf_counter()
        assert loaderx.verify(path).ok
        timed(f"verify {(4 * n * record_bytes) >> 20} MiB", start)
    return make_table("By itself", "ms", "first append of a handle", rows, {})
