"""Lines of JSONL files where they are: indexing, reading them in any order, and making tokens of them.

- **Data.** 4 files, 308 MiB, 400,000 lines of a number and a text, made from a seed: words of very different
  frequencies, texts of very different lengths, 807 bytes a line. The page cache is warm. Of what a contender reads,
  10,000 random lines are compared with what was written.
- **Index.** From nothing to a closed index; ``wc -l`` over the same files, which keeps nothing.
- **Reading.** 256 fresh random lines: one by one, ``dataset[i]``, or in one call where there is one. data-forager has
  single lines only. The raw lines of data-forager are those of a dataset whose `_process_sample` returns its bytes.
  Drawing the indices and dropping the result are not timed. A parser alone gets the same lines from memory.
- **Cold.** 64 batches of 256 random lines, each line once, 4 % of all, parsed with json; the page cache is dropped
  before each turn, which only root can do. With `prefetch`, each batch is asked for before the one before it is read.
- **Memory.** Anonymous memory that opening an index of 10,000,000 samples adds, and 2,000 raw batches of 256 later; a
  page is the least that is seen. What a first use brings with it was there before.
- **Packing.** The texts of the first 20,000 lines, and a tokenizer of Hugging Face's `tokenizers` (byte-pair encoding,
  8,192 tokens, trained on them). Alone it gets the texts in batches of 1,000 from memory, and its lists of ids are
  thrown away; `tokenize` reads the file, packs samples of 1,024 and writes them, compressed, to the same disk.
- **Real text.** The 206 pages of Perl's manual, as Debian's package perl-doc has them, a line for each section: 6,661
  lines of 1,398 bytes on average. The store of lines is what ``convert --lines`` makes of the file; its size is all
  that it takes on the disk, its dictionary included.
- **Turns.** As for the store, in turn, each contender in a process of its own. A ratio is taken within a round.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import ClassVar

import numpy as np

from benchmarks.cold import NotPermittedError, drop_caches
from benchmarks.contenders import Contender
from benchmarks.corpus import MANUAL_HINT, find_manual, write_corpus, write_manual
from benchmarks.environment import describe_environment
from benchmarks.options import add_folder_arguments, add_peers_argument, add_result_arguments, run_in_folder
from benchmarks.pairing import run_rounds
from benchmarks.readers import list_readers
from benchmarks.results import Result, Table, make_table
from benchmarks.store import Bench
from benchmarks.store import Size as Turns

PEER = "data-forager"
OWN, ORJSON, WC = "loaderx, json", "loaderx, orjson", "wc -l"
LOADERX = "loaderx"
INDEX = {LOADERX: OWN, PEER: PEER, WC: WC}
# of each table: row, its process, how lines are read
READING = {
    "raw": {LOADERX: (OWN, "raw"), PEER: (PEER, "raw")},
    "one": {OWN: (OWN, "one"), ORJSON: (ORJSON, "one"), PEER: (PEER, "one")},
    "batch": {
        OWN: (OWN, "batch"),
        ORJSON: (ORJSON, "batch"),
        PEER: (PEER, "batch"),
        "json alone": ("json alone", "batch"),
        "orjson alone": ("orjson alone", "batch"),
    },
}
TITLES = {"raw": "256 lines as they are", "one": "One line, parsed", "batch": "256 lines, parsed"}
PREFETCHED = "loaderx, prefetch"
COLD = {LOADERX: OWN, PREFETCHED: OWN, PEER: PEER}
MEMORY = {LOADERX: OWN, PEER: PEER}
ALONE, FROM_FILE, FROM_MEMORY = "tokenizer alone", "tokenize, from a file", "tokenize, from memory"
PACKING = (FROM_FILE, FROM_MEMORY, ALONE)
PLACES = ("plain file", "line store")
TEXT = {
    **{
        f"{place}, {parser}": (f"{place}, {parser}", "batch")
        for parser in ("json", "orjson")
        for place in PLACES
    },
    **{f"{place}, raw": (f"{place}, json", "raw") for place in PLACES},
}
SIZES = ("line store", "file")
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True)
class Size:
    """How much data beside the turns."""

    turns: Turns
    cold_rounds: int = 7
    cold_batches: int = 64
    num_many: int = 10_000_000
    memory_batches: int = 2_000
    packing_rounds: int = 7
    num_tokenized: int = 20_000
    drops: bool = True


DEFAULT = Size(Turns(num_records=400_000, shape=()))
QUICK = Size(
    Turns(num_records=600, shape=(), batch=32, num_rounds=2, turn_s=0.005, redo=False),
    cold_rounds=2,
    cold_batches=2,
    num_many=1000,
    memory_batches=3,
    packing_rounds=2,
    num_tokenized=100,
    drops=False,
)


class JsonlBench(Bench):
    """The running contenders of readers.py."""

    worker: ClassVar[Path] = Path(__file__).with_name("jsonl_worker.py")

    def list_contenders(self, bounds_library: Path) -> dict[str, Contender]:
        """Return every contender by its name."""
        return list_readers()

    def begin(self, names: Sequence[str], peers: Path | None) -> None:
        """Start those that do not run yet."""
        new = [name for name in dict.fromkeys(names) if name not in self.contenders | self.missing]
        self.start(new, self.folder / "none", peers)

    def open_all(self, bases: Mapping[str, Path], sums: Path) -> None:
        """Have contenders open their folders, and look at what they read."""
        for name in self.choose(list(bases)):
            self.contenders[name].ask("open", base=str(bases[name]), sums=str(sums), batch=self.size.batch)

    def index_rate(self, mib: float, bases: Mapping[str, Path], name: str, index: int) -> float:
        """Take one turn of indexing: MiB/s."""
        took = self.take_turn(INDEX[name], "index", base=str(bases[INDEX[name]]), seconds=self.size.turn_s)
        return mib * len(took) / (sum(took) / 1e9)

    def read_rate(self, rows: Mapping[str, tuple[str, str]], name: str, index: int) -> float:
        """Take one turn of reading: lines a second over all its calls."""
        process, how = rows[name]
        size = self.size
        took = self.take_turn(
            process, "run", how=how, seconds=size.turn_s, batch=size.batch, seed=1000 + index
        )
        return size.batch * len(took) / (sum(took) / 1e9)

    def encode_rate(self, mib: float, name: str, index: int) -> float:
        """Take one turn of tokenizing all texts: MiB of text a second."""
        _, seconds = self.take_turn(name, "encode", folder=str(self.folder))
        return mib / float(seconds)

    def rows(
        self, title: str, unit: str, processes: Mapping[str, str], measure: partial[float], num_rounds: int
    ) -> Table:
        """Measure rows in rounds; one whose process is not there is empty."""
        there = [row for row, process in processes.items() if process in self.contenders]
        values = run_rounds(there, measure, num_rounds)
        return make_table(title, unit, next(iter(processes)), {row: values.get(row, []) for row in processes})


def measure_index(bench: JsonlBench, bases: Mapping[str, Path]) -> Table:
    """Return the table of indexing; every base has an index then."""
    mib = sum(file.stat().st_size for file in bases[OWN].glob("*.jsonl")) / 2**20
    measure = partial(bench.index_rate, mib, bases)
    return bench.rows("Index", "MiB/s", INDEX, measure, bench.size.num_rounds)


def measure_reading(bench: JsonlBench, title: str, rows: Mapping[str, tuple[str, str]]) -> Table:
    """Return a table of reading random lines."""
    processes = {row: process for row, (process, _) in rows.items()}
    return bench.rows(title, "lines/s", processes, partial(bench.read_rate, rows), bench.size.num_rounds)


def measure_cold(bench: JsonlBench, size: Size, bases: Mapping[str, Path]) -> Table:
    """Return the table of reading from a disk; it is empty where the page cache cannot be dropped."""

    def measure(name: str, index: int) -> float:
        if size.drops:
            drop_caches()
        process = COLD[name]
        took = bench.contenders[process].ask(
            "run_cold",
            base=str(bases[process]),
            batch=bench.size.batch,
            num_batches=size.cold_batches,
            seed=index,
            prefetch=name == PREFETCHED,
        )
        return bench.size.batch * len(took) / (sum(took) / 1e9)

    title = "256 lines, parsed with json, nothing in memory"
    try:
        return bench.rows(title, "lines/s", COLD, partial(measure), size.cold_rounds)
    except NotPermittedError:
        bench.missing[title] = "not measured (only root can drop the page cache)"
        return make_table(title, "lines/s", LOADERX, {row: [] for row in COLD})


def measure_memory(bench: JsonlBench, size: Size, small: Path, peers: Path | None) -> dict[str, Table]:
    """Return the tables of what an index of many samples costs to open, in memory and in time, in new processes."""
    base = bench.folder / "many"
    base.mkdir()
    with (base / "many.jsonl").open("wb") as file:
        for start in range(0, size.num_many, 100_000):
            file.write(b"1234567890\n" * min(100_000, size.num_many - start))
    added: dict[str, list[float]] = {f"{name}, {when}": [] for name in MEMORY for when in ("opened", "later")}
    opening: dict[str, list[float]] = {name: [] for name in MEMORY}
    fresh = JsonlBench(bench.size, bench.folder, bench.tmpfs, bench.data)
    try:
        if OWN in bench.contenders:  # its index is the one that all read
            bench.contenders[OWN].ask("index", base=str(base), seconds=0)
            fresh.begin(tuple(MEMORY.values()), peers)
        for name, process in MEMORY.items():
            if process not in fresh.contenders:
                continue
            answer = fresh.contenders[process].ask(
                "memory",
                small=str(small),
                base=str(base),
                batch=bench.size.batch,
                num_batches=size.memory_batches,
            )
            opening[name] = [answer["ms"]]
            for when in ("opened", "later"):
                grown = max(answer[when] - answer["before"], PAGE_BYTES)
                added[f"{name}, {when}"] = [grown / size.num_many]
    finally:
        fresh.stop()
    samples = f"{size.num_many:,} samples"
    return {
        "memory": make_table(f"Memory for {samples}", "bytes a sample", f"{LOADERX}, later", added),
        "opening": make_table(f"Opening {samples}", "ms", LOADERX, opening),
    }


def measure_packing(bench: JsonlBench, size: Size, corpus: Path, peers: Path | None) -> Table:
    """Return the table of making tokens."""
    file, tokenizer = bench.folder / "texts.jsonl", bench.folder / "tokenizer.json"
    with (corpus / "part-0.jsonl").open("rb") as lines:
        file.write_bytes(b"".join(next(lines) for _ in range(size.num_tokenized)))
    bench.begin(PACKING, peers)
    there = bench.choose(PACKING)
    if ALONE in there:
        bench.contenders[ALONE].ask("train", file=str(file), tokenizer=str(tokenizer))
        for name in there:
            bench.contenders[name].ask("load", file=str(file), tokenizer=str(tokenizer))
    counts = {bench.contenders[name].ask("encode", folder=str(bench.folder))[0] for name in there}
    if len(counts) > 1:
        raise ValueError(f"the contenders made different numbers of tokens: {sorted(counts)}")
    measure = partial(bench.encode_rate, file.stat().st_size / 2**20)
    processes = {name: name for name in PACKING}
    return bench.rows("Tokens of texts", "MiB/s", processes, measure, size.packing_rounds)


def measure_text(bench: JsonlBench, pages: Sequence[Path], peers: Path | None) -> dict[str, Table]:
    """Return the tables of a real text, in its file and in a store of lines."""
    names = tuple(dict.fromkeys(process for process, _ in TEXT.values()))
    sizes: dict[str, list[float]] = {name: [] for name in SIZES}
    if pages:
        base, store = bench.folder / "manual", bench.folder / "manual.zr"
        base.mkdir()
        file = base / "manual.jsonl"
        np.save(bench.folder / "manual.npy", write_manual(pages, file))
        bench.begin(names, peers)
        if there := bench.choose(names):
            bench.contenders[there[0]].ask("index", base=str(base), seconds=0)
            bench.contenders[there[0]].ask("convert", file=str(file), store=str(store))
            stored = sum(each.stat().st_blocks * 512 for each in store.iterdir())
            sizes = {"line store": [stored / 2**20], "file": [file.stat().st_size / 2**20]}
        bases = {name: store if name.startswith("line store") else base for name in names}
        bench.open_all(bases, bench.folder / "manual.npy")
    else:
        bench.missing |= dict.fromkeys(names, f"no text; {MANUAL_HINT}")
    return {
        "text": measure_reading(bench, "256 sections of Perl's manual", TEXT),
        "size": make_table("Perl's manual on the disk", "MiB", "line store", sizes),
    }


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    add_result_arguments(parser, DEFAULT.turns.num_rounds)
    add_peers_argument(parser)
    add_folder_arguments(parser, "for the files, with room for 1 GiB")
    parser.add_argument(
        "--text", type=Path, metavar="DIR", help="a folder of Perl's manual (default: Debian's)"
    )


def run(options: argparse.Namespace) -> int:
    """Run the benchmark, print its tables, and write its result; 2 when an option is wrong."""
    size = (
        QUICK if options.quick else replace(DEFAULT, turns=replace(DEFAULT.turns, num_rounds=options.rounds))
    )
    return run_in_folder(options, partial(measure, size, options.text, options.peers))


def measure(size: Size, text: Path | None, peers: Path | None, folder: Path) -> Result:
    """Measure everything in `folder`, which is left full."""
    environment = describe_environment()
    corpus = folder / "corpus"
    corpus.mkdir()
    sums = folder / "sums.npy"
    np.save(sums, write_corpus(corpus, size.turns.num_records))
    names = tuple(
        dict.fromkeys([*INDEX.values(), *(row[0] for rows in READING.values() for row in rows.values())])
    )
    # the same files for each who writes an index of its own beside them
    bases = {name: corpus if name != PEER else folder / "peer" for name in names}
    bases[PEER].mkdir()
    for file in corpus.iterdir():
        os.link(file, bases[PEER] / file.name)
    bench = JsonlBench(size.turns, folder, folder, corpus)
    try:
        bench.begin(names, peers)
        tables = {"index": measure_index(bench, bases)}
        bench.open_all({name: base for name, base in bases.items() if name != WC}, sums)
        for kind, rows in READING.items():
            tables[kind] = measure_reading(bench, TITLES[kind], rows)
        tables |= measure_memory(bench, size, corpus, peers)
        tables["packing"] = measure_packing(bench, size, corpus, peers)
        tables |= measure_text(bench, find_manual(text), peers)
        # In new processes: what somebody has mapped cannot be taken out of memory.
        environment |= bench.versions
        bench.stop()
        bench.contenders.clear()
        bench.begin(tuple(COLD.values()), peers)
        tables["cold"] = measure_cold(bench, size, bases)
        environment |= bench.versions
    finally:
        bench.stop()
    return {
        "benchmark": "jsonl",
        "settings": {
            "lines": size.turns.num_records,
            "batch": size.turns.batch,
            "rounds": size.turns.num_rounds,
            "seconds a turn": size.turns.turn_s,
            "rounds, cold": size.cold_rounds,
            "rounds, tokens": size.packing_rounds,
            "batches of a cold turn": size.cold_batches,
            "turns disturbed by other programs": bench.num_disturbed,
        },
        "environment": environment,
        "tables": tables,
        "missing": bench.missing,
    }
