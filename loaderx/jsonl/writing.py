"""Writing the files of an index into a folder of its own, in memory that does not grow with the samples."""

from __future__ import annotations

import mmap
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType

from loaderx._core.checksum import hash64
from loaderx.jsonl.layout import (
    FACTS,
    LOCATIONS,
    NAMES,
    ROW_BYTES,
    FileFacts,
    IndexFacts,
    PartFacts,
    names_to_bytes,
)
from loaderx.jsonl.scan import Lines
from loaderx.store import files

# Rows are written when there are so many bytes of them.
_WRITE_BYTES = 1 << 20


class IndexWriter:
    """Writes an index; a context manager.

    Parameters
    ----------
    folder : pathlib.Path
        An empty directory.

    Attributes
    ----------
    count : int
        Samples so far.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._file = files.create(folder / LOCATIONS)
        self._waiting: list[bytes | memoryview] = []
        self._waiting_bytes = 0
        self._written = 0
        self.count = 0

    def __enter__(self) -> IndexWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()

    def add(self, rows: bytes | memoryview) -> None:
        """Add the rows of samples."""
        self._waiting.append(rows)
        self._waiting_bytes += len(rows)
        self.count += len(rows) // ROW_BYTES
        if self._waiting_bytes >= _WRITE_BYTES:
            self._flush()

    def patch(self, sample: int, row: bytes | memoryview) -> None:
        """Write the row of a sample anew."""
        self._flush()
        files.write_at(self._file.fileno(), row, sample * ROW_BYTES)

    def finish(self, pattern: str | None, names: Sequence[str], facts: Mapping[int, FileFacts]) -> None:
        """Write the rest, ``index.json`` last."""
        self._flush()
        text = names_to_bytes(names)
        _write(self._folder / NAMES, text)
        index = IndexFacts(
            self.count,
            pattern,
            PartFacts(len(text), f"{hash64(text):016x}"),
            PartFacts(self._written, hash_file(self._file.fileno())),
            tuple(facts[number] for number in range(len(names))),
        )
        _write(self._folder / FACTS, index.to_json())

    def _flush(self) -> None:
        if self._waiting_bytes:
            rows = self._waiting[0] if len(self._waiting) == 1 else b"".join(self._waiting)
            files.write_at(self._file.fileno(), rows, self._written)
            self._written += self._waiting_bytes
            self._waiting, self._waiting_bytes = [], 0


def add_lines(
    writer: IndexWriter,
    found: Iterator[Lines],
    facts: dict[int, FileFacts],
    unfinished: Mapping[int, int],
    report: Callable[[int], None],
) -> set[int]:
    """Write the lines that were found in files, and note what the files are.

    Parameters
    ----------
    writer : IndexWriter
    found : iterator of Lines
    facts : dict of int to FileFacts
        Gets what each file is, by its number.
    unfinished : mapping of int to int
        The samples that files began with which are indexed on from a line without an end: the first line that is found
        is that sample.
    report : callable
        Is told the bytes that were scanned.

    Returns
    -------
    set of int
        The files that have given any line.
    """
    begun: dict[int, int] = {}  # a resumed file's sample that its last row so far is
    for lines in found:
        rows = memoryview(lines.rows)
        number = lines.number
        if rows and number in unfinished and number not in begun:
            writer.patch(unfinished[number], rows[:ROW_BYTES])
            begun[number] = unfinished[number]
            rows = rows[ROW_BYTES:]
        if rows:
            writer.add(rows)
            begun[number] = writer.count - 1
        if lines.facts is not None:
            last = None if lines.facts.unfinished_sample is None else begun[number]
            facts[number] = lines.facts._replace(unfinished_sample=last)
        if lines.n_bytes:
            report(lines.n_bytes)
    return set(begun)


def hash_file(descriptor: int) -> str:
    """Return the XXH3-64 of a file, in hexadecimal."""
    if os.fstat(descriptor).st_size == 0:
        return f"{hash64(b''):016x}"
    with mmap.mmap(descriptor, 0, access=mmap.ACCESS_READ) as data:
        return f"{hash64(data):016x}"


def _write(path: Path, data: bytes) -> None:
    with files.opened(files.create(path)) as descriptor:
        files.write_at(descriptor, data, 0)
