"""The files of a store, opened for change: each at most once, and what was written since it last reached the disk."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from loaderx._core.maps import FileMap
from loaderx.store import files
from loaderx.store.format import META, META_BYTES, SUMS, chunk_name


class Descriptors:
    """Descriptors that read and write a store's files.

    Parameters
    ----------
    store : pathlib.Path

    Attributes
    ----------
    store : pathlib.Path
    meta : int
        Of `meta.zr`.
    table : FileMap
        The same file, for reading.
    sums : int or None
        Of `sums.zr`, where there is one.

    Raises
    ------
    OSError
    """

    def __init__(self, store: Path) -> None:
        self.store = store
        self.table = FileMap(store / META, META_BYTES, False)
        self.sums: int | None = None
        self._chunks: dict[int, int] = {}
        self._written: set[int] = set()
        self.meta = files.open_for_change(store / META)
        try:
            self.sums = files.open_for_change(store / SUMS)
        except FileNotFoundError:
            pass
        except BaseException:
            os.close(self.meta)
            raise

    def close(self) -> None:
        """Close every file. Nothing is made to reach the disk."""
        self.close_chunks(0)
        self.drop_sums()
        os.close(self.meta)

    def has_sums(self) -> bool:
        """Return whether `sums.zr` is there, and the one that is open."""
        if self.sums is None:
            return False
        with contextlib.suppress(FileNotFoundError):
            return os.path.samestat(os.fstat(self.sums), os.stat(self.store / SUMS))
        return False

    def drop_sums(self) -> None:
        """Close `sums.zr`."""
        sums, self.sums = self.sums, None  # in this order: a signal must not have it closed twice
        if sums is not None:
            os.close(sums)

    def chunk(self, chunk: int) -> int:
        """Return the descriptor of a chunk that is there, and take it for written to."""
        if chunk not in self._chunks:
            self._chunks[chunk] = files.open_for_change(self.store / chunk_name(chunk))
        self._written.add(chunk)
        return self._chunks[chunk]

    def create_chunk(self, chunk: int) -> int:
        """Create a chunk, in place of one that a killed append left behind, and return its descriptor."""
        path = self.store / chunk_name(chunk)
        if path.exists():
            files.unlink(path)  # no record is in it
        self._chunks[chunk] = files.create(path)
        self._written.add(chunk)
        try:
            files.sync_directory(
                self.store
            )  # no header may name a chunk whose own name has not reached the disk
        except BaseException:
            self.remove_chunk(chunk)
            raise
        return self._chunks[chunk]

    def remove_chunk(self, chunk: int) -> None:
        """Remove a chunk that was created in vain."""
        self.close_chunks(chunk)
        self._written.discard(chunk)
        files.unlink(self.store / chunk_name(chunk))

    def close_chunks(self, first: int, *, keep: int | None = None) -> None:
        """Close the chunks from `first` on, but for one to keep."""
        for chunk in [chunk for chunk in self._chunks if chunk >= first and chunk != keep]:
            os.close(self._chunks.pop(chunk))

    def sync_chunks(self) -> None:
        """Have what was written to the chunks reach the disk."""
        for chunk in sorted(self._written):
            self._sync_chunk(chunk)
        self._written.clear()

    def sync_chunks_from(self, first: int, last: int) -> None:
        """Have what anybody wrote to these chunks reach the disk, and every name in the directory."""
        for chunk in range(first, last + 1):
            self._sync_chunk(chunk)
            self._written.discard(chunk)
        self.sync_chunks()
        files.sync_directory(self.store)

    def sync_rows(self) -> None:
        """Have what was written to the sums and the table reach the disk."""
        if self.sums is not None:
            files.sync(self.sums)
        files.sync(self.meta)

    def _sync_chunk(self, chunk: int) -> None:
        if chunk in self._chunks:
            files.sync(self._chunks[chunk])
            return
        with files.opened(files.open_for_change(self.store / chunk_name(chunk))) as descriptor:
            files.sync(descriptor)
