"""Writing arrays: whole datasets, in bounded memory, that appear complete or not at all."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from loaderx.arrays.choosing import (
    DEFAULT_CODEC,
    LEARNT_BYTES,
    SAMPLED_FOR_EACH_BYTE,
    CodecChoice,
    check_dict_size,
    choose,
    dictionary_bytes,
)
from loaderx.arrays.dataset import Dataset
from loaderx.arrays.sampling import RaggedSamples, Samples, SliceSamples
from loaderx.arrays.schema import Schema, read_schema, write_schema
from loaderx.arrays.sources import Sliced, as_records, as_slices, read_slice
from loaderx.errors import OptionError, SchemaError, ZrecordError
from loaderx.store import files
from loaderx.store.append import Append
from loaderx.store.buffers import as_source
from loaderx.store.format import CODECS, DICTIONARY, DICTIONARY_CODECS, META, SCHEMA, UNSHUFFLED
from loaderx.store.options import (
    Codec,
    CodecOrAuto,
    check_choice,
    check_count,
    check_flag,
    check_level,
    check_path,
    check_threads,
)
from loaderx.store.progress import Progress, reporting
from loaderx.store.staging import Staging, take_back_moves
from loaderx.store.zrecord import StagedZrecord, Zrecord

_CHUNK_BYTES = 64 << 20


def write_dataset(
    path: str | os.PathLike[str],
    array: npt.ArrayLike | Sliced | Dataset,
    codec: CodecOrAuto | None = None,
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
        dataset of another library; and so is a `Dataset`. Anything else, also what has a dtype that is not NumPy's,
        such as a tensor, is converted by `numpy.asarray`.
    codec : {"zstd", "raw", "zstd_dict", "zstd_shuffle", "zstd_shuffle_dict", "auto"}, optional
        None: that of the dataset which is appended to, and "zstd" for a new one.
        "auto" tries them on some records and takes what stores these smallest, by the rule of `choose_codec`; what it
        took and why is logged, and the dataset's `codec` from then on. Of an existing dataset that has records it is
        that codec.
        "zstd_shuffle" puts the bytes of equal significance of each record's numbers side by side before it compresses:
        smaller and faster to read for floats and integers of 2 to 16 bytes; loaderx 0.7.3 cannot read it.
        "zstd_dict" trains a dictionary first, on records spread over the data: much smaller for many small, similar
        records, and slow to write (level 19; ``level=3`` is the fast choice).
    chunk_bytes : int
        Bytes read and written at a time; bounds the memory taken.
    dict_size : int, optional
        The most bytes a dictionary may have; None: a hundredth of the data, at most 112,640.
    level : int, optional
        zstd's level; None: 3, and 19 with the dictionary. Codec "raw" has none, and "auto" may find that it is best.
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
        The array has no axis or holds Python objects, it is none but a file's name or several arrays by name, NumPy
        makes no array of it, or the existing dataset has another dtype or shape.
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
    source, n, schema = as_slices(target, array, _check_codec(codec))
    record_bytes, item_bytes = schema.item_bytes, schema.dtype.itemsize
    step = max(1, check_count("chunk_bytes", chunk_bytes, least=1) // max(1, record_bytes))

    def add(append: Append) -> Iterator[int]:
        for first in range(0, n, step):
            block = read_slice(target, source, n, schema, first, min(first + step, n))
            append.add(as_source(block), len(block), record_bytes, item_size=max(1, item_bytes))
            yield len(block) * record_bytes

    samples = SliceSamples(target, source, n, schema)
    writer = _Writer(target, schema, codec, level, threads, dict_size, overwrite, upgrade)
    with reporting(progress, n * record_bytes) as report:
        writer.write(add, samples, report)
    return n


def write_ragged(
    path: str | os.PathLike[str],
    arrays: Iterable[npt.ArrayLike],
    dtype: npt.DTypeLike | None = None,
    item_shape: Sequence[int] | int | None = None,
    codec: CodecOrAuto | None = None,
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
    codec : {"zstd", "raw", "zstd_dict", "zstd_shuffle", "zstd_shuffle_dict", "auto"}, optional
        As in `write_dataset`. A dictionary is trained, and "auto" decides, on records spread over the data where
        `arrays` is a sequence, and over the first `chunk_bytes` of any other iterable.
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
    fixed_codec = _check_codec(codec)
    chunk_bytes = check_count("chunk_bytes", chunk_bytes, least=1)
    explicit = dtype is not None
    if dtype is None and not overwrite and _dataset_exists(target):
        dtype = read_schema(target).dtype  # lists have none of their own
    records, schema = as_records(target, arrays, dtype, item_shape, fixed_codec, explicit=explicit)
    samples = RaggedSamples(target, arrays, records, chunk_bytes)
    written = 0

    def add(append: Append) -> Iterator[int]:
        nonlocal written
        buffer, lens = bytearray(), list[int]()
        for record in samples:
            if lens and len(buffer) + record.nbytes > chunk_bytes:
                yield _add_var(append, buffer, lens, schema.dtype.itemsize)
                buffer, lens = bytearray(), []
            buffer += record
            lens.append(record.nbytes)
            written += 1
        yield _add_var(append, buffer, lens, schema.dtype.itemsize)

    writer = _Writer(target, schema, codec, level, threads, dict_size, overwrite, upgrade)
    with reporting(progress, None) as report:
        writer.write(add, samples, report)
    return written


class _Writer:
    """Puts records into a new dataset, or behind those of an existing one."""

    def __init__(
        self,
        target: Path,
        schema: Schema,
        codec: CodecOrAuto | None,
        level: int | None,
        threads: int,
        dict_size: int | None,
        overwrite: bool,
        upgrade: bool,
    ) -> None:
        self._target = target
        self._schema = schema
        self._codec = codec
        self._level = check_level(level, codec)
        self._threads = check_threads(threads)
        self._overwrite = check_flag("overwrite", overwrite)
        self._upgrade = check_flag("upgrade", upgrade)
        self._process = os.getpid()
        self._dict_size = check_dict_size(dict_size)

    def write(self, add: Any, samples: Samples, report: Any) -> None:
        """Write everything, in one commit.

        Parameters
        ----------
        add : callable
            Adds the records to the `Append` it is given, and yields the bytes of each part.
        samples : Samples
            Of what it adds.
        report : callable
            Told the bytes of each part.
        """
        if not self._overwrite and _dataset_exists(self._target):
            there = read_schema(self._target)
            _check_same(self._target, there, self._schema)
            if self._codec in (None, "auto"):
                self._schema = replace(self._schema, codec=there.codec)
            if self._codec is None:
                self._check_level_of_dataset()
            if self._codec == "auto" and self._is_empty():
                self._choose(samples)
            with self._schema_says(there):
                self._fill(Zrecord, self._target, add, samples, report)
            return
        with Staging(self._target, replace=self._overwrite) as staging:
            if self._codec == "auto":
                self._choose(samples)
            self._fill(StagedZrecord, staging.path, add, samples, report)
            write_schema(staging.path, self._schema)
            staging.install()

    def _check_level_of_dataset(self) -> None:
        if self._level is not None and self._schema.codec == "raw":
            raise OptionError(
                f"{self._target}: level is {self._level}, and the dataset's codec, 'raw', compresses nothing: leave it "
                "out, or choose another codec",
                option="level",
                value=self._level,
            )

    def _choose(self, samples: Samples) -> None:
        import logging

        choice = choose(samples, self._level, self._dict_size)
        logging.getLogger(__name__).info("%s: codec %s: %s", self._target, choice.codec, choice.reason)
        if choice.candidates:
            self._schema = replace(self._schema, codec=choice.codec)

    def _is_empty(self) -> bool:
        with Zrecord(self._target, mode="r") as store:
            return len(store) == 0

    @contextlib.contextmanager
    def _schema_says(self, there: Schema) -> Iterator[None]:
        """Have the schema name the codec that was chosen for the first records of an empty dataset.

        Before they are written, so that no records are there under another name; where they are not, as it was.
        """
        if self._codec != "auto" or self._schema.codec == there.codec:
            yield
            return
        try:
            write_schema(self._target, replace(there, codec=self._schema.codec))
            yield
        except BaseException:
            if os.getpid() == self._process:
                with contextlib.suppress(OSError, ZrecordError):
                    if self._is_empty():
                        write_schema(self._target, there)
            raise

    def _fill(self, kind: type[Zrecord], path: Path, add: Any, samples: Samples, report: Any) -> None:
        codec = self._schema.codec
        level = None if codec == "raw" else self._level  # "auto" may have found that it is best
        with kind(path, codec, level=level, threads=self._threads, upgrade=self._upgrade) as store:
            trains = codec in DICTIONARY_CODECS and not store.has_dict()
            try:
                if trains:
                    self._train(store, samples)
                with store.appending() as append:
                    for part_bytes in add(append):
                        report(part_bytes)
            except BaseException:
                if trains and os.getpid() == self._process:
                    _forget_dictionary(path)
                raise

    def _train(self, store: Zrecord, samples: Samples) -> None:
        size = dictionary_bytes(samples.total_bytes(), self._dict_size)
        chosen = samples.take(max(size * SAMPLED_FOR_EACH_BYTE, LEARNT_BYTES))
        store.train_dict(
            b"".join(chosen),
            [sample.nbytes for sample in chosen],
            size,
            item_size=samples.item_bytes if self._schema.codec in UNSHUFFLED else None,
        )


def _check_codec(codec: CodecOrAuto | None) -> Codec:
    """Return a codec's name, for None and "auto" the default, or raise `OptionError`."""
    if codec is None:
        return DEFAULT_CODEC
    if isinstance(codec, CodecChoice):
        raise OptionError(
            f"codec is a CodecChoice: give its codec, {codec.codec!r}", option="codec", value=codec
        )
    checked: CodecOrAuto = check_choice("codec", codec, (*CODECS, "auto"))
    return DEFAULT_CODEC if checked == "auto" else checked


def _forget_dictionary(path: Path) -> None:
    """Remove a dictionary that was just trained, unless records need it: the failure may have come after the commit."""
    with contextlib.suppress(OSError, ZrecordError):
        with Zrecord(path, mode="r") as store:
            needed = any(name in store.stats()["codecs"] for name in DICTIONARY_CODECS)
        if not needed:
            files.unlink(path / DICTIONARY)


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
