"""Creating an empty store."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from loaderx.errors import NotAStoreError
from loaderx.store import files
from loaderx.store.format import (
    META,
    META_BYTES,
    NARROW,
    OWN_FILES,
    chunk_name,
    is_store_file,
)
from loaderx.store.header import Header
from loaderx.store.locks import missing


def create_store(store: Path) -> None:
    """Create an empty store, with the directories above it, unless there is one.

    Raises
    ------
    NotAStoreError
        The directory holds files that are not a store's, or it is none.
    StoreIOError
    """
    with files.errors_named(store, "create it"):
        if os.path.lexists(store) and not store.is_dir():
            raise missing(store)
        made = make_directories(store)
        try:
            # Two processes may be here at once: the second finds the store of the first.
            lock = files.hold_directory(store, wait=True)
            assert lock is not None
            with files.opened(lock):
                if not (store / META).exists():
                    check_no_foreign_files(store)
                    make_empty(store)
        except BaseException:
            remove_directories(made)
            raise


def make_empty(store: Path) -> None:
    """Put the files of an empty store into a directory that nobody else changes.

    `meta.zr` appears last and whole, so that a creation that is cut off leaves nothing that opens as a store, and the
    next one begins anew.
    """
    first_chunk = store / chunk_name(0)
    is_new = not first_chunk.exists()
    try:
        if is_new:
            files.create(first_chunk).close()
            files.sync_directory(store)  # a store never names a chunk whose own name has not reached the disk
        files.write_new(store / META, Header(0, 0, 0).pack(NARROW), META_BYTES)
    except BaseException:
        if is_new and not (store / META).exists():
            with contextlib.suppress(OSError):
                files.unlink(first_chunk)
        raise
    files.sync_directory(store)


def foreign_files(store: Path) -> list[str]:
    """Return the names in a directory that no store has, sorted; what a cut-off creation left is not foreign."""
    return sorted(name for name in os.listdir(store) if not is_store_file(name) and not is_partial(name))


def is_partial(name: str) -> bool:
    """Return whether a file of this name is one of a store's own that was never finished."""
    return any(name.startswith(f".{whole}.partial-") for whole in OWN_FILES)


def check_no_foreign_files(store: Path) -> None:
    """Raise `NotAStoreError` where a directory without a store holds anything else."""
    found = foreign_files(store)
    full = [name for name in os.listdir(store) if is_store_file(name) and os.path.getsize(store / name)]
    if found or full:
        raise NotAStoreError(
            f"{store}: not a Zrecord store, and not empty: it holds {', '.join((found + full)[:3])} but no {META}. "
            "Choose a directory of its own for the store",
            store=store,
        )


def make_directories(path: Path) -> list[Path]:
    """Make a directory and those above it that are missing, and return the ones made, the highest first.

    Their names have reached the disk when it returns. None is left where it fails.
    """
    missing: list[Path] = []
    while not path.exists():
        missing.insert(0, path)
        path = path.parent
    made: list[Path] = []
    try:
        for directory in missing:
            try:
                files.make_directory(directory)
                made.append(directory)
                files.sync_directory(directory.parent)
            except FileExistsError:  # another process was quicker
                if not directory.is_dir():
                    raise
    except BaseException:
        remove_directories(made)
        raise
    return made


def remove_directories(made: list[Path]) -> None:
    """Remove directories that were made in vain, the last one first, up to one in which something is."""
    with contextlib.suppress(OSError):
        for directory in reversed(made):
            files.remove_directory(directory)
