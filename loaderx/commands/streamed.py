"""Which sources of ``convert`` are read as streams, told by their names, and the options that go with them."""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from loaderx.commands.program import CommandError
from loaderx.store.folders import is_store
from loaderx.store.natural import natural_key

#: What `Stream` method reads files of which names; a compressed one is named so behind that, where it may be.
_FORMATS: Mapping[str, tuple[str, ...]] = {
    "parquet": (".parquet", ".pq"),
    "arrow": (".arrow", ".arrows", ".feather", ".ipc"),
    "webdataset": (".tar", ".tgz"),
    "jsonl": (".jsonl", ".ndjson"),
}
_COMPRESSED = ("", ".gz", ".bz2", ".xz", ".zst")
_MAY_BE_COMPRESSED = ("webdataset", "jsonl")
# Of such a folder the .npy files are what is converted.
_NPY = (".npy", ".npz")
#: The formats of a source that is a store, and of one that names a stream of somebody's own.
STORE = "store"
STREAM = "stream"
_NAME_OF_STREAM = re.compile(r"[^\W\d][\w.]*:[^\W\d][\w.]*")

_KINDS = ("array", "ragged", "lines", "columns")
_OPTIONS = ("kind", "decode", "skip_bad")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments that go with such sources only."""
    parser.add_argument(
        "--kind",
        choices=_KINDS,
        help="of Parquet, Arrow, tar, JSONL and streams: what items become. array: numbers, or arrays of one shape; "
        "ragged: arrays that differ in length, or bytes; lines: text, and JSON of anything else; columns: of dicts a "
        "folder DEST with a store NAME.zr for each name. Default: columns where there are arrays or bytes in dicts, "
        "else lines of dicts and text, else array or ragged",
    )
    parser.add_argument(
        "--decode",
        action="store_true",
        help="of tar archives: decode .txt, .json, .cls and .npy members; others stay bytes",
    )
    parser.add_argument(
        "--skip-bad",
        action="store_true",
        help="of JSONL and tar archives: leave out lines and samples that are bad, and count them",
    )


def is_streamed(options: argparse.Namespace) -> bool:
    """Tell whether what the arguments name is read as a stream.

    Raises
    ------
    CommandError
        They do not go together.
    """
    formats = {format_of(path) for source in options.sources for path in expand(source)}
    if STREAM in formats:
        refuse(options, "a stream", ("decode", "skip_bad", "ragged"))
        if len(options.sources) > 1:
            raise CommandError(f"a stream such as {options.sources[0]} is converted alone")
        return True
    if None not in formats and (formats != {"jsonl"} or options.kind or options.skip_bad):
        refuse(options, "such files", ("ragged",), "--kind ragged is what there is for them")
        return True
    refuse(options, "other sources than Parquet, Arrow, tar, JSONL and streams", _OPTIONS)
    return False


def refuse(options: argparse.Namespace, what: str, names: Sequence[str], instead: str = "") -> None:
    """Raise `CommandError` where one of some options is set, which does not go with what there is."""
    for name in names:
        if getattr(options, name):
            also = f"; {instead}" if instead else ""
            raise CommandError(f"--{name.replace('_', '-')} does not go with {what}{also}")


def expand(source: Path) -> list[Path]:
    """Return a source, or of a folder that is no store the files of one format, where it has no .npy files."""
    if not source.is_dir() or is_store(source):
        return [source]
    entries = sorted((entry for entry in source.iterdir() if entry.name[0] != "."), key=natural_key)
    if any(entry.suffix in _NPY for entry in entries):
        return [source]
    found = [entry for entry in entries if entry.is_file() and format_of(entry) is not None]
    if not found:
        return [source]
    return found


def format_of(path: Path) -> str | None:
    """Return which format a source is of, by its name; None: of another one."""
    if path.is_dir():
        return STORE if is_store(path) else None
    for name, suffixes in _FORMATS.items():
        ends = _COMPRESSED if name in _MAY_BE_COMPRESSED else ("",)
        if path.name.lower().endswith(tuple(suffix + end for suffix in suffixes for end in ends)):
            return name
    if _NAME_OF_STREAM.fullmatch(str(path)) and not os.path.lexists(path):
        return STREAM
    return None
