"""The record store: a batch of byte records in, any batch of them out."""

from __future__ import annotations

import contextlib
import os
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from loaderx._core import gather as _gather
from loaderx._core.compress import CompressionDictionary, train
from loaderx._core.gather import Fault
from loaderx._core.snapshot import Gate, Snapshot
from loaderx._core.threads import available_cpus
from loaderx.errors import ClosedError, DestinationError, DictionaryError, OptionError
from loaderx.store import files
from loaderx.store.append import Append, Appender
from loaderx.store.buffers import Indices, as_destination, as_indices, as_source, empty_batch
from loaderx.store.compact import compact
from loaderx.store.create import create_store
from loaderx.store.delete import delete
from loaderx.store.faults import fault_error
from loaderx.store.format import (
    CHUNK_BYTES,
    CODEC_NAMES,
    CODECS,
    DEFAULT_LEVELS,
    DICTIONARY,
    META,
    chunk_name,
)
from loaderx.store.options import (
    Codec,
    check_batch_bytes,
    check_choice,
    check_codec,
    check_level,
    check_threads,
)
from loaderx.store.snapshot import Header, open_snapshot, read_dictionary, read_header, renew_snapshot
from loaderx.store.table import table_blocks

# How often a change looks whether the gathers that ran when it began are done. They last micro- to milliseconds, and
# polling costs them nothing.
_POLL_S = 0.0005

_handles: weakref.WeakSet[Zrecord] = weakref.WeakSet()


class Zrecord:
    """A persistent store of byte records.

    Records have the indices 0 to ``len(z) - 1``, always dense: deleting one puts the last in its place. Each is
    compressed by itself, and a batch is read by all cores, straight into the caller's memory.

    Parameters
    ----------
    path : str or os.PathLike
        The store's directory.
    codec : {"zstd", "raw", "zstd_dict"}
        How records are compressed that are appended without a codec of their own.
    mode : {"a", "r"}
        "a" creates the store (and the directories above it) where there is none. "r" never creates and refuses every
        change. Neither needs write permission to open a store that exists.
    level : int, optional
        zstd's level; None: 3, and 19 with the dictionary.
    threads : int
        The most threads one call uses; 0: every core in the affinity mask.
    io : {"mmap", "pread"}
        How files are read: mapped into memory, or with read calls, which are slower and survive a file that is cut off
        or a disk that fails during the read with an error instead of a signal.

    Attributes
    ----------
    path : pathlib.Path
    codec : str
    mode : str
    level : int or None
    threads : int

    Raises
    ------
    NotAStoreError
        There is no store here and `mode` is "r", or the directory holds something else.
    FormatVersionError, CorruptRecordError, StoreIOError, OptionError

    Notes
    -----
    Any number of threads may gather from one handle while one of them appends; several may append, one after the
    other. `delete` and `compact` wait for running gathers and hold new ones up. `close` may be called while gathers
    run: they finish. A forked child may go on reading, with one thread a call.

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

    # Smaller in tests of what happens where a chunk ends.
    _chunk_bytes = CHUNK_BYTES

    def __init__(
        self,
        path: str | os.PathLike[str],
        codec: Codec = "zstd",
        *,
        mode: Literal["a", "r"] = "a",
        level: int | None = None,
        threads: int = 0,
        io: Literal["mmap", "pread"] = "mmap",
    ) -> None:
        # First, so that __del__ and __repr__ work on a handle whose opening failed.
        self._snapshot: Snapshot | None = None
        self.path = Path(path)
        self.codec = check_codec(codec)
        self.mode = check_choice("mode", mode, ("a", "r"))
        self.level = check_level(level)
        self.threads = check_threads(threads)
        self.io = check_choice("io", io, ("mmap", "pread"))
        self._store = Path(os.path.abspath(path))  # stays right when the process changes its directory
        self._team = threads or available_cpus()
        self._lock = threading.RLock()
        self._dictionaries: dict[int, CompressionDictionary] = {}
        if mode == "a" and not (self._store / META).exists():
            create_store(self._store)
        self._snapshot = open_snapshot(self._store, mapped=io == "mmap")
        _handles.add(self)

    @classmethod
    def _reopen(
        cls,
        path: Path,
        codec: Codec,
        mode: Literal["a", "r"],
        level: int | None,
        threads: int,
        io: Literal["mmap", "pread"],
    ) -> Zrecord:
        # An unpickled handle finds its store or fails; it must not create an empty one in its place.
        open_snapshot(path, mapped=False)
        return cls(path, codec, mode=mode, level=level, threads=threads, io=io)

    def __reduce__(self) -> tuple[Any, ...]:
        self._current()
        return self._reopen, (self._store, self.codec, self.mode, self.level, self.threads, self.io)

    def __repr__(self) -> str:
        state = "closed" if self._snapshot is None else f"{self._snapshot.length} records"
        return f"<{type(self).__name__} {str(self.path)!r}: {state}>"

    def __len__(self) -> int:
        return self._current().length

    def __enter__(self) -> Zrecord:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the store. Gathers that run finish; every later call raises `ClosedError`.

        Closing twice is fine.
        """
        self._snapshot = None

    # Reading

    def gather(self, idxs: npt.ArrayLike, dst: Any, stride: int, *, exact: bool = False) -> None:
        """Read records to equally spaced places: record ``idxs[i]`` to ``dst[i * stride:]``.

        Parameters
        ----------
        idxs : array_like of int, shape (n,)
            Any order, repeated ones too; negative ones count from the end.
        dst : writable buffer of at least ``n * stride`` bytes
            Contiguous. Bytes behind a record that is shorter than the stride are left as they are.
        stride : int
            Bytes from one place to the next.
        exact : bool
            Refuse a record that is not exactly `stride` bytes long, as damaged.

        Raises
        ------
        RecordIndexError, DestinationError, CorruptRecordError, DictionaryError, StoreIOError, ClosedError
            About the lowest position that is wrong. The destination may have been written to in part.

        Notes
        -----
        Safe in any number of threads, beside appends too.
        """
        indices = as_indices(self.path, idxs)
        view = as_destination(self.path, dst)
        self._check_destination(len(indices) * stride if stride > 0 else 0, view.nbytes)
        if stride < 0:
            raise OptionError(f"stride is {stride}: it must not be negative", option="stride", value=stride)
        self._read(lambda snapshot: _gather.gather(snapshot, indices, view, stride, exact, None, self._team))

    def gather_var(self, idxs: npt.ArrayLike, dst: Any, offsets: npt.ArrayLike) -> None:
        """Read records to given places: record ``idxs[i]`` to ``dst[offsets[i]:]``.

        Parameters
        ----------
        idxs : array_like of int, shape (n,)
        dst : writable buffer
            Contiguous.
        offsets : array_like of int, shape (n,) or longer
            Byte positions in `dst`; what is beyond the first n is not looked at.

        Raises
        ------
        RecordIndexError, DestinationError, CorruptRecordError, DictionaryError, StoreIOError, ClosedError
            `DestinationError` also where two records would overlap; then nothing has been written.
        """
        indices = as_indices(self.path, idxs)
        view = as_destination(self.path, dst)
        starts = np.ascontiguousarray(as_indices(self.path, offsets)[: len(indices)], np.int64)
        if len(starts) < len(indices):
            raise DestinationError(
                f"{self.path}: {len(indices)} indices need as many offsets, not {len(starts)}",
                store=self.path,
            )

        def read(snapshot: Snapshot) -> tuple[Any, ...] | None:
            lens = np.empty(len(indices), np.uint32)
            fault = _gather.lengths(snapshot, indices, lens)
            if fault is not None:
                return fault
            self._check_places(starts, lens, view.nbytes)
            return _gather.gather_at(
                snapshot, indices, view, starts, lens, int(lens.sum(dtype=np.int64)), self._team
            )

        self._read(read)

    def gather_packed(
        self, idxs: npt.ArrayLike, *, max_bytes: int | None = None
    ) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]:
        """Read records one behind the other into new memory.

        Parameters
        ----------
        idxs : array_like of int, shape (n,)
        max_bytes : int, optional
            Refuse a batch above this size before any memory is taken for it.

        Returns
        -------
        data : ndarray of uint8, shape (total bytes,)
        splits : ndarray of int64, shape (n + 1,)
            Record ``idxs[i]`` is ``data[splits[i]:splits[i + 1]]``.

        Raises
        ------
        RecordIndexError, CorruptRecordError, DictionaryError, StoreIOError, ClosedError, OptionError
        """
        indices = as_indices(self.path, idxs)
        splits = np.zeros(len(indices) + 1, np.int64)
        data = np.empty(0, np.uint8)

        def read(snapshot: Snapshot) -> tuple[Any, ...] | None:
            nonlocal data
            lens = np.empty(len(indices), np.uint32)
            fault = _gather.lengths(snapshot, indices, lens)
            if fault is not None:
                return fault
            np.cumsum(lens, dtype=np.int64, out=splits[1:])
            total = int(splits[-1])
            check_batch_bytes(self.path, total, max_bytes)
            data = empty_batch(total)
            return _gather.gather_at(snapshot, indices, data, splits, lens, total, self._team)

        self._read(read)
        return data, splits

    def gather_padded(
        self,
        idxs: npt.ArrayLike,
        stride: int | None = None,
        pad: bytes = b"\0",
        *,
        max_bytes: int | None = None,
    ) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.uint32]]:
        """Read records to equally spaced places in new memory, and fill what they leave.

        Parameters
        ----------
        idxs : array_like of int, shape (n,)
        stride : int, optional
            Bytes for each record; None: the longest one's.
        pad : bytes
            Repeated behind each record; its length divides the stride and the length of every record.
        max_bytes : int, optional
            Refuse a batch above this size before any memory is taken for it.

        Returns
        -------
        data : ndarray of uint8, shape (n, stride)
        lengths : ndarray of uint32, shape (n,)
            Of the records, in bytes.

        Raises
        ------
        DestinationError
            A record is longer than `stride`.
        RecordIndexError, CorruptRecordError, DictionaryError, StoreIOError, ClosedError, OptionError
        """
        indices = as_indices(self.path, idxs)
        lens = np.empty(len(indices), np.uint32)
        data = np.empty((len(indices), 0), np.uint8)

        def read(snapshot: Snapshot) -> tuple[Any, ...] | None:
            nonlocal data
            fault = _gather.lengths(snapshot, indices, lens)
            if fault is not None:
                return fault
            width = stride if stride is not None else int(lens.max(initial=0))
            if width % len(pad) or np.any(lens % len(pad)):
                raise OptionError(
                    f"{self.path}: a pad of {len(pad)} bytes must divide the stride ({width}) and every record",
                    option="pad",
                    value=pad,
                )
            check_batch_bytes(self.path, width * len(indices), max_bytes)
            data = empty_batch(len(indices) * width).reshape(len(indices), width)
            return _gather.gather(snapshot, indices, data, width, False, pad, self._team)

        self._read(read)
        return data, lens

    def lengths(self, idxs: npt.ArrayLike) -> npt.NDArray[np.uint32]:
        """Return the original length of each record in bytes.

        Parameters
        ----------
        idxs : array_like of int, shape (n,)

        Returns
        -------
        ndarray of uint32, shape (n,)

        Raises
        ------
        RecordIndexError, CorruptRecordError, ClosedError
        """
        indices = as_indices(self.path, idxs)
        lens = np.empty(len(indices), np.uint32)
        self._read(lambda snapshot: _gather.lengths(snapshot, indices, lens))
        return lens

    def has_dict(self) -> bool:
        """Return whether the store has a dictionary."""
        return self._current().dictionary is not None

    def stats(self) -> dict[str, Any]:
        """Return what the store holds.

        Returns
        -------
        dict
            `records`; `live_bytes`, stored bytes of all records; `chunk_bytes`, bytes of the chunks up to the tail;
            `reclaimable`, their difference, of which `compact` gives back all but at most one record a chunk;
            `logical_bytes`, original bytes of all records; `codecs`, number of records by codec name;
            `dictionary_bytes`.

        Notes
        -----
        Reads the whole table: 16 bytes a record.
        """
        snapshot = self._current()
        header = read_header(self.path, snapshot.table)
        live = logical = 0
        by_codec = np.zeros(256, np.int64)
        for _, entries in table_blocks(self.path, snapshot.table, snapshot.length):
            live += int(entries["phys_length"].sum(dtype=np.int64))
            logical += int(entries["logic_length"].sum(dtype=np.int64))
            by_codec += np.bincount(entries["codec"], minlength=256)
        used = header.tail_chunk * self._chunk_bytes + header.tail_offset
        dictionary = self._store / DICTIONARY
        return {
            "records": snapshot.length,
            "live_bytes": live,
            "chunk_bytes": used,
            "reclaimable": used - live,
            "logical_bytes": logical,
            "codecs": {
                CODEC_NAMES.get(tag, str(tag)): int(by_codec[tag])
                for tag in np.flatnonzero(by_codec).tolist()
            },
            "dictionary_bytes": dictionary.stat().st_size if dictionary.exists() else 0,
        }

    # Changing

    def append(self, src: Any, n: int, item_len: int, codec: Codec | None = None) -> int:
        """Append equally long records, and commit them.

        Parameters
        ----------
        src : buffer of at least ``n * item_len`` bytes
            Record i is its bytes ``i * item_len`` to ``(i + 1) * item_len``, in C order. Not kept.
        n : int
            Number of records.
        item_len : int
            Bytes in each.
        codec : {"zstd", "raw", "zstd_dict"}, optional
            None: the handle's. A record that does not shrink is stored raw.

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
            append.add(src, n, item_len, codec)
        return append.first

    def append_var(
        self, src: Any, offsets: npt.ArrayLike, lens: npt.ArrayLike, codec: Codec | None = None
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
        codec : {"zstd", "raw", "zstd_dict"}, optional
            None: the handle's.

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
            append.add_var(src, offsets, lens, codec)
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
        Other threads' appends to this handle wait until the block ends.

        Examples
        --------
        >>> with Zrecord(tmp_path / "parts.zr") as z:
        ...     with z.appending() as append:
        ...         append.add(b"ab", 2, 1)
        ...         append.add(b"cd", 1, 2)
        ...     len(z)
        3
        """
        with self._changing() as header:
            with Appender(self._store, header, self._team, self._chunk_bytes) as appender:
                append = Append(self.path, appender, self._compressor)
                yield append
                append.first = appender.commit()
            self._snapshot = renew_snapshot(self._store, self._current(), mapped=self.io == "mmap")

    def delete(self, idxs: npt.ArrayLike) -> None:
        """Delete records; the last ones take their places, the highest index first. Their bytes stay until `compact`.

        Parameters
        ----------
        idxs : array_like of int, shape (n,)
            Repeated ones count once; negative ones count from the end.

        Raises
        ------
        RecordIndexError, StoreIOError, ClosedError, OptionError
            The store is as it was before.

        Notes
        -----
        Waits for running gathers; new ones wait for it.
        """
        indices = as_indices(self.path, idxs)
        with self._changing() as header, self._alone() as snapshot:
            targets = self._resolve(indices, header.length)
            if len(targets):
                delete(self._store, snapshot.table, header, targets)

    def compact(self) -> None:
        """Move the records together, in place, and give the rest of the disk space back. Indices stay.

        Raises
        ------
        CorruptRecordError
            Entries contradict each other; nothing was changed.
        StoreIOError, ClosedError, OptionError

        Notes
        -----
        Waits for running gathers; new ones wait for it. Takes 64 MiB of memory and some 100 bytes a record.

        Records are moved over the space of deleted ones, so a process that is killed, or a machine that stops, in the
        middle of it can lose records that were being moved. An operation that the system refuses loses none.
        """
        with self._changing() as header, self._alone() as snapshot:
            compact(self._store, snapshot.table, header, self._chunk_bytes)

    def train_dict(self, samples: Any, sizes: npt.ArrayLike, target: int) -> int:
        """Train a dictionary on samples and make it the store's.

        Parameters
        ----------
        samples : buffer
            The samples, one behind the other.
        sizes : array_like of int, shape (n,)
            Bytes in each.
        target : int
            The most bytes the dictionary may have. zstd advises a hundredth of the samples' bytes.

        Returns
        -------
        int
            Bytes of the dictionary.

        Raises
        ------
        DictionaryError
            There are too few samples, or records already depend on another dictionary.
        StoreIOError, ClosedError, OptionError
        """
        if target <= 0:
            raise OptionError(
                f"target is {target}: a dictionary has at least one byte", option="target", value=target
            )
        source = as_source(samples)
        counts = as_indices(self.path, sizes)
        if len(counts) and (counts.min() < 0 or int(counts.sum()) > source.nbytes):
            raise DestinationError(
                f"{self.path}: the sizes add up to {int(counts.sum())} bytes, and there are {source.nbytes} of samples",
                store=self.path,
                needed_bytes=int(counts.sum()),
                given_bytes=source.nbytes,
            )
        with self._changing() as header:
            snapshot = self._current()
            for first, entries in table_blocks(self.path, snapshot.table, header.length):
                dependent = np.flatnonzero(entries["codec"] == CODECS["zstd_dict"])
                if len(dependent):
                    raise DictionaryError(
                        f"{self.path}: record {first + int(dependent[0])} was compressed with the store's dictionary, "
                        "and could not be read with another: train before the first such record, or in a new store",
                        store=self.path,
                    )
            trained = train(source, counts.astype(np.uint64), target)
            if isinstance(trained, str):
                raise DictionaryError(
                    f"{self.path}: no dictionary could be trained on {len(counts)} samples of {int(counts.sum())} "
                    f"bytes in all ({trained}): give more samples, or use codec 'zstd'",
                    store=self.path,
                )
            with files.errors_named(self.path, "write the dictionary"):
                files.write_new(self._store / DICTIONARY, trained)
                files.sync_directory(self._store)
            self._dictionaries.clear()
            self._snapshot = renew_snapshot(
                self._store, snapshot, mapped=self.io == "mmap", dictionary=trained
            )
        return len(trained)

    def sync(self) -> None:
        """Have everything that was committed reach the disk.

        Raises
        ------
        StoreIOError, ClosedError
        """
        snapshot = self._current()
        names = [chunk_name(chunk) for chunk in range(len(snapshot.chunks))]
        with files.errors_named(self.path, "make it reach the disk"):
            for name in [*names, META]:
                with files.opened(os.open(self._store / name, os.O_RDONLY | os.O_CLOEXEC)) as descriptor:
                    files.sync(descriptor)
            files.sync_directory(self._store)

    # Inside

    def _current(self) -> Snapshot:
        snapshot = self._snapshot
        if snapshot is None:
            raise ClosedError(f"{self.path}: the store was closed: open it again", store=self.path)
        return snapshot

    def _read(self, call: Callable[[Snapshot], tuple[Any, ...] | None]) -> None:
        """Run a call of the core on the current snapshot, again where a change came between."""
        while True:
            fault = call(self._current())
            if fault is None:
                return
            if fault[0] != Fault.GATE_CLOSED:
                raise fault_error(self.path, fault)
            self._await_change()

    def _await_change(self) -> None:
        with self._lock:  # the thread that changes the store holds it
            snapshot = self._current()
            if snapshot.gate.closed:
                # Only in a child that was forked in the middle of a change: what the change left is on disk.
                self._snapshot = open_snapshot(self._store, mapped=self.io == "mmap")

    @contextlib.contextmanager
    def _changing(self) -> Iterator[Header]:
        """Hold every other change of this handle away, and give the header as it is now."""
        with self._lock:
            snapshot = self._current()
            if self.mode == "r":
                raise OptionError(
                    f"{self.path}: opened with mode 'r', which refuses changes: open it with mode 'a'",
                    option="mode",
                    value="r",
                )
            # Read again each time: another handle may have changed the store since.
            yield read_header(self.path, snapshot.table)

    @contextlib.contextmanager
    def _alone(self) -> Iterator[Snapshot]:
        """Hold gathers away, wait for those that run, and give them a new snapshot at the end."""
        snapshot = self._current()
        snapshot.gate.close()
        try:
            while snapshot.gate.active:
                time.sleep(_POLL_S)
            yield snapshot
        finally:
            self._snapshot = renew_snapshot(self._store, snapshot, mapped=self.io == "mmap", gate=Gate())

    def _resolve(self, indices: Indices, length: int) -> npt.NDArray[np.int64]:
        """Return each index once, none negative; `RecordIndexError` for the first that no record has."""
        signed = indices.astype(
            np.int64
        )  # a uint64 beyond 2**63 turns negative, and is out of range either way
        resolved = np.where((signed < 0) & (indices.dtype == np.int64), signed + length, signed)
        outside = np.flatnonzero((resolved < 0) | (resolved >= length))
        if len(outside):
            position = int(outside[0])
            fault = (Fault.INDEX, position, int(indices[position]), length, None, None, None, None, None, 0)
            raise fault_error(self.path, fault)
        return np.unique(resolved)

    def _check_destination(self, needed: int, given: int) -> None:
        if given < needed:
            raise DestinationError(
                f"{self.path}: the destination has {given} bytes, and the batch needs {needed}",
                store=self.path,
                needed_bytes=needed,
                given_bytes=given,
            )

    def _check_places(
        self, starts: npt.NDArray[np.int64], lens: npt.NDArray[np.uint32], dst_bytes: int
    ) -> None:
        """Raise `DestinationError` where a record would lie outside the destination or upon another."""
        ends = starts + lens
        outside = np.flatnonzero((starts < 0) | (ends > dst_bytes))
        if len(outside):
            at = int(outside[0])
            raise DestinationError(
                f"{self.path}: position {at} of the batch needs bytes {starts[at]} to {ends[at]} of a destination "
                f"that has {dst_bytes}",
                store=self.path,
                position=at,
                needed_bytes=int(ends[at]),
                given_bytes=dst_bytes,
            )
        order = np.argsort(starts, kind="stable")
        order = order[lens[order] > 0]
        overlapping = np.flatnonzero(ends[order[:-1]] > starts[order[1:]])
        if len(overlapping):
            a, b = sorted((int(order[overlapping[0]]), int(order[overlapping[0] + 1])))
            raise DestinationError(
                f"{self.path}: positions {a} and {b} of the batch overlap in the destination: offsets {starts[a]} and "
                f"{starts[b]}, lengths {lens[a]} and {lens[b]}",
                store=self.path,
                position=b,
            )

    def _compressor(self, codec: Codec | None) -> tuple[Codec, int, CompressionDictionary | None]:
        """Return codec, level and dictionary to compress with."""
        name = self.codec if codec is None else check_codec(codec)
        level = DEFAULT_LEVELS[name] if self.level is None else self.level
        if name != "zstd_dict":
            return name, level, None
        if level not in self._dictionaries:
            content = read_dictionary(self._store)
            if content is None:
                raise DictionaryError(
                    f"{self.path}: codec 'zstd_dict' needs a dictionary, and the store has none: call train_dict first",
                    store=self.path,
                )
            self._dictionaries[level] = CompressionDictionary(content, level)
        return name, level, self._dictionaries[level]

    def _after_fork_in_child(self) -> None:
        # The thread that held the lock, and those that were gathering, do not exist here.
        self._lock = threading.RLock()
        if self._snapshot is not None:
            self._snapshot.gate.forget()


def _after_fork_in_child() -> None:
    for handle in list(_handles):
        handle._after_fork_in_child()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
