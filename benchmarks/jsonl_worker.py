"""One contender of readers.py in a process of its own, obeying commands as worker.py does."""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

# behind everything else: a peer's folder must win over the source tree
sys.path.append(str(Path(__file__).resolve().parents[1]))

from benchmarks.corpus import checksum_of
from benchmarks.readers import list_readers
from benchmarks.worker import obey, read_rss_anon

CHECKED_LINES = 10_000
WARM_CALLS = 3
LEAST_CALLS = 4


class JsonlWorker:
    """The commands; each method is one, its keywords are the command's other keys."""

    def __init__(self, reader: Any) -> None:
        self._reader = reader
        self._num_lines = 0

    def prepare(self) -> str:
        """Import what the contender needs; its version."""
        return str(self._reader.prepare())

    def index(self, base: str, seconds: float) -> list[int]:
        """Index again and again for `seconds`, from nothing each time: nanoseconds of each."""
        clock, took = time.perf_counter_ns, list[int]()
        while sum(took) < seconds * 1e9 or not took:
            self._reader.forget_index(Path(base))
            start = clock()
            self._reader.index(Path(base))
            took.append(clock() - start)
        return took

    def convert(self, file: str, store: str) -> None:
        """Make a store of the lines of a file."""
        self._reader.convert(Path(file), Path(store))

    def open(self, base: str, sums: str, batch: int) -> int:
        """Open, and look whether lines are those whose checksums are saved at `sums`, read both ways; how many."""
        expected = np.load(sums)
        self._num_lines = self._reader.open(Path(base))
        if self._num_lines != len(expected):
            raise ValueError(f"{self._num_lines} lines, where {len(expected)} were written")
        order = np.random.default_rng(1).permutation(len(expected))[:CHECKED_LINES]
        for start in range(0, len(order), batch):
            idxs = order[start : start + batch]
            for how in ("raw", "one", "batch"):
                found = getattr(self._reader, how)(self._reader.indices(idxs, how))
                if how == "raw":
                    found = [line.rstrip(b"\n") for line in found]
                if [checksum_of(each) for each in found] != expected[idxs].tolist():
                    raise ValueError(f"other lines were read than were written ({how})")
        return self._num_lines

    def run(self, how: str, seconds: float, batch: int, seed: int) -> list[int]:
        """Read random lines for `seconds`, `raw`, `one` by one or in a `batch`: nanoseconds for each batch.

        Drawing the indices and dropping the result is outside the clock.
        """
        rng, read, make = np.random.default_rng(seed), getattr(self._reader, how), self._reader.indices
        for _ in range(WARM_CALLS):
            read(make(rng.integers(0, self._num_lines, batch), how))
        clock, took = time.perf_counter_ns, list[int]()
        deadline = clock() + int(seconds * 1e9)
        while len(took) < LEAST_CALLS or clock() < deadline:
            idxs = make(rng.integers(0, self._num_lines, batch), how)
            start = clock()
            result = read(idxs)
            took.append(clock() - start)
            del result
        return took

    def run_cold(self, base: str, batch: int, num_batches: int, seed: int, prefetch: bool) -> list[int]:
        """Open, read some batches of random lines, parsed, no line twice, and close: nanoseconds of each batch.

        With `prefetch` a call also asks for the batch that comes next, and the first one for itself.
        """
        reader, how = self._reader, "batch"
        order = np.random.default_rng(seed).permutation(reader.open(Path(base)))[: batch * num_batches]
        batches = [reader.indices(part, how) for part in order.reshape(-1, batch)]
        clock, took = time.perf_counter_ns, list[int]()
        for number, wanted in enumerate(batches):
            start = clock()
            if prefetch:
                for coming in batches[number + (number > 0) : number + 2]:
                    reader.prefetch(coming)
            result = reader.batch(wanted)
            took.append(clock() - start)
            del result
        reader.close()
        return took

    def memory(self, small: str, base: str, batch: int, num_batches: int) -> dict[str, float]:
        """Return what opening `base` takes, in milliseconds, and the anonymous bytes before, after it, and later.

        What a first use brings with it is in memory before: `small` is opened, read and closed.
        """
        reader, rng = self._reader, np.random.default_rng(0)

        def read(num_lines: int, count: int) -> None:
            for _ in range(count):
                reader.raw(reader.indices(rng.integers(0, num_lines, batch), "raw"))

        read(reader.open(Path(small)), WARM_CALLS)
        reader.close()
        before, start = read_rss_anon(), time.perf_counter()
        num_lines = reader.open(Path(base))
        took, opened = time.perf_counter() - start, read_rss_anon()
        read(num_lines, num_batches)
        later = read_rss_anon()
        reader.close()
        return {"ms": took * 1e3, "before": before, "opened": opened, "later": later}

    def train(self, file: str, tokenizer: str) -> None:
        """Train a tokenizer on the texts of a file."""
        self._reader.train(Path(file), Path(tokenizer))

    def load(self, file: str, tokenizer: str) -> None:
        """Have texts and tokenizer in memory."""
        self._reader.load(Path(file), Path(tokenizer))

    def encode(self, folder: str) -> list[float]:
        """Make tokens of all texts, written in `folder` where they are written: how many, and the seconds it took."""
        with tempfile.TemporaryDirectory(dir=folder) as scratch:
            start = time.perf_counter()
            count = self._reader.encode(Path(scratch) / "tokens")
            return [count, time.perf_counter() - start]

    def close(self) -> None:
        """Close what is open."""
        self._reader.close()


if __name__ == "__main__":
    obey(JsonlWorker(list_readers()[sys.argv[1]].make()))
