"""What the worker processes of the tests import: quick to load, and able to do anything at any step."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["Lines", "as_is", "busy", "os", "signal", "slow", "sys", "threading", "time"]


class Lines:
    """A stream of texts, the same ones again and again behind each other."""

    def __init__(self, lines: list[str], n: int = 10_000) -> None:
        self.lines, self.n = lines, n

    def __len__(self) -> int:
        return self.n

    def __getitems__(self, idxs: npt.NDArray[np.uint64]) -> list[str]:
        return [self.lines[int(idx) % len(self.lines)] for idx in idxs]


def run(batch: dict[str, Any]) -> Any:
    """Return what the batch's line says: an expression, in which `step` is the index."""
    (line,) = batch["line"]
    return eval(line, globals(), {"step": int(batch["step"][0])})


def run_rng(batch: dict[str, Any], rng: np.random.Generator) -> Any:
    """Return random numbers of the step."""
    return rng.random(3)


def fail(error: BaseException) -> None:
    """Raise."""
    raise error


def fail_inside() -> None:
    """Raise, with a cause."""
    try:
        {}["key of the cause"]  # type: ignore[index]
    except KeyError as error:
        raise ValueError("my own") from error


class Awkward(Exception):
    """An exception that pickles and does not unpickle."""

    def __init__(self, a: int, b: int) -> None:
        super().__init__(f"awkward {a} and {b}")


class FailingStream:
    """A stream whose reads fail."""

    def __len__(self) -> int:
        return 100

    def __getitems__(self, idxs: npt.NDArray[np.uint64]) -> Any:
        raise OSError(5, "no disk")


class UnloadableStream:
    """A stream that a worker cannot load."""

    def __len__(self) -> int:
        return 100

    def __getitems__(self, idxs: npt.NDArray[np.uint64]) -> Any:
        return idxs

    def __reduce__(self) -> Any:
        return fail, (RuntimeError("the disk is not mounted here"),)


class StreamFrom(UnloadableStream):
    """A stream that can be loaded when a file is there."""

    def __init__(self, path: Any) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return _load_from, (self.path,)


def _load_from(path: Any) -> StreamFrom:
    if not path.exists():
        raise RuntimeError("not yet")
    return StreamFrom(path)


class EndingStream(UnloadableStream):
    """A stream that ends the process that loads it."""

    def __reduce__(self) -> Any:
        return os._exit, (7,)


class SpanStream:
    """Keeps when each read began and ended: what a gather is, to count those that run at once."""

    def __len__(self) -> int:
        return 10_000

    def __getitems__(self, idxs: npt.NDArray[np.uint64]) -> Any:
        began = time.monotonic_ns()
        time.sleep(0.01)
        return np.array([began, time.monotonic_ns()])


def as_is(batch: Any) -> Any:
    """Return the batch."""
    return batch


def busy(seconds: float) -> None:
    """Hold the GIL for a while."""
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        pass


def slow(batch: Any) -> Any:
    """Return the batch after a while of Python."""
    busy(0.005)
    return batch


def hang(path: str) -> None:
    """Make a file, and sleep for an hour."""
    with open(path, "w") as file:
        file.write(str(os.getpid()))
    time.sleep(3600)


def fork_and_die() -> None:
    """End without a word, and leave a child behind that has all descriptors."""
    if os.fork() == 0:
        time.sleep(5)
        os._exit(0)
    os.kill(os.getpid(), signal.SIGKILL)


def fork_and_return(batch: dict[str, Any]) -> Any:
    """Return the batch, in a child of the worker too."""
    pid = os.fork()
    if pid:
        os.waitpid(pid, 0)
    return batch


class SilentError(Exception):
    """An exception whose text raises, and which pickles as badly."""

    def __str__(self) -> str:
        raise SystemExit

    def __reduce__(self) -> Any:
        raise SystemExit


def fail_silently(batch: dict[str, Any]) -> Any:
    """Raise what can hardly be told of."""
    raise SilentError
