"""NumPy's index forms along the first axis, as a list of record indices."""

from __future__ import annotations

import operator
from pathlib import Path
from typing import Any

import numpy as np

from loaderx.errors import RecordIndexError
from loaderx.store.buffers import Indices, as_array, as_indices


def resolve(store: Path, key: Any, length: int) -> tuple[Indices, tuple[int, ...] | None]:
    """Return the records an index means.

    Parameters
    ----------
    store : pathlib.Path
        Named in errors.
    key : int, slice, sequence of int, ndarray of int or bool
        A tuple is a sequence of records. A mask has one item for each record. An array of several axes gives a result
        with those axes.
    length : int
        Number of records.

    Returns
    -------
    indices : ndarray of int64 or uint64, shape (n,)
        Negative ones count from the end; whether they exist is checked where they are read.
    shape : tuple of int or None
        The axes the result has in place of the first one; None: one record, without that axis.

    Raises
    ------
    TypeError
        Not an index: a float, None, Ellipsis, a string, a single bool.
    RecordIndexError
        A mask of another length.

    Examples
    --------
    >>> resolve(Path("d"), slice(None, None, -2), 5)
    (array([4, 2, 0]), (3,))
    >>> resolve(Path("d"), -1, 5)
    (array([-1]), None)
    """
    if isinstance(key, slice):
        return _of_slice(key, length)
    if not isinstance(key, int | list | tuple | np.ndarray | np.generic):
        key = _as_numpy(store, key)
    if isinstance(key, np.ndarray) and key.ndim == 0:
        key = key[()]
    if isinstance(key, bool | np.bool_):
        raise TypeError("a single bool is not a record index")
    if isinstance(key, tuple) and any(
        part is None or part is Ellipsis or isinstance(part, slice) for part in key
    ):
        raise TypeError("only the first axis is indexed: take the records, and index the array they come in")
    if not isinstance(key, list | tuple | np.ndarray):
        try:
            return as_indices(store, [operator.index(key)]), None
        except TypeError:
            if key is None or key is Ellipsis or isinstance(key, str | bytes | float | complex | np.generic):
                raise TypeError(
                    f"a record index must be an integer, a slice or a sequence of them, not {key!r}"
                ) from None
    return _of_sequence(store, key, length)


def resolve_batch(store: Path, key: Any, length: int) -> tuple[Indices, tuple[int, ...]]:
    """Return the records an index means that is not a single one (see `resolve`); `TypeError` for a single one."""
    indices, shape = resolve(store, key, length)
    if shape is None:
        raise TypeError(f"a batch of records needs a sequence of indices, not {key!r}")
    return indices, shape


def _as_numpy(store: Path, key: Any) -> Any:
    """Return an array of another library as NumPy's, or where it has no axes as a number; anything else as it is.

    One that has a single item may be an integer to Python (`operator.index`), whatever its axes.
    """
    n_axes = getattr(key, "ndim", None)
    if n_axes == 0 and callable(getattr(key, "item", None)):
        return key.item()
    if isinstance(n_axes, int) or hasattr(key, "__array__"):
        return as_array(store, key)
    return key


def _of_slice(key: slice, length: int) -> tuple[Indices, tuple[int, ...]]:
    start, stop, step = key.indices(length)
    # A step beyond the length means the first record only, whatever it is; NumPy has no room for all of them.
    indices = np.arange(start, stop, max(-length - 1, min(step, length + 1)), dtype=np.int64)
    return indices, indices.shape


def _of_sequence(store: Path, key: Any, length: int) -> tuple[Indices, tuple[int, ...]]:
    array = as_array(store, key)
    if array.dtype == np.bool_:
        if array.shape != (length,):
            raise RecordIndexError(
                f"{store}: a mask of shape {array.shape} does not fit {length} records: it needs shape ({length},)",
                store=store,
                length=length,
            )
        indices = np.flatnonzero(array)
        return indices, indices.shape
    return as_indices(store, array.reshape(-1)), array.shape
