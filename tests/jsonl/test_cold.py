"""Reading text files from a disk: what is asked for ahead really comes, and nothing else changes."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from loaderx.jsonl import ByteRangeDataset, JsonlDataset
from tests import residency
from tests.jsonl.kit import write_index
from tests.residency import PAGE

N, SIZE = 3000, 2 * PAGE
DEADLINE_S = 20.0
FILES = ("a.jsonl", "b.jsonl")

pytestmark = pytest.mark.needs_cold_files


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two files of lines of two pages each."""
    base = tmp_path_factory.mktemp("cold")
    rows = []
    for number, name in enumerate(FILES):
        half = range(number * N // 2, (number + 1) * N // 2)
        lines = [b'{"n": %d, "x": "' % n for n in half]
        (base / name).write_bytes(b"".join(line + b"." * (SIZE - len(line) - 3) + b'"}\n' for line in lines))
        rows += [(number, SIZE * i, SIZE) for i in range(N // 2)]
    write_index(base, FILES, rows)
    return base


@pytest.fixture(params=["mmap", "pread"])
def io(request: pytest.FixtureRequest) -> Any:
    return request.param


def resident(base: Path) -> npt.NDArray[np.bool_]:
    """Return for each line which of its pages are in memory."""
    return np.concatenate([residency.resident(base / name) for name in FILES]).reshape(N, -1)


def drop(base: Path) -> None:
    """Have the files leave the memory. No map of them may have touched pages."""
    paths = [base / name for name in FILES] + [base / "index" / "sample_locations.bin"]
    for path in paths:
        assert residency.drop(paths, path, DEADLINE_S)


def await_pages(base: Path, idxs: npt.NDArray[np.int64]) -> None:
    """Wait until the lines are in memory."""
    deadline = time.monotonic() + DEADLINE_S
    while not resident(base)[idxs].all():
        assert time.monotonic() < deadline, f"{np.sum(~resident(base)[idxs])} pages are missing"
        time.sleep(0.01)


def test_what_is_prefetched_comes_and_little_else(base: Path, io: Any) -> None:
    idxs = np.random.default_rng(1).permutation(N)[:100]
    drop(base)
    with JsonlDataset(base, io=io) as dataset:
        dataset.prefetch(idxs)
        await_pages(base, idxs)
        assert resident(base).sum() < 2 * len(idxs) * SIZE // PAGE
        assert [sample["n"] for sample in dataset[idxs]] == idxs.tolist()


def test_a_cold_batch_reads_right_and_little_else(base: Path, io: Any) -> None:
    rng = np.random.default_rng(2)
    for idxs in (
        rng.permutation(N)[:300],
        np.arange(100, 400),
        np.arange(400, 100, -1),
        np.arange(-50, 0),
        np.array([5, 5, 5, -1, 0]),
        np.array([7]),
    ):
        drop(base)
        with JsonlDataset(base, io=io) as dataset:
            assert [sample["n"] for sample in dataset[idxs]] == (idxs % N).tolist()
    drop(base)
    with JsonlDataset(base, io=io) as dataset:
        idxs = rng.permutation(N)[:200]
        assert [dataset[int(i)]["n"] for i in idxs] == idxs.tolist()
    # the system's own read-ahead would have brought nearly all
    assert resident(base).sum() < 2 * len(idxs) * SIZE // PAGE


def test_a_pass_is_ahead_by_some_lines(base: Path, io: Any) -> None:
    drop(base)
    with JsonlDataset(base, io=io) as dataset:
        assert [sample["n"] for sample in dataset[np.arange(64)]] == list(range(64))
        await_pages(base, np.arange(64, 256))
        # one by one too
        for index in range(64, 400):
            assert dataset[index]["n"] == index
        await_pages(base, np.arange(400, 600))
    drop(base)
    with JsonlDataset(base, io=io) as dataset:
        assert [sample["n"] for sample in dataset] == list(range(N))


def test_a_whole_cold_pass_in_one_batch(base: Path, io: Any) -> None:
    # larger than the stretches that a batch is served in
    order = np.random.default_rng(3).permutation(N)
    many = np.concatenate([order, order])
    drop(base)
    with ByteRangeDataset(base, io=io, threads=2) as dataset:
        found = dataset.raw_batch(many)
    whole = b"".join((base / name).read_bytes() for name in FILES)
    assert all(raw == whole[SIZE * i : SIZE * (i + 1)] for raw, i in zip(found, many.tolist(), strict=True))


def test_a_cold_table_is_asked_for(base: Path, tmp_path: Path, io: Any) -> None:
    n = 1_000_000
    rows = np.zeros((n, 3), "<u8")
    rows[:, 1] = np.arange(n) % (N // 2) * SIZE
    rows[:, 2] = 20
    write_index(tmp_path, [str(base / FILES[0])], [(0, 0, 1)])
    table = tmp_path / "index" / "sample_locations.bin"
    rows.tofile(table)
    assert residency.drop([table], table, DEADLINE_S)
    with ByteRangeDataset(tmp_path, io=io, allow_outside=True) as dataset:
        idxs = np.random.default_rng(4).integers(0, n, 20)
        found = dataset.raw_batch(idxs)
        line = (base / FILES[0]).read_bytes()
        assert found == [line[i % (N // 2) * SIZE :][:20] for i in idxs.tolist()]
        assert residency.resident(table).sum() <= 20 * (64 << 10) // PAGE < n * 24 // PAGE // 10
