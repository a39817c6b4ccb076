"""The files of a source: paths, patterns, and lists of both."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, TypeAlias

from loaderx.errors import OptionError
from loaderx.jsonl.walk import find_paths
from loaderx.store.telling import shown
from loaderx.stream.braces import expand_braces, has_braces

PathLike: TypeAlias = str | os.PathLike[str]
#: What sources of files take.
Paths: TypeAlias = PathLike | Iterable[PathLike]

# Its text takes half as long by `str` as by `os.fspath`; a class that is made of it may have another text for that.
_PATH = type(Path())


def _is_magic(path: str) -> bool:
    return "*" in path or "?" in path or "[" in path


def list_files(paths: Paths, option: str = "paths", usual: str = "*.jsonl") -> list[str]:
    """Return the paths of files, in the order in which they are read.

    Parameters
    ----------
    paths : str or os.PathLike, or iterable of them
        A file; or a pattern with ``*``, ``?``, ``[...]`` in a name, and ``**`` for any folders, also none. A name that
        is there as it is written is no pattern. What fits a pattern is in natural order, folder by folder: part2 before
        part10. Braces, as `expand_braces` has them, stand for several paths or patterns in the order written.
    option : str
        What the user calls them.
    usual : str
        What fits the files of a folder, for the error about one.

    Returns
    -------
    list of str
        Absolute. Files that are named are not looked at: there may be many.

    Raises
    ------
    OptionError
        No file fits a pattern; a path is empty, or leads to a folder; there are no paths, or no order of them.
    FileNotFoundError
        A single path leads nowhere.
    OSError
        A folder cannot be read.
    """
    if isinstance(paths, str | os.PathLike):
        single = os.fspath(paths)
        found = _expand(single, option)
        if len(found) == 1:
            _check_file(single, found[0], option, usual)
        return found
    named = [str(path) if type(path) is _PATH else path for path in _check_list(option, paths)]
    named = [os.fspath(path) if isinstance(path, os.PathLike) else path for path in named]
    if not named:
        raise OptionError(f"{option} is empty: name at least one file", option=option, value=paths)
    # Looked at all at once: ten thousand take a millisecond so.
    if all(named) and all(type(path) is str for path in named):
        together = "\0".join(named)
        if not _is_magic(together) and "{" not in together and _count_nuls(together) == len(named) - 1:
            here = os.getcwd() if not all(path.startswith("/") for path in named) else ""
            return [path if path.startswith("/") else os.path.join(here, path) for path in named]
    return [each for path in named for each in _expand(path, option)]


def _check_list(option: str, paths: Any) -> Iterable[Any]:
    if isinstance(paths, Mapping):
        raise OptionError(
            f"{option} is a {type(paths).__name__} of {', '.join(map(repr, list(paths)[:5]))}: give the paths that one "
            "of them has",
            option=option,
            value=paths,
        )
    if isinstance(paths, bytes) or not isinstance(paths, Iterable):
        raise OptionError(
            f"{option} is {shown(paths)}: give a path, a pattern, or a list of them",
            option=option,
            value=paths,
        )
    check_ordered(option, paths)
    return paths


def check_ordered(option: str, value: Any) -> None:
    """Raise `OptionError` for what gives its items in another order in another process."""
    if isinstance(value, set | frozenset):
        raise OptionError(
            f"{option} is a {type(value).__name__}, whose order is another one in each process, so that no run could "
            f"go on where another one was: give a list, such as sorted({option})",
            option=option,
            value=value,
        )


def _check_file(given: str, path: str, option: str, usual: str) -> None:
    if os.path.isdir(path):
        raise OptionError(
            f"{option} is {given!r}, a folder: say which files of it, such as {os.path.join(given, usual)!r}, or with "
            "'**' between the two those in folders below it too",
            option=option,
            value=given,
        )
    os.stat(path)


def _expand(path: Any, option: str) -> list[str]:
    path = os.fspath(path) if isinstance(path, os.PathLike) else path
    if not isinstance(path, str) or not path:
        raise OptionError(f"a path is {shown(path)}: name a file, or a pattern", option=option, value=path)
    _check_name(path, option)
    absolute = path if path.startswith("/") else os.path.join(os.getcwd(), path)
    may_be_several = has_braces(path)
    if not (may_be_several or _is_magic(path)) or os.path.lexists(absolute):
        return [absolute]
    if may_be_several:
        there, rest = _divide_there(absolute)
        if has_braces(rest):
            return [
                file for each in expand_braces(rest) for file in _expand(os.path.join(there, each), option)
            ]
    base, pattern = _divide(absolute)
    found = find_paths(Path(base), pattern) if os.path.isdir(base) else []
    if not found:
        raise OptionError(
            f"{option} is {path!r}, and no file fits that: {base} was looked through for {pattern}"
            if os.path.isdir(base)
            else f"{option} is {path!r}, and there is no folder {base}",
            option=option,
            value=path,
        )
    return found


def _count_nuls(path: str) -> int:
    """Return how many NULs are in a path, and -1 where it cannot be the name of a file for another reason."""
    try:
        return os.fsencode(path).count(b"\0")
    except UnicodeEncodeError:
        return -1


def _check_name(path: str, option: str) -> None:
    """Raise `OptionError` for what no file can be called, of which Python says neither what it is nor where."""
    nuls = _count_nuls(path)
    if nuls:
        problem = "a NUL in it" if nuls > 0 else "half of a surrogate pair in it"
        raise OptionError(
            f"a path is {path!r}, and no file has a name with {problem}: name a file, or a pattern",
            option=option,
            value=path,
        )


def _divide_there(path: str) -> tuple[str, str]:
    """Cut a path into the folder that is there as it is written, and the rest."""
    names = [name for name in path.split("/") if name not in ("", ".")]
    base = "/"
    for at, name in enumerate(names):
        inner = os.path.join(base, name)
        if not os.path.lexists(inner):
            return base, "/".join(names[at:])
        base = inner
    return base, ""


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
