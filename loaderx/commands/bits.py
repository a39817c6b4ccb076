"""Arrays as bare items of bytes, so that copies and comparisons take every bit, padding between fields included."""

from __future__ import annotations

from typing import Any

import numpy as np


def as_bits(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """View an array of any dtype and strides as items of bytes (dtype void of the same size), without a copy."""
    # The dtype as a string: for (numpy.void, size) NumPy runs Python code in which a Ctrl-C is lost.
    return array.view(f"V{array.dtype.itemsize}") if array.dtype.itemsize else array


def copied(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Copy an array bit for bit into C order."""
    return np.array(as_bits(array), order="C").view(array.dtype)


def fill(destination: np.ndarray[Any, Any], source: np.ndarray[Any, Any]) -> None:
    """Copy `source` into `destination` (same dtype and shape) bit for bit."""
    as_bits(destination)[...] = as_bits(source)


def first_different(got: np.ndarray[Any, Any], expected: np.ndarray[Any, Any]) -> int | None:
    """Give the first index along axis 0 where two arrays of one dtype and shape differ in any bit, or None."""
    if not got.nbytes:
        return None
    got_rows, expected_rows = _rows(got), _rows(expected)
    if np.array_equal(got_rows, expected_rows):
        return None
    return int(np.argmax((got_rows != expected_rows).any(axis=1)))


def _rows(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return np.ascontiguousarray(as_bits(array)).view(np.uint8).reshape(len(array), -1)
