"""Where the samples of text files are, said slowly."""

from __future__ import annotations

from collections.abc import Iterable

MARK = b"\xef\xbb\xbf"


def lines_of(data: bytes, start: int = 0) -> list[tuple[int, int]]:
    """Return first byte and number of bytes of each line that is not blank, from the line that begins at `start` on."""
    if start == 0 and data.startswith(MARK):
        start = len(MARK)
    found = []
    while start < len(data):
        end = data.find(b"\n", start) + 1 or len(data)
        if data[start:end].strip(b" \t\r\n"):
            found.append((start, end - start))
        start = end
    return found


def rows_of(files: Iterable[bytes]) -> list[list[int]]:
    """Return the rows of the index of some files: number of the file, first byte, number of bytes."""
    return [[number, at, size] for number, data in enumerate(files) for at, size in lines_of(data)]
