"""The record store: a batch of byte records in, any batch of them out."""

from __future__ import annotations

import contextlib
import errno
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal

import numpy.typing as npt

from loaderx._core.compress import CompressionDictionary
from loaderx._core.snapshot import Gate
from loaderx.errors import (
    OptionError,
    StoreIOError,
    StoreLockedError,
    ZrecordError,
)
from loaderx.store import files, journal, recovery
from loaderx.store.append import Append, Appender, check_version_holds
from loaderx.store.buffers import as_byte_counts, as_indices, as_source
from loaderx.store.compact import compact
from loaderx.store.create import create_store
from loaderx.store.delete import delete, find_targets
from loaderx.store.format import (
    DEFAULT_LEVELS,
    DICTIONARY_CODECS,
    JOURNAL,
    META,
    SUMS,
    chunk_name,
)
from loaderx.store.header import read_header
from loaderx.store.locks import (
    Hold,
    hold_alone,
    hold_for_reading,
    locked_by_this_process,
    missing,
    open_to_hold_alone,
)
from loaderx.store.options import (
    Codec,
    check_callable,
    check_choice,
    check_codec,
    check_count,
    check_flag,
    check_item_size,
    check_level,
)
from loaderx.store.pack import SizeChange, pack_files, unpack_files
from loaderx.store.reader import Reader, open_handles
from loaderx.store.ready_dictionary import ReadyDictionaries, check_samples, train_dictionary
from loaderx.store.recovery import Recovery
from loaderx.store.session import Session
from loaderx.store.snapshot import can_be_longer, longer

# How often a change looks whether the gathers that ran when it began are done. They last micro- to milliseconds, and
# polling costs them nothing.
_POLL_S = 0.0005


class Zrecord(Reader):
    """A persistent store of byte records.

    Records have the indices 0 to ``len(z) - 1``, always dense: deleting one puts the last in its place. Each is
    compressed by itself, and a batch is read by all cores, straight into the caller's memory.

    Parameters
    ----------
    path : str or os.PathLike
        The store's directory.
    codec : {"zstd", "raw", "zstd_dict", "zstd_shuffle", "zstd_shuffle_dict"}
        How records are compressed that are appended without a codec of their own.
    mode : {"a", "r"}
        "a" creates the store (and the directories above it) where there is none. "r" never creates and refuses every
        change. Neither needs write permission to open a store that exists.
    level : int, optional
        zstd's level, of appends with a codec of their own too; None: 3, and 19 with the dictionary. With codec "raw"
        it is an `OptionError`.
    threads : int
        The most threads one call uses; 0: every core in the affinity mask.
    io : {"mmap", "pread"}
        How files are read: mapped into memory, or with read calls, which are slower and survive a file that is cut off
        or a disk that fails during the read with an error instead of a signal.
    timeout_s : float
        How long to wait for another process: at opening, for a delete or a compaction; at the first change, for the
        writer; at a delete, a compaction or a packing, for readers.
    verify : bool
        Compare the stored bytes of every record that is read with its checksum, where it has one.
    upgrade : bool
        Let appends turn a store of format version 3 that holds records into one of version 4, for good, where the new
        records need it: over 1 MiB, beyond 16,777,216 of them, or shuffled. loaderx 0.7.3 cannot read it then. A store
        that holds none becomes version 4 without being asked.

    Attributes
    ----------
    path : pathlib.Path
    codec : str
    mode : str
    level : int or None
    threads : int
    timeout_s : float
    verify : bool
    upgrade : bool
    recovery : Recovery or None
        What was done about a crash: `cut`, the range of indices that had not reached the disk whole when the machine
        stopped, and are not shown; `finished`, whether a delete or a compaction that was cut off was carried out;
        `on_disk`, whether that mended the files (where mode "a" could) or only what this handle shows. A
        `StoreWarning` says so too.

    Raises
    ------
    NotAStoreError
        There is no store here and `mode` is "r", or the directory holds something else.
    StoreLockedError
        Another process was deleting or compacting for longer than `timeout_s`.
    FormatVersionError, CorruptRecordError, StoreIOError, OptionError

    Notes
    -----
    Any number of threads may gather from one handle while one of them appends; several may append, one after the
    other. `delete`, `compact`, `pack` and `unpack` wait for running gathers and hold new ones up. `close` may be called
    while gathers run: they finish. A forked child may go on reading, with one thread a call.

    Any number of handles and processes may read a store while one handle changes it: that one is the store's writer
    from its first change until it is closed, and another that wants to be gets a `StoreLockedError`. `delete`,
    `compact`, `pack` and `unpack` need the store alone: while any other handle is open on it, they raise that too.
    Programs that take no locks (loaderx 0.7.3) are not held away.

    A handle pickles by its path and opens the store anew where it is unpickled; it never creates one there.

    Examples
    --------
    >>> store = tmp_path / "words.zr"
    >>> with Zrecord(store) as z:
    ...     z.append_var(b"onetwothree", [0, 3, 6], [3, 3, 5])
    ...     out = bytearray(8)
    ...     z.gather_var([2, 0], out, [0, 5])
    ...     bytes(out)
    0
    b'threeone'
    """

    # Whether the store is being built where nobody looks (`StagedZrecord`).
    _staged = False

    def __init__(
        self,
        path: str | os.PathLike[str],
        codec: Codec = "zstd",
        *,
        mode: Literal["a", "r"] = "a",
        level: int | None = None,
        threads: int = 0,
        io: Literal["mmap", "pread"] = "mmap",
        timeout_s: float = 10.0,
        verify: bool = False,
        upgrade: bool = False,
    ) -> None:
        super().__init__(path, threads, io, timeout_s, verify)
        self.upgrade = check_flag("upgrade", upgrade)
        self.codec: Codec = check_codec(codec)
        self.mode: Literal["a", "r"] = check_choice("mode", mode, ("a", "r"))
        self.level = check_level(level, self.codec)
        self._dictionaries = ReadyDictionaries(self.path)
        # From the first change on.
        self._session: Session | None = None
        mended = None
        try:
            if mode == "a":
                with files.errors_named(self.path, "look for a store there"):
                    is_new = not (self.path / META).exists()
                if is_new:
                    create_store(self.path)
                else:
                    mended = self._mend()
            self._open()
            self.recovery = mended or self.recovery
        except BaseException:
            self.close()  # whoever keeps the exception keeps this object
            raise

    @classmethod
    def _reopen(
        cls,
        path: Path,
        codec: Codec,
        mode: Literal["a", "r"],
        level: int | None,
        options: dict[str, Any],
    ) -> Zrecord:
        # An unpickled handle finds its store or fails; it must not create an empty one in its place.
        if not os.path.lexists(path / META):
            raise missing(path)
        return cls(path, codec, mode=mode, level=level, **options)

    def __reduce__(self) -> tuple[Any, ...]:
        self._current()
        options = {
            "threads": self.threads,
            "io": self.io,
            "timeout_s": self.timeout_s,
            "verify": self.verify,
            "upgrade": self.upgrade,
        }
        return self._reopen, (self.path, self.codec, self.mode, self.level, options)

    def close(self) -> None:
        """Let go of the store. Gathers that run finish; every later call raises `ClosedError`. Closing twice is fine.

        Raises
        ------
        StoreIOError
            The system refused to have what was appended reach the disk. It is committed all the same.

        Notes
        -----
        Where this handle changed the store, everything has reached the disk when this returns. Waits for a change that
        another thread makes through this handle. Inside an `appending` block of the same thread it takes effect at the
        end of the block: the append is still to be committed or taken back.
        """
        with self._lock:
            super().close()
            if not self._changes:
                self._end_session()

    def append(
        self, src: Any, n: int, item_len: int, codec: Codec | None = None, *, item_size: int | None = None
    ) -> int:
        """Append equally long records, and commit them.

        Parameters
        ----------
        src : buffer of at least ``n * item_len`` bytes
            Record i is its bytes ``i * item_len`` to ``(i + 1) * item_len``, in C order. Not kept.
        n : int
            Number of records.
        item_len : int
            Bytes in each.
        codec : {"zstd", "raw", "zstd_dict", "zstd_shuffle", "zstd_shuffle_dict"}, optional
            None: the handle's. A record that does not shrink is stored raw.
        item_size : int, optional
            Bytes of the items that the records consist of, such as 4 for float32: needed by the codecs that shuffle. Of
            items of 1 byte, and of more than 255, they compress as "zstd" and "zstd_dict" do.

        Returns
        -------
        int
            Index of the first one.

        Raises
        ------
        RecordTooLargeError, StoreFullError, DictionaryError, DestinationError, StoreIOError, ClosedError, OptionError
            The store is as it was before.

        Notes
        -----
        Several threads may append to one handle; each append is one stretch of indices.
        """
        with self.appending() as append:
            append.add(src, n, item_len, codec, item_size=item_size)
        return append.first

    def append_var(
        self,
        src: Any,
        offsets: npt.ArrayLike,
        lens: npt.ArrayLike,
        codec: Codec | None = None,
        *,
        item_size: int | None = None,
    ) -> int:
        """Append records of any lengths, and commit them.

        Parameters
        ----------
        src : buffer
            Not kept.
        offsets : array_like of int, shape (n,) or longer
            First byte of each record in `src`; what is beyond the first n is not looked at.
        lens : array_like of int, shape (n,)
            Bytes in each.
        codec : {"zstd", "raw", "zstd_dict", "zstd_shuffle", "zstd_shuffle_dict"}, optional
            None: the handle's.
        item_size : int, optional
            As in `append`.

        Returns
        -------
        int
            Index of the first one.

        Raises
        ------
        RecordTooLargeError, StoreFullError, DictionaryError, DestinationError, StoreIOError, ClosedError, OptionError
            The store is as it was before.
        """
        with self.appending() as append:
            append.add_var(src, offsets, lens, codec, item_size=item_size)
        return append.first

    @contextlib.contextmanager
    def appending(self) -> Iterator[Append]:
        """Append in any number of parts and commit them all at the end of a ``with`` block, or none.

        Yields
        ------
        Append
            Its `add` and `add_var` take the arguments of `append` and `append_var`. After the block its `first` is the
            index of the first record.

        Notes
        -----
        Other threads' changes of this handle wait until the block ends; this thread's are refused inside it.

        Examples
        --------
        >>> with Zrecord(tmp_path / "parts.zr") as z:
        ...     with z.appending() as append:
        ...         append.add(b"ab", 2, 1)
        ...         append.add(b"cd", 1, 2)
        ...     len(z)
        3
        """
        with self._changing() as session:
            snapshot = self._current()
            is_known = session.is_ready()
            try:
                with Appender(self.path, session, self._team, self._chunk_bytes, self.upgrade) as appender:
                    append = Append(self.path, appender, lambda codec: self._compressor(session, codec))
                    try:
                        yield append
                    finally:
                        append.end()
                    append.first = appender.commit()
                header = session.header()
                # No other file has come, and none has changed.
                if (
                    is_known
                    and header.tail_chunk + 1 == len(snapshot.chunks)
                    and session.version.max_codec == snapshot.max_codec
                    and can_be_longer(snapshot, header.length)
                ):
                    self._install(longer(snapshot, header))
                else:
                    self._renew(snapshot)
            except BaseException:
                # A signal may have come behind the commit: what is committed is shown. (A forked child has no session.)
                with contextlib.suppress(ZrecordError):
                    if self._session is session and session.header().length > snapshot.length:
                        self._renew(snapshot)
                raise

    def delete(self, idxs: npt.ArrayLike) -> None:
        """Delete records; the last ones take their places, the highest index first. Their bytes stay until `compact`.

        Parameters
        ----------
        idxs : array_like of int, shape (n,)
            Repeated ones count once; negative ones count from the end.

        Raises
        ------
        RecordIndexError, StoreIOError, StoreLockedError, ClosedError, OptionError
            The store is as it was before.

        Notes
        -----
        Waits for running gathers; new ones wait for it. Everything has reached the disk when it returns: its cost is
        that of some ten syncs, so give it all the indices at once. A deletion that a crash cuts off is finished when
        the store is next opened.
        """
        indices = as_indices(self.path, idxs)
        with self._changing() as session:
            targets = find_targets(self.path, indices, session.header().length)
            if len(targets):
                with self._alone():
                    delete(self.path, session, targets)

    def compact(self, progress: Callable[[int, int], None] | None = None) -> None:
        """Move the records together, in place, and give the rest of the disk space back. Indices stay.

        Parameters
        ----------
        progress : callable, optional
            Called as ``progress(done_bytes, total_bytes)`` after each part, with the bytes of the records that have to
            move; so the last call has the total twice. Where none has to, the one call has ``(0, 0)``.

        Raises
        ------
        CorruptRecordError
            Entries contradict each other; nothing was changed.
        StoreIOError, StoreLockedError, ClosedError, OptionError
            Every record is there; compacting again goes on where this stopped.

        Notes
        -----
        Waits for running gathers; new ones wait for it. Takes 64 MiB of memory, as much free space on the disk where
        there is that much, and some 100 bytes of memory a record; where there is less, a `StoreIOError` says so before
        anything is changed. Records that lie right are skipped. A crash, a kill or Ctrl-C in the middle of it loses
        nothing: the part that was being moved is finished, at the latest when the store is next opened.
        """
        check_callable("progress", progress)
        with self._changing() as session, self._alone():
            compact(self.path, session, self._chunk_bytes, progress)

    def pack(self) -> SizeChange:
        """Cut off of the store's files what no record needs (`loaderx.pack`).

        Returns
        -------
        SizeChange

        Raises
        ------
        StoreIOError, StoreLockedError, CorruptRecordError, ClosedError, OptionError
            Every record is there.

        Notes
        -----
        Waits for running gathers; new ones wait for it. Everything has reached the disk when it returns. The next
        append, of this handle too, gives `meta.zr` its full size again: pack behind the last one.
        """
        with self._changing() as session, self._alone():
            return pack_files(self.path, session)

    def unpack(self) -> SizeChange:
        """Give `meta.zr` the size with which loaderx 0.7.3 may append to the store (`loaderx.unpack`).

        Returns
        -------
        SizeChange

        Raises
        ------
        StoreIOError, StoreLockedError, ClosedError, OptionError
            Every record is there.

        Notes
        -----
        Waits for running gathers; new ones wait for it.
        """
        with self._changing() as session, self._alone():
            return unpack_files(self.path, session)

    def train_dict(
        self, samples: Any, sizes: npt.ArrayLike, target: int, *, item_size: int | None = None
    ) -> int:
        """Train a dictionary on samples and make it the store's.

        Parameters
        ----------
        samples : buffer
            The samples, one behind the other.
        sizes : array_like of int, shape (n,)
            Bytes in each.
        target : int
            The most bytes the dictionary may have. zstd advises a hundredth of the samples' bytes.
        item_size : int, optional
            As in `append`, and needed where the handle's codec shuffles: the samples are shuffled, as the records will
            be, before the dictionary is trained.

        Returns
        -------
        int
            Bytes of the dictionary.

        Raises
        ------
        DictionaryError
            There are too few samples, or records already depend on another dictionary.
        DestinationError
            `samples` has fewer bytes than the sizes add up to.
        StoreIOError, ClosedError, OptionError
        """
        target = check_count("target", target, least=1)
        item_size = check_item_size(self.path, self.codec, item_size)
        source = as_source(samples)
        counts = as_byte_counts(self.path, "sizes", sizes)
        check_samples(self.path, source, counts)
        with self._changing() as session:
            snapshot = self._current()
            if not self.upgrade and session.header().length:
                check_version_holds(
                    self.path, session.version, self.codec
                )  # before anything is changed for it
            try:
                return train_dictionary(
                    self.path, session, source, counts, target, item_size, snapshot.dictionary_is_damaged
                )
            finally:
                self._renew(snapshot)  # also where it has its name, and a sync behind that was refused

    def sync(self) -> None:
        """Have everything that was committed reach the disk.

        Raises
        ------
        StoreIOError, ClosedError
        """
        with self._lock:
            snapshot = self._current()
            if self._session is not None:
                self._session.check_place()
                self._session.sync()
                return
            header = read_header(self.path, snapshot.table)
            names = [chunk_name(chunk) for chunk in range(header.tail_chunk + 1)]
            with files.errors_named(self.path, "make it reach the disk"):
                names += [name for name in (SUMS, JOURNAL) if os.path.lexists(self.path / name)]
                for name in [*names, META]:
                    with files.opened(files.open_to_read(self.path / name)) as descriptor:
                        files.sync(descriptor)
                files.sync_directory(self.path)

    @contextlib.contextmanager
    def _changing(self) -> Iterator[Session]:
        """Hold every other change away, of this handle and of others, and give the right to change the store."""
        with self._lock:
            self._current()
            if self.mode == "r":
                raise OptionError(
                    f"{self.path}: opened with mode 'r', which refuses changes: open it with mode 'a'",
                    option="mode",
                    value="r",
                )
            if self._changes:
                raise StoreLockedError(
                    f"{self.path}: this thread is changing the store already: end its appending() block first",
                    store=self.path,
                )
            try:
                self._changes = True
                if self._session is not None and journal.exists(self.path):
                    self._abandon_session()
                session = self._session or self._begin_session()
                session.check_place()
                yield session
            except BaseException:
                if journal.exists(self.path):
                    self._abandon_session()
                raise
            finally:
                self._changes = False
                if self._closed:
                    self._end_session()

    def _begin_session(self) -> Session:
        session = Session(self.path, self.timeout_s, staged=self._staged)
        try:
            if recovery.is_needed(self.path):
                with self._alone():
                    self.recovery = recovery.recover(self.path, session) or self.recovery
        except BaseException:
            session.forget()
            raise
        self._session = session
        return session

    def _abandon_session(self) -> None:
        """Leave a change that could be neither finished nor taken back: the next one begins by finishing it."""
        session, self._session = self._session, None
        if session is not None:
            session.forget()

    def _end_session(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            session.close()

    def _mend(self) -> Recovery | None:
        """See to what a crash left, on disk, where there is the right to: nobody else there, and a writable medium."""
        if not recovery.is_needed(self.path):
            return None
        try:
            session = Session(self.path, 0)
            try:
                alone = open_to_hold_alone(self.path)
                try:
                    hold_alone(alone, self.path, 0)
                    return recovery.recover(self.path, session)
                finally:
                    alone.close()
            finally:
                session.close()
        except StoreLockedError:
            return None
        except StoreIOError as error:
            if error.errno in (errno.EROFS, errno.EACCES, errno.EPERM):
                return None
            raise

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        """Hold reads away, wait for those that run, and give them a new snapshot at the end.

        The reads of this handle at its gate, those of others by the lock.
        """
        snapshot = self._current()
        gate = Gate()
        alone = open_to_hold_alone(self.path)
        snapshot.gate.close()
        try:
            while snapshot.gate.active:
                time.sleep(_POLL_S)
            hold: Hold = snapshot.gate.hold
            others = [handle for handle in open_handles(self.path) if handle is not self]
            if others:
                raise locked_by_this_process(
                    self.path, "has it open, and deleting, compacting and packing need it alone"
                )
            hold.close()
            hold_alone(alone, self.path, self.timeout_s)
            gate.hold = alone
            yield
        finally:
            try:
                if gate.hold is alone:
                    alone.share()
                else:
                    alone.close()
                    gate.hold = hold_for_reading(self.path, self.timeout_s)
                self._renew(snapshot, gate=gate)
                del snapshot, gate  # whoever keeps an exception keeps this frame, and would hold the store
            except BaseException:
                alone.close()  # the old gate stays closed: the next read opens the store anew
                raise

    def _after_fork_in_child(self) -> None:
        # The parent is the writer, and what it was in the middle of is its own.
        self._changes = False
        session, self._session = self._session, None
        if session is not None:
            session.forget()
        super()._after_fork_in_child()

    def _compressor(
        self, session: Session, codec: Codec | None
    ) -> tuple[Codec, int, CompressionDictionary | None]:
        """Return codec, level and dictionary to compress with."""
        name = self.codec if codec is None else check_codec(codec)
        level = DEFAULT_LEVELS[name] if self.level is None else self.level
        if name not in DICTIONARY_CODECS:
            return name, level, None
        return name, level, self._dictionaries.at_level(session, level, name)


class StagedZrecord(Zrecord):
    """A `Zrecord` in a `Staging`: nobody else sees it, and it reaches the disk as a whole when it is installed."""

    _staged = True
