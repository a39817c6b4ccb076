"""``python -m benchmarks COMMAND``: a table of commands; each module has `add_arguments` and `run`."""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Sequence

COMMANDS = {
    "store": ("benchmarks.store", "gathers and writes beside peers and bounds"),
    "checksum": ("benchmarks.checksum", "checksums in cache, and what they cost a gather"),
    "shuffle": ("benchmarks.shuffle", "what byte shuffling before zstd gains and costs"),
    "recycle": (
        "benchmarks.recycle",
        "gathers into recycled and into fresh memory, and memory after a burst",
    ),
    "small": ("benchmarks.small", "single records, and batches of small ones"),
    "sampler": ("benchmarks.sampler", "drawing indices beside NumPy and earlier samplers"),
    "safety": ("benchmarks.safety", "what locks, journal, checksums and marks cost"),
    "cold": ("benchmarks.cold", "reads from a disk, the page cache dropped before each turn; needs root"),
    "loader": ("benchmarks.loader", "loaders beside peers, and beside the gather alone"),
    "jsonl": ("benchmarks.jsonl", "lines of JSONL files beside data-forager, and tokens of them"),
    "stream": (
        "benchmarks.stream",
        "streams of lines and archives beside Hugging Face's datasets and webdataset",
    ),
    "import": ("benchmarks.imports", "time of `import loaderx`"),
    "docs": ("benchmarks.docs", "write docs/benchmarks.md from result files"),
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    if words == ["--check-table"]:
        words = ["docs", "--check-table"]
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description="Measure loaderx.",
        epilog="--check-table alone is short for: docs --check-table",
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, (module, help_line) in COMMANDS.items():
        command = commands.add_parser(name, help=help_line, description=help_line)
        if words[:1] == [name]:
            importlib.import_module(module).add_arguments(command)
    options = parser.parse_args(words)
    return int(importlib.import_module(COMMANDS[options.command][0]).run(options))


if __name__ == "__main__":
    sys.exit(main())
