"""The lines of text files as samples: as the objects that they say, or as text."""

from __future__ import annotations

import os
from typing import Literal

from loaderx.jsonl.byte_ranges import ByteRangeDataset, Io, OnError
from loaderx.jsonl.parser import Parse, choose_decoder, choose_parser


class JsonlDataset(ByteRangeDataset):
    """The lines of JSONL files as they are, or of a store of lines, each as the object it says.

    Parameters
    ----------
    base_path : str or os.PathLike
        The folder whose files `build_index` indexed, or the one file that it did; or a store of lines.
    parse : callable or {"orjson", "json"}, optional
        Given the bytes of a line without its end, returns what the dataset is to give for it. None: ``orjson.loads``
        where orjson is installed, else ``json.loads``. orjson makes floats of whole numbers beyond 64 bits, and refuses
        ``NaN``, ``Infinity``, numbers above the largest float and halves of surrogate pairs; "json" reads them all.
    on_error, io, index_folder, allow_outside, threads
        As in `ByteRangeDataset`.

    Attributes
    ----------
    path : pathlib.Path
    num_skipped : int
        As in `ByteRangeDataset`.

    Raises
    ------
    NotAnIndexError
        There is no index, and no store.
    SchemaError
        There is a store of something else.
    MissingDependencyError
        `parse` is "orjson", which is not installed.
    StaleIndexError, StoreIOError, OptionError

    Notes
    -----
    As `ByteRangeDataset`, threads, forks and pickling included.

    Examples
    --------
    >>> from loaderx.jsonl import JsonlDataset, build_index
    >>> _ = (tmp_path / "a.jsonl").write_text('{"n": 1}\\n{"n": 2}\\n{"n": 3}\\n')
    >>> len(build_index(tmp_path))
    3
    >>> with JsonlDataset(tmp_path) as dataset:
    ...     dataset[-1], dataset[[2, 0]], dataset.raw(1)
    ({'n': 3}, [{'n': 3}, {'n': 1}], b'{"n": 2}')
    """

    _are_lines = True

    def __init__(
        self,
        base_path: str | os.PathLike[str],
        *,
        parse: Parse | Literal["orjson", "json"] | None = None,
        on_error: OnError = "raise",
        io: Io = "mmap",
        index_folder: str | os.PathLike[str] | None = None,
        allow_outside: bool = False,
        threads: int = 0,
    ) -> None:
        self._open(base_path, choose_parser(parse), on_error, io, index_folder, allow_outside, threads)
        self._options["parse"] = parse


class TextLinesDataset(ByteRangeDataset):
    """The lines of text files as they are, or of a store of lines, each as a str without its line end.

    Parameters
    ----------
    base_path : str or os.PathLike
        As in `JsonlDataset`.
    encoding : str
        Of the files. A line that is not in it is a sample that does not parse.
    on_error, io, index_folder, allow_outside, threads
        As in `ByteRangeDataset`.

    Raises
    ------
    NotAnIndexError, SchemaError, StaleIndexError, StoreIOError, OptionError

    Notes
    -----
    Lines end with the byte 10 only, and blank ones are no samples: `build_index`.
    """

    _are_lines = True

    def __init__(
        self,
        base_path: str | os.PathLike[str],
        *,
        encoding: str = "utf-8",
        on_error: OnError = "raise",
        io: Io = "mmap",
        index_folder: str | os.PathLike[str] | None = None,
        allow_outside: bool = False,
        threads: int = 0,
    ) -> None:
        self._open(base_path, choose_decoder(encoding), on_error, io, index_folder, allow_outside, threads)
        self._options["encoding"] = encoding
