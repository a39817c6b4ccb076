"""Verifying a store: every record looked at, and every damaged one named."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from loaderx._core.fault import Fault
from loaderx._core.snapshot import Snapshot
from loaderx._core.survey import inspect
from loaderx._core.threads import available_cpus
from loaderx.store.dictionary import find
from loaderx.store.faults import fault_error
from loaderx.store.memory import check_memory
from loaderx.store.options import check_callable, check_path, check_seconds, check_threads
from loaderx.store.recovery import Recovery
from loaderx.store.rows import byte_blocks
from loaderx.store.snapshot import open_store
from loaderx.store.table import places, read_table, table_blocks

# Looked at between two reports of progress.
_BLOCK_BYTES = 64 << 20

# What a record takes where the table has to be sorted, and what a damaged one takes in the report.
_ENTRY_BYTES = 100
_DAMAGE_BYTES = 600

DictionaryState: TypeAlias = Literal["good", "unchecked", "missing", "damaged"] | None


@dataclass(frozen=True, slots=True)
class Damage:
    """A damaged record.

    Attributes
    ----------
    record : int
        Its index.
    chunk : int
        The chunk its table entry names.
    byte_offset : int
        Where in that chunk its table entry says it begins.
    problem : str
    """

    record: int
    chunk: int
    byte_offset: int
    problem: str


@dataclass(frozen=True, slots=True)
class Report:
    """What `verify` found.

    Attributes
    ----------
    path : pathlib.Path
    records : int
        Number of records.
    checked : int
        Of those, the ones whose stored bytes were compared with a checksum.
    unchecked : int
        The ones without a checksum, which another program wrote. Their entries and frames were looked at all the same,
        and are good. (A damaged record whose bytes could not be read is neither checked nor unchecked.)
    damaged : tuple of Damage
        In order of their indices. Not among them is a record whose only fault is the dictionary's.
    recovery : Recovery or None
        What a crash left, which was seen to in memory.
    dictionary : {"good", "unchecked", "missing", "damaged"} or None
        "good": it has the bytes that records were compressed with, by its checksum. "unchecked": no checksum of it is
        known. "missing": there is no `dict.zr`, and records need it. "damaged": it has other bytes. None: there is
        none, and none is needed.
    unreadable : int
        Records that cannot be read because the dictionary is missing or damaged, and are good as far as can be seen
        without it: they are back when it is. `checked` and `unchecked` count them too.
    """

    path: Path
    records: int
    checked: int
    unchecked: int
    damaged: tuple[Damage, ...]
    recovery: Recovery | None
    dictionary: DictionaryState = None
    unreadable: int = 0

    @property
    def ok(self) -> bool:
        """Whether no record is damaged, and neither is the dictionary, nor missing."""
        return not self.damaged and self.dictionary not in ("missing", "damaged")

    def as_dict(self) -> dict[str, Any]:
        """Return the report as plain data for JSON."""
        recovery = None
        if self.recovery is not None:
            cut = self.recovery.cut
            recovery = {"cut": [cut.start, cut.stop] if cut else None, "finished": self.recovery.finished}
        return {
            "path": str(self.path),
            "ok": self.ok,
            "records": self.records,
            "checked": self.checked,
            "unchecked": self.unchecked,
            "damaged": [asdict(damage) for damage in self.damaged],
            "dictionary": self.dictionary,
            "unreadable": self.unreadable,
            "recovery": recovery,
        }


def verify(
    path: str | os.PathLike[str],
    *,
    threads: int = 0,
    progress: Callable[[int, int], None] | None = None,
    timeout_s: float = 10.0,
) -> Report:
    """Look at every record of a store: its entry, its frame, its checksum, and that it shares no bytes with another.

    And at the dictionary: its checksum.

    Parameters
    ----------
    path : str or os.PathLike
    threads : int
        The most threads to use; 0: every core in the affinity mask.
    progress : callable, optional
        Called as ``progress(done_bytes, total_bytes)`` with stored bytes.
    timeout_s : float
        How long to wait for a delete or a compaction in another process.

    Returns
    -------
    Report

    Raises
    ------
    NotAStoreError, FormatVersionError, StoreLockedError, StoreIOError, OptionError
    CorruptRecordError
        The header or a chunk file that it names is damaged or missing, so that there are no records to be looked at.

    Notes
    -----
    Changes nothing and needs no right to write. Deletes and compactions wait until it is done. Where records do not lie
    in the order of their indices, as after a delete, it takes some 100 bytes of memory a record, and for a damaged one
    600 more; where there is too little, a `StoreIOError` says how much it takes, before it is taken. It looks at bytes:
    whether a dataset's schema.json is whole, and its records have the lengths that it says, is for
    ``python -m loaderx verify``.

    Examples
    --------
    >>> write_dataset(tmp_path / "waves.zr", np.zeros((100, 8)))
    100
    >>> report = verify(tmp_path / "waves.zr")
    >>> report.ok, report.checked
    (True, 100)
    """
    store = check_path(path)
    check_callable("progress", progress)
    n_threads = check_threads(threads) or available_cpus()
    snapshot, recovery = open_store(store, check_seconds("timeout_s", timeout_s), mapped=True, verify=True)
    total, in_line = _look_over(store, snapshot)
    if not in_line:
        _check_memory(store, snapshot.length * _ENTRY_BYTES)
    damaged: dict[int, Damage] = {}
    unreadable: set[int] = set()
    checked = unchecked = done = 0
    for first, entries in table_blocks(store, snapshot.table, snapshot.length):
        order = np.argsort(places(entries), kind="stable")
        sizes = entries["phys_length"][order].astype(np.int64)
        for begin, end in byte_blocks(sizes, _BLOCK_BYTES):
            block = order[begin:end]
            compared, not_compared = _inspect(
                store, snapshot, first, entries, block, n_threads, damaged, unreadable
            )
            checked += compared
            unchecked += not_compared
            done += int(sizes[begin:end].sum())
            if progress is not None:
                progress(done, total)
        _check_memory(store, (len(damaged) + len(unreadable)) * _DAMAGE_BYTES)
    if not in_line:
        _find_overlaps(read_table(store, snapshot.table, snapshot.length), damaged)
    found = tuple(damaged[index] for index in sorted(damaged))
    unreadable.difference_update(damaged)
    state: DictionaryState = find(store, snapshot.table, snapshot.length).state
    if snapshot.dictionary_is_damaged or (unreadable and snapshot.dictionary is not None):
        state = "damaged"
    elif unreadable:
        state = "missing"
    return Report(store, snapshot.length, checked, unchecked, found, recovery, state, len(unreadable))


def _check_memory(store: Path, n_bytes: int) -> None:
    check_memory(store, "verify it", n_bytes, "verify it where there is more")


def _look_over(store: Path, snapshot: Snapshot) -> tuple[int, bool]:
    """Return the stored bytes of all records, and whether each begins where those before it have ended, or behind."""
    total, reached, in_line = 0, 0, True
    for _, entries in table_blocks(store, snapshot.table, snapshot.length):
        entries = entries[entries["phys_length"] > 0]
        if len(entries) == 0:
            continue
        total += int(entries["phys_length"].sum(dtype=np.int64))
        begins, ends = _extents(entries)
        in_line = in_line and int(begins[0]) >= reached and bool(np.all(begins[1:] >= ends[:-1]))
        reached = int(ends[-1])
    return total, in_line


def _extents(entries: npt.NDArray[np.void]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return where records begin, as `places`, and where they end, which is within their chunk."""
    begins = places(entries)
    return begins, np.minimum(begins + entries["phys_length"], ((begins >> 32) + 1) << 32)


def _inspect(
    store: Path,
    snapshot: Snapshot,
    first: int,
    entries: npt.NDArray[np.void],
    block: npt.NDArray[np.int64],
    threads: int,
    damaged: dict[int, Damage],
    unreadable: set[int],
) -> tuple[int, int]:
    """Look at a block of records and note the damaged ones, and those whose fault is the dictionary's.

    Parameters
    ----------
    store : pathlib.Path
    snapshot : Snapshot
    first : int
        Which record has the first
    entries : ndarray of RECORD
        of these entries.
    block : ndarray of int64
        Which of them to look at.
    threads : int
    damaged : dict
    unreadable : set

    Returns
    -------
    compared : int
        How many had a checksum that was compared.
    not_compared : int
        How many of the others are good as far as can be seen.
    """
    faults = np.empty(len(block), np.int32)
    details = np.empty(len(block), np.int64)
    checked = np.empty(len(block), np.uint8)
    stopped = inspect(snapshot, block + first, faults, details, checked, threads)
    assert stopped is None, "nobody closes this gate, and the arrays are apart"
    for at in np.flatnonzero(faults).tolist():
        index, entry = first + int(block[at]), entries[block[at]]
        # A frame that is what was written, and cannot be decompressed: then it is the dictionary that is not.
        is_frame = faults[at] == Fault.FRAME and details[at] and checked[at]
        if is_frame or faults[at] == Fault.DICTIONARY:
            unreadable.add(index)
            continue
        error = fault_error(
            store,
            (
                int(faults[at]),
                at,
                index,
                snapshot.length,
                int(entry["chunk_id"]),
                int(entry["offset"]),
                int(entry["phys_length"]),
                int(entry["logic_length"]),
                int(entry["codec"]),
                int(details[at]),
            ),
        )
        damaged[index] = _damage(index, entry, getattr(error, "problem", None) or error.message)
    is_good = (faults == 0) | (faults == Fault.DICTIONARY)
    return int(checked.sum()), int(np.count_nonzero((checked == 0) & is_good))


def _damage(index: int, entry: np.void, problem: str) -> Damage:
    return Damage(index, int(entry["chunk_id"]), int(entry["offset"]), problem)


def _find_overlaps(entries: npt.NDArray[np.void], damaged: dict[int, Damage]) -> None:
    """Note the records of a table that share bytes with another."""
    order = np.argsort(places(entries), kind="stable")
    by_place = order[entries["phys_length"][order] > 0]
    begins, ends = _extents(entries[by_place])
    reached = np.maximum.accumulate(ends)
    for at in (np.flatnonzero(begins[1:] < reached[:-1]) + 1).tolist():
        other = int(np.searchsorted(reached, begins[at], side="right"))
        later, earlier = int(by_place[at]), int(by_place[other])
        for index, another in ((later, earlier), (earlier, later)):
            if index not in damaged:
                problem = f"it shares bytes with record {another}"
                damaged[index] = _damage(index, entries[index], problem)
