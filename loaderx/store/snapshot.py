"""What a handle reads through: every file of a store, opened, as far as its header says it goes."""

from __future__ import annotations

import os
import time
from pathlib import Path

import numpy as np

from loaderx._core.maps import FileMap
from loaderx._core.snapshot import Gate, Snapshot
from loaderx.errors import CorruptRecordError, ZrecordError
from loaderx.store import locks, recovery
from loaderx.store.dictionary import find
from loaderx.store.files import errors_named
from loaderx.store.format import (
    CHUNK_BYTES,
    MARK,
    MAX_OFFSET,
    META,
    META_BYTES,
    SUM,
    TAIL_ROOM,
    chunk_name,
    entry_at,
    room_for,
)
from loaderx.store.header import Header, read_format, read_header
from loaderx.store.recovery import Recovery, View
from loaderx.store.sums import open_sums, read_slots, strangers, sums_bytes, unpack_mark

# How often a writer that is between its two writes (the sums' mark and the header) is looked at again, a millisecond
# later, before another program is taken to have changed the store.
_MARK_LOOKS = 10


def open_store(
    store: Path, timeout_s: float, *, mapped: bool, verify: bool
) -> tuple[Snapshot, Recovery | None]:
    """Hold a store for reading, and open every file of it. What a crash left is seen to in memory.

    Parameters
    ----------
    store : pathlib.Path
    timeout_s : float
        How long to wait for a delete or a compaction.
    mapped : bool
        Whether to map the files, or to read them through their descriptors.
    verify : bool
        Whether reads compare records with their sums.

    Returns
    -------
    snapshot : Snapshot
        Its gate keeps the hold.
    recovery : Recovery or None

    Raises
    ------
    NotAStoreError, FormatVersionError, CorruptRecordError, StoreIOError, StoreLockedError
    """
    while True:
        gate = Gate()
        gate.hold = hold = locks.hold_for_reading(store, timeout_s)
        try:
            opened = _open_snapshot(store, gate, mapped=mapped, verify=verify)
        except BaseException as error:
            was_there = hold.is_at(store / META)
            hold.close()  # whoever keeps the exception keeps this frame
            if was_there or not isinstance(error, ZrecordError):
                raise
            continue
        if hold.is_at(store / META):
            return opened
        # Another store has taken this one's place meanwhile, and some of the files may be its.


def _open_snapshot(
    store: Path, gate: Gate, *, mapped: bool, verify: bool
) -> tuple[Snapshot, Recovery | None]:
    with errors_named(store, "open the store"):
        try:
            table = FileMap(store / META, META_BYTES, mapped)
        except (FileNotFoundError, NotADirectoryError):
            raise locks.missing(store) from None
    version, header = read_format(store, table)
    table = _long_enough(store, table, header.length, mapped)
    view = recovery.look(store, table, header, mapped=mapped)
    dictionary = find(store, view.table, view.header.length)
    chunks = _open_chunks(store, (), view.header.tail_chunk + 1, mapped)
    tail = _tail(store, view.header, chunks)
    snapshot = Snapshot(
        view.table,
        chunks if view.moved is None else (*chunks, view.moved),
        view.header.length,
        dictionary.loaded,
        gate,
        version.max_record_bytes,
        _sums(store, view, table, mapped) if verify else None,
        version.max_codec,
        dictionary.state == "damaged",
        tail,
    )
    return snapshot, view.recovery


def renew_snapshot(
    store: Path,
    old: Snapshot,
    *,
    mapped: bool,
    verify: bool,
    gate: Gate | None = None,
    look_for_dictionary: bool = False,
) -> Snapshot:
    """Return a snapshot of the store as its header says it is now, keeping every map that is still good.

    Parameters
    ----------
    store : pathlib.Path
    old : Snapshot
        Of the files themselves, not of a private copy (`recovery.look`).
    mapped, verify : bool
        As in `open_store`.
    gate : Gate or None
        None: the old one, which stays open.
    look_for_dictionary : bool
        Whether `dict.zr` has changed since. Where it is gone or damaged, the old one stays.
    """
    version, header = read_format(store, old.table)
    table = _long_enough(store, old.table, header.length, mapped)
    view = View(header, table, None, np.empty(0, np.int64), np.empty(0, SUM), None)
    dictionary, is_damaged = old.dictionary, old.dictionary_is_damaged
    if look_for_dictionary:
        found = find(store, table, header.length)
        dictionary = found.loaded or old.dictionary
        is_damaged = dictionary is None and found.state == "damaged"
    chunks = _open_chunks(
        store, _good_chunks(store, old, header.tail_chunk + 1), header.tail_chunk + 1, mapped
    )
    tail = _tail(store, header, chunks)
    return Snapshot(
        table,
        chunks,
        header.length,
        dictionary,
        gate or old.gate,
        version.max_record_bytes,
        _sums(store, view, table, mapped) if verify else None,
        version.max_codec,
        is_damaged,
        tail,
    )


def _tail(store: Path, header: Header, chunks: tuple[FileMap, ...]) -> tuple[int, int]:
    """Return the last chunk, and how many of its bytes were in use when the header was read.

    In the file a writer's tail lies a little behind its last record (`loaderx.store.session`). The chunk ends with that
    record, unless the writer is about to append another.
    """
    n_bytes = chunks[header.tail_chunk].size()
    end = header.tail_offset
    # (At the end of a chunk there is no room to leave.)
    if n_bytes >= end and end < MAX_OFFSET and os.path.lexists(store / MARK):
        end -= TAIL_ROOM
    return header.tail_chunk, min(end, n_bytes)


def _long_enough(store: Path, table: FileMap, length: int, mapped: bool) -> FileMap:
    """Return a map of the table that reaches to so many records, the same one where it does."""
    if entry_at(length) <= table.capacity:
        return table
    with errors_named(store, "open the store"):
        return FileMap(store / META, entry_at(room_for(length)), mapped)


def can_be_longer(old: Snapshot, length: int) -> bool:
    """Return whether the maps of a snapshot's table and sums reach to so many records."""
    return entry_at(length) <= old.table.capacity and (
        old.sums is None or sums_bytes(length) <= old.sums.capacity
    )


def longer(old: Snapshot, header: Header) -> Snapshot:
    """Return a snapshot of the same files with more records (`can_be_longer`).

    Parameters
    ----------
    old : Snapshot
    header : Header
        Without the room of the session that has appended them.
    """
    return Snapshot(
        old.table,
        old.chunks,
        header.length,
        old.dictionary,
        old.gate,
        old.max_record_bytes,
        old.sums,
        old.max_codec,
        old.dictionary_is_damaged,
        header.tail,
    )


def _sums(store: Path, view: View, table: FileMap, mapped: bool) -> FileMap | None:
    """Return the sums to compare records with: the file, or a private copy without what is not to be trusted.

    Parameters
    ----------
    store : pathlib.Path
    view : View
    table : FileMap
        `meta.zr` itself.
    mapped : bool
    """
    sums = open_sums(store, sums_bytes(room_for(view.header.length)), mapped=mapped)
    if sums is None:
        return None
    gone = np.empty(0, np.int64)
    for look in range(_MARK_LOOKS):
        mark = unpack_mark(sums.read(0, sums_bytes(0)))
        if mark is not None and mark.header == read_header(store, table):
            break
        if look + 1 < _MARK_LOOKS:
            time.sleep(0.001)
    else:
        if mark is None:
            return None  # these sums say nothing
        strange, _ = strangers(store, view.table, sums, view.header.length)
        gone = np.setdiff1d(strange, view.touched)
    if len(gone) == len(view.touched) == 0:
        return sums
    slots = read_slots(sums, np.arange(view.header.length))
    slots[gone] = np.zeros((), SUM)
    shown = view.touched < view.header.length
    slots[view.touched[shown]] = view.slots[shown]
    return recovery.private_map(bytes(sums_bytes(0)) + slots.tobytes(), mapped)


def _good_chunks(store: Path, old: Snapshot, n_chunks: int) -> tuple[FileMap, ...]:
    """Return the first chunks of a snapshot, up to one whose name another handle has given to a new file."""
    good = []
    with errors_named(store, "look at its chunks"):
        for chunk, opened in enumerate(old.chunks[:n_chunks]):
            if not opened.is_at(store / chunk_name(chunk)):
                break
            good.append(opened)
    return tuple(good)


def _open_chunks(
    store: Path, opened: tuple[FileMap, ...], n_chunks: int, mapped: bool
) -> tuple[FileMap, ...]:
    chunks = list(opened)
    for chunk in range(len(opened), n_chunks):
        with errors_named(store, f"open chunk {chunk}"):
            try:
                chunks.append(FileMap(store / chunk_name(chunk), CHUNK_BYTES, mapped))
            except FileNotFoundError:
                raise CorruptRecordError(
                    f"{store}: {chunk_name(chunk)} is missing: the header says the store has chunks 0 to "
                    f"{n_chunks - 1}. Restore the file from a copy",
                    store=store,
                    chunk=chunk,
                ) from None
    return tuple(chunks)
