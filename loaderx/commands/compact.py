"""``compact``: give the space of deleted records back."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from loaderx import Zrecord
from loaderx.commands.bar import late_bar
from loaderx.commands.paths import is_store, parse_path, stores_inside_named
from loaderx.commands.program import DONE
from loaderx.commands.sizes import count, format_bytes
from loaderx.commands.waiting import add_timeout, patiently

DESCRIPTION = """\
Move the records of a store together, in place, and give the disk space of deleted records back. Indices stay, and no
second copy of the store is made: 64 MiB of free space are enough.

Nobody else may have the store open meanwhile. Whatever stops it loses no record: run it again, and it goes on from
where it was.

Exit code: 0 done, 2 wrong usage, a store that others have open or an error with files, 130 interrupted.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("path", metavar="PATH", type=parse_path, help="the store")
    add_timeout(parser)
    parser.add_argument(
        "--quiet", action="store_true", help="no progress bar, no line on stdout; --json still prints"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object, and no progress bar")


def run(options: argparse.Namespace) -> int:
    """Compact a store and print how much it gave back."""
    if not is_store(options.path):
        with stores_inside_named(options.path):
            Zrecord(options.path, mode="r").close()  # says what is there; for writing, it would make a store
    with late_bar("compact", shown=not (options.json or options.quiet)) as progress:
        before, after = patiently(
            "loaderx compact", options.timeout, lambda timeout_s: _compact(options.path, timeout_s, progress)
        )
    facts = {
        "path": str(options.path),
        "records": after["records"],
        "bytes_before": before["chunk_bytes"],
        "bytes_after": after["chunk_bytes"],
        "bytes_given_back": before["chunk_bytes"] - after["chunk_bytes"],
    }
    if options.json:
        print(json.dumps(facts))
    elif not options.quiet:
        print(_line(facts))
    return DONE


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
    return (
        f"{facts['path']}: {count(int(facts['records']), 'record')}, {format_bytes(back)} given back ({size})"
    )
