"""Records of one dtype and shape: an array on disk, read along its first axis."""

from __future__ import annotations

import os
from typing import Any, Literal, SupportsIndex

import numpy as np
import numpy.typing as npt

from loaderx.arrays.opening import OpenDataset
from loaderx.arrays.schema import Schema
from loaderx.errors import DestinationError
from loaderx.store.buffers import Indices, empty_array
from loaderx.store.indexing import resolve
from loaderx.store.options import check_batch_bytes


class Dataset(OpenDataset):
    """A dataset of records that share dtype and shape, opened for reading.

    Indexing is NumPy's along the first axis, and always copies: ``ds[i]`` is one record; ``ds[2:10]``, ``ds[[3,
    1, 3]]`` and ``ds[mask]`` are batches.

    Parameters
    ----------
    path : str or os.PathLike
        What `write_dataset` wrote. Never created, never changed; read permission is enough.
    threads : int
        The most threads one call uses; 0: every core in the affinity mask.
    max_batch_bytes : int, optional
        Refuse a batch above this size before any memory is taken for it; None: this machine's memory.
    io : {"mmap", "pread"}
    timeout_s : float
        As in `Zrecord`.
    verify : bool
        Compare the stored bytes of every record that is read with its checksum, where it has one.

    Attributes
    ----------
    path : pathlib.Path
        Absolute.
    dtype : numpy.dtype
    shape : tuple of int
        Of one record.
    codec : str
        The codec it was first written with.
    recovery : Recovery or None
        What was done about a crash when it was opened, as in `Zrecord`.

    Raises
    ------
    NotAStoreError
        There is no dataset here (it is a `FileNotFoundError`).
    SchemaError
        The dataset is ragged, or its schema.json is wrong.
    FormatVersionError, CorruptRecordError, MissingDependencyError, StoreIOError, OptionError

    Notes
    -----
    Safe in any number of threads. A forked child may use it, with one thread a call. Pickles by its path.

    Examples
    --------
    >>> path = tmp_path / "squares.zr"
    >>> write_dataset(path, np.arange(10) ** 2)
    10
    >>> with Dataset(path) as ds:
    ...     ds[[3, 1, 3]], int(ds[-1])
    (array([9, 1, 9]), 81)
    """

    #: To a loader: a batch is read by a team of all cores, whichever thread asks.
    gathers_in_teams = True

    _kind = "fixed"
    _other = ("a ragged dataset", "RaggedDataset")

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        threads: int = 0,
        max_batch_bytes: int | None = None,
        io: Literal["mmap", "pread"] = "mmap",
        timeout_s: float = 10.0,
        verify: bool = False,
    ) -> None:
        # In each class, so that Python names that class where an argument is wrong.
        self._open(path, max_batch_bytes, threads=threads, io=io, timeout_s=timeout_s, verify=verify)

    def _take_shape(self, schema: Schema) -> None:
        self.shape = schema.shape

    def _records(self) -> str:
        return f"records of {self.dtype} {self.shape}"

    def __getitem__(self, idx: Any) -> Any:
        """Return one record (a scalar where records have no axes) or a batch; always a copy.

        Raises
        ------
        RecordIndexError
            No such record, or a mask of another length (it is an `IndexError`).
        TypeError
            Not an index.
        CorruptRecordError, DictionaryError, StoreIOError, ClosedError, OptionError
        """
        if type(idx) is int or type(idx) is np.int64:
            try:
                return self._read_one(idx)
            except OverflowError:
                pass  # an index beyond 64 bits, which is named below
        indices, shape = resolve(self.path, idx, len(self._store))
        if shape is None:
            return self._gather(indices, (1,), None)[0]
        return self._gather(indices, shape, None)

    def __getitems__(self, idxs: Any, out: npt.NDArray[Any] | None = None) -> npt.NDArray[Any]:
        """Return a batch of records.

        Parameters
        ----------
        idxs : sequence of int, or ndarray of int or bool
        out : ndarray, shape (n, *shape), optional
            Written to and returned; of the dataset's dtype, C-contiguous.

        Returns
        -------
        ndarray, shape (n, *shape)

        Raises
        ------
        DestinationError
            `out` does not fit.
        RecordIndexError, CorruptRecordError, DictionaryError, StoreIOError, ClosedError, OptionError, TypeError
        """
        indices, shape = self._resolve_batch(idxs)
        return self._gather(indices, shape, out)

    def _read_one(self, index: SupportsIndex) -> Any:
        """Return one record as ``[index]`` does; a call for a batch of one takes several times as long."""
        if self._item_bytes > self._max_batch_bytes:
            check_batch_bytes(self.path, self._item_bytes, self._max_batch_bytes)
        record = empty_array(self.shape, self.dtype, self._item_bytes)
        self._store.fill_one(index, record)
        return record if self.shape else record[()]

    def _gather(
        self, indices: Indices, axes: tuple[int, ...], out: npt.NDArray[Any] | None
    ) -> npt.NDArray[Any]:
        shape = axes + self.shape
        if out is not None:
            self._check_out(out, shape)
            self._store.gather(indices, out, self._item_bytes, exact=True)
            return out
        n_bytes = len(indices) * self._item_bytes
        if n_bytes > self._max_batch_bytes:
            check_batch_bytes(self.path, n_bytes, self._max_batch_bytes)
        out = empty_array(shape, self.dtype, n_bytes)
        self._store.fill(indices, out, self._item_bytes)
        return out

    def _check_out(self, out: Any, shape: tuple[int, ...]) -> None:
        if not isinstance(out, np.ndarray) or out.shape != shape or out.dtype != self.dtype:
            got = f"{out.dtype} {out.shape}" if isinstance(out, np.ndarray) else type(out).__name__
            raise DestinationError(
                f"{self.path}: out must be an array of {self.dtype} {shape}, not {got}", store=self.path
            )
