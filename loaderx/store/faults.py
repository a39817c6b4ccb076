"""What the compiled core stopped at, as an exception: the one table from a status to a class and a message."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from loaderx._core.fault import Fault
from loaderx.errors import (
    CorruptRecordError,
    DestinationError,
    DictionaryError,
    RecordIndexError,
    StoreIOError,
    StoreMemoryError,
    ZrecordError,
)
from loaderx.store.dictionary import damaged_error
from loaderx.store.format import CODEC_NAMES, chunk_name


@dataclass(frozen=True, slots=True)
class _Found:
    """A fault as the core gives it (`loaderx._core.batch`)."""

    store: Path
    fault: int
    position: int
    index: int
    length: int
    chunk: int
    byte_offset: int
    stored_bytes: int
    record_bytes: int
    codec: int
    detail: int

    @property
    def where(self) -> str:
        return f"{self.store}: record {self.index} (chunk {chunk_name(self.chunk)}, byte {self.byte_offset})"

    def corrupt(self, problem: str) -> CorruptRecordError:
        return CorruptRecordError(
            f"{self.where} is damaged: {problem}. Restore the store from a copy, or delete the record",
            store=self.store,
            record=self.index,
            chunk=self.chunk,
            byte_offset=self.byte_offset,
            problem=problem,
        )


def _index(found: _Found) -> ZrecordError:
    return RecordIndexError(
        f"{found.store}: index {found.index} (position {found.position} of the batch) is out of range: the store "
        f"holds {found.length} records",
        store=found.store,
        index=found.index,
        position=found.position,
        length=found.length,
    )


def _table_cut(found: _Found) -> ZrecordError:
    return CorruptRecordError(
        f"{found.store}: the table entry of record {found.index} lies beyond the end of meta.zr, which has "
        f"{found.detail} bytes: the file was cut off. Restore it from a copy",
        store=found.store,
        record=found.index,
    )


def _chunk(found: _Found) -> ZrecordError:
    return found.corrupt(f"its entry names chunk {found.chunk}, and the store has {found.detail}")


def _codec(found: _Found) -> ZrecordError:
    return found.corrupt(
        f"its entry names codec {found.codec}, and a store of this version has the codecs 0 to {found.detail}"
    )


def _item_size(found: _Found) -> ZrecordError:
    return found.corrupt(
        f"its entry names codec {found.codec}, which shuffles items of 2 to 255 bytes, and items of {found.detail}"
    )


def _lengths(found: _Found) -> ZrecordError:
    rule = f"a record has at most {found.detail} bytes" if found.detail else "which that codec cannot make"
    return found.corrupt(
        f"its entry says {found.stored_bytes} stored bytes for {found.record_bytes} original ones with codec "
        f"{CODEC_NAMES[found.codec]}, {rule}"
    )


def _outside_file(found: _Found) -> ZrecordError:
    return found.corrupt(
        f"its {found.stored_bytes} bytes end at byte {found.byte_offset + found.stored_bytes}, and the chunk file has "
        f"{found.detail} bytes"
    )


def _record_size(found: _Found) -> ZrecordError:
    return CorruptRecordError(
        f"{found.where} has {found.record_bytes} bytes where {found.detail} are expected. Either it was appended so, "
        f"and does not belong here or {found.detail} is wrong (an argument, or another store's schema.json); or its "
        "table entry is damaged",
        store=found.store,
        record=found.index,
        chunk=found.chunk,
        byte_offset=found.byte_offset,
    )


def _destination(found: _Found) -> ZrecordError:
    return DestinationError(
        f"{found.where} has {found.record_bytes} bytes, and position {found.position} of the destination has room for "
        f"{found.detail}: give a larger stride or buffer",
        store=found.store,
        position=found.position,
        needed_bytes=found.record_bytes,
        given_bytes=found.detail,
    )


def _frame_size(found: _Found) -> ZrecordError:
    said = "no length" if found.detail < 0 else f"{found.detail} bytes"
    return found.corrupt(f"its zstd frame says {said}, and its entry {found.record_bytes} bytes")


def _frame(found: _Found) -> ZrecordError:
    return found.corrupt(f"its {found.stored_bytes} stored bytes are not a whole zstd frame")


def _dictionary(found: _Found) -> ZrecordError:
    if found.detail:
        return damaged_error(found.store, f"{found.where} was compressed with a dictionary")
    error = DictionaryError(
        f"{found.where} was compressed with a dictionary, and the store has no dict.zr: copy it from "
        "the original store",
        store=found.store,
    )
    error.code = -7  # loaderx 0.7.3's number for a missing dictionary; failed training is -9
    return error


def _io(found: _Found) -> ZrecordError:
    reason = os.strerror(-found.detail) if found.detail else "the system gave no reason"
    return StoreIOError(
        f"{found.store}: record {found.index} (position {found.position} of the batch) could not be read: {reason}",
        store=found.store,
        errno=-found.detail or None,
    )


def _memory(found: _Found) -> ZrecordError:
    return StoreMemoryError(
        f"{found.where}: no memory to decompress it; use fewer threads", store=found.store
    )


def _sum(found: _Found) -> ZrecordError:
    if found.detail == 0:
        return found.corrupt("its table entry is not the one that was written, by the tag of it in sums.zr")
    expected, got = found.detail >> 32 & 0xFFFFFFFF, found.detail & 0xFFFFFFFF
    return found.corrupt(
        f"its {found.stored_bytes} stored bytes have the checksum {got:08x}, and those that were written "
        f"{expected:08x}"
    )


_TABLE: dict[Fault, Callable[[_Found], ZrecordError]] = {
    Fault.INDEX: _index,
    Fault.TABLE_CUT: _table_cut,
    Fault.CHUNK: _chunk,
    Fault.CODEC: _codec,
    Fault.LENGTHS: _lengths,
    Fault.OUTSIDE_FILE: _outside_file,
    Fault.RECORD_SIZE: _record_size,
    Fault.DESTINATION: _destination,
    Fault.FRAME_SIZE: _frame_size,
    Fault.FRAME: _frame,
    Fault.DICTIONARY: _dictionary,
    Fault.IO: _io,
    Fault.MEMORY: _memory,
    Fault.SUM: _sum,
    Fault.ITEM_SIZE: _item_size,
}


def fault_error(store: Path, fault: tuple[Any, ...]) -> ZrecordError:
    """Return the exception for a fault the core returned.

    Parameters
    ----------
    store : pathlib.Path
    fault : tuple
        What a function of `loaderx._core.gather` or `survey` returned instead of None.
    """
    if fault[0] == Fault.OVERLAP:
        return DestinationError(
            f"{store}: the destination shares memory with the indices or offsets of the same call: give it memory of "
            "its own",
            store=store,
        )
    return _TABLE[Fault(fault[0])](_Found(store, *fault))
