"""Reading a store: any batch of records, in any order, into the caller's memory or new memory."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self, SupportsIndex

import numpy as np
import numpy.typing as npt

from loaderx._core import gather as _gather
from loaderx._core import survey as _survey
from loaderx._core.fault import Fault
from loaderx._core.snapshot import Gate, Snapshot
from loaderx._core.threads import available_cpus
from loaderx.errors import ClosedError, DestinationError, OptionError, StoreLockedError, ZrecordError
from loaderx.store.buffers import as_byte_counts, as_destination, as_indices, as_pad, empty_batch
from loaderx.store.dictionary import dictionary_stamp
from loaderx.store.faults import fault_error
from loaderx.store.format import CHUNK_BYTES, CODEC_NAMES, DICTIONARY, META, VERSIONS
from loaderx.store.header import read_header
from loaderx.store.locks import Hold, hold_for_reading
from loaderx.store.options import (
    check_batch_bytes,
    check_choice,
    check_count,
    check_flag,
    check_path,
    check_seconds,
    check_threads,
)
from loaderx.store.recovery import Recovery, is_needed
from loaderx.store.snapshot import open_store, renew_snapshot
from loaderx.store.table import table_blocks

_handles: weakref.WeakSet[Reader] = weakref.WeakSet()


class Reader:
    """What a `Zrecord` does without changing the store.

    Parameters
    ----------
    path : str or os.PathLike
    threads : int
        The most threads one call uses; 0: every core in the affinity mask.
    io : {"mmap", "pread"}
    timeout_s : float
        How long to wait for others.
    verify : bool
        Whether reads compare records with their sums.

    Attributes
    ----------
    path : pathlib.Path
        Absolute.
    threads : int
    io : str
    timeout_s : float
    verify : bool
    recovery : Recovery or None
        What was done about a crash when the store was opened.
    """

    # Smaller in tests of what happens where a chunk ends.
    _chunk_bytes = CHUNK_BYTES

    def __init__(
        self,
        path: str | os.PathLike[str],
        threads: int,
        io: Literal["mmap", "pread"],
        timeout_s: float,
        verify: bool,
    ) -> None:
        self._snapshot: Snapshot | None = None
        self._closed = False
        self.path = check_path(path)
        self.threads = check_threads(threads)
        self.io: Literal["mmap", "pread"] = check_choice("io", io, ("mmap", "pread"))
        self.timeout_s = check_seconds("timeout_s", timeout_s)
        self.verify = check_flag("verify", verify)
        self.recovery: Recovery | None = None
        # Of the dictionary that the snapshot reads with.
        self._dictionary_stamp: tuple[int, ...] | None = None
        self._team = self.threads or available_cpus()
        # Held by whoever changes the store through this handle; and whether that thread is in the middle of it.
        self._lock = threading.RLock()
        self._changes = False
        _handles.add(self)

    def _open(self) -> None:
        self._dictionary_stamp = dictionary_stamp(self.path)
        snapshot, self.recovery = open_store(
            self.path, self.timeout_s, mapped=self.io == "mmap", verify=self.verify
        )
        self._install(snapshot)

    def __repr__(self) -> str:
        state = "closed" if self._snapshot is None else f"{self._snapshot.length} records"
        return f"<{type(self).__name__} {str(self.path)!r}: {state}>"

    def __len__(self) -> int:
        snapshot = self._current()
        if snapshot.gate.closed:
            self._await_change()
            snapshot = self._current()
        return snapshot.length

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the store. Gathers that run finish; every later call raises `ClosedError`.

        Closing twice is fine.
        """
        self._closed = True
        self._snapshot = None

    def _install(self, snapshot: Snapshot) -> None:
        """Have later reads go through a new snapshot, unless the handle was closed meanwhile."""
        self._snapshot = snapshot
        if self._closed:
            self._snapshot = None

    def refresh(self) -> int:
        """See what other handles and processes have committed since the store was opened or last refreshed.

        Returns
        -------
        int
            Number of records.

        Raises
        ------
        ClosedError, CorruptRecordError, StoreIOError, StoreLockedError

        Notes
        -----
        Gathers that run are not disturbed. An append through this very handle is seen without it. Where another store
        was written over this one (``overwrite=True``), that is the one that is read from then on, and no index means
        what it meant; without `refresh` the old one is read until the handle is closed.
        """
        with self._lock:
            self._renew(self._current())
            return len(self)

    def _renew(self, snapshot: Snapshot, *, gate: Gate | None = None) -> None:
        """Have later reads see the store as it is now."""
        # What a crash left, which was or is to be seen to in memory; or another store that has taken this one's place.
        if is_needed(self.path) or not snapshot.table.is_at(self.path / META):
            self._open()
            return
        stamp = dictionary_stamp(self.path)
        is_new, self._dictionary_stamp = stamp != self._dictionary_stamp, stamp
        try:
            fresh = renew_snapshot(
                self.path,
                snapshot,
                mapped=self.io == "mmap",
                verify=self.verify,
                gate=gate,
                look_for_dictionary=is_new,
            )
        except ZrecordError:
            if snapshot.table.is_at(self.path / META):
                raise
            fresh = None
        if fresh is None or not snapshot.table.is_at(self.path / META):
            # Another store has taken its place meanwhile, and some of the chunks may be its.
            self._open()
            return
        self._install(fresh)

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
            Refuse a record that is not exactly `stride` bytes long, with a `CorruptRecordError`.

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
        stride = check_count("stride", stride)
        exact = check_flag("exact", exact)
        if view.nbytes < len(indices) * stride:
            raise DestinationError(
                f"{self.path}: the destination has {view.nbytes} bytes, and {len(indices)} records of {stride} need "
                f"{len(indices) * stride}",
                store=self.path,
                needed_bytes=len(indices) * stride,
                given_bytes=view.nbytes,
            )
        self._read(_gather.gather, indices, view, stride, exact, None, self._team)

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
        starts = as_byte_counts(self.path, "offsets", offsets)[: len(indices)]
        if len(starts) < len(indices):
            raise DestinationError(
                f"{self.path}: {len(indices)} indices need as many offsets, not {len(starts)}",
                store=self.path,
            )

        def read(snapshot: Snapshot) -> tuple[Any, ...] | None:
            lens = np.empty(len(indices), np.uint32)
            fault = _survey.lengths(snapshot, indices, lens)
            if fault is not None:
                return fault
            self._check_places(starts, lens, view.nbytes)
            return _gather.gather_at(
                snapshot, indices, view, starts, lens, int(lens.sum(dtype=np.int64)), self._team
            )

        self._read(read)

    def gather_stacked(self, idxs: npt.ArrayLike, record_bytes: int) -> npt.NDArray[np.uint8]:
        """Read records of one length into new memory.

        Parameters
        ----------
        idxs : array_like of int, shape (n,)
        record_bytes : int
            What every record must have.

        Returns
        -------
        ndarray of uint8, shape (n * record_bytes,)
            Record ``idxs[i]`` begins at ``i * record_bytes``.

        Raises
        ------
        RecordIndexError, CorruptRecordError, DictionaryError, StoreIOError, ClosedError, OptionError
        """
        indices = as_indices(self.path, idxs)
        record_bytes = check_count("record_bytes", record_bytes)
        data = empty_batch(len(indices) * record_bytes)
        self.fill(indices, data, record_bytes)
        return data

    def fill(self, idxs: npt.ArrayLike, dst: npt.NDArray[Any], record_bytes: int) -> None:
        """Read records of one length into an array that was made for them; `gather` takes any destination.

        Parameters
        ----------
        idxs : array_like of int, shape (n,)
        dst : ndarray of ``n * record_bytes`` bytes
            Writable, C-contiguous, of plain values.
        record_bytes : int
            What every record must have.

        Raises
        ------
        RecordIndexError, CorruptRecordError, DictionaryError, StoreIOError, ClosedError
        """
        self._read(_gather.gather, as_indices(self.path, idxs), dst, record_bytes, True, None, self._team)

    def fill_one(self, index: SupportsIndex, dst: npt.NDArray[Any]) -> None:
        """Read one record, which must be as long as an array that was made for it: `fill` at less cost.

        Parameters
        ----------
        index : int
            Of 64 bits at most.
        dst : ndarray
            Writable, C-contiguous, of plain values.

        Raises
        ------
        OverflowError
            The index has more bits.
        RecordIndexError, CorruptRecordError, DictionaryError, StoreIOError, ClosedError
        """
        self._read(_gather.gather_one, index, dst)

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
        splits = np.empty(len(indices) + 1, np.int64)
        data: npt.NDArray[np.uint8] | None = None

        def read(snapshot: Snapshot) -> tuple[Any, ...] | None:
            nonlocal data
            fault = _survey.lengths(snapshot, indices, None, splits)
            if fault is not None:
                return fault
            total = int(splits[-1])
            check_batch_bytes(self.path, total, max_bytes)
            data = empty_batch(total)
            return _gather.gather_at(snapshot, indices, data, splits, None, total, self._team)

        self._read(read)
        assert data is not None  # or there was an error
        return data, splits

    def gather_padded(
        self,
        idxs: npt.ArrayLike,
        stride: int | Callable[[npt.NDArray[np.uint32]], int] | None = None,
        pad: bytes = b"\0",
        *,
        max_bytes: int | None = None,
    ) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.uint32]]:
        """Read records to equally spaced places in new memory, and fill what they leave.

        Parameters
        ----------
        idxs : array_like of int, shape (n,)
        stride : int or callable, optional
            Bytes for each record; None: the longest one's. What is called is given the lengths of the records, and
            returns it: a multiple of the pad's length, as it has made sure that all the lengths are.
        pad : bytes or another buffer
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
        if stride is not None and not callable(stride):
            stride = check_count("stride", stride)
        pad = as_pad(self.path, pad)
        lens = np.empty(len(indices), np.uint32)
        data: npt.NDArray[np.uint8] | None = None

        def read(snapshot: Snapshot) -> tuple[Any, ...] | None:
            nonlocal data
            fault = _survey.lengths(snapshot, indices, lens)
            if fault is not None:
                return fault
            if callable(stride):
                width = stride(lens)
            else:
                width = stride if stride is not None else int(lens.max(initial=0))
                if len(pad) == 0 or width % len(pad) or np.any(lens % len(pad)):
                    raise OptionError(
                        f"{self.path}: a pad has at least one byte, and its length, here {len(pad)}, divides the "
                        f"stride ({width}) and the length of every record",
                        option="pad",
                        value=pad,
                    )
            check_batch_bytes(self.path, width * len(indices), max_bytes)
            data = empty_batch(len(indices) * width).reshape(len(indices), width)
            return _gather.gather(snapshot, indices, data, width, False, pad, self._team)

        self._read(read)
        assert data is not None  # or there was an error
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
        self._read(_survey.lengths, indices, lens)
        return lens

    def prefetch(self, idxs: npt.ArrayLike) -> None:
        """Have the system begin to read records that will be gathered soon.

        Parameters
        ----------
        idxs : array_like of int, shape (n,)
            Such as the next batch's; negative ones count from the end.

        Raises
        ------
        RecordIndexError
            Nothing was asked for.
        ClosedError

        Notes
        -----
        Returns without waiting for the records; only their table entries are read where they are not in memory. More
        than the disk's queue holds (some hundred requests) it takes in no faster than the disk reads it.

        It changes no result. While what it and the gathers ask for is found to be in memory already, it only looks at
        a few of the records. During a delete or a compaction it does nothing. Safe in any number of threads.
        """
        indices = as_indices(self.path, idxs)
        fault = _survey.prefetch(self._current(), indices)
        if fault is not None and fault[0] != Fault.GATE_CLOSED:
            raise fault_error(self.path, fault)

    def has_dict(self) -> bool:
        """Return whether the store has a dictionary, and one that is not damaged."""
        return self._current().dictionary is not None

    def stats(self) -> dict[str, Any]:
        """Return what the store holds.

        Returns
        -------
        dict
            `records`; `live_bytes`, stored bytes of all records; `chunk_bytes`, bytes of the chunks up to the tail;
            `reclaimable`, their difference, of which `compact` gives back all but at most one record a chunk;
            `logical_bytes`, original bytes of all records; `codecs`, number of records by codec name;
            `dictionary_bytes`; `format_version`, 3 or 4.

        Notes
        -----
        Of the records that this handle sees (`refresh`), whatever a writer has appended since. Reads the whole table:
        16 bytes a record.
        """
        snapshot = self._current()
        assert snapshot.tail is not None, "it is of a store"
        tail_chunk, tail_bytes = snapshot.tail
        live = logical = 0
        by_codec = np.zeros(256, np.int64)
        for _, entries in table_blocks(self.path, snapshot.table, snapshot.length):
            live += int(entries["phys_length"].sum(dtype=np.int64))
            logical += int(entries["logic_length"].sum(dtype=np.int64))
            by_codec += np.bincount(entries["codec"], minlength=256)
            # Where the chunk was cut off, its records count all the same.
            in_tail = entries[entries["chunk_id"] == tail_chunk]
            ends = in_tail["offset"].astype(np.int64) + in_tail["phys_length"]
            tail_bytes = max(tail_bytes, int(ends.max(initial=0)))
        used = tail_chunk * self._chunk_bytes + tail_bytes
        dictionary = self.path / DICTIONARY
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
            "format_version": next(
                number for number, version in VERSIONS.items() if version.max_codec == snapshot.max_codec
            ),
        }

    def _current(self) -> Snapshot:
        snapshot = self._snapshot
        if snapshot is None:
            raise ClosedError(f"{self.path}: the store was closed: open it again", store=self.path)
        return snapshot

    def _read(self, call: Callable[..., tuple[Any, ...] | None], *arguments: Any) -> None:
        """Run a call of the core on the current snapshot, again where a change came between."""
        while True:
            fault = call(self._snapshot or self._current(), *arguments)
            if fault is None:
                return
            if fault[0] != Fault.GATE_CLOSED:
                raise fault_error(self.path, fault)
            if not self._await_change():
                raise StoreLockedError(
                    f"{self.path}: this thread is deleting or compacting, and can read when that is done",
                    store=self.path,
                )

    def _await_change(self) -> bool:
        """Wait for a thread that changes the store alone; False where it is this one."""
        with self._lock:  # that thread holds it
            if self._changes:
                return False
            if self._current().gate.closed:
                # Only in a forked child: what its parent's change left, or is going to leave, is on disk.
                self._open()
            return True

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

    def _after_fork_in_child(self) -> None:
        # The thread that held the lock, and those that were gathering, do not exist here.
        self._lock = threading.RLock()
        snapshot = self._snapshot
        if snapshot is None:
            return
        snapshot.gate.forget()
        # The copy of the parent's hold goes, and nothing is let go by that; this process needs one of its own.
        hold: Hold = snapshot.gate.hold
        hold.close()
        try:
            snapshot.gate.hold = hold_for_reading(self.path, 0)
            if read_header(self.path, snapshot.table).length < snapshot.length:
                snapshot.gate.close()  # the parent has deleted records between the fork and now
        except ZrecordError:
            snapshot.gate.close()  # the next read opens the store anew, and waits if it has to


def open_handles(store: Path) -> list[Reader]:
    """Return the handles of this process that are open on a store."""
    found = []
    for handle in list(_handles):
        snapshot = handle._snapshot
        hold = None if snapshot is None else snapshot.gate.hold
        if isinstance(hold, Hold) and hold.is_at(store / META):
            found.append(handle)
    return found


def _after_fork_in_child() -> None:
    for handle in list(_handles):
        handle._after_fork_in_child()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
