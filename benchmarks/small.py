"""Calls that do little, in which what a call costs by itself is most of it.

- **Data.** 20,000 records of each kind, stored as they are: labels (int64), 1 KiB of random bytes, and sequences of 16
  to 512 tokens (int32). The page cache is warm: every store is read whole once before, and compared with the array.
- **One record.** ``dataset[i]`` against ``array[i].copy()`` of ``numpy.load(mmap_mode="r")``, i a Python int: 256 fresh
  random ones in a list comprehension; the number of a call is a 256th of the time.
- **Batches.** 256 fresh random indices: `__getitems__` for labels, records of 1 KiB and packed sequences,
  `getitems_padded` for padded ones. Drawing the indices and dropping the result are not timed.
- **Turns.** As for the store, in turn, each contender in a process of its own; the number of a turn is its median call.
  The ratios of times are those of their medians within a round.
- **Beside a busy process.** The same while one process computes without a pause; ours with all cores and with one
  thread. The percentiles are over all calls.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.data import make_sequences
from benchmarks.environment import describe_environment
from benchmarks.neighbour import busy_process
from benchmarks.options import (
    add_folder_arguments,
    add_peers_argument,
    add_result_arguments,
    run_in_folder,
)
from benchmarks.results import Result, Table, round_number
from benchmarks.store import Bench, Size

DEFAULT = Size(shape=(), num_rounds=11, turn_s=0.1)
QUICK = replace(DEFAULT, num_records=300, batch=32, num_rounds=2, turn_s=0.005, redo=False)
LEAST_TOKENS, MOST_TOKENS = 16, 512
BATCHES = ("loaderx raw", "loaderx 0.7.3 raw", "npy memmap", "loaderx raw, 1 thread")


@dataclass(frozen=True)
class Kind:
    """One kind of call: its table's title, its records, its contenders, and how many records one number is for."""

    title: str
    make: Callable[[int], NDArray[Any]]
    names: tuple[str, ...]
    one_by_one: bool = False


def make_labels(num_records: int) -> NDArray[np.int64]:
    """Return class labels."""
    return np.random.default_rng(0).integers(0, 1000, num_records)


def make_blobs(num_records: int) -> NDArray[np.uint8]:
    """Return random records of 1 KiB."""
    return np.random.default_rng(0).integers(0, 256, (num_records, 1024), dtype=np.uint8)


def make_ragged(num_records: int) -> NDArray[np.int32]:
    """Return token sequences with zeros behind them."""
    return make_sequences(num_records, LEAST_TOKENS, MOST_TOKENS)


def ragged_names(layout: str) -> tuple[str, ...]:
    """Return the contenders of a ragged layout."""
    return f"loaderx {layout}", f"loaderx 0.7.3 {layout}", f"loaderx {layout}, 1 thread"


KINDS = {
    "one": Kind(
        "One record of 1 KiB", make_blobs, ("loaderx one", "npy memmap one", "loaderx 0.7.3 one"), True
    ),
    "labels": Kind("256 labels of 8 bytes", make_labels, BATCHES),
    "small": Kind("256 records of 1 KiB", make_blobs, BATCHES),
    "packed": Kind("256 token sequences, packed", make_ragged, ragged_names("packed")),
    "padded": Kind("256 token sequences, padded", make_ragged, ragged_names("padded")),
}


def measure_kind(kind: Kind, size: Size, folder: Path, peers: Path | None) -> tuple[Table, Table, Bench]:
    """Return the quiet table, the one beside a busy process, and what is known of the contenders."""
    folder.mkdir()
    data = folder / "data.npy"
    np.save(data, kind.make(size.num_records))
    bench = Bench(size, folder, folder, data)
    calls: dict[str, list[int]] = {}
    per_call = size.batch if kind.one_by_one else 1

    def median_us(name: str, index: int) -> float:
        took = bench.gather_ns(name, index, size.turn_s)
        calls.setdefault(name, []).extend(took)
        return statistics.median(took) / 1e3 / per_call

    try:
        bench.start(kind.names, folder / "none", peers)
        for name in bench.choose(kind.names):
            bench.open_once(name, None)
        quiet = bench.table(kind.title, "us", kind.names, median_us, {})
        calls.clear()
        with busy_process() as neighbour:
            bench.neighbours = [neighbour]
            busy = bench.table(f"{kind.title}, beside a busy process", "us", kind.names, median_us, {})
    finally:
        bench.stop()
    for name, took in calls.items():
        p50, p99 = np.percentile(took, [50, 99]) / 1e3 / per_call
        busy["more"][name] = {"p50": round_number(p50), "p99": round_number(p99)}
    return quiet, busy, bench


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    add_result_arguments(parser, DEFAULT.num_rounds)
    add_peers_argument(parser)
    add_folder_arguments(parser)


def run(options: argparse.Namespace) -> int:
    """Run the benchmark, print its tables, and write its result; 2 when an option is wrong."""
    size = QUICK if options.quick else replace(DEFAULT, num_rounds=options.rounds)
    return run_in_folder(options, partial(measure, size, options.peers))


def measure(size: Size, peers: Path | None, folder: Path) -> Result:
    """Measure everything in `folder`, which is left full."""
    environment = describe_environment()
    quiet: dict[str, Table] = {}
    busy: dict[str, Table] = {}
    missing: dict[str, str] = {}
    num_disturbed = 0
    for name, kind in KINDS.items():
        quiet[name], busy[f"busy_{name}"], bench = measure_kind(kind, size, folder / name, peers)
        missing |= bench.missing
        environment |= bench.versions
        num_disturbed += bench.num_disturbed
    return {
        "benchmark": "small",
        "settings": {
            "records": size.num_records,
            "batch": size.batch,
            "rounds": size.num_rounds,
            "seconds a turn": size.turn_s,
            "turns disturbed by other programs": num_disturbed,
        },
        "environment": environment,
        "tables": quiet | busy,
        "missing": missing,
    }
