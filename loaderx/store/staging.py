"""Stores that appear under their name only when they are complete.

A new store is built as ``.NAME.partial-<id>`` beside its place (inside it, where the place is a directory that holds
other files), and renamed when everything has reached the disk. Its builder holds a lock on it, so that what a dead
process left can be told from what a living one builds, and swept away.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
from pathlib import Path
from types import TracebackType

from loaderx._core.maps import OpenFile
from loaderx.errors import LoaderxError, NotAStoreError, ZrecordError
from loaderx.store import files
from loaderx.store.create import foreign_files, make_directories, make_empty, remove_directories
from loaderx.store.format import KINDS, META, is_store_file
from loaderx.store.locks import hold_for_writing
from loaderx.store.session import is_writer_here

# In a partial store inside its place: the names of the files that are being moved out of it.
_MOVES = "moves"
_MAX_MOVES_BYTES = 1 << 20


# How long the writer of a store that is to be replaced is waited for.
_TIMEOUT_S = 10.0


class Staging:
    """A store being built, and the place it will have.

    A context manager: the directory is made when the block begins, and what was not installed is removed at its end.

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
    StoreLockedError
        The store that is to be replaced has a writer.
    NotAStoreError
        What is at `target` is not a store that may be replaced, or is a directory that a store cannot be put into.
    """

    def __init__(self, target: Path, *, replace: bool = False) -> None:
        self._named = target
        with files.errors_named(target, "look at what is there"):
            # A symbolic link to a store stays one: what it leads to is built and replaced.
            target = self._target = Path(os.path.realpath(target))
            take_back_moves(target)
            _check_target(target, replace)
            self._replace = replace and (target / META).exists()
        # Only a directory that is empty and on the same file system can be replaced by renaming another upon it.
        self._inside = (
            target.is_dir() and not self._replace and (os.path.ismount(target) or bool(os.listdir(target)))
        )
        self.path = partial_path(target if self._inside else target.parent, target.name)
        self._lock: OpenFile | None = None
        self._made: list[Path] = []
        self._process = os.getpid()
        self._installed = False

    def __enter__(self) -> Staging:
        # Here and not in __init__: a signal that came between the two would leave the directory behind.
        try:
            with files.errors_named(self._target, "create it"):
                self._made = make_directories(self.path.parent)
                sweep(self.path.parent, self._target.name)
                while (lock := make_partial(self.path)) is None:
                    self.path = partial_path(self.path.parent, self._target.name)
                self._lock = lock
                files.sync_directory(self.path.parent)  # what is to be swept has to be found
                make_empty(self.path)
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if (
                not self._installed and os.getpid() == self._process
            ):  # and not in a forked child that leaves the block
                if isinstance(error, LoaderxError):
                    self._name_target(error)
                with contextlib.suppress(OSError):
                    files.remove_tree(self.path)
                remove_directories(self._made)
        finally:
            if self._lock is not None:
                self._lock.close()

    def install(self) -> None:
        """Give the finished store its name, once everything in it has reached the disk.

        Raises
        ------
        StoreIOError
        """
        target = self._target
        with files.errors_named(target, "put the finished store there"):
            sync_all(self.path)
            if self._replace:
                self._install_over_store()
            elif self._inside:
                self._install_into_directory()
            else:
                self._install_as_new()
            self._installed = True
            files.sync_directory(target if self._inside else target.parent)

    def _install_as_new(self) -> None:
        try:
            files.rename(self.path, self._target)
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):
                raise
            raise NotAStoreError(
                f"{self._named}: another writer has put something there meanwhile: append to it, or choose another "
                "path",
                store=self._named,
            ) from error

    def _name_target(self, error: LoaderxError) -> None:
        """Have an error about the partial store speak of the store that was to be: the user knows no other name."""
        error.message = error.message.replace(str(self.path), str(self._named))
        error.args = (error.message,)
        if isinstance(error, ZrecordError):
            error.store = self._named

    def _install_into_directory(self) -> None:
        # What says what the records are last: until it is there, nobody takes the directory for a dataset.
        names = sorted(os.listdir(self.path), key=lambda name: (name in KINDS, name == META, name))
        moved: list[Path] = []
        # What `take_back_moves` needs to know of a builder that died from here on.
        files.write_new(self.path / _MOVES, "\n".join(names).encode())
        files.sync_directory(self.path)
        try:
            for name in names:
                if name in KINDS:
                    # Everything else has its name on the disk before this says that there is a dataset.
                    files.sync_directory(self.path)
                    files.sync_directory(self._target)
                files.rename(self.path / name, self._target / name)
                moved.append(self._target / name)
            files.sync_directory(self._target)
            files.unlink(self.path / _MOVES)
        except BaseException:
            for path in reversed(moved):
                with contextlib.suppress(OSError):
                    files.unlink(path)
            raise
        files.remove_directory(self.path)

    def _install_over_store(self) -> None:
        target = self._target
        _check_target(target, True)
        # What a writer of the old store were to commit from here on would be lost with it.
        with contextlib.closing(hold_for_writing(target, _TIMEOUT_S, lambda: is_writer_here(target))):
            # And the directory, which is to have a partial store's name: another builder would sweep it away.
            directory = files.hold_directory(target, wait=True)
            assert directory is not None, "it was waited for"
            with files.opened(directory):
                self._exchange(target)

    def _exchange(self, target: Path) -> None:
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


def take_back_moves(target: Path) -> None:
    """Remove from a directory the files of a store whose builder died while it moved them there.

    The partial store has a list of them. What says what the records are moves last: as long as it is still there, the
    directory holds no dataset, and what of the list is there no longer was moved.
    """
    if not target.is_dir():
        return
    for found in os.listdir(target):
        partial = target / found
        if not found.startswith(_prefix(target.name)) or partial.is_symlink() or not partial.is_dir():
            continue
        lock = files.hold_directory(partial, wait=False)
        if lock is None:
            continue  # its builder lives
        with files.opened(lock):
            left = set(os.listdir(partial))
            if _MOVES in left and not left.isdisjoint(KINDS):
                for name in files.read_whole(partial / _MOVES, _MAX_MOVES_BYTES).decode().split("\n"):
                    if is_store_file(name) and name not in left and os.path.lexists(target / name):
                        files.unlink(target / name)
                files.sync_directory(target)  # before the list goes
            files.remove_tree(partial)


def sweep(folder: Path, name: str) -> None:
    """Remove what builders of store `name` left in a folder when they died."""
    for found in os.listdir(folder):
        if found.startswith(_prefix(name)):
            with contextlib.suppress(OSError):
                lock = files.hold_directory(folder / found, wait=False)
                if lock is not None:
                    with files.opened(lock):
                        files.remove_tree(folder / found)


def _check_target(target: Path, replace: bool) -> None:
    if not os.path.lexists(target):
        return
    if not target.is_dir():
        raise NotAStoreError(f"{target}: not a directory: choose another path for the store", store=target)
    if replace:
        if not (target / META).exists() and os.listdir(target):
            raise NotAStoreError(
                f"{target}: not replaced, because it is not a store: it has no {META}", store=target
            )
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


def partial_path(folder: Path, name: str) -> Path:
    """Give a new path in a folder at which `name` may be built."""
    return folder / f"{_prefix(name)}{os.getpid()}-{secrets.token_hex(4)}"


def _prefix(name: str) -> str:
    """Return what the names of a store's partial directories begin with; short enough for every file system."""
    return f".{os.fsdecode(os.fsencode(name)[:150])}.partial-"


def make_partial(path: Path) -> OpenFile | None:
    """Make a directory and return its lock; None where a sweeper took it for a dead one's before it was locked."""
    files.make_directory(path)
    with contextlib.suppress(FileNotFoundError):
        lock = files.hold_directory(path, wait=False)
        if lock is not None:
            if path.is_dir() and os.path.samestat(os.fstat(lock.fileno()), os.stat(path)):
                return lock
            lock.close()
    return None


def sync_all(folder: Path) -> None:
    """Have a directory's files, and their names, reach the disk."""
    for name in os.listdir(folder):
        with files.opened(files.open_to_read(folder / name)) as descriptor:
            files.sync(descriptor)
    files.sync_directory(folder)
