"""The journal: `journal.zr`, a change of entries and bytes that is finished once it was begun.

It holds every touched table entry as it was and as it will be, the header before and after, the slots of the sums, and
for a move the records' bytes. It reaches the disk before the change begins, and goes when the change has: so a change
that was cut off can be carried out again from its start, as often as it takes.
"""

from __future__ import annotations

import os
import secrets
import struct
import warnings
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

import numpy as np
import numpy.typing as npt

from loaderx._core.checksum import checksum
from loaderx._core.maps import FileMap, OpenFile
from loaderx.errors import StoreIOError, StoreWarning
from loaderx.store import files
from loaderx.store.descriptors import Descriptors
from loaderx.store.format import JOURNAL, RECORD, SUM
from loaderx.store.header import Header, write_length, write_tail
from loaderx.store.sums import move_mark, write_slots
from loaderx.store.table import read_entries, same_entries, stretches, write_entries

ROW = np.dtype([("index", "<i8"), ("old", RECORD), ("new", RECORD), ("old_sum", SUM), ("new_sum", SUM)])

# Magic, version, rows, bytes of data; the header before and after (chunk, byte, length); checksums of rows, data, and
# of all of this before the last.
_HEAD = struct.Struct("<4sIQQIQQIQQIII")
_MAGIC = b"ZJNL"
_VERSION = 1


@dataclass(frozen=True, slots=True)
class Journal:
    """A change.

    Attributes
    ----------
    old, new : Header
    rows : ndarray of ROW, shape (n,)
        The touched entries.
    data : memoryview of bytes
        Of the records in `rows`, in their order, where they move; empty where only entries change.
    """

    old: Header
    new: Header
    rows: npt.NDArray[np.void]
    data: memoryview


def data_at(journal: Journal) -> int:
    """Return the byte of the file at which the data begins."""
    return _HEAD.size + journal.rows.nbytes


class Keeper:
    """Keeps the journal of one change after the other, and removes its file at the end of a ``with`` block.

    Unless a staged change is not `done` then, whatever cut it off: whoever next changes the store finishes it.

    Parameters
    ----------
    store : pathlib.Path
    """

    def __init__(self, store: Path) -> None:
        self._store = store
        self._file: OpenFile | None = None
        self._in_change = False

    def __enter__(self) -> Keeper:
        self._file = files.create(self._store / JOURNAL)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._file is not None
        self._file.close()
        if self._in_change:
            return
        try:
            remove(self._store)
        except OSError as refusal:
            if error is None:
                raise StoreIOError(
                    f"{self._store}: the change is done, but its {JOURNAL} could not be removed: {refusal.strerror}; "
                    "the next change does it",
                    store=self._store,
                    path=self._store / JOURNAL,
                    errno=refusal.errno,
                ) from refusal

    def stage(self, change: Journal) -> None:
        """Write a change into the journal, so that it has reached the disk when this returns."""
        assert self._file is not None
        _stage(self._file.fileno(), self._store, change)
        self._in_change = True

    def done(self) -> None:
        """The staged change was carried out, or taken back: it has reached the disk."""
        self._in_change = False

    def left_undone(self, what: str, error: OSError) -> StoreIOError:
        """Return the error that says that the journal is left to whoever next opens the store."""
        return StoreIOError(
            f"{self._store}: could not {what}, and is in the middle of it: {error}. Its {JOURNAL} is kept: reads are "
            "right, and the next to open the store for a change finishes it",
            store=self._store,
            errno=error.errno,
        )


def _stage(descriptor: int, store: Path, journal: Journal) -> None:
    rows = np.ascontiguousarray(journal.rows).view(np.uint8).data
    old, new = journal.old, journal.new
    head = _HEAD.pack(
        _MAGIC,
        _VERSION,
        len(journal.rows),
        len(journal.data),
        old.tail_chunk,
        old.tail_offset,
        old.length,
        new.tail_chunk,
        new.tail_offset,
        new.length,
        checksum(rows),
        checksum(journal.data),
        0,
    )[:-4]
    head += struct.pack("<I", checksum(head))
    # The head last: what is torn is no journal, and the change has not begun.
    files.write_at(descriptor, rows, _HEAD.size)
    files.write_at(descriptor, journal.data, data_at(journal))
    files.write_at(descriptor, head, 0)
    files.set_size(descriptor, data_at(journal) + len(journal.data))
    files.sync(descriptor)
    files.sync_directory(store)


def load(store: Path) -> Journal | None:
    """Return the journal that a change left behind; None where there is none, or it is not whole."""
    with files.errors_named(store, f"read {JOURNAL}"):
        head = files.read_beginning(store / JOURNAL, _HEAD.size)
        if head is None or len(head) < _HEAD.size:
            return None
        magic, version, n_rows, n_bytes, *fields, rows_check, data_check, check = _HEAD.unpack(head)
        if magic != _MAGIC or version != _VERSION or check != checksum(head[:-4]):
            return None
        rows_end = _HEAD.size + n_rows * ROW.itemsize
        data = files.read_beginning(store / JOURNAL, rows_end + n_bytes)
    if data is None or len(data) < rows_end + n_bytes:
        return None
    view = memoryview(data)
    rows, moved = view[_HEAD.size : rows_end], view[rows_end : rows_end + n_bytes]
    if checksum(rows) != rows_check or checksum(moved) != data_check:
        return None
    old = Header(fields[0], fields[1], fields[2])
    new = Header(fields[3], fields[4], fields[5])
    return Journal(old, new, np.frombuffer(rows, ROW), moved)


def fits(journal: Journal, header: Header, table: FileMap) -> bool:
    """Return whether a store is in the middle of this change: everything it touches is as before or as after.

    Where it is not, another program has changed the store since, which knows of no journals. A program that has only
    appended has touched nothing that a move of records touches, and the move is still to be finished: some of the
    records may be half over their old places.
    """
    if not _is_possible(journal, header):
        return False
    entries = read_entries(table, journal.rows["index"])
    is_new = same_entries(entries, journal.rows["new"])
    if not np.all(is_new | same_entries(entries, journal.rows["old"])):
        return False
    if journal.old == journal.new:
        return header.tail >= journal.old.tail
    # The entries reach the disk before the header does.
    return header == journal.old or (header == journal.new and bool(np.all(is_new)))


def _is_possible(journal: Journal, header: Header) -> bool:
    """Return whether this is a change that a delete or a compaction of this store can be."""
    indices, old, new = journal.rows["index"], journal.rows["old"], journal.rows["new"]
    if journal.new.tail != journal.old.tail or journal.new.length > journal.old.length:
        return False
    if len(indices) and not 0 <= int(indices.min()) <= int(indices.max()) < header.length:
        return False
    if len(np.unique(indices)) < len(indices) or np.any(new["chunk_id"] > header.tail_chunk):
        return False
    if journal.old != journal.new:
        return len(journal.data) == 0
    stays = all(
        np.array_equal(old[name], new[name]) for name in ("phys_length", "logic_length", "codec", "reserved")
    )
    return stays and len(journal.data) == int(new["phys_length"].sum(dtype=np.int64))


def is_moved(journal: Journal, table: FileMap) -> bool:
    """Return whether the bytes are at their new places: they had reached the disk before the first entry changed."""
    return bool(np.any(same_entries(read_entries(table, journal.rows["index"]), journal.rows["new"])))


def carry_out(descriptors: Descriptors, journal: Journal, header: Header) -> None:
    """Do what a staged journal says, from its start, so that it has reached the disk when this returns.

    Parameters
    ----------
    descriptors : Descriptors
    journal : Journal
    header : Header
        As it is in the file now.
    """
    rows = journal.rows
    if len(journal.data) and not is_moved(journal, descriptors.table):
        files.write_pieces(descriptors.chunk, stretches(rows["new"]), journal.data)
        descriptors.sync_chunks()
    _write_rows(descriptors, rows, "new", "new_sum")
    if journal.old != journal.new:
        _write_header(descriptors, header, journal.new)


def take_back(descriptors: Descriptors, journal: Journal, header: Header) -> None:
    """Undo a journal that moves no bytes, as far as it was carried out, so that this has reached the disk."""
    # The header first: after it, entries as before and as after may lie side by side (`fits`).
    _write_header(descriptors, header, journal.old)
    _write_rows(descriptors, journal.rows, "old", "old_sum")


def _write_rows(descriptors: Descriptors, rows: npt.NDArray[np.void], entry: str, slot: str) -> None:
    by_index = rows[np.argsort(rows["index"])]
    if descriptors.sums is not None:
        write_slots(descriptors.sums, by_index["index"], by_index[slot])
    write_entries(descriptors.meta, by_index["index"], by_index[entry])
    descriptors.sync_rows()


def _write_header(descriptors: Descriptors, now: Header, then: Header) -> None:
    if descriptors.sums is not None:
        move_mark(descriptors.sums, then)
    write_tail(descriptors.meta, now, then)
    write_length(descriptors.meta, then.length)
    descriptors.sync_rows()


def remove(store: Path) -> None:
    """Remove the journal of a change that is done, so that it is gone from the disk when this returns."""
    files.discard(store / JOURNAL)
    files.sync_directory(store)


def sync(store: Path) -> None:
    """Have a journal that is there reach the disk, with its name."""
    with files.opened(files.open_for_change(store / JOURNAL)) as descriptor:
        files.sync(descriptor)
    files.sync_directory(store)


def set_aside(store: Path) -> None:
    """Give a journal that does not fit another name, for whoever wants to look into it."""
    aside = store / f"journal-aside-{secrets.token_hex(4)}.zr"
    files.rename(store / JOURNAL, aside)
    files.sync_directory(store)
    warn_not_followed(store, f"It was set aside as {aside.name}")


def warn_not_followed(store: Path, what_now: str) -> None:
    """Warn that a journal was not carried out."""
    warnings.warn(
        f"{store}: {JOURNAL} holds a change that was cut off, but the store has been changed by another program since, "
        f"so it was not carried out. {what_now}. Check the records with `python -m loaderx verify`",
        StoreWarning,
        stacklevel=2,
    )


def exists(store: Path) -> bool:
    """Return whether a change left a journal, whole or not."""
    return os.path.lexists(store / JOURNAL)
