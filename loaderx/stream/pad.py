"""Batches whose rows differ in length, filled up to one length."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Any

import numpy as np

from loaderx.arrays.padding import pad
from loaderx.stream.applied import Applied
from loaderx.stream.collating import as_dict
from loaderx.stream.node import Item, Node
from loaderx.stream.regular import Array, as_array, join


class Pad(Applied):
    """Batches with arrays in place of lists of rows.

    Parameters
    ----------
    upstream : Node
    columns : sequence of str or None
        Which lists of a dict; None: all whose first row is a list, a tuple or an array with an axis.
    length : int or None
        What to fill up to; None: the longest row of the batch.
    value : scalar
    lengths : str or None
        Put the lengths of the rows beside: their array is under the column's name with this behind it.
    """

    called = "pad"

    def __init__(
        self,
        upstream: Node,
        columns: Sequence[str] | None,
        length: int | None,
        value: Any,
        lengths: str | None,
    ) -> None:
        super().__init__(upstream)
        self._columns = columns
        self._length = length
        self._value = value
        self._lengths = lengths

    def apply(self, item: Item) -> Item:
        if isinstance(item, list):
            if self._columns is not None or self._lengths is not None:
                raise TypeError("the batch is a list: columns and lengths are for dicts of lists")
            return self._pad("the batch", item)[0]
        columns = as_dict(item)
        if columns is None:
            raise TypeError(
                f"the item is a {type(item).__name__}, and has to be a batch: a dict of lists, or a list. Put pad "
                "behind batch"
            )
        batch = {}
        for name, column in columns.items():
            batch[name] = column
            if name in self._columns if self._columns is not None else _has_rows(column):
                batch[name], n_rows = self._pad(repr(name), column)
                if self._lengths is not None:
                    batch[f"{name}{self._lengths}"] = n_rows
        if self._columns is not None and not columns.keys() >= set(self._columns):
            missing = [name for name in self._columns if name not in columns]
            raise KeyError(
                f"{', '.join(map(repr, missing))} not in the batch, which has {', '.join(map(repr, columns))}"
            )
        return batch

    def _pad(self, name: str, rows: Any) -> tuple[Any, Any]:
        if not _has_rows(rows):
            raise TypeError(f"{name} has no rows of lengths: give lists or arrays with an axis")
        for i, row in enumerate(rows):
            if not _is_row(row):
                raise TypeError(
                    f"row {i} of {name} is a {type(row).__name__}, and has to be a list or an array"
                )
        splits = np.zeros(len(rows) + 1, np.int64)
        np.cumsum([len(row) for row in rows], out=splits[1:])
        return pad(_join(name, rows, self._value), splits, self._length, self._value)


def _has_rows(column: Any) -> bool:
    if not isinstance(column, list | tuple | np.ndarray) or len(column) == 0:
        return False
    return _is_row(column[0])


def _is_row(value: Any) -> bool:
    return isinstance(value, list | tuple) or (isinstance(value, np.ndarray) and value.ndim > 0)


def _join(name: str, rows: Sequence[Any], value: Any) -> Array:
    # An empty list has no dtype to speak of, and NumPy would take it for one of floats.
    filled = [row for row in rows if len(row)] or [row for row in rows if isinstance(row, np.ndarray)]
    if not filled:
        return np.empty(0, np.asarray(value).dtype)
    if all(isinstance(row, list | tuple) for row in filled):
        return _to_array(name, list(chain.from_iterable(filled)))
    arrays = [row if isinstance(row, np.ndarray) else _to_array(name, row) for row in filled]
    if any(isinstance(row, np.ma.MaskedArray) for row in arrays):
        raise TypeError(f"{name} has masked arrays, whose masks would be lost: give array.filled() by map")
    found = join(arrays, np.concatenate)
    if found is None:
        dtypes = ", ".join(sorted({str(row.dtype) for row in arrays}))
        raise ValueError(
            f"{name}: no dtype holds the values of {dtypes} as they are: give rows of one by map"
        )
    return found


def _to_array(name: str, values: Sequence[Any]) -> Array:
    found, _ = as_array(values)
    if found is not None and found.dtype != object:
        return found
    plain = np.asarray(values)
    # Objects would be filled up with numbers; NumPy's own text is, with empty ones, unless it loses NULs.
    if plain.dtype == object or (found is not None and plain.tolist() == found.tolist()):
        return plain
    raise ValueError(
        f"{name}: no dtype holds its values as they are, such as numbers beside text, text that ends with NUL, or "
        "whole numbers that NumPy would round: change them by map"
    )
