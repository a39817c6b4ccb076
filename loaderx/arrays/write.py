"""Writing arrays: whole datasets, in bounded memory, that appear complete or not at all."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from loaderx.arrays.dataset import Dataset
from loaderx.arrays.progress import Progress, reporting
from loaderx.arrays.ragged import RaggedDataset
from loaderx.arrays.ragged_records import RaggedRecords
from loaderx.arrays.schema import Schema, new_schema, read_schema, write_schema
from loaderx.errors import OptionError, SchemaError, ZrecordError
from loaderx.store import files
from loaderx.store.append import Append
from loaderx.store.buffers import as_source
from loaderx.store.format import DICTIONARY, DICTIONARY_CODECS, META, SCHEMA, UNSHUFFLED
from loaderx.store.options import (
    Codec,
    check_codec,
    check_count,
    check_flag,
    check_level,
    check_path,
    check_threads,
)
from loaderx.store.staging import Staging, take_back_moves
from loaderx.store.zrecord import StagedZrecord, Zrecord

_CHUNK_BYTES = 64 << 20
# zstd advises a dictionary of a hundredth of its samples, and its own default is this much at most.
_DICT_MAX_BYTES = 112_640
_DICT_MIN_BYTES = 1024
_SAMPLES_FOR_EACH_BYTE = 100


class Sliced(Protocol):
    """What `write_dataset` reads slice by slice: an array, or anything that gives arrays for slices along axis 0."""

    @property
    def dtype(self) -> np.dtype[Any]: ...
    @property
    def shape(self) -> tuple[int, ...]: ...
    def __getitem__(self, key: slice, /) -> npt.NDArray[Any]: ...


def write_dataset(
    path: str | os.PathLike[str],
    array: npt.ArrayLike | Sliced | Dataset,
    codec: Codec = "zstd",
    chunk_bytes: int = _CHUNK_BYTES,
    dict_size: int | None = None,
    *,
    level: int | None = None,
    threads: int = 0,
    progress: Progress = None,
    overwrite: bool = False,
    upgrade: bool = False,
) -> int:
    """Write an array as a dataset: one record for each slice along axis 0.

    Parameters
    ----------
    path : str or os.PathLike
        The dataset's directory. Where there is none, the dataset appears when it is complete. An existing dataset
        of the same dtype and shape is appended to, and shows all new records or none.
    array : array_like, shape (n, *shape)
        Anything that has `dtype`, `shape` and slices along axis 0 is read slice by slice: an array, a memory map, a
        dataset of another library; and so is a `Dataset`. Anything else is converted by `numpy.asarray`.
    codec : {"zstd", "raw", "zstd_dict", "zstd_shuffle", "zstd_shuffle_dict"}
        "zstd_shuffle" puts the bytes of equal significance of each record's numbers side by side before it compresses:
        smaller and faster to read for floats and integers of 2 to 16 bytes; loaderx 0.7.3 cannot read it.
        "zstd_dict" trains a dictionary first, on records spread over the data: much smaller for many small, similar
        records, and slow to write (level 19; ``level=3`` is the fast choice).
    chunk_bytes : int
        Bytes read and written at a time; bounds the memory taken.
    dict_size : int, optional
        The most bytes a dictionary may have; None: a hundredth of the data, at most 112,640.
    level : int, optional
        zstd's level; None: 3, and 19 with the dictionary. Codec "raw" has none.
    threads : int
        The most threads to compress with; 0: every core in the affinity mask.
    progress : bool or callable, optional
        None: a bar where standard error is a terminal. A callable gets (bytes done, bytes in all).
    overwrite : bool
        Replace an existing store, once the new one is complete, instead of appending to it.
    upgrade : bool
        Let the store that is appended to become format version 4, for good, where the new records need it (`Zrecord`).
        A new one is version 4 where its records need it.

    Returns
    -------
    int
        Number of records written.

    Raises
    ------
    SchemaError
        The array has no axis or holds Python objects, it is none but a file's name or several arrays by name, or the
        existing dataset has another dtype or shape.
    DictionaryError
        There is too little data to train a dictionary on.
    RecordTooLargeError, StoreFullError, StoreIOError, NotAStoreError, OptionError
        In every case what was there before is unchanged.

    Examples
    --------
    >>> path = tmp_path / "images.zr"
    >>> write_dataset(path, np.zeros((100, 28, 28), np.uint8))
    100
    >>> write_dataset(path, np.ones((20, 28, 28), np.uint8))
    20
    >>> Dataset(path)[-1].shape
    (28, 28)
    """
    target = check_path(path)
    source: Any = _as_source_of_slices(target, array)
    if isinstance(source, np.ma.MaskedArray):
        raise SchemaError(f"{target}: a masked array would lose its mask: call filled() first", path=target)
    if len(source.shape) == 0:
        raise SchemaError(
            f"{target}: the array has no axis to cut into records; reshape it to (1,)", path=target
        )
    n, *shape = (check_count("shape", count) for count in source.shape)
    schema = new_schema(target, "fixed", np.dtype(source.dtype), tuple(shape), check_codec(codec))
    record_bytes = schema.item_bytes
    step = max(1, check_count("chunk_bytes", chunk_bytes, least=1) // max(1, record_bytes))

    def samples(target_bytes: int) -> list[memoryview]:
        count = max(1, target_bytes // max(1, record_bytes))
        chosen = np.unique(np.linspace(0, max(n - 1, 0), min(count, n)).astype(np.int64))
        return [as_source(source[index : index + 1]) for index in chosen.tolist()]

    def add(append: Append) -> Iterator[int]:
        for first in range(0, n, step):
            block = np.asarray(source[first : first + step])
            if block.dtype != schema.dtype or block.shape != (min(step, n - first), *schema.shape):
                raise SchemaError(
                    f"{target}: the source gave {block.dtype} {block.shape} for its slice {first}:{first + step}, and "
                    f"said {schema.dtype} {(n, *schema.shape)} in all",
                    path=target,
                )
            append.add(as_source(block), len(block), record_bytes, item_size=max(1, schema.dtype.itemsize))
            yield len(block) * record_bytes

    writer = _Writer(target, schema, level, threads, dict_size, overwrite, upgrade)
    with reporting(progress, n * record_bytes) as report:
        writer.write(add, samples, n * record_bytes, report)
    return n


def write_ragged(
    path: str | os.PathLike[str],
    arrays: Iterable[npt.ArrayLike],
    dtype: npt.DTypeLike | None = None,
    item_shape: Sequence[int] | int | None = None,
    codec: Codec = "zstd",
    chunk_bytes: int = _CHUNK_BYTES,
    dict_size: int | None = None,
    *,
    level: int | None = None,
    threads: int = 0,
    progress: Progress = None,
    overwrite: bool = False,
    upgrade: bool = False,
) -> int:
    """Write arrays that differ in their number of rows as a ragged dataset: one record each.

    Parameters
    ----------
    path : str or os.PathLike
        As in `write_dataset`.
    arrays : iterable of array_like, each of shape (rows, *item_shape)
        Read once, one after the other; each is copied before the next is asked for. No rows at all is fine.
    dtype : dtype_like, optional
        None: the existing dataset's, or the first array's. Others are converted where no value changes; lists, and
        everything where a dtype is given here, also to floats of less precision.
    item_shape : sequence of int, optional
        The shape of one row; None: the first array's.
    codec : {"zstd", "raw", "zstd_dict", "zstd_shuffle", "zstd_shuffle_dict"}
        The dictionary of "zstd_dict" and "zstd_shuffle_dict" is trained on records spread over the data where
        `arrays` is a sequence, and on the first `chunk_bytes` of any other iterable.
    chunk_bytes, dict_size, level, threads, progress, overwrite, upgrade
        As in `write_dataset`; a progress callable gets None for the bytes in all.

    Returns
    -------
    int
        Number of records written.

    Raises
    ------
    SchemaError
        An array does not fit the others (its number is named), or there is none and no `dtype` either.
    DictionaryError, RecordTooLargeError, StoreFullError, StoreIOError, NotAStoreError, OptionError
        In every case what was there before is unchanged.

    Examples
    --------
    >>> path = tmp_path / "points.zr"
    >>> write_ragged(path, (np.zeros((rows, 3)) for rows in (2, 0, 5)))
    3
    >>> RaggedDataset(path)[2].shape
    (5, 3)
    """
    target = check_path(path)
    check_codec(codec)
    chunk_bytes = check_count("chunk_bytes", chunk_bytes, least=1)
    _check_not_files(target, arrays)
    if isinstance(arrays, bytes | bytearray):
        raise SchemaError(f"{target}: a {type(arrays).__name__} is no iterable of arrays", path=target)
    explicit = dtype is not None
    if dtype is None and not overwrite and _dataset_exists(target):
        dtype = read_schema(target).dtype  # lists have none of their own
    records = RaggedRecords(target, arrays, dtype, item_shape, explicit=explicit)
    schema = new_schema(target, "ragged", records.dtype, records.item_shape, codec)
    head: list[memoryview] = []
    rest = iter(records)
    written = 0

    def samples(target_bytes: int) -> list[memoryview]:
        nonlocal head
        if isinstance(arrays, Sequence):
            chosen = np.unique(
                np.linspace(0, max(len(arrays) - 1, 0), min(len(arrays), 16_384)).astype(np.int64)
            )
            return _up_to((records.convert(arrays[index], index) for index in chosen.tolist()), target_bytes)
        import logging

        logging.getLogger(__name__).info(
            "%s: an iterable cannot be sampled all over: its first %d bytes train the dictionary",
            target,
            chunk_bytes,
        )
        head = _up_to((memoryview(bytes(record)) for record in rest), chunk_bytes)
        return _up_to(iter(head), target_bytes)

    def add(append: Append) -> Iterator[int]:
        nonlocal written
        buffer, lens = bytearray(), list[int]()
        for source in (head, rest):
            for record in source:
                if lens and len(buffer) + record.nbytes > chunk_bytes:
                    yield _add_var(append, buffer, lens, schema.dtype.itemsize)
                    buffer, lens = bytearray(), []
                buffer += record
                lens.append(record.nbytes)
                written += 1
        yield _add_var(append, buffer, lens, schema.dtype.itemsize)

    writer = _Writer(target, schema, level, threads, dict_size, overwrite, upgrade)
    with reporting(progress, None) as report:
        writer.write(add, samples, None, report)
    return written


class _Writer:
    """Puts records into a new dataset, or behind those of an existing one."""

    def __init__(
        self,
        target: Path,
        schema: Schema,
        level: int | None,
        threads: int,
        dict_size: int | None,
        overwrite: bool,
        upgrade: bool,
    ) -> None:
        self._target = target
        self._schema = schema
        self._level = check_level(level)
        if level is not None and schema.codec == "raw":
            raise OptionError(
                f"level is {level}, and codec 'raw' compresses nothing: leave it out, or choose another",
                option="level",
                value=level,
            )
        self._threads = check_threads(threads)
        self._overwrite = check_flag("overwrite", overwrite)
        self._upgrade = check_flag("upgrade", upgrade)
        self._process = os.getpid()
        if dict_size is not None:
            dict_size = check_count("dict_size", dict_size, least=1, most=1 << 30)
        self._dict_size = dict_size

    def write(self, add: Any, samples: Any, n_bytes: int | None, report: Any) -> None:
        """Write everything, in one commit.

        Parameters
        ----------
        add : callable
            Adds the records to the `Append` it is given, and yields the bytes of each part.
        samples : callable
            Returns about as many bytes of sample records as it is told.
        n_bytes : int or None
            Bytes there are to write, where it is known.
        report : callable
            Told the bytes of each part.
        """
        if not self._overwrite and _dataset_exists(self._target):
            _check_same(self._target, read_schema(self._target), self._schema)
            self._fill(Zrecord, self._target, add, samples, n_bytes, report)
            return
        with Staging(self._target, replace=self._overwrite) as staging:
            self._fill(StagedZrecord, staging.path, add, samples, n_bytes, report)
            write_schema(staging.path, self._schema)
            staging.install()

    def _fill(
        self, kind: type[Zrecord], path: Path, add: Any, samples: Any, n_bytes: int | None, report: Any
    ) -> None:
        codec = self._schema.codec
        with kind(path, codec, level=self._level, threads=self._threads, upgrade=self._upgrade) as store:
            trains = codec in DICTIONARY_CODECS and not store.has_dict()
            try:
                if trains:
                    self._train(store, samples, n_bytes)
                with store.appending() as append:
                    for part_bytes in add(append):
                        report(part_bytes)
            except BaseException:
                if trains and os.getpid() == self._process:
                    _forget_dictionary(path)
                raise

    def _train(self, store: Zrecord, samples: Any, n_bytes: int | None) -> None:
        size = self._dict_size
        if size is None:
            known = _DICT_MAX_BYTES if n_bytes is None else n_bytes // _SAMPLES_FOR_EACH_BYTE
            size = max(_DICT_MIN_BYTES, min(_DICT_MAX_BYTES, known))
        chosen: list[memoryview] = samples(size * _SAMPLES_FOR_EACH_BYTE)
        store.train_dict(
            b"".join(chosen),
            [sample.nbytes for sample in chosen],
            size,
            item_size=self._schema.dtype.itemsize if self._schema.codec in UNSHUFFLED else None,
        )


def _forget_dictionary(path: Path) -> None:
    """Remove a dictionary that was just trained, unless records need it: the failure may have come after the commit."""
    with contextlib.suppress(OSError, ZrecordError):
        with Zrecord(path, mode="r") as store:
            needed = any(name in store.stats()["codecs"] for name in DICTIONARY_CODECS)
        if not needed:
            files.unlink(path / DICTIONARY)


class _Records:
    """A dataset as an array: the first axis counts its records."""

    def __init__(self, dataset: Dataset) -> None:
        self.dtype = dataset.dtype
        self.shape = (len(dataset), *dataset.shape)
        self._dataset = dataset

    def __getitem__(self, key: slice) -> npt.NDArray[Any]:
        records: npt.NDArray[Any] = self._dataset[key]
        return records


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


def _up_to(records: Iterator[memoryview], n_bytes: int) -> list[memoryview]:
    """Return records until they have `n_bytes` bytes in all; at least one where there is one."""
    chosen: list[memoryview] = []
    total = 0
    for record in records:
        chosen.append(record)
        total += record.nbytes
        if total >= n_bytes:
            break
    return chosen


def _add_var(append: Append, buffer: bytearray, lens: list[int], item_bytes: int) -> int:
    sizes = np.array(lens, dtype=np.int64)
    append.add_var(buffer, np.cumsum(sizes) - sizes, sizes, item_size=item_bytes)
    return len(buffer)


def _dataset_exists(target: Path) -> bool:
    with files.errors_named(target, "look for a dataset there"):
        take_back_moves(Path(os.path.realpath(target)))
        has_schema, has_store = (target / SCHEMA).exists(), (target / META).exists()
    if has_schema != has_store:
        there, missing = (SCHEMA, META) if has_schema else (META, SCHEMA)
        raise SchemaError(
            f"{target}: has {there} but no {missing}, so it is no dataset to append to. "
            + (
                "Append to a store of plain bytes with Zrecord, or choose"
                if has_store
                else "Remove the file, or choose"
            )
            + " another path",
            path=target,
        )
    return has_schema


def _check_same(target: Path, there: Schema, here: Schema) -> None:
    if (there.kind, there.dtype, there.shape) != (here.kind, here.dtype, here.shape):
        may_be_one = (there.kind, there.dtype, there.shape[1:]) == (here.kind, here.dtype, here.shape)
        one = (
            "; axis 0 counts the records, so one record is array[None]" if may_be_one and there.shape else ""
        )
        raise SchemaError(f"{target}: holds {there}, and cannot take {here}{one}", path=target)
