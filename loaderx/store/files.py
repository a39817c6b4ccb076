"""The one door: every change to a file or a directory goes through this module.

Nothing else in loaderx opens a file for writing, and nothing stores through a map. Each function is one operation that
the system either does or refuses with an `OSError`; `observe` sees it before it happens, so that a test can record the
order of operations, refuse one (a full disk), or stop the process there.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import secrets
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeAlias

from loaderx._core.maps import OpenFile
from loaderx.errors import StoreIOError, ZrecordError
from loaderx.store.flock import try_lock

#: Bytes to write. (`collections.abc.Buffer` is newer than the oldest Python served.)
Bytes: TypeAlias = bytes | bytearray | memoryview

#: Called as ``observe(operation, path_or_descriptor, *details)`` before each change. What it raises is raised.
observe: Callable[..., None] | None = None

_ADVICE = {
    errno.ENOSPC: "free some space and try again",
    errno.EDQUOT: "free some space and try again",
    errno.ENOMEM: "allow more address space (ulimit -v), or open the store with io='pread', which maps nothing",
    errno.EMFILE: "raise the limit on open files (ulimit -n): a store keeps one open for each of its chunks",
}


def _announce(operation: str, *details: object) -> None:
    if observe is not None:
        observe(operation, *details)


def create(path: Path) -> OpenFile:
    """Create a file that must not exist yet, and return it, opened for reading and writing."""
    _announce("create", path)
    return OpenFile(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC)


def open_for_change(path: Path) -> OpenFile:
    """Open an existing file for reading and writing; changes nothing by itself."""
    return OpenFile(path, os.O_RDWR | os.O_CLOEXEC)


def open_to_read(path: Path, flags: int = 0) -> OpenFile:
    """Open an existing file or directory for reading, with more flags of `os.open`."""
    return OpenFile(path, os.O_RDONLY | os.O_CLOEXEC | flags)


def write_at(descriptor: int, data: Bytes, offset: int) -> None:
    """Write all of `data` at `offset`, however many calls the system takes for it."""
    _announce("write", descriptor, data, offset)
    n_bytes = data.nbytes if isinstance(data, memoryview) else len(data)
    done = os.pwrite(descriptor, data, offset)
    if done < n_bytes:
        view = memoryview(data).cast("B")
        while done < n_bytes:
            done += os.pwrite(descriptor, view[done:], offset + done)


def set_size(descriptor: int, n_bytes: int) -> None:
    """Cut a file off, or lengthen it by a hole."""
    _announce("truncate", descriptor, n_bytes)
    os.ftruncate(descriptor, n_bytes)


def sync(descriptor: int) -> None:
    """Have everything written to a file reach the disk."""
    _announce("fsync", descriptor)
    os.fsync(descriptor)


def sync_directory(path: Path) -> None:
    """Have the names in a directory reach the disk."""
    _announce("fsync", path)
    with opened(open_to_read(path)) as descriptor:
        os.fsync(descriptor)


def rename(source: Path, target: Path) -> None:
    """Rename a file or a directory; an existing file or an empty directory at `target` is replaced."""
    _announce("rename", source, target)
    os.rename(source, target)


def exchange(source: Path, target: Path) -> bool:
    """Exchange the names of two files or directories at once; False where the system cannot, and nothing is changed."""
    _announce("exchange", source, target)
    renameat2 = getattr(
        ctypes.CDLL(None, use_errno=True), "renameat2", None
    )  # Linux with glibc 2.28 or newer
    if renameat2 is None:
        return False
    at_cwd, exchange_names = -100, 2
    if renameat2(at_cwd, os.fsencode(source), at_cwd, os.fsencode(target), exchange_names) == 0:
        return True
    number = ctypes.get_errno()
    if number in (errno.EINVAL, errno.ENOSYS):  # this file system or kernel has no such operation
        return False
    raise OSError(number, os.strerror(number), str(target))


def unlink(path: Path) -> None:
    """Remove a file."""
    _announce("unlink", path)
    os.unlink(path)


def discard(path: Path) -> None:
    """Remove a file; a directory, which can hold somebody's files, gets the name ``NAME.aside-<id>`` instead."""
    if path.is_dir() and not path.is_symlink():
        rename(path, path.with_name(f"{path.name}.aside-{secrets.token_hex(4)}"))
    else:
        unlink(path)


def make_directory(path: Path) -> None:
    """Make one directory."""
    _announce("mkdir", path)
    os.mkdir(path)


def remove_directory(path: Path) -> None:
    """Remove an empty directory."""
    _announce("rmdir", path)
    os.rmdir(path)


def remove_tree(path: Path) -> None:
    """Remove a directory and all below it, following no symbolic link."""
    if path.is_symlink():
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path))
    for name in os.listdir(path):
        if (path / name).is_dir() and not (path / name).is_symlink():
            remove_tree(path / name)
        else:
            unlink(path / name)
    remove_directory(path)


def write_new(path: Path, data: Bytes, n_bytes: int | None = None) -> None:
    """Write a whole file so that it appears under its name complete, or not at all.

    Written beside as ``.NAME.partial-<id>``, made to reach the disk, and renamed; a file at `path` is replaced.

    Parameters
    ----------
    path : pathlib.Path
    data : bytes-like
    n_bytes : int or None
        Size of the file when it is larger than `data`: the rest is a hole.
    """
    sweep_partials(path)
    created: OpenFile | None = None
    partial = path
    try:
        while created is None:
            partial = path.with_name(f".{path.name}.partial-{os.getpid()}-{secrets.token_hex(8)}")
            _announce("create", partial)
            created = OpenFile(partial, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC)
            # Locked for as long as it is open, so that it is not swept. A sweeper may have taken it for a killed
            # writer's in the moment before; then with another name.
            if not try_lock(created.fileno()) or os.fstat(created.fileno()).st_nlink == 0:
                created = None
        if n_bytes is not None:
            set_size(created.fileno(), n_bytes)
        write_at(created.fileno(), data, 0)
        sync(created.fileno())
        rename(partial, path)
    except BaseException:
        if partial != path:
            with contextlib.suppress(OSError):
                unlink(partial)
        raise
    finally:
        if created is not None:
            created.close()


def hold_directory(path: Path, *, wait: bool) -> OpenFile | None:
    """Lock a directory for this process and return it opened, which holds the lock; closing it lets go.

    Returns None where another holder has it and `wait` is False. On a file system without locks it holds nothing. The
    lock dies with the process.
    """
    directory = open_to_read(path, os.O_DIRECTORY)
    if try_lock(directory.fileno(), wait=wait):
        return directory
    directory.close()
    return None


def sweep_partials(path: Path) -> None:
    """Remove what writers of a file that were killed left beside it."""
    for name in os.listdir(path.parent):
        if name.startswith(f".{path.name}.partial-"):
            with (
                contextlib.suppress(OSError),
                opened(open_to_read(path.with_name(name), os.O_NONBLOCK)) as descriptor,
            ):
                if try_lock(descriptor):
                    unlink(path.with_name(name))


def read_beginning(path: Path, n_bytes: int) -> bytes | None:
    """Return the first bytes of a file, fewer where it ends; None where there is nothing at the path.

    Of what is no regular file, no bytes: where loaderx alone writes, something else is damage, and no reason to fail.
    """
    file, instead = None, None
    try:
        file = open_to_read(path, os.O_NONBLOCK)
    except OSError as error:
        if error.errno not in (errno.ENOENT, errno.ELOOP, errno.ENXIO):
            raise
        if error.errno != errno.ENOENT:  # links in a circle; a socket
            instead = b""
    if file is None:
        return instead
    with opened(file) as descriptor:
        info = os.fstat(descriptor)
        if not stat.S_ISREG(info.st_mode):
            return b""
        with open(descriptor, "rb", closefd=False) as stream:
            return stream.read(
                min(n_bytes, info.st_size)
            )  # not more: memory is taken for all that is asked for


def read_whole(path: Path, limit: int) -> bytes:
    """Return the bytes of a regular file, or raise `OSError` where it is something else or has more than `limit`."""
    with opened(open_to_read(path, os.O_NONBLOCK)) as descriptor:
        info = os.fstat(descriptor)
        if not stat.S_ISREG(info.st_mode):
            raise OSError(errno.EINVAL, "not a regular file", str(path))
        if info.st_size > limit:
            raise OSError(
                errno.EFBIG, f"it has {info.st_size} bytes, and at most {limit} are read", str(path)
            )
        with open(descriptor, "rb", closefd=False) as stream:
            return stream.read(limit)


@contextlib.contextmanager
def opened(file: OpenFile) -> Iterator[int]:
    """Give a file's descriptor to a block, and close it at its end; a signal leaves none open, wherever it comes."""
    try:
        yield file.fileno()
    finally:
        file.close()


@contextlib.contextmanager
def errors_named(store: Path, what: str, advice: str = "") -> Iterator[None]:
    """Turn an `OSError` inside a block into a `StoreIOError` that says what could not be done to which store.

    Parameters
    ----------
    store : pathlib.Path
    what : str
        What the block does, after "could not".
    advice : str
        What the store is like now, or what to do; for some errors of the system it comes after advice of its own.
    """
    try:
        yield
    except ZrecordError:
        raise
    except OSError as error:
        parts = [part for part in (_ADVICE.get(error.errno or 0), advice) if part]
        path = Path(os.fsdecode(error.filename)) if isinstance(error.filename, str | bytes) else None
        place = f" ({path})" if path is not None and path != store else ""
        raise StoreIOError(
            "; ".join([f"{store}: could not {what}: {error.strerror or error}{place}", *parts]),
            store=store,
            path=path,
            errno=error.errno,
        ) from error


def read_pieces(descriptor: Callable[[int], int], pieces: list[tuple[int, int, int]]) -> bytearray:
    """Return the bytes of pieces of files, one behind the other; fewer where a file ends.

    Parameters
    ----------
    descriptor : callable
        Returns the descriptor of a file by its number.
    pieces : list of (int, int, int)
        A file's number, first byte, number of bytes.
    """
    data = bytearray(sum(n_bytes for _, _, n_bytes in pieces))
    view = memoryview(data)
    done = 0
    for which, offset, n_bytes in pieces:
        end = done + n_bytes
        while done < end:
            got = os.preadv(descriptor(which), [view[done:end]], offset + n_bytes - (end - done))
            if got == 0:
                return data[:done]
            done += got
    return data


def write_pieces(
    descriptor: Callable[[int], int], pieces: list[tuple[int, int, int]], data: memoryview
) -> None:
    """Write bytes, one behind the other, to pieces of files (as `read_pieces` names them)."""
    done = 0
    for which, offset, n_bytes in pieces:
        if n_bytes:
            write_at(descriptor(which), data[done : done + n_bytes], offset)
        done += n_bytes


@contextlib.contextmanager
def private_file(data: bytes) -> Iterator[int]:
    """Give a block the descriptor of a file with these bytes that has no name on any disk, and goes at its end."""
    if hasattr(os, "memfd_create"):
        stream = open(os.memfd_create("loaderx", os.MFD_CLOEXEC), "wb")  # noqa: SIM115 - closed below
    else:
        import tempfile  # here: elsewhere nobody needs it

        stream = tempfile.TemporaryFile("wb")  # noqa: SIM115
    with stream:
        stream.write(data)
        stream.flush()
        yield stream.fileno()
