"""The dtypes that columns of Arrow and Parquet files have, given back to rows of Python's objects."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from loaderx.stream.arrow_rows import import_pyarrow

# What Arrow calls otherwise than NumPy does.
_OTHER_NAMES = {"halffloat": "float16", "float": "float32", "double": "float64"}


class Typed:
    """Makes numbers of a row, and lists of numbers, NumPy's again, in the dtypes that the table has them in.

    Parameters
    ----------
    dtypes : mapping of str to numpy.dtype
        By name; others are left as they are, and so is None, and a list with None in it.
    """

    def __init__(self, dtypes: Mapping[str, np.dtype[Any]]) -> None:
        self._dtypes = dict(dtypes)

    def __call__(self, row: dict[str, Any]) -> dict[str, Any]:
        """Return the row, changed in its place."""
        for name, dtype in self._dtypes.items():
            value = row.get(name)
            if isinstance(value, list):
                if None not in value:
                    row[name] = np.array(value, dtype)
            elif value is not None:
                row[name] = dtype.type(value)
        return row


def common_dtypes(paths: Sequence[str]) -> dict[str, np.dtype[Any]]:
    """Return the dtypes of the columns that have numbers, or lists of numbers, and have them in one dtype in all files.

    Parameters
    ----------
    paths : sequence of str
        Parquet files, or Arrow IPC files or streams.
    """
    common = _dtypes_of(paths[0])
    for path in paths[1:]:
        found = _dtypes_of(path)
        common = {name: dtype for name, dtype in common.items() if found.get(name) == dtype}
    return common


def _dtypes_of(path: str) -> dict[str, np.dtype[Any]]:
    with open(path, "rb") as file:
        magic = file.read(6)
    arrow = import_pyarrow()
    if magic.startswith(b"PAR1"):
        schema = import_pyarrow("pyarrow.parquet").read_schema(path)
    else:
        ipc = import_pyarrow("pyarrow.ipc")
        with arrow.memory_map(path) as data:
            schema = (ipc.open_file if magic == b"ARROW1" else ipc.open_stream)(data).schema
    found = {}
    for field in schema:
        kind = field.type
        if (
            arrow.types.is_list(kind)
            or arrow.types.is_large_list(kind)
            or arrow.types.is_fixed_size_list(kind)
        ):
            kind = kind.value_type
        if arrow.types.is_integer(kind) or arrow.types.is_floating(kind) or arrow.types.is_boolean(kind):
            found[field.name] = np.dtype(_OTHER_NAMES.get(str(kind), str(kind)))
    return found
