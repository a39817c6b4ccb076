"""The arrays of a .npz file, each read slice by slice through the zip."""

from __future__ import annotations

import lzma
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import IO, Any

import numpy as np

from loaderx.commands.bits import copied
from loaderx.commands.npy_header import NPY_MAGIC, NpyHeader, check_same_items, read_npy_header
from loaderx.commands.program import CommandError, listed
from loaderx.store.folders import is_store_name

_ENCRYPTED = 1

#: What zipfile and its decompressors raise for bytes that are wrong.
_ZIP_ERRORS = (zipfile.BadZipFile, zlib.error, lzma.LZMAError, EOFError, NotImplementedError)
_SKIPPED_BYTES = 1 << 20


class NpzFile:
    """An open .npz file: the names of its arrays checked first, then their headers.

    Parameters
    ----------
    path : Path
        The file.
    only : sequence of str, default ()
        Names of the arrays to take; all by default. What else the file holds is not looked at.

    Attributes
    ----------
    members : dict of str to NpzMember
        By array name, in the order of the file.

    Raises
    ------
    CommandError
        If it is not a .npz file, an array asked for is not in it, a name is not a plain file name, or a member is no
        array or one that cannot become a store.
    """

    def __init__(self, path: Path, only: Sequence[str] = ()) -> None:
        self.path = path
        try:
            self._zip = zipfile.ZipFile(path)
        except _ZIP_ERRORS as error:
            raise CommandError(f"{path} is not a .npz file that can be read: {error}") from error
        try:
            self.members = self._open_members(self._choose(only), hint=not only)
        except BaseException:
            self._zip.close()
            raise

    def __enter__(self) -> NpzFile:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for member in self.members.values():
            member.close()
        self._zip.close()

    def _choose(self, only: Sequence[str]) -> list[tuple[str, zipfile.ZipInfo]]:
        # orig_filename is the name as stored; zipfile cuts filename at a NUL.
        infos = [(info.orig_filename.removesuffix(".npy"), info) for info in self._zip.infolist()]
        names = [name for name, _ in infos]
        if not infos:
            raise CommandError(f"{self.path} holds no arrays")
        absent = [repr(name) for name in only if name not in names]
        if absent:
            raise CommandError(
                f"{self.path} holds no array {listed(absent)}; it holds {listed([repr(name) for name in names])}"
            )
        return [(name, info) for name, info in infos if name in only or not only]

    def _open_members(
        self, infos: Sequence[tuple[str, zipfile.ZipInfo]], *, hint: bool
    ) -> dict[str, NpzMember]:
        names: set[str] = set()
        try:
            for name, info in infos:
                check_is_array(self._zip, info, self.path)
                check_array_name(name, self.path)
                if name in names:
                    raise CommandError(f"{self.path} holds two arrays named {name!r}")
                names.add(name)
            return {name: NpzMember(self._zip, info, f"{self.path}:{name}") for name, info in infos}
        except CommandError as error:
            if hint and len(infos) > 1:
                raise CommandError(f"{error}; choose the arrays to convert by --only NAME") from error
            raise


class NpzMember:
    """One array of a .npz file, with slices along axis 0.

    A C-ordered array is read forwards through the zip, a slice at a time; a slice before the last one starts again
    from the beginning. A Fortran-ordered one is loaded whole at its first slice, since its records lie scattered.

    Parameters
    ----------
    archive : zipfile.ZipFile
        The open file.
    info : zipfile.ZipInfo
        The member.
    label : str
        Its name in errors.

    Attributes
    ----------
    dtype : numpy.dtype
    shape : tuple of int
    ndim : int
    """

    def __init__(self, archive: zipfile.ZipFile, info: zipfile.ZipInfo, label: str) -> None:
        self._archive = archive
        self._info = info
        self._label = label
        with _readable(label), archive.open(info) as stream:
            self._header: NpyHeader = read_npy_header(stream, label, info.file_size)
        check_same_items([(label, self._header)])
        self.dtype = self._header.dtype
        self.shape = self._header.shape
        self.ndim = len(self.shape)
        self._record_bytes = self._header.data_bytes // max(self.shape[0], 1)
        self._stream: IO[bytes] | None = None
        self._next_record = 0
        self._whole: np.ndarray[Any, Any] | None = None

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, index: slice) -> np.ndarray[Any, Any]:
        """Give records start to stop, as a new array."""
        start, stop, step = index.indices(len(self))
        if step != 1:
            raise IndexError(f"slices have step 1 here, got {step}")
        stop = max(start, stop)
        if self._header.fortran_order:
            if self._whole is None:
                self._whole = self._read(self.shape[::-1], 0, self.shape[0]).T
            return copied(self._whole[start:stop])
        return self._read((stop - start, *self.shape[1:]), start, stop)

    def locate(self, record: int) -> str:
        """Name the array that a record comes from, and its place in it."""
        return f"{self._label}[{record}]"

    def close(self) -> None:
        """Close the stream and forget what is loaded."""
        if self._stream is not None:
            self._stream.close()
        self._stream = self._whole = None

    def _read(self, shape: tuple[int, ...], start: int, stop: int) -> np.ndarray[Any, Any]:
        array = np.empty(shape, self.dtype)
        if not array.nbytes:
            return array
        with _readable(self._label):
            stream = self._stream_at(start)
            self._next_record = -1  # no known place, should the read fail half-way
            _read_into(stream, array)
            self._next_record = stop
            if stop == self.shape[0]:
                stream.read(1)  # the zip's checksum is compared at the end of the member
        return array

    def _stream_at(self, record: int) -> IO[bytes]:
        if self._stream is None or not 0 <= self._next_record <= record:
            self.close()
            self._stream = self._archive.open(self._info)
            _skip(self._stream, self._header.data_offset)
            self._next_record = 0
        _skip(self._stream, (record - self._next_record) * self._record_bytes)
        return self._stream


def check_is_array(archive: zipfile.ZipFile, info: zipfile.ZipInfo, path: Path) -> None:
    """Check that a member of a zip begins as a .npy file does.

    Parameters
    ----------
    archive : zipfile.ZipFile
        The open file.
    info : zipfile.ZipInfo
        The member.
    path : Path
        The .npz file, for errors.

    Raises
    ------
    CommandError
        If it is something else, or cannot be read.
    """
    label = f"{path}:{info.orig_filename.removesuffix('.npy')}"
    if info.flag_bits & _ENCRYPTED:
        raise CommandError(f"{label} is encrypted")
    with _readable(label), archive.open(info) as stream:
        start = stream.read(len(NPY_MAGIC))
    if start != NPY_MAGIC:
        raise CommandError(f"{path} holds {info.orig_filename!r}, which is not an array (a .npy file)")


def check_array_name(name: str, path: Path) -> None:
    """Check that an array's name is one plain component of a path.

    Parameters
    ----------
    name : str
        The name, without ``.npy``.
    path : Path
        The .npz file, for errors.

    Raises
    ------
    CommandError
        If it is empty, ``.`` or ``..``, too long, or holds a slash, a backslash or a NUL.
    """
    if not is_store_name(name):
        raise CommandError(f"{path} holds an array named {name!r}, which cannot be the name of a store")


def _read_into(stream: IO[bytes], array: np.ndarray[Any, Any]) -> None:
    target = array.reshape(-1).view(np.uint8).data
    filled = 0
    while filled < len(target):
        taken = stream.readinto(target[filled:])  # type: ignore[attr-defined]
        if not taken:
            raise EOFError(f"its data ends after {filled} of {len(target)} bytes")
        filled += taken


def _skip(stream: IO[bytes], num_bytes: int) -> None:
    while num_bytes:
        taken = len(stream.read(min(num_bytes, _SKIPPED_BYTES)))
        if not taken:
            raise EOFError(f"its data ends {num_bytes} bytes early")
        num_bytes -= taken


@contextmanager
def _readable(label: str) -> Iterator[None]:
    try:
        yield
    except _ZIP_ERRORS as error:
        raise CommandError(f"{label} cannot be read: {error}") from error
    except OSError as error:
        if error.errno is not None:
            raise
        raise CommandError(f"{label} cannot be read: {error}") from error  # bz2's way to say "damaged"
