"""Values as records of a store: the bytes of each, as the store's kind has them."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from loaderx.arrays.casting import cast_values
from loaderx.store.buffers import as_source
from loaderx.store.telling import said
from loaderx.stream.regular import as_array, as_number

Kind: TypeAlias = Literal["array", "ragged", "lines", "columns"]
KINDS = ("array", "ragged", "lines", "columns")


#: Of bytes, each of which is a row.
BYTES = np.dtype(np.uint8)
_NUMBERS = "biufc"


class Unfit(Exception):
    """A value that makes no record of its column; says why."""


class Column(ABC):
    """The records of one store: one of each item."""

    kind: ClassVar[Kind]
    #: Of the values whose bytes a codec may put side by side.
    item_bytes: int = 1

    @abstractmethod
    def record(self, value: Any) -> memoryview | bytes:
        """Return the bytes of a value's record.

        Raises
        ------
        Unfit
        """


class ArrayColumn(Column):
    """Arrays of one dtype and shape; numbers have the shape ()."""

    kind = "array"

    def __init__(self, dtype: np.dtype[Any], shape: tuple[int, ...]) -> None:
        self.dtype = dtype
        self.shape = shape
        self.item_bytes = max(1, dtype.itemsize)

    def record(self, value: Any) -> memoryview:
        array, is_plain = to_array(value)
        if array.shape != self.shape:
            raise Unfit(
                f"is of shape {array.shape}, and the store's records are of {self.shape}"
                + (
                    ": kind 'ragged' takes what differs in the first axis"
                    if array.shape[1:] == self.shape[1:] and array.ndim == len(self.shape)
                    else ""
                )
            )
        return as_source(_cast(array, self.dtype, is_plain))


class RaggedColumn(Column):
    """Arrays of one dtype that differ in the number of their rows; bytes are arrays of uint8."""

    kind = "ragged"

    def __init__(self, dtype: np.dtype[Any], item_shape: tuple[int, ...]) -> None:
        self.dtype = dtype
        self.item_shape = item_shape
        self.item_bytes = dtype.itemsize

    def record(self, value: Any) -> memoryview:
        if isinstance(value, bytes | bytearray | memoryview):
            if self.dtype != BYTES or self.item_shape:
                raise Unfit(
                    f"is {type(value).__name__}, and the store's rows are {self.dtype} {self.item_shape}"
                )
            return as_source(value)
        if isinstance(value, list | tuple) and not value:
            return memoryview(b"")  # which has no dtype, nor the shape of its rows
        array, is_plain = to_array(value)
        if array.ndim == 0:
            raise Unfit(f"is {_short(value)}, and has no rows")
        if array.shape[1:] != self.item_shape:
            raise Unfit(f"has rows of shape {array.shape[1:]}, and the store's are of {self.item_shape}")
        return as_source(_cast(array, self.dtype, is_plain))


class LineColumn(Column):
    """Lines: of text that is as it is, or of JSON.

    Parameters
    ----------
    is_text : bool or None
        Whether items are text or bytes, and lines themselves; else they become JSON. None: as the first one is.
    """

    kind = "lines"

    def __init__(self, is_text: bool | None) -> None:
        self._is_text = is_text
        self._encode = json.JSONEncoder(
            ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=_plain
        ).encode

    def record(self, value: Any) -> bytes:
        if self._is_text is None:
            self._is_text = isinstance(value, str | bytes)
        if self._is_text and not isinstance(value, str | bytes):
            raise Unfit(
                f"is of type {type(value).__name__}, and those before are lines of text: map all to text"
            )
        try:
            if not self._is_text:
                _check_names(value)
                return self._encode(value).encode()
            line = value.encode() if isinstance(value, str) else value
        except (TypeError, ValueError, RecursionError) as error:  # an UnicodeEncodeError is a ValueError
            raise Unfit(f"cannot be a line of JSON: {said(error)}") from error
        if b"\n" in line:
            raise Unfit("has a line end within: map it to a dict, such as {'text': text}, which becomes JSON")
        return line


def is_binary(value: Any) -> bool:
    """Return whether a value is an array, or bytes: what JSON has not."""
    return isinstance(value, np.ndarray | np.generic | bytes | bytearray | memoryview) or hasattr(
        value, "__array__"
    )


def is_array(value: Any) -> bool:
    """Return whether a value is an array, of NumPy or of another library."""
    return is_binary(value) and not isinstance(value, bytes | bytearray | memoryview)


def to_array(value: Any) -> tuple[npt.NDArray[Any], bool]:
    """Return a value as an array, and whether it is made of Python's numbers, which have no precision of their own."""
    if type(value) is np.ndarray:
        array, is_plain = value, False
    elif isinstance(value, np.ma.MaskedArray):
        raise Unfit("is masked, and would lose its mask: call filled() first")
    elif isinstance(value, list | tuple):
        found, is_plain = as_array(value) if value else (np.empty(0), True)
        if found is None or found.dtype.kind not in _NUMBERS:
            raise Unfit("makes no array of numbers in which each of its values is as it is")
        array = found
    elif is_array(value):
        try:
            array, is_plain = np.asarray(value), False
        except Exception as error:  # whatever another library's array raises
            raise Unfit(f"makes no array: {said(error)}") from error
    else:
        number = as_number(value)
        if number is None:
            raise Unfit(f"makes no array of numbers: it is {_short(value)}")
        array, is_plain = np.asarray(number), True
    if array.dtype.hasobject:
        raise Unfit("is an array of Python objects, which have no bytes to store")
    return array, is_plain


def _cast(array: npt.NDArray[Any], dtype: np.dtype[Any], is_plain: bool) -> npt.NDArray[Any]:
    try:
        return cast_values(array, dtype, rounding=is_plain)
    except ValueError as error:
        raise Unfit(
            f"does not fit the store's dtype {dtype}: it has {error}. Map all items to one dtype before"
        ) from error


def _short(value: Any) -> str:
    text = repr(value)
    return f"of type {type(value).__name__}" if len(text) > 40 else text


def _check_names(value: Any) -> None:
    """Raise where a dict, or one within, has other names than text: JSON would make text of them."""
    if isinstance(value, dict):
        for name, each in value.items():
            if not isinstance(name, str):
                raise TypeError(f"the name {name!r} of a dict is no text")
            _check_names(each)
    elif isinstance(value, list | tuple):
        for each in value:
            if isinstance(each, dict | list | tuple):
                _check_names(each)


def _plain(value: Any) -> Any:
    """Return what a value is in JSON."""
    is_masked = isinstance(value, np.ma.MaskedArray)
    if isinstance(value, np.generic | np.ndarray) and value.dtype.kind in "biufU" and not is_masked:
        return value.tolist()
    if isinstance(value, Mapping):
        _check_names(dict(value))
        return dict(value)
    raise TypeError(
        f"a value of type {type(value).__name__} is nothing that JSON has: map it to text, numbers, lists or dicts, or "
        "the item to a dict of arrays, whose names become stores of their own"
    )
