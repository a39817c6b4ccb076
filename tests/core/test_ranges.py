"""Byte ranges read by a table: the bytes, whatever the way they are read, and what is refused."""

from __future__ import annotations

import os
import random
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from loaderx._core.maps import FileMap
from loaderx._core.ranges import Ranges, Tally, split

Rows = Sequence[tuple[int, int, int]]
Make = Callable[..., Ranges]


@pytest.fixture(params=["mmap", "pread"])
def mapped(request: pytest.FixtureRequest) -> bool:
    return bool(request.param == "mmap")


@pytest.fixture
def make(tmp_path: Path, mapped: bool) -> Make:
    def make(files: Sequence[bytes], rows: Rows, *, trims: bool = True, most_open: int = 64) -> Ranges:
        for number, data in enumerate(files):
            (tmp_path / str(number)).write_bytes(data)
        np.array(rows, np.uint64).reshape(-1, 3).astype("<u8").tofile(tmp_path / "table")
        table = FileMap(tmp_path / "table", max(24 * len(rows), 1), mapped)

        def open_file(number: int) -> FileMap:
            return FileMap(tmp_path / str(number), max(len(files[number]), 1), mapped)

        return Ranges(table, len(rows), len(files), open_file, trims, most_open)

    return make


def some_files(
    rng: random.Random, n_files: int, n_lines: int
) -> tuple[list[bytes], list[tuple[int, int, int]], Any]:
    """Return files, the rows of their lines in any order, and the lines without their ends."""
    files, rows = [], []
    for number in range(n_files):
        data = b""
        for _ in range(n_lines):
            size = rng.choice([0, 1, 2, 3, 60, 64, 500, 5000])
            line = rng.randbytes(size).replace(b"\n", b"_") + rng.choice([b"\n", b"\r\n", b"\n"])
            rows.append((number, len(data), len(line)))
            data += line
        last = rng.choice([b"x", b"no end", b"lone return\r"])
        rows.append((number, len(data), len(last)))
        files.append(data + last)
    rng.shuffle(rows)
    whole = [files[number][at : at + size] for number, at, size in rows]
    return files, rows, whole


def trimmed(line: bytes) -> bytes:
    return line[:-2] if line.endswith(b"\r\n") else line.removesuffix(b"\n")


@pytest.mark.parametrize("trims", [True, False])
def test_bytes_are_those_of_the_rows(make: Make, trims: bool) -> None:
    rng = random.Random(1)
    files, rows, whole = some_files(rng, 5, 200)
    expected = [trimmed(line) for line in whole] if trims else whole
    ranges = make(files, rows, trims=trims)
    n = len(rows)
    for threads in (1, 2):
        for idxs in (
            np.arange(n),
            np.arange(n)[::-1].copy(),
            np.array(rng.choices(range(n), k=3 * n)),
            np.array(rng.choices(range(-n, n), k=50)),
            np.array([7, 7, 7, -1]),
            np.array([], np.int64),
        ):
            assert ranges.many(idxs, threads) == [expected[i] for i in idxs]
        some = np.array(rng.choices(range(n), k=100), np.uint64)
        assert ranges.many(some, threads) == [expected[i] for i in some.tolist()]
    assert [ranges.one(i) for i in range(n)] == expected
    assert [ranges.one(i) for i in range(-n, 0)] == expected


def test_two_calls_give_objects_of_their_own(make: Make) -> None:
    ranges = make([b"abc\nabc\n"], [(0, 0, 4), (0, 4, 4)])
    first = ranges.many(np.array([0, 0, 1]), 1)
    assert first == [b"abc"] * 3 and first[0] is not first[1]
    assert all(type(item) is bytes and hash(item) == hash(b"abc") for item in first)


@pytest.mark.parametrize("trims", [True, False])
@pytest.mark.parametrize(
    "line", [b"", b"\n", b"\r\n", b"\r", b"x", b"x\n", b"x\r\n", b"\r\r\n", b"\n\n", b"x\r"]
)
def test_the_shortest_ranges(make: Make, line: bytes, trims: bool) -> None:
    ranges = make([b"." + line + b"."], [(0, 1, len(line))] * 40, trims=trims)
    expected = trimmed(line) if trims else line
    assert ranges.one(0) == expected
    assert ranges.many(np.arange(40), 1) == [expected] * 40


def test_a_batch_of_more_than_a_stretch(make: Make) -> None:
    # 16 MiB are served at a time
    blocks = [bytes([number]) * (3 << 20) + b"\n" for number in range(4)]
    data = b"".join(blocks)
    rows = [(0, number * len(blocks[0]), len(blocks[0])) for number in range(4)]
    ranges = make([data], rows)
    idxs = np.array([3, 1, 0, 2, 2, 0, 1, 3, 3, 1, 2, 0])
    for threads in (1, 2):
        assert ranges.many(idxs, threads) == [blocks[i][:-1] for i in idxs]


def test_files_are_read_in_their_order(tmp_path: Path) -> None:
    order: list[int] = []
    rng = random.Random(3)
    n = 200
    for number in range(n):
        (tmp_path / str(number)).write_bytes(b"%d\n" % number)
    rows = [(number, 0, len(str(number)) + 1) for number in range(n)]
    np.array(rows, np.uint64).tofile(tmp_path / "table")

    def open_file(number: int) -> FileMap:
        order.append(number)
        return FileMap(tmp_path / str(number), 10)

    ranges = Ranges(FileMap(tmp_path / "table", 24 * n), n, n, open_file, True, 1000)
    idxs = np.array(rng.sample(range(n), 150))
    assert ranges.many(idxs, 1) == [b"%d" % i for i in idxs]
    assert order == sorted(idxs.tolist())


@pytest.mark.parametrize("most_open", [1, 7, 64])
def test_no_more_files_are_kept_open_than_allowed(make: Make, most_open: int) -> None:
    rng = random.Random(4)
    files, rows, whole = some_files(rng, 100, 3)
    ranges = make(files, rows, trims=False, most_open=most_open)
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(20):
        idxs = np.array(rng.choices(range(len(rows)), k=100))
        assert ranges.many(idxs, 1) == [whole[i] for i in idxs]
        one = rng.randrange(len(rows))
        assert ranges.one(one) == whole[one]
        assert ranges.open_files() <= most_open
        assert len(os.listdir("/proc/self/fd")) <= before + most_open
    # what was just read is open still
    count = ranges.open_files()
    assert ranges.one(one) == whole[one] and ranges.open_files() == count


def test_a_call_holds_few_files_at_once(make: Make) -> None:
    """A batch over many files gives those it is done with back."""
    files = [b"%d\n" % number for number in range(300)]
    ranges = make(files, [(number, 0, len(files[number])) for number in range(300)], most_open=2)
    most = 0
    stop = threading.Event()

    def watch() -> None:
        nonlocal most
        while not stop.is_set():
            most = max(most, len(os.listdir("/proc/self/fd")))

    before = len(os.listdir("/proc/self/fd"))
    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        for _ in range(30):
            assert ranges.many(np.arange(300), 1) == [b"%d" % number for number in range(300)]
    finally:
        stop.set()
        watcher.join()
    assert before < most < before + 100


FAULTS = {
    "index": ((0, 0, 4), 9, "index"),
    "index below": ((0, 0, 4), -4, "index"),
    "file": ((3, 0, 4), 1, "file"),
    "file of 64 bits": ((2**64 - 1, 0, 4), 1, "file"),
    "ends behind the file": ((0, 5, 4), 1, "outside"),
    "begins behind the file": ((0, 2**63, 1), 1, "outside"),
    "begins at the end of numbers": ((0, 2**64 - 4, 4), 1, "outside"),
    "wraps around": ((0, 2**64 - 4, 8), 1, "outside"),
    "longer than anything": ((0, 0, 2**64 - 1), 1, "outside"),
    "half as long": ((0, 0, 2**63), 1, "outside"),
    "empty, behind the file": ((0, 9, 0), 1, "outside"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_row_that_is_wrong_is_a_fault(make: Make, name: str) -> None:
    row, index, what = FAULTS[name]
    ranges = make([b"abc\nefg\n"], [(0, 0, 4), row, (0, 4, 4)])
    fault = ranges.one(index)
    assert isinstance(fault, tuple) and fault[:3] == (what, 0, index)
    fault = ranges.many(np.array([0, 2, index, 0, index]), 1)
    assert isinstance(fault, tuple) and fault[:3] == (what, 2, index)
    if what != "index":
        assert fault[3:6] == (row[0], row[1], min(row[2], 2**62))
        assert ranges.locate(1) == row
    assert ranges.prefetch(np.array([0, index])) == (what, 1, *fault[2:])
    assert ranges.many(np.array([0, 2]), 1) == [b"abc", b"efg"]


def test_the_lowest_position_is_reported(make: Make) -> None:
    """Whatever is met first on the way through the files."""
    rows = [(0, 0, 4), (1, 0, 9), (0, 0, 9), (5, 0, 1)]
    ranges = make([b"abc\n", b"def\n"], rows)
    for wrong in (1, 2, 3):
        others = [i for i in (3, 2, 1) if i != wrong]
        fault = ranges.many(np.array([0, wrong, *others, 99]), 2)
        assert isinstance(fault, tuple) and fault[1:3] == (1, wrong)


def test_a_file_that_cannot_be_opened(tmp_path: Path) -> None:
    rows = [(0, 0, 4), (1, 0, 4), (2, 0, 4)]
    np.array(rows, np.uint64).tofile(tmp_path / "table")
    (tmp_path / "0").write_bytes(b"abc\n")
    (tmp_path / "2").write_bytes(b"ghi\n")
    ranges = Ranges(FileMap(tmp_path / "table", 72), 3, 3, lambda i: FileMap(tmp_path / str(i), 4), True, 8)
    for call in (lambda: ranges.one(1), lambda: ranges.many(np.array([0, 2, 1]), 1)):
        with pytest.raises(FileNotFoundError, match="1"):
            call()
    # what is wrong at a lower position is named
    fault = ranges.many(np.array([0, 7, 1]), 1)
    assert isinstance(fault, tuple) and fault[:3] == ("index", 1, 7)
    (tmp_path / "1").write_bytes(b"def\n")
    assert ranges.many(np.array([1, 0, 2]), 1) == [b"def", b"abc", b"ghi"]


def test_a_cut_file_is_a_fault(make: Make, tmp_path: Path) -> None:
    block = b"x" * (200 << 10) + b"\n"
    ranges = make([block * 2], [(0, 0, len(block)), (0, len(block), len(block))])
    assert ranges.many(np.array([0, 1]), 1) == [block[:-1]] * 2
    os.truncate(tmp_path / "0", len(block) + 5)
    fault = ranges.many(np.array([0, 1]), 1)
    assert fault == ("outside", 1, 1, 0, len(block), len(block), len(block) + 5)
    assert ranges.one(1) == ("outside", 0, 1, 0, len(block), len(block), len(block) + 5)
    assert ranges.one(0) == block[:-1]


def test_a_cut_table_is_a_fault(make: Make, tmp_path: Path) -> None:
    n = 10_000
    ranges = make([b"abc\n"], [(0, 0, 4)] * n)
    assert ranges.many(np.arange(n), 1) == [b"abc"] * n
    os.truncate(tmp_path / "table", 24 * 5000 + 7)
    fault = ranges.many(np.arange(n), 1)
    assert isinstance(fault, tuple) and fault[:6] == ("table", 5000, 5000, None, None, None)
    assert ranges.locate(5000) is None and ranges.locate(4999) == (0, 0, 4)
    assert ranges.stretch(4990, 100, 1 << 20) == 5000


def test_stretches(make: Make) -> None:
    ranges = make([b"abc\n" * 10], [(0, 4 * i, 4) for i in range(10)])
    assert ranges.stretch(0, 5, 100) == 5
    assert ranges.stretch(0, 50, 13) == 3
    assert ranges.stretch(4, 50, 0) == 5
    assert ranges.stretch(9, 50, 100) == 10
    assert ranges.stretch(10, 50, 100) == 10


def test_no_samples(make: Make) -> None:
    ranges = make([], [])
    assert ranges.many(np.array([], np.int64), 2) == []
    assert ranges.one(0) == ("index", 0, 0, None, None, None, 0)
    assert ranges.prefetch(np.array([], np.uint64)) is None
    assert ranges.locate(0) is None and ranges.stretch(0, 9, 9) == 0


def test_indices_are_64_bits(make: Make) -> None:
    ranges = make([b"abc\n"], [(0, 0, 4)])
    with pytest.raises(TypeError, match="int64 or uint64"):
        ranges.many(np.array([0], np.int32), 1)
    with pytest.raises(OverflowError):
        ranges.one(2**64)
    fault = ranges.many(np.array([2**64 - 1], np.uint64), 1)
    assert isinstance(fault, tuple) and fault[:3] == ("index", 0, 2**64 - 1)


def test_many_threads_read_at_once(make: Make) -> None:
    rng = random.Random(5)
    files, rows, whole = some_files(rng, 30, 60)
    ranges = make(files, rows, trims=False, most_open=4)
    wrong: list[Any] = []

    def work(seed: int) -> None:
        own = random.Random(seed)
        for _ in range(60):
            idxs = np.array(own.choices(range(len(rows)), k=64))
            if ranges.many(idxs, 2) != [whole[i] for i in idxs] or ranges.one(idxs[0]) != whole[idxs[0]]:
                wrong.append(seed)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert ranges.open_files() <= 4


def test_split() -> None:
    assert split(b"abcdef", np.array([0, 2, 2, 6])) == [b"ab", b"", b"cdef"]
    assert split(b"", np.array([0])) == []
    for splits in ([0, 7], [-1, 2], [3, 2]):
        with pytest.raises(ValueError, match="outside"):
            split(b"abcdef", np.array(splits))


def test_a_tally_counts_every_thread() -> None:
    tally = Tally()
    threads = [threading.Thread(target=lambda: [tally.add() for _ in range(5000)]) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert tally.value == 20_000
