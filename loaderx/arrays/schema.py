"""`schema.json`: what the bytes of a store mean to NumPy."""

from __future__ import annotations

import json
import math
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from loaderx.arrays.dtypes import check_storable, describe, from_description, plain_string
from loaderx.errors import NotAStoreError, RecordTooLargeError, SchemaError
from loaderx.store import files
from loaderx.store.format import CODECS, LINES, MAX_ITEM_BYTES, MIN_ITEM_BYTES, SCHEMA, UNSHUFFLED, WIDE
from loaderx.store.options import Codec, check_codec

_FORMAT = "loaderx-zrecord"
_VERSION = 1
# NumPy 2 has at most 64 axes, and a batch adds one.
_MAX_AXES = 63
_MAX_FILE_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Schema:
    """What the records of a dataset are.

    Attributes
    ----------
    kind : {"fixed", "ragged"}
        Whether every record has the same shape, or its own number of rows.
    dtype : numpy.dtype
    shape : tuple of int
        Of one record; of a ragged dataset, of one row.
    codec : str
        The codec the dataset was first written with.
    """

    kind: Literal["fixed", "ragged"]
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    codec: Codec

    @property
    def item_bytes(self) -> int:
        """Bytes of one record; of a ragged dataset, of one row."""
        return self.dtype.itemsize * math.prod(self.shape)

    def __str__(self) -> str:
        if self.kind == "ragged":
            return f"ragged records, rows of {self.dtype} {self.shape}"
        return f"fixed records of {self.dtype} {self.shape}"


def new_schema(
    path: Path, kind: Literal["fixed", "ragged"], dtype: np.dtype[Any], shape: tuple[int, ...], codec: Codec
) -> Schema:
    """Return the schema of a dataset that is to be written.

    Raises
    ------
    SchemaError
        The dtype cannot be stored.
    RecordTooLargeError
        One record (of a ragged dataset: one row) is over the store's limit.
    """
    try:
        check_storable(dtype)
    except TypeError as error:
        raise SchemaError(f"{path}: {error}", path=path) from None
    if codec in UNSHUFFLED and not MIN_ITEM_BYTES <= dtype.itemsize <= MAX_ITEM_BYTES:
        # What the records will have: loaderx 0.7.3 reads no dataset of a codec that it does not know.
        codec = UNSHUFFLED[codec]
    schema = Schema(kind, dtype, shape, codec)
    if kind == "ragged" and schema.item_bytes == 0:
        raise SchemaError(
            f"{path}: rows of {dtype} {shape} have no bytes, so the number of them in a record would be lost",
            path=path,
        )
    if schema.item_bytes > WIDE.max_record_bytes:
        raise RecordTooLargeError(
            f"{path}: {schema} have {schema.item_bytes} bytes each, and a store takes at most "
            f"{WIDE.max_record_bytes}: split them",
            store=path,
            record_bytes=schema.item_bytes,
            limit_bytes=WIDE.max_record_bytes,
        )
    return schema


def write_schema(path: Path, schema: Schema) -> None:
    """Write `schema.json` into a store's directory.

    What loaderx 0.7.3 can express is written as it writes it; `descr`, a key it ignores, holds the rest.
    """
    document: dict[str, Any] = {"format": _FORMAT, "version": _VERSION}
    if schema.kind == "ragged":
        document["ragged"] = True
    document["dtype"] = plain_string(schema.dtype)
    document["item_shape" if schema.kind == "ragged" else "shape"] = list(schema.shape)
    document["codec"] = schema.codec
    if np.dtype(document["dtype"]) != schema.dtype:
        document["descr"] = describe(schema.dtype)
    with files.errors_named(path, f"write {SCHEMA}"):
        files.write_new(path / SCHEMA, (json.dumps(document, indent=2) + "\n").encode())


def read_schema(path: Path) -> Schema:
    """Read and check the `schema.json` of a dataset.

    Parameters
    ----------
    path : pathlib.Path
        The dataset's directory.

    Raises
    ------
    NotAStoreError
        There is no schema.json here.
    SchemaError
        It is not a schema this release can read; nothing was allocated for it.
    MissingDependencyError
        Its dtype belongs to a package that is not installed.
    StoreIOError
    """
    with files.errors_named(path, f"read {SCHEMA}"):
        try:
            data = files.read_whole(path / SCHEMA, _MAX_FILE_BYTES)
        except (FileNotFoundError, NotADirectoryError):
            if not os.path.lexists(path):
                problem = "there is nothing at this path"
            elif not path.is_dir():
                problem = "this is not a directory"
            else:
                problem = f"the directory has no {SCHEMA}; a store of plain bytes opens with Zrecord"
                if (path / LINES).exists():
                    problem = f"the directory has no {SCHEMA}: a store of lines opens with loaderx.jsonl.JsonlDataset"
            raise NotAStoreError(f"{path}: not a loaderx dataset: {problem}", store=path) from None
    try:
        document = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise _wrong(path, f"it is not JSON ({error})") from None
    return _check(path, document)


def _check(path: Path, document: Any) -> Schema:
    if not isinstance(document, dict):
        raise _wrong(path, f"it holds a {type(document).__name__}, not an object")
    if document.get("format") != _FORMAT:
        raise _wrong(path, f"its format is {document.get('format')!r}, not {_FORMAT!r}")
    if type(document.get("version")) is not int or document["version"] != _VERSION:
        raise _wrong(path, f"its version is {document.get('version')!r}, and this release reads {_VERSION}")
    ragged = document.get("ragged", False)
    if not isinstance(ragged, bool):
        raise _wrong(path, f"ragged is {ragged!r}, not true or false")
    key = "item_shape" if ragged else "shape"
    shape = document.get(key)
    if not isinstance(shape, list) or not all(type(count) is int and count >= 0 for count in shape):
        raise _wrong(path, f"{key} is {shape!r}, not a list of whole numbers")
    if len(shape) > _MAX_AXES:
        raise _wrong(path, f"{key} has {len(shape)} axes, and NumPy at most {_MAX_AXES + 1} with the batch's")
    codec = document.get("codec")
    if not isinstance(codec, str) or codec not in CODECS:
        raise _wrong(path, f"codec is {codec!r}, not one of {', '.join(CODECS)}")
    schema = Schema(
        "ragged" if ragged else "fixed", _read_dtype(path, document), tuple(shape), check_codec(codec)
    )
    if ragged and schema.item_bytes == 0:
        raise _wrong(path, "its rows have no bytes, so no record has a number of them")
    # An axis of nothing hides what the others multiply to, and NumPy still has no array of that shape.
    if math.prod(max(count, 1) for count in shape) * max(schema.dtype.itemsize, 1) >= 2**62:
        raise _wrong(path, f"{key} is {shape}, and no array is so large")
    if schema.item_bytes > WIDE.max_record_bytes:
        raise _wrong(
            path,
            f"it says {schema.item_bytes} bytes a record, and a record has at most {WIDE.max_record_bytes}",
        )
    return schema


def _read_dtype(path: Path, document: dict[str, Any]) -> np.dtype[Any]:
    plain = document.get("dtype")
    if not isinstance(plain, str):
        raise _wrong(path, f"dtype is {plain!r}, not a string")
    try:
        stored = from_description(plain)
        dtype = from_description(document["descr"]) if "descr" in document else stored
    except (ValueError, TypeError, RecursionError) as error:
        raise _wrong(path, f"its dtype cannot be used: {error}") from None
    if dtype.itemsize != stored.itemsize:
        raise _wrong(path, f"descr has {dtype.itemsize} bytes an item, and dtype {plain!r} {stored.itemsize}")
    return dtype


def _wrong(path: Path, problem: str) -> SchemaError:
    return SchemaError(f"{path}: {SCHEMA} is wrong: {problem}. Restore it from a copy", path=path)
