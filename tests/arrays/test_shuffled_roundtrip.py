"""Datasets whose records are shuffled come back like any other: every dtype, every length, fixed and ragged."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import loaderx
from loaderx import Dataset, RaggedDataset, Zrecord, write_dataset, write_ragged
from tests import oracle
from tests.arrays.test_dtypes_roundtrip import DTYPES, assert_identical
from tests.property.samples import Array, behind_one_another, filled

CODECS = ("zstd_shuffle", "zstd_shuffle_dict")

#: Beside the usual ones, items at the ends of what can be shuffled and beyond.
KINDS = DTYPES | {
    text: np.dtype(text) for text in ("V2", "V254", "V255", "V256", "S255", "S300", "<U63", "<U64", "V5000")
} | {"large_fields": np.dtype([("a", "<f4", (70,)), ("b", ">i2")])}  # fmt: skip


def stats(path: Path) -> dict[str, Any]:
    with Zrecord(path, mode="r") as store:
        return store.stats()


def oracle_records(path: Path) -> list[bytes]:
    store = oracle.OracleStore(path, newest=oracle.WIDE)
    return [store.record(index) for index in range(len(store))]


def can_be_shuffled(dtype: np.dtype[Any]) -> bool:
    return 2 <= dtype.itemsize <= 255


def codec_for(dtype: np.dtype[Any], codec: str) -> str:
    """Return what a dataset of such items is written with: a codec that shuffles only where it can."""
    return codec if can_be_shuffled(dtype) else codec.replace("_shuffle", "")


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("name", KINDS)
def test_fixed(name: str, codec: str, store_path: Path) -> None:
    dtype = KINDS[name]
    array = filled(dtype, (60, 11, 3))
    assert write_dataset(store_path, array, codec, progress=False) == 60
    with Dataset(store_path) as dataset:
        assert (dataset.dtype, dataset.codec) == (dtype, codec_for(dtype, codec))
        assert_identical(dataset[:], array)
        assert_identical(dataset[4], array[4])
        assert_identical(dataset[[59, 0, 59]], array[[59, 0, 59]])
    assert oracle_records(store_path) == [record.tobytes() for record in array]
    used = set(stats(store_path)["codecs"])
    assert used <= {"raw", codec_for(dtype, codec)}
    assert stats(store_path)["format_version"] == (4 if codec in used else 3)
    assert loaderx.verify(store_path).ok


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("name", KINDS)
def test_ragged(name: str, codec: str, store_path: Path) -> None:
    dtype = KINDS[name]
    rows = [filled(dtype, (size % 41, 2), seed=size) for size in (3, 0, 1, *range(5, 60))]
    assert write_ragged(store_path, rows, codec=codec, progress=False) == len(rows)
    with RaggedDataset(store_path) as dataset:
        assert (dataset.dtype, dataset.codec) == (dtype, codec_for(dtype, codec))
        for got, row in zip(dataset, rows, strict=True):
            assert_identical(got, row)
        values, splits = dataset[[3, 1, 0]]
        assert_identical(values, behind_one_another([rows[3], rows[1], rows[0]]))
        assert splits.tolist() == [0, 5, 5, 8]
    assert oracle_records(store_path) == [row.tobytes() for row in rows]


#: Around the blocks that records are cut into: 32,768 bytes, or as many whole items as fit.
LENGTHS = [0, 1, 2, 3, 7, 127, 128, 129, 257, 8191, 8192, 8193, 10_922, 10_923, 16_384, 16_385, 40_000]


@pytest.mark.parametrize("dtype", ["<i2", "<f4", ">f8", "<c16", "S3", "V255"])
def test_lengths_around_a_block(dtype: str, store_path: Path) -> None:
    counting = np.arange(max(LENGTHS) * np.dtype(dtype).itemsize // 2 + 1, dtype="<u2").tobytes()
    lengths = [count for count in LENGTHS if count * np.dtype(dtype).itemsize <= 1 << 20]
    rows = [np.frombuffer(counting, dtype, count) for count in lengths]
    write_ragged(store_path, rows, codec="zstd_shuffle", progress=False)
    assert stats(store_path)["codecs"]["zstd_shuffle"] >= 5
    for io in ("mmap", "pread"):
        with RaggedDataset(store_path, io=io, verify=True) as dataset:  # type: ignore[arg-type]
            for got, row in zip(dataset, rows, strict=True):
                assert got.dtype == row.dtype and got.tobytes() == row.tobytes()
    assert oracle_records(store_path) == [row.tobytes() for row in rows]


@pytest.mark.parametrize("codec", CODECS)
def test_padded_and_given_memory(codec: str, new_path: Callable[[], Path]) -> None:
    rows = [np.arange(size, dtype="i4") for size in range(0, 300, 3)]
    path = new_path()
    write_ragged(path, rows, codec=codec, progress=False)
    with RaggedDataset(path) as ragged:
        padded, lengths = ragged.getitems_padded([99, 0, 50], pad_value=-1)
        assert lengths.tolist() == [297, 0, 150]
        for got, row in zip(padded, (rows[99], rows[0], rows[50]), strict=True):
            assert np.array_equal(got[: len(row)], row) and (got[len(row) :] == -1).all()
    path = new_path()
    array = np.arange(200 * 64, dtype=">f8").reshape(200, 64)
    write_dataset(path, array, codec, progress=False)
    with Dataset(path) as dataset:
        out = np.empty((3, 64), ">f8")
        assert dataset.__getitems__([5, 199, 5], out=out) is out
        assert np.array_equal(out, array[[5, 199, 5]])
        assert_identical(pickle.loads(pickle.dumps(dataset))[:], array)


def test_codecs_of_one_dataset_may_differ(store_path: Path) -> None:
    array = np.arange(300 * 128, dtype="<u4").reshape(300, 128)
    write_dataset(store_path, array, "zstd_shuffle", progress=False)
    for codec in ("raw", "zstd", "zstd_dict", "zstd_shuffle_dict", "zstd_shuffle"):
        write_dataset(store_path, array, codec, progress=False)  # type: ignore[arg-type]
    found = stats(store_path)
    assert found["codecs"].keys() == {"raw", "zstd", "zstd_dict", "zstd_shuffle", "zstd_shuffle_dict"}
    assert found["codecs"]["zstd_shuffle"] == 600
    assert_identical(Dataset(store_path)[:], np.concatenate([array] * 6))


@pytest.mark.parametrize("codec", CODECS)
def test_a_store_that_0_7_3_reads_is_not_changed_unasked(codec: str, store_path: Path) -> None:
    array = np.arange(300 * 128, dtype="<u4").reshape(300, 128)
    write_dataset(store_path, array, progress=False)
    before = {path.name: path.read_bytes() for path in store_path.iterdir() if path.stat().st_size < 1 << 22}
    with pytest.raises(loaderx.OptionError, match="version 4"):
        write_dataset(store_path, array, codec, progress=False)  # type: ignore[arg-type]
    after = {path.name: path.read_bytes() for path in store_path.iterdir() if path.stat().st_size < 1 << 22}
    assert {name: after[name] for name in before} == before
    assert "dict.zr" not in after
    write_dataset(store_path, array, codec, upgrade=True, progress=False)  # type: ignore[arg-type]
    assert stats(store_path)["format_version"] == 4
    assert_identical(Dataset(store_path)[:], np.concatenate([array, array]))


@pytest.mark.parametrize(
    "array",
    [
        np.asfortranarray(np.arange(60 * 40, dtype="<i4").reshape(60, 40)),
        np.arange(60 * 80, dtype="<i4").reshape(60, 80)[::-1, ::2],
        np.broadcast_to(np.arange(40, dtype="<i4"), (60, 40)),
    ],
    ids=["fortran", "strided", "broadcast"],
)
@pytest.mark.parametrize("chunk_bytes", [1, 1000, 64 << 20])
def test_layouts(array: Array, chunk_bytes: int, store_path: Path) -> None:
    write_dataset(store_path, array, "zstd_shuffle", chunk_bytes, progress=False)
    assert stats(store_path)["codecs"] == {"zstd_shuffle": 60}
    assert_identical(Dataset(store_path)[:], np.ascontiguousarray(array))
