"""`lines.json`: what says that the records of a store are lines of text."""

from __future__ import annotations

import json
from pathlib import Path

from loaderx.errors import NotAStoreError, SchemaError
from loaderx.store import files
from loaderx.store.format import CODECS, DICTIONARY, LINES
from loaderx.store.options import Codec, check_codec

_FORMAT = "loaderx-lines"
_VERSION = 1
_MAX_FILE_BYTES = 1 << 20


def write_lines_file(path: Path, codec: Codec) -> None:
    """Write `lines.json` into a store's directory, with the codec that it was first written with."""
    document = {"format": _FORMAT, "version": _VERSION, "codec": codec}
    with files.errors_named(path, f"write {LINES}"):
        files.write_new(path / LINES, (json.dumps(document, indent=2) + "\n").encode())


def read_lines_file(path: Path) -> Codec:
    """Check that a store's records are lines of text, and return the codec to append with.

    It is the one that the store was first written with; a file that names none leaves it to whether there is a
    dictionary.

    Parameters
    ----------
    path : pathlib.Path
        The store's directory.

    Raises
    ------
    NotAStoreError
        It has no `lines.json`: it is no store, or one of something else.
    SchemaError
        That is not what this release can read.
    StoreIOError
    """
    with files.errors_named(path, f"read {LINES}"):
        try:
            data = files.read_whole(path / LINES, _MAX_FILE_BYTES)
        except (FileNotFoundError, NotADirectoryError):
            raise NotAStoreError(f"{path}: not a store of lines: it has no {LINES}", store=path) from None
    try:
        document = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise _wrong(path, f"it is not JSON ({error})") from None
    if not isinstance(document, dict):
        raise _wrong(path, f"it holds a {type(document).__name__}, not an object")
    if document.get("format") != _FORMAT:
        raise _wrong(path, f"its format is {document.get('format')!r}, not {_FORMAT!r}")
    if type(document.get("version")) is not int or document["version"] != _VERSION:
        raise _wrong(path, f"its version is {document.get('version')!r}, and this release reads {_VERSION}")
    codec = document.get("codec", "zstd_dict" if (path / DICTIONARY).exists() else "zstd")
    if not isinstance(codec, str) or codec not in CODECS:
        raise _wrong(path, f"codec is {codec!r}, not one of {', '.join(CODECS)}")
    checked: Codec = check_codec(codec)
    return checked


def _wrong(path: Path, problem: str) -> SchemaError:
    return SchemaError(f"{path}: {LINES} is wrong: {problem}. Restore it from a copy", path=path)
