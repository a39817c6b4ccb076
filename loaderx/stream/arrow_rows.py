"""Rows of Arrow record batches, as dicts of Python objects."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from itertools import repeat
from types import ModuleType
from typing import Any

from loaderx.errors import MissingDependencyError

# Rows that become Python objects at a time, and about how many bytes of them.
_MOST_ROWS = 1024
_MOST_BYTES = 4 << 20


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


def rows_at_once(n_rows: int, n_bytes: int) -> int:
    """Return how many rows to make at a time, where some number of them has some bytes."""
    if n_rows == 0:
        return _MOST_ROWS
    return max(1, min(_MOST_ROWS, _MOST_BYTES * n_rows // max(n_bytes, 1)))


def iterate_rows(batch: Any) -> Iterator[dict[str, Any]]:
    """Return the rows of a record batch, as ``batch.to_pylist()`` has them, each made when it is asked for.

    Nothing but the columns is made beforehand, in less time than `to_pylist` takes.
    """
    names = batch.schema.names
    if not names:
        return iter([{} for _ in range(batch.num_rows)])
    columns = [_to_list(column) for column in batch.columns]
    return map(dict, map(zip, repeat(names), zip(*columns, strict=True)))


def _to_list(column: Any) -> list[Any]:
    """Return what ``column.to_pylist()`` does."""
    types = import_pyarrow("pyarrow.types")
    kind = column.type
    if (
        types.is_string(kind)
        or types.is_large_string(kind)
        or types.is_binary(kind)
        or types.is_large_binary(kind)
    ):
        # In C++, with None for what is null; to_pylist makes a scalar of Arrow's for each on the way.
        return column.to_numpy(zero_copy_only=False).tolist()  # type: ignore[no-any-return]
    is_plain = (
        types.is_integer(kind) or types.is_float32(kind) or types.is_float64(kind) or types.is_boolean(kind)
    )
    if is_plain and column.null_count == 0:
        return column.to_numpy(zero_copy_only=False).tolist()  # type: ignore[no-any-return]
    return column.to_pylist()  # type: ignore[no-any-return]
