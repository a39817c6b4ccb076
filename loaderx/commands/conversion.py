"""One source into one store: what `convert` and `demo` both do."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from loaderx import (
    CodecChoice,
    CorruptRecordError,
    Dataset,
    LoaderxError,
    NotAStoreError,
    RaggedDataset,
    Zrecord,
    choose_codec,
    write_dataset,
    write_ragged,
)
from loaderx.arrays.schema import read_schema
from loaderx.commands.bar import Tick, byte_bar
from loaderx.commands.bits import first_different
from loaderx.commands.npy_files import NpyFiles, NpyRecords
from loaderx.commands.npz_members import NpzMember
from loaderx.commands.program import CommandError, MismatchError
from loaderx.store.folders import is_store
from loaderx.store.format import DICTIONARY_CODECS
from loaderx.store.options import Codec, CodecOrAuto

#: An array along axis 0, or records of different lengths.
Source = NpyFiles | NpzMember | NpyRecords

DEFAULT_CODEC: Codec = "zstd"

LEVEL_WITHOUT_CODEC = "--level goes with a codec that compresses, and raw does not"

#: What errors advise that an option of the command does.
_UPGRADE = "upgrade=True"

#: Bytes read back at a time by `verify`.
_VERIFIED_BYTES = 16 << 20


@dataclass(frozen=True)
class Settings:
    """How to write.

    Attributes
    ----------
    codec : str, optional
        As `loaderx.write_dataset` takes it. By default that of the store appended to, and ``"zstd"`` for a new one.
    level, dict_size : int, optional
        As `loaderx.write_dataset` takes them.
    chunk_bytes, threads : int
        As `loaderx.write_dataset` takes them.
    append, force : bool
        What to do when the destination exists; with neither it is an error.
    upgrade : bool
        Whether a store appended to may become one of format version 4.
    """

    codec: CodecOrAuto | None = None
    level: int | None = None
    dict_size: int | None = None
    chunk_bytes: int = 64 << 20
    threads: int = 0
    append: bool = False
    force: bool = False
    upgrade: bool = False


@dataclass(frozen=True)
class Conversion:
    """What one conversion did.

    Attributes
    ----------
    path : Path
        The store.
    codec : str
        The codec asked for, or chosen.
    choice : CodecChoice or None
        Why, where it was to be chosen.
    first_record : int
        Index of the first new record.
    records : int
        New records.
    bytes_in, bytes_out : int
        Bytes of the source, and of the records that hold it.
    dictionary_bytes : int
        Bytes of the store's dictionary, which every record shares.
    seconds : float
        Time taken to write.
    """

    path: Path
    codec: Codec
    choice: CodecChoice | None
    first_record: int
    records: int
    bytes_in: int
    bytes_out: int
    dictionary_bytes: int
    seconds: float


def check_destination(path: Path, settings: Settings) -> None:
    """Check that nothing stands at the place of one store that was not meant to be changed.

    Raises
    ------
    CommandError
        If something does, and neither append nor force is set.
    """
    if os.path.lexists(path) and not (settings.append or settings.force):
        if is_store(path):
            raise CommandError(f"{path} exists; --append adds records to it, --force replaces it")
        raise CommandError(f"{path} exists and is not a loaderx store; choose another path")


def check_store_or_nothing(path: Path) -> None:
    """Check that a store, an empty folder or nothing stands at `path`.

    Raises
    ------
    NotAStoreError
        If something else does.
    """
    if os.path.lexists(path) and not is_store(path) and not (path.is_dir() and not os.listdir(path)):
        raise NotAStoreError(
            f"{path}: not a loaderx store, so it is neither replaced nor added to; choose another path",
            store=path,
        )


def settle_codec(path: Path, settings: Settings) -> CodecOrAuto:
    """Give the codec to write with: the one asked for, that of the store appended to, or the default.

    ``"auto"`` is that of the store appended to, too.

    Raises
    ------
    CommandError
        If a level is set for the codec ``"raw"``, which compresses nothing, or a size of a dictionary for one without.
    """
    codec = settings.codec
    appends = settings.append and is_store(path)
    if appends and codec in (None, "auto"):
        codec = read_schema(path).codec
    if codec == "raw" and settings.level is not None:
        why = "" if settings.codec == "raw" else f", and {path} has the codec raw"
        raise CommandError(f"{LEVEL_WITHOUT_CODEC}{why}")
    if settings.dict_size is not None and not (appends and settings.codec == "auto"):
        check_dict_size(codec, path if appends and settings.codec is None else None)
    return codec or DEFAULT_CODEC


def check_dict_size(codec: CodecOrAuto | None, store: Path | None = None) -> None:
    """Check that a codec takes a size of a dictionary: the one asked for, or the one of a store appended to.

    Raises
    ------
    CommandError
        If it does not.
    """
    if codec not in (*DICTIONARY_CODECS, "auto"):
        why = "" if store is None else f", and {store} has the codec {codec}"
        raise CommandError(f"--dict-size goes with --codec {', '.join(DICTIONARY_CODECS)} or auto{why}")


def convert_source(source: Source, path: Path, settings: Settings, *, bar: bool = False) -> Conversion:
    """Write a source into a store.

    Parameters
    ----------
    source : NpyFiles, NpzMember or NpyRecords
        What to write; `NpyRecords` makes a ragged store.
    path : Path
        The store.
    settings : Settings
        How to write it.
    bar : bool, default False
        Whether to show a progress bar, where stderr is a terminal.

    Returns
    -------
    Conversion

    Raises
    ------
    CommandError
        If `path` exists and the settings do not say what to do then, or the settings contradict each other.
    NotAStoreError
        If what stands there is not a store.
    LoaderxError
        As `loaderx.write_dataset` and `loaderx.write_ragged` raise it; the store is then as it was before.
    """
    check_destination(path, settings)
    check_store_or_nothing(path)
    codec = settle_codec(path, settings)
    before = _read_stats(path) if settings.append and is_store(path) else {"records": 0, "live_bytes": 0}
    num_bytes = source_bytes(source)
    started = time.perf_counter()
    choice = None
    if codec == "auto":
        choice = choose_codec(source, level=settings.level, dict_size=settings.dict_size)
        codec = choice.codec
    with byte_bar(path.name, num_bytes, shown=bar) as tick:
        records = _write(source, path, codec, settings, tick)
    seconds = time.perf_counter() - started
    after = _read_stats(path)
    return Conversion(
        path=path,
        codec=codec,
        choice=choice,
        first_record=before["records"],
        records=records,
        bytes_in=num_bytes,
        bytes_out=after["live_bytes"] - before["live_bytes"],
        dictionary_bytes=after["dictionary_bytes"],
        seconds=seconds,
    )


def source_bytes(source: Source) -> int:
    """Count the bytes of a source's arrays."""
    if isinstance(source, NpyRecords):
        return source.num_bytes
    return math.prod(source.shape) * source.dtype.itemsize


def verify(source: Source, conversion: Conversion, *, threads: int = 0, bar: bool = False) -> None:
    """Read the records of a conversion back and compare them with the source, every bit.

    Parameters
    ----------
    source : NpyFiles, NpzMember or NpyRecords
        What was written.
    conversion : Conversion
        What `convert_source` returned.
    threads : int, default 0
        Threads to read with; 0 for all cores.
    bar : bool, default False
        As for `convert_source`.

    Raises
    ------
    MismatchError
        Names the first record that differs or cannot be read, and where it came from.
    """
    path = conversion.path
    with byte_bar(f"verify {path.name}", conversion.bytes_in, shown=bar) as tick:
        differences = (
            _ragged_differences(source, conversion, threads, tick)
            if isinstance(source, NpyRecords)
            else _fixed_differences(source, conversion, threads, tick)
        )
        try:
            record = next(differences, None)
        except CorruptRecordError as error:
            raise MismatchError(f"{path} does not read back: {error}") from error
    if record is not None:
        raise MismatchError(
            f"{path}: record {conversion.first_record + record} is not the same as its source {source.locate(record)}"
        )


def _write(source: Source, path: Path, codec: Codec, settings: Settings, tick: Tick) -> int:
    options: dict[str, Any] = {
        "level": None if codec == "raw" else settings.level,
        "threads": settings.threads,
        "progress": tick,
        "overwrite": settings.force,
        "upgrade": settings.upgrade,
    }
    sizes = settings.chunk_bytes, settings.dict_size
    try:
        if isinstance(source, NpyRecords):
            return write_ragged(path, source, source.dtype, source.item_shape, codec, *sizes, **options)
        return write_dataset(path, source, codec, *sizes, **options)
    except LoaderxError as error:
        if _UPGRADE in str(error):
            raise CommandError(str(error).replace(_UPGRADE, "--append --upgrade")) from error
        raise


def _read_stats(path: Path) -> dict[str, Any]:
    with Zrecord(path, mode="r") as store:
        return store.stats()


def _fixed_differences(
    source: NpyFiles | NpzMember, conversion: Conversion, threads: int, tick: Tick
) -> Iterator[int]:
    """Yield the records that differ, of each block the first."""
    record_bytes = conversion.bytes_in // max(len(source), 1)
    block = max(_VERIFIED_BYTES // max(record_bytes, 1), 1)
    with Dataset(conversion.path, threads=threads) as dataset:
        for start in range(0, len(source), block):
            stop = min(start + block, len(source))
            indices = np.arange(start, stop) + conversion.first_record
            difference = first_different(dataset.__getitems__(indices), source[start:stop])
            if difference is not None:
                yield start + difference
            tick(stop * record_bytes, conversion.bytes_in)


def _ragged_differences(
    source: NpyRecords, conversion: Conversion, threads: int, tick: Tick
) -> Iterator[int]:
    """Yield the records that differ."""
    done_bytes = 0
    with RaggedDataset(conversion.path, threads=threads) as dataset:
        for start, stop in _blocks(source):
            indices = np.arange(start, stop) + conversion.first_record
            values, row_splits = dataset.__getitems__(indices)
            for record in range(start, stop):
                expected = source[record]
                got = values[row_splits[record - start] : row_splits[record - start + 1]]
                if got.shape != expected.shape or first_different(got, expected) is not None:
                    yield record
                done_bytes += expected.nbytes
            tick(done_bytes, conversion.bytes_in)


def _blocks(source: NpyRecords) -> Iterator[tuple[int, int]]:
    """Cut the records into runs of about as many bytes as are verified at a time."""
    start, num_bytes = 0, 0
    for record in range(len(source)):
        num_bytes += source.record_bytes(record)
        if num_bytes >= _VERIFIED_BYTES:
            yield start, record + 1
            start, num_bytes = record + 1, 0
    if start < len(source):
        yield start, len(source)
