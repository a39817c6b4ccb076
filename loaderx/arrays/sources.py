"""What `write_dataset` and `write_ragged` read from, and what they are given by mistake."""

from __future__ import annotations

import array
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Protocol

import numpy as np
import numpy.typing as npt

from loaderx.arrays.dataset import Dataset
from loaderx.arrays.ragged import RaggedDataset
from loaderx.arrays.ragged_records import RaggedRecords
from loaderx.arrays.schema import Schema, new_schema
from loaderx.errors import SchemaError
from loaderx.store.options import Codec, check_count

# Python's own sequences, of which NumPy makes arrays at once; another class may read from a disk.
_OWN_SEQUENCES: Final = (list, tuple, range, str, bytes, bytearray, memoryview, array.array)


class Sliced(Protocol):
    """What `write_dataset` reads slice by slice: an array, or anything that gives arrays for slices along axis 0."""

    @property
    def dtype(self) -> np.dtype[Any]: ...
    @property
    def shape(self) -> tuple[int, ...]: ...
    def __getitem__(self, key: slice, /) -> npt.NDArray[Any]: ...


class _Records:
    """A dataset as an array: the first axis counts its records."""

    def __init__(self, dataset: Dataset) -> None:
        self.dtype = dataset.dtype
        self.shape = (len(dataset), *dataset.shape)
        self._dataset = dataset

    def __getitem__(self, key: slice) -> npt.NDArray[Any]:
        records: npt.NDArray[Any] = self._dataset[key]
        return records


class _Stacked:
    """Arrays of one dtype and shape in a list, as the array that they make: no copy of all of them is made."""

    def __init__(self, arrays: Sequence[npt.NDArray[Any]]) -> None:
        self.dtype = arrays[0].dtype
        self.shape = (len(arrays), *arrays[0].shape)
        self._arrays = arrays

    def __getitem__(self, key: slice) -> npt.NDArray[Any]:
        return np.asarray(self._arrays[key])


def as_rows(data: Any) -> Any:
    """Return what `as_slices` takes, where data is for `write_dataset`; None where it is for `write_ragged`.

    Where either would do, it is for `write_dataset`. The records are the same.
    """
    if isinstance(data, RaggedDataset) or (
        isinstance(data, Sequence) and not isinstance(data, _OWN_SEQUENCES)
    ):
        return None
    if not isinstance(data, list | tuple):
        is_array = (
            hasattr(data, "__array__") or hasattr(data, "__array_interface__") or hasattr(data, "dtype")
        )
        is_one = (
            isinstance(data, (Dataset, Mapping, *_OWN_SEQUENCES))
            or is_array
            or not isinstance(data, Iterable)
        )
        return data if is_one else None
    if data and all(type(item) is np.ndarray for item in data):
        first = data[0]
        if all(item.dtype == first.dtype and item.shape == first.shape for item in data):
            return _Stacked(data)
    try:
        return np.asarray(data)
    except ValueError:  # they differ in length
        return None


def as_slices(target: Path, data: Any, codec: Codec) -> tuple[Any, int, Schema]:
    """Return what gives slices of an array along axis 0, their number, and the schema of a dataset of them.

    Parameters
    ----------
    target : pathlib.Path
        Named in errors.
    data : array_like, Sliced or Dataset
    codec : str

    Raises
    ------
    SchemaError, RecordTooLargeError
    """
    source = _as_source_of_slices(target, data)
    if isinstance(source, np.ma.MaskedArray):
        raise SchemaError(f"{target}: a masked array would lose its mask: call filled() first", path=target)
    if len(source.shape) == 0:
        raise SchemaError(
            f"{target}: the array has no axis to cut into records; reshape it to (1,)", path=target
        )
    n, *shape = (check_count("shape", count) for count in source.shape)
    return source, n, new_schema(target, "fixed", np.dtype(source.dtype), tuple(shape), codec)


def read_slice(
    target: Path, source: Sliced, n: int, schema: Schema, first: int, stop: int
) -> npt.NDArray[Any]:
    """Return a slice of what `as_slices` gave, checked to be what its dtype and shape say.

    Parameters
    ----------
    target : pathlib.Path
        Named in errors.
    source : Sliced
    n : int
        How many records it has.
    schema : Schema
    first, stop : int
        Within them: a source need not know what a slice beyond its end means.

    Raises
    ------
    SchemaError
    """
    block = np.asarray(source[first:stop])
    if block.dtype != schema.dtype or block.shape != (stop - first, *schema.shape):
        raise SchemaError(
            f"{target}: the source gave {block.dtype} {block.shape} for its slice {first}:{stop}, and said "
            f"{schema.dtype} {(n, *schema.shape)} in all",
            path=target,
        )
    return block


def as_records(
    target: Path,
    arrays: Any,
    dtype: npt.DTypeLike | None,
    item_shape: Sequence[int] | int | None,
    codec: Codec,
    *,
    explicit: bool,
) -> tuple[RaggedRecords, Schema]:
    """Return arrays as the records of a ragged dataset, and its schema.

    Parameters
    ----------
    target : pathlib.Path
        Named in errors.
    arrays, dtype, item_shape
        As in `write_ragged`.
    codec : str
    explicit : bool
        Whether the caller asked for the dtype.

    Raises
    ------
    SchemaError, RecordTooLargeError
    """
    _check_not_files(target, arrays)
    if isinstance(arrays, bytes | bytearray):
        raise SchemaError(f"{target}: a {type(arrays).__name__} is no iterable of arrays", path=target)
    if isinstance(arrays, RaggedDataset):  # which knows them, also where it is empty
        dtype = arrays.dtype if dtype is None else dtype
        item_shape = arrays.item_shape if item_shape is None else item_shape
    records = RaggedRecords(target, arrays, dtype, item_shape, explicit=explicit)
    return records, new_schema(target, "ragged", records.dtype, records.item_shape, codec)


def _as_source_of_slices(target: Path, data: Any) -> Any:
    if isinstance(data, Dataset):
        return _Records(data)
    if hasattr(data, "dtype") and hasattr(data, "shape") and hasattr(data, "__getitem__"):
        return data if _is_numpys(data.dtype) else _as_numpys(target, data)
    _check_not_files(target, data)
    if isinstance(data, RaggedDataset):
        raise SchemaError(
            f"{target}: the records of a RaggedDataset differ in length: write_ragged takes it", path=target
        )
    return _as_array(target, data)


def _is_numpys(dtype: Any) -> bool:
    """Return whether NumPy understands a dtype: those of other libraries' arrays, such as tensors, it may not."""
    try:
        np.dtype(dtype)
    except TypeError:
        return False
    return True


def _as_numpys(target: Path, data: Any) -> npt.NDArray[Any]:
    try:
        return np.asarray(data)
    except Exception as error:  # whatever the other library raises, such as for a tensor that is on a device
        raise SchemaError(
            f"{target}: NumPy makes no array of a {type(data).__name__} of {data.dtype} ({error}): give one, such as "
            "tensor.detach().cpu().numpy(), of a type that NumPy has",
            path=target,
        ) from error


def _check_not_files(target: Path, data: Any) -> None:
    """Raise `SchemaError` for the name of a file, and for what iterates over names: a mapping, an open .npz file."""
    if isinstance(data, str | os.PathLike):
        raise SchemaError(
            f"{target}: the {type(data).__name__} {os.fspath(data)!r} is no array: np.load(name, mmap_mode='r') opens "
            "a .npy file, and python -m loaderx convert takes .npy and .npz files by their names",
            path=target,
        )
    if isinstance(data, Mapping):
        one = next((f", [{name!r}]" for name in data), "")
        raise SchemaError(
            f"{target}: a {type(data).__name__} holds arrays by name and is none itself: take one of them{one}; python "
            "-m loaderx convert makes a store of each array of a .npz file",
            path=target,
        )


def _as_array(target: Path, data: Any) -> npt.NDArray[Any]:
    try:
        array = np.asarray(data)
    except ValueError as error:
        raise SchemaError(
            f"{target}: these lists make no array ({error}): records of different lengths are for write_ragged",
            path=target,
        ) from None
    if array.ndim == 0:
        raise SchemaError(
            f"{target}: a {type(data).__name__} is no array of records: pass an array, or several to write_ragged",
            path=target,
        )
    return array
