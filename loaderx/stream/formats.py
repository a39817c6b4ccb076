"""Items in the types of a framework."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, Literal, TypeAlias

import numpy as np

from loaderx.errors import MissingDependencyError
from loaderx.stream.applied import Applied
from loaderx.stream.collating import as_dict, count_rows
from loaderx.stream.node import Item, Node
from loaderx.stream.regular import as_array, as_number

Format: TypeAlias = Literal["python", "numpy", "torch", "jax", "arrow"]
FORMATS: tuple[Format, ...] = ("python", "numpy", "torch", "jax", "arrow")

_TEXT = (str, bytes)
_NUMERIC = "biufc"
_MOST_INT64 = 2**63 - 1
# What PyTorch has no arithmetic for, as the loader's tensors have it.
_WIDER = {"uint16": np.int32, "uint32": np.int64, "uint64": np.int64}


class WithFormat(Applied):
    """Items whose values are of a framework's types.

    Parameters
    ----------
    upstream : Node
    kind : str
        One of `FORMATS`.
    are_batches : bool
        Whether a dict has a list of values for each name: of "arrow" alone, where it is a table of as many rows.
    """

    called = "with_format"

    def __init__(self, upstream: Node, kind: Format, are_batches: bool) -> None:
        super().__init__(upstream)
        self._convert = choose_converter(kind, are_batches)

    def apply(self, item: Item) -> Item:
        return self._convert(item)


def choose_converter(kind: Format, are_batches: bool) -> Callable[[Item], Item]:
    """Return the function that converts an item.

    Raises
    ------
    MissingDependencyError
        The framework is not installed.
    """
    if kind == "python":
        return to_python
    if kind == "numpy":
        return to_numpy
    if kind == "torch":
        return _torch_converter()
    if kind == "jax":
        return _jax_converter()
    return _arrow_converter(are_batches)


def to_python(value: Any) -> Any:
    """Return a value with lists and numbers in place of arrays, tensors and tables."""
    if isinstance(value, dict):
        return {name: to_python(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [to_python(each) for each in value]
    for method in ("tolist", "to_pylist"):
        convert = getattr(value, method, None)
        if convert is not None:
            return convert()
    return to_python(dict(value)) if isinstance(value, Mapping) else value


def to_numpy(value: Any) -> Any:
    """Return a value with arrays in place of lists that are regular, and NumPy's numbers in place of Python's.

    A list whose rows differ in length, or that has None or values of several kinds, or numbers that no dtype holds,
    stays a list, its values converted.
    """
    if isinstance(value, dict):
        return {name: to_numpy(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        found, _ = as_array(value)
        return [to_numpy(each) for each in value] if found is None else found
    number = as_number(value)
    if number is not None:
        return number
    if isinstance(value, _TEXT) or value is None or isinstance(value, np.ndarray | np.generic):
        return value
    if isinstance(value, Mapping):
        return to_numpy(dict(value))
    if hasattr(value, "to_pydict"):  # a table of Arrow's
        return {name: to_numpy(value.column(name)) for name in value.schema.names}
    if getattr(value, "null_count", 0):  # NumPy would have floats for whole numbers beside a null
        return to_numpy(value.to_pylist())
    return np.asarray(value) if hasattr(value, "__array__") else value


class _Refused(ValueError):
    """A value that a framework has no type for, nor keeps as it is."""


def _map_arrays(convert: Callable[[Any, bool, bool], Any], most: int) -> Callable[[Item], Item]:
    """Return a function that converts arrays and numbers in an item, and keeps text and what else there is.

    Parameters
    ----------
    convert : callable
        Gets an array, whether its numbers were Python's, which have no size of their own, and whether somebody else
        may hold the array.
    most : int
        The largest whole number of the framework's: what is larger of Python's stays Python's.
    """

    def of_dict(value: dict[Any, Any]) -> dict[Any, Any]:
        converted = {}
        for name, each in value.items():
            try:
                converted[name] = of(each)
            except _Refused as error:
                raise _Refused(f"{name!r}: {error}") from None
        return converted

    def of(value: Any) -> Any:
        if isinstance(value, dict):
            return of_dict(value)
        if isinstance(value, list | tuple):
            found, is_plain = as_array(value)
            if found is None or found.dtype.kind not in _NUMERIC or (is_plain and is_too_large(found)):
                return [of(each) for each in value]
            return convert(found, is_plain, False)
        if isinstance(value, np.ndarray | np.generic):
            if isinstance(value, np.ma.MaskedArray):
                raise _Refused("a masked array, whose mask would be lost: give array.filled() by map")
            is_number = value.dtype.kind in _NUMERIC
            return convert(np.asarray(value), False, isinstance(value, np.ndarray)) if is_number else value
        number = as_number(value)
        if number is not None:
            found = np.asarray(number)
            return value if is_too_large(found) else convert(found, True, False)
        if value is None or isinstance(value, _TEXT):
            return value
        return of_dict(dict(value)) if isinstance(value, Mapping) else value

    def is_too_large(found: Any) -> bool:
        return bool(found.dtype == np.uint64 and int(found.max(initial=0)) > most)

    return of


def _torch_converter() -> Callable[[Item], Item]:
    try:
        import torch
    except ModuleNotFoundError as error:
        raise _missing("torch", error) from None

    def convert(array: Any, is_plain: bool, is_shared: bool) -> Any:
        wider = _WIDER.get(array.dtype.name)
        if wider is not None:
            if array.dtype.itemsize == 8 and (most := int(array.max(initial=0))) > _MOST_INT64:
                raise _Refused(
                    f"{most} of {array.dtype} is beyond int64, and PyTorch hardly computes with its own uint64: give "
                    "array.view(np.int64), smaller numbers, or a tensor by map"
                )
            array = array.astype(wider)
        elif is_shared or not array.dtype.isnative:
            # A change of the tensor in its place would be one of what the source holds.
            array = np.array(array, array.dtype.newbyteorder("="), order="C", subok=False)
        tensor = torch.from_numpy(array)
        if is_plain and array.dtype.kind in "fc":
            default = torch.get_default_dtype()
            return tensor.to(default if array.dtype.kind == "f" else default.to_complex())
        return tensor

    return _map_arrays(convert, _MOST_INT64)


def _jax_converter() -> Callable[[Item], Item]:
    try:
        import jax
        import jax.numpy
    except ModuleNotFoundError as error:
        raise _missing("jax", error) from None

    def convert(array: Any, is_plain: bool, is_shared: bool) -> Any:
        if array.dtype.kind in "iu" and array.dtype.itemsize == 8 and array.size:
            # Without a word JAX would take the lower half of them.
            there = np.dtype(jax.dtypes.canonicalize_dtype(array.dtype))
            bounds = np.iinfo(there)
            least, most = int(array.min()), int(array.max())
            if least < bounds.min or most > bounds.max:
                raise _Refused(
                    f"{least if least < bounds.min else most} of {array.dtype} is beyond {there}, the largest that JAX "
                    "has here: set jax_enable_x64, or give smaller numbers by map"
                )
        return jax.numpy.array(array) if is_shared else jax.numpy.asarray(array)

    return _map_arrays(convert, 2**64 - 1)


def _arrow_converter(are_batches: bool) -> Callable[[Item], Item]:
    try:
        import pyarrow
    except ModuleNotFoundError as error:
        raise _missing("pyarrow", error, "arrow") from None

    def convert(item: Any) -> Any:
        if isinstance(item, pyarrow.Table):
            return item
        columns = as_dict(item)
        if columns is None:
            raise TypeError(
                f"the item is a {type(item).__name__}, and has to be a dict: a table's columns have names"
            )
        if are_batches:
            count_rows(columns)
        else:
            columns = {name: [value] for name, value in columns.items()}
        if not columns:
            return pyarrow.Table.from_pylist([{}])
        return pyarrow.table({name: _as_column(pyarrow, column) for name, column in columns.items()})

    return convert


def _as_column(pyarrow: Any, values: Any) -> Any:
    """Return the values of rows as what Arrow makes a column of: arrays keep their dtype, whatever shape they have."""
    if isinstance(values, np.ndarray):
        return _array_column(pyarrow, values)
    if isinstance(values, pyarrow.Array | pyarrow.ChunkedArray):
        return values
    if values and all(isinstance(value, np.ndarray | np.generic) for value in values):
        found, _ = as_array(values)
        if found is not None:
            return _array_column(pyarrow, found)
        if len({(value.dtype, value.ndim) for value in values}) == 1 and values[0].ndim == 1:
            return pyarrow.array(list(values))
    return to_python(values)


def _array_column(pyarrow: Any, array: Any) -> Any:
    if array.ndim == 1:
        return array
    if array.dtype.kind not in "biufUSMm" or isinstance(array, np.ma.MaskedArray):
        return to_python(array)
    column = pyarrow.array(array.reshape(-1))
    for i in reversed(range(1, array.ndim)):
        offsets = np.arange(math.prod(array.shape[:i]) + 1) * array.shape[i]
        column = pyarrow.ListArray.from_arrays(pyarrow.array(offsets, pyarrow.int32()), column)
    return column


def _missing(package: str, error: ModuleNotFoundError, extra: str | None = None) -> MissingDependencyError:
    if error.name is not None and error.name.split(".")[0] != package:
        raise error
    extra = extra or package
    return MissingDependencyError(
        f'with_format needs {package}, which is not installed: pip install "loaderx[{extra}]"',
        package=package,
        extra=extra,
    )
