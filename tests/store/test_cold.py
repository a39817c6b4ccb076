"""Reading from cold storage: what is asked for ahead really comes, and nothing else changes."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pytest

import loaderx
from loaderx import ClosedError, Dataset, RaggedDataset, RecordIndexError, Zrecord
from tests import residency
from tests.residency import PAGE

N, SIZE = 2000, 3 * 4096
DEADLINE_S = 20.0

Io = Literal["mmap", "pread"]


@pytest.fixture(scope="module")
def records() -> npt.NDArray[np.uint8]:
    return np.random.default_rng(0).integers(0, 256, (N, SIZE), dtype=np.uint8)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory, records: npt.NDArray[np.uint8]) -> Path:
    path = tmp_path_factory.mktemp("cold") / "s.zr"
    loaderx.write_dataset(path, records, codec="raw", progress=False)
    with Zrecord(path) as z:
        z.sync()
    return path


@pytest.fixture(params=["mmap", "pread"])
def io(request: pytest.FixtureRequest) -> Io:
    return request.param  # type: ignore[no-any-return]


def resident(store: Path) -> npt.NDArray[np.bool_]:
    """Return for each record which of its pages are in memory."""
    return residency.resident(store / "0.zr")[: N * SIZE // PAGE].reshape(N, -1)


def drop(store: Path) -> None:
    """Have the store's files leave the memory. No map of them may have touched pages."""
    assert residency.drop(store.glob("*.zr"), store / "0.zr", DEADLINE_S)


def await_pages(store: Path, idxs: npt.NDArray[np.int64]) -> None:
    """Wait until the records are in memory."""
    deadline = time.monotonic() + DEADLINE_S
    while True:
        pages = resident(store)
        if pages[idxs].all():
            return
        assert time.monotonic() < deadline, f"{np.sum(~pages[idxs])} pages of {pages[idxs].size} are missing"
        time.sleep(0.01)


@pytest.mark.needs_cold_files
def test_what_is_prefetched_comes_and_little_else(store: Path, records: Any, io: Io) -> None:
    idxs = np.random.default_rng(1).permutation(N)[:100]
    drop(store)
    with Zrecord(store, mode="r", io=io) as z:
        assert z.prefetch(idxs) is None  # type: ignore[func-returns-value]
        await_pages(store, idxs)
        assert resident(store).sum() < 2 * len(idxs) * SIZE // PAGE
        assert np.array_equal(z.gather_stacked(idxs, SIZE).reshape(-1, SIZE), records[idxs])


@pytest.mark.needs_cold_files
def test_prefetch_asks_again_for_what_has_left_the_memory(store: Path, io: Io) -> None:
    # What a map has touched stays: so the handle learns that the store is warm from another one.
    drop(store)
    with Zrecord(store, mode="r", io="pread") as z:
        idxs = np.arange(0, N, 20)
        for _ in range(100):
            z.gather_stacked(idxs, SIZE)
        drop(store)
        z.prefetch(idxs)
        await_pages(store, idxs)


@pytest.mark.needs_cold_files
def test_a_cold_gather_reads_right(store: Path, records: Any, io: Io) -> None:
    rng = np.random.default_rng(2)
    for idxs in (
        rng.permutation(N)[:300],
        np.arange(100, 400),
        np.arange(400, 100, -1),
        np.arange(-50, 0),
        np.array([5, 5, 5, -1, 0]),
        np.array([7]),
        rng.integers(0, N, 400).astype(np.uint64),
    ):
        drop(store)
        for verify in (False, True):
            with Dataset(store, io=io, verify=verify) as ds:
                assert np.array_equal(ds[idxs], records[idxs])


@pytest.mark.needs_cold_files
def test_a_sequential_pass_is_ahead_by_some_records(store: Path, records: Any, io: Io) -> None:
    drop(store)
    with Dataset(store, io=io) as ds:
        assert np.array_equal(ds[np.arange(64)], records[:64])
        await_pages(store, np.arange(64, 128))
        # one by one too
        for index in range(64, 200):
            assert np.array_equal(ds[index], records[index])
        await_pages(store, np.arange(200, 220))


@pytest.mark.needs_cold_files
def test_a_whole_cold_pass_in_large_batches(store: Path, records: Any, io: Io) -> None:
    # larger than the slices a batch is served in
    order = np.random.default_rng(3).permutation(N)
    many = np.concatenate([order, order])
    drop(store)
    with Dataset(store, io=io) as ds:
        assert np.array_equal(ds[many], records[many])
    drop(store)
    assert loaderx.verify(store).ok


def test_a_fault_in_a_large_batch_is_the_lowest(store: Path) -> None:
    idxs = np.tile(np.arange(N), 3)
    idxs[[5000, 4000, 5500]] = N + 1, N + 2, N + 3
    for threads in (1, 2):
        with Dataset(store, threads=threads) as ds, pytest.raises(RecordIndexError) as caught:
            ds[idxs]
        assert caught.value.position == 4000 and caught.value.index == N + 2


@pytest.mark.parametrize("wrong", [N, -N - 1, 2**40, -(2**40)])
def test_prefetch_refuses_what_is_no_record(store: Path, wrong: int) -> None:
    with Zrecord(store, mode="r") as z:
        with pytest.raises(RecordIndexError) as caught:
            z.prefetch([0, wrong, N + 5])
        assert (caught.value.position, caught.value.index, caught.value.length) == (1, wrong, N)
        with pytest.raises(RecordIndexError):
            z.prefetch(np.array([2**63], np.uint64))
        with pytest.raises(TypeError):
            z.prefetch([0.5])  # type: ignore[list-item]


def test_prefetch_takes_what_a_gather_takes(store: Path, io: Io) -> None:
    with Zrecord(store, mode="r", io=io, verify=True) as z:
        z.prefetch([])
        z.prefetch([-1, 0, 0, N - 1, -N])
        z.prefetch(np.arange(N, dtype=np.uint64))
        z.prefetch(range(10))
    with pytest.raises(ClosedError):
        z.prefetch([0])
    with Dataset(store, io=io) as ds:
        for key in (3, slice(10, 20), [1, 2], np.arange(N) % 2 == 0, np.array([[1], [2]])):
            ds.prefetch(key)
        with pytest.raises(IndexError):
            ds.prefetch(N)
        with pytest.raises(TypeError):
            ds.prefetch("0")
    with pytest.raises(ClosedError):
        ds.prefetch([0])


def test_prefetch_of_ragged_and_empty_records(tmp_path: Path, io: Io) -> None:
    arrays = [np.arange(length, dtype=np.int32) for length in (0, 5, 0, 3000, 1)]
    loaderx.write_ragged(tmp_path / "r.zr", arrays, progress=False)
    with RaggedDataset(tmp_path / "r.zr", io=io) as rds:
        rds.prefetch([4, 0, -2, 1])
        values, splits = rds[[4, 0, -2, 1]]
        assert np.array_equal(values, np.concatenate([arrays[4], arrays[0], arrays[3], arrays[1]]))
        assert splits.tolist() == [0, 1, 1, 3001, 3006]
    with Zrecord(tmp_path / "none.zr") as z:
        z.prefetch([])
        with pytest.raises(RecordIndexError):
            z.prefetch([0])


def test_prefetch_leaves_damage_to_the_read_that_meets_it(tmp_path: Path, records: Any, io: Io) -> None:
    path = tmp_path / "s.zr"
    with Zrecord(path, "raw") as z:
        z.append(records[:10], 10, SIZE)
    entry = np.array([0xFFFFF000, 0xFFFFFFFF, 0xFFFFFFFF], "<u4").tobytes() + b"\xff" * 4
    with (path / "meta.zr").open("r+b") as file:
        file.seek(16 + 16 * 3)
        file.write(entry)
        file.seek(16 + 16 * 4)
        file.write(entry[:12] + b"\0\0\0\0")
    os.truncate(path / "0.zr", 5 * SIZE)
    with Zrecord(path, mode="r", io=io) as z:
        z.prefetch(range(10))
        assert np.array_equal(z.gather_stacked([0, 1, 2], SIZE), records[:3].reshape(-1))
        for index in (3, 4, 9):
            with pytest.raises(loaderx.CorruptRecordError):
                z.gather_stacked([index], SIZE)
        os.truncate(path / "meta.zr", 16 + 16 * 3)
        z.prefetch(range(10))


def test_prefetch_in_threads_beside_appends_and_changes(tmp_path: Path, records: Any, io: Io) -> None:
    path = tmp_path / "s.zr"
    with Zrecord(path, "raw", io=io) as z:
        z.append(records[:200], 200, SIZE)
        done = threading.Event()

        def keep(call: Callable[[], None]) -> int:
            n = 0
            while not done.is_set() or n == 0:
                call()
                n += 1
            return n

        def read() -> None:
            idxs = np.random.default_rng().integers(0, 150, 40)
            z.prefetch(idxs)
            assert np.array_equal(z.gather_stacked(idxs, SIZE).reshape(-1, SIZE), records[idxs])

        with ThreadPoolExecutor(4) as pool:
            calls = [pool.submit(keep, read) for _ in range(2)]
            calls.append(pool.submit(keep, lambda: z.prefetch(np.arange(-150, 0))))
            try:
                for at in range(200, 800, 50):
                    z.append(records[at : at + 50], 50, SIZE)
                z.delete(range(700, 800))
                z.compact()
            finally:
                done.set()
            assert all(call.result(60) > 0 for call in calls)
        assert len(z) == 700
