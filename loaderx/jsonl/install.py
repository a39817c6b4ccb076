"""An index appears under its name whole, or not at all, and the old one goes after that.

It is built as ``.NAME.partial-<id>`` beside its place, locked by its builder. Where the system can, the names of the
two are exchanged; elsewhere the old one is renamed to ``.NAME.replaced-<id>``, and the new one to its place: who finds
no index between the two renames puts the old one back.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator
from pathlib import Path

from loaderx.errors import NotAnIndexError, OptionError
from loaderx.jsonl.layout import FACTS, LOCATIONS, NAMES
from loaderx.store import files
from loaderx.store.flock import lock_within
from loaderx.store.staging import make_partial, partial_path, sweep, sync_all

# The longest that a builder waits for another one, which only renames meanwhile.
_TIMEOUT_S = 10.0

_PARTIAL, _ASIDE = ".partial-", ".replaced-"


@contextlib.contextmanager
def building(folder: Path) -> Iterator[Path]:
    """Give a block a directory to build an index in; what was not installed is removed at its end.

    Parameters
    ----------
    folder : pathlib.Path
        Where the index will be.
    """
    tidy(folder)
    partial = partial_path(folder.parent, folder.name)
    try:
        while (lock := make_partial(partial)) is None:
            partial = partial_path(folder.parent, folder.name)
        with files.opened(lock):
            yield partial
    finally:
        # After it was installed, the old index lies there.
        with contextlib.suppress(OSError):
            files.remove_tree(partial)


def tidy(folder: Path) -> None:
    """Put right and remove what builders of an index left that were killed."""
    with _alone(folder.parent):
        _mend(folder)
        sweep(folder.parent, folder.name)


def install(partial: Path, folder: Path) -> None:
    """Give a finished index its name. An old index is at `partial` afterwards, or gone.

    Raises
    ------
    OSError
        The old index, where there was one, is still in its place.
    """
    sync_all(partial)
    with _alone(folder.parent):
        if not os.path.lexists(folder):
            files.rename(partial, folder)
        elif not files.exchange(partial, folder):
            aside = _aside_path(partial)
            files.rename(folder, aside)
            try:
                files.rename(partial, folder)
            except BaseException:
                files.rename(aside, folder)
                raise
            with contextlib.suppress(OSError):
                files.remove_tree(aside)
        files.sync_directory(folder.parent)


def put_back(folder: Path) -> bool:
    """Where a builder was killed between two renames, give the old index its name again.

    Returns
    -------
    bool
        Whether there is anything under that name now.

    Raises
    ------
    NotAnIndexError
        It cannot be renamed.
    """
    aside = _aside(folder)
    if aside:
        try:
            with _alone(folder.parent):
                _mend(folder)
        except OSError as error:
            raise NotAnIndexError(
                f"{folder}: a builder that was stopped has left the index at {aside[0]} , and it cannot be put back "
                f"({error.strerror}): rename it to {folder.name}",
                path=folder,
            ) from error
    return os.path.lexists(folder)


def _mend(folder: Path) -> None:
    """Finish what a builder that was killed between two renames has begun."""
    for aside in _aside(folder):
        if os.path.lexists(folder):
            files.remove_tree(aside)
        else:
            files.rename(aside, folder)


def _aside(folder: Path) -> list[Path]:
    prefix = _aside_path(partial_path(folder.parent, folder.name)).name.partition(_ASIDE)[0] + _ASIDE
    names = os.listdir(folder.parent) if folder.parent.is_dir() else []
    return [folder.parent / name for name in sorted(names) if name.startswith(prefix)]


def _aside_path(partial: Path) -> Path:
    return partial.with_name(partial.name.replace(_PARTIAL, _ASIDE))


def check_replaceable(folder: Path) -> None:
    """Refuse to replace what is no index.

    Raises
    ------
    OptionError
        There is a file, or a directory with other files than an index's, which would be lost.
    """
    if not os.path.lexists(folder):
        return
    others = (
        sorted(set(os.listdir(folder)) - {NAMES, LOCATIONS, FACTS}) if folder.is_dir() else ["no directory"]
    )
    if others or folder.is_symlink():
        raise OptionError(
            f"{folder}: not replaced, because it is not an index that loaderx made "
            f"({', '.join(others[:3]) or 'a symbolic link'}): move it away, or give another index_folder",
            option="index_folder",
            value=folder,
        )


@contextlib.contextmanager
def _alone(parent: Path) -> Iterator[None]:
    with files.opened(files.open_to_read(parent, os.O_DIRECTORY)) as descriptor:
        if not lock_within(descriptor, _TIMEOUT_S):
            raise OSError(
                errno.EWOULDBLOCK,
                f"another process has held the lock of it for {_TIMEOUT_S:.0f} s",
                str(parent),
            )
        yield
