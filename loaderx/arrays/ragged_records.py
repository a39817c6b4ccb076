"""The arrays of a ragged dataset that is being written: checked against each other, converted, turned to bytes."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from loaderx.arrays.casting import cast_values
from loaderx.errors import RecordTooLargeError, SchemaError
from loaderx.store.buffers import as_source
from loaderx.store.format import WIDE
from loaderx.store.options import check_count


class RaggedRecords:
    """The arrays of a ragged dataset, each checked against the first and turned to bytes."""

    def __init__(
        self,
        target: Path,
        arrays: Iterable[npt.ArrayLike],
        dtype: npt.DTypeLike | None,
        item_shape: Sequence[int] | int | None,
        *,
        explicit: bool,
    ) -> None:
        self._target = target
        self._arrays = iter(arrays)
        self._explicit = explicit
        self._first: list[Any] = []
        if dtype is None or item_shape is None:
            self._first = list(itertools.islice(self._arrays, 1))
        if not self._first and dtype is None:
            raise SchemaError(
                f"{target}: no arrays to write, and no dtype to write an empty dataset with", path=target
            )
        first = self._array(self._first[0], 0) if self._first else None
        if (
            dtype is None
            and first is not None
            and first.size == 0
            and not isinstance(self._first[0], np.ndarray)
        ):
            raise self._wrong(0, "is an empty list, which has no dtype: pass dtype")
        self.dtype: np.dtype[Any] = np.dtype(dtype) if dtype is not None else first.dtype  # type: ignore[union-attr]
        if item_shape is not None:
            axes = item_shape if isinstance(item_shape, Sequence) else [item_shape]
            self.item_shape = tuple(check_count("item_shape", count) for count in axes)
        else:
            self.item_shape = first.shape[1:] if first is not None else ()

    def __iter__(self) -> Iterator[memoryview]:
        number = 0
        for number, array in enumerate(self._first):
            yield self.convert(array, number)
        for number, array in enumerate(self._arrays, len(self._first)):
            yield self.convert(array, number)

    def convert(self, array: Any, number: int) -> memoryview:
        """Return the bytes of array `number`, converted to the dataset's dtype; they may be the array's own."""
        values = self._array(array, number)
        if values.shape[1:] != self.item_shape:
            raise self._wrong(
                number, f"has rows of shape {values.shape[1:]}, and the dataset {self.item_shape}"
            )
        if values.dtype != self.dtype:
            values = self._cast(values, number, listed=not isinstance(array, np.ndarray))
        if values.nbytes > WIDE.max_record_bytes:
            raise RecordTooLargeError(
                f"{self._target}: array {number} has {values.nbytes} bytes, and a store takes at most "
                f"{WIDE.max_record_bytes} a record: split it",
                store=self._target,
                position=number,
                record_bytes=values.nbytes,
                limit_bytes=WIDE.max_record_bytes,
            )
        return as_source(values)

    def _array(self, source: Any, number: int) -> npt.NDArray[Any]:
        if isinstance(source, np.ma.MaskedArray):
            raise self._wrong(number, "is masked, and would lose its mask: call filled() first")
        if isinstance(source, str | bytes | bytearray | memoryview):
            raise self._wrong(
                number, f"is {type(source).__name__}: np.frombuffer(data, np.uint8) makes an array of bytes"
            )
        try:
            array: npt.NDArray[Any] = np.asarray(source)
        except (TypeError, ValueError, OverflowError) as error:
            raise self._wrong(number, f"cannot be converted: {error}") from None
        if array.ndim == 0:
            raise self._wrong(number, "has no axis of rows")
        return array

    def _cast(self, values: npt.NDArray[Any], number: int, *, listed: bool) -> npt.NDArray[Any]:
        if listed and values.size == 0:
            return values.astype(self.dtype)  # an empty list has no dtype of its own
        try:
            # A list has no precision of its own either, and a dtype that was asked for may round.
            return cast_values(values, self.dtype, rounding=listed or self._explicit)
        except ValueError as error:
            raise self._wrong(
                number, f"does not fit the dataset's dtype {self.dtype}: it has {error}; convert it first"
            ) from None

    def _wrong(self, number: int, problem: str) -> SchemaError:
        return SchemaError(f"{self._target}: array {number} {problem}", path=self._target)
