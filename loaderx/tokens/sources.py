"""Where documents come from: records in their order, from any place on where a run was cut off."""

from __future__ import annotations

import os
import warnings
from codecs import BOM_UTF8
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import accumulate, chain, islice
from pathlib import Path
from typing import Any, Protocol

from loaderx._core.lines import LineScanner
from loaderx.errors import JsonlError, OptionError, StaleIndexWarning, StateMismatchError, TokenizeError
from loaderx.jsonl import Index, JsonlDataset, TextLinesDataset
from loaderx.jsonl.byte_ranges import ByteRangeDataset
from loaderx.jsonl.layout import DEFAULT_PATTERN, FACTS, find_place
from loaderx.jsonl.line_store import StoreSource
from loaderx.jsonl.locating import parse_error
from loaderx.jsonl.parser import choose_parser
from loaderx.jsonl.walk import find_files
from loaderx.store import files
from loaderx.tokens.digests import sequence_identity
from loaderx.tokens.given import as_paths, check_text_files, fits_pattern, warn_of_missing

#: What a store of lines is known by.
LINES = "lines.json"

_BUFFER_BYTES = 1 << 18
# Records that are asked for ahead, where a source can be asked.
_AHEAD = 1024


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

    def peek(self) -> Iterator[tuple[Any, Place]]:
        """Yield the first records, which are still there for a `read` that follows."""

    def done_bytes(self, place: Place) -> int:
        """Return the bytes up to a place."""

    def name(self, place: Place) -> tuple[Path | None, int | None]:
        """Return the file and the line number of a document, where it has them."""


class ChangedFileError(TokenizeError):
    """A source file that was changed while it was read: what was written may be of both of its versions."""


class LineFiles:
    """JSONL files, read line by line as they are. Blank lines are no records, as in an index.

    A file is what it was when the source was opened: what is appended later is not read. One that is cut, rewritten or
    replaced is an error. Its size and time of change are compared when reading begins and when it ends, and where they
    differ its fingerprint decides; while it is read nothing but an append is let through.

    Parameters
    ----------
    base : pathlib.Path
        The folder that names are relative to.
    names : list of str
        The files, in their order.
    """

    def __init__(self, base: Path, names: list[str]) -> None:
        self._base = base
        self._names = names
        self._paths = [base / name for name in names]
        self._facts: list[os.stat_result] = []
        self._fingerprints: list[int | None] = []
        for name, path in zip(names, self._paths, strict=True):
            with (
                files.errors_named(base, f"read {name}"),
                files.opened(files.open_to_read(path)) as descriptor,
            ):
                self._facts.append(os.fstat(descriptor))
                self._fingerprints.append(LineScanner().fingerprint(descriptor, self._facts[-1].st_size))
        self._sizes = [facts.st_size for facts in self._facts]
        self._before = [0, *accumulate(self._sizes)]
        self.total_bytes: int | None = self._before[-1]
        self._parse = choose_parser(None)

    def identity(self) -> dict[str, Any]:
        """Return the names of the files, their sizes and what they hold."""
        return {
            "kind": "files",
            "files": [
                {"path": name, "bytes": n_bytes, "fingerprint": f"{fingerprint or 0:016x}"}
                for name, n_bytes, fingerprint in zip(
                    self._names, self._sizes, self._fingerprints, strict=True
                )
            ],
        }

    def read(self, after: Place | None) -> Iterator[tuple[Any, Place]]:
        """Yield the object of each line that is not blank; a `JsonlError` for one that is no JSON."""
        record = -1 if after is None else after.record
        first = 0 if after is None else after.file
        for number in range(first, len(self._paths)):
            begin, lines_before = 0, 0
            if after is not None and number == first:
                begin, lines_before = after.end, after.line_number
            for line, end, line_number in self._lines(number, begin, lines_before):
                record += 1
                try:
                    found = self._parse(line)
                except Exception as error:
                    found = parse_error(
                        self._paths[number], line_number, end - len(line), record, line.rstrip(b"\r\n"), error
                    )
                yield found, Place(record, number, end, line_number)
        for number, path in enumerate(self._paths):
            with files.errors_named(self._base, f"read {self._names[number]}"):
                if not self._is_same(number, os.stat(path)):
                    with files.opened(files.open_to_read(path)) as descriptor:
                        self._check(number, descriptor)

    def _lines(self, number: int, at: int, line_number: int) -> Iterator[tuple[bytes, int, int]]:
        """Yield the lines of a file that are not blank, where each ends, and its number; not what came in since."""
        with (
            files.errors_named(self._base, f"read {self._names[number]}"),
            open(self._paths[number], "rb", buffering=_BUFFER_BYTES) as stream,
        ):
            begun = self._check(number, stream.fileno())
            stream.seek(at)
            while line := stream.readline(self._sizes[number] - at):
                begin, at = at, at + len(line)
                line_number += 1
                if begin == 0 and line.startswith(BOM_UTF8):
                    line = line[len(BOM_UTF8) :]
                if line.strip(b" \t\r\n"):
                    yield line, at, line_number
            ended = self._check(number, stream.fileno())
            if at < self._sizes[number]:
                raise self._changed(number, f"it ended at byte {at}")
            if ended.st_mtime_ns != begun.st_mtime_ns and ended.st_size <= begun.st_size:
                raise self._changed(number, "it was written to")

    def _check(self, number: int, descriptor: int) -> os.stat_result:
        """Return what the system says of an open file that begins with what the source was opened with."""
        now, n_bytes = os.fstat(descriptor), self._sizes[number]
        if self._is_same(number, now):
            return now
        if now.st_size < n_bytes:
            raise self._changed(number, f"it has {now.st_size} bytes, and had {n_bytes}")
        if LineScanner().fingerprint(descriptor, n_bytes) != self._fingerprints[number]:
            raise self._changed(number, "it has other bytes than at the beginning")
        return now

    def _is_same(self, number: int, now: os.stat_result) -> bool:
        then = self._facts[number]
        return os.path.samestat(then, now) and (
            (then.st_size, then.st_mtime_ns) == (now.st_size, now.st_mtime_ns)
        )

    def _changed(self, number: int, problem: str) -> ChangedFileError:
        path = self._paths[number]
        return ChangedFileError(
            f"{path}: was changed while the run read it: {problem}. Begin anew with overwrite=True, once nothing "
            "writes to it",
            path=path,
        )

    def peek(self) -> Iterator[tuple[Any, Place]]:
        """Yield the records from the first on."""
        return self.read(None)

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
        With `__len__` and `__getitem__`, and perhaps `prefetch`.
    identity : dict, optional
        What is known of it, as JSON; None: as much as a sequence tells.
    """

    total_bytes: int | None = None

    def __init__(self, records: Any, identity: dict[str, Any] | None = None) -> None:
        self._records = records
        self._identity = identity or sequence_identity(records)
        self._prefetch = getattr(records, "prefetch", None)

    def identity(self) -> dict[str, Any]:
        """Return what is known of it."""
        return self._identity

    def read(self, after: Place | None) -> Iterator[tuple[Any, Place]]:
        """Yield record after record; an error of ours in place of one that cannot be read."""
        first = 0 if after is None else after.record + 1
        length = len(self._records)
        for record in range(first, length):
            if self._prefetch is not None and (record - first) % _AHEAD == 0:
                self._prefetch(range(record, min(record + _AHEAD, length)))
            try:
                found = self._records[record]
            except JsonlError as error:
                found = error
            yield found, Place(record)

    def peek(self) -> Iterator[tuple[Any, Place]]:
        """Yield the records from the first on."""
        return self.read(None)

    def done_bytes(self, place: Place) -> int:
        """Return 0: records have no bytes."""
        return 0

    def name(self, place: Place) -> tuple[Path | None, int | None]:
        """Return the file and the line of a sample of a dataset of lines; of anything else nothing is known."""
        return (
            self._records.where(place.record) if isinstance(self._records, ByteRangeDataset) else (None, None)
        )


class Streamed:
    """Any iterable, which is read once.

    Parameters
    ----------
    records : iterable
    """

    total_bytes: int | None = None

    def __init__(self, records: Iterable[Any]) -> None:
        self._records = records
        self._left: Iterator[Any] | None = None
        self._seen: list[Any] = []

    def identity(self) -> dict[str, Any]:
        """Return that nothing is known of it."""
        return {"kind": "iterable"}

    def read(self, after: Place | None) -> Iterator[tuple[Any, Place]]:
        """Yield record after record; those that are behind already are read again and left out."""
        start = 0 if after is None else after.record + 1
        found = chain(self._seen, self._rest())
        passed = sum(1 for _ in islice(found, start))
        if passed < start:
            raise StateMismatchError(
                f"the source has {passed} records, and the run that was cut off had read {start}: give an iterable "
                "that begins anew with the first one, or overwrite=True to begin anew",
                mismatches={"records": (start, passed)},
            )
        for record, item in enumerate(found, start):
            yield item, Place(record)

    def peek(self) -> Iterator[tuple[Any, Place]]:
        """Yield the first records, and keep them."""
        for item in self._rest():
            self._seen.append(item)
            yield item, Place(len(self._seen) - 1)

    def _rest(self) -> Iterator[Any]:
        if self._left is None:
            self._left = iter(self._records)
        return self._left

    def done_bytes(self, place: Place) -> int:
        """Return 0: records have no bytes."""
        return 0

    def name(self, place: Place) -> tuple[Path | None, int | None]:
        """Return that there is no file."""
        return None, None


def open_source(source: Any, pattern: str | None) -> Source:
    """Return a source of records.

    Parameters
    ----------
    source : path, sequence of pathlib.Path, Index, object with a length and ``[i]``, or iterable
        A path is a JSONL file, or a folder of them; read through its index where it has one.
    pattern : str, optional
        Which files of a folder. An index of another pattern is not used.

    Raises
    ------
    OptionError
        It is none of these; there are no files; they are compressed; `pattern` is given for what is no folder.
    StaleIndexError
        The files are not what was indexed.
    ArchiveError, StoreIOError

    Warns
    -----
    StaleIndexWarning
        The index of a path lacks files, or what was added to some.
    """
    if pattern is not None and not (isinstance(source, str | os.PathLike) and os.path.isdir(source)):
        raise OptionError(
            f"pattern is {pattern!r}, and says which files of a folder: leave it out, as the source is no folder",
            option="pattern",
            value=pattern,
        )
    if isinstance(source, Index):
        return _indexed(source)
    if isinstance(source, str | os.PathLike):
        return _open_path(Path(os.path.abspath(source)), pattern)
    paths = as_paths(source)
    if paths is not None:
        check_text_files(paths)
        base = Path(os.path.commonpath([os.path.dirname(path) for path in paths]))
        return LineFiles(base, [os.path.relpath(path, base) for path in paths])
    if isinstance(source, JsonlDataset | TextLinesDataset) and not isinstance(source._source, StoreSource):
        # What it was opened with decides how a sample is read, and its index what the samples are.
        options = {name: source._options[name] for name in ("index_folder", "allow_outside")}
        index = Index.open(source.path, check=False, **options)
        return Indexed(source, {**_index_identity(index), "records": len(source)})
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


def _open_path(path: Path, pattern: str | None) -> Source:
    if (path / LINES).is_file():
        if pattern is not None:
            raise OptionError(
                f"pattern is {pattern!r}, and {path} is a store of lines, not a folder of files: leave it out",
                option="pattern",
                value=pattern,
            )
        lines = JsonlDataset(path)
        return Indexed(lines, {"kind": "store of lines", "records": len(lines)})
    with files.errors_named(path, "read it"):
        os.stat(path)
    place = find_place(path)
    # An index that another program wrote may be one of anything.
    if (place.folder / FACTS).is_file():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", StaleIndexWarning)  # told of below, with what else is missing
            index = Index.open(path)
        if fits_pattern(index, pattern):
            warn_of_missing(index, place)
            return _indexed(index)
    with files.errors_named(path, "find its files"):
        found = find_files(place, DEFAULT_PATTERN if pattern is None else pattern)
    names = [file.name for file in found]
    if not names:
        told = f"fits {DEFAULT_PATTERN if pattern is None else pattern!r}"
        raise OptionError(f"{path}: no file here {told}", option="source", value=path)
    check_text_files([place.base / name for name in names])
    return LineFiles(place.base, names)


def _index_identity(index: Index) -> dict[str, Any]:
    identity: dict[str, Any] = {"kind": "index", "records": len(index)}
    if index.facts is not None:
        identity["locations"] = index.facts.locations.xxh3_64
        identity["files"] = [
            {"path": name, "bytes": file.size, "fingerprint": file.fingerprint}
            for name, file in zip(index.names, index.facts.files, strict=True)
        ]
    return identity


def _indexed(index: Index) -> Indexed:
    identity = _index_identity(index)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", StaleIndexWarning)  # was told of when the index was opened
        return Indexed(JsonlDataset(index.base, index_folder=index.folder), identity)
