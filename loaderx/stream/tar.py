"""Members of tar archives, told from bytes in memory."""

from __future__ import annotations

import re
from typing import NamedTuple

BLOCK_BYTES = 512
_CHECKSUM = slice(148, 156)
_REGULAR = (b"0", b"\0", b"7")
# Members without data, whatever size they have.
_BARE = (b"1", b"2", b"3", b"4", b"5", b"6")
_PAX_RECORD = re.compile(rb"(\d+) ([^=]+)=")


class TarError(Exception):
    """Bytes that are no tar archive's."""


class Cut(Exception):
    """The bytes end in the middle of a member."""


class Member(NamedTuple):
    """A member of an archive.

    Attributes
    ----------
    name : str
    is_regular : bool
        Whether it is a file with data.
    begin, end : int
        Its data, in the bytes.
    following : int
        Where the next member begins, with what stands before it.
    """

    name: str
    is_regular: bool
    begin: int
    end: int
    following: int


def read_member(data: bytes, at: int) -> Member | None:
    """Return the member whose headers begin at a place; None: the archive has ended.

    Formats are ustar, GNU's and pax, and what was there before them.

    Raises
    ------
    Cut
        More bytes are needed.
    TarError
        There is no header, or one of a sparse file.
    """
    name: bytes | None = None
    size: int | None = None
    while True:
        header = data[at : at + BLOCK_BYTES]
        if len(header) < BLOCK_BYTES:
            raise Cut
        if header[0] == 0 and header.count(0) == BLOCK_BYTES:
            return None
        _check_sum(header)
        kind = header[156:157]
        begin = at + BLOCK_BYTES
        n_bytes = _number(header[124:136])
        if kind in (b"x", b"g", b"L", b"K"):
            following = begin + _padded(n_bytes)
            if len(data) < following:
                raise Cut
            if kind == b"L":
                name = data[begin : begin + n_bytes].partition(b"\0")[0]
            elif kind == b"x":
                records = _pax_records(data[begin : begin + n_bytes])
                if any(key.startswith(b"GNU.sparse.") for key in records):
                    raise TarError("it holds a sparse file")
                name = records.get(b"path", name)
                size = int(records[b"size"]) if b"size" in records else size
            at = following
            continue
        if kind == b"S":
            raise TarError("it holds a sparse file")
        if name is None:
            name = header[:100].partition(b"\0")[0]
            prefix = header[345:500].partition(b"\0")[0] if header[257:263] == b"ustar\0" else b""
            if prefix:
                name = prefix + b"/" + name
        if size is not None:
            n_bytes = size
        if kind in _BARE:
            n_bytes = 0
        return Member(
            name.decode("utf-8", "surrogateescape"),
            kind in _REGULAR and not name.endswith(b"/"),
            begin,
            begin + n_bytes,
            begin + _padded(n_bytes),
        )


def _check_sum(header: bytes) -> None:
    said = _number(header[_CHECKSUM])
    field = header[_CHECKSUM]
    found = sum(header) - sum(field) + 8 * ord(" ")
    if found != said:
        # Some programs have added up signed bytes.
        negative = sum(byte > 127 for byte in header) - sum(byte > 127 for byte in field)
        if found - 256 * negative != said:
            raise TarError("a header's checksum is wrong")


def _padded(n_bytes: int) -> int:
    return -(-n_bytes // BLOCK_BYTES) * BLOCK_BYTES


def _number(field: bytes) -> int:
    if field[0] in (0x80, 0xFF):  # GNU's, for what octal digits have no room for
        value = int.from_bytes(field[1:], "big")
        if field[0] == 0xFF or value >= 1 << 63:
            raise TarError("a size is negative, or beyond all measure")
        return value
    try:
        return int(field.partition(b"\0")[0].strip() or b"0", 8)
    except ValueError:
        raise TarError("a header has a number that is none") from None


def _pax_records(data: bytes) -> dict[bytes, bytes]:
    records = {}
    at = 0
    while at < len(data) and data[at]:
        match = _PAX_RECORD.match(data, at)
        if match is None:
            raise TarError("a pax header is wrong")
        n_bytes = int(match[1])
        if n_bytes <= match.end() - at or at + n_bytes > len(data):
            raise TarError("a pax header is wrong")
        records[match[2]] = data[match.end() : at + n_bytes - 1]
        at += n_bytes
    return records
