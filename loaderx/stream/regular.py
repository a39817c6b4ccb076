"""Lists as arrays, where they are regular, and arrays as one: never at the cost of a value."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

Array: TypeAlias = npt.NDArray[Any]

# What NumPy makes of a number of Python's.
_NUMBERS: dict[type[Any], Callable[[Any], Any]] = {
    bool: np.bool_,
    int: np.int64,
    float: np.float64,
    complex: np.complex128,
}
# Whole numbers up to here are float64's too.
_MOST_EXACT = 2**53


#: A list as an array, or None: it is not regular, or no dtype holds all of its values as they are. And whether its
#: values are numbers of Python's, which have no dtype of their own.
Regular: TypeAlias = tuple[Array | None, bool]


def as_number(value: Any) -> Any:
    """Return a number of Python's as NumPy's; None: it is none, or one that is too large.

    A whole number is an ``int64``, or a ``uint64`` where that alone holds it.
    """
    make = _NUMBERS.get(type(value))
    if make is None:
        return None
    try:
        return make(value)
    except OverflowError:
        return np.uint64(value) if 0 <= value < 2**64 else None


def as_array(values: Sequence[Any]) -> Regular:
    """Return a list or a tuple as an array, where that keeps all of its values.

    Whole numbers are ``int64``, or ``uint64`` where that alone holds them, and floats where there are floats beside
    them that are as exact. Text with NULs, which NumPy's own would lose at its end, and bytes are objects. Arrays keep
    their dtype, or get the least one that holds what is in all of them.
    """
    kinds = {*map(type, values)}
    if kinds <= _NUMBERS.keys():
        return _of_numbers(values, kinds), True
    if any(issubclass(kind, str | bytes) for kind in kinds):
        # NumPy would make text of numbers beside it.
        return _of_text(values, *kinds) if len(kinds) == 1 else None, False
    if len(kinds) == 1 and all(issubclass(kind, np.number | np.bool_) for kind in kinds):
        return np.asarray(values), False
    if kinds == {np.ndarray}:
        return _stack(values), False
    parts, is_plain = [], True
    for value in values:
        part, is_part_plain = _as_part(value)
        if part is None:
            return None, False
        parts.append(part)
        is_plain = is_plain and is_part_plain
    return _stack(parts), is_plain


def _as_part(value: Any) -> Regular:
    if isinstance(value, list | tuple):
        return as_array(value)
    if type(value) in _NUMBERS:
        number = as_number(value)
        return None if number is None else np.asarray(number), True
    if isinstance(value, np.ma.MaskedArray):  # whose mask would be lost
        return None, False
    if hasattr(value, "__array__") or hasattr(value, "__array_interface__"):
        return np.asarray(value), False
    return None, False


def _stack(arrays: Sequence[Array]) -> Array | None:
    shape, dtype = arrays[0].shape, arrays[0].dtype
    if any(array.shape != shape for array in arrays):
        return None
    if dtype.kind in "biufcU" and all(array.dtype == dtype for array in arrays):
        return np.array(arrays)  # which is faster
    return join(arrays, np.stack)


def _of_numbers(values: Sequence[Any], kinds: set[type[Any]]) -> Array | None:
    if int not in kinds:
        return np.asarray(values)
    if kinds <= {bool, int}:
        try:
            return np.asarray(values, np.int64)
        except OverflowError:
            fits = min(values) >= 0 and max(values) < 2**64
            return np.asarray(values, np.uint64) if fits else None
    is_exact = all(type(value) is not int or -_MOST_EXACT <= value <= _MOST_EXACT for value in values)
    return np.asarray(values) if is_exact else None


def _of_text(values: Sequence[Any], kind: type[Any]) -> Array:
    if issubclass(kind, str) and "\0" not in "".join(values):
        return np.asarray(values)
    objects = np.empty(len(values), object)
    objects[:] = values
    return objects


def join(arrays: Sequence[Array], how: Callable[..., Array]) -> Array | None:
    """Return arrays as one, by `numpy.stack` or `numpy.concatenate`; None: no dtype holds all of their values."""
    if any(isinstance(array, np.ma.MaskedArray) for array in arrays):
        how = getattr(np.ma, how.__name__)  # the others lose the masks
    dtype = common_dtype(arrays)
    return None if dtype is None else how([array.astype(dtype, copy=False) for array in arrays])


def common_dtype(arrays: Sequence[Array]) -> np.dtype[Any] | None:
    """Return a dtype that holds each value of some arrays as it is; None: there is none."""
    dtypes = {array.dtype for array in arrays}
    if len(dtypes) == 1:
        return dtypes.pop()
    kinds = {dtype.kind for dtype in dtypes}
    if kinds in ({"U"}, {"S"}):
        return np.result_type(*dtypes)
    if not kinds <= set("biufc"):  # dates of two units, or numbers beside text
        return None
    found = np.result_type(*dtypes)
    whole = [array for array in arrays if array.dtype.kind in "iu" and array.size]
    if kinds <= set("biu"):
        if found.kind != "f":
            return found
        # Of int64 and uint64 NumPy makes floats.
        if all(array.min() >= 0 for array in whole):
            return np.dtype(np.uint64)
        return np.dtype(np.int64) if all(int(array.max()) < 2**63 for array in whole) else None
    most = 2 ** (np.finfo(found).nmant + 1)
    is_exact = all(-most <= int(array.min()) and int(array.max()) <= most for array in whole)
    return found if is_exact else None
