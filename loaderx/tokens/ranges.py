"""Token samples as byte ranges of plain files, as data-forager 0.2.0 writes them.

Its index has for each sample its file, first byte and number of bytes, as that of text lines does; and
``sample_schema.json``, where there is one, says which arrays lie in a sample one behind the other.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np
import numpy.typing as npt

from loaderx.errors import CorruptRecordError, OptionError, RecordIndexError, SchemaError
from loaderx.jsonl import ByteRangeDataset, Index
from loaderx.jsonl.layout import LOCATIONS, NAMES
from loaderx.store import files
from loaderx.store.indexing import resolve, resolve_batch
from loaderx.store.options import check_batch_bytes, check_max_batch_bytes
from loaderx.tokens.sides import TOKENS

_SCHEMA: Final = "sample_schema.json"
_MOST_SCHEMA_BYTES = 1 << 20
_BLOCK_ROWS = 1 << 20


@dataclass(frozen=True, slots=True)
class _Array:
    """One of the arrays that lie in a sample."""

    dtype: np.dtype[Any]
    offset: int
    n_bytes: int


@dataclass(frozen=True, slots=True)
class _Layout:
    """What a sample is: how many tokens and bytes it has, None where they differ, and its arrays."""

    sample_size: int | None
    n_bytes: int | None
    arrays: dict[str, _Array]


def is_token_index(base: Path, index_folder: str) -> bool:
    """Return whether a folder has an index in data-forager's form."""
    return all((base / index_folder / name).is_file() for name in (LOCATIONS, NAMES))


class RangeTokens:
    """The samples of an index.

    Parameters
    ----------
    base : pathlib.Path
    index_folder : str
    token_dtype : numpy.dtype, optional
        Needed where the index has no schema.
    max_batch_bytes : int, optional
    threads : int
    io : {"mmap", "pread"}

    Attributes
    ----------
    dtypes : dict of str to numpy.dtype
    sample_size : int or None

    Raises
    ------
    SchemaError, OptionError, StaleIndexError, StoreIOError
    """

    def __init__(
        self,
        base: Path,
        index_folder: str,
        token_dtype: np.dtype[Any] | None,
        max_batch_bytes: int | None,
        threads: int,
        io: Literal["mmap", "pread"],
    ) -> None:
        self._base = base
        self._folder = base / index_folder
        self._max_batch_bytes = check_max_batch_bytes(max_batch_bytes)
        self._locations = Index.open(base, index_folder=index_folder).locations
        self._layout = self._read_schema(token_dtype) or self._guess_layout(token_dtype)
        self.dtypes = {name: array.dtype for name, array in self._layout.arrays.items()}
        self.sample_size = self._layout.sample_size
        self._ranges = ByteRangeDataset(base, index_folder=index_folder, threads=threads, io=io)

    def __len__(self) -> int:
        return len(self._ranges)

    def read(self, idx: Any) -> dict[str, Any]:
        """Return a sample, or a batch, of each array."""
        indices, shape = resolve(self._base, idx, len(self))
        found = self._read(indices, shape or ())
        if shape is None and self.sample_size is None:
            return {name: values for name, (values, _) in found.items()}
        return found

    def read_batch(self, idxs: Any) -> dict[str, Any]:
        """Return a batch of each array."""
        return self._read(*resolve_batch(self._base, idxs, len(self)))

    def prefetch(self, idxs: Any) -> None:
        """Have the system begin to read samples."""
        self._ranges.prefetch(idxs)

    def close(self) -> None:
        """Let go of the files."""
        self._ranges.close()

    def _read(self, indices: npt.NDArray[Any], shape: tuple[int, ...]) -> dict[str, Any]:
        if self._layout.n_bytes is not None:
            check_batch_bytes(self._base, len(indices) * self._layout.n_bytes, self._max_batch_bytes)
        raws = self._ranges.raw_batch(indices)
        sizes = np.fromiter(map(len, raws), np.int64, len(raws))
        # Of a bytearray, so that the arrays may be written to.
        data = np.frombuffer(bytearray().join(raws), np.uint8)
        if self._layout.n_bytes is None:
            if len(shape) > 1:
                raise RecordIndexError(
                    f"{self._base}: samples that differ in length lie one behind the other, so indices have one axis, "
                    f"not {len(shape)}",
                    store=self._base,
                )
            return {TOKENS: self._ragged(indices, data, sizes)}
        self._check(indices, sizes, sizes == self._layout.n_bytes, f"{self._layout.n_bytes} bytes")
        samples = data.reshape(len(raws), self._layout.n_bytes)
        found = {}
        for name, array in self._layout.arrays.items():
            part = samples[:, array.offset : array.offset + array.n_bytes]
            whole = part if len(self._layout.arrays) == 1 else np.ascontiguousarray(part)
            found[name] = whole.view(array.dtype).reshape(*shape, self._layout.sample_size or 0)
        return found

    def _ragged(
        self, indices: npt.NDArray[Any], data: npt.NDArray[np.uint8], sizes: npt.NDArray[np.int64]
    ) -> tuple[npt.NDArray[Any], npt.NDArray[np.int64]]:
        dtype = self.dtypes[TOKENS]
        self._check(indices, sizes, sizes % dtype.itemsize == 0, f"a whole number of {dtype} tokens")
        splits = np.zeros(len(sizes) + 1, np.int64)
        np.cumsum(sizes // dtype.itemsize, out=splits[1:])
        return data.view(dtype), splits

    def _check(
        self,
        indices: npt.NDArray[Any],
        sizes: npt.NDArray[np.int64],
        right: npt.NDArray[np.bool_],
        expected: str,
    ) -> None:
        if right.all():
            return
        at = int(np.argmin(right))
        record = int(indices[at]) % len(self)
        raise CorruptRecordError(
            f"{self._folder}: sample {record} has {sizes[at]} bytes, not {expected}: token_dtype is another, or the "
            "index is damaged",
            store=self._base,
            record=record,
            problem=f"it has {sizes[at]} bytes, not {expected}",
        )

    def _guess_layout(self, token_dtype: np.dtype[Any] | None) -> _Layout:
        """Return what samples without a schema are: all of one size, or each of its own."""
        if token_dtype is None:
            raise OptionError(
                f"{self._folder}: does not say what its tokens are: give token_dtype, such as token_dtype=np.uint16",
                option="token_dtype",
                value=None,
            )
        n_bytes = self._common_bytes()
        if n_bytes is None:
            return _Layout(None, None, {TOKENS: _Array(token_dtype, 0, 0)})
        if n_bytes % token_dtype.itemsize:
            raise SchemaError(
                f"{self._folder}: samples have {n_bytes} bytes, which are no whole number of {token_dtype} tokens: "
                "give another token_dtype",
                path=self._base,
            )
        return _Layout(n_bytes // token_dtype.itemsize, n_bytes, {TOKENS: _Array(token_dtype, 0, n_bytes)})

    def _common_bytes(self) -> int | None:
        """Return the bytes that every sample has; None where they differ."""
        sizes = self._locations[:, 2]
        for begin in range(0, len(sizes), _BLOCK_ROWS):
            if (sizes[begin : begin + _BLOCK_ROWS] != sizes[0]).any():
                return None
        return int(sizes[0]) if len(sizes) else None

    def _read_schema(self, token_dtype: np.dtype[Any] | None) -> _Layout | None:
        """Return what the schema says; None where there is none."""
        path = self._folder / _SCHEMA
        with files.errors_named(self._base, f"read {_SCHEMA}"):
            try:
                data = files.read_whole(path, _MOST_SCHEMA_BYTES)
            except FileNotFoundError:
                return None
        arrays = {}
        try:
            document = json.loads(data)
            sample_size = _whole(document["sample_size"])
            n_bytes = _whole(document["total_bytes_per_sample"])
            for item in document["arrays"]:
                dtype = np.dtype(item["dtype"])
                if dtype.kind not in "iufb" or dtype.subdtype is not None:
                    raise ValueError(f"dtype {item['dtype']!r} is none of numbers")
                arrays[str(item["name"])] = _Array(
                    dtype, _whole(item["offset"]), sample_size * dtype.itemsize
                )
        except (KeyError, TypeError, ValueError, SyntaxError, RecursionError) as error:
            raise SchemaError(f"{path}: is wrong: {type(error).__name__}: {error}", path=self._base) from None
        if TOKENS not in arrays or arrays[TOKENS].dtype.kind not in "iu" or sample_size < 1:
            raise SchemaError(f"{path}: has no array {TOKENS!r} of integers", path=self._base)
        for name, array in arrays.items():
            if not 0 <= array.offset <= n_bytes - array.n_bytes:
                raise SchemaError(
                    f"{path}: array {name!r} does not lie in a sample's {n_bytes} bytes", path=self._base
                )
        if token_dtype is not None and token_dtype != arrays[TOKENS].dtype:
            raise SchemaError(
                f"{self._folder}: its tokens are {arrays[TOKENS].dtype}, not {token_dtype}", path=self._base
            )
        return _Layout(sample_size, n_bytes, {TOKENS: arrays[TOKENS], **arrays})


def _whole(value: Any) -> int:
    """Return a number of a schema, which is a whole one."""
    if type(value) is not int:
        raise ValueError(f"{value!r} is no whole number")
    return value
