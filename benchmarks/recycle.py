"""What it gains that batches come from memory which earlier ones had, and what that keeps of the memory.

- **Data.** 1,500 records of 147 KiB (an image of 224 x 224 x 3 bytes), random bytes stored as they are, page cache
  warm. A batch is 256 of them at random, 37 MiB, gathered by all cores.
- **Gathers.** `__getitems__`, whose result lies in recycled memory; the same with ``out=np.empty(...)``, which is
  fresh; and the bound: the same with ``out`` one of arrays made before, used in turn. The last four batches are held,
  as a loader holds what is on its way; then only the last. The clock covers taking the memory, the gather, and letting
  go of the oldest batch; the number of a turn is that of its median batch. Indices are drawn outside it.
- **Burst.** A process of its own takes 40 batches with four held (before the burst), then 40 that it all holds (burst),
  drops them (dropped), goes on with four held for 100 batches (after the burst), drops these too and calls `trim_pool`
  (trimmed). Each time RssAnon is read, the memory a process has to itself. `LOADERX_POOL_BYTES` is not set.
- **Turns.** As for the checksums: in turn, a ratio within a round, the median over rounds; a turn during which other
  programs used more than a tenth of a core is measured again, at most five times.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.environment import describe_environment
from benchmarks.options import add_folder_arguments, add_result_arguments, run_in_folder
from benchmarks.results import Result, Table, make_table
from benchmarks.turns import Size, measure_rows

DEFAULT = Size(num_records=1_500, record_bytes=147 << 10, batch=256, turn_s=0.3)
QUICK = Size(num_records=40, record_bytes=4 << 10, batch=32, num_rounds=2, turn_s=0.005, redo=False)
RECYCLED = "loaderx"
FRESH = "np.empty"
BY_HAND = "arrays reused by hand"
HELD = 4
NUM_BURST = 40
BEFORE, AFTER = "before the burst", "after the burst"
STEPS = (BEFORE, "burst", "dropped", AFTER, "trimmed")

BURST_PROGRAM = """
import json, re, sys
import numpy as np
import loaderx
path, batch, num_held, num_burst = sys.argv[1], *map(int, sys.argv[2:])
dataset, rng, seen, held = loaderx.Dataset(path), np.random.default_rng(2), [], []
def take():
    return dataset.__getitems__(rng.integers(0, len(dataset), batch))
def go_on(num_batches):
    for _ in range(num_batches):
        held.append(take())
        del held[:-num_held]
def look():
    status = open("/proc/self/status", encoding="ascii").read()
    seen.append(int(re.search(r"^RssAnon:\\s+(\\d+)", status, re.MULTILINE)[1]) / 1024)
go_on(40)
look()
burst = [take() for _ in range(num_burst)]
look()
del burst
look()
go_on(100)
look()
held.clear()
loaderx.trim_pool()
look()
print(json.dumps(seen))
"""


def measure_gathers(size: Size, path: Path, num_held: int, title: str) -> Table:
    """Measure gathers into recycled memory, fresh memory and arrays that are there, with `num_held` batches held."""
    from loaderx import Dataset

    rng = np.random.default_rng(1)
    shape = (size.batch, size.record_bytes)
    with Dataset(path) as dataset:
        ring = deque(np.zeros(shape, np.uint8) for _ in range(num_held + 1))

        def by_hand(idxs: NDArray[np.int64]) -> NDArray[Any]:
            ring.rotate()
            return dataset.__getitems__(idxs, out=ring[0])

        def fresh(idxs: NDArray[np.int64]) -> NDArray[Any]:
            return dataset.__getitems__(idxs, out=np.empty(shape, np.uint8))

        def rate(take: Callable[[NDArray[np.int64]], NDArray[Any]]) -> float:
            held: deque[NDArray[Any]] = deque()
            clock, took, num_warm = time.perf_counter, list[float](), num_held + 3
            deadline = clock() + size.turn_s
            while not took or clock() < deadline:
                idxs = rng.integers(0, size.num_records, size.batch)
                start = clock()
                held.append(take(idxs))
                if len(held) > num_held:
                    held.popleft()
                stop = clock()
                if num_warm:
                    num_warm -= 1
                else:
                    took.append(stop - start)
            return size.batch * size.record_bytes / statistics.median(took) / 2**30

        rows: dict[str, Callable[[], float]] = {RECYCLED: partial(rate, dataset.__getitems__)}
        rows |= {FRESH: partial(rate, fresh), BY_HAND: partial(rate, by_hand)}
        return measure_rows(size, title, "GiB/s", rows)


def measure_burst(size: Size, path: Path) -> Table:
    """Return the MiB of RssAnon around a burst, each round in a process of its own."""
    rows: dict[str, list[float]] = {step: [] for step in STEPS}
    environment = {name: value for name, value in os.environ.items() if name != "LOADERX_POOL_BYTES"}
    command = [sys.executable, "-c", BURST_PROGRAM, str(path), *map(str, (size.batch, HELD, NUM_BURST))]
    for _ in range(3 if size.redo else 1):
        done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
        for step, mib in zip(STEPS, json.loads(done.stdout), strict=True):
            rows[step].append(mib)
    return make_table(f"RssAnon around a burst of {NUM_BURST} batches", "MiB", AFTER, rows)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    add_result_arguments(parser, DEFAULT.num_rounds)
    add_folder_arguments(parser, "for the store")


def run(options: argparse.Namespace) -> int:
    """Run the benchmark, print its tables, and write its result; 2 when an option is wrong."""
    size = QUICK if options.quick else replace(DEFAULT, num_rounds=options.rounds)
    return run_in_folder(options, partial(measure, size))


def measure(size: Size, folder: Path) -> Result:
    """Measure everything in `folder`, which is left full."""
    from loaderx import Dataset, write_dataset

    path = folder / "records.zr"
    records = np.random.default_rng(0).integers(0, 256, (size.num_records, size.record_bytes), dtype=np.uint8)
    write_dataset(path, records, codec="raw", progress=False)
    with Dataset(path) as dataset:
        for first in range(0, size.num_records, size.batch):
            part = slice(first, first + size.batch)
            if not np.array_equal(dataset[part], records[part]):
                raise ValueError("a gather gave other bytes than were written")
    del records
    return {
        "benchmark": "recycle",
        "settings": {
            "records": size.num_records,
            "bytes a record": size.record_bytes,
            "batch": size.batch,
            "batches held": HELD,
            "rounds": size.num_rounds,
            "seconds a turn": size.turn_s,
        },
        "environment": describe_environment(),
        "tables": {
            "held": measure_gathers(size, path, HELD, "Gather, the last four batches held"),
            "one": measure_gathers(size, path, 1, "Gather, only the last batch held"),
            "burst": measure_burst(size, path),
        },
        "missing": {},
    }
