"""Records of one dtype whose first axis has any length: token sequences, waveforms, point sets."""

from __future__ import annotations

import os
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from loaderx._core.rows import to_rows
from loaderx.arrays.opening import OpenDataset
from loaderx.arrays.padding import check_max_len, pad_scalar
from loaderx.arrays.schema import Schema
from loaderx.errors import CorruptRecordError, RecordIndexError
from loaderx.store.buffers import Indices
from loaderx.store.indexing import resolve


class RaggedDataset(OpenDataset):
    """A dataset whose records share dtype and trailing shape, but not their number of rows; opened for reading.

    ``rds[i]`` is one record, an array of shape ``(rows, *item_shape)``. A batch is packed: one array with the
    rows of all its records, and `row_splits`, where each begins.

    Parameters
    ----------
    path : str or os.PathLike
        What `write_ragged` wrote. Never created, never changed; read permission is enough.
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
    item_shape : tuple of int
        Of one row.
    codec : str
        The codec it was first written with.
    recovery : Recovery or None
        What was done about a crash when it was opened, as in `Zrecord`.

    Raises
    ------
    NotAStoreError
        There is no dataset here (it is a `FileNotFoundError`).
    SchemaError
        The dataset has one fixed shape, or its schema.json is wrong.
    FormatVersionError, CorruptRecordError, MissingDependencyError, StoreIOError, OptionError

    Notes
    -----
    Safe in any number of threads. A forked child may use it, with one thread a call. Pickles by its path.

    Examples
    --------
    >>> path = tmp_path / "tokens.zr"
    >>> write_ragged(path, [[7, 8, 9], [], [5]], dtype="int32")
    3
    >>> rds = RaggedDataset(path)
    >>> values, row_splits = rds[[2, 0]]
    >>> values, row_splits
    (array([5, 7, 8, 9], dtype=int32), array([0, 1, 4]))
    >>> rds.getitems_padded([2, 0])[0]
    array([[5, 0, 0],
           [7, 8, 9]], dtype=int32)
    """

    #: To a loader: a batch is read by a team of all cores, whichever thread asks.
    gathers_in_teams = True

    _kind = "ragged"
    _other = ("a dataset of one fixed shape", "Dataset")

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
        self.item_shape = schema.shape

    def _records(self) -> str:
        return f"records, rows of {self.dtype} {self.item_shape}"

    def __getitem__(self, idx: Any) -> Any:
        """Return one record, an array; or for a batch ``(values, row_splits)`` as `__getitems__`. Always copies.

        Raises
        ------
        RecordIndexError
            No such record, a mask of another length, or indices of several axes (it is an `IndexError`).
        TypeError
            Not an index.
        CorruptRecordError, DictionaryError, StoreIOError, ClosedError, OptionError
        """
        indices, shape = resolve(self.path, idx, len(self._store))
        if shape is None:
            return self._packed(indices)[0]
        return self._packed(self._one_axis(indices, shape))

    def __getitems__(self, idxs: Any) -> tuple[npt.NDArray[Any], npt.NDArray[np.int64]]:
        """Return a batch of records in the packed layout.

        Parameters
        ----------
        idxs : sequence of int, or one-dimensional ndarray of int or bool

        Returns
        -------
        values : ndarray, shape (rows, *item_shape)
            The rows of all records, one behind the other; contiguous.
        row_splits : ndarray of int64, shape (n + 1,)
            Record i of the batch is ``values[row_splits[i]:row_splits[i + 1]]``.

        Raises
        ------
        RecordIndexError, CorruptRecordError, DictionaryError, StoreIOError, ClosedError, OptionError, TypeError
        """
        return self._packed(self._one_axis(*self._resolve_batch(idxs)))

    def getitems_padded(
        self, idxs: Any, max_len: int | None = None, pad_value: Any = 0
    ) -> tuple[npt.NDArray[Any], npt.NDArray[np.int64]]:
        """Return a batch of records with the same number of rows each, gathered and padded in one pass.

        Parameters
        ----------
        idxs : sequence of int, or one-dimensional ndarray of int or bool
        max_len : int, optional
            Rows for each record; None: the longest one's.
        pad_value : scalar
            What the rows behind a record are filled with; must be a value of the dtype. 0 is the zero of every dtype.

        Returns
        -------
        padded : ndarray, shape (n, max_len, *item_shape)
        lengths : ndarray of int64, shape (n,)
            Rows in each record.

        Raises
        ------
        OptionError
            A record has more than `max_len` rows, or `pad_value` is no value of the dtype.
        RecordIndexError, CorruptRecordError, DictionaryError, StoreIOError, ClosedError, TypeError
        """
        indices = self._one_axis(*self._resolve_batch(idxs))
        pad = pad_scalar(pad_value, self.dtype).tobytes()
        lengths = np.empty(0, np.int64)
        width = 0

        def plan(record_bytes: npt.NDArray[np.uint32]) -> int:
            nonlocal lengths, width
            lengths = record_bytes.astype(np.int64)
            broken, longest = to_rows(lengths, self._item_bytes)
            if broken >= 0:
                raise self._not_rows(indices[broken], lengths[broken])
            width = longest if max_len is None else check_max_len(lengths, longest, max_len, indices)
            return width * self._item_bytes

        data, _ = self._store.gather_padded(indices, plan, pad, max_bytes=self._max_batch_bytes)
        return np.ndarray((len(indices), width, *self.item_shape), self.dtype, data), lengths

    def _packed(self, indices: Indices) -> tuple[npt.NDArray[Any], npt.NDArray[np.int64]]:
        data, splits = self._store.gather_packed(indices, max_bytes=self._max_batch_bytes)
        broken, _ = to_rows(splits, self._item_bytes)
        if broken >= 0:
            raise self._not_rows(indices[broken - 1], splits[broken] - splits[broken - 1])
        values = data.view(self.dtype)
        return values.reshape(-1, *self.item_shape) if self.item_shape else values, splits

    def _not_rows(self, index: np.integer[Any], n_bytes: np.integer[Any]) -> CorruptRecordError:
        record = int(index) % len(self._store)
        return CorruptRecordError(
            f"{self.path}: record {record} has {n_bytes} bytes, which are no whole number of rows of "
            f"{self._item_bytes} bytes ({self.dtype} {self.item_shape}): schema.json belongs to another store, or "
            "the record is damaged",
            store=self.path,
            record=record,
        )

    def _one_axis(self, indices: Indices, shape: tuple[int, ...]) -> Indices:
        if len(shape) != 1:
            raise RecordIndexError(
                f"{self.path}: records of a ragged dataset lie one behind the other, so indices have one axis, not "
                f"{len(shape)}",
                store=self.path,
            )
        return indices
