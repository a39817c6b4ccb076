"""Stores that appear under their name only when they are complete.

A new store is built as ``.NAME.partial-<id>`` beside its place (inside it, where the place is a directory that holds
other files), and renamed when everything has reached the disk. Its builder holds a lock on it, so that what a dead
process left can be told from what a living one builds, and swept away.
"""

from __future__ import annotations

import contextlib
import os
import secrets
from pathlib import Path
from types import TracebackType

from loaderx.errors import NotAStoreError
from loaderx.store import files
from loaderx.store.create import foreign_files, make_empty
from loaderx.store.format import META, SCHEMA, is_store_file


class Staging:
    """A store being built, and the place it will have.

    As a context manager it removes what was not installed.

    Parameters
    ----------
    target : pathlib.Path
        Where the store will be.
    replace : bool
        Whether a store that is there is replaced. It must hold nothing but a store's own files, which are removed.

    Attributes
    ----------
    path : pathlib.Path
        The directory to build in: an empty store.

    Raises
    ------
    NotAStoreError
        What is at `target` is not a store that may be replaced, or is a directory that a store cannot be put into.
    """

    def __init__(self, target: Path, *, replace: bool = False) -> None:
        self._target = target
        self._replace = replace and (target / META).exists()
        _check_target(target, self._replace)
        # Only a directory that is empty and on the same file system can be replaced by renaming another upon it.
        self._inside = (
            target.is_dir() and not self._replace and (os.path.ismount(target) or bool(os.listdir(target)))
        )
        folder = target if self._inside else target.parent
        with files.errors_named(target, "create it"):
            folder.mkdir(parents=True, exist_ok=True)
            sweep(folder, target.name)
            self.path, self._lock = _make_partial(folder, target.name)
            self._installed = False
            try:
                make_empty(self.path)
            except BaseException:
                self.__exit__(None, None, None)
                raise

    def __enter__(self) -> Staging:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if not self._installed:
                with contextlib.suppress(OSError):
                    files.remove_tree(self.path)
        finally:
            os.close(self._lock)

    def install(self) -> None:
        """Give the finished store its name, once everything in it has reached the disk.

        Raises
        ------
        StoreIOError
        """
        target = self._target
        with files.errors_named(target, "put the finished store there"):
            _sync_all(self.path)
            if self._replace:
                self._install_over_store()
            elif self._inside:
                self._install_into_directory()
            else:
                files.rename(self.path, target)
            self._installed = True
            files.sync_directory(target if self._inside else target.parent)

    def _install_into_directory(self) -> None:
        # The schema last: until it is there, nobody takes the directory for a dataset.
        names = sorted(os.listdir(self.path), key=lambda name: (name == SCHEMA, name == META, name))
        moved: list[Path] = []
        try:
            for name in names:
                files.rename(self.path / name, self._target / name)
                moved.append(self._target / name)
        except BaseException:
            for path in moved:
                with contextlib.suppress(OSError):
                    files.unlink(path)
            raise
        files.remove_directory(self.path)

    def _install_over_store(self) -> None:
        target = self._target
        _check_target(target, True)
        if not files.exchange(self.path, target):
            aside = self.path.with_name(self.path.name.replace(".partial-", ".replaced-"))
            files.rename(target, aside)
            try:
                files.rename(self.path, target)
            except BaseException:
                files.rename(aside, target)
                raise
            files.rename(aside, self.path)
        # The new store has its name; the old one, now under the partial name, may go.
        files.sync_directory(target.parent)
        files.remove_tree(self.path)


def sweep(folder: Path, name: str) -> None:
    """Remove what builders of store `name` left in a folder when they died."""
    for path in folder.glob(f".{_escape(name)}.partial-*"):
        with contextlib.suppress(OSError):
            lock = files.hold_directory(path, wait=False)
            if lock is not None:
                with files.opened(lock):
                    files.remove_tree(path)


def _escape(name: str) -> str:
    return "".join(f"[{character}]" if character in "*?[" else character for character in name)


def _check_target(target: Path, replace: bool) -> None:
    if not os.path.lexists(target):
        return
    if not target.is_dir():
        raise NotAStoreError(f"{target}: not a directory: choose another path for the store", store=target)
    if replace:
        others = foreign_files(target)
        if others:
            raise NotAStoreError(
                f"{target}: not replaced, because it holds other files than a store's: {', '.join(others[:3])}. Move "
                "them away first",
                store=target,
            )
        return
    parts = sorted(name for name in os.listdir(target) if is_store_file(name))
    if parts:
        raise NotAStoreError(
            f"{target}: holds {', '.join(parts[:3])}, which a store would overwrite: remove what is left of the old "
            "store, or choose another path",
            store=target,
        )


def _make_partial(folder: Path, name: str) -> tuple[Path, int]:
    while True:
        path = folder / f".{name}.partial-{os.getpid()}-{secrets.token_hex(4)}"
        files.make_directory(path)
        # A sweeper may take it for a dead one's in the moment before it is locked.
        with contextlib.suppress(FileNotFoundError):
            lock = files.hold_directory(path, wait=False)
            if lock is not None:
                if path.is_dir() and os.path.samestat(os.fstat(lock), os.stat(path)):
                    return path, lock
                os.close(lock)


def _sync_all(folder: Path) -> None:
    for name in os.listdir(folder):
        with files.opened(os.open(folder / name, os.O_RDONLY | os.O_CLOEXEC)) as descriptor:
            files.sync(descriptor)
    files.sync_directory(folder)
