"""Items as records of stores: what kind of records they make, and the bytes of each."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from loaderx.arrays.casting import cast_values
from loaderx.arrays.schema import Schema, read_schema
from loaderx.errors import SchemaError
from loaderx.jsonl.lines_file import read_lines_file
from loaderx.store.buffers import as_source
from loaderx.store.folders import find_stores, is_store, is_store_name
from loaderx.store.format import LINES
from loaderx.stream.node import Item
from loaderx.stream.regular import as_array, as_number, common_dtype

Kind: TypeAlias = Literal["array", "ragged", "lines", "columns"]
KINDS = ("array", "ragged", "lines", "columns")

_SUFFIX = ".zr"
_BYTES = np.dtype(np.uint8)
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
        array, is_plain = _as_array(value)
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
            if self.dtype != _BYTES or self.item_shape:
                raise Unfit(
                    f"is {type(value).__name__}, and the store's rows are {self.dtype} {self.item_shape}"
                )
            return as_source(value)
        if isinstance(value, list | tuple) and not value:
            return memoryview(b"")  # which has no dtype, nor the shape of its rows
        array, is_plain = _as_array(value)
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
            raise Unfit(f"cannot be a line of JSON: {error}") from error
        if b"\n" in line:
            raise Unfit("has a line end within: map it to a dict, such as {'text': text}, which becomes JSON")
        return line


@dataclass(frozen=True)
class Layout:
    """What each item becomes.

    Attributes
    ----------
    columns : dict
        By name; of items that are one record each, of the name None.
    """

    columns: dict[str | None, Column]

    @property
    def kind(self) -> Kind:
        return self.columns[None].kind if None in self.columns else "columns"

    def records(self, item: Item) -> list[memoryview | bytes]:
        """Return the bytes of an item's records, in the order of the columns.

        Raises
        ------
        Unfit
        """
        if None in self.columns:
            return [self.columns[None].record(item)]
        if not isinstance(item, Mapping):
            raise Unfit(f"is of type {type(item).__name__}, and not a dict, from which columns are made")
        found = []
        for name, column in self.columns.items():
            if name not in item:
                raise Unfit(f"has no {name!r}, of which there is a store: give every item the same names")
            try:
                found.append(column.record(item[name]))
            except Unfit as error:
                raise Unfit(f"does not fit: {name!r} {error}") from error.__cause__
        if len(item) > len(found):
            extra = [name for name in item if name not in self.columns]
            raise Unfit(f"has {extra}, of which there is no store: select or drop names before")
        return found


def store_name(column: str) -> str:
    """Return what the store of a column is called."""
    return column + _SUFFIX


def choose_layout(target: Path, items: Sequence[Item], kind: Kind | None) -> Layout:
    """Return what the first items say that all become.

    Parameters
    ----------
    target : pathlib.Path
        Named in errors.
    items : sequence
    kind : str, optional
        None: what fits them.

    Raises
    ------
    SchemaError
        There is no such thing.
    """
    if not items and kind != "lines":
        raise SchemaError(
            f"{target}: the stream gave no item, so nothing says what its records are: with kind 'lines' an empty "
            "store is written, and write_dataset writes an empty one of arrays",
            path=target,
        )
    are_dicts = all(isinstance(item, Mapping) for item in items)
    if kind is None:
        has_arrays = are_dicts and any(_is_binary(value) for item in items for value in item.values())
        kind = "columns" if has_arrays else _kind_of(target, items)
    if kind == "columns":
        if not are_dicts:
            odd = next(item for item in items if not isinstance(item, Mapping))
            raise SchemaError(
                f"{target}: columns are made of dicts, and there is an item of type {type(odd).__name__}",
                path=target,
            )
        names = list(items[0])
        for name in names:
            if not isinstance(name, str) or not is_store_name(name):
                raise SchemaError(
                    f"{target}: an item has the name {name!r}, of which no store's name can be made: rename it",
                    path=target,
                )
        if not names:
            raise SchemaError(f"{target}: the first item has no names, so there are no columns", path=target)
        return Layout(
            {name: _column(target, name, [item[name] for item in items if name in item]) for name in names}
        )
    if kind == "lines":
        texts = [isinstance(item, str | bytes) for item in items]
        # Text beside other items is JSON too: "1" and 1 would be one line.
        return Layout({None: LineColumn(all(texts) if texts else None)})
    column = _numbers(target, items, kind)
    if column is None:
        odd = next((item for item in items if not _may_be_numbers(item)), items[0])
        raise SchemaError(
            f"{target}: the items make no arrays of one dtype{' and shape' if kind == 'array' else ''}, as kind "
            f"{kind!r} has them; such as one of type {type(odd).__name__}. Map them to arrays before, or leave the "
            "kind to the items",
            path=target,
        )
    return Layout({None: column})


def read_layout(target: Path) -> Layout | None:
    """Return what the stores at a path have been made of; None: there is none.

    Raises
    ------
    SchemaError
    """
    if is_store(target):
        return Layout({None: _column_of_store(target, is_text=None)})
    names = find_stores(target) if target.is_dir() else []
    columns: dict[str | None, Column] = {
        name.removesuffix(_SUFFIX): _column_of_store(target / name, is_text=False)
        for name in names
        if name.endswith(_SUFFIX)
    }
    return Layout(columns) if columns else None


def _column_of_store(path: Path, *, is_text: bool | None) -> Column:
    if (path / LINES).exists():
        read_lines_file(path)
        return LineColumn(is_text)
    schema: Schema = read_schema(path)
    return (
        ArrayColumn(schema.dtype, schema.shape)
        if schema.kind == "fixed"
        else RaggedColumn(schema.dtype, schema.shape)
    )


def _kind_of(target: Path, items: Sequence[Item]) -> Kind:
    column = None if any(isinstance(item, Mapping) for item in items) else _numbers(target, items, None)
    return "lines" if column is None else column.kind


def _column(target: Path, name: str, values: Sequence[Any]) -> Column:
    return _numbers(target, values, None, name) or LineColumn(is_text=False)


def _numbers(
    target: Path, values: Sequence[Any], kind: Kind | None, name: str | None = None
) -> ArrayColumn | RaggedColumn | None:
    """Return the column of arrays that some values make, each as it is; None: they make none.

    Raises
    ------
    SchemaError
        They are arrays, of which nothing else can be made.
    """
    try:
        return _column_of_arrays(values, kind)
    except Unfit as unfit:
        if not any(map(_is_array, values)):
            return None
        of = "an item" if name is None else f"{name!r} of an item"
        raise SchemaError(f"{target}: {of} {unfit}", path=target) from unfit.__cause__


def _column_of_arrays(values: Sequence[Any], kind: Kind | None) -> ArrayColumn | RaggedColumn | None:
    if all(isinstance(value, bytes | bytearray | memoryview) for value in values):
        return RaggedColumn(_BYTES, ()) if kind != "array" else None
    if not all(map(_may_be_numbers, values)):
        return None
    # An empty list says nothing of a dtype, nor of the shape of its rows.
    telling = [value for value in values if not (isinstance(value, list | tuple) and not value)]
    arrays = [_as_array(value)[0] for value in telling]
    if not arrays:
        return None
    kinds = {array.dtype.kind for array in arrays}
    dtype = None if "b" in kinds and len(kinds) > 1 else common_dtype(arrays)
    if dtype is None:
        dtypes = ", ".join(sorted({str(array.dtype) for array in arrays}))
        raise Unfit(
            f"has another dtype than others, and none holds the values of all ({dtypes}): map them to one"
        )
    shapes = {array.shape for array in arrays}
    if kind != "ragged" and len(shapes) == 1 and len(telling) == len(values):
        return ArrayColumn(dtype, shapes.pop())
    rows = {shape[1:] for shape in shapes}
    if kind == "array" or len(rows) != 1 or () in shapes:
        told = " and ".join(map(str, sorted(shapes)[:2]))
        raise Unfit(
            f"has another shape than others, such as {told}"
            + ("" if kind == "array" else ", and not only in the first axis")
        )
    return RaggedColumn(dtype, rows.pop())


def _is_binary(value: Any) -> bool:
    return isinstance(value, np.ndarray | np.generic | bytes | bytearray | memoryview) or hasattr(
        value, "__array__"
    )


def _is_array(value: Any) -> bool:
    return _is_binary(value) and not isinstance(value, bytes | bytearray | memoryview)


def _may_be_numbers(value: Any) -> bool:
    return isinstance(value, bool | int | float | complex | list | tuple) or _is_array(value)


def _as_array(value: Any) -> tuple[npt.NDArray[Any], bool]:
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
    elif _is_array(value):
        try:
            array, is_plain = np.asarray(value), False
        except Exception as error:  # whatever another library's array raises
            raise Unfit(f"makes no array: {error}") from error
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
            if type(name) is not str:
                raise TypeError(f"the name {name!r} of a dict is no text")
            _check_names(each)
    elif isinstance(value, list | tuple):
        for each in value:
            if isinstance(each, dict | list | tuple):
                _check_names(each)


def _plain(value: Any) -> Any:
    """Return what a value is in JSON."""
    if isinstance(value, np.generic) and value.dtype.kind in "biufU":
        return value.item()
    raise TypeError(
        f"a value of type {type(value).__name__} is nothing that JSON has: map it to text, numbers, lists or dicts, or "
        "the item to a dict of arrays, whose names become stores of their own"
    )
