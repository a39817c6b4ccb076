"""What `import loaderx` takes on top of NumPy.

Each round starts a fresh interpreter that imports NumPy and then times `import loaderx`. A run that is not counted
comes first: files are in the page cache and byte code is compiled.
"""

from __future__ import annotations

import argparse
import subprocess
import sys

from benchmarks.environment import describe_environment
from benchmarks.options import add_result_arguments, are_too_few, report
from benchmarks.pairing import run_rounds
from benchmarks.results import Result, make_table

NUM_ROUNDS = 21
TIMED = "import numpy, time; s = time.perf_counter(); import {}; print(1e3 * (time.perf_counter() - s))"


def time_import(name: str, index: int) -> float:
    """Return the milliseconds of one import in a fresh interpreter."""
    command = [sys.executable, "-c", TIMED.format(name)]
    return float(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    add_result_arguments(parser, NUM_ROUNDS)


def run(options: argparse.Namespace) -> int:
    """Run the benchmark, print its table, and write its result; 2 when an option is wrong or the import fails."""
    if are_too_few(options.rounds):
        return 2
    environment = describe_environment()
    try:
        time_import("loaderx", 0)
    except subprocess.CalledProcessError as error:
        print(f"`import loaderx` failed: {(error.stderr.strip().splitlines() or ['no message'])[-1]}")
        return 2
    rows = run_rounds(["loaderx"], time_import, options.rounds)
    result: Result = {
        "benchmark": "import",
        "settings": {"rounds": options.rounds},
        "environment": environment,
        "tables": {"import": make_table("`import loaderx` on top of NumPy", "ms", "loaderx", rows)},
        "missing": {},
    }
    report(options, result)
    return 0
