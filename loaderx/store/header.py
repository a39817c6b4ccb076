"""The header of a store: reading it, checking it, and changing it field by field."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from loaderx._core.maps import FileMap
from loaderx.errors import CorruptRecordError, FormatVersionError, NotAStoreError
from loaderx.store import files
from loaderx.store.format import (
    HEADER,
    LENGTH_AT,
    MAGIC,
    META,
    META_BYTES,
    NARROW,
    RECORD,
    TAIL_CHUNK_AT,
    TAIL_OFFSET_AT,
    VERSION_AT,
    VERSIONS,
    Version,
    entry_at,
)

_PACKED = struct.Struct("<4sHHII")


@dataclass(frozen=True, slots=True)
class Header:
    """The header's changing fields: where the next record goes, and how many there are."""

    tail_chunk: int
    tail_offset: int
    length: int

    def pack(self, version: Version) -> bytes:
        """Return the first bytes of `meta.zr` of a store with this header."""
        return _PACKED.pack(MAGIC, version.number, self.tail_chunk, self.tail_offset, self.length)

    @property
    def tail(self) -> tuple[int, int]:
        """The tail's chunk and byte, to be compared with other places."""
        return self.tail_chunk, self.tail_offset


def check_header(store: Path, data: bytes, meta_bytes: int) -> tuple[Version, Header]:
    """Return the version and the header in the first bytes of `meta.zr`.

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
    version = VERSIONS.get(int(fields["version"]))
    if version is None:
        raise FormatVersionError(
            f"{store}: a store of format version {fields['version']}; this release reads the versions "
            f"{' and '.join(map(str, VERSIONS))}: use a release that knows it",
            store=store,
            version=int(fields["version"]),
        )
    if header.length > version.max_records or header.tail_chunk >= version.max_chunks:
        raise CorruptRecordError(
            f"{store}: the header of {META} is damaged: it says {header.length} records in {header.tail_chunk + 1} "
            f"chunks, and a store of version {version.number} holds at most {version.max_records} in "
            f"{version.max_chunks}. Restore the file from a copy",
            store=store,
        )
    if entry_at(header.length) > meta_bytes:
        raise CorruptRecordError(
            f"{store}: {META} was cut off: its header says {header.length} records, which need "
            f"{entry_at(header.length)} bytes, and it has {meta_bytes}. Restore the file from a copy"
            f"{_after_packing(header.length, meta_bytes) if version is NARROW else ''}",
            store=store,
        )
    return version, header


def _after_packing(length: int, meta_bytes: int) -> str:
    """Return what to do where loaderx 0.7.3 did what it must not: it never lengthens the table, and says it did."""
    first = (meta_bytes - entry_at(0)) // RECORD.itemsize
    return (
        f". If loaderx 0.7.3 has appended to the store since it was packed: the entries of records {first} to "
        f"{length - 1} were never in the file. After truncate -s {META_BYTES} {META} the store opens, they are empty "
        "records, and can be deleted; all others are whole"
    )


def read_format(store: Path, table: FileMap) -> tuple[Version, Header]:
    """Return the version and the header as they are in the file now."""
    with files.errors_named(store, f"read {META}"):
        return check_header(store, table.read(0, HEADER.itemsize), table.size())


def read_header(store: Path, table: FileMap) -> Header:
    """Return the header as it is in the file now."""
    return read_format(store, table)[1]


def write_tail(meta: int, old: Header, new: Header) -> None:
    """Change the tail in the file from `old` to `new`.

    Each field is one aligned write. A tail that lies too far costs room, one that lies too near costs records: so the
    chunk comes first where it rises, and last where it falls.
    """
    chunk, offset = struct.pack("<H", new.tail_chunk), struct.pack("<I", new.tail_offset)
    if new.tail_chunk > old.tail_chunk:
        files.write_at(meta, chunk, TAIL_CHUNK_AT)
    if new.tail_offset != old.tail_offset:
        files.write_at(meta, offset, TAIL_OFFSET_AT)
    if new.tail_chunk < old.tail_chunk:
        files.write_at(meta, chunk, TAIL_CHUNK_AT)


def write_version(meta: int, version: Version) -> None:
    """Change the version in the file."""
    files.write_at(meta, struct.pack("<H", version.number), VERSION_AT)


def write_length(meta: int, length: int) -> None:
    """Change the number of records in the file: the one write of four bytes that commits."""
    files.write_at(meta, struct.pack("<I", length), LENGTH_AT)
