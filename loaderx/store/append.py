"""Appending: compress, place, write; then one commit for everything that was added.

The order on disk is data, table entries, tail, and last the length, one aligned write of four bytes. Until that write
nothing that was there is touched, so an append that fails or is cut off is an append that never was.
"""

from __future__ import annotations

import contextlib
import os
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from loaderx._core.compress import CompressionDictionary, compress, compress_bound
from loaderx.errors import (
    ClosedError,
    DestinationError,
    RecordTooLargeError,
    StoreFullError,
    StoreLockedError,
    ZrecordError,
)
from loaderx.store import files
from loaderx.store.buffers import as_indices, as_source
from loaderx.store.format import (
    CODECS,
    LENGTH_AT,
    MAX_CHUNKS,
    MAX_RECORD_BYTES,
    MAX_RECORDS,
    META,
    META_BYTES,
    RECORD,
    TAIL_AT,
    chunk_name,
    entry_at,
)
from loaderx.store.options import Codec, check_count
from loaderx.store.snapshot import Header

if TYPE_CHECKING:
    from concurrent.futures import Future, ThreadPoolExecutor

# Original bytes compressed before they are written: enough for a team to work on, little enough that the result is
# still in cache when it is written, and that a batch of any size needs this much memory and no more.
_BLOCK_BYTES = 4 << 20


class Appender:
    """One append in progress: any number of `add`, then `commit`; or `abort`, which leaves the store as it was.

    As a context manager it aborts what was not committed.

    Parameters
    ----------
    store : pathlib.Path
    header : Header
        As it is in the file now. The caller keeps every other change away until the end.
    threads : int
        The most threads to compress with.
    chunk_bytes : int
        Where a chunk ends.

    Notes
    -----
    Not for several threads at once.
    """

    def __init__(self, store: Path, header: Header, threads: int, chunk_bytes: int) -> None:
        self._store = store
        self._old = header
        self._tail_chunk = header.tail_chunk
        self._tail_offset = header.tail_offset
        self._length = header.length
        self._threads = threads
        self._chunk_bytes = chunk_bytes
        self._created: list[Path] = []
        self._scratch = [np.empty(0, np.uint8), np.empty(0, np.uint8)]
        self._executor: ThreadPoolExecutor | None = None
        self._dirty = False
        self._whole = True
        self._committed = False
        self._process = os.getpid()
        self._open = contextlib.ExitStack()
        with files.errors_named(store, "open it for writing"):
            self._meta = self._open.enter_context(files.opened(files.open_for_change(store / META)))
            chunk = files.open_for_change(store / chunk_name(header.tail_chunk))
            self._old_chunk = self._chunk = self._open.enter_context(files.opened(chunk))
            self._old_chunk_bytes = os.fstat(chunk).st_size

    def __enter__(self) -> Appender:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if os.getpid() != self._process:
                return  # a forked child leaves the block: what was added is its parent's
            if self._executor is not None:
                self._executor.shutdown()  # waits: nothing is taken back while it is being written
            if not self._committed:
                self.abort()
        finally:
            self._open.close()

    @property
    def n_added(self) -> int:
        """Number of records added so far."""
        return self._length - self._old.length

    def add(
        self,
        source: memoryview,
        starts: npt.NDArray[np.int64],
        lens: npt.NDArray[np.uint32],
        codec: str,
        level: int,
        dictionary: CompressionDictionary | None,
    ) -> None:
        """Write records behind the tail, invisible until `commit`.

        Parameters
        ----------
        source : memoryview of bytes
            Not kept.
        starts : ndarray of int64, shape (n,)
            First byte of each record in `source`, which holds all of each.
        lens : ndarray of uint32, shape (n,)
            Length of each in bytes, none over the format's limit.
        codec : str
        level : int
        dictionary : CompressionDictionary or None
            Needed for codec "zstd_dict".

        Raises
        ------
        StoreFullError, StoreIOError
        """
        self.check_room(len(lens))
        self._check_process()
        self._whole = False
        stored_as_they_lie = codec == "raw" and np.array_equal(starts[1:], starts[:-1] + lens[:-1])
        writing: Future[None] | None = None
        for number, (first, last) in enumerate(_blocks(lens)):
            block_starts, block_lens = starts[first:last], lens[first:last]
            entries = np.zeros(last - first, RECORD)
            entries["logic_length"] = block_lens
            if stored_as_they_lie:
                begin, end = int(block_starts[0]), int(block_starts[-1]) + int(block_lens[-1])
                entries["phys_length"] = block_lens
                self._write(source[begin:end], entries)
                continue
            stored = self._compress(
                source, block_starts, block_lens, entries, CODECS[codec], level, dictionary, number % 2
            )
            # One block is written while the next is compressed: two blocks of scratch, and no core waits for the disk.
            if writing is not None:
                writing.result()
            if last == len(lens):
                self._write(stored, entries)
            else:
                writing = self._writer().submit(self._write, stored, entries)
        self._whole = True

    def check_room(self, n: int) -> None:
        """Raise `StoreFullError` where there is no room for `n` more records."""
        if self._length + n > MAX_RECORDS:
            self._full(n, f"{MAX_RECORDS} records")

    def commit(self) -> int:
        """Make everything that was added visible, and return the index of its first record.

        Raises
        ------
        ZrecordError
            An `add` failed half-way, so that what was added is not what the caller meant to add.
        StoreIOError
        """
        self._check_process()
        if not self._whole:
            raise ZrecordError(
                f"{self._store}: a part of this append could not be written, so none of it is committed: append again",
                store=self._store,
            )
        if self.n_added:
            with files.errors_named(self._store, "commit the new records", "the store is as it was before"):
                files.write_at(self._meta, struct.pack("<HI", self._tail_chunk, self._tail_offset), TAIL_AT)
                files.write_at(self._meta, struct.pack("<I", self._length), LENGTH_AT)
        self._committed = True
        return self._old.length

    def _check_process(self) -> None:
        if os.getpid() != self._process:
            raise StoreLockedError(
                f"{self._store}: this append was begun by process {self._process}, and only that one may go on with it",
                store=self._store,
            )

    def abort(self) -> None:
        """Take back everything that was added, as far as the system lets it; what stays is beyond every record."""
        old = self._old
        with contextlib.suppress(OSError):
            # What is in the file counts, not how far `commit` came: a signal may have come behind any write. First the
            # length, then the tail, and only then the data, for a header must not name what is gone; where one fails,
            # the rest stays.
            tail_chunk, tail_offset, length = struct.unpack("<HII", os.pread(self._meta, 10, TAIL_AT))
            if length != old.length:
                files.write_at(self._meta, struct.pack("<I", old.length), LENGTH_AT)
            if (tail_chunk, tail_offset) != (old.tail_chunk, old.tail_offset):
                files.write_at(self._meta, struct.pack("<HI", old.tail_chunk, old.tail_offset), TAIL_AT)
            if self._dirty:
                # To the tail and back, so that the blocks are freed also where the file was longer than its records.
                files.set_size(self._old_chunk, min(old.tail_offset, self._old_chunk_bytes))
                files.set_size(self._old_chunk, self._old_chunk_bytes)
            for path in self._created:
                files.unlink(path)

    def _full(self, requested: int, limit: str) -> None:
        raise StoreFullError(
            f"{self._store}: no room for {requested} more records behind the {self._length} it holds: a store of "
            f"format version 3 ends at {limit}. Begin another store",
            store=self._store,
            length=self._length,
            requested=requested,
            limit=MAX_RECORDS,
        )

    def _compress(
        self,
        source: memoryview,
        starts: npt.NDArray[np.int64],
        lens: npt.NDArray[np.uint32],
        entries: npt.NDArray[np.void],
        codec: int,
        level: int,
        dictionary: CompressionDictionary | None,
        which_scratch: int,
    ) -> memoryview:
        """Return a block's stored bytes, and note in the entries how each record is stored."""
        phys, codecs = np.empty(len(lens), np.uint32), np.empty(len(lens), np.uint8)
        needed = compress_bound(lens)
        if len(self._scratch[which_scratch]) < needed:
            self._scratch[which_scratch] = np.empty(needed, np.uint8)
        scratch = self._scratch[which_scratch]
        n_bytes = compress(
            source, starts, lens, scratch, phys, codecs, codec, level, dictionary, self._threads
        )
        entries["phys_length"] = phys
        entries["codec"] = codecs
        return scratch.data[:n_bytes]

    def _writer(self) -> ThreadPoolExecutor:
        if self._executor is None:
            from concurrent.futures import ThreadPoolExecutor  # here: readers of stores need not load it

            self._executor = ThreadPoolExecutor(1, "loaderx-append")
        return self._executor

    def _write(self, stored: memoryview, entries: npt.NDArray[np.void]) -> None:
        """Write a block behind the tail, chunk by chunk, then its table entries."""
        phys = entries["phys_length"].astype(np.int64)
        assert len(stored) == phys.sum(), "the entries do not describe these bytes"
        self._dirty = True  # from before the first write on, for one that fails may have written a part
        first = 0
        first_byte = 0
        with files.errors_named(self._store, "write new records", "the store is as it was before"):
            while first < len(phys):
                ends = self._tail_offset + np.cumsum(phys[first:])
                fitting = int(np.searchsorted(ends, self._chunk_bytes, side="left"))
                if fitting == 0:
                    self._begin_chunk(len(phys))
                    continue
                entries["chunk_id"][first : first + fitting] = self._tail_chunk
                entries["offset"][first : first + fitting] = ends[:fitting] - phys[first : first + fitting]
                n_bytes = int(ends[fitting - 1]) - self._tail_offset
                if n_bytes:
                    files.write_at(self._chunk, stored[first_byte : first_byte + n_bytes], self._tail_offset)
                self._tail_offset += n_bytes
                first += fitting
                first_byte += n_bytes
            if self._length == self._old.length and os.fstat(self._meta).st_size < META_BYTES:
                files.set_size(self._meta, META_BYTES)
            files.write_at(self._meta, entries.view(np.uint8).data, entry_at(self._length))
        self._length += len(phys)

    def _begin_chunk(self, requested: int) -> None:
        if self._tail_chunk + 1 >= MAX_CHUNKS:
            self._full(requested, f"{MAX_CHUNKS} chunks")
        path = self._store / chunk_name(self._tail_chunk + 1)
        if path.exists():
            files.unlink(path)  # left behind by an append that was killed: no record is in it
        self._chunk = self._open.enter_context(files.opened(files.create(path)))
        self._created.append(path)
        self._tail_chunk += 1
        self._tail_offset = 0


def _blocks(lens: npt.NDArray[np.uint32]) -> Iterator[tuple[int, int]]:
    """Iterate over stretches of records of about `_BLOCK_BYTES`: first, and one behind the last."""
    ends = np.cumsum(lens, dtype=np.int64)
    first = 0
    while first < len(lens):
        done = int(ends[first - 1]) if first else 0
        last = max(first + 1, int(np.searchsorted(ends, done + _BLOCK_BYTES, side="right")))
        yield first, last
        first = last


class Append:
    """One append to a `Zrecord` in any number of parts (`Zrecord.appending`).

    Parameters
    ----------
    store : pathlib.Path
        Named in errors.
    appender : Appender
    compressor : callable
        Returns codec, level and dictionary for a codec's name or None.

    Attributes
    ----------
    first : int
        Index of the first record; set when the append is committed.
    """

    first: int

    def __init__(
        self,
        store: Path,
        appender: Appender,
        compressor: Callable[[Codec | None], tuple[Codec, int, CompressionDictionary | None]],
    ) -> None:
        self._store = store
        self._appender = appender
        self._compressor = compressor
        self._ended = False

    def end(self) -> None:
        """Take no more parts: the files they would go to are closed."""
        self._ended = True

    def _check_not_ended(self) -> None:
        if self._ended:
            raise ClosedError(
                f"{self._store}: this append has ended: begin another with appending()", store=self._store
            )

    def add(self, src: Any, n: int, item_len: int, codec: Codec | None = None) -> None:
        """Add equally long records (`Zrecord.append`)."""
        self._check_not_ended()
        n, item_len = check_count("n", n), check_count("item_len", item_len)
        source = as_source(src)
        if n * item_len > source.nbytes:
            raise DestinationError(
                f"{self._store}: the source has {source.nbytes} bytes, and {n} records of {item_len} need "
                f"{n * item_len}",
                store=self._store,
                needed_bytes=n * item_len,
                given_bytes=source.nbytes,
            )
        if n:
            _check_record_bytes(self._store, 0, item_len)
        self._appender.check_room(n)  # before anything is made for each record
        starts = np.arange(n, dtype=np.int64) * item_len
        self._appender.add(source, starts, np.full(n, item_len, np.uint32), *self._compressor(codec))

    def add_var(
        self, src: Any, offsets: npt.ArrayLike, lens: npt.ArrayLike, codec: Codec | None = None
    ) -> None:
        """Add records of any lengths (`Zrecord.append_var`)."""
        self._check_not_ended()
        source = as_source(src)
        sizes = np.ascontiguousarray(as_indices(self._store, lens), np.int64)
        starts = np.ascontiguousarray(as_indices(self._store, offsets)[: len(sizes)], np.int64)
        if len(starts) < len(sizes):
            raise DestinationError(
                f"{self._store}: {len(sizes)} lengths need as many offsets, not {len(starts)}",
                store=self._store,
            )
        outside = np.flatnonzero(
            (starts < 0) | (sizes < 0) | (sizes > source.nbytes) | (starts > source.nbytes - sizes)
        )
        if len(outside):
            at = int(outside[0])
            raise DestinationError(
                f"{self._store}: record {at} of the batch begins at byte {starts[at]} with length {sizes[at]}, and the "
                f"source has {source.nbytes} bytes",
                store=self._store,
                position=at,
                needed_bytes=int(starts[at]) + int(sizes[at]),
                given_bytes=source.nbytes,
            )
        if len(sizes):
            largest = int(np.argmax(sizes))
            _check_record_bytes(self._store, largest, int(sizes[largest]))
        self._appender.add(source, starts, sizes.astype(np.uint32), *self._compressor(codec))


def _check_record_bytes(store: Path, position: int, record_bytes: int) -> None:
    if record_bytes > MAX_RECORD_BYTES:
        raise RecordTooLargeError(
            f"{store}: the record at position {position} of the batch has {record_bytes} bytes, and a store of format "
            f"version 3 takes at most {MAX_RECORD_BYTES}: split it",
            store=store,
            position=position,
            record_bytes=record_bytes,
            limit_bytes=MAX_RECORD_BYTES,
        )
