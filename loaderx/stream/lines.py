"""Text files as shards, an item a line; compressed ones are read from their beginning."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from loaderx.jsonl.archives import TextFile
from loaderx.stream.node import Item

# Bytes that are read and cut into lines at a time.
_BLOCK = 1 << 20
_MARK = b"\xef\xbb\xbf"
_BLANK = b" \t\r"

Parse = Callable[[bytes], Item]


class TextFiles:
    """The lines of text files, parsed; a place is the byte of the text where the line begins.

    Lines end with "\\n"; those of nothing but spaces, tabs and "\\r" are left out, and so is a byte-order mark.

    Parameters
    ----------
    paths : sequence of str
    parse : callable
        Makes an item of a line without its "\\n".
    explain : callable
        ``explain(error, path, line, byte_offset)`` returns what to raise for a line that `parse` raised for.
    """

    def __init__(
        self,
        paths: Sequence[str],
        parse: Parse,
        explain: Callable[[Exception, str, bytes, int], Exception],
    ) -> None:
        self._paths = list(paths)
        self._parse = parse
        self._explain = explain

    def __len__(self) -> int:
        return len(self._paths)

    def describe(self) -> dict[str, Any]:
        names = hashlib.blake2b("\n".join(self._paths).encode(errors="surrogateescape"), digest_size=8)
        return {"files": len(self._paths), "names": names.hexdigest()}

    def measure(self, shard: int) -> int:
        return os.stat(self._paths[shard]).st_size

    def name(self, shard: int) -> str:
        return self._paths[shard]

    def open(self, shard: int, state: int | None = None) -> LineReader:
        return LineReader(_Text(self._paths[shard]), state or 0, self)

    def make(self, shard_text: _Text, line: bytes, at: int) -> Item:
        """Return the item of a line, or raise what says where it is."""
        try:
            return self._parse(line)
        except Exception as error:
            raise self._explain(error, shard_text.path, line, at) from error

    def rebuild(self, shard: int, places: Sequence[int]) -> list[Item]:
        text = _Text(self._paths[shard])
        return [self.make(text, line, at) for at, line in text.lines_at(places)]

    @property
    def parse(self) -> Parse:
        """What makes an item of a line."""
        return self._parse


class LineReader:
    """The lines of one text, from some byte on that is the first of a line.

    Parameters
    ----------
    text : _Text
    at : int
    files : TextFiles
    """

    def __init__(self, text: _Text, at: int, files: TextFiles) -> None:
        self._text = text
        self._files = files
        self._parse = files.parse
        self._blocks = text.blocks(at)
        # Where the next line begins, and the lines from there on that are in memory, without their ends.
        self._at = at
        self._lines: list[bytes] = []
        self._i = 0
        self._rest: list[bytes] = []
        self._has_ended = False

    def next(self) -> tuple[int, Item]:
        while True:
            try:
                line = self._lines[self._i]
            except IndexError:
                self._read()
                continue
            self._i += 1
            at = self._at
            self._at = at + len(line) + 1
            try:
                return at, self._parse(line)
            except Exception:
                if not line.strip(_BLANK):
                    continue
                if at == 0 and line.startswith(_MARK):
                    line = line[len(_MARK) :]
                    if not line.strip(_BLANK):
                        continue
                return at, self._files.make(self._text, line, at)

    def _read(self) -> None:
        """Cut another block into lines; what is behind the last line end waits for the next block."""
        if self._has_ended:
            raise StopIteration
        self._lines, self._i = [], 0
        rest = self._rest
        for block in self._blocks:
            head, found, tail = block.rpartition(b"\n")
            if not found:
                rest.append(block)
                continue
            rest.append(head)
            self._lines = b"".join(rest).split(b"\n")
            self._rest = [tail] if tail else []
            return
        self._has_ended = True
        if not rest:
            raise StopIteration
        self._rest = []
        self._lines = [b"".join(rest)]

    def get_state(self) -> int:
        return self._at

    def close(self) -> None:
        self._blocks.close()


class _Text:
    """The text of a file, as it would be decompressed."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._file = TextFile(Path(path))

    def blocks(self, at: int) -> Any:
        """Yield the text from a byte on."""
        return self._plain(at) if self._file.kind is None else self._decompressed(at)

    def _plain(self, at: int) -> Iterator[bytes]:
        with open(self.path, "rb", buffering=0) as file:
            file.seek(at)
            while block := file.read(_BLOCK):
                yield block

    def _decompressed(self, at: int) -> Iterator[bytes]:
        for block in TextFile(Path(self.path)):
            if at >= len(block):
                at -= len(block)
                continue
            yield block[at:] if at else block
            at = 0

    def lines_at(self, places: Sequence[int]) -> Iterator[tuple[int, bytes]]:
        """Yield the lines that begin at some bytes, which are in order, without their ends."""
        for at, line in self._sought(places) if self._file.kind is None else self._scanned(places):
            yield at, line[len(_MARK) :] if at == 0 and line.startswith(_MARK) else line

    def _sought(self, places: Sequence[int]) -> Iterator[tuple[int, bytes]]:
        with open(self.path, "rb") as file:
            for at in places:
                file.seek(at)
                yield at, file.readline().removesuffix(b"\n")

    def _scanned(self, places: Sequence[int]) -> Iterator[tuple[int, bytes]]:
        blocks = iter(TextFile(Path(self.path)))
        held, begin = b"", 0
        for at in places:
            while begin + len(held) <= at:
                begin += len(held)
                held = next(blocks)
            parts, first = [], at - begin
            while (end := held.find(b"\n", first)) < 0:
                parts.append(held[first:])
                begin += len(held)
                held, first = next(blocks, b""), 0
                if not held:
                    end = 0
                    break
            parts.append(held[first:end])
            yield at, b"".join(parts)
