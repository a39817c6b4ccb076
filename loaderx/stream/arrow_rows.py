"""Rows of Arrow record batches, as dicts of Python objects."""

from __future__ import annotations

import functools
import importlib
import re
from collections.abc import Callable
from types import ModuleType
from typing import Any

from loaderx.errors import MissingDependencyError

# Rows that become Python objects at a time, and about how many bytes of them.
_MOST_ROWS = 1024
_MOST_BYTES = 4 << 20
_NO_MEMORY_BYTES = 1 << 46


def import_pyarrow(module: str = "pyarrow") -> ModuleType:
    """Return pyarrow, or one of its modules.

    Raises
    ------
    MissingDependencyError
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise MissingDependencyError(
            f"{module} is needed to read Arrow and Parquet, and cannot be imported ({error}): pip install pyarrow, or "
            "loaderx[arrow]",
            package="pyarrow",
            extra="arrow",
        ) from error


def is_of_machine(error: Exception) -> bool:
    """Return whether what reading a file raised is the machine's, which says nothing about what is in the file.

    A damaged file may ask for memory that no machine has: that is the file's.
    """
    if isinstance(error, MemoryError):
        asked = [int(number) for number in re.findall(r"\d+", str(error))]
        return max(asked, default=0) < _NO_MEMORY_BYTES
    return getattr(error, "errno", None) is not None


def rows_at_once(n_rows: int, n_bytes: int) -> int:
    """Return how many rows to make at a time, where some number of them has some bytes."""
    if n_rows == 0:
        return _MOST_ROWS
    return max(1, min(_MOST_ROWS, _MOST_BYTES * n_rows // max(n_bytes, 1)))


def make_rows(batch: Any) -> list[dict[str, Any]]:
    """Return the rows of a record batch, as ``batch.to_pylist()`` does, in less time."""
    names = batch.schema.names
    if not names:
        return [{} for _ in range(batch.num_rows)]
    rows: list[dict[str, Any]] = _row_maker(tuple(names))([column.to_pylist() for column in batch.columns])
    return rows


@functools.lru_cache(maxsize=64)
def _row_maker(names: tuple[str, ...]) -> Callable[[list[list[Any]]], list[dict[str, Any]]]:
    # A dict that is written out is made in half the time of any other, as the standard library does it for its named
    # tuples. Names of columns are in it as literals alone.
    values = [f"v{i}" for i in range(len(names))]
    items = ", ".join(f"{name!r}: {value}" for name, value in zip(names, values, strict=True))
    maker: Callable[[list[list[Any]]], list[dict[str, Any]]]
    maker = eval(f"lambda columns: [{{{items}}} for {', '.join(values)}, in zip(*columns, strict=True)]")
    return maker
