"""The right to change a store, from a handle's first change to its end, and what that right needs on disk.

Before its first append a session has everything reach the disk that is there, and makes a durable mark (`mark.zr`) that
says so; at its end everything has reached the disk, and the mark goes. In between, the header's tail lies one byte
behind the last record. Our own next record goes to where that one ends; another program's, which knows only the
header, leaves the byte free. So after a power loss the records of another program can be told from those of this
session that did not reach the disk (`loaderx.store.recovery`).
"""

from __future__ import annotations

import os
import weakref
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from loaderx._core.maps import FileMap
from loaderx.errors import CorruptRecordError, StoreIOError
from loaderx.store import files, locks
from loaderx.store.descriptors import Descriptors
from loaderx.store.dictionary import dictionary_tag, first_dependent, is_another, load, read_dictionary
from loaderx.store.format import (
    DICTIONARY,
    HEADER,
    LOCK,
    MARK,
    MAX_OFFSET,
    META,
    META_BYTES,
    NARROW,
    OWN_FILES,
    SUM,
    SUMS,
    TAIL_ROOM,
    Version,
    chunk_name,
    chunk_number,
    entry_at,
)
from loaderx.store.header import Header, read_format, write_length, write_tail, write_version
from loaderx.store.mark import read_mark, write_mark
from loaderx.store.sums import SumsMark, pack_mark, strangers, sums_bytes, unpack_mark, write_slots
from loaderx.store.table import table_blocks

# Bytes of the table that are looked at at once for what is left beyond its end.
_BLOCK_BYTES = 1 << 20

_sessions: weakref.WeakSet[Session] = weakref.WeakSet()


@dataclass(frozen=True, slots=True)
class _Stock:
    """What there is before a session changes it: the header with a tail behind every record, whether the sums are the
    store's as it is, their mark where there are any, and which of them are another record's."""

    header: Header
    is_ours: bool
    mark: SumsMark | None
    gone: npt.NDArray[np.int64]


class Session:
    """A writer's hold on a store.

    Parameters
    ----------
    store : pathlib.Path
    timeout_s : float
        How long to wait for another process that is the writer.
    staged : bool
        The store is being built where nobody looks, and reaches the disk as a whole or not at all: no lock, no mark.

    Attributes
    ----------
    files : Descriptors

    Raises
    ------
    StoreLockedError, StoreIOError

    Notes
    -----
    Not safe in several threads at once; the handle sees to that.
    """

    def __init__(self, store: Path, timeout_s: float, *, staged: bool = False) -> None:
        self._store = store
        self._staged = staged
        self._lock: locks.Hold | None = None
        # Whether appends may begin; whether there is a mark of this session; the bytes of room in the file's header;
        # and the header without them, where this session wrote it last.
        self._begun = False
        self._marked = False
        self._room = 0
        self._header: Header | None = None
        self._header_bytes = b""
        self._version = NARROW
        # Of the dictionary, for the sums' mark.
        self._dictionary = 0
        if not staged:
            self._lock = locks.hold_for_writing(store, timeout_s, lambda: is_writer_here(store))
            _sessions.add(self)
        try:
            with files.errors_named(store, "open it for writing"):
                self.files = Descriptors(store)
        except BaseException:
            if self._lock is not None:
                self._lock.close()
            raise
        self._end = weakref.finalize(self, _let_go, self.files, self._lock)
        self._end.atexit = False

    def header(self) -> Header:
        """Return the header as it is now, without this session's room."""
        if self.is_ready():
            assert self._header is not None
            return self._header
        self._version, found = read_format(self._store, self.files.table)
        if self._header is not None and found == self._in_file(self._header):
            return self._header
        # Another program has changed the store, which knows of no locks; or this session has not begun.
        self._begun = False
        self._room = 0
        self._header = None
        return found

    @property
    def version(self) -> Version:
        """The format version of the store, as `header` last found it or `commit` left it."""
        return self._version

    def check_place(self) -> None:
        """Raise `StoreIOError` where the store is no longer at its path.

        Its files are open, and others are found by their names: a change would be made to two stores, by halves.
        """
        if not self.files.table.is_at(self._store / META):
            raise StoreIOError(
                f"{self._store}: the store was moved away, removed or replaced since this handle began to change it, "
                "so it is changed no further: close the handle, and open the store where it is now",
                store=self._store,
                path=self._store / META,
            )

    def is_ready(self) -> bool:
        """Return whether appends may begin and nobody else has changed the store since the last one."""
        return self._begun and os.pread(self.files.meta, HEADER.itemsize, 0) == self._header_bytes

    def begin(self) -> Header:
        """Make the store ready to be appended to, and return its header, without room.

        Notes
        -----
        Nothing to do from the second append on, unless one was taken back in between.
        """
        header = self.header()
        if self._begun:
            return header
        with files.errors_named(self._store, "begin to write", "the store is as it was before"):
            found, stock = header, self._look_through(header)
            header = stock.header
            self._check_chunk(header)
            if not self._staged and os.path.lexists(self._store / MARK):
                # A killed session's. Nothing that it or another program left is changed while it is there: a machine
                # that stops in between would leave it to be judged by half of the evidence.
                left = read_mark(self._store)
                self.files.sync_chunks_from(0 if left is None else left.base.tail_chunk, header.tail_chunk)
                self.files.sync_rows()
                self.drop_mark()
            self._adopt(found, stock, create=True)
            self._sweep(header)
            self._clear_beyond(header.length)
            self._fit_sums(header.length)
            self._set_room(header, 0 if self._staged else TAIL_ROOM)
            if not self._staged:
                self.files.sync_chunks_from(header.tail_chunk, header.tail_chunk)
                self.files.sync_rows()
                self._marked = True
                write_mark(self._store, header)
        self._note(header)
        self._begun = True
        return header

    def open_sums(self) -> FileMap | None:
        """Open `sums.zr` for reading; None where there is none.

        Where somebody has removed or replaced it, the session has none any more: the one it had is let go of.
        """
        if not self.files.has_sums():
            self.files.drop_sums()
            return None
        return FileMap(self._store / SUMS, sums_bytes(0), False)

    def commit(self, header: Header, version: Version) -> None:
        """Make what was appended visible: the sums' mark, the version, the tail, and last the length."""
        assert self.files.sums is not None and self._header is not None, "the session has begun"
        now, then = self._in_file(self._header), self._in_file(header)
        files.write_at(self.files.sums, pack_mark(then, self._dictionary), 0)
        if version != self._version:
            write_version(self.files.meta, version)
            self._version = version
        write_tail(self.files.meta, now, then)
        write_length(self.files.meta, then.length)
        self._note(header)

    def take_back(self, header: Header, version: Version) -> None:
        """Have the header be what it was before an append, whatever of it was changed. The next one begins anew."""
        self._begun = False
        self._header = header
        (now_version, now), then = read_format(self._store, self.files.table), self._in_file(header)
        if now.length != then.length:
            write_length(self.files.meta, then.length)
        write_tail(self.files.meta, now, then)
        if now_version != version:
            write_version(self.files.meta, version)
        self._version = version

    def take_back_sums(self) -> None:
        """Have the sums be what they were, after `take_back`. Where this is refused, nothing is lost but time."""
        if self.files.sums is not None and self._header is not None:
            files.set_size(self.files.sums, sums_bytes(self._header.length))
            files.write_at(self.files.sums, pack_mark(self._in_file(self._header), self._dictionary), 0)

    def takes_dictionary(self, content: bytes) -> bool:
        """Return whether records may be compressed with this dictionary: no others need one with other bytes.

        Notes
        -----
        Where it is not the one that is known, it is from then on, on disk too.
        """
        if dictionary_tag(content) == self._dictionary:
            return True
        _, header = read_format(self._store, self.files.table)
        if self._dictionary and first_dependent(self._store, self.files.table, header.length) is not None:
            return False
        with files.errors_named(self._store, "take its dictionary", "the store is as it was before"):
            self._sync_dictionary()
            self.note_dictionary(content)
        return True

    def note_dictionary(self, content: bytes) -> None:
        """Have the sums' mark name a dictionary, which has reached the disk; so has the mark when this returns.

        Before any record is compressed with it: a recovery gives the mark another length, and keeps the tag it has.
        """
        self._dictionary = dictionary_tag(content)
        if not self.files.has_sums():
            return  # the next append makes them
        assert self.files.sums is not None, "they are there"
        mark = unpack_mark(os.pread(self.files.sums, sums_bytes(0), 0))
        if mark is not None:
            files.write_at(self.files.sums, pack_mark(mark.header, self._dictionary), 0)
            files.sync(self.files.sums)

    def settle(self) -> Header:
        """Have everything reach the disk, end the mark, and return the header. For changes that keep a journal."""
        header = self.header()
        with files.errors_named(self._store, "make it reach the disk", "the store is as it was before"):
            if self._begun:
                self.files.sync_chunks()
            elif (left := read_mark(self._store)) is not None:
                self.files.sync_chunks_from(min(left.base.tail_chunk, header.tail_chunk), header.tail_chunk)
            self.files.sync_rows()
            self.drop_mark()
            self._begun = False
            if self._room:
                self._set_room(header, 0)  # without the mark nobody asks for it
                self.files.sync_rows()
            stock = self._look_through(header)
            self._adopt(header, stock, create=False)
            return stock.header

    def trim(self) -> None:
        """Put the tail behind the last of all records: what a killed writer left there is let go.

        The room of its session, and the tail of an append that it did not commit.
        """
        header = self.settle()
        end = 0, 0
        with files.errors_named(self._store, "put its tail behind its records", "every record is there"):
            for _, entries in table_blocks(self._store, self.files.table, header.length):
                chunk = int(entries["chunk_id"].max())
                there = entries[entries["chunk_id"] == chunk]
                end = max(end, (chunk, int((there["offset"].astype(np.int64) + there["phys_length"]).max())))
            if end >= header.tail:
                return
            then = Header(*end, header.length)
            if self.files.sums is not None:
                files.write_at(self.files.sums, pack_mark(then, self._dictionary), 0)
            write_tail(self.files.meta, header, then)
            self.files.sync_rows()
            self._header = then

    def sync(self) -> None:
        """Have everything that is committed reach the disk, and let the mark say so."""
        header = self.header()
        with files.errors_named(self._store, "make it reach the disk"):
            self.files.sync_chunks_from(0, header.tail_chunk)
            self.files.sync_rows()
            if self._begun and not self._staged:
                write_mark(self._store, header)

    def close(self) -> None:
        """End the session: everything reaches the disk, the mark goes, the lock is let go.

        Raises
        ------
        StoreIOError
            Something did not reach the disk, or the store is no longer at its path. The mark stays, and the lock is let
            go all the same.
        """
        try:
            if self._marked:
                self.check_place()
                self.settle()
            if self._lock is not None:
                with files.errors_named(self._store, "let the writer's lock go"):
                    files.set_size(self._lock.fileno(), 0)
        finally:
            self.forget()

    def forget(self) -> None:
        """Close every file and do nothing else: what is on disk is another process's, or stays as it is."""
        self._end()
        self._lock = None
        _sessions.discard(self)

    def _in_file(self, header: Header) -> Header:
        """Return the header that is in the file while the session's is this one."""
        return Header(header.tail_chunk, min(header.tail_offset + self._room, MAX_OFFSET), header.length)

    def _note(self, header: Header) -> None:
        """Note what the session has left in the file."""
        self._header = header
        self._header_bytes = self._in_file(header).pack(self._version)

    def _set_room(self, header: Header, room: int) -> None:
        """Have the tail in the file lie so many bytes behind the session's."""
        now = self._in_file(header)
        self._room = room
        self._header = header
        then = self._in_file(header)
        if self.files.sums is not None:
            files.write_at(self.files.sums, pack_mark(then, self._dictionary), 0)
        write_tail(self.files.meta, now, then)

    def drop_mark(self) -> None:
        """End the mark, so that it is gone from the disk when this returns."""
        if os.path.lexists(self._store / MARK):
            files.discard(self._store / MARK)
            files.sync_directory(self._store)
        self._marked = False

    def _look_through(self, header: Header) -> _Stock:
        """Find out whether another program has changed the store since the sums were written. Changes no file."""
        sums = self.open_sums()
        mark = None if sums is None else unpack_mark(sums.read(0, sums_bytes(0)))
        self._dictionary = self._tag_for(header, mark)
        if mark is not None and mark.header == self._in_file(header):
            return _Stock(header, True, mark, np.empty(0, np.int64))
        # A mark that is damaged, or another release's: these sums say nothing.
        usable = None if mark is None else sums
        gone, end = strangers(self._store, self.files.table, usable, header.length)
        return _Stock(Header(*max(header.tail, end), header.length), False, mark, gone)

    def _tag_for(self, header: Header, mark: SumsMark | None) -> int:
        """Return the tag of the dictionary that records need, or will: the one that is known, else of what is there."""
        known = 0 if mark is None else mark.dictionary
        content = read_dictionary(self._store)
        if content is None or known == dictionary_tag(content) or load(content) is None:
            return known
        if is_another(self._store, self.files.table, header.length, content, mark):
            return known
        self._sync_dictionary()
        return dictionary_tag(content)

    def _sync_dictionary(self) -> None:
        """Have the dictionary reach the disk, which another program may have written."""
        if not self._staged:
            with files.opened(files.open_to_read(self._store / DICTIONARY)) as descriptor:
                files.sync(descriptor)
            files.sync_directory(self._store)

    def _adopt(self, header: Header, stock: _Stock, *, create: bool) -> None:
        """Let go of the sums of records that another program has written, and have a tail behind every record.

        The mark gets the dictionary's tag with it: its length must not come to reach over records that another
        program has compressed with another dictionary while it names the old one.

        Parameters
        ----------
        header : Header
            As it is but for the room.
        stock : _Stock
        create : bool
            Make `sums.zr` where there is none.
        """
        if stock.is_ours:
            if self.files.sums is not None and stock.mark != SumsMark(
                self._in_file(header), self._dictionary
            ):
                files.write_at(self.files.sums, pack_mark(self._in_file(header), self._dictionary), 0)
            return
        now, then = self._in_file(header), self._in_file(stock.header)
        if stock.mark is None and os.path.lexists(self._store / SUMS):
            self.files.drop_sums()
            files.unlink(self._store / SUMS)
        if self.files.sums is not None:
            write_slots(self.files.sums, stock.gone, np.zeros(len(stock.gone), SUM))
            files.write_at(self.files.sums, pack_mark(then, self._dictionary), 0)
        elif create:
            files.write_new(self._store / SUMS, pack_mark(then, self._dictionary), sums_bytes(header.length))
            files.sync_directory(self._store)
            self.files.open_sums()
        write_tail(self.files.meta, now, then)
        if self._header is not None:
            self._header = stock.header

    def _fit_sums(self, length: int) -> None:
        """Give `sums.zr` a slot for each record and no more: what is behind could pass for a new record's."""
        assert self.files.sums is not None
        whole = (os.fstat(self.files.sums).st_size - sums_bytes(0)) // SUM.itemsize
        if whole < length:
            files.set_size(self.files.sums, sums_bytes(whole))  # a slot that was cut off is none
        files.set_size(self.files.sums, sums_bytes(length))

    def _sweep(self, header: Header) -> None:
        """Remove what killed writers left: chunks behind the tail, and files that never got their name."""
        if self._staged:
            return
        for name in os.listdir(self._store):
            chunk = chunk_number(name) or 0
            if chunk > header.tail_chunk:
                self.files.remove_chunk(chunk)
        for name in OWN_FILES:
            files.sweep_partials(self._store / name)

    def _check_chunk(self, header: Header) -> None:
        """Refuse to append behind a chunk that was cut off: that would fill what is lost with zeros."""
        chunk = self.files.chunk(header.tail_chunk)
        n_bytes = os.fstat(chunk).st_size
        if n_bytes >= header.tail_offset:
            return
        # The room of a session that was killed, or the tail of a compaction that was; unless records are there.
        for first, entries in table_blocks(self._store, self.files.table, header.length):
            ends = entries["offset"].astype(np.int64) + entries["phys_length"]
            lost = np.flatnonzero((entries["chunk_id"] == header.tail_chunk) & (ends > n_bytes))
            if len(lost):
                raise CorruptRecordError(
                    f"{self._store}: {chunk_name(header.tail_chunk)} has {n_bytes} bytes, and record "
                    f"{first + int(lost[0])} ends at byte {ends[lost[0]]} of it: the file was cut off. Nothing was "
                    "appended. Restore it from a copy, or delete the records that are lost, and compact",
                    store=self._store,
                    record=first + int(lost[0]),
                    chunk=header.tail_chunk,
                    byte_offset=int(entries["offset"][lost[0]]),
                )
        files.set_size(chunk, header.tail_offset)

    def _clear_beyond(self, length: int) -> None:
        """Zero what is in the table behind its last entry, and give the file its full size.

        What was deleted or taken back is still there; after a power loss it could pass for a new record's entry.
        """
        meta = self.files.meta
        size = os.fstat(meta).st_size
        if size < META_BYTES and self._version is NARROW:
            files.set_size(meta, META_BYTES)
        at = entry_at(length)
        while at < size:
            at, hole = _next_data(meta, at, size)
            while at < hole:
                block = os.pread(meta, min(_BLOCK_BYTES, hole - at), at)
                if not block:
                    return
                if block.count(0) != len(block):
                    files.write_at(meta, bytes(len(block)), at)
                at += len(block)


def _next_data(descriptor: int, at: int, size: int) -> tuple[int, int]:
    """Return where a file's next bytes from `at` on begin and end that are no hole; both the size where none are."""
    if not hasattr(os, "SEEK_DATA"):
        return at, size
    try:
        begin = os.lseek(descriptor, at, os.SEEK_DATA)
        return begin, os.lseek(descriptor, begin, os.SEEK_HOLE)
    except OSError:  # ENXIO: nothing but a hole
        return size, size


def _let_go(opened: Descriptors, lock: locks.Hold | None) -> None:
    opened.close()
    if lock is not None:
        lock.close()


def is_writer_here(store: Path) -> bool:
    """Return whether another handle of this process is the writer of a store."""
    return any(session._lock is not None and session._lock.is_at(store / LOCK) for session in list(_sessions))
