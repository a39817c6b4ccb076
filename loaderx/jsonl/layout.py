"""What an index is on disk: its folder, its three files, and what they say.

``file_location.txt`` has a path a line, ``sample_locations.bin`` three little-endian uint64 a sample (number of the
file, first byte, number of bytes), and ``index.json``, written last, what the other two must be, and of each text file
what it was when it was indexed. data-forager has the first two, and gives them the same meaning.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from loaderx.errors import OptionError, StaleIndexError
from loaderx.store.options import check_path

LOCATIONS = "sample_locations.bin"
NAMES = "file_location.txt"
FACTS = "index.json"

#: Bytes of a sample's row in `LOCATIONS`.
ROW_BYTES = 24

#: A byte-order mark of UTF-8, which at a text file's beginning belongs to no line.
MARK = b"\xef\xbb\xbf"

DEFAULT_FOLDER = "index"
DEFAULT_PATTERN = "**/*.jsonl"

_FORMAT = "loaderx-jsonl-index"
_VERSION = 1


class FileFacts(NamedTuple):
    """What a text file was when it was indexed.

    Attributes
    ----------
    size : int
        Bytes of it that were looked at.
    mtime_ns : int
        When it had been changed last.
    fingerprint : str
        Of its first `size` bytes, in hexadecimal (see `loaderx._core.lines.LineScanner.fingerprint`).
    indexed_bytes : int
        Where its last whole line ends. What is behind that is a line that may not have been finished.
    unfinished_sample : int or None
        The sample which that line is; None where there is none, or where it is blank.
    """

    size: int
    mtime_ns: int
    fingerprint: str
    indexed_bytes: int
    unfinished_sample: int | None

    @property
    def is_unfinished(self) -> bool:
        """Whether the last line had no end."""
        return self.indexed_bytes < self.size


class PartFacts(NamedTuple):
    """Size and hash (XXH3-64, in hexadecimal) of a file of the index."""

    size: int
    xxh3_64: str


@dataclass(frozen=True)
class IndexFacts:
    """What ``index.json`` says.

    Attributes
    ----------
    count : int
        Number of samples.
    pattern : str or None
        Which files were looked for; None: the index is of a single file.
    names, locations : PartFacts
        The other two files of the index.
    files : tuple of FileFacts
        In the order of ``file_location.txt``.
    """

    count: int
    pattern: str | None
    names: PartFacts
    locations: PartFacts
    files: tuple[FileFacts, ...]

    def to_json(self) -> bytes:
        """Write it as JSON, a text file a line."""
        head = {
            "format": _FORMAT,
            "version": _VERSION,
            "count": self.count,
            "pattern": self.pattern,
            NAMES: self.names._asdict(),
            LOCATIONS: self.locations._asdict(),
        }
        rows = ",\n".join(map(_file_row, self.files))
        return (json.dumps(head, indent=1)[:-2] + ',\n "files": [\n' + rows + "\n ]\n}\n").encode()

    @classmethod
    def from_json(cls, data: bytes, path: Path) -> IndexFacts:
        """Read what `to_json` wrote.

        Raises
        ------
        StaleIndexError
            It is damaged, or of another format or version.
        """
        try:
            head: Any = json.loads(data)
            if head["format"] != _FORMAT or type(head["version"]) is not int:
                raise ValueError
            if head["version"] != _VERSION:
                reason = f"it is of version {head['version']}, and this release reads version {_VERSION}"
                raise StaleIndexError(
                    f"{path}: {reason}; build the index anew (build_index)", file=path, reason=reason
                )
            facts = cls(
                _whole(head["count"]),
                head["pattern"],
                _part_facts(head[NAMES]),
                _part_facts(head[LOCATIONS]),
                tuple(_file_facts(row) for row in head["files"]),
            )
            if not isinstance(facts.pattern, str | None) or facts.pattern == "":
                raise ValueError
            if facts.locations.size != facts.count * ROW_BYTES:
                raise ValueError
        except (ValueError, KeyError, TypeError, RecursionError):
            reason = "it is damaged, or not an index's"
            raise StaleIndexError(
                f"{path}: {reason}; build the index anew (build_index)", file=path, reason=reason
            ) from None
        return facts


def _file_row(facts: FileFacts) -> str:
    # Numbers, and a text of hexadecimal digits: json would take four times as long for many files.
    sample = "null" if facts.unfinished_sample is None else facts.unfinished_sample
    return (
        f'  {{"size": {facts.size}, "mtime_ns": {facts.mtime_ns}, "fingerprint": "{facts.fingerprint}", '
        f'"indexed_bytes": {facts.indexed_bytes}, "unfinished_sample": {sample}}}'
    )


def _part_facts(part: dict[str, Any]) -> PartFacts:
    return PartFacts(_whole(part["size"]), str(part["xxh3_64"]))


def _file_facts(row: dict[str, Any]) -> FileFacts:
    sample = row["unfinished_sample"]
    facts = FileFacts(
        _whole(row["size"]),
        row["mtime_ns"],
        str(row["fingerprint"]),
        _whole(row["indexed_bytes"]),
        None if sample is None else _whole(sample),
    )
    if type(facts.mtime_ns) is not int or facts.indexed_bytes > facts.size:
        raise ValueError
    return facts


def _whole(value: Any) -> int:
    if type(value) is not int or not 0 <= value < 2**63:
        raise ValueError
    return value


@dataclass(frozen=True)
class Place:
    """Where text files and their index are.

    Attributes
    ----------
    base : pathlib.Path
        The folder that listed paths begin in; absolute.
    folder : pathlib.Path
        The index; absolute.
    single : str or None
        Name of the text file in `base`, where the index is of that file alone.
    """

    base: Path
    folder: Path
    single: str | None


def find_place(
    base_path: str | os.PathLike[str], index_folder: str | os.PathLike[str] | None = None
) -> Place:
    """Give where the index of a folder, or of a file, is.

    Parameters
    ----------
    base_path : path
        A folder, with its index in ``index`` within it, or a file, with its index beside it in ``NAME.index``.
    index_folder : path, optional
        Another folder for the index; a relative one begins in the base.
    """
    path = Path(os.path.abspath(check_path(base_path)))
    single = path.name if path.is_file() else None
    base = path if single is None else path.parent
    if index_folder is None:
        index_folder = DEFAULT_FOLDER if single is None else f"{single}.index"
    folder = Path(os.path.normpath(base / index_folder))
    if folder == base:
        raise OptionError(
            f"index_folder is {os.fspath(index_folder)!r}: the index needs a folder of its own",
            option="index_folder",
            value=index_folder,
        )
    return Place(base, folder, single)


def names_to_bytes(names: Sequence[str]) -> bytes:
    """Write paths for ``file_location.txt``."""
    return b"".join(os.fsencode(name) + b"\n" for name in names)


def names_from_bytes(data: bytes) -> list[str]:
    """Read the paths of a ``file_location.txt``."""
    names = os.fsdecode(data).split("\n")
    if not names[-1]:
        names.pop()
    return names
