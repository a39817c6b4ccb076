"""A block goes back to the pool when nothing refers to it, never before; the pool keeps no more than it may."""

from __future__ import annotations

import copy
import ctypes
import gc
import os
import pickle
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loaderx._core import buffers
from loaderx._core.buffers import Block, idle_bytes, set_limit, trim
from loaderx.store.buffers import _pool_limit

MIB = 1 << 20
LIMIT = 8 * MIB


@pytest.fixture(autouse=True)
def _pool() -> Iterator[None]:
    gc.collect()
    limit = _pool_limit()
    trim()
    set_limit(LIMIT)
    yield
    trim()
    set_limit(limit)


def take(n_bytes: int) -> npt.NDArray[np.uint8]:
    return np.frombuffer(Block(n_bytes), np.uint8)


def address(array: npt.NDArray[Any]) -> int:
    return int(array.__array_interface__["data"][0])


@pytest.mark.parametrize("n_bytes", [1, 4095, 65536, 65537, MIB, MIB + 1, 37 * MIB])
def test_a_block_is_what_was_asked_for(n_bytes: int) -> None:
    batch = take(n_bytes)
    assert batch.nbytes == n_bytes and batch.flags.writeable
    assert address(batch) % 4096 == buffers.OFFSET_BYTES and address(batch) % 64 == 0
    batch[0], batch[-1] = 1, 2


@pytest.mark.parametrize("n_bytes", [0, -1, 1 << 59, (1 << 60) + 1])
def test_no_memory_is_an_error(n_bytes: int) -> None:
    del_me = take(MIB)
    del del_me
    with pytest.raises(MemoryError, match=rf"no memory for a batch of {n_bytes} bytes"):
        Block(n_bytes)


def test_without_memory_what_lies_idle_goes_first() -> None:
    """Under a limit of address space that the idle block and the new one do not fit into together."""
    program = """
import resource, numpy as np
from loaderx._core.buffers import Block, idle_bytes, set_limit
set_limit(1 << 40)
first = np.frombuffer(Block(600 << 20), np.uint8)
del first
assert idle_bytes() > 600 << 20
used = int(open("/proc/self/statm").read().split()[0]) * 4096
resource.setrlimit(resource.RLIMIT_AS, (used + (300 << 20),) * 2)
second = np.frombuffer(Block(700 << 20), np.uint8)
assert idle_bytes() == 0
try:
    Block(700 << 20)
except MemoryError:
    print("refused")
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("refused\n", "")


def test_a_block_comes_back_to_the_next_batch_of_about_its_size() -> None:
    batch = take(MIB)
    batch[:] = 7
    place = address(batch)
    del batch
    again = take(MIB - 1000)
    assert address(again) == place and (again == 7).all()  # memory as it was left
    assert idle_bytes() == 0
    other = take(MIB)
    assert address(other) != place


@given(st.integers(4096, 1 << 26))
@settings(max_examples=200, deadline=None)
def test_no_block_has_more_than_a_quarter_too_much(n_bytes: int) -> None:
    trim()
    set_limit(1 << 40)
    Block(n_bytes)
    assert n_bytes <= idle_bytes() - 4096 <= n_bytes * 1.25


def test_what_was_used_last_is_used_first_and_what_was_used_long_ago_goes_first() -> None:
    batches = [take(MIB) for _ in range(12)]
    places = [address(batch) for batch in batches]
    while batches:
        batches.pop(0)
    kept = LIMIT // (MIB + 4096)
    assert kept == 7 and idle_bytes() == kept * (MIB + 4096)
    batches = [take(MIB) for _ in range(kept)]
    assert [address(batch) for batch in batches] == places[:4:-1]


def test_the_oldest_goes_whatever_its_size() -> None:
    small = [take(100_000) for _ in range(3)]
    del small
    large = [take(MIB) for _ in range(7)]
    del large
    assert idle_bytes() == 7 * (MIB + 4096) + 3 * (114_688 + 4096)
    another = take(2 * MIB)
    del another
    assert idle_bytes() == 2 * MIB + 4096 + 5 * (MIB + 4096)


def test_the_bound_holds_whatever_happens() -> None:
    rng = np.random.default_rng(3)
    held: list[npt.NDArray[np.uint8]] = []
    for _ in range(3000):
        if held and rng.random() < 0.5:
            held.pop(int(rng.integers(len(held))))
        else:
            held.append(take(int(rng.integers(1, 3 * MIB))))
        assert 0 <= idle_bytes() <= LIMIT
    held.clear()
    assert LIMIT // 2 < idle_bytes() <= LIMIT
    set_limit(MIB)
    assert idle_bytes() <= MIB
    set_limit(0)
    assert idle_bytes() == 0


def test_a_block_above_the_bound_drives_out_no_other() -> None:
    batch = take(MIB)
    del batch
    before = idle_bytes()
    batch = take(LIMIT)  # a little more with what is around it
    del batch
    assert idle_bytes() == before > 0


@pytest.mark.parametrize("n_bytes", [-1, -(1 << 63)])
def test_a_bound_below_nothing_is_refused(n_bytes: int) -> None:
    for kept in (0, LIMIT):
        set_limit(kept)
        batch = take(MIB)
        del batch
        with pytest.raises(ValueError, match="no bound on bytes"):
            set_limit(n_bytes)
        assert idle_bytes() == (MIB + 4096 if kept else 0)


def test_a_bound_of_nothing_keeps_nothing() -> None:
    set_limit(0)
    batch = take(MIB)
    del batch
    assert idle_bytes() == 0


def test_what_is_not_needed_any_more_goes_while_others_are_used() -> None:
    burst = [take(MIB) for _ in range(7)]
    del burst
    assert idle_bytes() == 7 * (MIB + 4096)
    for _ in range(7 * LIMIT // MIB):
        batch = take(MIB)
        del batch
    assert idle_bytes() == 7 * (MIB + 4096)
    for _ in range(2 * LIMIT // MIB):
        batch = take(MIB)
        del batch
    assert idle_bytes() == MIB + 4096


def test_trimming_gives_back_what_is_idle_and_nothing_else(rss_anon: Callable[[], int]) -> None:
    set_limit(256 * MIB)
    held, dropped = take(37 * MIB), take(37 * MIB)
    held[:], dropped[:] = 1, 2
    before = rss_anon()
    del dropped
    idle = idle_bytes()
    assert idle >= 37 * MIB and trim() == idle and idle_bytes() == 0 and trim() == 0
    assert before - rss_anon() > 36 * MIB
    assert (held == 1).all()


def _maps() -> int:
    with open("/proc/self/maps", encoding="ascii") as lines:
        return sum(1 for _ in lines)


@pytest.mark.skipif(not os.path.exists("/proc/self/maps"), reason="the system does not tell its maps")
@pytest.mark.parametrize("n_bytes", [65_536, 68_000, 400_000, 3 * MIB])
def test_blocks_that_go_from_between_others_leave_no_holes(n_bytes: int, rss_anon: Callable[[], int]) -> None:
    """A process may have 65,530 maps, and each hole would take one."""
    maps, rss = _maps(), rss_anon()
    n_blocks = 3000
    held: list[npt.NDArray[np.uint8] | None] = [take(n_bytes) for _ in range(n_blocks)]
    for block in held:
        assert block is not None
        block[-1] = 1
    for number in [*range(0, n_blocks, 2), *range(1, n_blocks, 6)]:
        held[number] = None
    trim()
    assert _maps() - maps < n_blocks * n_bytes // (16 * MIB) + 20
    for number, block in enumerate(held):
        assert block is None or block[-1] == 1, number
    places = {address(block) for block in held if block is not None}
    for number in range(0, n_blocks, 2):
        held[number] = block = take(n_bytes)
        assert address(block) not in places
        places.add(address(block))
    del block
    held.clear()
    trim()
    assert _maps() - maps < 20 and rss_anon() - rss < 4 * MIB


def test_a_block_that_went_from_between_others_gave_its_pages_back(rss_anon: Callable[[], int]) -> None:
    held = [take(MIB) for _ in range(200)]
    for block in held:
        block[:] = 1
    del block
    before = rss_anon()
    del held[::2]
    trim()
    assert 99 * MIB < before - rss_anon() < 102 * MIB
    assert all((block == 1).all() for block in held)


def test_random_use_hands_no_byte_to_two() -> None:
    rng = np.random.default_rng(4)
    held: dict[int, npt.NDArray[np.uint8]] = {}
    for number in range(2000):
        if len(held) > 20 or (held and rng.random() < 0.45):
            key = int(rng.choice(list(held)))
            batch = held.pop(key)
            assert (batch == key % 251).all()
        else:
            held[number] = take(int(rng.integers(1, 200_000)))
            held[number][:] = number % 251
    for key, batch in held.items():
        assert (batch == key % 251).all()


# ---- What keeps a block ------------------------------------------------------------------------------------------


def _of_bytes(batch: npt.NDArray[np.uint8]) -> Any:
    return (ctypes.c_ubyte * batch.nbytes).from_buffer(batch)


KEEPERS: dict[str, Callable[[npt.NDArray[np.uint8]], Any]] = {
    "itself": lambda batch: batch,
    "slice": lambda batch: batch[1000:2000],
    "slice of a slice": lambda batch: batch[1000:][::-3][5:],
    "an empty slice": lambda batch: batch[7:7],
    "one item as an array": lambda batch: batch[7:8].reshape(()),
    "reshape": lambda batch: batch.reshape(64, -1),
    "transpose": lambda batch: batch.reshape(64, -1).T,
    "another dtype": lambda batch: batch.view(np.float32).reshape(-1, 4),
    "a field": lambda batch: batch.view([("a", "u1"), ("b", "u1")])["b"],
    "real part": lambda batch: batch.view(np.complex64).real,
    "broadcast": lambda batch: np.broadcast_to(batch, (3, batch.size)),
    "strides": lambda batch: np.lib.stride_tricks.sliding_window_view(batch, 8),
    "subclass": lambda batch: batch.view(np.recarray),
    "iterator": lambda batch: batch.flat,
    "memoryview": memoryview,
    "memoryview of a slice": lambda batch: memoryview(batch)[100:200].cast("I"),
    "array of a memoryview": lambda batch: np.frombuffer(memoryview(batch), np.int16)[3:],
    "ctypes": _of_bytes,
    "pointer of ctypes": lambda batch: batch.ctypes.data_as(ctypes.POINTER(ctypes.c_ubyte)),
    "DLPack": np.from_dlpack,
    "capsule of DLPack": lambda batch: batch.__dlpack__(),
    "a buffer to pickle": pickle.PickleBuffer,
    "an array of objects": lambda batch: np.array([batch, None], dtype=object),
    "a shallow copy of a list": lambda batch: copy.copy([batch]),
    "a generator": lambda batch: (item for item in batch),
    "an exception": lambda batch: ValueError(batch),
}


@pytest.mark.parametrize("name", KEEPERS)
def test_a_block_stays_as_long_as_anything_refers_to_it(name: str) -> None:
    batch = take(MIB)
    batch[:] = 5
    place = address(batch)
    kept = KEEPERS[name](batch)
    raw = np.frombuffer((ctypes.c_ubyte * MIB).from_address(place), np.uint8)  # looks, and keeps nothing
    del batch
    gc.collect()
    assert idle_bytes() == 0
    others = [take(MIB) for _ in range(3)]
    for other in others:
        assert address(other) != place
        other[:] = 9
    assert (raw == 5).all()
    del raw, other, others
    trim()
    assert idle_bytes() == 0
    del kept
    gc.collect()
    assert idle_bytes() == MIB + 4096
    assert address(take(MIB)) == place


@pytest.mark.parametrize(
    "copied",
    [
        lambda batch: batch.copy(),
        lambda batch: batch[[1, 2]],
        lambda batch: pickle.loads(pickle.dumps(batch)),
        lambda batch: pickle.loads(pickle.dumps(batch, protocol=5)),
        copy.deepcopy,
        lambda batch: batch.tobytes(),
        lambda batch: int(batch[3]),
        lambda batch: batch.astype(np.int16),
    ],
)
def test_what_has_a_copy_keeps_none(copied: Callable[[npt.NDArray[np.uint8]], Any]) -> None:
    batch = take(MIB)
    value = copied(batch)
    del batch
    assert idle_bytes() == MIB + 4096
    del value


def test_a_buffer_out_of_band_keeps_its_block() -> None:
    found: list[pickle.PickleBuffer] = []
    batch = take(MIB)
    batch[:] = 3
    data = pickle.dumps(batch, protocol=5, buffer_callback=found.append)
    del batch
    assert idle_bytes() == 0
    again = pickle.loads(data, buffers=found)
    found.clear()
    gc.collect()
    assert idle_bytes() == 0 and (again == 3).all()
    del again
    assert idle_bytes() == MIB + 4096


def test_a_block_itself_does_not_pickle() -> None:
    with pytest.raises(TypeError):
        pickle.dumps(Block(100))
    with pytest.raises(TypeError):
        copy.copy(Block(100))


def test_a_cycle_gives_its_block_back_when_it_is_collected() -> None:
    class Node:
        def __init__(self, batch: npt.NDArray[np.uint8]) -> None:
            self.batch, self.me = batch, self

    gc.disable()
    try:
        node = Node(take(MIB))
        del node
        assert idle_bytes() == 0
        gc.collect()
        assert idle_bytes() == MIB + 4096
    finally:
        gc.enable()


def test_an_array_saved_by_its_finalizer_keeps_its_block() -> None:
    saved: list[npt.NDArray[np.uint8]] = []

    class Phoenix:
        def __init__(self, batch: npt.NDArray[np.uint8]) -> None:
            self.batch = batch

        def __del__(self) -> None:
            saved.append(self.batch)

    phoenix = Phoenix(take(MIB))
    phoenix.batch[:] = 6
    del phoenix
    assert idle_bytes() == 0 and (saved[0] == 6).all()
    saved.clear()
    assert idle_bytes() == MIB + 4096


# ---- Threads, processes, the end ---------------------------------------------------------------------------------


def test_threads_never_get_the_same_block() -> None:
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    faults: list[str] = []

    def hammer(number: int) -> None:
        rng = np.random.default_rng(number)
        held: list[npt.NDArray[np.uint8]] = []
        for _ in range(400):
            batch = take(int(rng.integers(60_000, 100_000)))
            batch[:] = number
            held.append(batch[::7])
            if len(held) > 3 and not (held.pop(int(rng.integers(3))) == number).all():
                faults.append(f"thread {number} found another's bytes")
        if not all((view == number).all() for view in held):
            faults.append(f"thread {number} found another's bytes")

    threads = [threading.Thread(target=hammer, args=(number,)) for number in range(1, 9)]
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    assert not faults and idle_bytes() <= LIMIT


def test_a_block_may_be_dropped_by_another_thread() -> None:
    held = [take(MIB)]
    thread = threading.Thread(target=held.clear)
    thread.start()
    thread.join()
    assert idle_bytes() == MIB + 4096


def _fork(work: Callable[[], bool]) -> int:
    """Return the process id of a child that runs `work`."""
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            status = 0 if work() else 2
        finally:
            os._exit(status)
    return pid


def _succeeded(pid: int) -> bool:
    return os.waitpid(pid, 0)[1] == 0


def test_parent_and_child_write_to_memory_of_their_own() -> None:
    held, dropped = take(MIB), take(MIB)
    held[:], dropped[:] = 1, 2
    place = address(dropped)
    del dropped
    written_r, written_w = os.pipe()
    go_on_r, go_on_w = os.pipe()

    def work() -> bool:
        nonlocal held
        fine = idle_bytes() == 0 and (held == 1).all()  # a child begins without idle blocks
        held[:] = 11
        mine = [take(MIB) for _ in range(4)]
        for batch in mine:
            batch[:] = 12
        os.write(written_w, b"x")
        os.read(go_on_r, 1)
        fine = fine and (held == 11).all() and all((batch == 12).all() for batch in mine)
        del held
        return bool(fine and idle_bytes() == MIB + 4096)

    pid = _fork(work)
    os.read(written_r, 1)
    assert (held == 1).all() and idle_bytes() == MIB + 4096
    again = take(MIB)
    assert address(again) == place and (again == 2).all()
    again[:], held[:] = 3, 4
    os.write(go_on_w, b"x")
    assert _succeeded(pid)
    assert (again == 3).all() and (held == 4).all()
    for pipe in (written_r, written_w, go_on_r, go_on_w):
        os.close(pipe)


def test_a_childs_pool_is_its_own() -> None:
    batch = take(MIB)
    del batch
    before = idle_bytes()

    def work() -> bool:
        for _ in range(3):
            mine = [take(2 * MIB) for _ in range(3)]
            del mine
        return 0 < idle_bytes() <= LIMIT and trim() > 0 and idle_bytes() == 0

    assert _succeeded(_fork(work))
    assert idle_bytes() == before


@pytest.mark.parametrize("others", ["", "trim()", "del batch, view", "gc.freeze()", "sys.exit(0)"])
def test_the_interpreter_ends_with_blocks_in_use(others: str) -> None:
    program = f"""
import gc, sys, threading, atexit, numpy as np
from loaderx._core.buffers import Block, set_limit, trim
set_limit(1 << 26)
batch = np.frombuffer(Block(1 << 20), np.uint8); batch[:] = 1
view = memoryview(batch[5:])
idle = np.frombuffer(Block(1 << 20), np.uint8); del idle
class Cycle: pass
cycle = Cycle(); cycle.me, cycle.batch = cycle, np.frombuffer(Block(1 << 20), np.uint8)
sys.batch = np.frombuffer(Block(1 << 20), np.uint8)
kept = np.frombuffer(Block(1 << 20), np.uint8)
atexit.register(lambda kept=kept: kept.sum())
threading.Thread(target=lambda kept: kept.sum(), args=(kept,)).start()
print("done", flush=True)
{others}
"""
    done = subprocess.run([sys.executable, "-X", "dev", "-c", program], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "done\n", "")
