"""Stores of one folder that belong together: all are changed, or none."""

from __future__ import annotations

import contextlib
import errno
import functools
import os
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from loaderx.errors import LoaderxError, NotAStoreError, ZrecordError
from loaderx.store import files
from loaderx.store.format import META
from loaderx.store.locks import hold_for_writing
from loaderx.store.session import is_writer_here
from loaderx.store.zrecord import Zrecord

#: What a writer that died left behind: the partial folder it built in, or the store it was about to replace.
_LEFTOVER = re.compile(r"\..*\.(partial|replaced)-[0-9]+-[0-9a-f]+")
#: A file name may have 255 bytes; the rest is for what is put around it while a store is written.
_NAME_BYTES = 200
# How long the writer of a store that is to be replaced is waited for.
_TIMEOUT_S = 10.0


def is_store(path: Path) -> bool:
    """Tell whether a store stands at a path."""
    # A file: the folder of a .npz file's stores may hold a store named meta.zr, which is a folder.
    return (path / META).is_file()


def is_leftover(name: str) -> bool:
    """Tell whether a name is that of what a writer left behind when it was killed.

    >>> is_leftover(".images.zr.partial-4242-0f1e2d3c"), is_leftover("images.zr")
    (True, False)
    """
    return _LEFTOVER.fullmatch(name) is not None


def find_stores(folder: Path) -> list[str]:
    """List the names of the stores in a folder, sorted; not those of stores that were never finished."""
    return sorted(entry.name for entry in folder.iterdir() if not is_leftover(entry.name) and is_store(entry))


def is_store_name(name: str) -> bool:
    """Return whether a store ``NAME.zr`` can be made of a name: it is one plain part of a path."""
    try:
        n_bytes = len(os.fsencode(name))
    except UnicodeEncodeError:
        return False
    return (
        name not in ("", ".", "..") and n_bytes <= _NAME_BYTES and not any(sign in name for sign in "/\\\0")
    )


@contextlib.contextmanager
def taken_back_on_failure(committed: Callable[[], Iterable[tuple[Path, range]]]) -> Iterator[None]:
    """Delete what the block appended to several stores when it fails.

    Parameters
    ----------
    committed : callable
        Returns the stores that hold new records by then, and their indices. None of a store is deleted where another
        writer has appended behind them.
    """
    try:
        yield
    except BaseException as error:
        kept = [path for path, records in committed() if not _take_back(path, records)]
        if kept:
            raise ZrecordError(
                f"{error}; and what was appended to {', '.join(map(str, kept))} could not be deleted again",
                store=kept[0],
            ) from error
        raise


def _take_back(path: Path, records: range) -> bool:
    """Delete the last records of a store; False where that fails, or they are not the last."""
    if not records:
        return True
    try:
        with Zrecord(path) as store:
            is_dense = not store.stats()["reclaimable"]
            if len(store) != records.stop:
                return False
            store.delete(records)
            if is_dense:
                store.compact()  # nothing has to move: it only cuts off what was appended
    except LoaderxError:
        return False
    return True


def put_in_places(staged: Path, folder: Path, *, replace: bool) -> None:
    """Make a folder of stores the new folder; or, where there is one, move them into it.

    On failure all are moved back.

    Parameters
    ----------
    staged : pathlib.Path
    folder : pathlib.Path
    replace : bool
        Take the places of the stores that are there, in exchange; a writer of one is waited for.

    Raises
    ------
    NotAStoreError
        There are such stores by now, and they are not to be replaced.
    StoreLockedError
    """
    files.sync_directory(staged)
    if not folder.exists():
        try:
            files.rename(staged, folder)
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):
                raise
            raise _taken(folder) from error
        files.sync_directory(folder.parent)
        return
    if is_store(folder) or (not replace and find_stores(folder)):
        raise _taken(folder)
    plan = [(source, folder / source.name, os.stat(source).st_ino) for source in sorted(staged.iterdir())]
    try:
        for source, target, _ in plan:
            if not target.exists():
                files.rename(source, target)
            elif replace:
                # What a writer of the old store were to commit from here on would be lost with it.
                hold = hold_for_writing(target, _TIMEOUT_S, functools.partial(is_writer_here, target))
                with contextlib.closing(hold):
                    _exchange(source, target)
            else:
                raise _taken(folder)
        files.sync_directory(folder)
    except BaseException:
        for source, target, inode in plan:
            # By what stands there, not by a count: a signal may come between a move and its being counted.
            if target.exists() and os.stat(target).st_ino == inode:
                if source.exists():
                    _exchange(source, target)
                else:
                    files.rename(target, source)
        raise


def _taken(folder: Path) -> NotAStoreError:
    return NotAStoreError(
        f"{folder}: another writer has put stores there meanwhile: append to them, or choose another path",
        store=folder,
    )


def _exchange(source: Path, target: Path) -> None:
    if files.exchange(source, target):
        return
    aside = source.with_name(f"{source.name}.replaced")
    files.rename(target, aside)
    try:
        files.rename(source, target)
    except BaseException:
        files.rename(aside, target)
        raise
    files.rename(aside, source)
