"""Batches come from recycled memory where they are large, and nobody sees memory of theirs used again."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from loaderx import (
    CorruptRecordError,
    Dataset,
    OptionError,
    RaggedDataset,
    Zrecord,
    pad,
    trim_pool,
    write_dataset,
    write_ragged,
)
from loaderx._core.buffers import Block, idle_bytes
from loaderx.store import buffers
from tests.store.children import in_child

MIB = 1 << 20
N, SIZE = 64, 16384
FEW, MANY = [3], list(range(N))  # batches of 16 KiB and of 1 MiB


@pytest.fixture(scope="module")
def records() -> npt.NDArray[np.uint8]:
    return np.random.default_rng(0).integers(0, 256, (N, SIZE), dtype=np.uint8)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, records: Any) -> Path:
    folder = tmp_path_factory.mktemp("recycling")
    write_dataset(folder / "raw.zr", records, "raw")
    write_dataset(folder / "zstd.zr", records, "zstd")
    write_ragged(folder / "ragged.zr", list(records), codec="raw")
    return folder


@pytest.fixture(autouse=True)
def _empty_pool() -> Iterator[None]:
    gc.collect()
    trim_pool()
    yield
    trim_pool()


def is_recycled(array: Any) -> bool:
    """Return whether an array's memory is a block of the pool."""
    while isinstance(array, np.ndarray):
        array = array.base
    return isinstance(array, Block)


def address(array: npt.NDArray[Any]) -> int:
    return int(array.__array_interface__["data"][0])


SOURCES: dict[str, Callable[[Path, list[int]], Any]] = {
    "Dataset[...]": lambda folder, idxs: Dataset(folder / "raw.zr")[idxs],
    "Dataset, compressed": lambda folder, idxs: Dataset(folder / "zstd.zr").__getitems__(idxs),
    "Zrecord.gather_stacked": lambda folder, idxs: Zrecord(folder / "raw.zr").gather_stacked(idxs, SIZE),
    "Zrecord.gather_packed": lambda folder, idxs: Zrecord(folder / "raw.zr").gather_packed(idxs)[0],
    "Zrecord.gather_padded": lambda folder, idxs: Zrecord(folder / "raw.zr").gather_padded(idxs)[0],
    "RaggedDataset[...]": lambda folder, idxs: RaggedDataset(folder / "ragged.zr")[idxs][0],
    "getitems_padded": lambda folder, idxs: RaggedDataset(folder / "ragged.zr").getitems_padded(idxs)[0],
    "pad": lambda folder, idxs: pad(*RaggedDataset(folder / "ragged.zr")[idxs])[0],
}


@pytest.mark.parametrize("name", SOURCES)
def test_large_batches_are_recycled_and_small_ones_are_not(name: str, folder: Path, records: Any) -> None:
    few, many = SOURCES[name](folder, FEW), SOURCES[name](folder, MANY)
    assert is_recycled(many) and not is_recycled(few)
    for batch, idxs in ((few, FEW), (many, MANY)):
        assert batch.flags.writeable and batch.flags.c_contiguous
        assert np.array_equal(batch.reshape(-1), records[idxs].reshape(-1))
    assert address(many) % 4096 == 2048
    place = address(many)
    del many, batch
    again = SOURCES[name](folder, MANY[::-1])
    assert np.array_equal(again.reshape(-1), records[::-1].reshape(-1))
    assert name == "pad" or address(again) == place  # pad makes its own beside the packed one


def test_one_large_record_is_recycled_too(tmp_path: Path) -> None:
    write_dataset(tmp_path / "s.zr", np.ones((2, 100_000), np.uint8), "raw")
    record = Dataset(tmp_path / "s.zr")[1]
    assert is_recycled(record) and record.shape == (100_000,)


@pytest.mark.parametrize("io", ["mmap", "pread"])
def test_what_many_threads_worked_in_is_bounded_and_can_be_given_back(
    io: Any, tmp_path: Path, rss_anon: Callable[[], int]
) -> None:
    numbers = np.cumsum(np.random.default_rng(0).integers(0, 3, (4, 1_900_000)), axis=1).astype("<i4")
    write_dataset(tmp_path / "s.zr", numbers, "zstd_shuffle", level=1, progress=False)
    n_threads = 20  # each of which takes 7.6 MB for a record, and more for its stored bytes
    outs = np.ones((n_threads, 1, 1_900_000), "<i4")
    trim_pool()
    before = rss_anon()
    together = threading.Barrier(n_threads)
    with Dataset(tmp_path / "s.zr", io=io, threads=1) as dataset:

        def read(number: int) -> None:
            together.wait()
            for k in range(3):
                dataset.__getitems__([(number + k) % 4], out=outs[number])

        threads = [threading.Thread(target=read, args=(number,)) for number in range(n_threads)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for number, out in enumerate(outs):
            assert np.array_equal(out[0], numbers[(number + 2) % 4])
    assert rss_anon() - before < 64 * MIB + 16 * MIB
    n_bytes = trim_pool()
    assert 7_600_000 <= n_bytes <= 64 * MIB and trim_pool() == 0
    assert rss_anon() - before < 16 * MIB


def test_what_writing_worked_in_is_bounded_and_can_be_given_back(tmp_path: Path) -> None:
    numbers = np.cumsum(np.random.default_rng(0).integers(0, 3, 1_900_000)).astype("<i4")
    together = threading.Barrier(16)
    trim_pool()

    def write(number: int) -> None:
        with Zrecord(tmp_path / f"{number}.zr", "zstd_shuffle", level=1, threads=1) as store:
            together.wait()
            store.append(numbers, 1, numbers.nbytes, item_size=4)

    threads = [threading.Thread(target=write, args=(number,)) for number in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    n_bytes = trim_pool()
    assert 7_600_000 <= n_bytes <= 64 * MIB and trim_pool() == 0
    assert np.array_equal(np.frombuffer(Zrecord(tmp_path / "3.zr").gather_packed([0])[0], "<i4"), numbers)


def test_arrays_of_objects_are_padded_as_before() -> None:
    values = np.array([None, "a", 3] * 10_000, dtype=object)
    padded, _ = pad(values, [0, 10_000, 30_000], pad_value=0)
    assert padded.shape == (2, 20_000) and padded[0, 10_000] == 0 and padded[1, 19_999] == 3


def test_held_batches_keep_their_bytes(folder: Path, records: Any) -> None:
    rng = np.random.default_rng(1)
    held: list[tuple[Any, Any]] = []
    places = set()
    with Dataset(folder / "raw.zr") as ds:
        for _ in range(300):
            idxs = rng.integers(0, N, int(rng.integers(8, N)))
            batch = ds.__getitems__(idxs)
            places.add(address(batch))
            if rng.random() < 0.3:
                held.append((records[idxs][2:, 7:], batch[2:, 7:]))  # a view alone
            else:
                held.append((records[idxs], batch))
            del batch
            if len(held) > 4:
                expected, found = held.pop(int(rng.integers(4)))
                assert np.array_equal(expected, found)
                del expected, found
    assert all(np.array_equal(expected, found) for expected, found in held)
    assert len(places) < 60  # 300 batches


def test_a_batch_that_fails_gives_its_memory_back(tmp_path: Path) -> None:
    write_dataset(tmp_path / "s.zr", np.zeros((N, SIZE), np.uint8), "zstd")
    with open(tmp_path / "s.zr" / "0.zr", "r+b") as chunk:
        chunk.write(bytes(range(100)))
    with Dataset(tmp_path / "s.zr") as ds:
        for _ in range(3):
            with pytest.raises(CorruptRecordError):
                ds[MANY]
            gc.collect()
            assert idle_bytes() == (1 << 20) + 4096


def test_threads_read_while_others_keep_and_drop(folder: Path, records: Any) -> None:
    faults: list[str] = []
    ds = Dataset(folder / "raw.zr")

    def work(number: int) -> None:
        rng = np.random.default_rng(number)
        held: list[tuple[Any, Any]] = []
        for _ in range(80):
            idxs = rng.integers(0, N, N)
            held.append((idxs, ds.__getitems__(idxs)[:, number::8]))
            if len(held) > 3:
                wanted, found = held.pop(0)
                if not np.array_equal(records[wanted][:, number::8], found):
                    faults.append(f"thread {number}")

    threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not faults


def test_a_forked_child_reads_into_memory_of_its_own(folder: Path, records: Any) -> None:
    ds = Dataset(folder / "raw.zr")
    held = ds[MANY]
    dropped = ds[MANY]
    place = address(dropped)
    del dropped
    idle = idle_bytes()

    def child() -> tuple[bool, int]:
        nonlocal held
        begun_with = idle_bytes()
        same = np.array_equal(held, records)
        held[:] = 1
        batches = [ds[MANY[::-1]] for _ in range(4)]
        for batch in batches:
            batch[0] = 2
        return same and all(np.array_equal(batch[1:], records[::-1][1:]) for batch in batches), begun_with

    assert in_child(child) == (True, 0)
    assert np.array_equal(held, records) and idle_bytes() == idle
    again = ds[MANY]
    assert address(again) == place and np.array_equal(again, records)


# ---- LOADERX_POOL_BYTES ------------------------------------------------------------------------------------------


def run(folder: Path, value: str | None, program: str) -> str:
    """Run a program in a process of its own, in which `ds` is a dataset of 16 KiB records."""
    environment = {name: text for name, text in os.environ.items() if name != "LOADERX_POOL_BYTES"}
    if value is not None:
        environment["LOADERX_POOL_BYTES"] = value
    start = "import loaderx, numpy as np\nfrom loaderx._core.buffers import idle_bytes\n"
    start += f"ds = loaderx.Dataset({str(folder / 'raw.zr')!r})\n"
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", start + program],
        env=environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.parametrize(
    ("value", "kept"),
    [
        (None, 10),
        ("", 10),
        ("0", 0),
        ("1048575", 0),
        ("1052672", 1),
        (" 3200000 ", 3),
        (str(1 << 40), 10),
        (str(1 << 62), 10),
    ],
)
def test_the_variable_bounds_what_lies_idle(folder: Path, value: str | None, kept: int) -> None:
    program = "held = [ds[:] for _ in range(10)]\ndel held\nprint(idle_bytes())"
    assert run(folder, value, program) == str(kept * ((1 << 20) + 4096))


def test_without_a_pool_batches_are_placed_all_the_same(folder: Path) -> None:
    program = "a = ds[:]\nprint(a.ctypes.data % 4096, a[5:].sum() == ds[5:64].sum(), a.flags.writeable)"
    assert run(folder, "0", program) == "2048 True True"


def test_the_default_is_256_mib() -> None:
    assert buffers._pool_limit() == int(os.environ.get("LOADERX_POOL_BYTES") or 256 << 20)


@pytest.mark.parametrize(
    "value", ["lots", "-1", "1.5", "256MiB", "1_000", "0x10", "٣", str((1 << 62) + 1), "9" * 400]
)
def test_a_wrong_variable_is_an_error_where_it_is_first_used(folder: Path, value: str) -> None:
    program = """
assert ds[3].shape == (16384,)  # small: no pool
for _ in range(2):
    try:
        ds[:]
    except loaderx.OptionError as error:
        print(error.option, error.value, error, sep="|")
"""
    message = (
        f"the environment variable LOADERX_POOL_BYTES is {value!r}: give a whole number of bytes from 0, which turns "
        f"the pool of batch memory off, to {1 << 62}, or unset it for {256 << 20}"
    )
    assert run(folder, value, program).splitlines() == [f"LOADERX_POOL_BYTES|{value}|{message}"] * 2


def test_each_process_reads_the_variable_anew(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    buffers._pool_limit()
    monkeypatch.setenv("LOADERX_POOL_BYTES", "lots")
    assert is_recycled(Dataset(folder / "raw.zr")[MANY])  # read before
    buffers._pool_limit.cache_clear()
    try:
        with pytest.raises(OptionError, match="LOADERX_POOL_BYTES is 'lots'"):
            Dataset(folder / "raw.zr")[MANY]
    finally:
        monkeypatch.undo()
        buffers._pool_limit()


# ---- Memory -------------------------------------------------------------------------------------------------------

BURST = """
import re
def rss_anon():
    return int(re.search(r"RssAnon:\\s+(\\d+)", open("/proc/self/status").read())[1]) * 1024
def turn(held, n):
    for _ in range(n):
        held.append(ds[:])
        del held[:-4]
held = []
turn(held, 20)
before = rss_anon()
burst = [ds[:] for _ in range(600)]
during = rss_anon()
del burst
dropped = rss_anon()
turn(held, 4000)
after = rss_anon()
held.clear()
loaderx.trim_pool()
trimmed = rss_anon()
print(before, during, dropped, after, trimmed)
"""


def test_memory_after_a_burst_is_what_it_was_before(folder: Path) -> None:
    """A burst of 600 MiB: at once no more than the bound is kept, later no more than is needed."""
    mib = 1 << 20
    before, during, dropped, after, trimmed = map(int, run(folder, None, BURST).split())
    assert during > before + 590 * mib
    assert dropped <= before + 256 * mib
    assert after <= 1.1 * before
    assert trimmed < before - 3 * mib
