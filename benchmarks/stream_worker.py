"""One contender of streamers.py in a process of its own, obeying commands as worker.py does."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

# behind everything else: a peer's folder must win over the source tree
sys.path.append(str(Path(__file__).resolve().parents[1]))

from benchmarks.streamers import ids_of, is_kept, list_streamers
from benchmarks.worker import obey, read_rss_anon


class StreamWorker:
    """The commands; each method is one, its keywords are the command's other keys."""

    def __init__(self, streamer: Any) -> None:
        self._streamer = streamer

    def prepare(self) -> str:
        """Import what the contender needs; its version."""
        return str(self._streamer.prepare())

    def _items(self, path: str, way: str) -> Any:
        return self._streamer.samples(Path(path)) if way == "tar" else self._streamer.lines(Path(path), way)

    def check(self, path: str, way: str, count: int) -> None:
        """Look whether each item comes once, and in order where nothing shuffles."""
        found = list(ids_of(self._items(path, way)))
        expected = [i for i in range(count) if way != "chain" or is_kept({"id": i})]
        if (sorted(found) if way in ("shuffle", "chain") else found) != expected:
            raise ValueError(f"{way}: other items were given than were written")

    def run(self, path: str, way: str) -> float:
        """Go through all items once, from the call to the end; seconds."""
        start = time.perf_counter()
        for _ in self._items(path, way):
            pass
        return time.perf_counter() - start

    def first(self, path: str) -> float:
        """Return the milliseconds to the first item."""
        return float(self._streamer.first(Path(path)))

    def state(self, path: str, size: int, repeats: int) -> float:
        """Return the microseconds of a state."""
        return float(self._streamer.state(Path(path), size, repeats))

    def memory(self, path: str, early: int) -> list[int]:
        """Return the anonymous bytes of the process after the first items, and at the end."""
        passing = self._streamer.numbers(Path(path))
        for _ in range(early):
            next(passing)
        before = read_rss_anon()
        most = before
        for number, _ in enumerate(passing):
            if number % 500_000 == 0:
                most = max(most, read_rss_anon())
        return [before, max(most, read_rss_anon())]

    def close(self) -> None:
        """Nothing is open."""


if __name__ == "__main__":
    obey(StreamWorker(list_streamers()[sys.argv[1]].make()))
