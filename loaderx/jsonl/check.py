"""Looking at all of an index, and at what it is of."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from loaderx.errors import StaleIndexError
from loaderx.jsonl.fingerprint import look_at
from loaderx.jsonl.index import Index
from loaderx.jsonl.layout import DEFAULT_PATTERN, LOCATIONS, NAMES, find_place
from loaderx.jsonl.walk import find_files
from loaderx.jsonl.writing import hash_file
from loaderx.store import files
from loaderx.store.options import check_flag

# Rows that are looked at at once.
_ROWS = 1 << 20


@dataclass(frozen=True)
class IndexReport:
    """What was found in an index and in its files.

    Attributes
    ----------
    folder : pathlib.Path
        The index.
    samples, files : int
        How many it has.
    known : bool
        Whether it says what its files were; False for another program's.
    damaged : tuple of (pathlib.Path, str)
        Files of the index that are not as they were written, and what is wrong with each.
    changed : tuple of (pathlib.Path, str)
        Text files that are not what was indexed, and what is wrong with each.
    grown : tuple of pathlib.Path
        Text files that have grown.
    new : tuple of pathlib.Path
        Text files that fit the pattern and are not in the index.
    """

    folder: Path
    samples: int
    files: int
    known: bool
    damaged: tuple[tuple[Path, str], ...]
    changed: tuple[tuple[Path, str], ...]
    grown: tuple[Path, ...]
    new: tuple[Path, ...]

    @property
    def ok(self) -> bool:
        """Whether the index is whole, and has all of what its files hold now."""
        return not (self.damaged or self.changed or self.grown or self.new)

    def as_dict(self) -> dict[str, Any]:
        """Return it for JSON."""

        def faults(found: tuple[tuple[Path, str], ...]) -> list[dict[str, str]]:
            return [{"file": str(path), "problem": problem} for path, problem in found]

        return {
            "index": str(self.folder),
            "ok": self.ok,
            "samples": self.samples,
            "files": self.files,
            "known": self.known,
            "damaged": faults(self.damaged),
            "changed": faults(self.changed),
            "grown": [str(path) for path in self.grown],
            "new": [str(path) for path in self.new],
        }


def check_index(
    base_path: str | os.PathLike[str],
    *,
    index_folder: str | os.PathLike[str] | None = None,
    allow_outside: bool = False,
) -> IndexReport:
    """Look at all of an index: its hashes, every place in it, and whether each file is still what was indexed.

    Parameters
    ----------
    base_path, index_folder, allow_outside
        As for `Index.open`.

    Returns
    -------
    IndexReport

    Raises
    ------
    NotAnIndexError
        There is no index.
    StaleIndexError
        It is so damaged that it cannot be opened.
    OptionError
        A listed file lies outside of the base.
    OSError
        The system refuses to read.

    Notes
    -----
    Reads the index, and of each file the 64 blocks that its fingerprint is of, where its size or its time of change is
    another. Changes nothing.
    """
    place = find_place(base_path, index_folder)
    index = Index(place, check_flag("allow_outside", allow_outside))
    changed: list[tuple[Path, str]] = []
    grown: list[Path] = []
    new: list[Path] = []
    sizes: list[int] = []
    for number, path in enumerate(index.paths):
        try:
            if index.facts is None:
                sizes.append(os.stat(path).st_size)
            else:
                facts = index.facts.files[number]
                sizes.append(facts.size)
                if look_at(path, facts).st_size > facts.size:
                    grown.append(Path(path))
        except StaleIndexError as error:
            changed.append((error.file, error.reason))
        except FileNotFoundError:
            sizes.append(0)
            changed.append((Path(path), "it is not there"))
    damaged = [*_wrong_hashes(index), *_wrong_rows(index, sizes)]
    if index.facts is not None:
        known = set(index.names)
        found = find_files(place, index.facts.pattern or DEFAULT_PATTERN, allow_outside=allow_outside)
        new = [place.base / file.name for file in found if file.name not in known]
    return IndexReport(
        index.folder,
        len(index),
        len(index.paths),
        index.facts is not None,
        tuple(damaged),
        tuple(changed),
        tuple(grown),
        tuple(new),
    )


def _wrong_hashes(index: Index) -> list[tuple[Path, str]]:
    wrong = []
    if index.facts is not None:
        for name, part in ((NAMES, index.facts.names), (LOCATIONS, index.facts.locations)):
            path = index.folder / name
            with files.opened(files.open_to_read(path)) as descriptor:
                hashed = hash_file(descriptor)
            if hashed != part.xxh3_64:
                wrong.append((path, f"its hash is {hashed}, and that of what was written {part.xxh3_64}"))
    return wrong


def _wrong_rows(index: Index, sizes: list[int]) -> list[tuple[Path, str]]:
    limits = np.array(sizes, np.uint64)
    for at in range(0, len(index), _ROWS):
        number, begin, size = np.asarray(index.locations[at : at + _ROWS]).T
        wrong = number >= len(limits)
        room = limits[np.where(wrong, 0, number)] if len(limits) else np.zeros_like(begin)
        wrong |= (begin > room) | (size > room - np.minimum(begin, room))
        if wrong.any():
            sample = at + int(np.flatnonzero(wrong)[0])
            row = ", ".join(map(str, index.locations[sample].tolist()))
            problem = f"sample {sample} (file, byte, bytes: {row}) lies outside of the files"
            return [(index.folder / LOCATIONS, problem)]
    return []
