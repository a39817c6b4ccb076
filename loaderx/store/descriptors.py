"""The files of a store, opened for change: each at most once, and what was written since it last reached the disk."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from loaderx._core.maps import FileMap, OpenFile
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
    table : FileMap
        `meta.zr`, for reading.

    Raises
    ------
    OSError
    """

    def __init__(self, store: Path) -> None:
        self.store = store
        self.table = FileMap(store / META, META_BYTES, False)
        self._sums: OpenFile | None = None
        self._chunks: dict[int, OpenFile] = {}
        self._written: set[int] = set()
        self._meta = files.open_for_change(store / META)
        with contextlib.suppress(FileNotFoundError):
            self.open_sums()

    @property
    def meta(self) -> int:
        """The descriptor of `meta.zr`."""
        return self._meta.fileno()

    @property
    def sums(self) -> int | None:
        """The descriptor of `sums.zr`, where it was opened."""
        return None if self._sums is None else self._sums.fileno()

    def open_sums(self) -> None:
        """Open `sums.zr`, which is there."""
        self._sums = files.open_for_change(self.store / SUMS)

    def close(self) -> None:
        """Close every file. Nothing is made to reach the disk."""
        self.close_chunks(0)
        self.drop_sums()
        self._meta.close()

    def has_sums(self) -> bool:
        """Return whether `sums.zr` is there, and the one that is open."""
        if self.sums is None:
            return False
        with contextlib.suppress(FileNotFoundError):
            return os.path.samestat(os.fstat(self.sums), os.stat(self.store / SUMS))
        return False

    def drop_sums(self) -> None:
        """Close `sums.zr`."""
        sums, self._sums = self._sums, None
        if sums is not None:
            sums.close()

    def chunk(self, chunk: int) -> int:
        """Return the descriptor of a chunk that is there, and take it for written to."""
        if chunk not in self._chunks:
            self._chunks[chunk] = files.open_for_change(self.store / chunk_name(chunk))
        self._written.add(chunk)
        return self._chunks[chunk].fileno()

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
        return self._chunks[chunk].fileno()

    def remove_chunk(self, chunk: int) -> None:
        """Remove a chunk that was created in vain."""
        self.close_chunks(chunk)
        self._written.discard(chunk)
        files.unlink(self.store / chunk_name(chunk))

    def close_chunks(self, first: int, *, keep: int | None = None) -> None:
        """Close the chunks from `first` on, but for one to keep."""
        for chunk in [chunk for chunk in self._chunks if chunk >= first and chunk != keep]:
            self._chunks.pop(chunk).close()

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
            files.sync(self._chunks[chunk].fileno())
            return
        with files.opened(files.open_for_change(self.store / chunk_name(chunk))) as descriptor:
            files.sync(descriptor)
