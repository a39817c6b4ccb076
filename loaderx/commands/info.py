"""``info``: what a store holds."""

from __future__ import annotations

import argparse
import json
import re
from functools import partial
from pathlib import Path
from typing import Any

from loaderx import Zrecord
from loaderx.arrays.schema import read_schema
from loaderx.commands.paths import attempt, each_store, parse_path
from loaderx.commands.program import DONE, FAILED, say, shown
from loaderx.commands.sizes import count, format_bytes, format_ratio, ratio
from loaderx.jsonl.lines_file import read_lines_file
from loaderx.store.format import LINES, SCHEMA

DESCRIPTION = """\
Say what a store holds, or several. Nothing is changed, and permission to read is enough.

Stored bytes are those of the records as they lie on disk, logical bytes those of the records as they are read.
Reclaimable bytes belong to deleted records until the store is compacted.

Whatever is wrong with one store, those that follow are told of all the same.

Exit code: 0 done, 2 wrong usage, no store or an error with files.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument(
        "paths", metavar="PATH", nargs="+", type=parse_path, help="a store, or a dataset of tokens"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object for each store, on a line")


def run(options: argparse.Namespace) -> int:
    """Print the facts about each store."""
    code = DONE
    for path in each_store(options.paths):
        facts = attempt("loaderx info", path, partial(describe_store, path))
        if facts is None:
            code = FAILED
        else:
            say(json.dumps(facts) if options.json else "\n".join(_lines(facts)))
    return code


def describe_store(path: Path) -> dict[str, Any]:
    """Collect the facts about a store.

    Parameters
    ----------
    path : Path
        The store.

    Returns
    -------
    dict
        ``path``, ``kind`` (``"fixed"``, ``"ragged"``, ``"lines"`` or ``"bytes"``), ``records``, ``dtype``, ``shape``
        (of a record; of a row in a ragged store), ``codec`` (all three None for bytes, and the first two for lines),
        ``codecs`` (records by codec), ``logical_bytes``, ``stored_bytes``, ``ratio``, ``reclaimable_bytes``,
        ``dictionary_bytes``, ``chunks`` and ``format_version``.

    Raises
    ------
    NotAStoreError
        If there is no store at `path`.
    """
    with Zrecord(path, mode="r") as store:
        stats = store.stats()
    schema = read_schema(path) if (path / SCHEMA).exists() else None
    line_codec = read_lines_file(path) if (path / LINES).exists() and schema is None else None
    return {
        "path": str(path),
        "kind": schema.kind if schema else "lines" if line_codec else "bytes",
        "records": stats["records"],
        "dtype": str(schema.dtype) if schema else None,
        "shape": list(schema.shape) if schema else None,
        "codec": schema.codec if schema else line_codec,
        "codecs": stats["codecs"],
        "logical_bytes": stats["logical_bytes"],
        "stored_bytes": stats["live_bytes"],
        "ratio": ratio(stats["logical_bytes"], stats["live_bytes"]),
        "reclaimable_bytes": stats["reclaimable"],
        "dictionary_bytes": stats["dictionary_bytes"],
        "chunks": sum(1 for entry in path.iterdir() if re.fullmatch(r"[0-9]+\.zr", entry.name)),
        "format_version": stats["format_version"],
    }


def _lines(facts: dict[str, Any]) -> list[str]:
    rows = [("kind", facts["kind"]), ("records", f"{facts['records']:,}")]
    if facts["dtype"] is not None:
        label = "row shape" if facts["kind"] == "ragged" else "shape"
        rows += [("dtype", facts["dtype"]), (label, str(tuple(facts["shape"])))]
    used = [f"{name} {number:,}" for name, number in facts["codecs"].items()]
    rows += [
        ("codecs", ", ".join(used) or "none yet"),
        ("logical bytes", f"{facts['logical_bytes']:,} ({format_bytes(facts['logical_bytes'])})"),
        ("stored bytes", f"{facts['stored_bytes']:,} ({format_bytes(facts['stored_bytes'])})"),
        ("ratio", format_ratio(facts["logical_bytes"], facts["stored_bytes"])),
        ("reclaimable", format_bytes(facts["reclaimable_bytes"])),
        ("dictionary", format_bytes(facts["dictionary_bytes"]) if facts["dictionary_bytes"] else "none"),
        ("chunks", count(facts["chunks"], "file")),
        ("format", f"version {facts['format_version']}"),
    ]
    width = max(len(label) for label, _ in rows)
    return [shown(facts["path"]), *(f"  {label:<{width}}  {text}" for label, text in rows)]
