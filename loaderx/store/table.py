"""The record table in `meta.zr`: reading and writing entries."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt

from loaderx._core.maps import FileMap
from loaderx.errors import CorruptRecordError
from loaderx.store import files
from loaderx.store.format import META, RECORD, entry_at

# Entries read at a time by what looks at the whole table: 4 MiB.
_BLOCK_ENTRIES = 1 << 18


def table_blocks(store: Path, table: FileMap, length: int) -> Iterator[tuple[int, npt.NDArray[np.void]]]:
    """Iterate over the table: the index of a block's first entry, and its entries (a copy).

    Parameters
    ----------
    store : pathlib.Path
    table : FileMap
    length : int
        Number of records.
    """
    for first in range(0, length, _BLOCK_ENTRIES):
        count = min(_BLOCK_ENTRIES, length - first)
        with files.errors_named(store, f"read {META}"):
            data = table.read(entry_at(first), count * RECORD.itemsize)
        if len(data) < count * RECORD.itemsize:
            raise CorruptRecordError(
                f"{store}: {META} was cut off while it was read: it has {table.size()} bytes. Restore it from a copy",
                store=store,
            )
        yield first, np.frombuffer(data, RECORD)


def read_entries(table: FileMap, indices: npt.NDArray[np.int64]) -> npt.NDArray[np.void]:
    """Return a copy of the table entries of these records."""
    entries = np.empty(len(indices), RECORD)
    for begin, end in _runs(indices):
        data = table.read(entry_at(int(indices[begin])), (end - begin) * RECORD.itemsize)
        entries[begin:end] = np.frombuffer(data, RECORD)
    return entries


def write_entries(meta: int, indices: npt.NDArray[np.int64], entries: npt.NDArray[np.void]) -> None:
    """Write the table entries of these records, neighbours in one operation."""
    for begin, end in _runs(indices):
        files.write_at(meta, entries[begin:end].view(np.uint8).data, entry_at(int(indices[begin])))


def _runs(indices: npt.NDArray[np.int64]) -> list[tuple[int, int]]:
    """Return the begin and the end of every stretch of indices that follow each other by one."""
    if len(indices) == 0:
        return []
    begins = np.flatnonzero(np.diff(indices) != 1) + 1
    return list(zip([0, *begins.tolist()], [*begins.tolist(), len(indices)], strict=True))
