"""What the items of a stream become: decided by the first ones, or by the stores that are there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from loaderx.arrays.schema import Schema, read_schema
from loaderx.errors import SchemaError
from loaderx.jsonl.lines_file import read_lines_file
from loaderx.store.folders import find_stores, is_store, is_store_name
from loaderx.store.format import LINES
from loaderx.stream.node import Item
from loaderx.stream.records import (
    BYTES,
    ArrayColumn,
    Column,
    Kind,
    LineColumn,
    RaggedColumn,
    Unfit,
    is_array,
    is_binary,
    to_array,
)
from loaderx.stream.regular import common_dtype

_SUFFIX = ".zr"


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
        has_arrays = are_dicts and any(is_binary(value) for item in items for value in item.values())
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
    for item in items:
        if isinstance(item, list | tuple) and any(map(is_array, item)):
            raise SchemaError(
                f"{target}: an item is a {type(item).__name__} with arrays in it: map it to a dict of them, whose "
                "names become stores of their own, or give the kind",
                path=target,
            )
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
        if not any(map(is_array, values)):
            return None
        of = "an item" if name is None else f"{name!r} of an item"
        raise SchemaError(f"{target}: {of} {unfit}", path=target) from unfit.__cause__


def _column_of_arrays(values: Sequence[Any], kind: Kind | None) -> ArrayColumn | RaggedColumn | None:
    if all(isinstance(value, bytes | bytearray | memoryview) for value in values):
        return RaggedColumn(BYTES, ()) if kind != "array" else None
    if not all(map(_may_be_numbers, values)):
        return None
    # An empty list says nothing of a dtype, nor of the shape of its rows.
    telling = [value for value in values if not (isinstance(value, list | tuple) and not value)]
    arrays = [to_array(value)[0] for value in telling]
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


def _may_be_numbers(value: Any) -> bool:
    return isinstance(value, bool | int | float | complex | list | tuple) or is_array(value)
