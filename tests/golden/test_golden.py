"""Stores written once, by 0.7.3 and by us, which every later version must read bit by bit."""

from __future__ import annotations

import itertools
import json
from typing import Any

import numpy as np
import pytest

import loaderx
from tests import oracle
from tests.golden.make import MANIFEST, STORES, digest
from tests.golden.samples import WRITERS, expected_of

# Written out, so that a store that is lost from the folder and from the manifest is missed all the same.
NAMES = [
    *(f"loaderx-0.7.3/{name}" for name in (
        "fixed_raw", "fixed_zstd", "fixed_zstd_dict", "fixed_zstd_deleted", "fixed_zstd_compacted", "ragged_raw",
        "ragged_zstd", "ragged_zstd_dict", "ragged_vectors", "labels", "fields",
    )),
    *(f"loaderx-1/{name}" for name in (
        "fixed_raw", "fixed_zstd", "fixed_zstd_dict", "fixed_zstd_deleted", "fixed_zstd_compacted", "ragged_raw",
        "ragged_zstd", "ragged_zstd_dict", "ragged_vectors", "labels", "fields", "ragged_empty", "ragged_empty_dict",
        "items_of_no_bytes", "no_records", "bool", "dates", "big_endian", "texts", "complex", "bfloat16",
        "fixed_zstd_shuffle", "ragged_zstd_shuffle_dict", "large_records",
    )),
]  # fmt: skip

MARKS = {"loaderx-1/bfloat16": [pytest.mark.needs_ml_dtypes]}
all_stores = pytest.mark.parametrize(
    "name", [pytest.param(name, marks=MARKS.get(name, ())) for name in NAMES]
)


def manifest() -> dict[str, Any]:
    content: dict[str, Any] = json.loads(MANIFEST.read_text(encoding="utf-8"))
    return content


def digests(name: str) -> dict[str, str]:
    return {file.name: digest(file) for file in sorted((STORES / name).iterdir())}


def expected(name: str) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any] | None]:
    """Return the records (rows, for a ragged store) and the row splits."""
    with np.load(STORES / f"{name}.npz", allow_pickle=False) as saved:
        records = saved["records"]
        splits = saved.get("row_splits")
    extension = manifest()[name]["extension"]
    if extension:
        import ml_dtypes

        records = records.view(getattr(ml_dtypes, extension))
    return records, splits


def assert_same(got: np.ndarray[Any, Any], want: np.ndarray[Any, Any]) -> None:
    assert got.dtype == want.dtype
    assert got.shape == want.shape
    assert got.tobytes() == want.tobytes()


def test_every_store_is_there() -> None:
    assert sorted(manifest()) == sorted(NAMES)
    assert sorted(f"{folder.parent.name}/{folder.name}" for folder in STORES.glob("*/*/")) == sorted(NAMES)
    assert sorted(f"{writer}/{name}" for writer, stores in WRITERS.items() for name in stores) == sorted(
        NAMES
    )


@all_stores
def test_store_reads_as_ever(name: str) -> None:
    entry = manifest()[name]
    assert digests(name) == entry["files"]
    assert digest(STORES / f"{name}.npz") == entry["expected"]
    want, splits = expected(name)
    path = STORES / name
    if splits is None:
        assert_same(oracle.read_dataset(path), want)
        with loaderx.Dataset(path) as dataset:
            assert dataset.codec == entry["codec"]
            assert len(dataset) == len(want)
            assert_same(dataset[:], want)
            order = np.arange(len(want))[::-1]
            assert_same(dataset[order], want[order])
            for index in range(len(want)):
                assert np.asarray(dataset[index]).tobytes() == want[index].tobytes()
    else:
        rows = [want[start:stop] for start, stop in itertools.pairwise(splits)]
        for got, row in zip(oracle.read_ragged(path), rows, strict=True):
            assert_same(got, row)
        with loaderx.RaggedDataset(path) as ragged:
            assert ragged.codec == entry["codec"]
            values, got_splits = ragged[:]
            assert_same(values, want)
            assert_same(got_splits, splits)
            for index, row in enumerate(rows):
                assert_same(ragged[index], row)
    for io in ("mmap", "pread"):
        with loaderx.Zrecord(path, mode="r", io=io) as store:
            data, _ = store.gather_packed(np.arange(len(store)))
            assert data.tobytes() == want.tobytes()
    assert digests(name) == entry["files"]


@pytest.mark.parametrize(
    "name", [name for name in NAMES if name.startswith("loaderx-1/") and "_dict" in name]
)
def test_dictionary_stores_use_their_dictionary(name: str) -> None:
    store = oracle.OracleStore(STORES / name)
    assert oracle.CODEC_NAMES[manifest()[name]["codec"]] in store.codecs()
    assert store.dictionary is not None


@pytest.mark.parametrize("name", NAMES)
def test_stores_have_the_version_that_they_need(name: str) -> None:
    wide = ("loaderx-1/fixed_zstd_shuffle", "loaderx-1/ragged_zstd_shuffle_dict", "loaderx-1/large_records")
    store = oracle.OracleStore(STORES / name)
    assert store.version == (oracle.WIDE if name in wide else oracle.VERSION)
    assert store.needs_wide() == (name in wide)


@all_stores
def test_expected_values_are_those_of_the_samples(name: str) -> None:
    writer, _, sample = name.partition("/")
    records = expected_of(sample, WRITERS[writer][sample][1]())
    want, splits = expected(name)
    if splits is not None:
        assert splits.tolist() == np.cumsum([0, *map(len, records)]).tolist()
    assert want.tobytes() == b"".join(record.tobytes() for record in records)
