"""The text of a file, plain or compressed, from some byte on, and its lines by where they begin."""

from __future__ import annotations

import io
import itertools
import os
from collections.abc import Generator, Iterator, Sequence
from pathlib import Path
from typing import Protocol

from loaderx.jsonl.archives import TextFile
from loaderx.stream.positions import refuse_beyond

# Bytes of text that are cut into lines at a time: so there are no more lines than that in a block.
_BLOCK_BITS = 17
_BLOCK_BYTES = 1 << _BLOCK_BITS
_LEAST_BYTES = 4096


def make_place(block: int, line: int) -> int:
    """Return the place of a line: it orders as lines do.

    Parameters
    ----------
    block : int
        The byte at which some line begins.
    line : int
        How many lines behind that one it is, below 2**17.

    Notes
    -----
    A number of the line's own byte would cost a tenth of the time in which JSON is parsed: for that the length of each
    line is asked, and a block's lines are in no cache any more when they are looked at a second time.
    """
    return block << _BLOCK_BITS | line


def divide_place(place: int) -> tuple[int, int]:
    """Return what `make_place` was given."""
    return place >> _BLOCK_BITS, place & (_BLOCK_BYTES - 1)


class Lines(Protocol):
    """Lines of a text, in order.

    Attributes
    ----------
    at : int
        The byte of the text at which the next one begins.
    """

    at: int

    def fraction(self) -> float:
        """Return how much of the file has been read, from 0 to 1."""

    def read(self) -> list[bytes]:
        """Return some lines with their ends, which the last one of a text may lack; none where it has ended."""

    def close(self) -> None:
        """Let go of the file."""


class Text:
    """The text of a file.

    Parameters
    ----------
    path : str
        Only read; whether it is compressed is told by how it begins.

    Raises
    ------
    ArchiveError
        It is of a kind that is not read.
    OSError
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._is_plain = TextFile(Path(path)).kind is None

    def lines(self, at: int) -> Lines:
        """Return the lines from a byte on, where one begins. Compressed text is read from its beginning for that."""
        return _PlainLines(self._path, at) if self._is_plain else _CompressedLines(self._path, at)

    def check_begin(self, at: int) -> None:
        """Raise `ValueError` where no line begins at a byte, nor the text ends; of compressed text nobody knows."""
        if not self._is_plain or at == 0:
            return
        with open(self._path, "rb", buffering=0) as file:
            size = os.fstat(file.fileno()).st_size
            if at > size or (at < size and os.pread(file.fileno(), 1, at - 1) != b"\n"):
                raise ValueError(f"no line begins at byte {at}")

    def lines_at(self, places: Sequence[int]) -> Generator[tuple[int, bytes]]:
        """Yield the bytes at which the lines of some places begin, and the lines with their ends; places are in order.

        There are fewer where the text ends before.
        """
        source: Lines | None = None
        block, n, at = -1, 0, 0
        lines: Iterator[bytes] = iter(())
        try:
            for wanted_block, wanted_line in map(divide_place, places):
                if wanted_block != block:
                    block, n = wanted_block, 0
                    if source is None or self._is_plain or at > block:
                        if source is not None:
                            source.close()
                        source, at = self.lines(block), block
                        lines = itertools.chain.from_iterable(iter(source.read, []))
                    # Of a compressed text the same lines are gone on with.
                    while at < block and (line := next(lines, b"")):
                        at += len(line)
                while n < wanted_line and (line := next(lines, b"")):
                    at, n = at + len(line), n + 1
                line = next(lines, b"")
                if not line:
                    return
                yield at, line
                at, n = at + len(line), n + 1
        finally:
            if source is not None:
                source.close()

    def pieces(self) -> Iterator[bytes]:
        """Yield the text from its beginning, cut anywhere."""
        if not self._is_plain:
            yield from TextFile(Path(self._path))
            return
        with open(self._path, "rb", buffering=0) as file:
            while piece := file.read(_BLOCK_BYTES):
                yield piece


class LineCount:
    """How many lines of a text end before one of its bytes and another: what was counted is not read again.

    Parameters
    ----------
    text : Text
    """

    def __init__(self, text: Text) -> None:
        self._text = text
        self._begin()

    def _begin(self) -> None:
        self._pieces = self._text.pieces()
        self._piece = b""
        # How much of the piece has been counted, up to which byte of the text, and how many lines ended before that.
        self._used = self._at = self._n = 0

    def before(self, at: int) -> int:
        """Return how many lines end before a byte; quick for one behind that of the last call."""
        if at < self._at:
            self._begin()
        try:
            while self._at < at and self._read():
                used = min(len(self._piece), self._used + at - self._at)
                self._n += self._piece.count(b"\n", self._used, used)
                self._at += used - self._used
                self._used = used
        except BaseException:
            self._begin()  # the pieces have ended with it
            raise
        return self._n

    def _read(self) -> bool:
        """Have a piece of which not all is counted; return whether there is one."""
        if self._used == len(self._piece):
            self._piece, self._used = next(self._pieces, b""), 0
        return len(self._piece) > 0


class _PlainLines:
    """Reads by `pread` alone: no error, and no process that was forked, moves where the next block begins."""

    _number = -1

    def __init__(self, path: str, at: int) -> None:
        # No file object, which would warn where it is dropped before this is.
        self._number = os.open(path, os.O_RDONLY)
        self._size = os.fstat(self._number).st_size
        self.at = at

    def read(self) -> list[bytes]:
        at = self.at
        # To get a large buffer takes longer than to read a small file, which may have grown.
        data = os.pread(self._number, max(_LEAST_BYTES, min(_BLOCK_BYTES, self._size - at)), at)
        if data and b"\n" not in data:
            data = self._read_long(data)
        lines = io.BytesIO(data).readlines()
        if len(lines) > 1 and not lines[-1].endswith(b"\n"):
            data = data[: -len(lines.pop())]
        self.at = at + len(data)
        return lines

    def _read_long(self, data: bytes) -> bytes:
        """Read on until a line ends, or the text."""
        parts, end = [data], self.at + len(data)
        while b"\n" not in parts[-1] and (piece := os.pread(self._number, _BLOCK_BYTES, end)):
            parts.append(piece)
            end += len(piece)
        return b"".join(parts)

    def fraction(self) -> float:
        return min(1.0, self.at / max(1, self._size))

    def close(self) -> None:
        number, self._number = self._number, -1
        if number >= 0:
            os.close(number)

    # A pass that is left in the middle leaves nothing to warn of.
    __del__ = close


class _CompressedLines:
    def __init__(self, path: str, at: int) -> None:
        self._path = path
        self.at = at
        self._open()

    def _open(self) -> None:
        self._pid = os.getpid()
        self._text = TextFile(Path(self._path))
        self._blocks = iter(self._text)
        self._to_skip = self.at
        self._rest: list[bytes] = []
        self._whole = io.BytesIO()

    def read(self) -> list[bytes]:
        if self._pid != os.getpid():  # forked: the file is read by the other process too
            self.close()
            self._open()
        try:
            lines = self._whole.readlines(_BLOCK_BYTES)
            if not lines:
                self._whole = io.BytesIO(self._read_whole())
                lines = self._whole.readlines(_BLOCK_BYTES)
        except BaseException:
            # What gave the text is of no use after an error: the next call begins anew.
            self.close()
            self._open()
            raise
        self.at += sum(map(len, lines))
        return lines

    def _read_whole(self) -> bytes:
        """Return some text that ends where a line does; none where it has ended."""
        for block in self._blocks:
            if self._to_skip >= len(block):
                self._to_skip -= len(block)
                continue
            if self._to_skip:
                block, self._to_skip = block[self._to_skip :], 0
            end = block.rfind(b"\n") + 1
            if not end:
                self._rest.append(block)
                continue
            whole = b"".join((*self._rest, block[:end]))
            self._rest = [block[end:]] if end < len(block) else []
            return whole
        if self._to_skip:
            refuse_beyond(self._path, f"byte {self.at}", f"{self.at - self._to_skip} bytes of text")
        rest, self._rest = b"".join(self._rest), []
        return rest

    def fraction(self) -> float:
        return min(1.0, self._text.read_bytes / max(1, os.stat(self._path).st_size))

    def close(self) -> None:
        self._blocks.close()  # type: ignore[attr-defined]
