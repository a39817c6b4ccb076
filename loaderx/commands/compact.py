"""``compact``: give the space of deleted records back."""

from __future__ import annotations

import argparse
import json

from loaderx import Zrecord
from loaderx.commands.bar import late_bar
from loaderx.commands.paths import is_store, parse_path, stores_inside_named
from loaderx.commands.program import DONE
from loaderx.commands.sizes import count, format_bytes

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
    parser.add_argument("--json", action="store_true", help="print one JSON object, and no progress bar")


def run(options: argparse.Namespace) -> int:
    """Compact a store and print how much it gave back."""
    if not is_store(options.path):
        with stores_inside_named(options.path):
            Zrecord(options.path, mode="r").close()  # says what is there; for writing, it would make a store
    with Zrecord(options.path) as store:
        before = store.stats()["chunk_bytes"]
        with late_bar("compact", shown=not options.json) as progress:
            store.compact(progress)
        stats = store.stats()
    facts = {
        "path": str(options.path),
        "records": stats["records"],
        "bytes_before": before,
        "bytes_after": stats["chunk_bytes"],
        "bytes_given_back": before - stats["chunk_bytes"],
    }
    print(json.dumps(facts) if options.json else _line(facts))
    return DONE


def _line(facts: dict[str, int | str]) -> str:
    before, after, back = (int(facts[name]) for name in ("bytes_before", "bytes_after", "bytes_given_back"))
    size = f"{format_bytes(before)} -> {format_bytes(after)}"
    return (
        f"{facts['path']}: {count(int(facts['records']), 'record')}, {format_bytes(back)} given back ({size})"
    )
