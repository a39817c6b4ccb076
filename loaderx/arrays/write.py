"""Writing arrays: whole datasets, in bounded memory, that appear complete or not at all."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence

import numpy.typing as npt

from loaderx.arrays.dataset import Dataset
from loaderx.arrays.sampling import RaggedSamples, SliceSamples
from loaderx.arrays.schema import read_schema
from loaderx.arrays.sources import Sliced, as_records, as_slices, read_slice
from loaderx.arrays.writer import DatasetWriter, add_records, check_codec_or_auto, dataset_exists
from loaderx.store.buffers import as_source
from loaderx.store.options import CodecOrAuto, check_count, check_path
from loaderx.store.progress import Progress, reporting

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
    source, n, schema = as_slices(target, array, check_codec_or_auto(codec))
    record_bytes, item_bytes = schema.item_bytes, schema.dtype.itemsize
    step = max(1, check_count("chunk_bytes", chunk_bytes, least=1) // max(1, record_bytes))

    samples = SliceSamples(target, source, n, schema)
    writer = DatasetWriter(target, schema, codec, level, threads, dict_size, overwrite, upgrade)
    with reporting(progress, n * record_bytes) as report, writer.writing(samples) as append:
        for first in range(0, n, step):
            block = read_slice(target, source, n, schema, first, min(first + step, n))
            append.add(as_source(block), len(block), record_bytes, item_size=max(1, item_bytes))
            report(len(block) * record_bytes)
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
    fixed_codec = check_codec_or_auto(codec)
    chunk_bytes = check_count("chunk_bytes", chunk_bytes, least=1)
    explicit = dtype is not None
    if dtype is None and not overwrite and dataset_exists(target):
        dtype = read_schema(target).dtype  # lists have none of their own
    records, schema = as_records(target, arrays, dtype, item_shape, fixed_codec, explicit=explicit)
    samples = RaggedSamples(target, arrays, records, chunk_bytes)
    written = 0
    writer = DatasetWriter(target, schema, codec, level, threads, dict_size, overwrite, upgrade)
    with reporting(progress, None) as report, writer.writing(samples) as append:
        buffer, lens = bytearray(), list[int]()
        for record in samples:
            if lens and len(buffer) + record.nbytes > chunk_bytes:
                report(add_records(append, buffer, lens, schema.dtype.itemsize))
                buffer, lens = bytearray(), []
            buffer += record
            lens.append(record.nbytes)
            written += 1
        report(add_records(append, buffer, lens, schema.dtype.itemsize))
    return written
