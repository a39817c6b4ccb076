"""sums.zr made by hand, with an implementation of its checksum that is not ours, and held against the file."""

from __future__ import annotations

import struct
from collections.abc import Collection
from pathlib import Path

import xxhash

import loaderx
from tests.oracle import OracleStore

#: magic, version, pad, tail chunk, length, tail offset, dictionary, check
HEADER = struct.Struct("<4sHHIQIII")

#: tag, checksum
SLOT = struct.Struct("<II")

SUMS = "sums.zr"


def checksum32(data: bytes) -> int:
    """Return the low half of XXH3-64, by an implementation that is not ours."""
    value: int = xxhash.xxh3_64_intdigest(data)
    return value & 0xFFFFFFFF


def header_bytes(tail_chunk: int, tail_offset: int, length: int, dictionary: int = 0) -> bytes:
    """Return the header of sums.zr for a store's mark, with the tag of its dictionary."""
    front = HEADER.pack(b"ZSUM", 1, 0, tail_chunk, length, tail_offset, dictionary, 0)[:-4]
    return front + struct.pack("<I", checksum32(front))


def slot_bytes(entry: bytes, stored: bytes) -> bytes:
    """Return the slot of one record."""
    return SLOT.pack(checksum32(entry) or 1, checksum32(stored))


def sums_bytes(path: Path, unchecked: Collection[int] = ()) -> bytes:
    """Return what sums.zr must begin with for a store as it lies there."""
    store = OracleStore(path)
    slots = [
        bytes(8) if index in unchecked else slot_bytes(store.table[index].tobytes(), store.stored(index))
        for index in range(len(store))
    ]
    content = (path / "dict.zr").read_bytes() if (path / "dict.zr").exists() else b""
    dictionary = checksum32(content) or 1 if content else 0
    return header_bytes(store.tail_chunk, store.tail_offset, store.length, dictionary) + b"".join(slots)


def check_sums(path: Path, unchecked: Collection[int] = ()) -> None:
    expected = sums_bytes(path, unchecked)
    assert (path / SUMS).read_bytes()[: len(expected)] == expected
    report = loaderx.verify(path)
    assert report.ok and report.damaged == ()
    assert (report.records, report.unchecked) == (len(OracleStore(path)), len(unchecked))
    assert report.checked == report.records - report.unchecked
