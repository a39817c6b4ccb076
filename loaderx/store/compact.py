"""Compacting: move the live records together, in place, and give the rest of the space back.

Records are moved in the order in which they lie, so that none moves to a higher place and none is written over before
it was read. After each block the table entries of its records follow.
"""

from __future__ import annotations

import contextlib
import os
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from loaderx._core.maps import FileMap
from loaderx.errors import CorruptRecordError
from loaderx.store import files
from loaderx.store.format import META, RECORD, TAIL_AT, chunk_name, chunk_number
from loaderx.store.snapshot import Header
from loaderx.store.table import table_blocks, write_entries

# Stored bytes moved at a time.
_BLOCK_BYTES = 64 << 20


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


def compact(store: Path, table: FileMap, header: Header, chunk_bytes: int) -> None:
    """Compact a store. The caller has made sure that nobody reads and nobody else writes.

    Parameters
    ----------
    store : pathlib.Path
    table : FileMap
    header : Header
        As it is in the file now.
    chunk_bytes : int
    """
    blocks = [block for _, block in table_blocks(store, table, header.length)]
    table_entries = np.concatenate(blocks) if blocks else np.empty(0, RECORD)
    plan = plan_compact(store, table_entries, header.tail_chunk + 1, chunk_bytes)
    with (
        files.errors_named(store, "compact it", "compact it again once the reason is mended"),
        contextlib.ExitStack() as open_files,
    ):
        meta = open_files.enter_context(files.opened(files.open_for_change(store / META)))
        chunks = [
            open_files.enter_context(files.opened(files.open_for_change(store / chunk_name(chunk))))
            for chunk in range(header.tail_chunk + 1)
        ]
        for begin, end in _blocks(plan):
            _move(store, plan, begin, end, chunks, meta)
        files.write_at(meta, struct.pack("<HI", plan.tail_chunk, plan.tail_offset), TAIL_AT)
        for chunk, used in enumerate(plan.used_bytes):
            files.set_size(chunks[chunk], used)
        for name in os.listdir(store):
            if (
                chunk_number(name) or 0
            ) > plan.tail_chunk:  # also what a killed append or an earlier compaction left
                files.unlink(store / name)


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


def _blocks(plan: Plan) -> Iterator[tuple[int, int]]:
    """Iterate over stretches of the plan that are moved at once, without the records that already lie right."""
    entries = plan.entries
    moves = np.flatnonzero((plan.chunks != entries["chunk_id"]) | (plan.offsets != entries["offset"]))
    if len(moves) == 0:
        return
    begin = int(moves[0])  # everything behind the first gap moves
    bytes_before = np.cumsum(entries["phys_length"], dtype=np.int64)
    while begin < len(entries):
        done = int(bytes_before[begin - 1]) if begin else 0
        end = max(begin + 1, int(np.searchsorted(bytes_before, done + _BLOCK_BYTES, side="right")))
        yield begin, end
        begin = end


def _pieces(
    chunks: npt.NDArray[np.int64], offsets: npt.NDArray[np.int64], sizes: npt.NDArray[np.int64]
) -> Iterator[tuple[int, int, int]]:
    """Iterate over the stretches of records that lie one behind the other: chunk, first byte, number of bytes."""
    ends = offsets + sizes
    breaks = np.flatnonzero((chunks[1:] != chunks[:-1]) | (offsets[1:] != ends[:-1])) + 1
    for begin, end in zip([0, *breaks.tolist()], [*breaks.tolist(), len(sizes)], strict=True):
        yield int(chunks[begin]), int(offsets[begin]), int(ends[end - 1] - offsets[begin])


def _move(store: Path, plan: Plan, begin: int, end: int, chunks: list[int], meta: int) -> None:
    """Move one block: read it whole, write it, and then its table entries; on failure put it back."""
    old = plan.entries[begin:end]
    sizes = old["phys_length"].astype(np.int64)
    old_pieces = list(_pieces(old["chunk_id"].astype(np.int64), old["offset"].astype(np.int64), sizes))
    new_pieces = list(_pieces(plan.chunks[begin:end], plan.offsets[begin:end], sizes))
    records = plan.records[begin:end]
    by_record = np.argsort(records)
    moved = old.copy()
    moved["chunk_id"] = plan.chunks[begin:end]
    moved["offset"] = plan.offsets[begin:end]
    data = memoryview(files.read_pieces(chunks, old_pieces))
    if len(data) != int(sizes.sum()):
        raise CorruptRecordError(
            f"{store}: cannot compact: a chunk file ends before the records {records.min()} to {records.max()} do. "
            "Restore it from a copy",
            store=store,
        )
    try:
        files.write_pieces(chunks, new_pieces, data)
        write_entries(meta, records[by_record], moved[by_record])
    except BaseException:
        with contextlib.suppress(OSError):
            files.write_pieces(chunks, old_pieces, data)
            write_entries(meta, records[by_record], old[by_record])
        raise
