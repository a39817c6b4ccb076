"""A store of lines: a record for each, without its line end."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, SupportsIndex

import numpy as np

from loaderx._core.ranges import split
from loaderx.errors import JsonlError, LoaderxError, NotAStoreError, SchemaError
from loaderx.jsonl.lines_file import read_lines_file
from loaderx.jsonl.locating import parse_error
from loaderx.store.buffers import Indices
from loaderx.store.format import LINES, META
from loaderx.store.zrecord import Zrecord


class StoreSource:
    """The records of a store of lines, each a line without its end.

    Parameters
    ----------
    path : pathlib.Path
    io : {"mmap", "pread"}
    threads : int
    """

    def __init__(self, path: Path, io: Any, threads: int) -> None:
        self.path = path
        check_line_store(path)
        self._store = Zrecord(path, mode="r", io=io, threads=threads)
        self.length = len(self._store)

    def one(self, index: SupportsIndex) -> bytes:
        """Return the bytes of one record."""
        data, _ = self._store.gather_packed(np.array([index], np.int64))
        return data.tobytes()

    def many(self, indices: Indices) -> list[bytes]:
        """Return the bytes of records, in the order asked for."""
        return split(*self._store.gather_packed(indices))

    def stretch(self, first: int, most: int, most_bytes: int) -> int:
        """Return the index behind some records, from `first` on, that are no more and no larger than this, or one."""
        end = min(self.length, first + most)
        sizes = np.cumsum(self._store.lengths(np.arange(first, end)), dtype=np.int64)
        return max(first + int(np.searchsorted(sizes, most_bytes, "right")), min(first + 1, end))

    def prefetch(self, indices: Indices) -> None:
        """Have the system begin to read records."""
        self._store.prefetch(indices)

    def close(self) -> None:
        """Close the store; calls that run finish."""
        self._store.close()

    def error(self, fault: Any, *, alone: bool = False) -> LoaderxError:
        """Do not return: the store raises what is wrong itself."""
        raise AssertionError(fault)

    def where(self, index: int) -> tuple[Path | None, int | None]:
        """Return the store, which does not know what files its lines come from."""
        return self.path, None

    def parse_error(self, index: int, raw: bytes, error: BaseException) -> JsonlError:
        """Return the exception for a record that does not parse."""
        return parse_error(self.path, None, None, index, raw, error)


def is_store(path: Path) -> bool:
    """Return whether a path is that of a store."""
    return os.path.lexists(path / META)


def check_line_store(path: Path) -> None:
    """Raise `SchemaError` where a store is not one of lines, as its `lines.json` says."""
    try:
        read_lines_file(path)
    except NotAStoreError:
        raise SchemaError(
            f"{path}: a store without {LINES}, so not one of lines: open it with Dataset, RaggedDataset or Zrecord",
            path=path,
        ) from None
