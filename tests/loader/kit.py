"""Streams and transforms that the loader's tests use: of plain arrays, so that what is tested is the loader."""

from __future__ import annotations

import threading
import time
from typing import Any

import numpy as np
import numpy.typing as npt


class ArrayStream:
    """An array as a stream."""

    def __init__(self, array: npt.NDArray[Any]) -> None:
        self.array = array

    def __len__(self) -> int:
        return len(self.array)

    def __getitems__(self, idxs: npt.NDArray[np.uint64]) -> npt.NDArray[Any]:
        return self.array[idxs]


class CountingStream(ArrayStream):
    """Counts the reads that run at once, and keeps what `prefetch` was asked for."""

    def __init__(self, n: int, pause_s: float = 0.0) -> None:
        super().__init__(np.arange(n))
        self.pause_s = pause_s
        self.asked: list[list[int]] = []
        self.n_reads = self.n_now = self.most_at_once = 0
        self._lock = threading.Lock()

    def __getitems__(self, idxs: npt.NDArray[np.uint64]) -> npt.NDArray[Any]:
        with self._lock:
            self.n_reads += 1
            self.n_now += 1
            self.most_at_once = max(self.most_at_once, self.n_now)
        time.sleep(self.pause_s)
        with self._lock:
            self.n_now -= 1
        return super().__getitems__(idxs)

    def prefetch(self, idxs: npt.NDArray[np.uint64]) -> None:
        self.asked.append(idxs.tolist())


class Gate:
    """A transform that waits until it is opened, and says how many wait."""

    def __init__(self) -> None:
        self.opened = threading.Event()
        self.entered = threading.Semaphore(0)

    def __call__(self, batch: Any) -> Any:
        self.entered.release()
        self.opened.wait()
        return batch


def jittered(batch: dict[str, Any]) -> dict[str, Any]:
    """Return the batch after a time that depends on it, so that batches are done in another order than asked for."""
    time.sleep(int(batch["x"][0]) % 7 * 0.0005)
    return batch


def fail_on_sevens(batch: dict[str, Any]) -> dict[str, Any]:
    """Return the batch, or raise where it begins with a multiple of seven."""
    if batch["x"][0] % 7 == 0:
        raise KeyError(f"seven at {int(batch['x'][0])}")
    return batch
