"""Loaders from end to end: draw, read, collate, hand over a batch, again and again.

- **Data.** The records of the store's benchmark: 20,000 of uint8(3, 64, 64), 12 KiB each. Beside them 2,000 of
  uint8(3, 224, 224), 147 KiB each; sequences of 16 to 512 tokens (int32); labels (int64). The page cache is warm. Each
  loader reads from what it is built for: loaderx from its stores, Grain from ArrayRecord, PyTorch from a memory-mapped
  .npy, jax-dataloader from an array in memory.
- **Loaders.** 4 workers where a loader has them, batches of 256, shuffled, otherwise with each one's defaults. Of the
  first batches every record is looked up in the array.
- **Number.** Batches a second over a turn in which a loop takes one after the other and does nothing with them; each is
  dropped when the next one is there. An epoch that ends within a turn is in the number.
- **Gather.** The same dataset without a loader: the sampler's indices and `__getitems__`, by the thread that asks and
  its team of all cores.
- **Labels.** Steps that do next to nothing, in microseconds; what the loader adds is its step less the gather's, within
  a round.
- **A transform in Python.** 145,000 turns of a loop that adds, some 5 ms that hold the GIL, after each gather.
- **Memory.** Anonymous memory of the process after 1,000 steps, and 100,000 steps later.
- **Turns.** As for the store, each contender in a process of its own, its children included. All but the one whose
  turn it is are stopped, for some work ahead for longer than their turn.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.data import make_records, make_sequences
from benchmarks.environment import describe_environment
from benchmarks.neighbour import busy_process
from benchmarks.options import add_folder_arguments, add_peers_argument, add_result_arguments, run_in_folder
from benchmarks.pairing import run_rounds
from benchmarks.results import Result, Table, make_table
from benchmarks.small import make_labels
from benchmarks.store import Bench, Size

SMALL_SHAPE, LARGE_SHAPE = (3, 64, 64), (3, 224, 224)
RAW = (
    "loaderx raw loader",
    "loaderx raw gather",
    "loaderx 0.7.3 raw loader",
    "loaderx 2.8.19 raw loader",
    "jax-dataloader",
    "torch loader",
    "grain loader",
)
ZSTD = (
    "loaderx zstd loader",
    "loaderx zstd gather",
    "loaderx 0.7.3 zstd loader",
    "loaderx 2.8.19 zstd loader",
)
RAGGED = (
    "loaderx raw ragged loader",
    "loaderx raw ragged gather",
    "loaderx zstd ragged loader",
    "loaderx zstd ragged gather",
)
LARGE = ("loaderx raw loader", "loaderx raw gather", "loaderx 0.7.3 raw loader")
LABELS = ("loaderx raw loader", "loaderx raw gather")
ADDED = "added by the loader"
PYTHON = (
    "loaderx loader, processes",
    "loaderx loader, no workers",
    "loaderx loader, threads",
    "torch loader, processes",
)
BUSY = (
    "loaderx raw loader",
    "loaderx raw gather",
    "loaderx 0.7.3 raw loader",
    "jax-dataloader",
    "torch loader",
)
MEMORY = "loaderx raw loader"


@dataclass(frozen=True)
class Steps:
    """How many steps the memory is looked at after, and how many later again."""

    first: int = 1_000
    later: int = 100_000


DEFAULT = Size(num_rounds=11, turn_s=0.4)
QUICK = Size(num_records=300, batch=32, num_rounds=2, turn_s=0.01, redo=False)


class LoaderBench(Bench):
    """Running loaders, and their turns."""

    def begin(self, names: tuple[str, ...], peers: Path | None) -> None:
        """Start each contender, have it write its data, and look at its first batches."""
        self.start(names, self.folder / "none", peers)
        for name in self.choose(names):
            contender = self.contenders[name]
            path = self.folder / name.replace(" ", "-").replace(",", "")
            contender.ask("write", data=str(self.data), path=str(path))
            contender.ask("start", path=str(path), data=str(self.data), batch=self.size.batch)
            contender.pause()

    def take_turn(self, name: str, command: str, **values: str | int | float) -> Any:
        """Let a contender obey a timed command while all others sleep, which work ahead of their turn otherwise."""
        with self.contenders[name].running():
            return super().take_turn(name, command, **values)

    def rate(self, name: str, index: int) -> float:
        """Take one turn: batches a second."""
        taken, elapsed = self.take_turn(name, "loop", seconds=self.size.turn_s)
        return float(taken / elapsed)

    def step_us(self, name: str, index: int) -> float:
        """Take one turn: microseconds a batch."""
        return 1e6 / self.rate(name, index)


def measure_rates(
    title: str, names: tuple[str, ...], bench: LoaderBench, peers: Path | None, *, busy: bool = False
) -> Table:
    """Return a table of batches a second."""
    try:
        bench.begin(names, peers)
        if not busy:
            return bench.table(title, "batches/s", names, bench.rate, {})
        with busy_process() as neighbour:
            bench.neighbours = [neighbour]
            return bench.table(title, "batches/s", names, bench.rate, {})
    finally:
        bench.stop()


def measure_labels(bench: LoaderBench, peers: Path | None) -> Table:
    """Return the table of steps that do next to nothing, and what the loader adds to them."""
    try:
        bench.begin(LABELS, peers)
        rows = run_rounds(bench.choose(LABELS), bench.step_us, bench.size.num_rounds)
    finally:
        bench.stop()
    loader, gather = (rows[name] for name in LABELS)
    rows[ADDED] = [with_loader - alone for with_loader, alone in zip(loader, gather, strict=True)]
    return make_table("256 labels of 8 bytes", "us a step", LABELS[0], rows)


def measure_memory(bench: LoaderBench, steps: Steps, peers: Path | None) -> Table:
    """Return the memory of a process that loads."""
    rows: dict[str, list[float]] = {"later": [], "first": []}
    try:
        bench.begin((MEMORY,), peers)
        contender = bench.contenders[MEMORY]
        with contender.running():
            rows["first"].append(contender.ask("memory_mib", steps=steps.first))
            rows["later"].append(contender.ask("memory_mib", steps=steps.later))
    finally:
        bench.stop()
    return make_table(f"RssAnon after {steps.first:,} steps, and {steps.later:,} later", "MiB", "later", rows)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    add_result_arguments(parser, DEFAULT.num_rounds)
    add_peers_argument(parser)
    add_folder_arguments(parser)


def run(options: argparse.Namespace) -> int:
    """Run the benchmark, print its tables, and write its result; 2 when an option is wrong."""
    size = QUICK if options.quick else replace(DEFAULT, num_rounds=options.rounds)
    steps = Steps(10, 20) if options.quick else Steps()
    return run_in_folder(options, partial(measure, size, steps, options.peers))


def measure(size: Size, steps: Steps, peers: Path | None, folder: Path) -> Result:
    """Measure everything in `folder`, which is left full."""
    environment = describe_environment()
    benches: list[LoaderBench] = []
    number = size.num_records

    def bench(name: str, data: np.ndarray) -> LoaderBench:  # type: ignore[type-arg]
        place = folder / name
        place.mkdir()
        np.save(place / "data.npy", data)
        benches.append(LoaderBench(size, place, place, place / "data.npy"))
        return benches[-1]

    small = make_records(number, SMALL_SHAPE)
    tokens = make_sequences(number, 16, 512)
    large = make_records(max(number // 10, size.batch), LARGE_SHAPE)
    tables = {
        "raw": measure_rates("Records stored as they are", RAW, bench("raw", small), peers),
        "zstd": measure_rates("zstd", ZSTD, bench("zstd", small), peers),
        "ragged": measure_rates("Token sequences, packed", RAGGED, bench("ragged", tokens), peers),
        "large": measure_rates("Records of 147 KiB", LARGE, bench("large", large), peers),
        "labels": measure_labels(bench("labels", make_labels(number)), peers),
        "python": measure_rates("A transform of 5 ms in Python", PYTHON, bench("python", small), peers),
        "busy": measure_rates("Beside a busy process", BUSY, bench("busy", small), peers, busy=True),
        "memory": measure_memory(bench("memory", small), steps, peers),
    }
    missing: dict[str, str] = {}
    for each in benches:
        environment |= each.versions
        missing |= each.missing
    return {
        "benchmark": "loader",
        "settings": {
            "records": number,
            "batch": size.batch,
            "rounds": size.num_rounds,
            "seconds a turn": size.turn_s,
            "turns disturbed by other programs": sum(each.num_disturbed for each in benches),
        },
        "environment": environment,
        "tables": tables,
        "missing": missing,
    }
