"""What a source turns out to be: names of files among strings, files that hold no text, an index that lacks some."""

from __future__ import annotations

import os
import stat
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from loaderx.errors import OptionError, StaleIndexWarning
from loaderx.jsonl import Index
from loaderx.jsonl.archives import TextFile
from loaderx.jsonl.layout import DEFAULT_PATTERN, Place
from loaderx.jsonl.walk import find_files
from loaderx.store import files

_TEXT_FILE = ".jsonl"
_NAMED = 3


def as_paths(source: Any) -> list[str] | None:
    """Return the absolute paths that a list or tuple of paths names; None: it is something else.

    Raises
    ------
    OptionError
        It is of strings alone, and each is the name of a file: as documents they would be tokenized themselves.
    """
    if not isinstance(source, list | tuple) or not source:
        return None
    if not all(isinstance(item, str | os.PathLike) for item in source):
        return None
    if any(isinstance(item, os.PathLike) for item in source):
        return [os.path.abspath(item) for item in source]
    if all(item.endswith(_TEXT_FILE) or os.path.isfile(item) for item in source):
        raise OptionError(
            f"source is a list of strings that are names of files ({_listed(source)}), and strings are documents: give "
            'pathlib.Path objects to have the files read, or {"text": ...} objects to have their names tokenized',
            option="source",
            value=source,
        )
    return None


def check_text_files(paths: Sequence[str | os.PathLike[str]]) -> None:
    """Raise where a file cannot be read line by line.

    Raises
    ------
    OptionError
        It is no regular file, or compressed.
    ArchiveError
        It is another kind of archive.
    StoreIOError
    """
    for path in map(Path, paths):
        with files.errors_named(path, "read it"):
            if not stat.S_ISREG(os.stat(path).st_mode):
                raise OptionError(
                    f"{path}: not a regular file: of several sources each is a JSONL file; give a folder, or a store "
                    "of lines, alone",
                    option="source",
                    value=path,
                )
            kind = TextFile(path).kind
        if kind is not None:
            raise OptionError(
                f"{path}: compressed by {kind.name}, and only text is read: make a store of lines of it (write_lines, "
                "or python -m loaderx convert FILES STORE --lines), and give that as the source",
                option="source",
                value=path,
            )


def fits_pattern(index: Index, pattern: str | None) -> bool:
    """Return whether an index is of the files that a pattern asks for."""
    return pattern is None or index.facts is None or index.facts.pattern == pattern


def warn_of_missing(index: Index, place: Place) -> None:
    """Warn of what an index lacks: new files, and what was added to files.

    Warns
    -----
    StaleIndexWarning
        Once for all of it.
    """
    assert index.facts is not None, "indices of other programs are not taken"
    new: list[str] = []
    if place.single is None:
        known = set(index.names)
        with files.errors_named(place.base, "find its files"):
            found = find_files(place, index.facts.pattern or DEFAULT_PATTERN)
        new = [os.fspath(place.base / file.name) for file in found if file.name not in known]
    told = []
    if new:
        told.append(f"{len(new):,} new file{'s' if len(new) > 1 else ''} ({_listed(new)})")
    if index.grown:
        told.append(f"what was added to {len(index.grown):,} ({_listed(index.grown)})")
    if told:
        what = place.base if place.single is None else place.base / place.single
        warnings.warn(
            f"{what}: its index lacks {' and '.join(told)}: only what is indexed is tokenized. Index the rest by "
            f"update_index, or python -m loaderx index {what} --update",
            StaleIndexWarning,
            stacklevel=_outside(),
        )


def _outside() -> int:
    """Return the `stacklevel`, for the function that calls this, of the code that called into this package."""
    level, frame = 1, sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("loaderx."):
        level, frame = level + 1, frame.f_back
    return level


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - _NAMED:,} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more
