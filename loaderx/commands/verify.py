"""``verify``: every record of a store, looked at."""

from __future__ import annotations

import argparse
import json

from loaderx import CorruptRecordError, DictionaryError, verify
from loaderx.commands.bar import late_bar
from loaderx.commands.paths import parse_path, stores_inside_named
from loaderx.commands.program import DONE, MISMATCH, MismatchError
from loaderx.commands.sizes import count
from loaderx.store.format import chunk_name
from loaderx.store.verify import Damage, Report

DESCRIPTION = """\
Look at every record of a store: its table entry, that no other record shares its bytes, that it decompresses, and the
checksum of its stored bytes. Nothing is changed, and permission to read is enough.

Records that have no checksum, because another program wrote them, are looked at in every other way and counted as
unchecked; that is no fault of theirs.

Exit code: 0 every record is good, 1 records are damaged, 2 wrong usage, no store or an error with files, 130
interrupted.
"""

#: Damaged records that are named one by one; --json names all.
SHOWN = 20


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("path", metavar="PATH", type=parse_path, help="the store")
    parser.add_argument("--json", action="store_true", help="print one JSON object, and no progress bar")
    parser.add_argument(
        "--threads", metavar="N", type=int, default=0, help="the most threads to use (default: every core)"
    )


def run(options: argparse.Namespace) -> int:
    """Verify a store and print what was found."""
    try:
        with stores_inside_named(options.path), late_bar("verify", shown=not options.json) as progress:
            report = verify(options.path, threads=options.threads, progress=progress)
    except (CorruptRecordError, DictionaryError) as error:
        # So damaged that there are no records to be looked at one by one.
        raise MismatchError(str(error)) from error
    print(json.dumps(report.as_dict()) if options.json else "\n".join(_lines(report)))
    return DONE if report.ok else MISMATCH


def _lines(report: Report) -> list[str]:
    unchecked = f"{report.unchecked:,}"
    if report.unchecked:
        unchecked += " (no checksum: another program wrote them)"
    rows = [
        ("records", f"{report.records:,}"),
        ("checked", f"{report.checked:,}"),
        ("unchecked", unchecked),
        ("damaged", f"{len(report.damaged):,}"),
    ]
    if report.recovery is not None:
        cut = report.recovery.cut
        if cut:
            rows.append(
                ("cut off", f"{count(len(cut), 'record')}, {cut.start} to {cut.stop - 1}: see the warning")
            )
        if report.recovery.finished:
            rows.append(("unfinished", "a delete or a compaction, taken as carried out"))
    width = max(len(label) for label, _ in rows)
    lines = [str(report.path), *(f"  {label:<{width}}  {text}" for label, text in rows)]
    lines += [f"  {_place(damage)}: {damage.problem}" for damage in report.damaged[:SHOWN]]
    if len(report.damaged) > SHOWN:
        lines.append(f"  and {len(report.damaged) - SHOWN:,} more: --json names them all")
    return lines


def _place(damage: Damage) -> str:
    place = f"record {damage.record}" if damage.record is not None else "the store"
    if damage.chunk is None:
        return place
    return f"{place} ({chunk_name(damage.chunk)}, byte {damage.byte_offset})"
