"""How many blocks there are, how long their files are, and when they go."""

from __future__ import annotations

import gc
import os
import pickle
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from loaderx._core.lease import Lease, SharedBlock
from loaderx.loader import parcel
from loaderx.loader.blocks import Blocks
from tests.resume import same

KIB = 1 << 10
MIB = 1 << 20


def fill(blocks: Blocks, n_bytes: int, value: int = 1) -> np.ndarray[Any, Any]:
    """Do as a worker does, and return the batch."""
    block = blocks.take()
    os.pwrite(block.fd, bytes([value]) * n_bytes, 0)
    return np.frombuffer(blocks.lend(block, n_bytes), np.uint8)


def open_files() -> int:
    return len(os.listdir("/proc/self/fd"))


def test_a_new_block_is_made_only_where_none_is_idle() -> None:
    blocks = Blocks(100)
    for _ in range(50):
        fill(blocks, 5000)
    assert (blocks.n_kept, blocks.n_idle) == (1, 1)
    held = [fill(blocks, 5000, value) for value in range(7)]
    assert (blocks.n_kept, blocks.n_idle) == (7, 0)
    assert [int(batch[-1]) for batch in held] == list(range(7))
    del held
    assert (blocks.n_kept, blocks.n_idle) == (7, 7)


def test_blocks_above_the_bound_go_with_their_batch() -> None:
    before = open_files()
    blocks = Blocks(3)
    held = [fill(blocks, 5000, value) for value in range(20)]
    assert blocks.n_kept == 3 and open_files() == before + 3
    assert [int(batch[-1]) for batch in held] == list(range(20))
    del held
    assert (blocks.n_kept, blocks.n_idle) == (3, 3)
    del blocks
    assert open_files() == before


def test_blocks_that_nobody_needs_go() -> None:
    blocks = Blocks(100)
    held = [fill(blocks, 5000) for _ in range(40)]
    del held
    assert blocks.n_idle == 40
    for _ in range(200):
        pair = fill(blocks, 5000), fill(blocks, 5000)
        del pair
    assert blocks.n_kept == 2


def test_sizes_may_change_and_a_file_does_not_stay_long() -> None:
    blocks = Blocks(4)
    rng = np.random.default_rng(0)
    for _ in range(100):
        n_bytes = int(rng.integers(1, 200 * KIB))
        batch = fill(blocks, n_bytes, 9)
        assert batch.nbytes == n_bytes and (batch == 9).all()
        del batch
    fill(blocks, 64 * MIB)
    block = blocks.take()
    assert os.fstat(block.fd).st_size == 64 * MIB
    blocks.give_back(block)
    for _ in range(100):
        fill(blocks, 200 * KIB)
    block = blocks.take()
    assert os.fstat(block.fd).st_size < 2 * MIB
    blocks.give_back(block)
    assert blocks.n_kept == 1


def test_closing_lets_go_of_all_but_what_is_held() -> None:
    before = open_files()
    blocks = Blocks(10)
    held = [fill(blocks, 5000, value) for value in range(4)]
    taken = blocks.take()
    fill(blocks, 5000)
    blocks.close()
    blocks.give_back(taken)
    late = blocks.take()
    blocks.give_back(late)
    assert (blocks.n_kept, blocks.n_idle) == (0, 0)
    assert [int(batch[-1]) for batch in held] == list(range(4))
    del held, taken, late
    assert open_files() == before and (blocks.n_kept, blocks.n_idle) == (0, 0)


def test_what_is_lent_at_a_fork_is_not_filled_again() -> None:
    blocks = Blocks(10)
    spare = fill(blocks, 5000)
    held = fill(blocks, 5000)
    del spare
    assert len(blocks.forget_lent()) == 1
    assert (blocks.n_kept, blocks.n_idle) == (1, 1)
    del held
    assert (blocks.n_kept, blocks.n_idle) == (1, 1)


def test_threads_share_blocks() -> None:
    blocks = Blocks(8)

    def churn(value: int) -> None:
        for _ in range(300):
            batch = fill(blocks, 5000, value)
            assert (batch == value).all()
            del batch  # or the next one would be filled beside it

    threads = [threading.Thread(target=churn, args=(value,)) for value in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    gc.collect()
    assert blocks.n_kept == blocks.n_idle <= 4


# ---- parcel: a batch there and back ---------------------------------------------------------------------------------


def there_and_back(batch: Any) -> tuple[Any, list[Lease]]:
    blocks = Blocks(1)
    data, buffers = parcel.pack(batch)
    assert data is None or len(data) < 10 * KIB
    block: SharedBlock = blocks.take()
    parcel.write(block.fd, buffers)
    leases: list[Lease] = []

    def lend(n_bytes: int) -> Lease:
        leases.append(blocks.lend(block, n_bytes))
        return leases[-1]

    return parcel.unpack(data, [buffer.nbytes for buffer in buffers], lend), leases


DTYPES = ["u1", "<i4", ">f8", "?", "c16", "M8[ns]", "m8[D]", "U3", "S5", "i4,f8", "V7", "f2"]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(), (1,), (5,), (3, 4), (2, 3, 4), (0,), (3, 0)])
@pytest.mark.parametrize("form", ["C", "F", "strided", "backwards", "read-only"])
def test_every_array_arrives_as_it_is(dtype: str, shape: tuple[int, ...], form: str) -> None:
    n = int(np.prod(shape)) * np.dtype(dtype).itemsize
    raw = np.random.default_rng(1).integers(0, 2 if dtype == "?" else 100, max(n, 1), dtype=np.uint8)
    array = np.ndarray(shape, dtype, raw)
    if form == "F":
        array = np.asfortranarray(array)
    elif form == "strided" and shape:
        array = np.repeat(array, 2, axis=0)[::2]
    elif form == "backwards" and shape:
        array = array[::-1]
    elif form == "read-only":
        array = array.copy()
        array.flags.writeable = False
    back, leases = there_and_back(array)
    assert same(back, array)
    assert bool(leases) == bool(array.nbytes)
    if array.nbytes:
        assert back.flags.writeable == array.flags.writeable
        assert back.ctypes.data % parcel.ALIGNMENT == 0
        assert back.flags.f_contiguous or not array.flags.f_contiguous


@pytest.mark.parametrize("dtype", ["S0", "U0", "V0"])
def test_items_without_bytes(dtype: str) -> None:
    assert same(there_and_back(np.zeros(3, dtype))[0], np.zeros(3, dtype))


@pytest.mark.needs_ml_dtypes
@pytest.mark.parametrize("name", ["bfloat16", "float8_e4m3fn", "int4"])
def test_dtypes_without_a_buffer(name: str) -> None:
    import ml_dtypes

    array = np.arange(6).astype(getattr(ml_dtypes, name)).reshape(2, 3)
    back, leases = there_and_back(array)
    assert same(back, array) and leases


BATCHES = [
    None,
    {},
    {"a": 1, "b": [np.float32(2), "text", b"bytes", (None, True)]},
    {"x": np.arange(5), "o": np.array([1, "x", None], object)},
    np.array([[1, 2], [3]], object),
    [np.arange(i) for i in range(700)],
    ["x" * 1000] * 1000 + [str(i) for i in range(5000)],
    {"text": [str(i) * 20 for i in range(5000)], "x": np.arange(3)},
    b"\xff" * 300_000,
]


@pytest.mark.parametrize("batch", BATCHES, ids=range(len(BATCHES)))
def test_every_batch_arrives_as_it_is(batch: Any) -> None:
    back, _ = there_and_back(batch)
    if isinstance(batch, np.ndarray):
        assert back.dtype == object and back.tolist() == batch.tolist()
    elif isinstance(batch, dict) and "o" in batch:
        assert back["o"].tolist() == batch["o"].tolist() and same(back["x"], batch["x"])
    else:
        assert same(back, batch)


def test_arrays_with_classes_of_their_own() -> None:
    masked = np.ma.masked_array(np.arange(6.0), mask=[0, 1, 0, 0, 1, 0])
    back, _ = there_and_back({"m": masked, "r": np.rec.array([(1, 2.0)], dtype="i4,f8")})
    assert back["m"].tolist() == masked.tolist() and type(back["m"]) is type(masked)
    assert back["r"].f1.tolist() == [2.0]


def test_one_array_twice_is_one_array() -> None:
    array = np.arange(1000)
    back, _ = there_and_back([array, array])
    assert back[0] is back[1]


@given(st.lists(st.integers(1, 300), max_size=40))
def test_buffers_lie_apart_and_aligned(sizes: list[int]) -> None:
    places, end = parcel.place(sizes)
    assert all(place % parcel.ALIGNMENT == 0 for place in places)
    ends = [place + size for place, size in zip(places, sizes, strict=True)]
    assert all(a <= b for a, b in zip(ends, places[1:], strict=False))
    assert end == max(ends, default=0)


def test_writing_goes_on_where_the_system_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = os.pwritev

    def some(fd: int, parts: list[Any], offset: int) -> int:
        joined = b"".join(map(bytes, parts))
        return whole(fd, [joined[: max(1, min(len(joined) - 1, 37))]], offset)

    monkeypatch.setattr(os, "pwritev", some)
    batch = [np.arange(n, dtype=np.uint8) for n in (1, 64, 65, 200, 0, 3)]
    assert same(there_and_back(batch)[0], batch)


def test_a_pickle_alone_has_no_arrays_in_it() -> None:
    data, buffers = parcel.pack({"x": np.zeros(100_000)})
    assert data is not None and len(data) < 500
    assert [buffer.nbytes for buffer in buffers] == [800_000]
    with pytest.raises(pickle.UnpicklingError):
        pickle.loads(data)
