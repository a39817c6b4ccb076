"""Finding the text files below a folder, in natural order."""

from __future__ import annotations

import errno
import fnmatch
import itertools
import operator
import os
import re
import stat
import string
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from loaderx.errors import OptionError
from loaderx.jsonl.inside import Fence
from loaderx.jsonl.layout import LOCATIONS, NAMES, Place
from loaderx.store.natural import name_key

_ANY_FOLDERS = "**"


class Found(NamedTuple):
    """A text file: its path relative to the base, with "/" between the names, and its size in bytes."""

    name: str
    size: int


def find_files(place: Place, pattern: str, *, allow_outside: bool = False) -> list[Found]:
    """List the text files of a base folder that fit a pattern, folder by folder, part2 before part10.

    Parameters
    ----------
    place : Place
        With a single file, that is all there is.
    pattern : str
        Names with ``*``, ``?`` and ``[...]``, divided by ``/``; ``**`` stands for any folders, also none. As in a
        shell, names that begin with a dot fit only what begins with a dot.
    allow_outside : bool
        Whether symbolic links may lead out of the base.

    Raises
    ------
    OptionError
        The pattern is none; a name has a line break; a link leads out of the base.
    OSError
        A folder cannot be read; a name that fits leads nowhere, or to what is no regular file.

    Notes
    -----
    Symbolic links are followed; one to a folder that it lies in itself is not. Folders of indices are left out.
    """
    fence = Fence(place.base, allow_outside)
    if place.single is not None:
        path = fence.resolve(place.single)
        return [_found(place.single, path, os.stat(path))]
    walk = _Walk(_parse_pattern(pattern), fence)
    found = []
    for name, entry in walk.files(os.fspath(place.base)):
        found.append(_found(name, fence.resolve(name, entry.is_symlink()), entry.stat()))
    return found


def find_paths(base: Path, pattern: str) -> list[str]:
    """List the paths of what fits a pattern below a folder and is no folder, in the order of `find_files`.

    Parameters
    ----------
    base : pathlib.Path
        Absolute.
    pattern : str
        As `find_files` has it; a name that is written as it is in the pattern fits too, whatever ``[`` it has.

    Raises
    ------
    OptionError
        The pattern is none.
    OSError
        A folder cannot be read; a name that fits leads nowhere, or to what is no regular file.

    Notes
    -----
    Symbolic links are followed, but for those to a folder that they lie in. Of other files nothing is asked but what
    their folders say of them: with ten thousand that would take longer than all the rest.
    """
    walk = _Walk(_parse_pattern(pattern, may_be_names=True), Fence(base, True), list(map(str, base.parents)))
    paths = []
    for _, entry in walk.files(os.fspath(base)):
        if not entry.is_file():
            entry.stat()  # says of a link that it leads nowhere
            raise OSError(errno.EINVAL, "not a regular file", entry.path)
        paths.append(entry.path)
    return paths


def _found(name: str, path: str, info: os.stat_result) -> Found:
    if "\n" in name or "\r" in name:
        raise OptionError(
            f"{name!r} has a line break in its name, and an index lists its files a line each: rename it",
            option="base_path",
            value=name,
        )
    if not stat.S_ISREG(info.st_mode):
        raise OSError(errno.EINVAL, "not a regular file", path)
    return Found(name, info.st_size)


def _parse_pattern(pattern: str, may_be_names: bool = False) -> list[re.Pattern[str] | None]:
    """Cut a pattern into one for each name of a path, which may fit the name that is written like it too; None for any
    folders."""
    parts = pattern.split("/") if isinstance(pattern, str) else []
    if not all(parts) or {".", ".."} & set(parts) or not parts:
        raise OptionError(
            f"pattern is {pattern!r}: give names divided by '/', relative to the base, such as '**/*.jsonl'",
            option="pattern",
            value=pattern,
        )
    return [None if part == _ANY_FOLDERS else re.compile(_translate(part, may_be_names)) for part in parts]


def _translate(part: str, may_be_name: bool) -> str:
    expression = fnmatch.translate(part) if part.startswith(".") else r"(?!\.)" + fnmatch.translate(part)
    return rf"{expression}|{re.escape(part)}\Z" if may_be_name and "[" in part else expression


class _Walk:
    """A walk through folders: in each it knows which parts of the pattern a name there may fit."""

    def __init__(self, parts: list[re.Pattern[str] | None], fence: Fence, above: Sequence[str] = ()) -> None:
        self._parts = parts
        self._fence = fence
        # Folders above the base, which a link would lead back from.
        self._above = above

    def files(self, base: str) -> Iterator[tuple[str, os.DirEntry[str]]]:
        """Yield what fits below a folder and is none itself: its name relative to the folder, and its entry."""
        # No recursion: folders may lie deeper in one another than calls may.
        levels = [_Level(base, "", self._reached({0}), iter(_ordered(base)))]
        while levels:
            level = levels[-1]
            fits = self._final(level.reached)
            for entry in level.entries:
                if _is_folder(entry):
                    reached = self._within(entry.name, level.reached)
                    if reached and not _is_loop(entry, [*self._above, *(above.path for above in levels)]):
                        name = level.prefix + entry.name
                        self._fence.resolve(name, entry.is_symlink())
                        levels.append(_Level(entry.path, name + "/", reached, iter(_ordered(entry.path))))
                        break
                elif fits is not None and fits(entry.name):
                    yield level.prefix + entry.name, entry
            else:
                levels.pop()

    def _reached(self, state: set[int]) -> frozenset[int]:
        """Give the parts that a name may fit, of those at which it may begin: any folders may be none."""
        reached = set()
        for at in state:
            while at < len(self._parts):
                reached.add(at)
                if self._parts[at] is not None:
                    break
                at += 1
        return frozenset(reached)

    def _within(self, name: str, reached: frozenset[int]) -> frozenset[int]:
        """Give the parts that names within a folder may fit; none where nothing can."""
        inner = set()
        for at in reached:
            part = self._parts[at]
            if part is None:
                inner |= set() if name.startswith(".") else {at}
            elif part.match(name):
                inner.add(at + 1)
        return self._reached(inner)

    def _final(self, reached: frozenset[int]) -> Callable[[str], object] | None:
        """Give what says whether a file's name fits; None where no file does."""
        last = len(self._parts) - 1
        part = self._parts[last]
        if last not in reached:
            return None
        return _is_shown if part is None else part.match


class _Level(NamedTuple):
    """A folder that is being walked through."""

    path: str
    prefix: str
    reached: frozenset[int]
    entries: Iterator[os.DirEntry[str]]


def _ordered(folder: str) -> list[os.DirEntry[str]]:
    with os.scandir(folder) as entries:
        ordered = _in_order(list(entries))
    # An index is not text to be indexed, whatever the pattern.
    return [] if {NAMES, LOCATIONS} <= {entry.name for entry in ordered} else ordered


def _in_order(entries: list[os.DirEntry[str]]) -> list[os.DirEntry[str]]:
    entries.sort(key=operator.attrgetter("name"))
    numbers = _numbers([entry.name for entry in entries])
    if numbers is not None:
        return [entries[i] for i in sorted(range(len(entries)), key=numbers.__getitem__)]
    return sorted(entries, key=lambda entry: name_key(entry.name))


def _numbers(names: list[str]) -> list[int] | None:
    """Give the numbers that names, which are in order, differ in; None where they differ in something else.

    They are in natural order where these are, which of many shards of one set is known far sooner than by `name_key`.
    """
    if len(names) < 2:
        return None
    # What the first and the last have in common, those between them have too.
    begin = sum(1 for _ in itertools.takewhile(_are_equal, zip(names[0], names[-1], strict=False)))
    begin = len(names[0][:begin].rstrip(string.digits))
    tail = names[0][begin:].lstrip(string.digits)
    if not tail.endswith(os.path.splitext(names[0])[1]):
        return None  # a number in an extension is none
    middles = [name[begin : len(name) - len(tail)] for name in names if name.endswith(tail)]
    together = "".join(middles)
    if len(middles) < len(names) or not all(middles) or not (together.isascii() and together.isdecimal()):
        return None
    return list(map(int, middles))


def _are_equal(letters: tuple[str, str]) -> bool:
    return letters[0] == letters[1]


def _is_shown(name: str) -> bool:
    return not name.startswith(".")


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # links in a circle: an error where the name fits, and else nobody's concern
        return False


def _is_loop(entry: os.DirEntry[str], above: Sequence[str]) -> bool:
    if not entry.is_symlink():
        return False
    there = os.stat(entry.path)
    return any(os.path.samestat(there, os.stat(path)) for path in above)
