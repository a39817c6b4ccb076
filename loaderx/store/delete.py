"""Deleting: the last record takes the place of a deleted one, so that the indices stay dense."""

from __future__ import annotations

import contextlib
import struct
from pathlib import Path

import numpy as np
import numpy.typing as npt

from loaderx._core.maps import FileMap
from loaderx.store import files
from loaderx.store.format import LENGTH_AT, META
from loaderx.store.snapshot import Header
from loaderx.store.table import read_entries, write_entries


def plan_delete(
    targets: npt.NDArray[np.int64], length: int
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return which entries go where when records are deleted one by one, the highest index first.

    Parameters
    ----------
    targets : ndarray of int64, shape (k,)
        The indices to delete, each once, in any order, all below `length`.
    length : int

    Returns
    -------
    slots, sources : ndarray of int64
        Entry `sources[i]` of the old table is entry `slots[i]` of the new one; all others stay.

    Examples
    --------
    >>> plan_delete(np.array([1, 4]), 6)
    (array([1]), array([5]))
    >>> plan_delete(np.array([0, 1]), 4)
    (array([0, 1]), array([2, 3]))
    """
    moved: dict[int, int] = {}
    for target in np.sort(targets)[::-1].tolist():
        length -= 1
        source = moved.pop(length, length)
        if target != length:
            moved[target] = source
    slots = np.array(sorted(moved), dtype=np.int64)
    return slots, np.array([moved[slot] for slot in slots.tolist()], dtype=np.int64)


def delete(store: Path, table: FileMap, header: Header, targets: npt.NDArray[np.int64]) -> None:
    """Delete records. The caller has made sure that nobody reads and nobody else writes.

    Parameters
    ----------
    store : pathlib.Path
    table : FileMap
    header : Header
        As it is in the file now.
    targets : ndarray of int64
        The indices to delete, each once.
    """
    slots, sources = plan_delete(targets, header.length)
    with (
        files.errors_named(store, "delete records", "the store is as it was before"),
        files.opened(files.open_for_change(store / META)) as meta,
    ):
        replaced = read_entries(table, slots)
        try:
            write_entries(meta, slots, read_entries(table, sources))
            files.write_at(meta, struct.pack("<I", header.length - len(targets)), LENGTH_AT)
        except BaseException:
            with contextlib.suppress(OSError):
                write_entries(meta, slots, replaced)
                files.write_at(meta, struct.pack("<I", header.length), LENGTH_AT)
            raise
