"""A lease is memory until nothing refers to it, and then its block is idle again."""

from __future__ import annotations

import gc
import os
import threading
from collections import deque
from pathlib import Path

import numpy as np
import pytest

from loaderx._core.lease import Lease, SharedBlock

MIB = 1 << 20


def make_file(folder: Path, n_bytes: int) -> int:
    """Return the descriptor of a file without a name."""
    path = folder / "block"
    fd = os.open(path, os.O_RDWR | os.O_CREAT)
    path.unlink()
    os.ftruncate(fd, n_bytes)
    return fd


def is_open(fd: int) -> bool:
    try:
        os.fstat(fd)
    except OSError:
        return False
    return True


@pytest.fixture
def block(tmp_path: Path) -> SharedBlock:
    block = SharedBlock(make_file(tmp_path, MIB))
    block.reserve(MIB)
    return block


def test_a_lease_is_the_files_bytes(block: SharedBlock) -> None:
    os.pwrite(block.fd, b"abc", 64)
    idle: deque[SharedBlock] = deque()
    array = np.frombuffer(Lease(block, MIB, idle), np.uint8)
    assert array.nbytes == MIB and array.flags.writeable
    assert array[64:68].tobytes() == b"abc\0"
    array[0] = 7
    assert os.pread(block.fd, 1, 0) == b"\7"


@pytest.mark.parametrize(
    "view",
    [
        lambda lease: np.frombuffer(lease, np.uint8),
        lambda lease: np.frombuffer(memoryview(lease)[128:256], np.int64)[3:5],
        lambda lease: np.ndarray((2, 2), np.float32, memoryview(lease)[64:80])[1],
        lambda lease: memoryview(np.frombuffer(lease, np.uint8)[5:9]),
        lambda lease: memoryview(lease)[0:0],
        lambda lease: [lease],
    ],
)
def test_the_block_comes_back_with_the_last_that_refers_to_it(block: SharedBlock, view: object) -> None:
    idle: deque[SharedBlock] = deque()
    assert callable(view)
    kept = view(Lease(block, MIB, idle))
    gc.collect()
    assert not idle
    with pytest.raises(ValueError, match="lent"):
        Lease(block, MIB, idle)
    with pytest.raises(ValueError, match="lent"):
        block.reserve(4 * MIB)
    del kept
    assert list(idle) == [block]
    Lease(idle.pop(), 1, idle)
    assert list(idle) == [block]


def test_in_a_cycle_it_comes_back_when_that_is_collected(block: SharedBlock) -> None:
    idle: deque[SharedBlock] = deque()
    cycle: list[object] = [np.frombuffer(Lease(block, MIB, idle), np.uint8)]
    cycle.append(cycle)
    del cycle
    assert not idle
    gc.collect()
    assert list(idle) == [block]


def test_a_block_that_is_not_kept_goes_with_its_batch(tmp_path: Path) -> None:
    fd = make_file(tmp_path, MIB)
    block = SharedBlock(fd)
    block.reserve(MIB)
    idle: deque[SharedBlock] = deque()
    array = np.frombuffer(Lease(block, MIB, idle), np.uint8)
    block.is_kept = False
    block.close_file()
    assert not is_open(fd) and block.fd == -1
    del block
    array[:] = 3  # the memory stays
    maps = Path("/proc/self/maps")
    assert not maps.exists() or str(tmp_path / "block") in maps.read_text()
    del array
    assert not idle
    assert not maps.exists() or str(tmp_path / "block") not in maps.read_text()


def test_a_block_closes_its_file(tmp_path: Path) -> None:
    fd = make_file(tmp_path, MIB)
    block = SharedBlock(fd)
    del block
    assert not is_open(fd)


def test_memory_grows_with_the_file(block: SharedBlock) -> None:
    idle: deque[SharedBlock] = deque()
    os.pwrite(block.fd, b"xyz", 10 * MIB)
    block.reserve(10 * MIB + 3)
    array = np.frombuffer(Lease(block, 10 * MIB + 3, idle), np.uint8)
    assert array[-3:].tobytes() == b"xyz"


def test_what_cannot_be_is_refused(block: SharedBlock) -> None:
    idle: deque[SharedBlock] = deque()
    for n_bytes in (-1, 100 * MIB):
        with pytest.raises(ValueError):
            Lease(block, n_bytes, idle)
    for n_bytes in (1 << 59, (1 << 60) + 1):
        with pytest.raises(MemoryError):
            block.reserve(n_bytes)
    with pytest.raises(TypeError):
        Lease(block, 1, None)  # type: ignore[arg-type]
    assert not idle
    assert memoryview(Lease(block, MIB, idle)).nbytes == MIB


def test_leases_end_in_any_thread(tmp_path: Path) -> None:
    """Threads take blocks from one another's hands, while the collector runs; none is lost, none is lent twice."""
    idle: deque[SharedBlock] = deque()
    for i in range(8):
        block = SharedBlock(make_file(tmp_path, 4096))
        block.reserve(4096)
        block.peak_bytes = i
        idle.append(block)
    hands: deque[object] = deque(maxlen=3)

    def churn() -> None:
        for _ in range(3000):
            try:
                block = idle.pop()
            except IndexError:
                continue
            array = np.frombuffer(Lease(block, 4096, idle), np.uint8)
            cycle: list[object] = [array]
            cycle.append(cycle)
            hands.append(array[1:])

    threads = [threading.Thread(target=churn) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    hands.clear()
    gc.collect()
    assert sorted(block.peak_bytes for block in idle) == list(range(8))
