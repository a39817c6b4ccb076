"""Files that are cut, replaced, removed or longer while a dataset is open, and more of them than may be open."""

from __future__ import annotations

import gc
import os
import resource
import threading
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from loaderx import (
    Dataset,
    LoaderxError,
    NotAnIndexError,
    NotAStoreError,
    OptionError,
    SchemaError,
    StaleIndexError,
    StaleIndexWarning,
)
from loaderx.jsonl import JsonlDataset, build_index, range_source, update_index
from tests.jsonl.kit import write_files, write_index, write_line_store
from tests.store.children import in_child

LINE = b'"' + b"x" * 998 + b'"\n'


@pytest.fixture(params=["mmap", "pread"])
def io(request: pytest.FixtureRequest) -> Any:
    return request.param


@pytest.fixture
def few_open(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep one file open, so that every other is opened anew."""
    monkeypatch.setattr(range_source, "_MOST_OPEN", 1)


@pytest.mark.parametrize("indexed_by", ["us", "another program"])
def test_a_file_that_is_cut(tmp_path: Path, io: Any, indexed_by: str) -> None:
    write_files(tmp_path, {"a.jsonl": LINE * 200, "b.jsonl": LINE * 200})
    if indexed_by == "us":
        build_index(tmp_path)
    with JsonlDataset(tmp_path, io=io) as dataset:
        assert len(dataset[:]) == 400
        os.truncate(tmp_path / "b.jsonl", 100 * len(LINE) + 7)
        assert len(dataset[:300]) == 300
        for read in (
            lambda: dataset[:],
            lambda: dataset.raw_batch([0, 299, 300]),
            lambda: dataset.__getitems__([399]),
        ):
            with pytest.raises(StaleIndexError) as caught:
                read()
            assert caught.value.file == tmp_path / "b.jsonl"
            assert "cut off" in str(caught.value) and str(tmp_path / "b.jsonl") in str(caught.value)
        assert dataset[299] == dataset[0]
    if indexed_by == "us":
        with pytest.raises(StaleIndexError):
            JsonlDataset(tmp_path)


def test_one_sample_of_a_cut_file_a_moment_later(tmp_path: Path, io: Any) -> None:
    """Sizes are looked at anew after 10 ms; before that the page is there still."""
    write_files(tmp_path, {"a.jsonl": LINE * 4000})
    with JsonlDataset(tmp_path, io=io) as dataset:
        assert dataset[3999] == dataset[0]
        os.truncate(tmp_path / "a.jsonl", 5000)
        dataset.raw_batch(np.arange(4))
        with pytest.raises(StaleIndexError, match="5000 bytes, and sample 3999"):
            dataset.raw_batch(np.full(100, 3999))  # more than 64 KiB: looked at whenever it was last
        with pytest.raises(StaleIndexError):
            dataset[3999]


def test_a_table_that_is_cut(tmp_path: Path, io: Any) -> None:
    write_files(tmp_path, {"a.jsonl": b"1\n" * 20_000})
    with JsonlDataset(tmp_path, io=io) as dataset:
        assert dataset[19_999] == 1
        table = tmp_path / "index" / "sample_locations.bin"
        os.truncate(table, 24 * 10_000)
        with pytest.raises(StaleIndexError, match="sample 10000 has no row") as caught:
            dataset[:]
        assert caught.value.file == table
        assert dataset[:10_000] == [1] * 10_000


def test_rows_that_are_wrong(tmp_path: Path, io: Any) -> None:
    write_files(tmp_path, {"a.jsonl": b"1\n2\n"})
    write_index(tmp_path, ["a.jsonl"], [(0, 0, 2), (1, 0, 2), (0, 2, 2**64 - 1), (0, 2**64 - 1, 2)])
    with JsonlDataset(tmp_path, io=io) as dataset:
        assert dataset[0] == 1
        for index, words in ((1, "file 1, of 1"), (2, "4 bytes"), (3, "4 bytes")):
            for read in (dataset.__getitem__, dataset.raw):
                with pytest.raises(StaleIndexError, match=words):
                    read(index)


def test_a_file_that_is_replaced_is_read_as_it_was(tmp_path: Path, io: Any) -> None:
    write_files(tmp_path, {"a.jsonl": b"1\n2\n"})
    with JsonlDataset(tmp_path, io=io) as dataset:
        assert dataset[0] == 1
        (tmp_path / "new").write_bytes(b"8\n9\n")
        os.replace(tmp_path / "new", tmp_path / "a.jsonl")
        assert dataset[:] == [1, 2]


@pytest.mark.parametrize("indexed_by", ["us", "another program"])
@pytest.mark.parametrize("change", ["replace", "remove", "cut", "write over", "fifo", "folder"])
def test_a_file_that_is_opened_late_must_be_the_same(
    tmp_path: Path, io: Any, change: str, indexed_by: str, few_open: None
) -> None:
    write_files(tmp_path, {"a.jsonl": b"1\n2\n", "b.jsonl": b"3\n"})
    if indexed_by == "us":
        build_index(tmp_path)
    path = tmp_path / "a.jsonl"
    with JsonlDataset(tmp_path, io=io) as dataset:
        assert dataset[:] == [1, 2, 3]  # after which b is open
        if change == "replace":
            (tmp_path / "new").write_bytes(b"1\n9\n")
            os.replace(tmp_path / "new", path)
        elif change == "cut":
            os.truncate(path, 2)
        elif change == "write over":
            path.write_bytes(b"8\n9\n")
            os.utime(path, ns=(1, 1))
        else:
            path.unlink()
            if change == "fifo":
                os.mkfifo(path)
            elif change == "folder":
                path.mkdir()
        assert dataset[2] == 3
        for read in (lambda: dataset[0], lambda: dataset[:], lambda: dataset.__getitems__([2, 0])):
            with pytest.raises(StaleIndexError) as caught:
                read()
            assert (
                caught.value.file == path and str(path) in str(caught.value) and "anew" in str(caught.value)
            )


def test_a_file_that_was_put_back_is_known_by_its_bytes(tmp_path: Path, io: Any, few_open: None) -> None:
    write_files(tmp_path, {"a.jsonl": b"1\n2\n", "b.jsonl": b"3\n"})
    build_index(tmp_path)
    with JsonlDataset(tmp_path, io=io) as dataset:
        assert dataset[:] == [1, 2, 3]
        (tmp_path / "new").write_bytes(b"1\n2\n4\n")
        os.replace(tmp_path / "new", tmp_path / "a.jsonl")
        assert dataset[:] == [1, 2, 3]


def test_a_file_that_grew_is_read_on(tmp_path: Path, io: Any, few_open: None) -> None:
    write_files(tmp_path, {"a.jsonl": b"1\n2\n", "b.jsonl": b"3\n"})
    with JsonlDataset(tmp_path, io=io) as dataset:
        assert dataset[:] == [1, 2, 3]
        with open(tmp_path / "a.jsonl", "ab") as stream:
            stream.write(b"4\n")
        assert dataset[:] == [1, 2, 3]


def test_the_system_refuses(tmp_path: Path, io: Any) -> None:
    os.chmod(tmp_path, 0o755)
    write_files(tmp_path, {"a.jsonl": b"1\n"})
    os.chmod(tmp_path / "a.jsonl", 0)

    def read() -> Any:
        with pytest.raises(LoaderxError) as caught:
            JsonlDataset(tmp_path, io=io)[0]
        return type(caught.value).__name__, str(caught.value), caught.value.path, caught.value.errno

    if os.geteuid():
        name, message, path, number = read()
    else:
        folder = tmp_path
        while folder != folder.parent and folder.owner() == "root" and folder != Path("/tmp"):
            os.chmod(folder, 0o755)
            folder = folder.parent
        name, message, path, number = in_child(read, uid=65534)
    assert (name, path, number) == ("StoreIOError", tmp_path / "a.jsonl", 13)
    assert "a.jsonl" in message


# ---- what the index says -----------------------------------------------------------------------------------------


def test_grown_files_and_new_samples(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes(b"1\n2\n")
    (tmp_path / "b.jsonl").write_bytes(b"3\n")
    build_index(tmp_path)
    old = JsonlDataset(tmp_path)
    with open(tmp_path / "a.jsonl", "ab") as stream:
        stream.write(b"4\n")
    with pytest.warns(StaleIndexWarning):
        grown = JsonlDataset(tmp_path)
    assert old[:] == grown[:] == [1, 2, 3]
    update_index(tmp_path)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        new = JsonlDataset(tmp_path)
    assert new[:] == [1, 2, 3, 4] == list(new)
    assert old[:] == grown[:] == [1, 2, 3]


def test_an_index_that_is_replaced_while_it_is_read(tmp_path: Path, io: Any) -> None:
    write_files(tmp_path, {"a.jsonl": b"1\n2\n3\n"})
    build_index(tmp_path)
    old = JsonlDataset(tmp_path, io=io)
    build_index(tmp_path)
    assert old[:] == [1, 2, 3] and old[-1] == 3


def test_opening_while_the_index_is_replaced(tmp_path: Path, io: Any) -> None:
    """Rows and files are always of one index."""
    wrong: list[Any] = []
    stop = threading.Event()

    def rebuild() -> None:
        number = 0
        while not stop.is_set():
            number += 1
            build_index(tmp_path, ("0.jsonl", "[01].jsonl", "[012].jsonl")[number % 3])

    for i in range(3):
        (tmp_path / f"{i}.jsonl").write_bytes(b"%d\n" % i * (3 - i))
    build_index(tmp_path)
    thread = threading.Thread(target=rebuild)
    thread.start()
    expected = ([0, 0, 0], [0, 0, 0, 1, 1], [0, 0, 0, 1, 1, 2])
    try:
        for _ in range(100):
            with JsonlDataset(tmp_path, io=io) as dataset:
                found = dataset[:]
                if found not in expected:
                    wrong.append(found)
    finally:
        stop.set()
        thread.join()
    assert wrong == []


def test_no_index_and_a_store_of_something_else(tmp_path: Path) -> None:
    with pytest.raises(NotAnIndexError):
        JsonlDataset(tmp_path)
    store = write_line_store(tmp_path / "s.zr", [b"1"])
    (store / "lines.json").unlink()
    with pytest.raises(SchemaError, match="not one of lines"):
        JsonlDataset(store)
    for said in (
        b"",
        b"[]",
        b'{"format": "loaderx-lines"}',
        b'{"format": "loaderx-lines", "version": 2}',
        b"[" * 99999,
    ):
        (store / "lines.json").write_bytes(said)
        with pytest.raises(SchemaError, match=r"lines\.json is wrong"):
            JsonlDataset(store)
    (store / "lines.json").write_bytes(b'{"version": 1, "more": 0, "format": "loaderx-lines"}')
    assert JsonlDataset(store)[0] == 1
    with pytest.raises(NotAStoreError, match=r"a store of lines opens with loaderx\.jsonl\.JsonlDataset"):
        Dataset(store)


def test_paths_outside_are_refused(tmp_path: Path) -> None:
    write_files(tmp_path, {"a.jsonl": b"1\n"})
    base = tmp_path / "base"
    for name in ("../a.jsonl", str(tmp_path / "a.jsonl")):
        write_index(base, [name], [(0, 0, 2)])
        with pytest.raises(OptionError, match="allow_outside"):
            JsonlDataset(base)
        assert JsonlDataset(base, allow_outside=True)[0] == 1


def test_an_index_elsewhere_and_of_one_file(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes(b"1\n2\n")
    build_index(tmp_path, index_folder=tmp_path / "elsewhere")
    assert JsonlDataset(tmp_path, index_folder=tmp_path / "elsewhere")[:] == [1, 2]
    build_index(tmp_path / "a.jsonl")
    assert JsonlDataset(tmp_path / "a.jsonl")[:] == [1, 2]


# ---- many files --------------------------------------------------------------------------------------------------


def test_ten_thousand_files_with_few_descriptors(tmp_path: Path, io: Any) -> None:
    n = 10_000
    for number in range(n):
        (tmp_path / str(number)).write_bytes(b"%d\n" % number)
    write_index(tmp_path, [str(number) for number in range(n)], [(i, 0, len(str(i)) + 1) for i in range(n)])

    def read() -> int:
        hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        gc.collect()
        resource.setrlimit(resource.RLIMIT_NOFILE, (len(os.listdir("/proc/self/fd")) + 80, hard))
        rng = np.random.default_rng(0)
        with JsonlDataset(tmp_path, io=io) as dataset:
            for _ in range(20):
                idxs = rng.integers(0, n, 200)
                assert dataset.__getitems__(idxs) == idxs.tolist()
                assert dataset[idxs[0]] == idxs[0]
            assert dataset[:] == list(range(n))
            assert list(dataset) == list(range(n))
        return len(os.listdir("/proc/self/fd"))

    assert in_child(read, timeout_s=60) < 200


def test_how_many_files_are_kept_open(monkeypatch: pytest.MonkeyPatch) -> None:
    for soft, expected in ((64, 16), (1024, 256), (1 << 20, 256), (3, 1), (resource.RLIM_INFINITY, 256)):
        monkeypatch.setattr(resource, "getrlimit", lambda _, soft=soft: (soft, resource.RLIM_INFINITY))
        assert range_source.most_open_files() == expected


@pytest.mark.parametrize("spare", [6, 12, 40])
def test_a_batch_of_more_files_than_may_be_open(tmp_path: Path, io: Any, spare: int) -> None:
    """Also where many threads read at once, and where the limit fell after the dataset was opened."""
    n = 500
    for number in range(n):
        (tmp_path / str(number)).write_bytes(b"%d\n" % number)
    write_index(tmp_path, [str(number) for number in range(n)], [(i, 0, len(str(i)) + 1) for i in range(n)])

    def read() -> int:
        hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        orders = [np.random.default_rng(seed).permutation(n) for seed in range(4)]
        with JsonlDataset(tmp_path, io=io) as dataset:
            assert dataset.__getitems__(orders[0]) == orders[0].tolist()
            gc.collect()
            resource.setrlimit(resource.RLIMIT_NOFILE, (len(os.listdir("/proc/self/fd")) - 200, hard))
            assert dataset.__getitems__(orders[1]) == orders[1].tolist()
        del dataset
        gc.collect()
        resource.setrlimit(resource.RLIMIT_NOFILE, (len(os.listdir("/proc/self/fd")) + spare, hard))
        with JsonlDataset(tmp_path, io=io) as dataset:
            assert dataset[:] == list(range(n))
            assert list(dataset) == list(range(n))
            dataset.prefetch(orders[0])
            if spare > 6:
                with ThreadPoolExecutor(4) as pool:
                    for order, found in zip(orders, pool.map(dataset.__getitems__, orders), strict=True):
                        assert found == order.tolist()
        return 0

    assert in_child(read, timeout_s=60) == 0
