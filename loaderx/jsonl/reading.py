"""The lines of text files, compressed or not, one file after the other."""

from __future__ import annotations

import stat
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from loaderx.errors import ArchiveError, OptionError
from loaderx.jsonl.archives import TextFile
from loaderx.jsonl.splitting import Lines, split_lines, whole_lines

# Bytes of text that are cut into lines at a time: they stay in the cache meanwhile.
_PIECE_BYTES = 4 << 20
# Problems of a file of which something may be whole.
_FAULTS = ("cut off", "damaged")


@dataclass(frozen=True)
class KeptSource:
    """A source that is cut off or damaged, and of which what is whole was taken.

    Attributes
    ----------
    path : pathlib.Path
    problem : {"cut off", "damaged"}
    lines : int
        Its lines that were taken.
    text_bytes : int
        Bytes of text that they come from.
    """

    path: Path
    problem: str
    lines: int
    text_bytes: int


class LineReader:
    """The lines of files.

    Iterating gives, once, pairs of a file's path and some `Lines` of it, in their order.

    Parameters
    ----------
    paths : sequence of pathlib.Path
    keep_whole : bool
        Take what is whole of a file that is cut off or damaged (`loaderx.jsonl.write_lines`).
    report : callable, optional
        Gets the bytes of the files that have been read since it was called last.

    Attributes
    ----------
    total_bytes : int
        Bytes of the files.
    text_bytes : int
        Bytes of the text that has been read.
    blank_lines : int
        Lines left out of it.
    kept : list of KeptSource
        Files that are not whole.

    Raises
    ------
    OptionError
        A path leads to something else than a file.
    ArchiveError, RecordTooLargeError
        While iterating.
    OSError
    """

    def __init__(
        self,
        paths: Sequence[Path],
        *,
        keep_whole: bool = False,
        report: Callable[[int], object] | None = None,
    ) -> None:
        self._paths = paths
        self.total_bytes = sum(map(_size, paths))
        self._keep_whole = keep_whole
        self.report = report
        self.text_bytes = self.blank_lines = 0
        self.kept: list[KeptSource] = []

    def __iter__(self) -> Iterator[tuple[Path, Lines]]:
        for path in self._paths:
            for lines in self._lines(path):
                self.blank_lines += lines.blank
                yield path, lines

    def _lines(self, path: Path) -> Iterator[Lines]:
        fault = _find_fault(path) if self._keep_whole else None
        blocks: Iterable[bytes] = self._reported(TextFile(path))
        if fault is not None:
            blocks = whole_lines(blocks, fault.whole_bytes)
        n_lines = n_bytes = 0
        try:
            for lines in split_lines(path, blocks, _PIECE_BYTES):
                n_lines += len(lines.starts)
                n_bytes += len(lines.data)
                yield lines
        except ArchiveError as error:
            if error.problem not in _FAULTS:
                raise
            raise _counted(path, error) from error
        self.text_bytes += n_bytes
        if fault is not None:
            self.kept.append(KeptSource(path, fault.problem, n_lines, n_bytes))

    def _reported(self, source: TextFile) -> Iterator[bytes]:
        told = 0
        for block in source:
            yield block
            if self.report is not None:
                self.report(source.read_bytes - told)
                told = source.read_bytes


def _size(path: Path) -> int:
    info = path.stat()
    if not stat.S_ISREG(info.st_mode):  # a pipe could be read once only
        raise OptionError(f"{path}: not a regular file: name files of text", option="sources", value=path)
    return info.st_size


def _find_fault(path: Path) -> ArchiveError | None:
    """Return how a compressed file is cut off or damaged, or None; it is decompressed for that."""
    try:
        source = TextFile(path)
        if source.kind is not None:
            for _ in source:
                pass
    except ArchiveError as error:
        if error.problem not in _FAULTS:
            raise
        return error
    return None


def _counted(path: Path, error: ArchiveError) -> ArchiveError:
    """Return the error with the number of whole lines too, for which the file is decompressed once more."""
    blocks = whole_lines(TextFile(path), error.whole_bytes)
    n_lines = sum(len(lines.starts) for lines in split_lines(path, blocks, _PIECE_BYTES))
    return ArchiveError(
        f"{error.message} ({n_lines:,} whole lines). Get the file anew, or keep what is whole (keep_whole=True)",
        file=path,
        problem=error.problem,
        whole_bytes=error.whole_bytes,
        whole_lines=n_lines,
    )
