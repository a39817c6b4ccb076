"""Where in a file a sample is, for people: the number of its line, and what stands there."""

from __future__ import annotations

import bisect
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from loaderx.errors import JsonlError
from loaderx.store.telling import said

_PIECE_BYTES = 4 << 20
_EXCERPT = 60
_MOST_KNOWN = 1024

#: Returns some bytes of a file, by its number, from an offset on; fewer where it ends.
ReadAt = Callable[[int, int, int], bytes]


class LineNumbers:
    """Counts lines from a file's beginning, or from where it has counted to before.

    Parameters
    ----------
    read_at : callable
        ``read_at(file, byte_offset, n_bytes)``

    Notes
    -----
    Any number of threads may use it: two that count at once both come to the right number.
    """

    def __init__(self, read_at: ReadAt) -> None:
        self._read_at = read_at
        # Of each file: where lines begin that are known, and their numbers; in order.
        self._known: dict[int, list[tuple[int, int]]] = {}

    def number_at(self, file: int, byte_offset: int) -> int | None:
        """Return the number of the line, from 1, that begins at an offset; None where the file does not go so far.

        Raises
        ------
        OSError
        """
        known = self._known.setdefault(file, [(0, 1)])
        at, number = known[bisect.bisect_right(known, (byte_offset, 1 << 62)) - 1]
        while at < byte_offset:
            piece = self._read_at(file, at, min(_PIECE_BYTES, byte_offset - at))
            if not piece:
                return None
            number += piece.count(b"\n")
            at += len(piece)
        if known[bisect.bisect_right(known, (byte_offset, 1 << 62)) - 1][0] != byte_offset:
            if len(known) >= _MOST_KNOWN:
                # Every second place goes, and not the newest: whoever goes through the file counts on from there. A new
                # list, for another thread may be in the old one.
                known = self._known[file] = known[::2]
            bisect.insort(known, (byte_offset, number))
        return number


def make_excerpt(raw: bytes, error: BaseException) -> str:
    """Return what stands where a parser stopped, or at the beginning; what is not printable is escaped.

    Parameters
    ----------
    raw : bytes
        What did not parse.
    error : BaseException
        Why. One of json's, of orjson's or of a decoder's says where.
    """
    doc: Any = getattr(error, "doc", None)
    at: Any = getattr(error, "pos", None)
    if isinstance(error, UnicodeDecodeError):
        doc, at = raw, error.start
    elif not (isinstance(doc, str) and doc and isinstance(at, int) and 0 <= at <= len(doc)):
        doc, at = raw, _first_bad_byte(raw)
    begin = max(0, min(at - _EXCERPT // 2, len(doc) - _EXCERPT))
    part = doc[begin : begin + _EXCERPT]
    text = part.decode("utf-8", "backslashreplace") if isinstance(part, bytes) else part
    shown = "".join(
        letter if letter.isprintable() else letter.encode("unicode_escape").decode() for letter in text
    )
    return f"{'...' if begin else ''}{shown}{'...' if begin + _EXCERPT < len(doc) else ''}"


def _first_bad_byte(raw: bytes) -> int:
    """Return where bytes stop being UTF-8, which orjson does not say; 0 where they do not."""
    try:
        raw.decode()
    except UnicodeDecodeError as error:
        return error.start
    return 0


def parse_error(
    file: Path,
    line_number: int | None,
    byte_offset: int | None,
    index: int | None,
    raw: bytes,
    error: BaseException,
    advice: str = "Mend it",
) -> JsonlError:
    """Return the error for a sample that does not parse; without an index it is a line that is read in passing."""
    if index is None:
        number = "a line" if line_number is None else f"line {line_number}"
        where = f"{file}: {number} (byte {byte_offset})"
    elif line_number is not None:
        where = f"{file}: line {line_number} (byte {byte_offset}, sample {index})"
    elif byte_offset is not None:
        where = f"{file}: the {len(raw)} bytes from {byte_offset} on (sample {index})"
    else:
        where = f"{file}: sample {index}"
    if isinstance(error, RecursionError):
        reason = "it nests too deep"
    elif isinstance(error, json.JSONDecodeError):
        reason = f"{error.msg} (character {error.pos})"
    else:
        reason = f"{type(error).__name__}: {text}" if (text := said(error)) else type(error).__name__
    excerpt = make_excerpt(raw, error)
    return JsonlError(
        f"{where} does not parse: {reason}; there it says: {excerpt}. {advice}, or pass over what does not parse "
        "with on_error='skip'",
        file=file,
        line_number=line_number,
        byte_offset=byte_offset,
        index=index,
        excerpt=excerpt,
    )
