"""What the commands have in common: the options, and the way from them to a result that is printed and written."""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable
from pathlib import Path

from benchmarks.report import print_result
from benchmarks.results import Result, write_result

LEAST_ROUNDS = 7


def add_result_arguments(
    parser: argparse.ArgumentParser, rounds: int, least_rounds: int = LEAST_ROUNDS
) -> None:
    """Declare `--rounds`, with its default, and `--json`."""
    parser.add_argument(
        "--rounds", type=int, default=rounds, help=f"rounds, at least {least_rounds} (default {rounds})"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the result to FILE")


def add_folder_arguments(
    parser: argparse.ArgumentParser,
    what_for: str = "for the stores",
    quick: str = "tiny data: shows that everything runs, measures nothing",
) -> None:
    """Declare `--dir` and `--quick`."""
    parser.add_argument("--dir", type=Path, help=f"folder {what_for} (default: the temporary one)")
    parser.add_argument("--quick", action="store_true", help=quick)


def add_peers_argument(parser: argparse.ArgumentParser) -> None:
    """Declare `--peers`."""
    parser.add_argument("--peers", type=Path, metavar="DIR", help="folder of peers, as tests.peers fills it")


def are_too_few(rounds: int, least_rounds: int = LEAST_ROUNDS) -> bool:
    """Return whether there are too few rounds, and say so."""
    if rounds >= least_rounds:
        return False
    print(f"--rounds must be at least {least_rounds}")
    return True


def report(options: argparse.Namespace, result: Result) -> None:
    """Print the tables of a result, and write it where that is wanted."""
    print_result(result)
    if options.json:
        write_result(options.json, result)


def run_in_folder(
    options: argparse.Namespace, measure: Callable[[Path], Result], least_rounds: int = LEAST_ROUNDS
) -> int:
    """Measure in a new folder and report; the exit status, 2 when there are too few rounds."""
    if not options.quick and are_too_few(options.rounds, least_rounds):
        return 2
    with tempfile.TemporaryDirectory(dir=options.dir) as folder:
        result = measure(Path(folder))
    report(options, result)
    return 0
