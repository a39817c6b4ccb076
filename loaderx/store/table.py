"""The record table in `meta.zr`: reading and writing entries."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt

from loaderx._core.maps import FileMap
from loaderx.errors import CorruptRecordError
from loaderx.store import files
from loaderx.store.format import HEADER, META, RECORD, entry_at
from loaderx.store.rows import read_rows, write_rows

# Entries read at a time by what looks at the whole table: 4 MiB.
_BLOCK_ENTRIES = 1 << 18


def table_blocks(
    store: Path, table: FileMap, length: int, first_entry: int = 0
) -> Iterator[tuple[int, npt.NDArray[np.void]]]:
    """Iterate over the table: the index of a block's first entry, and its entries (a copy).

    Parameters
    ----------
    store : pathlib.Path
    table : FileMap
    length : int
        Number of records.
    first_entry : int
        Where to begin.
    """
    for first in range(first_entry, length, _BLOCK_ENTRIES):
        count = min(_BLOCK_ENTRIES, length - first)
        with files.errors_named(store, f"read {META}"):
            data = table.read(entry_at(first), count * RECORD.itemsize)
        if len(data) < count * RECORD.itemsize:
            raise CorruptRecordError(
                f"{store}: {META} was cut off while it was read: it has {table.size()} bytes. Restore it from a copy",
                store=store,
            )
        yield first, np.frombuffer(data, RECORD)


def read_table(store: Path, table: FileMap, length: int, first_entry: int = 0) -> npt.NDArray[np.void]:
    """Return a copy of the table from `first_entry` on: 16 bytes a record."""
    blocks = [block for _, block in table_blocks(store, table, length, first_entry)]
    return np.concatenate([*blocks, np.empty(0, RECORD)])


def read_entries(table: FileMap, indices: npt.NDArray[np.int64]) -> npt.NDArray[np.void]:
    """Return a copy of the table entries of these records."""
    return read_rows(table.read, indices, RECORD, HEADER.itemsize)


def write_entries(meta: int, indices: npt.NDArray[np.int64], entries: npt.NDArray[np.void]) -> None:
    """Write the table entries of these records, neighbours in one operation."""
    write_rows(meta, indices, entries, HEADER.itemsize)


def places(entries: npt.NDArray[np.void]) -> npt.NDArray[np.int64]:
    """Return where the records begin as numbers that rise as places do: chunk times 2**32 plus byte."""
    chunks, offsets = entries["chunk_id"].astype(np.int64), entries["offset"].astype(np.int64)
    return (chunks << 32) + offsets


def same_entries(a: npt.NDArray[np.void], b: npt.NDArray[np.void]) -> npt.NDArray[np.bool_]:
    """Return where two arrays of entries agree, bit by bit. (NumPy's own comparison can swallow a Ctrl-C.)"""
    words_a, words_b = (np.ascontiguousarray(entries).view(np.uint64).reshape(-1, 2) for entries in (a, b))
    same: npt.NDArray[np.bool_] = (words_a == words_b).all(axis=1)
    return same


def stretches(entries: npt.NDArray[np.void]) -> list[tuple[int, int, int]]:
    """Return where the bytes of records are, one behind the other: chunk, first byte, number of bytes."""
    chunks = entries["chunk_id"].astype(np.int64)
    offsets = entries["offset"].astype(np.int64)
    ends = offsets + entries["phys_length"]
    if len(entries) == 0:
        return []
    breaks = np.flatnonzero((chunks[1:] != chunks[:-1]) | (offsets[1:] != ends[:-1])) + 1
    return [
        (int(chunks[begin]), int(offsets[begin]), int(ends[end - 1] - offsets[begin]))
        for begin, end in zip([0, *breaks.tolist()], [*breaks.tolist(), len(entries)], strict=True)
    ]
