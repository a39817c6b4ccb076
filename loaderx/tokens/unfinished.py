"""Where a run writes until it is finished: a folder beside its destination, which a later run goes on in.

``NAME.unfinished/`` holds ``progress.json`` and ``data/``, which gets the name of the destination when it is complete.
Whoever writes has a lock on the folder, which dies with its process.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from types import TracebackType
from typing import Any, Final

from loaderx._core.maps import OpenFile
from loaderx.errors import NotAStoreError, StoreLockedError
from loaderx.store import files
from loaderx.store.create import is_partial, make_directories, remove_directories
from loaderx.store.format import is_store_file
from loaderx.tokens.sides import SIDE_DTYPES, TOKENS
from loaderx.tokens.state import MANIFEST, PROGRESS, Progress, read_progress, write_progress

DATA: Final = "data"
_REPLACED = "replaced"
_OWN = (PROGRESS, DATA, _REPLACED)


class Unfinished:
    """The folder of a run. A context manager: the folder is made and locked when the block begins.

    Parameters
    ----------
    target : pathlib.Path
        What is to be made.

    Attributes
    ----------
    path : pathlib.Path
        The folder.
    data : pathlib.Path
        What gets the name of the target.

    Raises
    ------
    StoreLockedError
        Another run writes there.
    NotAStoreError
        There is a folder of this name that no run has made.
    StoreIOError
    """

    def __init__(self, target: Path) -> None:
        self._target = target
        self.path = target.with_name(f"{target.name}.unfinished")
        self.data = self.path / DATA
        self._lock: OpenFile | None = None
        self._made: list[Path] = []

    def __enter__(self) -> Unfinished:
        with files.errors_named(self.path, "begin there"):
            self._made = make_directories(self.path)
            self._lock = files.hold_directory(self.path, wait=False)
        try:
            if self._lock is None or not _is_there(self._lock, self.path):
                raise StoreLockedError(
                    f"{self.path}: another process is writing {self._target.name}: wait for it, or end it",
                    store=self._target,
                )
            foreign = [name for name in os.listdir(self.path) if name not in _OWN and not _is_partial(name)]
            if foreign or (os.path.lexists(self.data) and not (self.path / PROGRESS).exists()):
                raise NotAStoreError(
                    f"{self.path}: needed for an unfinished dataset, and holds {', '.join([*foreign, DATA][:3])}: move "
                    "it away, or choose another dest",
                    store=self.path,
                )
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._lock is not None:
            self._lock.close()

    def read(self) -> dict[str, Any] | None:
        """Return the progress of the run that is there, as JSON; None: there is none."""
        return read_progress(self.path / PROGRESS)

    def write(self, progress: Progress) -> None:
        """Write down how far the run is."""
        with files.errors_named(self.path, f"write {PROGRESS}"):
            write_progress(self.path / PROGRESS, progress)

    def remove(self) -> None:
        """Remove the folder, with what is in it, and folders above it that were made for it."""
        self.clear()
        with files.errors_named(self.path, "remove it"):
            files.remove_directory(self.path)
            remove_directories(self._made[:-1])

    def clear(self) -> None:
        """Remove what is in the folder; the progress last, by which it is known."""
        with files.errors_named(self.path, "remove it"):
            for name in sorted(os.listdir(self.path), key=lambda name: name == PROGRESS):
                if (self.path / name).is_dir():
                    files.remove_tree(self.path / name)
                else:
                    files.unlink(self.path / name)

    def is_installed(self, progress: Progress) -> bool:
        """Return whether the finished data has the target's name already."""
        # A folder that was made when the dataset was gone may have its number.
        return (
            progress.data is not None
            and _inode(self._target) == progress.data
            and (self._target / MANIFEST).exists()
        )

    def is_complete(self, progress: Progress) -> bool:
        """Return whether the finished data is here, and only its name is to be given."""
        return progress.data is not None and _inode(self.data) == progress.data

    def install(self, progress: Progress) -> None:
        """Give the finished data the target's name; what was there is exchanged for it and removed.

        Raises
        ------
        StoreIOError
        """
        with files.errors_named(self._target, "put the finished dataset there"):
            files.sync_directory(self.path)
            if self._target.is_dir() and os.listdir(self._target):
                if not files.exchange(self.data, self._target):
                    files.rename(self._target, self.path / _REPLACED)
                    files.rename(self.data, self._target)
            else:
                files.rename(self.data, self._target)
            files.sync_directory(self._target.parent)
            files.sync_directory(self.path)
        self.remove()


def data_inode(unfinished: Unfinished) -> int:
    """Return what the finished data is recognised by when it has another name."""
    inode = _inode(unfinished.data)
    assert inode is not None, "it was just finished"
    return inode


def _inode(path: Path) -> int | None:
    with contextlib.suppress(FileNotFoundError):
        return os.stat(path).st_ino
    return None


def _is_there(directory: OpenFile, path: Path) -> bool:
    """Return whether a directory still has its name: another run may have finished and removed it meanwhile."""
    with contextlib.suppress(FileNotFoundError):
        return os.path.samestat(os.fstat(directory.fileno()), os.stat(path))
    return False


def _is_partial(name: str) -> bool:
    return name.startswith(f".{PROGRESS}.partial-")


def check_target(target: Path, overwrite: bool) -> None:
    """Raise `NotAStoreError` where something else than the tokens of a run would be replaced.

    Parameters
    ----------
    target : pathlib.Path
    overwrite : bool
        Let it be a finished dataset of tokens, with nothing else in its folder.
    """
    if not os.path.lexists(target):
        return
    if not target.is_dir():
        raise NotAStoreError(f"{target}: not a directory: choose another dest", store=target)
    names = os.listdir(target)
    if not names:
        return
    if MANIFEST not in names or not overwrite:
        raise NotAStoreError(
            f"{target}: not empty: it holds {', '.join(sorted(names)[:3])}. Choose a dest of its own",
            store=target,
        )
    stores = [f"{name}.zr" for name in (TOKENS, *SIDE_DTYPES)]
    foreign = [name for name in names if name not in (MANIFEST, *stores) and not _belongs(name)]
    if foreign:
        raise NotAStoreError(
            f"{target}: not replaced, because it holds other files too: {', '.join(sorted(foreign)[:3])}. Move them "
            "away first",
            store=target,
        )


def _belongs(name: str) -> bool:
    return is_store_file(name) or is_partial(name) or name.startswith(f".{MANIFEST}.partial-")
