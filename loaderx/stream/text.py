"""The text of a file, plain or compressed, from some byte on, and its lines by where they begin."""

from __future__ import annotations

import io
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Protocol

from loaderx.jsonl.archives import TextFile

# Bytes of text that are cut into lines at a time.
_BLOCK_BYTES = 1 << 18


class Lines(Protocol):
    """Lines of a text, in order."""

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

    def lines_at(self, places: Sequence[int]) -> Iterator[bytes]:
        """Yield the lines that begin at some bytes, which are in order, with their ends."""
        return self._sought(places) if self._is_plain else self._scanned(places)

    def _sought(self, places: Sequence[int]) -> Iterator[bytes]:
        with open(self._path, "rb") as file:
            for at in places:
                file.seek(at)
                yield file.readline()

    def _scanned(self, places: Sequence[int]) -> Iterator[bytes]:
        lines, at = iter([b""]), 0
        source = _CompressedLines(self._path, 0)
        end = 0
        for place in places:
            while end <= place:
                block = source.read()
                if not block:
                    return
                lines, at, end = iter(block), end, end + sum(map(len, block))
            for line in lines:
                begin, at = at, at + len(line)
                if begin == place:
                    yield line
                    break
        source.close()

    def count_lines(self, at: int) -> int:
        """Return how many lines end before a byte."""
        if self._is_plain:
            n, read = 0, 0
            with open(self._path, "rb", buffering=0) as file:
                while read < at and (piece := file.read(min(_BLOCK_BYTES, at - read))):
                    n += piece.count(b"\n")
                    read += len(piece)
            return n
        n = 0
        for piece in TextFile(Path(self._path)):
            n += piece[:at].count(b"\n")
            at -= len(piece)
            if at <= 0:
                break
        return n


class _PlainLines:
    _file: IO[bytes] | None = None

    def __init__(self, path: str, at: int) -> None:
        # To get a large buffer takes longer than to read a small file.
        buffer_bytes = max(4096, min(_BLOCK_BYTES, os.stat(path).st_size))
        self._file = open(path, "rb", buffering=buffer_bytes)  # noqa: SIM115 - closed by close
        self._file.seek(at)
        self._read = self._file.readlines

    def read(self) -> list[bytes]:
        return self._read(_BLOCK_BYTES)

    def close(self) -> None:
        if self._file is not None:
            self._file.close()

    # A pass that is left in the middle leaves nothing to warn of.
    __del__ = close


class _CompressedLines:
    def __init__(self, path: str, at: int) -> None:
        self._path = path
        self._at = at
        self._open()

    def _open(self) -> None:
        self._blocks = iter(TextFile(Path(self._path)))
        self._to_skip = self._at
        self._rest: list[bytes] = []
        self._n_rest = 0

    def read(self) -> list[bytes]:
        try:
            lines = self._read()
        except BaseException:
            # What gave the text is of no use after an error: the next call begins anew.
            self._blocks.close()  # type: ignore[attr-defined]
            self._open()
            raise
        self._at += sum(map(len, lines))
        return lines

    def _read(self) -> list[bytes]:
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
            return io.BytesIO(whole).readlines()
        rest, self._rest = b"".join(self._rest), []
        return [rest] if rest else []

    def close(self) -> None:
        self._blocks.close()  # type: ignore[attr-defined]
