"""What has to work wherever the package is installed, in a minute: every codec, threads, processes, commands.

These tests use installed files only, so they also run far from the source tree, against a wheel.
"""

from __future__ import annotations

import importlib.metadata
import json
import multiprocessing
import os
import pickle
import signal
import subprocess
import sys
import time
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import loaderx
import loaderx.jsonl

pytestmark = pytest.mark.wheel

CODECS = ("raw", "zstd", "zstd_dict")
# 2,000 records of 3 KiB: a batch of 512 is 1.5 MiB, enough work for a team of threads.
ITEM_SHAPE = (3, 32, 32)
NUM_RECORDS = 2000


@pytest.fixture(scope="module")
def images() -> np.ndarray[Any, Any]:
    """Return arrays that compress and are all different."""
    rng = np.random.default_rng(7)
    patterns = rng.integers(0, 30, size=(16, *ITEM_SHAPE), dtype=np.uint8)
    images = patterns[rng.integers(0, 16, size=NUM_RECORDS)]
    images[:, 0, 0, :2] = np.arange(NUM_RECORDS, dtype=np.uint16).view(np.uint8).reshape(-1, 2)
    return images


@pytest.fixture(scope="module", params=CODECS)
def image_store(
    request: pytest.FixtureRequest, images: np.ndarray[Any, Any], tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """Return a store of the images in each codec."""
    path: Path = tmp_path_factory.mktemp("wheel") / f"{request.param}.zr"
    level = 3 if request.param == "zstd_dict" else None  # the dictionary's own level, 19, takes minutes here
    written = loaderx.write_dataset(path, images, codec=request.param, level=level, progress=False)
    assert written == NUM_RECORDS
    return path


def read_batch(path: Path, seed: int, threads: int = 1) -> tuple[list[int], np.ndarray[Any, Any]]:
    """Read a random batch; a function of the module, so that other processes can run it."""
    index = np.random.default_rng(seed).integers(0, NUM_RECORDS, size=512)
    with loaderx.Dataset(path, threads=threads) as dataset:
        return index.tolist(), dataset.__getitems__(index)


def read_lines(base: Path, seed: int) -> bool:
    """Read a random batch of lines in each way; a function of the module, so that other processes can run it."""
    idxs = np.random.default_rng(seed).integers(0, NUM_RECORDS, size=512)
    right = True
    for io in ("mmap", "pread"):
        with loaderx.jsonl.JsonlDataset(base, io=io, threads=2) as dataset:  # type: ignore[arg-type]
            right &= [sample["n"] for sample in dataset.__getitems__(idxs)] == idxs.tolist()
            right &= dataset[int(idxs[0])] == json.loads(dataset.raw(idxs[0]))
    return right


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_lines_are_read_in_threads_and_processes(tmp_path: Path) -> None:
    ends = (b"\n", b"\r\n", b"\n\n")
    lines = [b'{"n": %d, "text": "%s"}' % (n, b"." * (n % 3000)) + ends[n % 3] for n in range(NUM_RECORDS)]
    (tmp_path / "a.jsonl").write_bytes(b"".join(lines[:1500]))
    (tmp_path / "b.jsonl").write_bytes(b"".join(lines[1500:]).rstrip())
    assert len(loaderx.jsonl.build_index(tmp_path)) == NUM_RECORDS
    assert read_lines(tmp_path, 0)
    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(read_lines, [tmp_path] * 8, range(8)))
    for method in ("fork", "spawn"):
        context = multiprocessing.get_context(method)
        with ProcessPoolExecutor(2, mp_context=context) as processes:
            assert all(processes.map(read_lines, [tmp_path] * 4, range(4)))


def test_distribution_is_whole() -> None:
    distribution = importlib.metadata.distribution("loaderx")
    assert distribution.version == loaderx.__version__
    assert distribution.metadata["License-Expression"] == "MIT"
    assert "LICENSE" in (distribution.metadata.get_all("License-File") or [])
    package = Path(loaderx.__file__).parent
    assert (package / "py.typed").is_file()
    assert (package / "_core" / "gather.pyi").is_file()


def test_build_info() -> None:
    info = loaderx.build_info()
    assert info["zstd_source"] in ("system", "prefix", "bundled")
    assert tuple(map(int, info["zstd_version"].split("."))) >= (1, 5, 0)
    assert info["openmp"] is None or info["openmp"] >= 201107
    assert info["compiler"]
    assert info["threads"] >= 1


@pytest.mark.parametrize("threads", [1, 2])
def test_batches_equal_the_array(image_store: Path, images: np.ndarray[Any, Any], threads: int) -> None:
    for seed in range(3):
        index, batch = read_batch(image_store, seed, threads)
        np.testing.assert_array_equal(batch, images[index])


def test_index_forms(image_store: Path, images: np.ndarray[Any, Any]) -> None:
    with loaderx.Dataset(image_store) as dataset:
        assert (len(dataset), dataset.shape, dataset.dtype) == (NUM_RECORDS, ITEM_SHAPE, np.dtype("uint8"))
        for index in (0, -1, slice(3, 40, 7), [5, 5, 1], images[:, 0, 0, 0] > 200):
            np.testing.assert_array_equal(dataset[index], images[index])
        with pytest.raises(IndexError):
            dataset[NUM_RECORDS]


def test_store_of_bytes(tmp_path: Path) -> None:
    records = [os.urandom(length) for length in (1, 100, 4096, 7)] + [b"a" * 5000]
    source = np.frombuffer(b"".join(records), dtype=np.uint8)
    lengths = np.array([len(record) for record in records], dtype=np.uint64)
    offsets = np.concatenate([[0], np.cumsum(lengths)[:-1]]).astype(np.uint64)
    with loaderx.Zrecord(tmp_path / "bytes.zr") as store:
        assert store.append_var(source, offsets, lengths) == 0
        assert store.lengths(np.arange(5)).tolist() == lengths.tolist()
        data, splits = store.gather_packed(np.array([4, 0, 2]))
        assert data.tobytes() == records[4] + records[0] + records[2]
        assert splits.tolist() == [0, 5000, 5001, 9097]
        # the last record takes the place of a deleted one
        store.delete(np.array([1]))
        store.compact()
        assert store.stats()["records"] == 4
        assert store.stats()["reclaimable"] == 0
        data, _ = store.gather_packed(np.arange(4))
        assert data.tobytes() == records[0] + records[4] + records[2] + records[3]


def test_ragged(tmp_path: Path) -> None:
    arrays = [np.arange(length, dtype=np.int32) for length in (3, 0, 5)]
    assert loaderx.write_ragged(tmp_path / "ragged.zr", arrays, progress=False) == 3
    with loaderx.RaggedDataset(tmp_path / "ragged.zr") as dataset:
        values, row_splits = dataset.__getitems__([2, 1, 0])
        assert values.tolist() == [0, 1, 2, 3, 4, 0, 1, 2]
        assert row_splits.tolist() == [0, 5, 5, 8]
        padded, lengths = dataset.getitems_padded([0, 2], pad_value=-1)
        assert padded.tolist() == [[0, 1, 2, -1, -1], [0, 1, 2, 3, 4]]
        assert lengths.tolist() == [3, 5]


def test_python_threads_share_a_dataset(image_store: Path, images: np.ndarray[Any, Any]) -> None:
    with loaderx.Dataset(image_store, threads=2) as dataset, ThreadPoolExecutor(4) as pool:
        indices = [np.random.default_rng(seed).integers(0, NUM_RECORDS, size=300) for seed in range(24)]
        for index, batch in zip(indices, pool.map(dataset.__getitems__, indices), strict=True):
            np.testing.assert_array_equal(batch, images[index])


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_other_processes_read(image_store: Path, images: np.ndarray[Any, Any], method: str) -> None:
    context = multiprocessing.get_context(method)
    with ProcessPoolExecutor(1, mp_context=context) as pool:
        index, batch = pool.submit(read_batch, image_store, 1).result(timeout=60)
    np.testing.assert_array_equal(batch, images[index])


def test_dataset_pickles(image_store: Path, images: np.ndarray[Any, Any]) -> None:
    with loaderx.Dataset(image_store) as dataset, pickle.loads(pickle.dumps(dataset)) as copy:
        np.testing.assert_array_equal(copy[:10], images[:10])


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_forked_child_gathers_after_its_parent_did(image_store: Path, images: np.ndarray[Any, Any]) -> None:
    index = np.random.default_rng(5).integers(0, NUM_RECORDS, size=512)
    with loaderx.Dataset(image_store, threads=2) as dataset:
        np.testing.assert_array_equal(dataset.__getitems__(index), images[index])
        child = os.fork()
        if child == 0:
            # a child that hangs must not outlive the test
            signal.alarm(30)
            good = False
            try:
                good = bool((dataset.__getitems__(index) == images[index]).all())
            finally:
                os._exit(0 if good else 1)
        assert wait_for(child, timeout_s=30) == 0


def wait_for(child: int, timeout_s: float) -> int:
    """Return the exit code of a child process; kill it when it takes too long."""
    end = time.monotonic() + timeout_s
    while time.monotonic() < end:
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.01)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    raise TimeoutError(f"the child did not end within {timeout_s} s")


def run_module(*arguments: object) -> str:
    """Run ``python -m`` and return what it printed."""
    command = [sys.executable, "-m", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_convert_and_info(tmp_path: Path, images: np.ndarray[Any, Any]) -> None:
    np.save(tmp_path / "images.npy", images)
    run_module("loaderx.convert", tmp_path / "images.npy", tmp_path / "images.zr", "--verify", "--quiet")
    info = json.loads(run_module("loaderx", "info", tmp_path / "images.zr", "--json"))
    assert info["records"] == NUM_RECORDS
    with loaderx.Dataset(tmp_path / "images.zr") as dataset:
        np.testing.assert_array_equal(dataset[:], images)


def test_error_names_the_path(tmp_path: Path) -> None:
    with pytest.raises(loaderx.NotAStoreError, match="absent"):
        loaderx.Dataset(tmp_path / "absent.zr")
    assert not (tmp_path / "absent.zr").exists()


def test_nothing_optional_is_imported() -> None:
    program = (
        "import sys, loaderx; print(*sorted({'sklearn', 'torch', 'pyarrow', 'pytest'} & set(sys.modules)))"
    )
    command = [sys.executable, "-c", program]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip() == ""
