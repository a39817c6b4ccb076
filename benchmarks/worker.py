"""One contender in a process of its own, obeying commands from standard input, one JSON object a line.

Started as a script, with the folder of a peer first on the path, so that a package of our own name can be measured.
The answer to each command is one line: ``{"ok": ...}``, ``{"missing": reason}`` or ``{"error": reason}``.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
import traceback
from pathlib import Path
from typing import Any

import numpy as np

# behind everything else: a peer's folder must win over the source tree
sys.path.append(str(Path(__file__).resolve().parents[1]))

from benchmarks.contenders import Gather, NotInstalledError
from benchmarks.registry import list_contenders

WARM_CALLS = 3
LEAST_CALLS = 4
MOST_WRITTEN_BYTES = 1 << 29
CHECKED_BATCHES = 8


class Worker:
    """The commands; each method is one, its keywords are the command's other keys."""

    def __init__(self, name: str, store: Any) -> None:
        self._name = name
        self._store: Any = store  # a Store, or a Loader
        self._gather: Gather | None = None
        self._num_records = 0

    def prepare(self) -> str:
        """Import what the contender needs; its version."""
        return self._store.prepare()

    def write(self, data: str, path: str) -> float:
        """Write a new store from the array saved at `data`, in memory before the clock starts; seconds."""
        records = np.load(data)
        start = time.perf_counter()
        self._store.write(Path(path), records)
        return time.perf_counter() - start

    def write_scratch(self, data: str, folder: str) -> float:
        """Write a new store in `folder` and remove it, which is not timed; seconds."""
        with tempfile.TemporaryDirectory(dir=folder) as scratch:
            return self.write(data, str(Path(scratch) / "written"))

    def open(self, path: str, data: str, batch: int) -> int:
        """Open, gather every record once in random order, and compare each with the array; the number of records."""
        records = np.load(data, mmap_mode="r")
        gather = self._store.open(Path(path))
        restore = getattr(self._store, "restore", None)
        order = np.random.default_rng(1).permutation(len(records))
        for start in range(0, len(order), batch):
            idxs = order[start : start + batch]
            found, expected = gather(idxs), records[idxs]
            if restore is not None:
                found = restore(found, expected.shape)
            if not np.array_equal(np.asarray(found), expected):
                raise ValueError("a gather gave other bytes than were written")
        self._gather, self._num_records = gather, len(records)
        return len(records)

    def run(self, seconds: float, batch: int, seed: int) -> list[int]:
        """Gather for `seconds`: nanoseconds of each call. Indices are drawn before the clock starts.

        Each result is dropped before the next call, which is outside the clock too.
        """
        gather = self._gather
        if gather is None:
            raise ValueError("run before open")
        rng = np.random.default_rng(seed)
        for _ in range(WARM_CALLS):
            gather(rng.integers(0, self._num_records, batch))
        clock, took = time.perf_counter_ns, list[int]()
        deadline = clock() + int(seconds * 1e9)
        while len(took) < LEAST_CALLS or clock() < deadline:
            idxs = rng.integers(0, self._num_records, batch)
            start = clock()
            result = gather(idxs)
            took.append(clock() - start)
            del result
        return took

    def run_cold(
        self,
        path: str,
        order: str,
        num_records: int,
        batch: int,
        num_batches: int,
        seed: int,
        prefetch: bool,
    ) -> list[int]:
        """Open, gather some batches in ``random`` or ``sequential`` order, close: nanoseconds of each call.

        With `prefetch` a call also asks for the batch that comes next, and the first one for itself.
        """
        idxs = np.arange(num_records)
        if order == "random":
            idxs = np.random.default_rng(seed).permutation(idxs)
        batches = [idxs[start : start + batch] for start in range(0, num_batches * batch, batch)]
        gather = self._store.open(Path(path))
        ask = getattr(self._store, "prefetch", None) if prefetch else None
        clock, took = time.perf_counter_ns, list[int]()
        for number, wanted in enumerate(batches):
            start = clock()
            if ask is not None:
                for coming in batches[number + (number > 0) : number + 2]:
                    ask(coming)
            result = gather(wanted)
            took.append(clock() - start)
            del result
        del gather
        self._store.close()
        return took

    def append(
        self, data: str, folder: str, codec: str, batch: int, record_bytes: int, seconds: float
    ) -> list[int]:
        """Append batches to a store of this package for `seconds`: nanoseconds of each call but the first three.

        The store is made in `folder` and removed; neither that nor its beginning and end are timed.
        """
        from loaderx import Zrecord

        records = np.load(data).reshape(-1)
        n_bytes = batch * record_bytes
        clock, took = time.perf_counter_ns, list[int]()
        with tempfile.TemporaryDirectory(dir=folder) as scratch, Zrecord(Path(scratch) / "s", codec) as store:
            at, written = 0, 0
            deadline = clock() + int(seconds * 1e9)
            while len(took) < WARM_CALLS + LEAST_CALLS or (
                clock() < deadline and written < MOST_WRITTEN_BYTES
            ):
                part = records[at : at + n_bytes]
                start = clock()
                store.append(part, batch, record_bytes)
                took.append(clock() - start)
                at = (at + n_bytes) % (len(records) - n_bytes)
                written += n_bytes
        return took[WARM_CALLS:]

    def start(self, path: str, data: str, batch: int) -> int:
        """Have a loader begin, and look whether its first batches are records of the array; how many were looked at."""
        records = np.load(data, mmap_mode="r")
        ragged = " ragged " in self._name
        known = {
            hash((record[: np.count_nonzero(record)] if ragged else record).tobytes()) for record in records
        }
        self._next_batch = next_batch = self._store.start(Path(path), batch)
        for _ in range(CHECKED_BATCHES):
            rows = self._store.rows(next_batch())
            if len(rows) != batch or not all(hash(np.asarray(row).tobytes()) in known for row in rows):
                raise ValueError("a loader gave what was not written")
        return CHECKED_BATCHES * batch

    def loop(self, seconds: float) -> list[float]:
        """Take batches for `seconds`, each dropped when the next one is there: how many, and the seconds it took."""
        next_batch, clock = self._next_batch, time.perf_counter
        for _ in range(WARM_CALLS):
            batch = next_batch()
        taken, start = 0, clock()
        while taken < LEAST_CALLS or clock() < start + seconds:
            batch = next_batch()
            taken += 1
        elapsed = clock() - start
        del batch
        return [taken, elapsed]

    def memory_mib(self, steps: int) -> float:
        """Take so many batches, and return the anonymous memory of the process."""
        for _ in range(steps):
            self._next_batch()
        return read_rss_anon() / 2**20

    def close(self) -> None:
        """Close what `open` or `start` began."""
        self._gather = None
        self._store.close()


def read_rss_anon() -> int:
    """Return the bytes of this process's anonymous memory."""
    (line,) = (
        line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("RssAnon")
    )
    return int(line.split()[1]) * 1024


def obey(worker: Any) -> None:
    """Have an object do the commands of standard input, until that ends."""
    # packages print; the answers go where they cannot
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    for line in sys.stdin:
        command: dict[str, Any] = json.loads(line)
        try:
            answer = {"ok": getattr(worker, command.pop("do"))(**command)}
        except NotInstalledError as error:
            answer = {"missing": str(error)}
        except Exception as error:
            traceback.print_exc()
            answer = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    name, bounds_library = sys.argv[1:]
    obey(Worker(name, list_contenders(Path(bounds_library))[name].make()))
