"""The files of a source: paths, patterns, and lists of both."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import TypeAlias

from loaderx.errors import OptionError
from loaderx.jsonl.walk import find_paths

PathLike: TypeAlias = str | os.PathLike[str]
#: What sources of files take.
Paths: TypeAlias = PathLike | Iterable[PathLike]

# Its text takes half as long by `str` as by `os.fspath`; a class that is made of it may have another text for that.
_PATH = type(Path())


def _is_magic(path: str) -> bool:
    return "*" in path or "?" in path or "[" in path


def list_files(paths: Paths) -> list[str]:
    """Return the paths of files, in the order in which they are read.

    Parameters
    ----------
    paths : str or os.PathLike, or iterable of them
        A file; or a pattern with ``*``, ``?``, ``[...]`` in a name, and ``**`` for any folders, also none. A name that
        is there as it is written is no pattern. What fits a pattern is in natural order, folder by folder: part2 before
        part10.

    Returns
    -------
    list of str
        Absolute. Files that are named are not looked at: there may be many.

    Raises
    ------
    OptionError
        No file fits a pattern; a path is empty, or leads to a folder.
    FileNotFoundError
        A single path leads nowhere.
    OSError
        A folder cannot be read.
    """
    if isinstance(paths, str | os.PathLike):
        single = os.fspath(paths)
        found = _expand(single)
        if len(found) == 1:
            _check_file(single, found[0])
        return found
    named = [str(path) if type(path) is _PATH else os.fspath(path) for path in paths]
    # Looked at all at once: ten thousand take a millisecond so.
    if all(named) and all(type(path) is str for path in named) and not _is_magic("\0".join(named)):
        here = os.getcwd() if not all(path.startswith("/") for path in named) else ""
        return [path if path.startswith("/") else os.path.join(here, path) for path in named]
    return [each for path in named for each in _expand(path)]


def _check_file(given: str, path: str) -> None:
    if os.path.isdir(path):
        raise OptionError(
            f"paths is {given!r}, a folder: say which files of it, such as {os.path.join(given, '*.jsonl')!r}, or with "
            "'**' between the two those in folders below it too",
            option="paths",
            value=given,
        )
    os.stat(path)


def _expand(path: str) -> list[str]:
    if not isinstance(path, str) or not path:
        raise OptionError(f"a path is {path!r}: name a file, or a pattern", option="paths", value=path)
    absolute = path if path.startswith("/") else os.path.join(os.getcwd(), path)
    if not _is_magic(path) or os.path.lexists(absolute):
        return [absolute]
    base, pattern = _divide(absolute)
    found = find_paths(Path(base), pattern) if os.path.isdir(base) else []
    if not found:
        raise OptionError(
            f"paths is {path!r}, and no file fits that: {base} was looked through for {pattern}"
            if os.path.isdir(base)
            else f"paths is {path!r}, and there is no folder {base}",
            option="paths",
            value=path,
        )
    return found


def _divide(path: str) -> tuple[str, str]:
    """Cut a path into the folder to begin in, and the pattern below it."""
    names = [name for name in path.split("/") if name not in ("", ".")]
    base = "/"
    for at, name in enumerate(names):
        inner = os.path.join(base, name)
        # A "[" in a name that is there is a letter of it.
        if _is_magic(name) and not os.path.lexists(inner):
            return base, "/".join(names[at:])
        base = inner
    return os.path.dirname(base), os.path.basename(base)
