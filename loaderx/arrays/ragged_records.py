"""The arrays of a ragged dataset that is being written: checked against each other, converted, turned to bytes."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from loaderx.errors import RecordTooLargeError, SchemaError
from loaderx.store.buffers import as_source
from loaderx.store.format import MAX_RECORD_BYTES


class RaggedRecords:
    """The arrays of a ragged dataset, each checked against the first and turned to bytes."""

    def __init__(
        self,
        target: Path,
        arrays: Iterable[npt.ArrayLike],
        dtype: npt.DTypeLike | None,
        item_shape: Sequence[int] | None,
    ) -> None:
        self._target = target
        self._arrays = iter(arrays)
        self._explicit = dtype is not None
        self._first: list[Any] = []
        if dtype is None or item_shape is None:
            self._first = list(itertools.islice(self._arrays, 1))
        if not self._first and dtype is None:
            raise SchemaError(
                f"{target}: no arrays to write, and no dtype to write an empty dataset with", path=target
            )
        first = (
            self._array(self._first[0], None if dtype is None else np.dtype(dtype), 0)
            if self._first
            else None
        )
        self.dtype: np.dtype[Any] = np.dtype(dtype) if dtype is not None else first.dtype  # type: ignore[union-attr]
        if item_shape is not None:
            self.item_shape = tuple(int(count) for count in item_shape)
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
        values = self._array(array, self.dtype, number)
        if values.shape[1:] != self.item_shape:
            raise self._wrong(
                number, f"has rows of shape {values.shape[1:]}, and the dataset {self.item_shape}"
            )
        if values.dtype != self.dtype:
            values = self._cast(values, number)
        if values.nbytes > MAX_RECORD_BYTES:
            raise RecordTooLargeError(
                f"{self._target}: array {number} has {values.nbytes} bytes, and a store of format version 3 takes at "
                f"most {MAX_RECORD_BYTES} a record: split it",
                store=self._target,
                position=number,
                record_bytes=values.nbytes,
                limit_bytes=MAX_RECORD_BYTES,
            )
        return as_source(values)

    def _array(self, source: Any, dtype: np.dtype[Any] | None, number: int) -> npt.NDArray[Any]:
        if isinstance(source, np.ma.MaskedArray):
            raise self._wrong(number, "is masked, and would lose its mask: call filled() first")
        array: npt.NDArray[Any] = (
            source if isinstance(source, np.ndarray) else self._of_list(source, dtype, number)
        )
        if array.ndim == 0:
            raise self._wrong(number, "has no axis of rows")
        return array

    def _of_list(self, source: Any, dtype: np.dtype[Any] | None, number: int) -> npt.NDArray[Any]:
        """Return a list as an array: of the dataset's dtype, which refuses a whole number that does not fit."""
        try:
            plain = np.asarray(source)
            if dtype is None and plain.size == 0:
                raise self._wrong(number, "is an empty list, which has no dtype: pass dtype")
            if dtype is None or (plain.size and plain.dtype.kind == "f" and dtype.kind in "iub"):
                return plain  # asarray with a dtype would cut fractions off in silence; `_cast` refuses them
            return np.asarray(source, dtype)
        except (TypeError, ValueError, OverflowError) as error:
            if isinstance(error, SchemaError):
                raise
            raise self._wrong(number, f"cannot be converted: {error}") from None

    def _cast(self, values: npt.NDArray[Any], number: int) -> npt.NDArray[Any]:
        fits = np.can_cast(values.dtype, self.dtype, "safe")
        if not fits and self._explicit and np.can_cast(values.dtype, self.dtype, "same_kind"):
            # Fewer bits of a float are what was asked for; another whole number is not.
            fits = self.dtype.kind in "fc" or np.array_equal(values.astype(self.dtype), values)
        if not fits:
            raise self._wrong(number, f"is of dtype {values.dtype}, whose values do not all fit {self.dtype}")
        return values.astype(self.dtype)

    def _wrong(self, number: int, problem: str) -> SchemaError:
        return SchemaError(f"{self._target}: array {number} {problem}", path=self._target)
