"""What `write_dataset` and `write_ragged` read from, and what they are given by mistake."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from loaderx.arrays.dataset import Dataset
from loaderx.arrays.ragged import RaggedDataset
from loaderx.arrays.ragged_records import RaggedRecords
from loaderx.arrays.schema import Schema, new_schema
from loaderx.errors import SchemaError
from loaderx.store.options import Codec, check_count


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
    records = RaggedRecords(target, arrays, dtype, item_shape, explicit=explicit)
    return records, new_schema(target, "ragged", records.dtype, records.item_shape, codec)


def _as_source_of_slices(target: Path, data: Any) -> Any:
    if isinstance(data, Dataset):
        return _Records(data)
    if hasattr(data, "dtype") and hasattr(data, "shape") and hasattr(data, "__getitem__"):
        return data
    _check_not_files(target, data)
    if isinstance(data, RaggedDataset):
        raise SchemaError(
            f"{target}: the records of a RaggedDataset differ in length: write_ragged takes it", path=target
        )
    return _as_array(target, data)


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
