"""What the worker processes of the tests import, and the sources that they are tried on."""

from __future__ import annotations

import contextlib
import os
import pickle
import signal
import sys
import threading
import time
from typing import Any

import numpy as np


def ten(x: int) -> int:
    return 10 * x


def ten_or_raise(x: int) -> int:
    """Raise for 5, and for multiples of 7."""
    if x == 5 or (x and x % 7 == 0):
        raise ValueError(f"not {x}")
    return 10 * x


def odd_batches(batch: list[int]) -> list[int]:
    """Return another number of items than there were: twos of some, none of others."""
    return [10 * x + i for x in batch for i in range(x % 3)]


def failing_batches(batch: list[int]) -> list[int]:
    if 5 in batch:
        raise ValueError("not 5")
    return batch * 2


def with_all(x: int, number: int, rng: np.random.Generator) -> tuple[int, int, int]:
    return x, number, int(rng.integers(1000))


def batch_with_all(batch: list[int], numbers: list[int], rng: np.random.Generator) -> list[Any]:
    return [(x, number, int(rng.integers(1000))) for x, number in zip(batch, numbers, strict=True)]


def pid_of(_: Any) -> int:
    return os.getpid()


def slowly(x: int) -> int:
    time.sleep(30)
    return x


class Unpicklable(ValueError):
    """An exception that does not pickle."""

    def __init__(self, number: int, lock: Any) -> None:
        super().__init__(f"number {number}")
        self.lock = lock


class DoesNotUnpickle:
    """Pickles, and does not come back."""

    def __reduce__(self) -> Any:
        return _refuse, ()


def _refuse() -> None:
    raise RuntimeError("it stays there")


def do(what: Any) -> Any:
    """Do what an item says: a text is an expression, anything else is what it is."""
    return eval(what, globals(), {}) if isinstance(what, str) else what


def fail(error: BaseException) -> None:
    raise error


def fork_and_return() -> int:
    """Fork, and come back twice: with 0 in the child."""
    pid = os.fork()
    if pid:
        os.waitpid(pid, 0)
        return 1
    return 0


class Watched:
    """Numbers as a shard, which notes what was read, and that two threads never read at once."""

    def __init__(self, n: int, at_once: threading.Lock | None = None) -> None:
        self.n = n
        self.read: list[int] = []
        self.at_once = threading.Lock() if at_once is None else at_once
        self.clashes = 0

    def __len__(self) -> int:
        return self.n

    def __getitem__(self, i: int) -> int:
        if not self.at_once.acquire(blocking=False):
            self.clashes += 1
            return i
        try:
            time.sleep(0)
            self.read.append(i)
            return i
        finally:
            self.at_once.release()


__all__ = ["contextlib", "np", "pickle", "signal", "sys"]
