"""``index``: where the lines of text files are, or whether an index of them is still right."""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path

from loaderx.commands.bar import late_bar
from loaderx.commands.paths import parse_path
from loaderx.commands.program import (
    DONE,
    FAILED,
    MISMATCH,
    CommandError,
    complain,
    describe_os_error,
    say,
    shown,
)
from loaderx.commands.sizes import count, format_bytes
from loaderx.errors import LoaderxError, StaleIndexError
from loaderx.jsonl import Index, IndexReport, build_index, check_index, update_index
from loaderx.jsonl.layout import DEFAULT_PATTERN
from loaderx.store.options import check_threads

DESCRIPTION = """\
Index the lines of text files, so that any of them can be read at once: of the files below a folder, or of one file. The
files stay as they are. The index of a folder is the folder "index" within it, that of a file "NAME.index" beside it.

With --update, what was added since is indexed: new lines behind what was there, new files behind those. With --check,
nothing is changed: the hashes of the index, every place in it, and whether each file is still what was indexed.

An index appears whole or not at all; an old one stays until the new one is complete.

Exit code: 0 done, or the index is right, 1 a file was changed, or (--check) has grown, is new, or the index is damaged,
2 wrong usage, no index or an error with files, 130 interrupted.
"""

#: Files that are named one by one; --json names all.
SHOWN = 20

_PREFIX = "loaderx index"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("paths", metavar="PATH", nargs="+", type=parse_path, help="a folder, or a text file")
    parser.add_argument(
        "--pattern", metavar="GLOB", help=f"which files of a folder (default: {DEFAULT_PATTERN})"
    )
    what = parser.add_mutually_exclusive_group()
    what.add_argument(
        "--update", action="store_true", help="index what was added to the files, and new files"
    )
    what.add_argument("--check", action="store_true", help="say whether the index is still right")
    parser.add_argument(
        "--index-folder", metavar="FOLDER", type=parse_path, help="where the index is; relative to the folder"
    )
    parser.add_argument(
        "--allow-outside",
        action="store_true",
        help="take files outside of the folder, through symbolic links",
    )
    parser.add_argument(
        "--threads", metavar="N", type=int, default=0, help="the most threads to use (default: every core)"
    )
    parser.add_argument(
        "--quiet",
        action="store_true",
        help="no progress bar, and no lines about what is right; --json still prints",
    )
    parser.add_argument(
        "--json",
        action="store_true",
        help="print one JSON object for each path, on a line, and no progress bar",
    )


def run(options: argparse.Namespace) -> int:
    """Index, or check the index of, each path."""
    check_threads(options.threads)  # said once, not of every path
    if options.pattern is not None and (options.update or options.check):
        raise CommandError("--pattern is for building: an index knows the pattern it was built with")
    action = _check if options.check else _index
    return max(_attempt(path, options, action) for path in options.paths)


def _attempt(
    path: Path, options: argparse.Namespace, action: Callable[[Path, argparse.Namespace], int]
) -> int:
    try:
        return action(path, options)
    except StaleIndexError as error:
        complain(_PREFIX, str(error))
        if options.json and options.check:
            say(json.dumps({"path": str(path), "ok": False, "error": str(error)}))
        return MISMATCH
    except LoaderxError as error:
        complain(_PREFIX, str(error))
    except BrokenPipeError:
        raise  # of standard output, whose reader went away, and not of this path
    except OSError as error:
        complain(_PREFIX, describe_os_error(error))
    return FAILED


def _index(path: Path, options: argparse.Namespace) -> int:
    begun = time.perf_counter()
    scanned = 0
    with late_bar("index", shown=not (options.json or options.quiet)) as bar:

        def progress(done_bytes: int, total_bytes: int | None) -> None:
            nonlocal scanned
            scanned = done_bytes
            bar(done_bytes, total_bytes or done_bytes)

        common = {
            "threads": options.threads,
            "progress": progress,
            "index_folder": options.index_folder,
            "allow_outside": options.allow_outside,
        }
        if options.update:
            index = update_index(path, **common)
        else:
            pattern = DEFAULT_PATTERN if options.pattern is None else options.pattern
            index = build_index(path, pattern, **common)
    seconds = time.perf_counter() - begun
    if options.json:
        facts = {
            "path": str(path),
            "index": str(index.folder),
            "samples": len(index),
            "files": len(index.paths),
            "scanned_bytes": scanned,
            "unfinished": index.unfinished,
            "seconds": round(seconds, 6),
        }
        say(json.dumps(facts))
    elif not options.quiet:
        say(_line(path, index, scanned, seconds))
    return DONE


def _line(path: Path, index: Index, scanned: int, seconds: float) -> str:
    speed = f"{scanned / seconds / 2**20:,.1f} MiB/s" if seconds else "at once"
    parts = [f"{count(len(index), 'sample')} of {count(len(index.paths), 'file')}"]
    parts.append(f"{format_bytes(scanned)} scanned, {speed}" if scanned else "nothing scanned")
    if index.unfinished:
        parts.append(f"{count(len(index.unfinished), 'file')} without a line end at the end")
    return f"{shown(path)}: {', '.join(parts)}"


def _check(path: Path, options: argparse.Namespace) -> int:
    report = check_index(path, index_folder=options.index_folder, allow_outside=options.allow_outside)
    if options.json:
        say(json.dumps({"path": str(path), **report.as_dict(), "error": None}))
    elif not (options.quiet and report.ok):
        say("\n".join(_lines(path, report)))
    return DONE if report.ok else MISMATCH


def _lines(path: Path, report: IndexReport) -> list[str]:
    rows = [("samples", f"{report.samples:,}"), ("files", f"{report.files:,}")]
    for label in ("damaged", "changed", "grown", "new"):
        rows.append((label, f"{len(getattr(report, label)):,}"))
    if not report.known:
        rows.append(("unchecked", "another program's index does not say what its files were"))
    width = max(len(label) for label, _ in rows)
    lines = [shown(path), *(f"  {label:<{width}}  {text}" for label, text in rows)]
    faults = [f"{shown(file)}: {shown(problem)}" for file, problem in (*report.damaged, *report.changed)]
    faults += [f"{shown(file)}: it has grown" for file in report.grown]
    faults += [f"{shown(file)}: it is not in the index" for file in report.new]
    lines += [f"  {fault}" for fault in faults[:SHOWN]]
    if len(faults) > SHOWN:
        lines.append(f"  and {len(faults) - SHOWN:,} more: --json names them all")
    return lines
