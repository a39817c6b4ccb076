"""Opening the files of a store for reading, and checking its header."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from loaderx._core.maps import FileMap
from loaderx._core.snapshot import DecompressionDictionary, Gate, Snapshot
from loaderx.errors import CorruptRecordError, DictionaryError, FormatVersionError, NotAStoreError
from loaderx.store.files import errors_named, read_whole
from loaderx.store.format import (
    CHUNK_BYTES,
    DICTIONARY,
    HEADER,
    MAGIC,
    MAX_CHUNKS,
    MAX_RECORD_BYTES,
    MAX_RECORDS,
    META,
    META_BYTES,
    VERSION,
    chunk_name,
    entry_at,
)

# Far beyond what helps (zstd's own default is 110 KiB), and still nothing to fear from a forged file.
_MAX_DICTIONARY_BYTES = 256 << 20


@dataclass(frozen=True, slots=True)
class Header:
    """The header of a store."""

    tail_chunk: int
    tail_offset: int
    length: int


def check_header(store: Path, data: bytes, meta_bytes: int) -> Header:
    """Return the header in the first bytes of `meta.zr`.

    Parameters
    ----------
    store : pathlib.Path
    data : bytes
        The first 16 bytes of the file, or all it has.
    meta_bytes : int
        Size of the file.

    Raises
    ------
    NotAStoreError, FormatVersionError, CorruptRecordError
    """
    if len(data) < HEADER.itemsize or data[:4] != MAGIC:
        found = f"begins with {data[:4]!r}" if data else "is empty"
        raise NotAStoreError(f"{store}: not a Zrecord store: {META} {found}, not with {MAGIC!r}", store=store)
    fields = np.frombuffer(data, HEADER, count=1)[0]
    header = Header(int(fields["tail_chunk"]), int(fields["tail_offset"]), int(fields["length"]))
    if fields["version"] != VERSION:
        raise FormatVersionError(
            f"{store}: a store of format version {fields['version']}; this release reads version {VERSION}: use a "
            "release that knows it",
            store=store,
            version=int(fields["version"]),
        )
    if header.length > MAX_RECORDS or header.tail_chunk >= MAX_CHUNKS:
        raise CorruptRecordError(
            f"{store}: the header of {META} is damaged: it says {header.length} records in {header.tail_chunk + 1} "
            f"chunks, and a store holds at most {MAX_RECORDS} in {MAX_CHUNKS}. Restore the file from a copy",
            store=store,
        )
    if entry_at(header.length) > meta_bytes:
        raise CorruptRecordError(
            f"{store}: {META} was cut off: its header says {header.length} records, which need "
            f"{entry_at(header.length)} bytes, and it has {meta_bytes}. Restore the file from a copy",
            store=store,
        )
    return header


def read_header(store: Path, table: FileMap) -> Header:
    """Return the header as it is in the file now."""
    with errors_named(store, f"read {META}"):
        return check_header(store, table.read(0, HEADER.itemsize), table.size())


def read_dictionary(store: Path) -> bytes | None:
    """Return the bytes of `dict.zr`, or None where there is none."""
    with errors_named(store, f"read {DICTIONARY}"):
        try:
            return read_whole(store / DICTIONARY, _MAX_DICTIONARY_BYTES) or None
        except FileNotFoundError:
            return None


def open_snapshot(store: Path, *, mapped: bool) -> Snapshot:
    """Open every file of a store for reading.

    Parameters
    ----------
    store : pathlib.Path
    mapped : bool
        Whether to map the files, or to read them through their descriptors.

    Raises
    ------
    NotAStoreError, FormatVersionError, CorruptRecordError, DictionaryError, StoreIOError
    """
    with errors_named(store, "open the store"):
        try:
            table = FileMap(store / META, META_BYTES, mapped)
        except (FileNotFoundError, NotADirectoryError):
            if not os.path.lexists(store):
                problem = "there is nothing at this path"
            elif not store.is_dir():
                problem = "this is not a directory"
            else:
                problem = f"the directory has no {META}"
            raise NotAStoreError(f"{store}: not a Zrecord store: {problem}", store=store) from None
    header = read_header(store, table)
    dictionary = read_dictionary(store)
    return Snapshot(
        table,
        _open_chunks(store, (), header.tail_chunk + 1, mapped),
        header.length,
        _load_dictionary(store, dictionary) if dictionary else None,
        Gate(),
        MAX_RECORD_BYTES,
    )


def renew_snapshot(
    store: Path, old: Snapshot, *, mapped: bool, gate: Gate | None = None, dictionary: bytes | None = None
) -> Snapshot:
    """Return a snapshot of the store as its header says it is now, keeping every map that is still good.

    Parameters
    ----------
    store : pathlib.Path
    old : Snapshot
    mapped : bool
        As in `open_snapshot`.
    gate : Gate or None
        None: the old one, which stays open.
    dictionary : bytes or None
        A dictionary that was just trained; None: the old one.
    """
    header = read_header(store, old.table)
    return Snapshot(
        old.table,
        _open_chunks(store, _good_chunks(store, old, header.tail_chunk + 1), header.tail_chunk + 1, mapped),
        header.length,
        _load_dictionary(store, dictionary) if dictionary else old.dictionary,
        gate or old.gate,
        MAX_RECORD_BYTES,
    )


def _good_chunks(store: Path, old: Snapshot, n_chunks: int) -> tuple[FileMap, ...]:
    """Return the first chunks of a snapshot, up to one whose name another handle has given to a new file."""
    good = []
    with errors_named(store, "look at its chunks"):
        for chunk, opened in enumerate(old.chunks[:n_chunks]):
            if not opened.is_at(store / chunk_name(chunk)):
                break
            good.append(opened)
    return tuple(good)


def _load_dictionary(store: Path, content: bytes) -> DecompressionDictionary:
    try:
        return DecompressionDictionary(content)
    except ValueError as error:
        damaged = DictionaryError(
            f"{store}: {DICTIONARY} is damaged ({len(content)} bytes: {error}): restore it from a copy",
            store=store,
        )
        damaged.code = -7  # as for one that is missing; -9 is for training that failed
        raise damaged from None


def _open_chunks(
    store: Path, opened: tuple[FileMap, ...], n_chunks: int, mapped: bool
) -> tuple[FileMap, ...]:
    chunks = list(opened)
    for chunk in range(len(opened), n_chunks):
        with errors_named(store, f"open chunk {chunk}"):
            try:
                chunks.append(FileMap(store / chunk_name(chunk), CHUNK_BYTES, mapped))
            except FileNotFoundError:
                raise CorruptRecordError(
                    f"{store}: {chunk_name(chunk)} is missing: the header says the store has chunks 0 to "
                    f"{n_chunks - 1}. Restore the file from a copy",
                    store=store,
                    chunk=chunk,
                ) from None
    return tuple(chunks)
