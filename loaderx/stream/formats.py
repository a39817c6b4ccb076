"""Items in the types of a framework."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, TypeAlias

import numpy as np

from loaderx.errors import MissingDependencyError
from loaderx.stream.applied import Applied
from loaderx.stream.node import Item, Node

Format: TypeAlias = Literal["python", "numpy", "torch", "jax", "arrow"]
FORMATS: tuple[Format, ...] = ("python", "numpy", "torch", "jax", "arrow")

_TEXT = (str, bytes)
# What NumPy makes of a number of Python's.
_NUMBERS: dict[type[Any], Callable[[Any], Any]] = {
    bool: np.bool_,
    int: np.int64,
    float: np.float64,
    complex: np.complex128,
}
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
    return value


def to_numpy(value: Any) -> Any:
    """Return a value with arrays in place of lists that are regular, and NumPy's numbers in place of Python's.

    A list whose rows differ in length, or that has None or values of several kinds, stays a list, its values converted.
    """
    if isinstance(value, dict):
        return {name: to_numpy(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        found = _as_array(value)
        return [to_numpy(each) for each in value] if found is None else found
    make = _NUMBERS.get(type(value))
    if make is not None:
        try:
            return make(value)
        except OverflowError:
            return value
    if hasattr(value, "__array__") and not isinstance(value, np.ndarray | np.generic):
        return np.asarray(value)
    return value


def _as_array(values: Any) -> Any:
    """Return a list as an array; None: it is not regular."""
    if not {*map(type, values)} <= _NUMBERS.keys():
        return _as_array_of_more(values)
    found = np.asarray(values)
    return None if found.dtype == object else found


def _as_array_of_more(values: Any) -> Any:
    if any(isinstance(each, dict) for each in values):
        return None
    if any(isinstance(each, _TEXT) for each in values):
        # NumPy would make text of numbers beside it.
        return np.asarray(values) if len({type(each) for each in values}) == 1 else None
    if any(isinstance(each, list | tuple) for each in values):
        values = [_as_array(each) if isinstance(each, list | tuple) else each for each in values]
        if any(each is None for each in values) or len({np.shape(each) for each in values}) > 1:
            return None
        if len({each.dtype.kind in "USO" for each in values if isinstance(each, np.ndarray)}) > 1:
            return None
    try:
        found = np.asarray(values)
    except ValueError:
        return None
    return None if found.dtype == object else found


def _map_arrays(convert: Callable[[Any, bool], Any]) -> Callable[[Item], Item]:
    """Return a function that converts arrays and numbers in an item, and keeps text and what else there is.

    `convert` gets an array, and whether its numbers were Python's, which have no size of their own.
    """

    def of(value: Any) -> Any:
        if isinstance(value, dict):
            return {name: of(each) for name, each in value.items()}
        if isinstance(value, list | tuple):
            found = _as_array(value)
            if found is None:
                return [of(each) for each in value]
            return list(value) if found.dtype.kind in "US" else convert(found, not _has_arrays(value))
        if isinstance(value, bool | int | float):
            found = np.asarray(value)
            return value if found.dtype == object else convert(found, True)
        if isinstance(value, np.ndarray | np.generic) and value.dtype.kind in "biufc":
            return convert(np.asarray(value), False)
        return value

    return of


def _has_arrays(values: Any) -> bool:
    first = values[0] if len(values) else None
    return (
        _has_arrays(first) if isinstance(first, list | tuple) else isinstance(first, np.ndarray | np.generic)
    )


def _torch_converter() -> Callable[[Item], Item]:
    try:
        import torch
    except ModuleNotFoundError as error:
        raise _missing("torch", error) from None

    def convert(array: Any, is_plain: bool) -> Any:
        if array.dtype.name in _WIDER:
            array = array.astype(_WIDER[array.dtype.name])
        elif not (array.flags.writeable and array.flags.c_contiguous and array.dtype.isnative):
            array = np.array(array, array.dtype.newbyteorder("="), order="C")
        tensor = torch.from_numpy(array)
        return tensor.to(torch.get_default_dtype()) if is_plain and tensor.is_floating_point() else tensor

    return _map_arrays(convert)


def _jax_converter() -> Callable[[Item], Item]:
    try:
        import jax.numpy
    except ModuleNotFoundError as error:
        raise _missing("jax", error) from None

    as_array = jax.numpy.asarray
    return _map_arrays(lambda array, is_plain: as_array(array))


def _arrow_converter(are_batches: bool) -> Callable[[Item], Item]:
    try:
        import pyarrow
    except ModuleNotFoundError as error:
        raise _missing("pyarrow", error, "arrow") from None

    def convert(item: Any) -> Any:
        if isinstance(item, pyarrow.Table):
            return item
        if not isinstance(item, dict):
            raise TypeError(
                f"the item is a {type(item).__name__}, and has to be a dict: a table's columns have names"
            )
        if are_batches:
            return pyarrow.table({name: _column(column) for name, column in item.items()})
        return pyarrow.Table.from_pylist([to_python(item)])

    return convert


def _column(column: Any) -> Any:
    is_flat = isinstance(column, np.ndarray) and column.ndim == 1
    return column if is_flat else to_python(column)


def _missing(package: str, error: ModuleNotFoundError, extra: str | None = None) -> MissingDependencyError:
    if error.name is not None and error.name.split(".")[0] != package:
        raise error
    extra = extra or package
    return MissingDependencyError(
        f'with_format needs {package}, which is not installed: pip install "loaderx[{extra}]"',
        package=package,
        extra=extra,
    )
