"""Reading: every path against the oracle, from many threads and processes, under change and damage."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest

import loaderx
from loaderx import CorruptRecordError, Zrecord
from loaderx._core import threads
from tests.oracle import META_BYTES, OracleStore
from tests.store.children import in_child
from tests.store.samples import wait_until_looked_at_again

N, SIZE = 300, 4096
BIG = 3000  # a batch above the size from which a team is used


@pytest.fixture(scope="module")
def records() -> np.ndarray[Any, Any]:
    rng = np.random.default_rng(0)
    return rng.integers(0, 9, (N, SIZE), dtype=np.uint8)


@pytest.fixture(scope="module", params=["raw", "zstd", "zstd_dict"])
def store(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, records: Any) -> Path:
    path = tmp_path_factory.mktemp("reading") / "s.zr"
    with Zrecord(path, request.param) as z:
        if request.param == "zstd_dict":
            z.train_dict(records, [SIZE] * N, 8000)
        z.append(records, N, SIZE)
    return path


@pytest.fixture(params=["mmap", "pread"])
def io(request: pytest.FixtureRequest) -> Literal["mmap", "pread"]:
    return request.param  # type: ignore[no-any-return]


@pytest.mark.parametrize("n_threads", [1, 2, 5])
@pytest.mark.parametrize("n", [0, 1, 7, BIG])
def test_gather_equals_the_oracle(
    store: Path, records: Any, io: Literal["mmap", "pread"], n_threads: int, n: int
) -> None:
    idxs = np.random.default_rng(n).integers(-N, N, n)
    expected = np.frombuffer(b"".join(OracleStore(store).record(int(i)) for i in idxs % N), np.uint8)
    assert np.array_equal(expected, records[idxs].reshape(-1))
    with Zrecord(store, mode="r", threads=n_threads, io=io) as z:
        dst = np.full((n, SIZE + 8), 7, np.uint8)
        z.gather(idxs, dst, SIZE + 8)
        assert np.array_equal(dst[:, :SIZE].reshape(-1), expected) and np.all(dst[:, SIZE:] == 7)
        dst = np.full((n, SIZE), 7, np.uint8)
        z.gather(idxs, dst, SIZE, exact=True)
        assert np.array_equal(dst.reshape(-1), expected)
        data, splits = z.gather_packed(idxs)
        assert np.array_equal(data, expected) and np.array_equal(splits, np.arange(n + 1) * SIZE)
        places = np.arange(n)[::-1] * SIZE
        z.gather_var(idxs, dst, places)
        assert np.array_equal(dst[::-1].reshape(-1), expected)
        padded, lens = z.gather_padded(idxs, SIZE + 6, b"abc"[:2])
        assert np.array_equal(padded[:, :SIZE].reshape(-1), expected) and np.all(lens == SIZE)
        assert n == 0 or padded[0, SIZE:].tobytes() == b"ababab"


def test_any_buffer_and_any_integers_will_do(store: Path, records: Any) -> None:
    with Zrecord(store) as z:
        for dst in (
            bytearray(2 * SIZE),
            memoryview(bytearray(2 * SIZE)),
            np.zeros(SIZE // 4, "<f8"),
            np.zeros(SIZE // 4, "M8[s]"),
        ):
            for idxs in (
                [3, 5],
                (3, 5),
                range(3, 6, 2),
                np.array([3, 5], np.uint8),
                np.array([3, 5], ">i4"),
                np.array([3, 9, 5])[::2],
            ):
                z.gather(idxs, dst, SIZE)
                assert (
                    bytes(memoryview(dst.view(np.uint8) if isinstance(dst, np.ndarray) else dst))
                    == records[[3, 5]].tobytes()
                )


def test_many_threads_on_one_handle(store: Path, records: Any) -> None:
    with Zrecord(store, mode="r") as z, ThreadPoolExecutor(8) as pool:

        def read(seed: int) -> bool:
            idxs = np.random.default_rng(seed).integers(0, N, 1 + seed * 37 % 500)
            data, _ = z.gather_packed(idxs)
            return np.array_equal(data, records[idxs].reshape(-1))

        assert all(pool.map(read, range(200)))


def test_gathers_beside_appends_see_whole_records(tmp_path: Path, records: Any) -> None:
    done = threading.Event()
    wrong: list[int] = []
    with Zrecord(tmp_path / "s.zr") as z:
        z.append(records, N, SIZE)

        def read() -> None:
            rng = np.random.default_rng()
            while not done.is_set():
                length = len(z)
                idxs = rng.integers(0, length, 50)
                data, _ = z.gather_packed(idxs)
                if not np.array_equal(data, records[idxs % N].reshape(-1)):
                    wrong.append(length)

        readers = [threading.Thread(target=read) for _ in range(3)]
        for reader in readers:
            reader.start()
        for _ in range(20):
            z.append(records, N, SIZE)
        done.set()
        for reader in readers:
            reader.join()
        assert not wrong and len(z) == 21 * N


def test_deletes_and_compactions_wait_for_gathers(tmp_path: Path) -> None:
    """Records carry their number twice; a gather that met a half-done change would mix them."""
    n = 400
    records = np.repeat(np.arange(n, dtype="<u4"), 2000).reshape(n, 2000)
    done = threading.Event()
    wrong: list[Any] = []
    with Zrecord(tmp_path / "s.zr", "raw") as z:
        z.append(records, n, 8000)

        def read() -> None:
            rng = np.random.default_rng()
            while not done.is_set():
                try:
                    data, _ = z.gather_packed(rng.integers(0, len(z), 60))
                except loaderx.RecordIndexError:
                    continue  # a delete came between len and the gather
                rows = data.view("<u4").reshape(-1, 2000)
                if not np.array_equal(rows, np.repeat(rows[:, :1], 2000, axis=1)):
                    wrong.append(rows[:, 0])

        readers = [threading.Thread(target=read) for _ in range(3)]
        for reader in readers:
            reader.start()
        rng = np.random.default_rng(1)
        for _ in range(30):
            z.delete(rng.integers(0, len(z), 5))
            z.compact()
        done.set()
        for reader in readers:
            reader.join()
    assert not wrong


def test_close_while_gathers_run(store: Path, records: Any) -> None:
    z = Zrecord(store, mode="r")
    started = threading.Barrier(4)
    outcomes: list[str] = []

    def read() -> None:
        started.wait()
        try:
            while True:
                data, _ = z.gather_packed(np.arange(N))
                assert np.array_equal(data, records.reshape(-1))
        except loaderx.ClosedError:
            outcomes.append("closed")

    readers = [threading.Thread(target=read) for _ in range(3)]
    for reader in readers:
        reader.start()
    started.wait()
    for _ in range(3):
        z.gather_packed([0])
    z.close()
    z.close()
    for reader in readers:
        reader.join()
    assert outcomes == ["closed"] * 3


def test_a_forked_child_gathers_with_one_thread(store: Path, records: Any) -> None:
    """GNU OpenMP's team hangs in a child whose parent has used one."""
    idxs = np.random.default_rng(0).integers(0, N, BIG)
    with Zrecord(store, mode="r", threads=2) as z:
        z.gather_packed(idxs)
        assert not threads.in_forked_child()

        def child() -> tuple[bool, bool]:
            data, _ = z.gather_packed(idxs)
            return threads.in_forked_child(), np.array_equal(data, records[idxs].reshape(-1))

        assert in_child(child) == (True, True)
        assert in_child(lambda: in_child(child)) == (True, True)
        data, _ = z.gather_packed(idxs)
        assert np.array_equal(data, records[idxs].reshape(-1))


def test_a_fork_in_the_middle_of_changes_and_gathers(tmp_path: Path, records: Any) -> None:
    done = threading.Event()
    with Zrecord(tmp_path / "s.zr") as z:
        z.append(records, N, SIZE)

        def change() -> None:
            while not done.is_set():
                z.append(records[:10], 10, SIZE)
                z.delete(np.arange(len(z) - 10, len(z)))

        def read() -> None:
            while not done.is_set():
                z.gather_packed(np.arange(N))

        workers = [
            threading.Thread(target=change),
            threading.Thread(target=read),
            threading.Thread(target=read),
        ]
        for worker in workers:
            worker.start()
        try:
            for _ in range(15):
                assert in_child(lambda: np.array_equal(z.gather_packed(np.arange(N))[0], records.reshape(-1)))
        finally:
            done.set()
            for worker in workers:
                worker.join()


def test_handles_pickle_by_path(
    store: Path, records: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(store.parent)
    with Zrecord(store.name, "zstd_dict", mode="r", level=5, threads=1, io="pread") as z:
        data = pickle.dumps(z)
        monkeypatch.chdir(tmp_path)  # a relative path was made whole when the store was opened
        with pickle.loads(data) as copy:
            assert (copy.codec, copy.mode, copy.level, copy.threads, copy.io) == (
                "zstd_dict",
                "r",
                5,
                1,
                "pread",
            )
            assert copy.gather_packed([7])[0].tobytes() == records[7].tobytes()
        assert z.gather_packed([7])[0].tobytes() == records[7].tobytes()


def test_unpickling_never_creates(tmp_path: Path) -> None:
    path = tmp_path / "s.zr"
    data = pickle.dumps(Zrecord(path))
    for file in path.iterdir():
        file.unlink()
    path.rmdir()
    with pytest.raises(loaderx.NotAStoreError):
        pickle.loads(data)
    assert not path.exists()


def test_spawned_workers_reopen(tmp_path: Path) -> None:
    loaderx.write_dataset(tmp_path / "d.zr", np.arange(1000).reshape(100, 10))
    loaderx.write_ragged(tmp_path / "r.zr", [np.arange(i) for i in range(20)])
    script = tmp_path / "spawn.py"
    script.write_text(
        "import multiprocessing, sys, numpy, loaderx\n"
        "def work(task):\n"
        "    ds, index = task\n"
        "    return ds[index].tolist()\n"
        "if __name__ == '__main__':\n"
        "    fixed, ragged = loaderx.Dataset(sys.argv[1]), loaderx.RaggedDataset(sys.argv[2])\n"
        "    fixed[:], ragged[:]\n"
        "    for method in ('spawn', 'forkserver', 'fork'):\n"
        "        with multiprocessing.get_context(method).Pool(2) as pool:\n"
        "            print(pool.map(work, [(fixed, 3), (ragged, 4)], chunksize=1))\n"
    )
    result = subprocess.run(
        [sys.executable, script, tmp_path / "d.zr", tmp_path / "r.zr"],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    assert result.stdout == f"[{list(range(30, 40))}, [0, 1, 2, 3]]\n" * 3


def test_two_handles_on_one_path(tmp_path: Path, records: Any) -> None:
    first, second = Zrecord(tmp_path / "s.zr"), Zrecord(tmp_path / "s.zr")
    assert first.append(records[:4], 4, SIZE) == 0
    first.close()
    assert second.append(records[4:6], 2, SIZE) == 4  # behind what the other handle wrote since
    third = Zrecord(tmp_path / "s.zr")
    second.close()
    assert third.append(records[6:7], 1, SIZE) == 6
    assert len(third) == 7
    assert np.array_equal(third.gather_packed(np.arange(7))[0], records[:7].reshape(-1))


@pytest.mark.parametrize("n", [4, 200])
def test_a_file_cut_under_the_map_is_an_error(
    tmp_path: Path, records: Any, n: int, io: Literal["mmap", "pread"]
) -> None:
    path = tmp_path / "s.zr"
    with Zrecord(path, "raw", io=io) as z:
        z.append(records, N, SIZE)
        z.gather_packed(np.arange(n))
        size = os.path.getsize(path / "0.zr")
        os.truncate(path / "0.zr", SIZE * 2)
        wait_until_looked_at_again()
        with pytest.raises(CorruptRecordError) as caught:
            z.gather_packed(np.arange(n))
        assert (caught.value.record, caught.value.byte_offset) == (2, 2 * SIZE)
        os.truncate(path / "0.zr", size)
        wait_until_looked_at_again()
        assert z.gather_packed([1])[0].tobytes() == records[1].tobytes()


def test_a_table_cut_under_the_map_is_an_error(
    tmp_path: Path, records: Any, io: Literal["mmap", "pread"]
) -> None:
    path = tmp_path / "s.zr"
    with Zrecord(path, "raw", io=io) as z:
        z.append(records, N, SIZE)
        os.truncate(path / "meta.zr", 16 + 16 * 5)
        wait_until_looked_at_again()
        with pytest.raises(CorruptRecordError, match=r"record 5 .*cut off"):
            z.gather_packed(np.arange(200))
        os.truncate(path / "meta.zr", META_BYTES)


@pytest.mark.root
def test_a_read_only_medium_is_enough(tmp_path: Path, records: Any) -> None:
    mount = tmp_path / "medium"
    mount.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "tmpfs", mount], check=True)
    try:
        with Zrecord(mount / "s.zr") as z:
            z.append(records, N, SIZE)
        loaderx.write_dataset(mount / "d.zr", records)
        subprocess.run(["mount", "-o", "remount,ro", mount], check=True)
        with Zrecord(mount / "s.zr") as z, loaderx.Dataset(mount / "d.zr") as ds:
            assert np.array_equal(z.gather_packed(np.arange(N))[0], records.reshape(-1))
            assert np.array_equal(ds[:], records)
            with pytest.raises(loaderx.StoreIOError, match="Read-only file system"):
                z.append(records, 1, SIZE)
            assert len(z) == N
    finally:
        subprocess.run(["umount", mount], check=True)


def test_opening_reads_and_creates_nothing(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        loaderx.Dataset(tmp_path / "typo.zr")
    with pytest.raises(FileNotFoundError):
        loaderx.RaggedDataset(tmp_path / "typo.zr")
    with pytest.raises(FileNotFoundError):
        Zrecord(tmp_path / "typo.zr", mode="r")
    assert not list(tmp_path.iterdir())
