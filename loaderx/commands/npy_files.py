"""Any number of .npy files as one array, read slice by slice."""

from __future__ import annotations

import bisect
import itertools
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, overload

import numpy as np

from loaderx.commands.bits import copied, fill
from loaderx.commands.npy_header import NPY_MAGIC, NpyHeader, check_same_items, read_npy_header
from loaderx.commands.program import CommandError, listed
from loaderx.store.folders import find_stores
from loaderx.store.natural import natural_key

ZIP_MAGICS = (b"PK\x03\x04", b"PK\x05\x06")

#: Up to this size data is copied out of the map; who collects many small arrays would otherwise keep a map alive for
#: each, and a process may have only so many (65,530 on Linux).
_COPIED_BYTES = 1 << 20


def find_npy_files(sources: Sequence[Path]) -> list[Path]:
    """List the .npy files that the arguments name, in natural name order.

    Parameters
    ----------
    sources : sequence of Path
        Files, and folders whose own .npy files are taken (hidden files and folders within are not).

    Returns
    -------
    list of Path

    Raises
    ------
    CommandError
        If a path does not exist, is neither a folder nor a .npy file, or a folder holds no .npy file, or a .npz file.
    """
    files: list[Path] = []
    for source in sources:
        if source.is_dir():
            archives = sorted(
                (entry for entry in source.iterdir() if _has_suffix(entry, ".npz")), key=natural_key
            )
            if archives:
                raise CommandError(
                    f"{source} holds .npz files, and of a folder .npy files are taken: "
                    f"{listed([archive.name for archive in archives])}; convert the first into a folder of stores, and "
                    "add the others one by one with --append"
                )
            found = [entry for entry in source.iterdir() if _has_suffix(entry, ".npy")]
            if not found and (stores := find_stores(source)):
                raise CommandError(
                    f"{source} is a folder of stores: convert them one by one, such as {source / stores[0]}"
                )
            if not found:
                raise CommandError(f"{source} is a folder without .npy files")
            files += found
        elif file_magic(source).startswith(NPY_MAGIC):
            files.append(source)
        else:
            raise CommandError(
                f"{source} is not a .npy file; the lines of text files are converted with --lines, and JSONL name by "
                "name with --kind columns"
            )
    return sorted(files, key=natural_key)


def find_skipped(sources: Sequence[Path]) -> list[Path]:
    """List what `find_npy_files` leaves out of folders though there may be arrays in it: folders, hidden .npy files.

    Hidden folders are not listed; programs keep their own things there.
    """
    entries = [entry for source in sources if source.is_dir() for entry in source.iterdir()]
    skipped = [
        entry
        for entry in entries
        if (entry.name.endswith(".npy") if entry.name.startswith(".") else entry.is_dir())
    ]
    return sorted(skipped, key=natural_key)


def file_magic(path: Path) -> bytes:
    """Read the bytes at the start of a file that tell its kind; none for a folder."""
    if path.is_dir():
        return b""
    if path.exists() and not path.is_file():
        raise CommandError(f"{path} is not a regular file")  # reading from a pipe would wait for its writer
    with open(path, "rb") as file:
        return file.read(len(NPY_MAGIC))


class NpyFiles:
    """The .npy files of a list, joined along axis 0 without reading them.

    One file is mapped at a time, so thousands of files and arrays larger than memory are fine.

    Parameters
    ----------
    files : sequence of Path
        In the order in which they are joined.

    Attributes
    ----------
    dtype : numpy.dtype
    shape : tuple of int
        Of the whole.
    ndim : int

    Raises
    ------
    CommandError
        If a file cannot be read, holds Python objects or a single value, or differs from the first in its dtype or
        in the shape of its items.
    """

    def __init__(self, files: Sequence[Path]) -> None:
        self.files = list(files)
        self._headers = [_read_header(path) for path in self.files]
        check_same_items(
            [(str(path), header) for path, header in zip(self.files, self._headers, strict=True)]
        )
        self._ends = list(itertools.accumulate(header.shape[0] for header in self._headers))
        first = self._headers[0]
        self.dtype = first.dtype
        self.shape = (self._ends[-1], *first.shape[1:])
        self.ndim = len(self.shape)
        self._mapped: tuple[int, np.ndarray[Any, Any]] | None = None

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, index: slice) -> np.ndarray[Any, Any]:
        """Give records start to stop, in C order: a view of a file's map, or a copy where they are few or scattered."""
        start, stop, step = index.indices(len(self))
        if step != 1:
            raise IndexError(f"slices have step 1 here, got {step}")
        stop = max(start, stop)
        number = bisect.bisect_right(self._ends, start)
        if start < stop <= self._ends[number]:
            piece = self._map(number)[start - self._start(number) : stop - self._start(number)]
            return piece if piece.flags.c_contiguous and piece.nbytes > _COPIED_BYTES else copied(piece)
        joined = np.empty((stop - start, *self.shape[1:]), self.dtype)
        filled = 0
        while start + filled < stop:
            file_start = self._start(number)
            piece = self._map(number)[start + filled - file_start : stop - file_start]
            fill(joined[filled : filled + len(piece)], piece)
            filled += len(piece)
            number += 1
        return joined

    def locate(self, record: int) -> str:
        """Name the file that a record comes from, and its place in it."""
        number = bisect.bisect_right(self._ends, record)
        return f"{self.files[number]}[{record - self._start(number)}]"

    def _start(self, number: int) -> int:
        return self._ends[number - 1] if number else 0

    def _map(self, number: int) -> np.ndarray[Any, Any]:
        if self._mapped is None or self._mapped[0] != number:
            self._mapped = None
            self._mapped = number, _map_file(self.files[number], self._headers[number])
        return self._mapped[1]


class NpyRecords(Sequence[np.ndarray[Any, Any]]):
    """The .npy files of a list, each one record of a ragged store.

    Parameters
    ----------
    files : sequence of Path
        In the order of the records.

    Attributes
    ----------
    dtype : numpy.dtype
    item_shape : tuple of int
        Shape of a row.
    num_bytes : int
        Of all records.

    Raises
    ------
    CommandError
        As for `NpyFiles`.
    """

    def __init__(self, files: Sequence[Path]) -> None:
        self.files = list(files)
        self._headers = [_read_header(path) for path in self.files]
        check_same_items(
            [(str(path), header) for path, header in zip(self.files, self._headers, strict=True)]
        )
        self.dtype = self._headers[0].dtype
        self.item_shape = self._headers[0].shape[1:]
        self.num_bytes = sum(header.data_bytes for header in self._headers)

    def __len__(self) -> int:
        return len(self.files)

    @overload
    def __getitem__(self, record: int) -> np.ndarray[Any, Any]: ...
    @overload
    def __getitem__(self, record: slice) -> list[np.ndarray[Any, Any]]: ...
    def __getitem__(self, record: int | slice) -> np.ndarray[Any, Any] | list[np.ndarray[Any, Any]]:
        if isinstance(record, slice):
            return [self[number] for number in range(len(self))[record]]
        array = _map_file(self.files[record], self._headers[record])
        return array if array.flags.c_contiguous and array.nbytes > _COPIED_BYTES else copied(array)

    def record_bytes(self, record: int) -> int:
        """Give the bytes of a record."""
        return self._headers[record].data_bytes

    def locate(self, record: int) -> str:
        """Name the file that a record comes from."""
        return str(self.files[record])


def _has_suffix(entry: Path, suffix: str) -> bool:
    """Tell whether an entry of a folder is a file of that suffix that is not hidden."""
    return entry.name.endswith(suffix) and not entry.name.startswith(".") and entry.is_file()


def _read_header(path: Path) -> NpyHeader:
    with open(path, "rb") as file:
        return read_npy_header(file, str(path), os.fstat(file.fileno()).st_size)


def _map_file(path: Path, header: NpyHeader) -> np.ndarray[Any, Any]:
    """Map the data of a .npy file read-only; an array of no bytes cannot be mapped and need not be."""
    if header.data_bytes == 0:
        return np.empty(header.shape, header.dtype)
    order: Literal["C", "F"] = "F" if header.fortran_order else "C"
    try:
        mapped: np.ndarray[Any, Any] = np.memmap(
            path, header.dtype, "r", header.data_offset, header.shape, order
        )
    except ValueError as error:
        raise CommandError(f"{path} changed while it was read: {error}") from error
    # A plain array: slicing a memmap costs several times as much, and its bytes are the same.
    return mapped.view(np.ndarray)
