"""Where documents come from: records in their order, from any place on where a run was cut off."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Protocol

from loaderx.errors import DocumentError, LoaderxError, OptionError, StateMismatchError
from loaderx.store import files

_BOM = b"\xef\xbb\xbf"
# How a file is recognised: by its size, and by so many pieces spread over it.
_PIECES = 64
_PIECE_BYTES = 4096
_AT_ONCE = 256


@dataclass(frozen=True, slots=True)
class Place:
    """Where behind a document the next one begins.

    Attributes
    ----------
    record : int
        Number of the document in the source, from 0.
    file : int
        Number of its file; 0 where the source has none.
    end : int
        Byte of the file behind it.
    line_number : int
        Its line in the file, from 1.
    """

    record: int
    file: int = 0
    end: int = 0
    line_number: int = 0


class Source(Protocol):
    """Records in an order that does not change.

    Attributes
    ----------
    total_bytes : int or None
        What `done_bytes` comes to at the end, where it is known.
    """

    total_bytes: int | None

    def identity(self) -> dict[str, Any]:
        """Return what tells this source from others, as JSON."""

    def read(self, after: Place | None) -> Iterator[tuple[Any, Place]]:
        """Yield the records behind a place, from the first on for None; an error in place of one that is none."""

    def done_bytes(self, place: Place) -> int:
        """Return the bytes up to a place."""

    def name(self, place: Place) -> tuple[Path | None, int | None]:
        """Return the file and the line number of a document, where it has them."""


class LineFiles:
    """JSONL files, read line by line as they are.

    Parameters
    ----------
    base : pathlib.Path
        The folder that names are relative to.
    paths : list of pathlib.Path
        In their order.
    """

    def __init__(self, base: Path, paths: list[Path]) -> None:
        self._base = base
        self._paths = paths
        with files.errors_named(base, "look at its files"):
            self._sizes = [os.stat(path).st_size for path in paths]
        self._before = [sum(self._sizes[:number]) for number in range(len(paths) + 1)]
        self.total_bytes: int | None = self._before[-1]

    def identity(self) -> dict[str, Any]:
        """Return the names of the files, their sizes and what they hold."""
        found = []
        for path, n_bytes in zip(self._paths, self._sizes, strict=True):
            name = os.path.relpath(path, self._base).replace(os.sep, "/")
            found.append({"path": name, "bytes": n_bytes, "fingerprint": _fingerprint(path, n_bytes)})
        return {"kind": "files", "files": found}

    def read(self, after: Place | None) -> Iterator[tuple[Any, Place]]:
        """Yield the object of each line that is not blank; a `DocumentError` for one that is no JSON."""
        record = -1 if after is None else after.record
        first = 0 if after is None else after.file
        for number in range(first, len(self._paths)):
            begin, lines_before = 0, 0
            if after is not None and number == first:
                begin, lines_before = after.end, after.line_number
            for line, end, line_number in self._lines(number, begin, lines_before):
                record += 1
                place = Place(record, number, end, line_number)
                yield self._parse(line, place), place

    def _lines(self, number: int, at: int, line_number: int) -> Iterator[tuple[bytes, int, int]]:
        """Yield the lines of a file that are not blank, where each ends, and its number; not what came in meanwhile."""
        with open(self._paths[number], "rb") as stream:
            stream.seek(at)
            while at < self._sizes[number] and (line := stream.readline(self._sizes[number] - at)):
                begin, at = at, at + len(line)
                line_number += 1
                if begin == 0 and line.startswith(_BOM):
                    line = line[len(_BOM) :]
                if line.strip(b" \t\r\n"):
                    yield line, at, line_number

    def _parse(self, line: bytes, place: Place) -> Any:
        try:
            return json.loads(line)
        except (ValueError, RecursionError) as error:
            file, line_number = self.name(place)
            return DocumentError(
                f"{file}, line {line_number} (document {place.record}): not JSON: {error}",
                document=place.record,
                file=file,
                line_number=line_number,
                kind="json",
                problem=f"not JSON: {error}",
            )

    def done_bytes(self, place: Place) -> int:
        """Return the bytes of the files before, and of this one's lines."""
        return self._before[place.file] + place.end

    def name(self, place: Place) -> tuple[Path | None, int | None]:
        """Return the file and the line."""
        return self._paths[place.file], place.line_number


class Indexed:
    """Anything with a length and ``[i]``.

    Parameters
    ----------
    records : object
        With `__len__` and `__getitem__`, and perhaps `__getitems__`.
    """

    total_bytes: int | None = None

    def __init__(self, records: Any) -> None:
        self._records = records

    def identity(self) -> dict[str, Any]:
        """Return its length: what it holds nobody knows before it is read."""
        return {"kind": "sequence", "records": len(self._records)}

    def read(self, after: Place | None) -> Iterator[tuple[Any, Place]]:
        """Yield record after record."""
        for record in range(0 if after is None else after.record + 1, len(self._records)):
            try:
                found = self._records[record]
            except LoaderxError as error:
                found = error
            yield found, Place(record)

    def done_bytes(self, place: Place) -> int:
        """Return 0: records have no bytes."""
        return 0

    def name(self, place: Place) -> tuple[Path | None, int | None]:
        """Return that there is no file."""
        return None, None


class Streamed:
    """Any iterable, which is read once.

    Parameters
    ----------
    records : iterable
    """

    total_bytes: int | None = None

    def __init__(self, records: Iterable[Any]) -> None:
        self._records = records

    def identity(self) -> dict[str, Any]:
        """Return that nothing is known of it."""
        return {"kind": "iterable"}

    def read(self, after: Place | None) -> Iterator[tuple[Any, Place]]:
        """Yield record after record; those that are behind already are read again and left out."""
        start = 0 if after is None else after.record + 1
        found = iter(self._records)
        passed = sum(1 for _ in islice(found, start))
        if passed < start:
            raise StateMismatchError(
                f"the source has {passed} records, and the run that was cut off had read {start}: give an iterable "
                "that begins anew with the first one, or overwrite=True to begin anew",
                mismatches={"records": (start, passed)},
            )
        for record, item in enumerate(found, start):
            yield item, Place(record)

    def done_bytes(self, place: Place) -> int:
        """Return 0: records have no bytes."""
        return 0

    def name(self, place: Place) -> tuple[Path | None, int | None]:
        """Return that there is no file."""
        return None, None


def open_source(source: Any, pattern: str) -> Source:
    """Return a source of records.

    Parameters
    ----------
    source : path, sequence of pathlib.Path, object with a length and ``[i]``, or iterable
        A path is a JSONL file, or a folder of them.
    pattern : str
        Which files of a folder.

    Raises
    ------
    OptionError
        It is none of these, or there are no files.
    StoreIOError
    """
    if isinstance(source, str | os.PathLike):
        path = Path(os.path.abspath(source))
        if path.is_dir():
            return LineFiles(path, _find_files(path, pattern))
        return LineFiles(path.parent, [path])
    if isinstance(source, list | tuple) and source and all(isinstance(item, os.PathLike) for item in source):
        paths = [Path(os.path.abspath(path)) for path in source]
        return LineFiles(Path(os.path.commonpath([path.parent for path in paths])), paths)
    if not isinstance(source, Mapping | bytes | bytearray | set | frozenset):
        if hasattr(source, "__len__") and hasattr(source, "__getitem__"):
            return Indexed(source)
        if isinstance(source, Iterable):
            return Streamed(source)
    raise OptionError(
        f"source is a {type(source).__name__}: give the path of a JSONL file or of a folder of them, a dataset, or an "
        "iterable of records",
        option="source",
        value=source,
    )


def _find_files(folder: Path, pattern: str) -> list[Path]:
    found = sorted(path for path in folder.glob(pattern) if path.is_file())
    if not found:
        raise OptionError(f"{folder}: no file here is called {pattern}", option="source", value=folder)
    return found


def _fingerprint(path: Path, n_bytes: int) -> str:
    """Return a hash of a file's first `n_bytes`: of all of a small one, of pieces spread over a large one."""
    digest = hashlib.blake2b(digest_size=16)
    with open(path, "rb", buffering=0) as stream:
        if n_bytes <= _PIECES * _PIECE_BYTES:
            digest.update(stream.read(n_bytes))
        else:
            for piece in range(_PIECES):
                stream.seek((n_bytes - _PIECE_BYTES) * piece // (_PIECES - 1))
                digest.update(stream.read(_PIECE_BYTES))
    return digest.hexdigest()
