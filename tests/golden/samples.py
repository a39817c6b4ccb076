"""What the golden stores hold, by name; `make` writes it, the tests read it back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

#: Deleted after writing, where a store's name says so.
DELETED = [3, 0, 31, 3]


def _images(count: int = 32) -> Array:
    """Return small records that compress, also against one another."""
    rng = np.random.default_rng(1)
    base = rng.integers(0, 40, size=(64, 16), dtype=np.uint8)
    images = np.stack([base[start : start + 4] for start in rng.integers(0, 60, size=count)])
    images[:, 0, 0] = np.arange(count)
    return images


def _tokens(empty: bool = False) -> list[Array]:
    """Return ragged records of 1 to 40 rows; with `empty`, every fourth of none."""
    rng = np.random.default_rng(2)
    base = rng.integers(0, 50, size=200, dtype=np.int32)
    rows = [
        base[start : start + size] for start, size in zip(*rng.integers(1, 40, size=(2, 32)), strict=True)
    ]
    return [row[:0] if empty and number % 4 == 0 else row for number, row in enumerate(rows)]


def _vectors() -> list[Array]:
    """Return ragged records with a trailing item shape."""
    return [np.arange(size * 3, dtype=np.float32).reshape(size, 3) / 7 for size in (2, 1, 5, 3)]


def _fields() -> Array:
    dtype = [("id", "<i4"), ("score", ">f8"), ("tag", "S3"), ("at", "<M8[s]"), ("box", "<u2", (2, 2))]
    array = np.zeros(6, dtype=dtype)
    array["id"] = np.arange(6) - 3
    array["score"] = np.linspace(-1, 1, 6)
    array["tag"] = [b"a", b"bc", b"", b"def", b"\xff\x00\x01", b"z"]
    array["at"] = np.arange("2020-01-01", "2020-01-07", dtype="M8[D]")
    array["box"] = np.arange(24).reshape(6, 2, 2)
    return array


def _plain_fields() -> Array:
    array = np.zeros(5, dtype=[("a", "<i4"), ("b", "S3")])
    array["a"] = np.arange(5) * 1000
    array["b"] = [b"x", b"yy", b"zzz", b"", b"q"]
    return array


def _dates() -> Array:
    dates = np.arange("2000-01-01", "2000-01-13", dtype="M8[D]").astype("<M8[ns]").reshape(6, 2)
    dates[2, 1] = np.datetime64("NaT", "ns")
    return dates


def _brain_floats() -> Array:
    import ml_dtypes

    return np.linspace(-4, 4, 24).astype(ml_dtypes.bfloat16).reshape(6, 4)


def _texts() -> Array:
    return np.array([["a", "", "ü"], ["雪", "🙂", "abcd"]], dtype="<U4")


def _ramps() -> Array:
    """Return records that shrink when they are shuffled, of more than one block of 32 KiB."""
    return (np.arange(2 * 9001) // 7).astype(np.float32).reshape(2, 9001)


def _large() -> Array:
    """Return records over 1 MiB, which compress to little."""
    return np.tile(np.arange(251, dtype=np.uint8), (2, 4200))


#: name -> (codec, what it holds): an array for a fixed store, a list of arrays for a ragged one.
BY_073: dict[str, tuple[str, Callable[[], Any]]] = {
    "fixed_raw": ("raw", _images),
    "fixed_zstd": ("zstd", _images),
    "fixed_zstd_dict": ("zstd_dict", _images),
    "fixed_zstd_deleted": ("zstd", _images),
    "fixed_zstd_compacted": ("zstd", _images),
    "ragged_raw": ("raw", _tokens),
    "ragged_zstd": ("zstd", _tokens),
    "ragged_zstd_dict": ("zstd_dict", _tokens),
    "ragged_vectors": ("zstd", _vectors),
    "labels": ("zstd", lambda: np.arange(20, dtype=np.int64) ** 2),
    "fields": ("raw", _plain_fields),
}

BY_US: dict[str, tuple[str, Callable[[], Any]]] = BY_073 | {
    "fields": ("raw", _fields),
    "ragged_empty": ("zstd", lambda: _tokens(empty=True)),
    "ragged_empty_dict": ("zstd_dict", lambda: _tokens(empty=True)),
    "items_of_no_bytes": ("zstd", lambda: np.zeros((4, 3, 0), dtype=np.float32)),
    "no_records": ("zstd", lambda: np.zeros((0, 2), dtype=np.int16)),
    "bool": ("zstd", lambda: np.arange(24).reshape(6, 4) % 3 == 0),
    "dates": ("zstd", _dates),
    "big_endian": ("raw", lambda: np.arange(12, dtype=">i4").reshape(6, 2) * 100_000),
    "texts": ("raw", _texts),
    "complex": ("raw", lambda: (np.arange(6) + 1j * np.arange(6, 0, -1)).astype("<c8")),
    "bfloat16": ("raw", _brain_floats),
    # format version 4
    "fixed_zstd_shuffle": ("zstd_shuffle", _ramps),
    "ragged_zstd_shuffle_dict": ("zstd_shuffle_dict", _tokens),
    "large_records": ("zstd", _large),
}

WRITERS = {"loaderx-0.7.3": BY_073, "loaderx-1": BY_US}


def expected_of(name: str, content: Any) -> list[Array]:
    """Return the records that a store of this name holds, deletions done."""
    records = list(content)
    if name.endswith(("_deleted", "_compacted")):
        for index in sorted(set(DELETED), reverse=True):
            records[index] = records[-1]
            records.pop()
    return records
