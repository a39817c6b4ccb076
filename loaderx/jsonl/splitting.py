"""Lines of a text that comes in blocks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from loaderx.errors import RecordTooLargeError
from loaderx.store.format import WIDE

_NEWLINE, _RETURN, _TAB, _SPACE = b"\n\r\t "
_MARK = b"\xef\xbb\xbf"


@dataclass(frozen=True)
class Lines:
    """Some lines of a text, those that are blank left out.

    Attributes
    ----------
    data : bytes
        Whole lines, their ends and blank lines among them.
    starts, sizes : ndarray of int64, shape (n,)
        Where in `data` each line begins, and its bytes without its end.
    numbers : ndarray of int64, shape (n,)
        Its number in the file, from 1, by which an editor finds it.
    blank : int
        Blank lines that were left out.
    """

    data: bytes
    starts: npt.NDArray[np.int64]
    sizes: npt.NDArray[np.int64]
    numbers: npt.NDArray[np.int64]
    blank: int


def split_lines(path: Path, blocks: Iterable[bytes], least_bytes: int) -> Iterator[Lines]:
    r"""Cut a text into lines.

    A line ends with "\n" or "\r\n", and the last one may end with the text. Lines of nothing but spaces, tabs and "\r"
    are blank. A byte-order mark at the beginning of the text is no part of it.

    Parameters
    ----------
    path : pathlib.Path
        Named in errors.
    blocks : iterable of bytes
        The text. So much of it is kept as `least_bytes` and the longest line have.
    least_bytes : int
        About how many bytes to cut at a time.

    Yields
    ------
    Lines
        With a byte or more of `data`.

    Raises
    ------
    RecordTooLargeError
        A line has more bytes than a store can hold.
    """
    first_number = 1
    waiting: list[bytes] = []  # without a whole line, but for what `ready` counts
    n_waiting = ready = 0
    for block in _without_mark(blocks):
        waiting.append(block)
        end = block.rfind(b"\n") + 1
        if end:
            ready = n_waiting + end
        n_waiting += len(block)
        if n_waiting - ready > WIDE.max_record_bytes:
            number = first_number + sum(part.count(b"\n") for part in waiting)
            raise RecordTooLargeError(
                f"{path}, line {number}: over {WIDE.max_record_bytes} bytes, and a store holds no longer line",
                record_bytes=n_waiting - ready,
                limit_bytes=WIDE.max_record_bytes,
            )
        if ready and n_waiting >= least_bytes:
            data = b"".join(waiting)
            lines, first_number = _cut(data[:ready], first_number)
            waiting = [data[ready:]]
            n_waiting, ready = n_waiting - ready, 0
            yield lines
    if n_waiting:
        yield _cut(b"".join(waiting), first_number)[0]


def whole_lines(blocks: Iterable[bytes], n_bytes: int) -> Iterator[bytes]:
    """Yield the first bytes of a text up to the end of the last line that is whole within them."""
    waiting: list[bytes] = []
    for block in blocks if n_bytes else ():
        block = block[:n_bytes]
        n_bytes -= len(block)
        end = block.rfind(b"\n") + 1
        if end:
            yield from waiting
            waiting = []
            yield block[:end]
        waiting.append(block[end:])
        if n_bytes == 0:
            return


def _without_mark(blocks: Iterable[bytes]) -> Iterator[bytes]:
    head: bytes | None = b""
    for block in blocks:
        if head is None:
            yield block
            continue
        head += block
        if len(head) >= len(_MARK) or not _MARK.startswith(head):
            yield head.removeprefix(_MARK)
            head = None
    if head and head != _MARK:
        yield head


def _cut(data: bytes, first_number: int) -> tuple[Lines, int]:
    """Return the lines of `data`, which ends where one does, and the number of the line behind it."""
    text = np.frombuffer(data, np.uint8)
    stops = np.flatnonzero(text == _NEWLINE)
    n_ended = len(stops)
    if not n_ended or stops[-1] != len(data) - 1:
        stops = np.append(stops, len(data))
    starts = np.empty_like(stops)
    starts[0], starts[1:] = 0, stops[:-1] + 1
    before = stops[:n_ended] - 1  # of a "\n" at the very beginning the last byte, which is none of its line
    stops[:n_ended] -= (text[before] == _RETURN) & (before >= starts[:n_ended])
    sizes = stops - starts
    numbers = np.arange(first_number, first_number + len(stops))
    kept = sizes > 0
    first = text[np.minimum(starts, len(data) - 1)]
    doubtful = np.flatnonzero(kept & ((first == _SPACE) | (first == _TAB) | (first == _RETURN)))
    if len(doubtful):
        # Of each whether any byte is more than blank; there may be millions of them. One byte more, for the last may
        # end with the text; every second result is of what lies between two.
        has_text = np.append((text != _SPACE) & (text != _TAB) & (text != _RETURN), False)
        bounds = np.stack((starts[doubtful], stops[doubtful]), 1).reshape(-1)
        kept[doubtful] = np.logical_or.reduceat(has_text, bounds)[::2]
    if not kept.all():
        starts, sizes, numbers = starts[kept], sizes[kept], numbers[kept]
    return Lines(data, starts, sizes, numbers, len(kept) - len(starts)), first_number + n_ended
