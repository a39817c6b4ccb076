"""Whatever NumPy holds, a dataset gives back, whatever its layout, codec and chunk size."""

from __future__ import annotations

import itertools
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st

import loaderx
from tests import oracle
from tests.property.samples import (
    Array,
    behind_one_another,
    dtypes,
    filled,
    laid_out,
    plain_dtypes,
    without_gaps,
)

codecs = st.sampled_from(["raw", "zstd"])
chunk_sizes = st.sampled_from([1, 64, 1000, 64 << 20])


def assert_same_array(got: Any, expected: Array) -> None:
    """Compare dtype, shape and values; bytes too where the input's gaps between fields cannot differ."""
    assert isinstance(got, np.ndarray)
    assert got.dtype == expected.dtype
    assert repr(got.dtype) == repr(expected.dtype)
    assert got.shape == expected.shape
    plain = np.ascontiguousarray(expected)
    assert without_gaps(got) == without_gaps(plain)


@given(array=laid_out(), codec=codecs, chunk_bytes=chunk_sizes)
@example(array=np.zeros((3, 0, 2), dtype="<f4"), codec="zstd", chunk_bytes=1)
@example(array=np.zeros((0, 2), dtype=[("a", "<M8[ns]"), ("b", "S2", (2,))]), codec="raw", chunk_bytes=1)
def test_dataset_gives_back_what_was_written(array: Array, codec: str, chunk_bytes: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "store.zr"
        assert loaderx.write_dataset(path, array, codec, chunk_bytes, progress=False) == len(array)
        with loaderx.Dataset(path) as dataset:
            assert len(dataset) == len(array)
            assert dataset.shape == array.shape[1:]
            assert_same_array(dataset[:], array)
            if len(array):
                assert_same_array(dataset[[0, -1, 0]], array[[0, -1, 0]])
        assert_same_array(oracle.read_dataset(path), array)
        assert oracle.OracleStore(path).faults() == []


@given(array=laid_out(plain_dtypes), cuts=st.lists(st.integers(0, 6), max_size=3), codec=codecs)
def test_appending_parts_is_writing_the_whole(array: Array, cuts: list[int], codec: str) -> None:
    bounds = sorted({0, len(array), *(cut for cut in cuts if cut < len(array))})
    parts = [array[start:stop] for start, stop in itertools.pairwise(bounds)] or [array]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "store.zr"
        for part in parts:
            assert loaderx.write_dataset(path, part, codec, progress=False) == len(part)
        with loaderx.Dataset(path) as dataset:
            assert_same_array(dataset[:], array)
        assert_same_array(oracle.read_dataset(path), array)


@given(dtype=dtypes, sizes=st.lists(st.integers(0, 5), min_size=1, max_size=6), codec=codecs, data=st.data())
def test_ragged_gives_back_what_was_written(
    dtype: Any, sizes: list[int], codec: str, data: st.DataObject
) -> None:
    item_shape = data.draw(st.lists(st.integers(1, 3), max_size=2).map(tuple))
    rows = [filled(dtype, (size, *item_shape), seed) for seed, size in enumerate(sizes)]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "store.zr"
        assert loaderx.write_ragged(path, iter(rows), codec=codec, chunk_bytes=32, progress=False) == len(
            rows
        )
        with loaderx.RaggedDataset(path) as dataset:
            assert (len(dataset), dataset.dtype, dataset.item_shape) == (len(rows), dtype, item_shape)
            for index, row in enumerate(rows):
                assert_same_array(dataset[index], row)
            values, splits = dataset[:]
            assert values.dtype == dtype
            assert without_gaps(values) == without_gaps(behind_one_another(rows))
            assert splits.tolist() == np.cumsum([0, *sizes]).tolist()
        for got, row in zip(oracle.read_ragged(path), rows, strict=True):
            assert_same_array(got, row)
        assert oracle.OracleStore(path).faults() == []
