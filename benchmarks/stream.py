"""Streams of JSONL files and tar archives, through the steps of a pipeline, beside other packages.

- **Lines.** 4 files, 46 MiB, 60,000 lines of a number and a text, made from a seed as for JSONL. The page cache is
  warm. A turn is one pass over all of them, from the call that names the files to the last item; before, each contender
  has shown that it gives every item. ``map`` returns a new row with a part of the text, ``filter`` keeps three of four,
  the shuffle buffer holds 10,000 rows, and a batch has 32. A loop in Python, with orjson and without any step, is what
  an iterator of Python's objects can reach.
- **Samples.** A tar archive of 20,000 samples of two members: 100 bytes of text, and a number in JSON. torchdata reads
  no archives itself: its nodes get samples from a loop over Python's `tarfile`.
- **First row.** 10,000 files of one line, named by a pattern and read in a random order: from the call to the first
  row.
- **State.** `state_dict()` with a shuffle buffer that is full; the least of several.
- **Memory.** Anonymous memory of a process that reads 10,000,000 numbers, mapped and shuffled in a buffer of 10,000:
  after the first 100,000, and the most that it is later.
- **Turns.** As for the store, in turn, each contender in a process of its own. A ratio is taken within a round.
"""

from __future__ import annotations

import argparse
import io
import json
import tarfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import ClassVar

from benchmarks.contenders import Contender
from benchmarks.corpus import write_corpus
from benchmarks.environment import describe_environment
from benchmarks.options import add_folder_arguments, add_peers_argument, add_result_arguments, run_in_folder
from benchmarks.results import Result, Table, make_table
from benchmarks.store import Bench
from benchmarks.store import Size as Turns
from benchmarks.streamers import WAYS, list_streamers

OWN, PEER, LOOP, TAR, NODES = "loaderx", "Hugging Face", "orjson, a loop", "webdataset", "torchdata nodes"
ROWS = dict.fromkeys(WAYS, (OWN, PEER)) | {"plain": (OWN, PEER, LOOP), "tar": (OWN, TAR, NODES, PEER)}
TITLES = {
    "plain": "Lines of JSONL",
    "map": "Lines, mapped",
    "shuffle": "Lines, shuffled",
    "chain": "Lines, filtered, mapped and shuffled",
    "batch": "Lines in batches of 32",
    "tar": "Samples of a tar archive",
}
STATES = {"1,000 rows held": 1_000, "10,000 rows held": 10_000}
MEMORY = ("early", "later")


@dataclass(frozen=True)
class Size:
    """How much data beside the turns."""

    turns: Turns
    num_samples: int = 20_000
    num_shards: int = 10_000
    num_many: int = 10_000_000
    num_early: int = 100_000
    state_repeats: int = 20


DEFAULT = Size(Turns(num_records=60_000, shape=(), num_rounds=7))
QUICK = Size(
    Turns(num_records=400, shape=(), num_rounds=2, redo=False),
    num_samples=20,
    num_shards=10,
    num_many=20_000,
    num_early=1_000,
    state_repeats=2,
)


class StreamBench(Bench):
    """The running contenders of streamers.py."""

    worker: ClassVar[Path] = Path(__file__).with_name("stream_worker.py")

    def list_contenders(self, bounds_library: Path) -> dict[str, Contender]:
        """Return every contender by its name."""
        return list_streamers()

    def rate(self, count: int, path: Path, way: str, name: str, index: int) -> float:
        """Take one turn, a pass over everything: items read a second."""
        return count / float(self.take_turn(name, "run", path=str(path), way=way))


def write_archive(file: Path, count: int) -> None:
    """Write a tar archive of small samples."""
    with tarfile.open(file, "w", format=tarfile.USTAR_FORMAT) as archive:
        for number in range(count):
            for kind, data in (("txt", b"word " * 20), ("json", json.dumps({"id": number}).encode())):
                member = tarfile.TarInfo(f"{number:06d}.{kind}")
                member.size = len(data)
                archive.addfile(member, io.BytesIO(data))


def measure_ways(bench: StreamBench, size: Size, corpus: Path, archive: Path) -> dict[str, Table]:
    """Return the tables of passes, once each contender has shown what it gives."""
    tables = {}
    for way, names in ROWS.items():
        path, count = (archive, size.num_samples) if way == "tar" else (corpus, size.turns.num_records)
        for name in bench.choose(names):
            bench.contenders[name].ask("check", path=str(path), way=way, count=count)
        unit = "samples/s" if way == "tar" else "lines/s"
        tables[way] = bench.table(TITLES[way], unit, names, partial(bench.rate, count, path, way), {})
    return tables


def measure_own(bench: StreamBench, size: Size, corpus: Path) -> dict[str, Table]:
    """Return the tables of what this package alone is asked for."""
    own, rounds = bench.contenders[OWN], range(size.turns.num_rounds)
    shards = bench.folder / "shards"
    shards.mkdir()
    for number in range(size.num_shards):
        (shards / f"part-{number}.jsonl").write_bytes(b'{"id": 1}\n')
    many = bench.folder / "many.jsonl"
    with many.open("wb") as file:
        for start in range(0, size.num_many, 10_000):
            file.write(b"1234567890\n" * min(10_000, size.num_many - start))
    states: dict[str, list[float]] = {row: [] for row in STATES}
    for _ in rounds:
        for row, held in STATES.items():
            states[row].append(own.ask("state", path=str(corpus), size=held, repeats=size.state_repeats))
    first = [float(bench.take_turn(OWN, "first", path=str(shards))) for _ in rounds]
    early, later = own.ask("memory", path=str(many), early=size.num_early)
    memory: dict[str, list[float]] = {"early": [early / 2**20], "later": [later / 2**20]}
    return {
        "first": make_table(f"First row of {size.num_shards:,} files", "ms", OWN, {OWN: first}),
        "state": make_table("A state", "us", next(iter(STATES)), states),
        "memory": make_table(f"Memory over {size.num_many:,} rows", "MiB", MEMORY[0], memory),
    }


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    add_result_arguments(parser, DEFAULT.turns.num_rounds)
    add_peers_argument(parser)
    add_folder_arguments(parser, "for the files, with room for 300 MiB")


def run(options: argparse.Namespace) -> int:
    """Run the benchmark, print its tables, and write its result; 2 when an option is wrong."""
    size = (
        QUICK if options.quick else replace(DEFAULT, turns=replace(DEFAULT.turns, num_rounds=options.rounds))
    )
    return run_in_folder(options, partial(measure, size, options.peers))


def measure(size: Size, peers: Path | None, folder: Path) -> Result:
    """Measure everything in `folder`, which is left full."""
    environment = describe_environment()
    corpus, archive = folder / "corpus", folder / "samples.tar"
    corpus.mkdir()
    write_corpus(corpus, size.turns.num_records)
    write_archive(archive, size.num_samples)
    bench = StreamBench(size.turns, folder, folder, corpus)
    names: Sequence[str] = tuple(dict.fromkeys(name for row in ROWS.values() for name in row))
    try:
        bench.start(names, folder / "none", peers)
        tables = measure_ways(bench, size, corpus, archive)
        tables |= measure_own(bench, size, corpus)
        environment |= bench.versions
    finally:
        bench.stop()
    return {
        "benchmark": "stream",
        "settings": {
            "lines": size.turns.num_records,
            "samples": size.num_samples,
            "rounds": size.turns.num_rounds,
            "turns disturbed by other programs": bench.num_disturbed,
        },
        "environment": environment,
        "tables": tables,
        "missing": bench.missing,
    }
