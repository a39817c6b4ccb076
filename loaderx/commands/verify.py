"""``verify``: every record of a store or of several, looked at."""

from __future__ import annotations

import argparse
import dataclasses
import json
import warnings
from pathlib import Path

from loaderx import (
    CorruptRecordError,
    LoaderxError,
    SchemaError,
    StoreWarning,
    verify,
)
from loaderx.arrays.fitting import check_fits
from loaderx.commands.bar import late_bar
from loaderx.commands.paths import each_store, parse_path, stores_inside_named
from loaderx.commands.program import (
    DONE,
    FAILED,
    MISMATCH,
    CommandError,
    complain,
    describe_os_error,
    one_line,
    say,
    shown,
)
from loaderx.commands.sizes import count
from loaderx.commands.waiting import add_timeout, patiently
from loaderx.store.format import DICTIONARY, SUMS, chunk_name
from loaderx.store.options import check_threads
from loaderx.store.verify import Damage, Report

DESCRIPTION = """\
Look at every record of a store, or of several: its table entry, that no other record shares its bytes, that it
decompresses, and the checksum of its stored bytes; at the checksum of the dictionary; and of a dataset, that its
schema.json is whole and every record has a length that fits it. Nothing is changed, and permission to read is enough.

Records that have no checksum, because another program wrote them, are looked at in every other way and counted as
unchecked; that is no fault of theirs. With --strict it is one.

Whatever is wrong with one store, those that follow are looked at all the same.

Exit code: 0 every record is good, 1 a store is damaged, 2 wrong usage, no store or an error with files (also where
other stores are damaged), 130 interrupted.
"""

#: Damaged records that are named one by one; --json names all.
SHOWN = 20

_PREFIX = "loaderx verify"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument(
        "paths", metavar="PATH", nargs="+", type=parse_path, help="a store, or a dataset of tokens"
    )
    parser.add_argument(
        "--strict", action="store_true", help="take records without a checksum for a fault: exit code 1"
    )
    parser.add_argument(
        "--threads", metavar="N", type=int, default=0, help="the most threads to use (default: every core)"
    )
    add_timeout(parser)
    parser.add_argument(
        "--quiet",
        action="store_true",
        help="no progress bar, and no lines about stores that are good; --json still prints",
    )
    parser.add_argument(
        "--json",
        action="store_true",
        help="print one JSON object for each store, on a line, and no progress bar",
    )


def run(options: argparse.Namespace) -> int:
    """Verify stores and print what was found in each."""
    check_threads(options.threads)  # said once, not of every store
    return max(_run_one(path, options) for path in each_store(options.paths))


def _run_one(path: Path, options: argparse.Namespace) -> int:
    try:
        with (
            stores_inside_named(path),
            late_bar("verify", shown=not (options.json or options.quiet)) as progress,
        ):
            report = patiently(
                _PREFIX,
                options.timeout,
                lambda timeout_s: verify(
                    path, threads=options.threads, progress=progress, timeout_s=timeout_s
                ),
            )
    except CorruptRecordError as error:
        # So damaged that there are no records to be looked at one by one.
        complain(_PREFIX, str(error))
        if options.json:
            say(json.dumps({"path": str(path), "ok": False, "error": one_line(str(error))}))
        return MISMATCH
    except (CommandError, LoaderxError) as error:
        complain(_PREFIX, str(error))
        return FAILED
    except OSError as error:
        complain(_PREFIX, describe_os_error(error))
        return FAILED
    return _judge(path, report, options)


def _judge(path: Path, report: Report, options: argparse.Namespace) -> int:
    """Look at the schema.json of a store whose records were looked at, and print what was found."""
    code = DONE
    wrong_schema = None
    try:
        report = _with_misfits(report, options.timeout)
    except LoaderxError as error:
        code = MISMATCH if isinstance(error, SchemaError) else FAILED
        wrong_schema = one_line(str(error))
    if not report.ok or (options.strict and report.unchecked):
        code = max(code, MISMATCH)
    if options.json:
        facts = {**report.as_dict(), "path": str(path), "ok": code == DONE, "error": wrong_schema}
        say(json.dumps(facts))
    elif not (options.quiet and code == DONE):
        say("\n".join(_lines(path, report)))
    if wrong_schema is not None:
        complain(_PREFIX, wrong_schema)
    return code


def _with_misfits(report: Report, timeout_s: float) -> Report:
    """Add the records whose lengths do not fit schema.json to those that are damaged otherwise."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", StoreWarning)  # said when the records were looked at
        misfits = check_fits(report.path, timeout_s=timeout_s)
    damaged = {damage.record: damage for damage in (*misfits, *report.damaged)}
    return dataclasses.replace(report, damaged=tuple(damaged[record] for record in sorted(damaged)))


def _lines(path: Path, report: Report) -> list[str]:
    unchecked = f"{report.unchecked:,}"
    if report.unchecked:
        unchecked += f" ({_why_unchecked(report)})"
    rows = [
        ("records", f"{report.records:,}"),
        ("checked", f"{report.checked:,}"),
        ("unchecked", unchecked),
        ("damaged", f"{len(report.damaged):,}"),
    ]
    if report.dictionary is not None:
        rows.append(("dictionary", _what_of_dictionary(report)))
    if report.recovery is not None:
        cut = report.recovery.cut
        if cut:
            rows.append(
                ("cut off", f"{count(len(cut), 'record')}, {cut.start} to {cut.stop - 1}: see the warning")
            )
        if report.recovery.finished:
            rows.append(("unfinished", "a delete or a compaction, taken as carried out"))
    width = max(len(label) for label, _ in rows)
    lines = [shown(path), *(f"  {label:<{width}}  {text}" for label, text in rows)]
    lines += [f"  {_place(damage)}: {shown(damage.problem)}" for damage in report.damaged[:SHOWN]]
    if len(report.damaged) > SHOWN:
        lines.append(f"  and {len(report.damaged) - SHOWN:,} more: --json names them all")
    return lines


def _why_unchecked(report: Report) -> str:
    if not (report.path / SUMS).exists():
        return f"no checksum: there is no {SUMS}"
    return f"no checksum: another program wrote them, or {SUMS} is damaged"


def _what_of_dictionary(report: Report) -> str:
    if report.dictionary == "good":
        return "good"
    if report.dictionary == "unchecked":
        return "no checksum of it is known"
    those = "no record needs it"
    if report.unreadable:
        those = f"{count(report.unreadable, 'record')} cannot be read without it, and must not be deleted for that"
    return f"{report.dictionary}: restore {DICTIONARY} from a copy ({those})"


def _place(damage: Damage) -> str:
    return f"record {damage.record} ({chunk_name(damage.chunk)}, byte {damage.byte_offset})"
