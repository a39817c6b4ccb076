"""Token samples as byte ranges of plain files, as data-forager 0.2.0 writes them.

``BASE/index/file_location.txt`` names the files, ``sample_locations.bin`` has for each sample its file, first byte and
number of bytes, and ``sample_schema.json``, where there is one, what arrays lie in a sample one behind the other.
"""

from __future__ import annotations

import json
import os
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from loaderx._core.maps import OpenFile
from loaderx.store.indexing import resolve, resolve_batch
from loaderx.errors import ClosedError, CorruptRecordError, OptionError, RecordIndexError, SchemaError
from loaderx.store import files
from loaderx.store.options import check_batch_bytes, check_max_batch_bytes
from loaderx.tokens.sides import TOKENS

_LOCATIONS: Final = "sample_locations.bin"
_FILES: Final = "file_location.txt"
_SCHEMA: Final = "sample_schema.json"
_ROW_BYTES = 24
_MOST_SCHEMA_BYTES = 1 << 20
_MOST_NAMES_BYTES = 1 << 30
_BLOCK_ROWS = 1 << 20


@dataclass(frozen=True, slots=True)
class _Array:
    """One of the arrays that lie in a sample."""

    dtype: np.dtype[Any]
    offset: int
    n_bytes: int


def is_token_index(base: Path, index_folder: str) -> bool:
    """Return whether a folder has an index in data-forager's form."""
    return all((base / index_folder / name).is_file() for name in (_LOCATIONS, _FILES))


class RangeTokens:
    """The samples of an index.

    Parameters
    ----------
    base : pathlib.Path
    index_folder : str
    token_dtype : numpy.dtype, optional
        Needed where the index has no schema.
    max_batch_bytes : int, optional

    Attributes
    ----------
    dtypes : dict of str to numpy.dtype
    sample_size : int or None

    Raises
    ------
    SchemaError, OptionError, CorruptRecordError, StoreIOError

    Notes
    -----
    Reads with positioned reads: a file that is cut off is an error, and threads and forked children share the files.
    """

    def __init__(
        self, base: Path, index_folder: str, token_dtype: np.dtype[Any] | None, max_batch_bytes: int | None
    ) -> None:
        self._base = base
        self._folder = base / index_folder
        self._max_batch_bytes = check_max_batch_bytes(max_batch_bytes)
        self._paths = self._read_names()
        self._locations = self._map_locations()
        self._files: dict[int, OpenFile] = {}
        self._lock = threading.Lock()
        self._closed = False
        schema = self._read_schema()
        if schema is None:
            if token_dtype is None:
                raise OptionError(
                    f"{self._folder}: does not say what its tokens are: give token_dtype, such as "
                    "token_dtype=np.uint16",
                    option="token_dtype",
                    value=None,
                )
            n_bytes = self._common_bytes()
            self.dtypes = {TOKENS: token_dtype}
            self.sample_size = None if n_bytes is None else n_bytes // token_dtype.itemsize
            self._sample_bytes = n_bytes
            self._arrays = {TOKENS: _Array(token_dtype, 0, n_bytes or 0)}
            if n_bytes is not None and n_bytes % token_dtype.itemsize:
                raise SchemaError(
                    f"{self._folder}: samples have {n_bytes} bytes, which are no whole number of {token_dtype} tokens: "
                    "give another token_dtype",
                    path=base,
                )
        else:
            self.sample_size, self._sample_bytes, self._arrays = schema
            self.dtypes = {name: array.dtype for name, array in self._arrays.items()}
            if token_dtype is not None and token_dtype != self.dtypes[TOKENS]:
                raise SchemaError(
                    f"{self._folder}: its tokens are {self.dtypes[TOKENS]}, not {token_dtype}", path=base
                )

    def __len__(self) -> int:
        return len(self._locations)

    def read(self, idx: Any) -> dict[str, Any]:
        """Return a sample, or a batch, of each array."""
        indices, shape = resolve(self._base, idx, len(self))
        if shape is not None:
            return self._read(indices, shape)
        found = self._read(indices, (1,))
        if self.sample_size is None:
            return {name: values for name, (values, _) in found.items()}
        return {name: values[0] for name, values in found.items()}

    def read_batch(self, idxs: Any) -> dict[str, Any]:
        """Return a batch of each array."""
        return self._read(*resolve_batch(self._base, idxs, len(self)))

    def close(self) -> None:
        """Let go of the files."""
        with self._lock:
            self._closed = True
            for file in self._files.values():
                file.close()
            self._files.clear()

    def _read(self, indices: npt.NDArray[Any], shape: tuple[int, ...]) -> dict[str, Any]:
        wanted = self._check_indices(indices)
        rows = self._locations[wanted].astype(np.int64)
        sizes = rows[:, 2]
        if len(rows) and (int(rows[:, :].min()) < 0 or int(sizes.max()) > self._max_batch_bytes):
            self._refuse(rows)
        splits = np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes)])
        check_batch_bytes(self._base, int(splits[-1]), self._max_batch_bytes)
        data = np.empty(int(splits[-1]), np.uint8)
        view = data.data
        for sample, (number, offset, n_bytes), begin in zip(
            wanted.tolist(), rows.tolist(), splits[:-1].tolist(), strict=True
        ):
            self._read_range(sample, number, offset, view[begin : begin + n_bytes])
        if self._sample_bytes is None:
            return {TOKENS: self._ragged(wanted, data, splits)}
        wrong = np.flatnonzero(sizes != self._sample_bytes)
        if len(wrong):
            raise self._corrupt(
                int(wanted[wrong[0]]), f"it has {sizes[wrong[0]]} bytes, and each has {self._sample_bytes}"
            )
        samples = data.reshape(len(rows), self._sample_bytes)
        found = {}
        for name, array in self._arrays.items():
            part = samples[:, array.offset : array.offset + array.n_bytes]
            values = np.ascontiguousarray(part).view(array.dtype)
            found[name] = values.reshape(*shape, -1) if array.n_bytes else values.reshape(*shape, 0)
        return found

    def _ragged(
        self, wanted: npt.NDArray[np.int64], data: npt.NDArray[np.uint8], splits: npt.NDArray[np.int64]
    ) -> tuple[npt.NDArray[Any], npt.NDArray[np.int64]]:
        dtype = self.dtypes[TOKENS]
        broken = np.flatnonzero(splits % dtype.itemsize)
        if len(broken):
            at = int(broken[0])
            raise self._corrupt(
                int(wanted[at - 1]),
                f"its {splits[at] - splits[at - 1]} bytes are no whole number of {dtype} tokens",
            )
        return data.view(dtype), splits // dtype.itemsize

    def _check_indices(self, indices: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
        length = len(self)
        outside = np.flatnonzero(
            (indices >= length) | (indices < -length if indices.dtype.kind == "i" else False)
        )
        if len(outside):
            position = int(outside[0])
            raise RecordIndexError(
                f"{self._base}: index {indices[position]} (position {position} of the batch) is out of range: the "
                f"index holds {length} samples",
                store=self._base,
                index=int(indices[position]),
                position=position,
                length=length,
            )
        wanted = indices.astype(np.int64)
        wanted[wanted < 0] += length
        return wanted

    def _refuse(self, rows: npt.NDArray[np.int64]) -> None:
        """Raise for ranges that no file has."""
        for number, offset, n_bytes in rows.tolist():
            if number < 0 or offset < 0 or n_bytes < 0:
                raise CorruptRecordError(
                    f"{self._folder / _LOCATIONS}: names file {number}, byte {offset}, {n_bytes} bytes, which there "
                    "are not: write the index anew",
                    store=self._base,
                )

    def _read_range(self, sample: int, number: int, offset: int, out: memoryview) -> None:
        descriptor = self._descriptor(sample, number)
        done = 0
        with files.errors_named(self._base, f"read {self._paths[number]}"):
            while done < len(out):
                got = os.preadv(descriptor, [out[done:]], offset + done)
                if got == 0:
                    raise self._corrupt(
                        sample,
                        f"it ends at byte {offset + len(out)} of {self._paths[number]}, which has {offset + done}",
                        offset,
                    )
                done += got

    def _descriptor(self, sample: int, number: int) -> int:
        file = self._files.get(number)
        if file is None:
            if number >= len(self._paths):
                raise self._corrupt(sample, f"it is in file {number}, and {len(self._paths)} are listed")
            with self._lock:
                if self._closed:
                    raise ClosedError(f"{self._base}: the dataset was closed", store=self._base)
                with files.errors_named(self._base, f"open {self._paths[number]}"):
                    file = self._files.setdefault(number, files.open_to_read(self._paths[number]))
        return file.fileno()

    def _corrupt(self, sample: int, problem: str, byte_offset: int | None = None) -> CorruptRecordError:
        return CorruptRecordError(
            f"{self._folder}: sample {sample}: {problem}: the index or the file is damaged, or they do not belong "
            "together",
            store=self._base,
            record=sample,
            byte_offset=byte_offset,
            problem=problem,
        )

    def _read_names(self) -> list[Path]:
        with files.errors_named(self._base, f"read {_FILES}"):
            data = files.read_whole(self._folder / _FILES, _MOST_NAMES_BYTES)
        names = [os.fsdecode(name) for name in data.split(b"\n") if name]
        root = os.path.realpath(self._base)
        for name in names:
            inside = os.path.realpath(self._base / name)
            if os.path.isabs(name) or os.path.commonpath([root, inside]) != root:
                raise SchemaError(
                    f"{self._folder / _FILES}: names {name}, which is outside {self._base}", path=self._base
                )
        return [self._base / name for name in names]

    def _map_locations(self) -> npt.NDArray[np.uint64]:
        path = self._folder / _LOCATIONS
        with files.errors_named(self._base, f"read {_LOCATIONS}"):
            n_bytes = path.stat().st_size
            if n_bytes % _ROW_BYTES:
                raise SchemaError(
                    f"{path}: has {n_bytes} bytes, which are no whole number of rows of {_ROW_BYTES}: it was cut off",
                    path=self._base,
                )
            if not n_bytes:
                return np.empty((0, 3), np.dtype("<u8"))
            return np.memmap(path, np.dtype("<u8"), "r", shape=(n_bytes // _ROW_BYTES, 3))

    def _common_bytes(self) -> int | None:
        """Return the bytes that every sample has; None where they differ."""
        sizes = self._locations[:, 2]
        if not len(sizes):
            return None
        first = sizes[0]
        for begin in range(0, len(sizes), _BLOCK_ROWS):
            if (sizes[begin : begin + _BLOCK_ROWS] != first).any():
                return None
        return int(first)

    def _read_schema(self) -> tuple[int, int, dict[str, _Array]] | None:
        path = self._folder / _SCHEMA
        with files.errors_named(self._base, f"read {_SCHEMA}"):
            try:
                data = files.read_whole(path, _MOST_SCHEMA_BYTES)
            except FileNotFoundError:
                return None
        try:
            document = json.loads(data)
            sample_size = int(document["sample_size"])
            n_bytes = int(document["total_bytes_per_sample"])
            arrays = {}
            for item in document["arrays"]:
                dtype = np.dtype(item["dtype"])
                arrays[str(item["name"])] = _Array(dtype, int(item["offset"]), sample_size * dtype.itemsize)
        except (KeyError, TypeError, ValueError, RecursionError) as error:
            raise SchemaError(f"{path}: is wrong: {type(error).__name__}: {error}", path=self._base) from None
        if TOKENS not in arrays or arrays[TOKENS].dtype.kind not in "iu" or sample_size < 0:
            raise SchemaError(f"{path}: has no array of {TOKENS}, which are integers", path=self._base)
        for name, array in arrays.items():
            if array.dtype.hasobject or not 0 <= array.offset <= n_bytes - array.n_bytes:
                raise SchemaError(
                    f"{path}: array {name!r} does not lie in a sample's {n_bytes} bytes", path=self._base
                )
        return sample_size, n_bytes, {TOKENS: arrays[TOKENS], **arrays}
