"""Rows of one size in a file, record by record: the table's entries in `meta.zr`, the sums in `sums.zr`.

And the way through many records a block at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from loaderx.store import files


def read_rows(
    read: Callable[[int, int], bytes], indices: npt.NDArray[np.int64], dtype: np.dtype[np.void], base: int
) -> npt.NDArray[np.void]:
    """Return a copy of the rows of these records; zeros where the file ends before them.

    Parameters
    ----------
    read : callable
        Returns the bytes at an offset, fewer where the file ends.
    indices : ndarray of int64, shape (n,)
    dtype : numpy.dtype
        Of one row.
    base : int
        Byte of row 0.
    """
    rows = np.zeros(len(indices), dtype)
    for begin, end in _runs(indices):
        data = read(base + int(indices[begin]) * dtype.itemsize, (end - begin) * dtype.itemsize)
        whole = len(data) // dtype.itemsize
        rows[begin : begin + whole] = np.frombuffer(data, dtype, count=whole)
    return rows


def write_rows(
    descriptor: int, indices: npt.NDArray[np.int64], rows: npt.NDArray[np.void], base: int
) -> None:
    """Write the rows of these records, neighbours in one operation."""
    rows = np.ascontiguousarray(rows)
    for begin, end in _runs(indices):
        at = base + int(indices[begin]) * rows.dtype.itemsize
        files.write_at(descriptor, rows[begin:end].view(np.uint8).data, at)


def byte_blocks(
    sizes: npt.NDArray[np.integer[Any]], block_bytes: int, block_rows: int = 1 << 62
) -> Iterator[tuple[int, int]]:
    """Iterate over stretches of records of about `block_bytes` bytes: the first, and one behind the last."""
    ends = np.cumsum(sizes, dtype=np.int64)
    begin = 0
    while begin < len(sizes):
        before = int(ends[begin - 1]) if begin else 0
        end = max(begin + 1, int(np.searchsorted(ends, before + block_bytes, side="right")))
        end = min(end, begin + block_rows)
        yield begin, end
        begin = end


def _runs(indices: npt.NDArray[np.int64]) -> list[tuple[int, int]]:
    """Return the begin and the end of every stretch of indices that follow each other by one."""
    if len(indices) == 0:
        return []
    begins = np.flatnonzero(np.diff(indices) != 1) + 1
    return list(zip([0, *begins.tolist()], [*begins.tolist(), len(indices)], strict=True))
