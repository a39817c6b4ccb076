"""Every exception loaderx raises, in one place.

::

    LoaderxError
    ├── ZrecordError (RuntimeError)            .code        everything a store raises
    │   ├── StoreMemoryError (MemoryError)       -1         memory ran out
    │   ├── StoreLockedError                     -2         somebody else holds the store
    │   ├── StoreIOError (OSError)               -2         the operating system refused a read or a write
    │   ├── ClosedError                          -2         the handle was closed
    │   ├── RecordIndexError (IndexError)        -3         an index no record has
    │   ├── RecordTooLargeError (ValueError)     -4         a record over the format's limit
    │   ├── StoreFullError                       -5         no room for another record
    │   ├── DestinationError (ValueError)        -6         a buffer too small, strided, read-only or overlapping
    │   ├── CorruptRecordError                   -7         stored bytes that contradict themselves
    │   ├── DictionaryError (ValueError)         -9 or -7   training failed, or the dictionary is missing, or damaged
    │   ├── NotAStoreError (FileNotFoundError)   -8         no store at this path
    │   └── FormatVersionError                   -8         a store of a version this release cannot read
    ├── SchemaError (ValueError)                            schema.json, or an array that does not fit it
    ├── ArchiveError (ValueError)                           a file that is cut off, damaged or of another kind
    ├── OptionError (ValueError)                            an argument outside its range
    ├── StaleIndexError                                     text files that are not what was indexed
    ├── NotAnIndexError (FileNotFoundError)                 no index of text files at this path
    ├── StateMismatchError (ValueError)                     a saved state of something else
    ├── LoaderError (RuntimeError)                          a loader that cannot make a batch here
    ├── DocumentError (ValueError)                          a document that cannot be made into tokens
    ├── TokenizeError (RuntimeError)                        a run of `tokenize` that cannot go on
    ├── JsonlError (ValueError)                             a line, or another sample of a file, that does not parse
    ├── StreamError (RuntimeError)                          a step of a stream that raised for an item
    └── MissingDependencyError (ImportError)                an optional package that is not installed

    StoreWarning (UserWarning)                              what stops nothing and should be known
    StaleIndexWarning (UserWarning)                         text files that have grown since they were indexed

Every exception carries its facts as attributes and says, in one message, what happened, what was got and what was
expected, where (store, record, byte), and what to do. All of them pickle, attributes included.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

__all__ = [
    "ArchiveError",
    "ClosedError",
    "CorruptRecordError",
    "DestinationError",
    "DictionaryError",
    "DocumentError",
    "FormatVersionError",
    "JsonlError",
    "LoaderError",
    "LoaderxError",
    "MissingDependencyError",
    "NotAStoreError",
    "NotAnIndexError",
    "OptionError",
    "RecordIndexError",
    "RecordTooLargeError",
    "SchemaError",
    "StaleIndexError",
    "StaleIndexWarning",
    "StateMismatchError",
    "StoreFullError",
    "StoreIOError",
    "StoreLockedError",
    "StoreMemoryError",
    "StoreWarning",
    "StreamError",
    "TokenizeError",
    "ZrecordError",
]


def _rebuild(cls: type[LoaderxError], message: str, attributes: dict[str, Any]) -> LoaderxError:
    return cls(message, **attributes)


class LoaderxError(Exception):
    """Base of every exception loaderx raises.

    Parameters
    ----------
    message : str
        The whole message.
    **attributes
        The facts behind it. Each class lists the names it takes in `attribute_names`; one that is not given is None.
    """

    attribute_names: ClassVar[tuple[str, ...]] = ()

    def __init__(self, message: str, **attributes: Any) -> None:
        unknown = attributes.keys() - set(self.attribute_names)
        if unknown:
            raise TypeError(f"{type(self).__name__} has no attribute {', '.join(sorted(unknown))}")
        for name in self.attribute_names:
            setattr(self, name, attributes.get(name))
        self.message = message
        super().__init__(message)

    def __str__(self) -> str:
        # OSError and KeyError have their own idea of str(); a user sees our message whatever the other base is.
        return self.message

    def __reduce__(self) -> tuple[Any, ...]:
        # Exception pickles by `args`, and OSError rewrites those, so that attributes would be lost or doubled.
        attributes = {name: getattr(self, name) for name in self.attribute_names}
        return _rebuild, (type(self), self.message, attributes)


class ZrecordError(LoaderxError, RuntimeError):
    """Base of everything a store raises.

    Parameters
    ----------
    message : str or int
        The message, or one of loaderx 0.7.3's codes (-1 to -9), which gives that code's general message.

    Attributes
    ----------
    code : int
        loaderx 0.7.3's number for this kind of failure.
    """

    code: int = 0
    attribute_names: ClassVar[tuple[str, ...]] = ("store",)
    store: Path | None

    def __init__(self, message: str | int, **attributes: Any) -> None:
        if isinstance(message, int):
            # Set only when it differs from the class's own, so that `raise ZrecordError(-3)` stays what it was.
            self.code = message
            message = _CODE_MESSAGES.get(message, f"unknown zrecord error {message}")
        super().__init__(message, **attributes)

    def __reduce__(self) -> tuple[Any, ...]:
        rebuild, arguments = super().__reduce__()
        return rebuild, arguments, {"code": self.code}


class StoreMemoryError(ZrecordError, MemoryError):
    """Memory for a batch or for a compression context ran out."""

    code = -1


class StoreIOError(ZrecordError, OSError):
    """The operating system refused to read or write a file of a store.

    Attributes
    ----------
    store : pathlib.Path
    path : pathlib.Path
        The file.
    errno : int or None
        The system's number for it, as in `OSError`.
    """

    code = -2
    attribute_names = ("store", "path", "errno")
    path: Path | None


class StoreLockedError(ZrecordError):
    """Somebody else holds the store: a writer, or readers where a change needs it alone.

    Attributes
    ----------
    store : pathlib.Path
    holder : int or None
        Process id of who holds it, where the system tells.
    since : str or None
        Since when, as a writer noted it (ISO 8601, UTC).
    """

    code = -2
    attribute_names = ("store", "holder", "since")
    holder: int | None
    since: str | None


class ClosedError(ZrecordError):
    """The handle was closed before this call."""

    code = -2


class RecordIndexError(ZrecordError, IndexError):
    """An index that no record of the store has.

    Attributes
    ----------
    store : pathlib.Path or None
    index : int or None
        The index as it was given.
    position : int or None
        Its place in the batch.
    length : int or None
        Number of records in the store.
    """

    code = -3
    attribute_names = ("store", "index", "position", "length")
    index: int | None
    position: int | None
    length: int | None


class RecordTooLargeError(ZrecordError, ValueError):
    """A record over the largest size the store's format version holds.

    Attributes
    ----------
    store : pathlib.Path
    position : int or None
        Its place in the batch.
    record_bytes, limit_bytes : int
    """

    code = -4
    attribute_names = ("store", "position", "record_bytes", "limit_bytes")
    position: int | None
    record_bytes: int
    limit_bytes: int


class StoreFullError(ZrecordError):
    """The store's format version has no room for another record.

    Attributes
    ----------
    store : pathlib.Path
    length : int
        Number of records in the store.
    requested : int
        Number of records that were to be appended.
    limit : int
    """

    code = -5
    attribute_names = ("store", "length", "requested", "limit")
    length: int
    requested: int
    limit: int


class DestinationError(ZrecordError, ValueError):
    """A buffer that is too small, not contiguous, read-only, or whose parts overlap.

    Attributes
    ----------
    store : pathlib.Path
    position : int or None
        The place in the batch that does not fit, where one is to blame.
    needed_bytes, given_bytes : int or None
    """

    code = -6
    attribute_names = ("store", "position", "needed_bytes", "given_bytes")
    position: int | None
    needed_bytes: int | None
    given_bytes: int | None


class CorruptRecordError(ZrecordError):
    """Stored bytes that contradict themselves: damaged, cut off, or not written by a Zrecord writer.

    Attributes
    ----------
    store : pathlib.Path
    record : int or None
        The record's index.
    chunk : int or None
        Number of the chunk file its table entry names.
    byte_offset : int or None
        Where in that file its table entry says it begins.
    problem : str or None
        What is wrong with the record, without where and what to do.
    """

    code = -7
    attribute_names = ("store", "record", "chunk", "byte_offset", "problem")
    record: int | None
    chunk: int | None
    byte_offset: int | None
    problem: str | None


class DictionaryError(ZrecordError, ValueError):
    """Training a dictionary failed (code -9), or the one that records need is missing or damaged (code -7)."""

    code = -9


class NotAStoreError(ZrecordError, FileNotFoundError):
    """There is no store at this path."""

    code = -8


class FormatVersionError(ZrecordError):
    """A store of a format version this release cannot read.

    Attributes
    ----------
    store : pathlib.Path
    version : int
        The version in the store's header.
    """

    code = -8
    attribute_names = ("store", "version")
    version: int


class SchemaError(LoaderxError, ValueError):
    """`schema.json` (of a store of lines `lines.json`) is missing, wrong, or does not fit the array or the records.

    Attributes
    ----------
    path : pathlib.Path or None
        The dataset.
    """

    attribute_names = ("path",)
    path: Path | None


class ArchiveError(LoaderxError, ValueError):
    """A file that was to be read from its beginning (text, tar, Parquet, Arrow) and is cut off, damaged, or of a kind
    that is not read.

    Attributes
    ----------
    file : pathlib.Path
    problem : {"cut off", "damaged", "of another kind"}
    whole_bytes : int
        Bytes of its text (of a tar archive, of the archive), from the beginning, that are right; 0 where nothing says
        how many are.
    whole_lines : int or None
        Lines that are whole within them, blank ones not counted; None where nobody counted.
    """

    attribute_names = ("file", "problem", "whole_bytes", "whole_lines")
    file: Path
    problem: str
    whole_bytes: int
    whole_lines: int | None


class OptionError(LoaderxError, ValueError):
    """An argument outside its range.

    Attributes
    ----------
    option : str
        The argument's name.
    value : object
        What was given.
    """

    attribute_names = ("option", "value")
    option: str
    value: object


class StaleIndexError(LoaderxError):
    """A text file, or the index of text files, is not what it was when the files were indexed.

    Attributes
    ----------
    file : pathlib.Path
        The file that differs: a text file, or one of the index.
    reason : str
        What is wrong with it, without what to do.
    """

    attribute_names = ("file", "reason")
    file: Path
    reason: str


class NotAnIndexError(LoaderxError, FileNotFoundError):
    """There is no index of text files at this path.

    Attributes
    ----------
    path : pathlib.Path
        The folder the index was expected in.
    """

    attribute_names = ("path",)
    path: Path


class StateMismatchError(LoaderxError, ValueError):
    """A saved state that does not fit what it was to be loaded into.

    Attributes
    ----------
    mismatches : dict of str to (object, object)
        What differs: the saved value, and the one here.
    """

    attribute_names = ("mismatches",)
    mismatches: dict[str, tuple[object, object]]


class LoaderError(LoaderxError, RuntimeError):
    """A loader that cannot make a batch.

    A worker process died, this process is a fork of the loader's, or one of several streams gave a list that does not
    fit the batch.

    Attributes
    ----------
    step : int or None
        The step whose batch it was.
    worker : int or None
        Process id of the worker that died.
    exit_code : int or None
        Its exit code; negative: the signal that ended it.
    """

    attribute_names = ("step", "worker", "exit_code")
    step: int | None
    worker: int | None
    exit_code: int | None


class DocumentError(LoaderxError, ValueError):
    """A document that cannot be made into tokens: it has no text, or its ids do not fit.

    Attributes
    ----------
    document : int
        Its number in the source, from 0.
    file : pathlib.Path or None
        The file it is in, where that is known.
    line_number : int or None
        Its line there, from 1.
    kind : {"empty", "missing", "null", "not_text", "parts", "function", "encode"}
    problem : str
        What is wrong with it, without where.
    """

    attribute_names = ("document", "file", "line_number", "kind", "problem")
    document: int
    file: Path | None
    line_number: int | None
    kind: str
    problem: str


class TokenizeError(LoaderxError, RuntimeError):
    """A run of `tokenize` that cannot go on: a worker process died, a file changed while it was read, or what it wrote
    before is not there any more.

    Attributes
    ----------
    path : pathlib.Path or None
        What it writes; the file that changed.
    """

    attribute_names = ("path",)
    path: Path | None


class JsonlError(LoaderxError, ValueError):
    """A line of a text file, or another sample that is a range of bytes, that does not parse.

    Attributes
    ----------
    file : pathlib.Path
        The file that it is in; of a store of lines the store.
    line_number : int or None
        From 1. None: it is in a store of lines, or is no line, or the file could not be read for counting.
    byte_offset : int or None
        Where in the file, or in the text of a compressed one, it begins; None in a store of lines.
    index : int or None
        The sample's; None where lines are read in passing (`loaderx.stream`).
    excerpt : str
        What stands where the parser stopped, or at the beginning; what is not printable is escaped.
    """

    attribute_names = ("file", "line_number", "byte_offset", "index", "excerpt")
    file: Path
    line_number: int | None
    byte_offset: int | None
    index: int | None
    excerpt: str


class StreamError(LoaderxError, RuntimeError):
    """A step of a stream that raised for an item: a function of the user's, or the step itself; the cause is kept.

    Attributes
    ----------
    node : str
        Which step of the stream: "map", "filter" and so on.
    function : str or None
        What the user's function is called; None: it was the step itself.
    where : str
        Which item it was called for: shard and position.
    """

    attribute_names = ("node", "function", "where")
    node: str
    function: str | None
    where: str


class MissingDependencyError(LoaderxError, ImportError):
    """An optional package that is not installed.

    Attributes
    ----------
    package : str
    extra : str or None
        The extra of loaderx that installs it, if there is one.
    """

    attribute_names = ("package", "extra")
    package: str
    extra: str | None


class StoreWarning(UserWarning):
    """Something about a store that its user should know and that stops nothing: records cut off after a power loss, a
    journal set aside, a file system without locks."""


class StaleIndexWarning(UserWarning):
    """Text files have grown since they were indexed: the index is right, and does not have what was added."""


_CODE_MESSAGES = {
    -1: "memory ran out",
    -2: "a file of the store could not be read or written",
    -3: "no record has this index",
    -4: "the record is over the format's limit of 1,048,576 bytes",
    -5: "the store has no room for another record",
    -6: "the buffer does not fit the records",
    -7: "the record's stored bytes are damaged",
    -8: "not a Zrecord store of a known version",
    -9: "a zstd dictionary could not be trained: too few samples, or too small ones",
}
