"""Compacting: move the live records together, in place, and give the rest of the space back.

Records are moved in the order in which they lie, so that none moves to a higher place and none is written over before
it was read. A block of them goes into the journal, then to its new place, and then its table entries follow: whatever
stops that, the block is finished from the journal. Between two blocks the store is whole, so compacting again goes on
where it stopped. Source of the scheme: write-ahead (redo) logging, here of one block at a time.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from loaderx.errors import CorruptRecordError
from loaderx.store import files, journal
from loaderx.store.format import chunk_name, chunk_number
from loaderx.store.header import Header, write_tail
from loaderx.store.memory import check_memory
from loaderx.store.rows import byte_blocks
from loaderx.store.session import Session
from loaderx.store.sums import move_mark, moved_slots, read_slots
from loaderx.store.table import read_table, stretches

# The most that is moved at a time: it is in memory, and in the journal.
_BLOCK_BYTES = 64 << 20
_LEAST_BLOCK_BYTES = 64 << 10
_BLOCK_RECORDS = 1 << 18

# What a record takes in the plan.
_ENTRY_BYTES = 100


@dataclass(frozen=True, slots=True)
class Plan:
    """Where every record goes. All arrays are in the order in which the records lie now."""

    records: npt.NDArray[np.int64]
    entries: npt.NDArray[np.void]
    chunks: npt.NDArray[np.int64]
    offsets: npt.NDArray[np.int64]
    tail_chunk: int
    tail_offset: int
    used_bytes: tuple[int, ...]


def plan_compact(store: Path, entries: npt.NDArray[np.void], n_chunks: int, chunk_bytes: int) -> Plan:
    """Return where every record goes when all lie one behind the other.

    Parameters
    ----------
    store : pathlib.Path
        Named in errors.
    entries : ndarray of RECORD, shape (n,)
        The whole table.
    n_chunks : int
        Number of chunks the store has.
    chunk_bytes : int
        Where a chunk ends: a record goes to the next one when it would end there or beyond.

    Raises
    ------
    CorruptRecordError
        Two records share bytes, or one lies where no writer puts it; moving would destroy records.
    """
    order = np.lexsort((entries["phys_length"], entries["offset"], entries["chunk_id"]))
    entries = entries[order]
    old_chunks = entries["chunk_id"].astype(np.int64)
    old_offsets = entries["offset"].astype(np.int64)
    sizes = entries["phys_length"].astype(np.int64)
    ends = old_offsets + sizes
    beyond = np.flatnonzero(old_chunks >= n_chunks)
    if len(beyond):
        _refuse(store, order, entries, int(beyond[0]), f"the store has no such chunk, but {n_chunks}")
    overlaps = np.flatnonzero((old_chunks[1:] == old_chunks[:-1]) & (ends[:-1] > old_offsets[1:]))
    if len(overlaps):
        _refuse(store, order, entries, int(overlaps[0]) + 1, "it shares bytes with another record")

    chunks = np.empty(len(order), np.int64)
    offsets = np.empty(len(order), np.int64)
    used_bytes: list[int] = []
    first, chunk, tail = 0, 0, 0
    while first < len(order):
        packed = np.cumsum(sizes[first:])
        fitting = int(np.searchsorted(packed, chunk_bytes, side="left"))
        if fitting == 0:
            _refuse(store, order, entries, first, "it is larger than a chunk")
        chunks[first : first + fitting] = chunk
        offsets[first : first + fitting] = packed[:fitting] - sizes[first : first + fitting]
        tail = int(packed[fitting - 1])
        first += fitting
        used_bytes.append(tail)
        chunk += 1
    higher = np.flatnonzero(
        (sizes > 0) & ((chunks > old_chunks) | ((chunks == old_chunks) & (offsets > old_offsets)))
    )
    if len(higher):
        _refuse(store, order, entries, int(higher[0]), "it lies beyond the end of its chunk")
    return Plan(
        order.astype(np.int64), entries, chunks, offsets, max(chunk - 1, 0), tail, tuple(used_bytes) or (0,)
    )


def compact(
    store: Path, session: Session, chunk_bytes: int, progress: Callable[[int, int], None] | None
) -> None:
    """Compact a store. The caller holds it alone.

    Parameters
    ----------
    store : pathlib.Path
        Named in errors.
    session : Session
    chunk_bytes : int
    progress : callable or None
        Called as ``progress(done_bytes, total_bytes)`` after each block; with ``(0, 0)`` where nothing has to move.
    """
    header = session.settle()
    check_memory(
        store,
        "compact it",
        header.length * _ENTRY_BYTES,
        "nothing was changed; compact it where there is more",
    )
    plan = plan_compact(
        store, read_table(store, session.files.table, header.length), header.tail_chunk + 1, chunk_bytes
    )
    _check_whole(store, plan)
    with files.errors_named(
        store, "compact it", "every record is there; compact again once the reason is mended"
    ):
        _move_all(store, session, plan, header, progress)
        _give_back(store, session, plan, header)


def _check_whole(store: Path, plan: Plan) -> None:
    """Refuse a store of which a chunk was cut off: what gives space back would fill what is lost with zeros."""
    chunks = plan.entries["chunk_id"]
    ends = plan.entries["offset"].astype(np.int64) + plan.entries["phys_length"]
    for chunk in np.unique(chunks).tolist():
        with files.errors_named(store, "compact it", "nothing was changed"):
            n_bytes = os.stat(store / chunk_name(chunk)).st_size
        lost = np.flatnonzero((chunks == chunk) & (ends > n_bytes) & (plan.entries["phys_length"] > 0))
        if len(lost):
            at = int(lost[0])
            problem = f"it ends at byte {ends[at]}, and the file has {n_bytes}: it was cut off"
            _refuse(store, plan.records, plan.entries, at, problem)


def _move_all(
    store: Path, session: Session, plan: Plan, header: Header, progress: Callable[[int, int], None] | None
) -> None:
    entries = plan.entries
    moving = np.flatnonzero((plan.chunks != entries["chunk_id"]) | (plan.offsets != entries["offset"]))
    if len(moving) == 0:
        if progress is not None:
            progress(0, 0)
        return
    sizes = entries["phys_length"][moving].astype(np.int64)
    total, done = int(sizes.sum()), 0
    with journal.Keeper(store) as keeper:
        for begin, end in byte_blocks(sizes, _block_bytes(store), _BLOCK_RECORDS):
            change = _change(store, session, plan, header, moving[begin:end])
            keeper.stage(change)
            try:
                journal.carry_out(session.files, change, header)
            except BaseException:
                # Forward once more: a signal, or one refusal, leaves nothing half-moved.
                try:
                    journal.carry_out(session.files, change, header)
                except OSError as error:
                    raise keeper.left_undone("compact it", error) from error
                keeper.done()
                raise
            keeper.done()
            done += len(change.data)
            if progress is not None:
                progress(done, total)


def _give_back(store: Path, session: Session, plan: Plan, header: Header) -> None:
    """Set the tail behind the last record, and free what is behind it."""
    tail = Header(plan.tail_chunk, plan.tail_offset, header.length)
    if tail != header:
        if session.files.sums is not None:
            move_mark(session.files.sums, tail)
        write_tail(session.files.meta, header, tail)
        session.files.sync_rows()
    for chunk, used in enumerate(plan.used_bytes):
        files.set_size(session.files.chunk(chunk), used)
    session.files.sync_chunks()
    session.files.close_chunks(0)
    beyond = [name for name in os.listdir(store) if (chunk_number(name) or 0) > plan.tail_chunk]
    for name in beyond:  # also what a killed append or an earlier compaction left
        files.unlink(store / name)
    if beyond:
        files.sync_directory(store)


def _block_bytes(store: Path) -> int:
    """Return how many bytes to move at once: less where the disk has no room for them in the journal."""
    disk = os.statvfs(store)
    return max(_LEAST_BLOCK_BYTES, min(_BLOCK_BYTES, disk.f_bavail * disk.f_frsize // 2))


def _change(
    store: Path, session: Session, plan: Plan, header: Header, block: npt.NDArray[np.int64]
) -> journal.Journal:
    """Return the move of a block of records, their bytes included."""
    rows = np.zeros(len(block), journal.ROW)
    rows["index"] = plan.records[block]
    rows["old"] = rows["new"] = plan.entries[block]
    rows["new"]["chunk_id"] = plan.chunks[block]
    rows["new"]["offset"] = plan.offsets[block]
    sums = session.open_sums()
    if sums is not None:
        by_index = np.argsort(rows["index"])
        rows["old_sum"][by_index] = read_slots(sums, rows["index"][by_index])
        rows["new_sum"] = moved_slots(rows["old_sum"], rows["old"], rows["new"])
    data = files.read_pieces(session.files.chunk, stretches(rows["old"]))
    if len(data) != int(rows["old"]["phys_length"].sum(dtype=np.int64)):
        raise CorruptRecordError(
            f"{store}: cannot compact: a chunk file ends before the records {rows['index'].min()} to "
            f"{rows['index'].max()} do. Restore it from a copy",
            store=store,
        )
    return journal.Journal(header, header, rows, memoryview(data))


def _refuse(
    store: Path, order: npt.NDArray[np.int64], entries: npt.NDArray[np.void], at: int, problem: str
) -> None:
    record, chunk, offset = int(order[at]), int(entries["chunk_id"][at]), int(entries["offset"][at])
    raise CorruptRecordError(
        f"{store}: cannot compact: record {record} (chunk {chunk_name(chunk)}, byte {offset}): {problem}. Nothing was "
        "changed. Copy the good records to a new store",
        store=store,
        record=record,
        chunk=chunk,
        byte_offset=offset,
    )
