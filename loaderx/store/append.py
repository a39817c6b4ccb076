"""Appending: compress, place, write; then one commit for everything that was added.

The order on disk is data, sums, table entries, tail, and last the length, one aligned write of four bytes. Until that
write nothing that was there is touched, so an append that fails or is cut off is an append that never was.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from loaderx._core.checksum import checksums
from loaderx._core.compress import CompressionDictionary, compress, compress_bound
from loaderx.errors import (
    ClosedError,
    DestinationError,
    OptionError,
    RecordTooLargeError,
    StoreFullError,
    StoreLockedError,
    ZrecordError,
)
from loaderx.store import files
from loaderx.store.buffers import as_byte_counts, as_source
from loaderx.store.format import (
    CODECS,
    MAX_ITEM_BYTES,
    MAX_OFFSET,
    MIN_ITEM_BYTES,
    NARROW,
    RECORD,
    UNSHUFFLED,
    WIDE,
    Version,
    entry_at,
)
from loaderx.store.header import Header
from loaderx.store.options import Codec, check_count, check_item_size
from loaderx.store.rows import byte_blocks
from loaderx.store.session import Session
from loaderx.store.sums import new_slots, sums_bytes

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
        Named in errors.
    session : Session
    threads : int
        The most threads to compress with.
    chunk_bytes : int
        Where a chunk ends: a record goes to the next one when it would end there or beyond.
    upgrade : bool
        Let a store of version 3 that holds records become version 4 where the new ones need it: by their size or
        number, or by a codec that shuffles, whatever becomes of them. One that holds none, which nobody has read yet,
        becomes it without being asked.
    """

    def __init__(
        self, store: Path, session: Session, threads: int, chunk_bytes: int, upgrade: bool = False
    ) -> None:
        self._store = store
        self._session = session
        self._files = session.files
        self._old = session.begin()
        self._old_version = self._version = session.version
        self._may_widen = upgrade or self._old.length == 0
        self._tail_chunk, self._tail_offset = self._old.tail
        self._length = self._old.length
        self._threads = threads
        self._chunk_bytes = chunk_bytes
        self._created: list[int] = []
        self._scratch = [np.empty(0, np.uint8), np.empty(0, np.uint8)]
        self._executor: ThreadPoolExecutor | None = None
        self._dirty = False
        self._whole = True
        self._committed = False
        self._process = os.getpid()
        with files.errors_named(store, "open it for writing"):
            self._chunk = self._files.chunk(self._old.tail_chunk)
            self._old_chunk_bytes = os.fstat(self._chunk).st_size

    def __enter__(self) -> Appender:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if os.getpid() != self._process:
            return  # a forked child leaves the block: what was added is its parent's
        if self._executor is not None:
            self._executor.shutdown()  # waits: nothing is taken back while it is being written
        if not self._committed:
            self.abort()
        self._files.close_chunks(0, keep=self._tail_chunk)

    @property
    def committed(self) -> range | None:
        """The indices of the records that were added, once they are committed."""
        return range(self._old.length, self._length) if self._committed else None

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
        item_bytes: int = 0,
    ) -> None:
        """Write records behind the tail, invisible until `commit`.

        Parameters
        ----------
        source : memoryview of bytes
            Not kept.
        starts : ndarray of int64, shape (n,)
            First byte of each record in `source`, which holds all of each.
        lens : ndarray of uint32, shape (n,)
            Length of each in bytes.
        codec : str
        level : int
        dictionary : CompressionDictionary or None
            Needed for codecs "zstd_dict" and "zstd_shuffle_dict".
        item_bytes : int
            Of the items whose bytes a codec that shuffles puts side by side.

        Raises
        ------
        StoreFullError, RecordTooLargeError, OptionError, StoreIOError
        """
        if codec in UNSHUFFLED and not MIN_ITEM_BYTES <= item_bytes <= MAX_ITEM_BYTES:
            codec = UNSHUFFLED[codec]
        self._version = self.plan_version(len(lens), int(lens.max(initial=0)), codec)
        self._check_process()
        self._whole = False
        stored_as_they_lie = codec == "raw" and np.array_equal(starts[1:], starts[:-1] + lens[:-1])
        writing: Future[None] | None = None
        for number, (first, last) in enumerate(byte_blocks(lens, _BLOCK_BYTES)):
            block_starts, block_lens = starts[first:last], lens[first:last]
            entries = np.zeros(last - first, RECORD)
            sums = np.empty(last - first, np.uint32)
            entries["logic_length"] = block_lens
            if stored_as_they_lie:
                begin, end = int(block_starts[0]), int(block_starts[-1]) + int(block_lens[-1])
                entries["phys_length"] = block_lens
                stored = source[begin:end]
                # Summed here and then written, not beside the last block's write: the two would wait for one memory.
                checksums(stored, block_starts - begin, block_lens, sums, self._threads)
                self._write(stored, entries, sums)
                continue
            stored = self._compress(
                source,
                block_starts,
                block_lens,
                entries,
                sums,
                codec,
                level,
                dictionary,
                item_bytes,
                number % 2,
            )
            # One block is written while the next is compressed: two blocks of scratch, and no core waits for the disk.
            if writing is not None:
                writing.result()
            if last == len(lens):
                self._write(stored, entries, sums)
            else:
                writing = self._writer().submit(self._write, stored, entries, sums)
        self._whole = True

    def plan_version(self, n: int, record_bytes: int, codec: str, position: int = 0) -> Version:
        """Return the version that `n` more records need, of which the largest has so many bytes.

        Raises
        ------
        StoreFullError, RecordTooLargeError, OptionError
            No version does, or another than the store's.
        """
        version = self._version
        may_widen = self._may_widen or version is WIDE
        if not may_widen:
            check_version_holds(self._store, version, codec)
        # By the codec that was asked for, not by how the records came to be stored: or the data of the first append
        # would decide whether a later one needs leave.
        if may_widen and n > 0 and CODECS[codec] > version.max_codec:
            version = WIDE
        if may_widen and (record_bytes > version.max_record_bytes or self._length + n > version.max_records):
            version = WIDE
        if record_bytes > version.max_record_bytes:
            raise RecordTooLargeError(
                f"{self._store}: the record at position {position} of the batch has {record_bytes} bytes, and a store "
                f"of format version {version.number} takes at most {version.max_record_bytes}: split it"
                f"{self._or_upgrade()}",
                store=self._store,
                position=position,
                record_bytes=record_bytes,
                limit_bytes=version.max_record_bytes,
            )
        if self._length + n > version.max_records:
            raise self._full(n, f"{version.max_records} records", version)
        return version

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
                self._session.commit(Header(self._tail_chunk, self._tail_offset, self._length), self._version)
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
            # header, and only then the data, for a header must not name what is gone; where one fails, the rest stays.
            self._session.take_back(old, self._old_version)
            if self._dirty:
                # To the tail and back, so that the blocks are freed also where the file was longer than its records.
                chunk = self._files.chunk(old.tail_chunk)
                files.set_size(chunk, min(old.tail_offset, self._old_chunk_bytes))
                files.set_size(chunk, self._old_chunk_bytes)
            for chunk in self._created:
                self._files.remove_chunk(chunk)
            self._session.take_back_sums()
        self._tail_chunk = old.tail_chunk

    def _full(self, requested: int, limit: str, version: Version) -> StoreFullError:
        instead = self._or_upgrade() if self._length + requested <= WIDE.max_records else ""
        return StoreFullError(
            f"{self._store}: no room for {requested} more records behind the {self._length} it holds: a store of "
            f"format version {version.number} ends at {limit}. Begin another store{instead}",
            store=self._store,
            length=self._length,
            requested=requested,
            limit=version.max_records,
        )

    def _or_upgrade(self) -> str:
        if self._version is WIDE or self._may_widen:
            return ""
        return ", or upgrade this one for good to version 4, which loaderx 0.7.3 cannot read (upgrade=True)"

    def _compress(
        self,
        source: memoryview,
        starts: npt.NDArray[np.int64],
        lens: npt.NDArray[np.uint32],
        entries: npt.NDArray[np.void],
        sums: npt.NDArray[np.uint32],
        codec: str,
        level: int,
        dictionary: CompressionDictionary | None,
        item_bytes: int,
        which_scratch: int,
    ) -> memoryview:
        """Return a block's stored bytes, and note how each record is stored, and its checksum."""
        phys, codecs = np.empty(len(lens), np.uint32), np.empty(len(lens), np.uint8)
        needed = compress_bound(lens)
        if len(self._scratch[which_scratch]) < needed:
            self._scratch[which_scratch] = np.empty(needed, np.uint8)
        scratch = self._scratch[which_scratch]
        item_size = item_bytes if codec in UNSHUFFLED else 0
        n_bytes = compress(
            source,
            starts,
            lens,
            scratch,
            phys,
            codecs,
            CODECS[codec],
            level,
            dictionary,
            self._threads,
            sums,
            item_size,
        )
        entries["phys_length"] = phys
        entries["codec"] = codecs
        entries["reserved"][codecs > NARROW.max_codec] = item_size
        return scratch.data[:n_bytes]

    def _writer(self) -> ThreadPoolExecutor:
        if self._executor is None:
            from concurrent.futures import ThreadPoolExecutor  # here: readers of stores need not load it

            self._executor = ThreadPoolExecutor(1, "loaderx-append")
        return self._executor

    def _write(self, stored: memoryview, entries: npt.NDArray[np.void], sums: npt.NDArray[np.uint32]) -> None:
        """Write a block behind the tail, chunk by chunk, then its sums, then its table entries."""
        phys = entries["phys_length"].astype(np.int64)
        assert len(stored) == phys.sum(), "the entries do not describe these bytes"
        assert self._files.sums is not None, "the session has begun"
        self._dirty = True  # from before the first write on, for one that fails may have written a part
        first = 0
        first_byte = 0
        with files.errors_named(self._store, "write new records", "the store is as it was before"):
            while first < len(phys):
                ends = self._tail_offset + np.cumsum(phys[first:])
                fitting = int(np.searchsorted(ends, min(self._chunk_bytes, MAX_OFFSET), side="left"))
                # Not up to the last byte that a tail can name, where a session has no room to leave behind it
                # (`loaderx.store.session`); but for the longest record of all.
                if fitting == 0 and self._tail_offset == 0 and ends[0] < self._chunk_bytes:
                    fitting = 1
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
            slots = new_slots(entries, sums)
            files.write_at(self._files.sums, slots.view(np.uint8).data, sums_bytes(self._length))
            files.write_at(self._files.meta, entries.view(np.uint8).data, entry_at(self._length))
        self._length += len(phys)

    def _begin_chunk(self, requested: int) -> None:
        if self._tail_chunk + 1 >= self._version.max_chunks:
            if self._version is WIDE or not self._may_widen:
                raise self._full(requested, f"{self._version.max_chunks} chunks", self._version)
            self._version = WIDE
        self._chunk = self._files.create_chunk(self._tail_chunk + 1)
        self._created.append(self._tail_chunk + 1)
        self._tail_chunk += 1
        self._tail_offset = 0


def check_version_holds(store: Path, version: Version, codec: str) -> None:
    """Raise `OptionError` for a codec that a store of this version, which is to stay of it, has no records of."""
    if CODECS[codec] > version.max_codec:
        raise OptionError(
            f"{store}: codec {codec!r} needs format version {WIDE.number}, and this is a store of version "
            f"{version.number}, as loaderx 0.7.3 reads it: choose another codec, or upgrade it for good (upgrade=True)",
            option="codec",
            value=codec,
        )


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
        # Several threads may add: each part is one stretch, in the order in which they get here.
        self._lock = threading.Lock()

    @property
    def committed(self) -> range | None:
        """The indices of the records, once they are committed."""
        return self._appender.committed

    def end(self) -> None:
        """Take no more parts, once the one that is being added is: the files they would go to are closed."""
        with self._lock:
            self._ended = True

    def _check_not_ended(self) -> None:
        if self._ended:
            raise ClosedError(
                f"{self._store}: this append has ended: begin another with appending()", store=self._store
            )

    def add(
        self, src: Any, n: int, item_len: int, codec: Codec | None = None, *, item_size: int | None = None
    ) -> None:
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
        item_len = item_len if n else 0  # of no records any length will do
        # Before anything is made for each record.
        self._appender.plan_version(n, item_len, "raw")
        starts = np.arange(n, dtype=np.int64) * item_len
        self._add(source, starts, np.full(n, item_len, np.uint32), codec, item_size)

    def add_var(
        self,
        src: Any,
        offsets: npt.ArrayLike,
        lens: npt.ArrayLike,
        codec: Codec | None = None,
        *,
        item_size: int | None = None,
    ) -> None:
        """Add records of any lengths (`Zrecord.append_var`)."""
        self._check_not_ended()
        source = as_source(src)
        sizes = as_byte_counts(self._store, "lens", lens)
        starts = as_byte_counts(self._store, "offsets", offsets)[: len(sizes)]
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
            self._appender.plan_version(len(sizes), int(sizes[largest]), "raw", largest)
        self._add(source, starts, sizes.astype(np.uint32), codec, item_size)

    def _add(
        self,
        source: memoryview,
        starts: npt.NDArray[np.int64],
        lens: npt.NDArray[np.uint32],
        codec: Codec | None,
        item_size: int | None,
    ) -> None:
        name, level, dictionary = self._compressor(codec)
        item_bytes = check_item_size(self._store, name, item_size) or 0
        with self._lock:
            self._check_not_ended()
            self._appender.add(source, starts, lens, name, level, dictionary, item_bytes)
