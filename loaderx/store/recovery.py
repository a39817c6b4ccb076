"""What a crash left half-done, and what a store is once that is seen to.

Two things can be left. A journal: a delete or a move of records that was cut off. It is carried out again. And the mark
of a session that never ended: as long as the machine has not been started anew, all it committed is there. After that
nobody knows what reached the disk, and the session's records are looked at one by one, up to the first that is not what
its sum says; the rest is cut off.

Unless another program, which knows of no marks, has written since. Then the session's process had been killed, not the
machine, and everything is kept. It shows in one of three ways (`_is_foreign`), none of which a power loss can bring
about, for a session writes each slot of the table once, into zeros, each record where the one before ends, and a tail
that lies one byte further.

Whoever may change the store does this on disk. Whoever may not does it in memory, and touches no file.
"""

from __future__ import annotations

import os
import warnings
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from loaderx._core.checksum import checksums
from loaderx._core.maps import FileMap
from loaderx._core.threads import available_cpus
from loaderx.errors import StoreWarning
from loaderx.store import files, journal, locks, mark
from loaderx.store.format import JOURNAL, MARK, MAX_OFFSET, SUM, chunk_name
from loaderx.store.header import Header, read_format, read_header, write_length, write_tail
from loaderx.store.journal import Journal
from loaderx.store.rows import byte_blocks
from loaderx.store.session import Session, is_writer_here
from loaderx.store.sums import move_mark, moved_slots, new_slots, open_sums, read_slots, sums_bytes
from loaderx.store.table import places, read_entries, read_table, stretches

# Stored bytes read at a time to be compared with their sums.
_BLOCK_BYTES = 4 << 20


@dataclass(frozen=True, slots=True)
class Recovery:
    """What was done about a crash.

    Attributes
    ----------
    cut : range
        The indices of the records that had not reached the disk whole when the machine stopped. They are not shown.
    finished : bool
        Whether a delete or a compaction that was cut off was carried out.
    on_disk : bool
        Whether the store's files were mended, or only what this handle shows of them.
    """

    cut: range
    finished: bool
    on_disk: bool


@dataclass(frozen=True, slots=True)
class View:
    """A store as it is to be read.

    Attributes
    ----------
    header : Header
    table : FileMap
        `meta.zr`, or a private copy of it in which a change is carried out.
    moved : FileMap or None
        The journal, where records are read from it: as one more chunk.
    touched : ndarray of int64
        The records whose entries differ from the file's,
    slots : ndarray of SUM
        and their sums.
    recovery : Recovery or None
    """

    header: Header
    table: FileMap
    moved: FileMap | None
    touched: npt.NDArray[np.int64]
    slots: npt.NDArray[np.void]
    recovery: Recovery | None


def is_needed(store: Path) -> bool:
    """Return whether a crash left something to be seen to."""
    return journal.exists(store) or _lost_session(store) is not None


def look(store: Path, table: FileMap, header: Header, *, mapped: bool) -> View:
    """Return a store as it is to be read, without changing a file.

    Parameters
    ----------
    store : pathlib.Path
    table : FileMap
    header : Header
        As it is in the file.
    mapped : bool
        As in `open_store`.
    """
    moved: FileMap | None = None
    touched, slots = np.empty(0, np.int64), np.empty(0, SUM)
    finished = False
    if journal.exists(store) and (change := journal.load(store)) is not None:
        if journal.fits(change, header, table):
            finished = True
            touched, slots = change.rows["index"], change.rows["new_sum"]
            if len(change.data) and not journal.is_moved(change, table):
                moved = FileMap(store / JOURNAL, journal.data_at(change) + len(change.data), mapped)
            table = _patched(store, table, header, change, moved is not None, mapped)
            header = read_header(store, table)
            if moved is not None:
                slots = moved_slots(slots, change.rows["new"], read_entries(table, touched))
        else:
            journal.warn_not_followed(store, "Whoever next changes the store sets it aside")
    cut = range(header.length, header.length)
    lost = _lost_session(store)
    if lost is not None:
        kept = _kept(store, table, header, lost.base)
        cut = range(kept.length, header.length)
        header = kept
        _warn_of_cut(store, cut, on_disk=False)
    recovery = Recovery(cut, finished, False) if finished or cut else None
    return View(header, table, moved, touched, slots, recovery)


def recover(store: Path, session: Session) -> Recovery | None:
    """See to what a crash left, on disk. The caller is the store's writer and holds it alone.

    Raises
    ------
    StoreIOError
    """
    finished = False
    opened = session.files
    with files.errors_named(store, "mend it after a crash", "open it again once the reason is gone"):
        if journal.exists(store):
            change = journal.load(store)
            if change is None:
                journal.remove(store)  # it was not whole, so its change had not begun
            elif journal.fits(change, session.header(), opened.table):
                journal.sync(store)  # its writer may have been killed before it did
                journal.carry_out(opened, change, session.header())
                journal.remove(store)
                finished = True
            else:
                journal.set_aside(store)
        header = session.header()
        cut = range(header.length, header.length)
        left = mark.read_mark(store)
        if left is not None and left.boot != mark.boot_id():
            kept = _kept(store, opened.table, header, left.base)
            cut = range(kept.length, header.length)
            if cut:
                write_length(opened.meta, kept.length)
                if opened.sums is not None:
                    move_mark(opened.sums, kept)
                write_tail(opened.meta, header, kept)
            opened.sync_chunks_from(left.base.tail_chunk, kept.tail_chunk)
            opened.sync_rows()
            session.drop_mark()
    _warn_of_cut(store, cut, on_disk=True)
    return Recovery(cut, finished, True) if finished or cut else None


def _lost_session(store: Path) -> mark.Mark | None:
    """Return the mark of a session whose records may not have reached the disk; None where there is none."""
    if not os.path.lexists(store / MARK):
        return None
    left = mark.read_mark(store)
    if left is None or left.boot == mark.boot_id():
        return None
    # A writer on another machine has another boot, and lives. One of this process has yet to see to it.
    return left if is_writer_here(store) or not locks.has_writer(store) else None


def _kept(store: Path, table: FileMap, header: Header, base: Header) -> Header:
    """Return the header of what is whole of a session's records, after the machine was started anew."""
    if header.length <= base.length:
        return header
    entries = read_table(store, table, header.length, base.length)
    sums = open_sums(store, sums_bytes(header.length), mapped=False)
    indices = np.arange(base.length, header.length)
    slots = np.zeros(len(indices), SUM) if sums is None else read_slots(sums, indices)
    begins = places(entries)
    ends = begins + entries["phys_length"]
    ends_before = np.concatenate([[(base.tail_chunk << 32) + base.tail_offset], ends[:-1]])
    # Where the one before ends, or at the beginning of the next chunk.
    next_chunk = ((ends_before >> 32) + 1) << 32
    in_line = np.logical_or(begins == ends_before, begins == next_chunk)
    words = entries.view(np.uint64).reshape(-1, 2)
    written = np.logical_or(words[:, 0] != 0, words[:, 1] != 0)
    tags = new_slots(entries, slots["checksum"])["tag"]
    whole = in_line & (slots["tag"] == tags)
    tags_differ = np.logical_and(slots["tag"] != 0, slots["tag"] != tags)
    if _is_foreign(header, entries, ends, ends_before, in_line, written, tags_differ):
        return header
    n_whole = len(entries) if whole.all() else int(np.argmin(whole))
    n_kept = _count_whole(store, entries[:n_whole], slots[:n_whole]) if n_whole else 0
    if n_kept == len(entries):
        return header
    end = int(ends[n_kept - 1]) if n_kept else (base.tail_chunk << 32) + base.tail_offset
    return Header(end >> 32, end & 0xFFFFFFFF, base.length + n_kept)


def _is_foreign(
    header: Header,
    entries: npt.NDArray[np.void],
    ends: npt.NDArray[np.int64],
    ends_before: npt.NDArray[np.int64],
    in_line: npt.NDArray[np.bool_],
    written: npt.NDArray[np.bool_],
    tags_differ: npt.NDArray[np.bool_],
) -> bool:
    """Return whether another program than the session has written to these entries, or behind them."""
    # 1. A record that was moved to another slot, or written where a sum says another was.
    if np.any(written & tags_differ):
        return True
    # 2. A record that does not begin where the one before it ends, but behind the room.
    before_written = np.concatenate([[True], written[:-1]])
    if np.any(written & before_written & ~in_line):
        return True
    # 3. A tail without room. (It is never nearer: the length is written after the tail, into the same sector.) Only
    # behind the longest record of all there is none; other programs write none that long.
    last = max(int(ends[written].max(initial=0)), int(ends_before[0]))
    if np.any(written & (entries["phys_length"] == MAX_OFFSET) & (ends == last)):
        return False
    return (header.tail_chunk << 32) + header.tail_offset == last


def _count_whole(store: Path, entries: npt.NDArray[np.void], slots: npt.NDArray[np.void]) -> int:
    """Return how many records, from the first on, have the bytes that their sums say."""
    sizes = entries["phys_length"].astype(np.int64)
    done = 0
    for begin, end in byte_blocks(sizes, _BLOCK_BYTES):
        stored = bytearray()
        for chunk, offset, n_bytes in stretches(entries[begin:end]):
            try:
                file = files.open_to_read(store / chunk_name(chunk))
            except FileNotFoundError:
                break
            with files.opened(file) as descriptor:
                piece = files.read_pieces({chunk: descriptor}.__getitem__, [(chunk, offset, n_bytes)])
            stored += piece
            if len(piece) < n_bytes:
                break
        found = np.zeros(end - begin, np.uint32)
        starts = np.cumsum(sizes[begin:end]) - sizes[begin:end]
        there = starts + sizes[begin:end] <= len(stored)
        n_there = len(there) if there.all() else int(np.argmin(there))
        checksums(
            memoryview(stored),
            starts[:n_there],
            sizes[begin : begin + n_there].astype(np.uint32),
            found[:n_there],
            available_cpus(),
        )
        good = there & (found == slots["checksum"][begin:end])
        if not good.all():
            return done + int(np.argmin(good))
        done += end - begin
    return done


def _patched(
    store: Path, table: FileMap, header: Header, change: Journal, from_journal: bool, mapped: bool
) -> FileMap:
    """Return a private copy of the table in which a change is carried out.

    Where their bytes are not at their new places yet, records are read from the journal: the chunk behind the last.
    """
    entries = read_table(store, table, header.length)
    rows = change.rows
    entries[rows["index"]] = rows["new"]
    if from_journal:
        sizes = rows["new"]["phys_length"].astype(np.int64)
        entries["offset"][rows["index"]] = journal.data_at(change) + np.cumsum(sizes) - sizes
        entries["chunk_id"][rows["index"]] = header.tail_chunk + 1
    after = header if change.old == change.new else change.new
    version, _ = read_format(store, table)
    return private_map(after.pack(version) + entries[: after.length].tobytes(), mapped)


def private_map(data: bytes, mapped: bool) -> FileMap:
    """Return a map of bytes that are in no file."""
    with files.private_file(data) as descriptor:
        return FileMap(f"/dev/fd/{descriptor}", len(data), mapped)


def _warn_of_cut(store: Path, cut: range, *, on_disk: bool) -> None:
    if cut:
        how = (
            "They were cut off"
            if on_disk
            else "They are not shown; whoever next opens the store to change it cuts them off"
        )
        warnings.warn(
            f"{store}: the machine stopped while records were being appended, and {len(cut)} of them, {cut.start} to "
            f"{cut.stop - 1}, had not reached the disk whole. {how}: append them again. (What sync() and close() "
            "return from has reached the disk.)",
            StoreWarning,
            stacklevel=2,
        )
