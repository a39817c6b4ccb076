"""Ctrl-C, or another thread's `close`, at any line of the loader: nothing is lost, given twice, or misplaced."""

from __future__ import annotations

import contextlib
import gc
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import loaderx.loader
from loaderx import ClosedError, DataLoader
from tests.interrupting import Lines, interrupt, lines_of
from tests.loader.kit import ArrayStream

at_line = Lines(Path(loaderx.loader.__file__).parent, ("with self._lock:",)).at


def numbers() -> dict[str, Any]:
    return {"x": ArrayStream(np.arange(1000))}


@pytest.fixture(autouse=True)
def _no_worker_stays() -> Iterator[None]:
    before = set(threading.enumerate())
    yield
    gc.collect()
    for thread in set(threading.enumerate()) - before:
        thread.join(timeout=10)
    assert set(threading.enumerate()) <= before


@pytest.mark.parametrize("num_workers", [0, 2])
@pytest.mark.parametrize("first", [True, False])
def test_next_is_interrupted_at_every_line(num_workers: int, first: bool) -> None:
    """The step says whether its batch is still to come; and from there on every batch is right."""

    def attempt(number: int) -> bool:
        with DataLoader(numbers(), num_workers, 1, 2, "sequential") as loader:
            if not first:
                next(loader)
            before = loader.step
            with at_line(number, interrupt) as came, contextlib.suppress(KeyboardInterrupt):
                next(loader)
            assert loader.step in (before, before + 1), number
            for step in range(loader.step, loader.step + 6):
                assert next(loader)["x"].tolist() == [step], number
            return came()

    assert lines_of(attempt) > 10


@pytest.mark.parametrize("num_workers", [0, 2])
def test_seek_is_interrupted_at_every_line(num_workers: int) -> None:
    def attempt(number: int) -> bool:
        with DataLoader(numbers(), num_workers, 1, 2, "sequential") as loader:
            for _ in range(10):
                next(loader)
            with at_line(number, interrupt) as came, contextlib.suppress(KeyboardInterrupt):
                loader.seek(2)
            assert loader.step in (10, 2), number
            for step in range(loader.step, loader.step + 6):
                assert next(loader)["x"].tolist() == [step], number
            return came()

    assert lines_of(attempt) > 5


@pytest.mark.parametrize("transform_fails", [False, True])
def test_next_beside_a_close_at_every_line(transform_fails: bool) -> None:
    """The batch comes, or the exception of its step, or a ClosedError; never anything else, and nobody waits."""

    def fail(batch: Any) -> Any:
        if transform_fails:
            raise LookupError("mine")
        return batch

    def attempt(number: int) -> bool:
        before = set(threading.enumerate())
        loader = DataLoader(numbers(), 2, 1, 2, "sequential", transform=fail)

        def close() -> None:
            closer = threading.Thread(target=loader.close)
            closer.start()
            closer.join()

        try:
            with at_line(number, close) as came:
                batch = next(loader)
            assert not transform_fails and batch["x"].tolist() == [0], number
        except LookupError:
            assert transform_fails
        except ClosedError:
            pass
        loader.close()
        with pytest.raises(ClosedError):
            next(loader)
        assert set(threading.enumerate()) <= before, number
        return came()

    assert lines_of(attempt) > 10


def test_close_is_interrupted_at_every_line() -> None:
    def attempt(number: int) -> bool:
        loader = DataLoader(numbers(), 2, 1, 2)
        next(loader)
        with at_line(number, interrupt) as came, contextlib.suppress(KeyboardInterrupt):
            loader.close()
        loader.close()
        with pytest.raises(ClosedError):
            next(loader)
        return came()

    assert lines_of(attempt) > 5
