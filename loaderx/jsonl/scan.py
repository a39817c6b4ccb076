"""The lines of many files, in order, found by several threads."""

from __future__ import annotations

import os
import struct
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, TypeVar

from loaderx._core.lines import BLOCK_BYTES, LineScanner
from loaderx._core.maps import OpenFile
from loaderx.errors import StaleIndexError
from loaderx.jsonl.archives import LONGEST_MAGIC, check_plain
from loaderx.jsonl.layout import ROW_BYTES, FileFacts

#: What a thread scans at once. A short line makes a row of twelve times its bytes, so this bounds the memory too.
PIECE_BYTES = 2 << 20

#: Small files are given to a thread by so many at most, and no more bytes than a piece.
GROUP_FILES = 256

_MEANWHILE = "it was changed while it was indexed"

_ROW = struct.Struct("<3Q")

_Work = TypeVar("_Work")
_Done = TypeVar("_Done")


class Todo(NamedTuple):
    """A text file, or what was added to it, of which the lines are to be found.

    Attributes
    ----------
    number : int
        Of the file, for the rows.
    path : str
    start : int
        Where to begin: at the beginning of a line.
    size : int
        Where to end.
    """

    number: int
    path: str
    start: int
    size: int


class Lines(NamedTuple):
    """Lines that were found.

    Attributes
    ----------
    number : int
        Of their file.
    rows : bytes
        `layout.ROW_BYTES` each.
    n_bytes : int
        Bytes of the file that have been scanned meanwhile.
    facts : FileFacts or None
        At the end of a file: what it is. Its `unfinished_sample` is 0 where the last row is of a line without
        an end, for the number of that sample is not known here.
    """

    number: int
    rows: bytes
    n_bytes: int
    facts: FileFacts | None


def find_lines(todos: Sequence[Todo], threads: int) -> Iterator[Lines]:
    """Yield the lines of files, in order.

    Parameters
    ----------
    todos : sequence of Todo
    threads : int
        How many threads scan, at least 1.

    Raises
    ------
    StaleIndexError
        A file was changed, other than by appending to it, while it was scanned.
    ArchiveError
        A file is compressed.
    OSError
        A file cannot be read.
    """
    scanners: deque[LineScanner] = deque()

    def scan(work: _Piece | _Group) -> _Result | list[Lines]:
        scanner = scanners.pop() if scanners else LineScanner()
        try:
            return work.scan(scanner)
        finally:
            scanners.append(scanner)

    line = _Carry()
    for result in _in_order(scan, _cut(todos), threads):
        if isinstance(result, list):
            yield from result
        else:
            yield from line.join(result)


class _Group(NamedTuple):
    """Whole small files, one after another."""

    todos: list[Todo]

    def scan(self, scanner: LineScanner) -> list[Lines]:
        todos = self.todos
        rows, found = scanner.scan_files(
            [os.fsencode(todo.path) for todo in todos], [todo.size for todo in todos], todos[0].number
        )
        if len(found) < len(todos):
            raise changed(todos[len(found)].path, _MEANWHILE)
        result = []
        begin = 0
        for todo, (n_rows, mtime_ns, fingerprint, line_start, has_text, head) in zip(
            todos, found, strict=True
        ):
            check_plain(todo.path, head)
            facts = FileFacts(todo.size, mtime_ns, f"{fingerprint:016x}", line_start, 0 if has_text else None)
            end = n_rows * ROW_BYTES
            result.append(Lines(todo.number, rows[begin:end], todo.size, facts))
            begin = end
        return result


class _Piece(NamedTuple):
    todo: Todo
    file: OpenFile
    before: os.stat_result
    offset: int
    n_bytes: int
    is_last: bool

    def scan(self, scanner: LineScanner) -> _Result:
        todo, fd = self.todo, self.file.fileno()
        in_line = self.offset > todo.start
        try:
            found = scanner.scan(fd, self.offset, self.n_bytes, todo.number, in_line)
            fingerprint = scanner.fingerprint(fd, todo.size) if self.is_last else None
        except OSError as error:
            raise OSError(error.errno, error.strerror, todo.path) from None
        if found[-1] < self.n_bytes or (self.is_last and fingerprint is None):
            raise changed(todo.path, _MEANWHILE)
        return _Result(self, *found[:-1], fingerprint)

    def has_changed(self) -> bool:
        """Return whether the file was written to since it was opened, other than to append to it."""
        after = os.fstat(self.file.fileno())
        return after.st_mtime_ns != self.before.st_mtime_ns and after.st_size <= self.before.st_size


class _Result(NamedTuple):
    piece: _Piece
    rows: bytes
    head_end: int
    head_text: bool
    line_start: int
    has_text: bool
    fingerprint: int | None


class _Carry:
    """The line that the pieces of a file so far have not ended."""

    def __init__(self) -> None:
        self._start = 0
        self._has_text = False

    def join(self, result: _Result) -> Iterator[Lines]:
        """Yield the lines of the next piece, with the one that it ends or, where it is the last, leaves open."""
        piece, todo = result.piece, result.piece.todo
        begins = piece.offset == todo.start
        if not begins:
            self._has_text |= result.head_text
            if self._has_text and result.head_end >= 0:
                yield self._line_to(todo, result.head_end)
        if result.rows:
            yield Lines(todo.number, result.rows, 0, None)
        if begins or result.head_end >= 0:
            self._start, self._has_text = result.line_start, result.has_text
        facts = None
        if piece.is_last:
            assert result.fingerprint is not None
            if piece.has_changed():
                raise changed(todo.path, _MEANWHILE)
            is_sample = self._start < todo.size and self._has_text
            if is_sample:
                yield self._line_to(todo, todo.size)
            facts = FileFacts(
                todo.size,
                piece.before.st_mtime_ns,
                f"{result.fingerprint:016x}",
                self._start,
                0 if is_sample else None,
            )
        yield Lines(todo.number, b"", piece.n_bytes, facts)

    def _line_to(self, todo: Todo, end: int) -> Lines:
        return Lines(todo.number, _ROW.pack(todo.number, self._start, end - self._start), 0, None)


def _cut(todos: Sequence[Todo]) -> Iterator[_Piece | _Group]:
    """Yield the work for the threads: pieces of large files, and small files together."""
    group: list[Todo] = []
    group_bytes = 0
    for todo in todos:
        is_small = todo.start == 0 and todo.size <= min(BLOCK_BYTES, PIECE_BYTES)
        if group and not (
            is_small
            and len(group) < GROUP_FILES
            and group_bytes + todo.size <= PIECE_BYTES
            and todo.number == group[-1].number + 1
        ):
            yield _Group(group)
            group, group_bytes = [], 0
        if is_small:
            group.append(todo)
            group_bytes += todo.size
        else:
            yield from _cut_file(todo)
    if group:
        yield _Group(group)


def _cut_file(todo: Todo) -> Iterator[_Piece]:
    file = OpenFile(todo.path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    before = os.fstat(file.fileno())
    if todo.start == 0:
        check_plain(todo.path, os.pread(file.fileno(), LONGEST_MAGIC, 0))
    offset = todo.start
    while True:
        n_bytes = min(todo.size - offset, PIECE_BYTES)
        is_last = offset + n_bytes == todo.size
        yield _Piece(todo, file, before, offset, n_bytes, is_last)
        offset += n_bytes
        if is_last:
            return


def _in_order(call: Callable[[_Work], _Done], works: Iterator[_Work], threads: int) -> Iterator[_Done]:
    """Yield what `call` gives for each work, in their order, with a bounded number of them under way."""
    if threads == 1:
        yield from map(call, works)
        return
    from concurrent.futures import Future, ThreadPoolExecutor

    with ThreadPoolExecutor(threads, "loaderx-index") as pool:
        running: deque[Future[_Done]] = deque()
        try:
            for work in works:
                running.append(pool.submit(call, work))
                if len(running) > threads + 1:  # each thread has work, and one piece waits
                    yield running.popleft().result()
            while running:
                yield running.popleft().result()
        finally:
            for future in running:
                future.cancel()


def changed(path: str | Path, reason: str) -> StaleIndexError:
    """Return the error for a text file that is not what was, or was to be, indexed."""
    return StaleIndexError(
        f"{path}: {reason}; build the index anew (build_index, or python -m loaderx index)",
        file=Path(path),
        reason=reason,
    )
