"""Samples that are byte ranges of files, as an index lists them."""

from __future__ import annotations

import contextlib
import os
import resource
from collections.abc import Callable
from pathlib import Path
from typing import Any, SupportsIndex

from loaderx._core.maps import FileMap
from loaderx._core.ranges import Ranges
from loaderx._core.threads import available_cpus
from loaderx.errors import JsonlError, LoaderxError, RecordIndexError, StoreIOError
from loaderx.jsonl.files import Files, refused, stale
from loaderx.jsonl.index import Index
from loaderx.jsonl.layout import LOCATIONS, ROW_BYTES, find_place
from loaderx.jsonl.locating import LineNumbers, parse_error
from loaderx.store.buffers import Indices

_MOST_OPEN = 256
_MOST_TRIES = 100


class RangeSource:
    """The samples of an index: byte ranges of the files it lists.

    Parameters
    ----------
    path : pathlib.Path
        As in `Index.open`, and so are the next two.
    index_folder : str or os.PathLike or None
    allow_outside : bool
    io : {"mmap", "pread"}
    threads : int
        The most threads one call uses; 0: every core.
    trims : bool
        Whether samples are lines, and given without their ends.
    """

    def __init__(
        self,
        path: Path,
        index_folder: str | os.PathLike[str] | None,
        allow_outside: bool,
        io: str,
        threads: int,
        trims: bool,
    ) -> None:
        self.path = path
        self._team = threads or available_cpus()
        self._are_lines = trims
        mapped = io == "mmap"
        index, table = _open_index(path, index_folder, allow_outside, mapped)
        self.length = len(index)
        self._table_path = index.folder / LOCATIONS
        # What opens the files must not keep what reads them, or they would be closed by the garbage collector only.
        self._files = Files(path, index.paths, index.facts.files if index.facts is not None else None, mapped)
        self._ranges = Ranges(
            table, self.length, len(index.paths), self._files.open, trims, most_open_files()
        )
        self.one: Callable[[SupportsIndex], Any] = self._ranges.one
        self._line_numbers = LineNumbers(self._files.read_at)

    def many(self, indices: Indices) -> list[bytes]:
        """Return the bytes of samples, in the order asked for."""
        found = self._ranges.many(indices, self._team)
        if type(found) is list:
            return found
        raise self.error(found)

    def stretch(self, first: int, most: int, most_bytes: int) -> int:
        """Return the index behind some samples, from `first` on, that are no more and no larger than this, or one."""
        return self._ranges.stretch(first, most, most_bytes)

    def prefetch(self, indices: Indices) -> None:
        """Have the system begin to read samples."""
        fault = self._ranges.prefetch(indices)
        if fault is not None:
            raise self.error(fault)

    def close(self) -> None:
        """Do nothing: the maps go with this object, and with the calls that read through them."""

    def error(self, fault: Any, *, alone: bool = False) -> LoaderxError:
        """Return the exception for a fault of the core's (see `loaderx._core.ranges`), of a sample alone or a batch."""
        what, position, index, file, byte_offset, n_bytes, detail = fault
        if what == "index":
            return RecordIndexError(
                f"{self.path}: index {index}{'' if alone else f' (position {position} of the batch)'} is out of range: "
                f"there are {self.length} samples",
                store=self.path,
                index=index,
                position=position,
                length=self.length,
            )
        sample = index % self.length
        if what == "table":
            return stale(self._table_path, f"is cut off: sample {sample} has no row in it")
        if what == "file":
            return stale(
                self._table_path,
                f"says of sample {sample} that it is in file {file}, of {detail} that are listed",
            )
        path = Path(self._files.paths[file])
        if what == "outside":
            return stale(
                path,
                f"has {detail} bytes, and sample {sample} is {n_bytes} bytes from {byte_offset} on: it was cut off or "
                "replaced",
            )
        reason = os.strerror(-detail) if detail else "the system gave no reason"
        return StoreIOError(
            f"{path}: sample {sample} ({'' if alone else f'position {position} of the batch, '}byte {byte_offset}) "
            f"could not be read: {reason}",
            store=self.path,
            path=path,
            errno=-detail or None,
        )

    def where(self, index: int) -> tuple[Path | None, int | None]:
        """Return the file of a sample, and of a line its number; lines are counted."""
        row = self._ranges.locate(index)
        if row is None or row[0] >= len(self._files.paths):
            return None, None
        line_number = None
        if self._are_lines:
            with contextlib.suppress(OSError, LoaderxError):
                line_number = self._line_numbers.number_at(row[0], row[1])
        return Path(self._files.paths[row[0]]), line_number

    def parse_error(self, index: int, raw: bytes, error: BaseException) -> JsonlError:
        """Return the exception for a sample that does not parse; for a line, lines are counted."""
        row = self._ranges.locate(index)
        if row is None or row[0] >= len(self._files.paths):
            return parse_error(self.path, None, None, index, raw, error)
        file, byte_offset, _ = row
        line_number = None
        if self._are_lines:
            # The line itself was read, and what is wrong with it is worth more than where.
            with contextlib.suppress(OSError, LoaderxError):
                line_number = self._line_numbers.number_at(file, byte_offset)
        return parse_error(Path(self._files.paths[file]), line_number, byte_offset, index, raw, error)


def _open_index(
    path: Path, index_folder: str | os.PathLike[str] | None, allow_outside: bool, mapped: bool
) -> tuple[Index, FileMap]:
    """Open an index, and its table as the core reads it: both of the same one, which may be replaced meanwhile."""
    table_path = find_place(path, index_folder).folder / LOCATIONS
    for _ in range(_MOST_TRIES):
        before = _identity(table_path)
        index = Index.open(path, index_folder=index_folder, allow_outside=allow_outside)
        try:
            table = FileMap(table_path, max(len(index), 1) * ROW_BYTES, mapped)
            if table.is_at(table_path) and before is not None and before == _identity(table_path):
                return index, table
        except FileNotFoundError:
            pass
        except OSError as error:
            raise refused(path, table_path, error) from error
    raise stale(table_path, "is replaced again and again")


def _identity(path: Path) -> tuple[int, ...] | None:
    """Return what tells a file from another one under its name; None: there is none."""
    try:
        info = os.stat(path)
    except FileNotFoundError:
        return None
    return info.st_dev, info.st_ino, info.st_size, info.st_mtime_ns


def most_open_files() -> int:
    """Return how many files a dataset keeps open: a quarter of what this process may open, within bounds."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return _MOST_OPEN
    return max(1, min(_MOST_OPEN, soft // 4))
