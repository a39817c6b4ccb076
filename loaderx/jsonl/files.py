"""The text files of an index, opened late, and only where they are still what they were."""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from loaderx._core.maps import FileMap
from loaderx.errors import StaleIndexError, StoreIOError
from loaderx.jsonl.fingerprint import look_at
from loaderx.jsonl.layout import FileFacts


class _Stamp(NamedTuple):
    """What a file was when the dataset was opened."""

    device: int
    inode: int
    size: int
    mtime_ns: int


class Files:
    """The text files of an index, opened by their numbers.

    Parameters
    ----------
    store : pathlib.Path
        Named in errors.
    paths : list of str
    facts : sequence of FileFacts or None
        What the index says of each; None: it says nothing, for another program wrote it.
    mapped : bool

    Raises
    ------
    StaleIndexError
        A file is gone.
    StoreIOError

    Notes
    -----
    Any number of threads may open files.
    """

    def __init__(
        self, store: Path, paths: list[str], facts: Sequence[FileFacts] | None, mapped: bool
    ) -> None:
        self.paths = paths
        self._store = store
        self._facts = facts
        self._mapped = mapped
        self._stamps = [self._stamp(path) for path in paths]

    def open(self, number: int) -> FileMap:
        """Open a file, which has to be what it was when the dataset was opened, or that and longer.

        Raises
        ------
        StaleIndexError, StoreIOError
        """
        path, then = self.paths[number], self._stamps[number]
        now = self._stamp(path)
        if now != then:
            self._check(number, now)
        size = then.size if self._facts is None else self._facts[number].size
        try:
            file = FileMap(path, max(size, 1), self._mapped)
            info = os.stat(path)
            is_same = file.is_at(path) and (info.st_dev, info.st_ino) == (now.device, now.inode)
        except OSError as error:
            raise refused(self._store, path, error) from error
        if not is_same:
            raise stale(path, "is being replaced")
        return file

    def read_at(self, number: int, byte_offset: int, n_bytes: int) -> bytes:
        """Read some bytes of a file, fewer where it ends."""
        return self.open(number).read(byte_offset, n_bytes)

    def _check(self, number: int, now: _Stamp) -> None:
        """Raise `StaleIndexError` where a file that was touched is not what it was."""
        path, then = self.paths[number], self._stamps[number]
        if self._facts is not None:
            try:
                look_at(path, self._facts[number])
            except OSError as error:
                raise refused(self._store, path, error) from error
            return
        # Nothing is known of its bytes.
        if (now.device, now.inode) != (then.device, then.inode):
            raise stale(path, "is another file than when the dataset was opened")
        if now.size < then.size:
            raise stale(
                path, f"has {now.size} bytes, and had {then.size} when the dataset was opened: it was cut off"
            )
        if now.size == then.size:
            raise stale(path, "was changed since the dataset was opened")

    def _stamp(self, path: str) -> _Stamp:
        try:
            info = os.stat(path)
        except (FileNotFoundError, NotADirectoryError):
            raise stale(path, "is gone") from None
        except OSError as error:
            raise refused(self._store, path, error) from error
        if not stat.S_ISREG(info.st_mode):
            raise stale(path, "is no regular file")
        return _Stamp(info.st_dev, info.st_ino, info.st_size, info.st_mtime_ns)


def stale(file: str | os.PathLike[str], reason: str) -> StaleIndexError:
    """Return the error for a file that is not what it was."""
    return StaleIndexError(
        f"{file} {reason}: open the dataset anew, and index the files anew where that is refused",
        file=Path(file),
        reason=reason,
    )


def refused(store: Path, path: str | os.PathLike[str], error: OSError) -> StoreIOError:
    """Return the error for a file that the system does not open."""
    return StoreIOError(
        f"{path}: could not open it: {error.strerror}", store=store, path=Path(path), errno=error.errno
    )
