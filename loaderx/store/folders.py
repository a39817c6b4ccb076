"""Stores of one folder that belong together: all are changed, or none."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from loaderx.errors import LoaderxError, ZrecordError
from loaderx.store import files
from loaderx.store.format import META
from loaderx.store.zrecord import Zrecord

#: What a writer that died left behind: the partial folder it built in, or the store it was about to replace.
_LEFTOVER = re.compile(r"\..*\.(partial|replaced)-[0-9]+-[0-9a-f]+")
#: A file name may have 255 bytes; the rest is for what is put around it while a store is written.
_NAME_BYTES = 200


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
    too_long = len(name.encode("utf-8", "surrogatepass")) > _NAME_BYTES
    return name not in ("", ".", "..") and not too_long and not any(sign in name for sign in "/\\\0")


@contextlib.contextmanager
def taken_back_on_failure(paths: Sequence[Path]) -> Iterator[None]:
    """Delete what the block appended to these stores when it fails."""
    before = []
    for path in paths:
        with Zrecord(path, mode="r") as store:
            before.append((path, store.stats()))
    try:
        yield
    except BaseException as error:
        kept = [path for path, stats in before if not _take_back(path, stats)]
        if kept:
            raise ZrecordError(
                f"{error}; and what was appended to {', '.join(map(str, kept))} could not be deleted again",
                store=kept[0],
            ) from error
        raise


def _take_back(path: Path, stats: dict[str, Any]) -> bool:
    """Delete the records behind those that `stats` counted; False where that fails."""
    try:
        with Zrecord(path) as store:
            if len(store) > stats["records"]:
                store.delete(range(stats["records"], len(store)))
                if not stats["reclaimable"]:
                    store.compact()  # nothing has to move: it only cuts off what was appended
    except LoaderxError:
        return False
    return True


def put_in_places(staged: Path, folder: Path) -> None:
    """Make a folder of stores the new folder; or, where there is one, move them into it.

    They take the places of the stores that are there, in exchange. On failure all are moved back.
    """
    files.sync_directory(staged)
    if not folder.exists():
        files.rename(staged, folder)
        files.sync_directory(folder.parent)
        return
    plan = [(source, folder / source.name, os.stat(source).st_ino) for source in sorted(staged.iterdir())]
    try:
        for source, target, _ in plan:
            if target.exists():
                _exchange(source, target)
            else:
                files.rename(source, target)
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
