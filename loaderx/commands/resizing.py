"""What ``pack`` and ``unpack`` have in common: stores one after the other, and a line for each."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path

from loaderx.commands.paths import attempt, each_store, parse_path
from loaderx.commands.program import DONE, FAILED, say, shown
from loaderx.commands.sizes import count, format_bytes
from loaderx.commands.waiting import add_timeout, patiently
from loaderx.store.pack import SizeChange


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of either."""
    parser.add_argument(
        "paths", metavar="PATH", nargs="+", type=parse_path, help="a store, or a dataset of tokens"
    )
    add_timeout(parser)
    parser.add_argument("--quiet", action="store_true", help="no lines on stdout; --json still prints")
    parser.add_argument("--json", action="store_true", help="print one JSON object for each store, on a line")


def run(name: str, change: Callable[..., SizeChange], options: argparse.Namespace) -> int:
    """Change the sizes of each store's files, and print what was changed.

    Parameters
    ----------
    name : {"pack", "unpack"}
        The command's.
    change : callable
        `loaderx.pack` or `loaderx.unpack`.
    options : argparse.Namespace
    """
    return max(_run_one(f"loaderx {name}", path, change, options) for path in each_store(options.paths))


def _run_one(prefix: str, path: Path, change: Callable[..., SizeChange], options: argparse.Namespace) -> int:
    done = attempt(
        prefix,
        path,
        lambda: patiently(prefix, options.timeout, lambda timeout_s: change(path, timeout_s=timeout_s)),
    )
    if done is None:
        return FAILED
    if options.json:
        say(json.dumps(done.as_dict() | {"path": str(path)}))
    elif not options.quiet:
        say(_line(path, done))
    return DONE


def _line(path: Path, done: SizeChange) -> str:
    sizes = f"{format_bytes(done.bytes_before)} -> {format_bytes(done.bytes_after)}"
    disk = f"{format_bytes(done.allocated_before)} -> {format_bytes(done.allocated_after)} on disk"
    parts = [f"{sizes} ({disk})" if done.changed else f"{format_bytes(done.bytes_after)}, nothing to do"]
    if done.resized:
        parts.append(f"{count(len(done.resized), 'file')} resized")
    if done.removed:
        parts.append(f"{count(len(done.removed), 'leftover')} removed")
    parts += [f"{name} kept" for name in done.set_aside]
    return f"{shown(path)}: {', '.join(parts)}"
