"""From the packed layout of a ragged batch to a dense one."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from loaderx.arrays.casting import cast_values
from loaderx.errors import OptionError
from loaderx.store.buffers import empty_batch
from loaderx.store.options import check_count, check_max_batch_bytes


def pad(
    values: npt.ArrayLike, row_splits: npt.ArrayLike, max_len: int | None = None, pad_value: Any = 0
) -> tuple[npt.NDArray[Any], npt.NDArray[np.int64]]:
    """Give every record of a packed batch the same number of rows.

    Parameters
    ----------
    values : array_like, shape (rows, *item_shape)
        The rows of all records, one behind the other.
    row_splits : array_like of int, shape (n + 1,)
        Record i has the rows ``row_splits[i]`` to ``row_splits[i + 1]``.
    max_len : int, optional
        Rows for each record; None: the longest one's.
    pad_value : scalar
        What the rows behind a record are filled with; must be a value of the dtype. 0 is the zero of every dtype: the
        empty string, the first moment, a structure of zeros.

    Returns
    -------
    padded : ndarray, shape (n, max_len, *item_shape)
        New memory, of the dtype of `values`.
    lengths : ndarray of int64, shape (n,)
        Rows in each record.

    Raises
    ------
    OptionError
        A record has more than `max_len` rows, or the splits do not fit the values.

    Examples
    --------
    >>> padded, lengths = pad(np.array([1, 2, 3, 4]), np.array([0, 3, 4]))
    >>> padded
    array([[1, 2, 3],
           [4, 0, 0]])
    >>> lengths
    array([3, 1])
    """
    rows = np.asarray(values)
    splits = np.asarray(row_splits)
    if splits.ndim != 1 or len(splits) == 0 or splits.dtype.kind not in "iu":
        raise OptionError(
            f"row_splits must be a one-dimensional integer array with one more item than there are records, not "
            f"{splits.dtype} of shape {splits.shape}",
            option="row_splits",
            value=row_splits,
        )
    splits = splits.astype(np.int64)
    lengths = np.diff(splits)
    if rows.ndim == 0 or splits[0] != 0 or splits[-1] != len(rows) or np.any(lengths < 0):
        raise OptionError(
            f"row_splits must rise from 0 to the number of rows, {len(rows) if rows.ndim else 'at least one axis'}; "
            f"they go from {splits[0]} to {splits[-1]}",
            option="row_splits",
            value=row_splits,
        )
    longest = int(lengths.max(initial=0))
    width = longest if max_len is None else check_max_len(lengths, longest, max_len)
    row_bytes = rows.dtype.itemsize * math.prod(rows.shape[1:])
    if len(lengths) * width * row_bytes > check_max_batch_bytes(None):
        raise OptionError(
            f"{len(lengths)} records of {width} rows of {row_bytes} bytes are more than this machine's memory",
            option="max_len",
            value=max_len,
        )
    padded = _empty((len(lengths), width, *rows.shape[1:]), rows.dtype)
    padded[...] = pad_scalar(pad_value, rows.dtype)
    padded[np.arange(width) < lengths[:, None]] = rows
    return padded, lengths


def _empty(shape: tuple[int, ...], dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    n_bytes = math.prod(shape) * dtype.itemsize
    if n_bytes == 0 or dtype.hasobject:
        return np.empty(shape, dtype)
    return empty_batch(n_bytes).view(dtype).reshape(shape)


def check_max_len(
    lengths: npt.NDArray[np.int64], longest: int, max_len: int, idxs: npt.NDArray[Any] | None = None
) -> int:
    """Return the number of rows to pad to, or raise `OptionError` naming the first record that has more.

    Parameters
    ----------
    lengths : ndarray of int64, shape (n,)
        Rows in each record.
    longest : int
        The most of them.
    max_len : int
    idxs : ndarray of int, shape (n,), optional
        Index of each record, where it is known.
    """
    max_len = check_count("max_len", max_len)
    if longest > max_len:
        at = int(np.argmax(lengths > max_len))
        name = (
            f"position {at} of the batch"
            if idxs is None
            else f"record {idxs[at]} (position {at} of the batch)"
        )
        raise OptionError(
            f"{name} has {lengths[at]} rows, over max_len={max_len}: cut it, or raise max_len",
            option="max_len",
            value=max_len,
        )
    return max_len


def pad_scalar(pad_value: Any, dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    """Return `pad_value` as a 0-d array of a dtype, or raise `OptionError` where it is no value of it.

    The whole number 0 is the zero of every dtype: the empty string, the first moment, a structure of zeros.
    """
    if isinstance(pad_value, int | np.integer) and pad_value == 0:
        return np.zeros((), dtype)
    try:
        # A tuple is a value of a structure only.
        plain = np.array(pad_value, dtype) if dtype.names is not None else np.asarray(pad_value)
        if plain.ndim != 0:
            raise ValueError("it is not a scalar")
        return cast_values(plain, dtype, rounding=True)
    except (TypeError, ValueError, OverflowError) as error:
        raise OptionError(
            f"pad_value {pad_value!r} is no value of dtype {dtype}: {error}",
            option="pad_value",
            value=pad_value,
        ) from None
