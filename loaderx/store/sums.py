"""Checksums beside the format: `sums.zr`, a slot for each record.

A slot holds a tag of the record's table entry and a checksum of its stored bytes. The file begins with a mark: the
length and the tail that the store had when the sums were last brought up to date, and a tag of its dictionary
(`loaderx.store.dictionary`). Where the mark is the store's, a tag that differs is damage. Where it is not, another
program has changed the store: a slot whose record it wrote is then let go, never held against it.
"""

from __future__ import annotations

import contextlib
import os
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

from loaderx._core.checksum import checksum, tags
from loaderx._core.maps import FileMap
from loaderx.store import files
from loaderx.store.format import SUM, SUMS, chunk_name
from loaderx.store.header import Header
from loaderx.store.rows import read_rows, write_rows
from loaderx.store.table import places, read_entries, table_blocks

_MARK = struct.Struct("<4sHHIQIII")
_MAGIC = b"ZSUM"
_VERSION = 1

#: Byte of slot 0.
SLOTS_AT: Final = _MARK.size

# Another program that moved the tail back and wrote again can have put a record where one of the same sizes was, so
# that the entry looks untouched. All such records lie behind the last one that is still what its sum says; so many good
# ones in a row, from the end, are taken for that.
_ENOUGH_RECORDS = 1024
_ENOUGH_BYTES = 4 << 20


def sums_bytes(length: int) -> int:
    """Return the size of `sums.zr` for so many records."""
    return SLOTS_AT + length * SUM.itemsize


@dataclass(frozen=True, slots=True)
class SumsMark:
    """What `sums.zr` begins with.

    Attributes
    ----------
    header : Header
        The store's, when the sums were last brought up to date.
    dictionary : int
        Tag of its dictionary (`loaderx.store.dictionary`); 0: it had none, or nobody knows.
    """

    header: Header
    dictionary: int


def pack_mark(header: Header, dictionary: int) -> bytes:
    """Return the first bytes of `sums.zr` of a store with this header and a dictionary of this tag."""
    fields = header.tail_chunk, header.length, header.tail_offset, dictionary
    head = _MARK.pack(_MAGIC, _VERSION, 0, *fields, 0)[:-4]
    return head + struct.pack("<I", checksum(head))


def unpack_mark(data: bytes) -> SumsMark | None:
    """Return what the sums belong to; None where these bytes are no mark of a known version."""
    if len(data) < _MARK.size:
        return None
    magic, version, _, tail_chunk, length, tail_offset, dictionary, check = _MARK.unpack_from(data)
    if magic != _MAGIC or version != _VERSION or check != checksum(data[: _MARK.size - 4]):
        return None
    return SumsMark(Header(tail_chunk, tail_offset, length), dictionary)


def move_mark(descriptor: int, header: Header) -> None:
    """Have the sums be those of a store with this header, and of the dictionary that the mark has named before."""
    mark = unpack_mark(os.pread(descriptor, _MARK.size, 0))
    files.write_at(descriptor, pack_mark(header, 0 if mark is None else mark.dictionary), 0)


def new_slots(entries: npt.NDArray[np.void], checksums: npt.NDArray[np.uint32]) -> npt.NDArray[np.void]:
    """Return the slots of records with these table entries and checksums."""
    slots = np.empty(len(entries), SUM)
    slots["tag"] = _tags(entries)
    slots["checksum"] = checksums
    return slots


def moved_slots(
    slots: npt.NDArray[np.void], old: npt.NDArray[np.void], new: npt.NDArray[np.void]
) -> npt.NDArray[np.void]:
    """Return the slots of records whose table entries change and whose bytes stay; empty where there was no sum."""
    moved = new_slots(new, slots["checksum"])
    moved[slots["tag"] != _tags(old)] = np.zeros((), SUM)
    return moved


def read_slots(sums: FileMap, indices: npt.NDArray[np.int64]) -> npt.NDArray[np.void]:
    """Return a copy of the slots of these records, empty ones beyond the end of the file."""
    return read_rows(sums.read, indices, SUM, SLOTS_AT)


def write_slots(descriptor: int, indices: npt.NDArray[np.int64], slots: npt.NDArray[np.void]) -> None:
    """Write the slots of these records, neighbours in one operation."""
    write_rows(descriptor, indices, slots, SLOTS_AT)


def strangers(
    store: Path, table: FileMap, sums: FileMap | None, length: int
) -> tuple[npt.NDArray[np.int64], tuple[int, int]]:
    """Look through a store that another program may have changed since its sums were written.

    Parameters
    ----------
    store : pathlib.Path
    table : FileMap
    sums : FileMap or None
        None: the store has none.
    length : int
        Number of records.

    Returns
    -------
    indices : ndarray of int64
        The records whose slot is another record's, rising.
    end : tuple of int
        Chunk and byte behind the last record, of those that lie inside their files.
    """
    sizes = _chunk_sizes(store)
    differing: list[npt.NDArray[np.int64]] = []
    matching: list[npt.NDArray[np.int64]] = []
    where: list[npt.NDArray[np.int64]] = []
    last = 0
    for first, entries in table_blocks(store, table, length):
        ends = places(entries) + entries["phys_length"]
        chunks = entries["chunk_id"].astype(np.int64)
        known = chunks < len(sizes)
        inside = known.copy()
        inside[known] = (ends[known] - (chunks[known] << 32)) <= sizes[chunks[known]]
        last = max(last, int(ends[inside].max(initial=0)))
        if sums is None:
            continue
        indices = np.arange(first, first + len(entries), dtype=np.int64)
        slots = read_slots(sums, indices)
        same = slots["tag"] == _tags(entries)
        differing.append(indices[(slots["tag"] != 0) & ~same])
        matching.append(indices[same])
        where.append(places(entries)[same])
    end = last >> 32, last & 0xFFFFFFFF
    if sums is None:
        return np.empty(0, np.int64), end
    candidates = np.concatenate([*matching, np.empty(0, np.int64)])
    from_the_end = candidates[np.argsort(np.concatenate([*where, np.empty(0, np.int64)]))[::-1]]
    rewritten = _rewritten(store, table, sums, from_the_end)
    return np.sort(np.concatenate([*differing, rewritten])), end


def _rewritten(
    store: Path, table: FileMap, sums: FileMap, from_the_end: npt.NDArray[np.int64]
) -> npt.NDArray[np.int64]:
    """Return the records among the last ones whose bytes are not what their sum says."""
    wrong: list[int] = []
    good_records = good_bytes = 0
    with contextlib.ExitStack() as opened:
        chunks: dict[int, int] = {}
        for begin in range(0, len(from_the_end), _ENOUGH_RECORDS):
            indices = from_the_end[begin : begin + _ENOUGH_RECORDS]
            entries = read_entries(table, indices)
            slots = read_slots(sums, indices)
            for index, entry, slot in zip(indices.tolist(), entries, slots, strict=True):
                chunk, n_bytes = int(entry["chunk_id"]), int(entry["phys_length"])
                if chunk not in chunks:
                    chunks[chunk] = opened.enter_context(
                        files.opened(files.open_to_read(store / chunk_name(chunk)))
                    )
                stored = files.read_pieces(chunks.__getitem__, [(chunk, int(entry["offset"]), n_bytes)])
                if len(stored) < n_bytes or checksum(stored) != slot["checksum"]:
                    wrong.append(index)
                    good_records = good_bytes = 0
                    continue
                good_records += 1
                good_bytes += n_bytes
                if good_records >= _ENOUGH_RECORDS or good_bytes >= _ENOUGH_BYTES:
                    return np.array(wrong, np.int64)
    return np.array(wrong, np.int64)


def _chunk_sizes(store: Path) -> npt.NDArray[np.int64]:
    """Return the sizes of the chunk files 0, 1, ... as far as there are any."""
    sizes: list[int] = []
    with contextlib.suppress(FileNotFoundError):
        while True:
            sizes.append(os.stat(store / chunk_name(len(sizes))).st_size)
    return np.array(sizes, np.int64)


def _tags(entries: npt.NDArray[np.void]) -> npt.NDArray[np.uint32]:
    out = np.empty(len(entries), np.uint32)
    tags(np.ascontiguousarray(entries).view(np.uint8), out)
    return out


def open_sums(store: Path, capacity: int, *, mapped: bool) -> FileMap | None:
    """Open `sums.zr` for reading; None where there is none."""
    with files.errors_named(store, f"open {SUMS}"):
        try:
            return FileMap(store / SUMS, capacity, mapped)
        except FileNotFoundError:
            return None
