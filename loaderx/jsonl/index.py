"""An index, opened: which files, and where in them each sample is."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import numpy.typing as npt

from loaderx.errors import NotAnIndexError, StaleIndexError, StaleIndexWarning
from loaderx.jsonl.fingerprint import look_at
from loaderx.jsonl.inside import Fence
from loaderx.jsonl.install import put_back
from loaderx.jsonl.layout import (
    FACTS,
    LOCATIONS,
    NAMES,
    ROW_BYTES,
    IndexFacts,
    Place,
    find_place,
    names_from_bytes,
)
from loaderx.jsonl.scan import changed
from loaderx.store.options import check_flag

# An index may be replaced between the opening of two of its files; then all are opened again.
_ATTEMPTS = 100

_PACKAGE = __name__.partition(".")[0]


class Index:
    """The index of text files: which files, and where in them each sample is.

    Made by `Index.open`, `build_index` and `update_index`. It holds no text file open, and of the samples nothing in
    memory: their places are a map of a file.

    Attributes
    ----------
    base : pathlib.Path
        The folder that the files' paths begin in; absolute.
    folder : pathlib.Path
        The folder of the index; absolute.
    paths : list of str
        The files, by their number; absolute.
    names : list of str
        The same as listed, relative to the base.
    locations : numpy.ndarray of uint64, shape (n, 3)
        For each sample the number of its file, its first byte there, and its number of bytes, the line end among
        them. Read-only; a map.
    facts : IndexFacts or None
        What ``index.json`` says; None for an index that another program wrote.
    grown : list of str
        Files that have grown since they were indexed; what was added is not in the index. Empty with ``check=False``.
    unfinished : list of str
        Files whose last line had no end when they were indexed, and is a sample all the same.

    Notes
    -----
    Pickles by its path, and is opened where it is unpickled. Nothing of it changes: any number of threads may use it.
    """

    def __init__(self, place: Place, allow_outside: bool) -> None:
        self._place = place
        self._options = {"allow_outside": allow_outside, "check": True}
        self.names, self.locations, self.facts = _read(place)
        fence = Fence(place.base, allow_outside)
        self.paths = [fence.resolve(name) for name in self.names]
        self.grown: list[str] = []
        self.unfinished: list[str] = []
        if self.facts is not None:
            held = zip(self.paths, self.facts.files, strict=True)
            self.unfinished = [path for path, file in held if file.unfinished_sample is not None]

    @classmethod
    def open(
        cls,
        base_path: str | os.PathLike[str],
        *,
        index_folder: str | os.PathLike[str] | None = None,
        allow_outside: bool = False,
        check: bool = True,
    ) -> Index:
        """Open the index of a folder, or of a file.

        Parameters
        ----------
        base_path : path
            The folder or the file that was indexed.
        index_folder : path, optional
            The index, where it is not at its usual place; a relative path begins in the base.
        allow_outside : bool
            Whether listed files may lie outside of the base. Leave it at False for an index that you did not make.
        check : bool
            Whether to look whether the files are still what was indexed: at size and time of change of each, and where
            these differ at some of its bytes.

        Raises
        ------
        NotAnIndexError
            There is no index.
        StaleIndexError
            The index is damaged; a file was changed, is shorter or not there; a file has grown behind a line that had
            no end.
        OptionError
            A listed file lies outside of the base.
        OSError
            The system refuses to read.

        Warns
        -----
        StaleIndexWarning
            Files have grown: the samples are those that were indexed.

        Notes
        -----
        Takes the same time for any number of samples, and some microseconds for each file. An index without
        ``index.json``, which another program wrote, tells nothing about changed files.
        """
        index = cls(find_place(base_path, index_folder), check_flag("allow_outside", allow_outside))
        if check_flag("check", check):
            index._check_files()
        else:
            index._options["check"] = False
        return index

    @property
    def base(self) -> Path:
        """The folder that the files' paths begin in."""
        return self._place.base

    @property
    def folder(self) -> Path:
        """The folder of the index."""
        return self._place.folder

    def __len__(self) -> int:
        return len(self.locations)

    def __repr__(self) -> str:
        return f"Index({str(self.folder)!r}: {len(self):,} samples of {len(self.paths):,} files)"

    def __reduce__(self) -> tuple[Callable[..., Index], tuple[Any, ...]]:
        base = self.base if self._place.single is None else self.base / self._place.single
        return _reopen, (base, self.folder, self._options)

    def _check_files(self) -> None:
        if self.facts is None:
            return
        held = zip(self.paths, self.facts.files, strict=True)
        self.grown = [path for path, file in held if look_at(path, file).st_size > file.size]
        if not self.grown:
            return
        for path in self.grown:
            if path in self.unfinished:
                raise StaleIndexError(
                    f"{path}: it has grown, and its last line had no end when it was indexed, so that sample may be "
                    "half a line; index what was added (update_index, or python -m loaderx index --update)",
                    file=Path(path),
                    reason="it has grown, and its last line had no end when it was indexed",
                )
        more = f" and {len(self.grown) - 1} more files" if len(self.grown) > 1 else ""
        warnings.warn(
            f"{self.grown[0]}{more}: grown since indexed; the samples are those of then. Index what was added by "
            "update_index, or python -m loaderx index --update",
            StaleIndexWarning,
            stacklevel=_level_of_caller(),
        )


def _level_of_caller() -> int:
    """Return the `stacklevel` that names the line outside of this package, however many calls above."""
    level = 1
    frame: FrameType | None = sys._getframe(level)
    while frame is not None and frame.f_globals.get("__name__", "").partition(".")[0] == _PACKAGE:
        level, frame = level + 1, frame.f_back
    return level


def _reopen(base: Path, folder: Path, options: dict[str, bool]) -> Index:
    return Index.open(base, index_folder=folder, **options)


def _read(place: Place) -> tuple[list[str], npt.NDArray[np.uint64], IndexFacts | None]:
    """Read the files of an index, all of the same one."""
    for _ in range(_ATTEMPTS):
        try:
            folder = os.open(place.folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except FileNotFoundError:
            if put_back(place.folder):
                continue
            raise _not_an_index(place, "there is no such folder") from None
        except NotADirectoryError:
            raise _not_an_index(place, "it is no folder") from None
        try:
            return _read_from(folder, place)
        except FileNotFoundError as error:
            # Either the file is missing, or this is an old index that is being removed.
            if _is_at(folder, place.folder):
                raise _not_an_index(place, f"it has no {error.filename}") from None
        finally:
            os.close(folder)
    raise _not_an_index(place, "it is replaced again and again")


def _is_at(folder: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(folder), os.stat(path))
    except FileNotFoundError:
        return False


def _read_from(folder: int, place: Place) -> tuple[list[str], npt.NDArray[np.uint64], IndexFacts | None]:
    def opener(name: str, flags: int) -> int:
        return os.open(name, flags | os.O_CLOEXEC, dir_fd=folder)

    with open(NAMES, "rb", opener=opener) as stream:
        text = stream.read()
    with open(LOCATIONS, "rb", opener=opener) as stream:
        size = os.fstat(stream.fileno()).st_size
        n = size // ROW_BYTES
        locations: npt.NDArray[np.uint64] = np.empty((0, 3), np.uint64)
        if n:
            locations = np.memmap(stream, np.dtype("<u8"), "r", shape=(n, 3))
    locations.flags.writeable = False
    if size % ROW_BYTES:
        raise _damaged(place, LOCATIONS, f"it has {size} bytes, which is no multiple of {ROW_BYTES}")
    if b"\0" in text:
        raise _damaged(place, NAMES, "it is damaged: a name in it has a NUL")
    names = names_from_bytes(text)
    try:
        with open(FACTS, "rb", opener=opener) as stream:
            facts = IndexFacts.from_json(stream.read(), place.folder / FACTS)
    except FileNotFoundError:
        return names, locations, None
    for name, has, expected in ((NAMES, len(text), facts.names), (LOCATIONS, size, facts.locations)):
        if has != expected.size:
            raise _damaged(place, name, f"it has {has} bytes, and {FACTS} says {expected.size}")
    if len(names) != len(facts.files):
        raise _damaged(place, NAMES, f"it lists {len(names)} files, and {FACTS} {len(facts.files)}")
    _check_unfinished(place, locations, facts)
    return names, locations, facts


def _check_unfinished(place: Place, locations: npt.NDArray[np.uint64], facts: IndexFacts) -> None:
    """Refuse facts that name another sample than the table as a file's last line: an update would write over it."""
    expected = [
        (file.unfinished_sample, number, file.indexed_bytes, file.size - file.indexed_bytes)
        for number, file in enumerate(facts.files)
        if file.unfinished_sample is not None
    ]
    if not expected:
        return
    samples, *rows = np.array(expected, np.uint64).T
    if samples.max() >= len(locations) or (locations[samples] != np.stack(rows, 1)).any():
        raise _damaged(place, FACTS, f"it is damaged: it names other last lines than {LOCATIONS}")


def _damaged(place: Place, name: str, reason: str) -> StaleIndexError:
    return changed(place.folder / name, reason)


def _not_an_index(place: Place, reason: str) -> NotAnIndexError:
    what = place.base if place.single is None else place.base / place.single
    return NotAnIndexError(
        f"{place.folder}: no index: {reason}; make one by build_index, or python -m loaderx index {what}",
        path=place.folder,
    )
