"""``compact``: give the space of deleted records back."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from loaderx import Zrecord
from loaderx.commands.bar import late_bar
from loaderx.commands.paths import attempt, each_store, parse_path
from loaderx.commands.program import DONE, FAILED, say, shown
from loaderx.commands.sizes import count, format_bytes
from loaderx.commands.waiting import add_timeout, patiently
from loaderx.store.folders import is_store

DESCRIPTION = """\
Move the records of a store together, or of several, in place, and give the disk space of deleted records back. Indices
stay, and no second copy of the store is made: 64 MiB of free space are enough.

Nobody else may have the store open meanwhile. Whatever stops it loses no record: run it again, and it goes on from
where it was. Whatever is wrong with one store, those that follow are compacted all the same.

Exit code: 0 done, 2 wrong usage, a store that others have open or an error with files, 130 interrupted.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument(
        "paths", metavar="PATH", nargs="+", type=parse_path, help="a store, or a dataset of tokens"
    )
    add_timeout(parser)
    parser.add_argument(
        "--quiet", action="store_true", help="no progress bar, no line on stdout; --json still prints"
    )
    parser.add_argument(
        "--json",
        action="store_true",
        help="print one JSON object for each store, on a line, and no progress bar",
    )


def run(options: argparse.Namespace) -> int:
    """Compact stores and print how much each gave back."""
    return max(_run_one(path, options) for path in each_store(options.paths))


def _run_one(path: Path, options: argparse.Namespace) -> int:
    stats = attempt("loaderx compact", path, lambda: _compact_patiently(path, options))
    if stats is None:
        return FAILED
    before, after = stats
    facts = {
        "path": str(path),
        "records": after["records"],
        "bytes_before": before["chunk_bytes"],
        "bytes_after": after["chunk_bytes"],
        "bytes_given_back": before["chunk_bytes"] - after["chunk_bytes"],
    }
    if options.json:
        say(json.dumps(facts))
    elif not options.quiet:
        say(_line(facts))
    return DONE


def _compact_patiently(path: Path, options: argparse.Namespace) -> tuple[dict[str, Any], dict[str, Any]]:
    if not is_store(path):
        Zrecord(path, mode="r").close()  # says what is there; for writing, it would make a store
    with late_bar("compact", shown=not (options.json or options.quiet)) as progress:
        return patiently(
            "loaderx compact", options.timeout, lambda timeout_s: _compact(path, timeout_s, progress)
        )


def _compact(
    path: Path, timeout_s: float, progress: Callable[[int, int], None]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Compact a store and return what its `stats` were before and after."""
    with Zrecord(path, timeout_s=timeout_s) as store:
        before = store.stats()
        store.compact(progress)
        return before, store.stats()


def _line(facts: dict[str, int | str]) -> str:
    before, after, back = (int(facts[name]) for name in ("bytes_before", "bytes_after", "bytes_given_back"))
    size = f"{format_bytes(before)} -> {format_bytes(after)}"
    return f"{shown(facts['path'])}: {count(int(facts['records']), 'record')}, {format_bytes(back)} given back ({size})"
