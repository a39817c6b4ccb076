"""Deleting: the last record takes the place of a deleted one, so that the indices stay dense."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt

from loaderx._core.fault import Fault
from loaderx.store import files, journal
from loaderx.store.buffers import Indices
from loaderx.store.faults import fault_error
from loaderx.store.header import Header
from loaderx.store.session import Session
from loaderx.store.sums import read_slots, sums_bytes
from loaderx.store.table import read_entries


def find_targets(store: Path, indices: Indices, length: int) -> npt.NDArray[np.int64]:
    """Return each index once, none negative.

    Raises
    ------
    RecordIndexError
        Names the first that no record has.
    """
    # A uint64 beyond 2**63 turns negative, and is out of range either way.
    signed = indices.astype(np.int64)
    resolved = np.where((signed < 0) & (indices.dtype == np.int64), signed + length, signed)
    outside = np.flatnonzero((resolved < 0) | (resolved >= length))
    if len(outside):
        position = int(outside[0])
        fault = (Fault.INDEX, position, int(indices[position]), length, None, None, None, None, None, 0)
        raise fault_error(store, fault)
    return np.unique(resolved)


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


def delete(store: Path, session: Session, targets: npt.NDArray[np.int64]) -> None:
    """Delete records. The caller holds the store alone.

    Parameters
    ----------
    store : pathlib.Path
        Named in errors.
    session : Session
    targets : ndarray of int64
        The indices to delete, each once.
    """
    header = session.settle()
    slots, sources = plan_delete(targets, header.length)
    rows = np.zeros(len(slots), journal.ROW)
    rows["index"] = slots
    with files.errors_named(store, "delete records", "the store is as it was before"):
        rows["old"] = read_entries(session.files.table, slots)
        rows["new"] = read_entries(session.files.table, sources)
        if (sums := session.open_sums()) is not None:
            rows["old_sum"] = read_slots(sums, slots)
            rows["new_sum"] = read_slots(sums, sources)
        after = Header(*header.tail, header.length - len(targets))
        change = journal.Journal(header, after, rows, memoryview(b""))
        with journal.Keeper(store) as keeper:
            keeper.stage(change)
            try:
                journal.carry_out(session.files, change, header)
            except BaseException:
                try:
                    journal.take_back(session.files, change, session.header())
                except OSError as error:
                    raise keeper.left_undone("delete records", error) from error
                keeper.done()
                raise
            keeper.done()
        if session.files.sums is not None:
            files.set_size(session.files.sums, sums_bytes(after.length))
