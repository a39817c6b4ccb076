"""Write docs/benchmarks.md from result files, or check that it is what they give and that no target lacks a number."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks import (
    checksum,
    cold,
    imports,
    jsonl,
    loader,
    recycle,
    safety,
    sampler,
    shuffle,
    small,
    store,
    stream,
)
from benchmarks.report import format_rows, format_table, format_targets
from benchmarks.results import RESULTS_FOLDER, Result, ResultError, read_result
from benchmarks.targets import TARGETS, Target, evaluate

PAGE = Path(__file__).parents[1] / "docs" / "benchmarks.md"
# benchmark: title of its section, how it measures, the command
SECTIONS = {
    "store": ("Store", store.__doc__ or "", "python -m benchmarks store --peers DIR --json FILE"),
    "checksum": ("Checksums", checksum.__doc__ or "", "python -m benchmarks checksum --json FILE"),
    "shuffle": ("Shuffling", shuffle.__doc__ or "", "python -m benchmarks shuffle --json FILE"),
    "recycle": ("Recycled memory", recycle.__doc__ or "", "python -m benchmarks recycle --json FILE"),
    "small": ("Small calls", small.__doc__ or "", "python -m benchmarks small --peers DIR --json FILE"),
    "sampler": ("Sampler", sampler.__doc__ or "", "python -m benchmarks sampler --peers DIR --json FILE"),
    "safety": ("Safety", safety.__doc__ or "", "python -m benchmarks safety --peers DIR --json FILE"),
    "cold": ("Cold storage", cold.__doc__ or "", "python -m benchmarks cold --peers DIR --json FILE"),
    "loader": ("Loader", loader.__doc__ or "", "python -m benchmarks loader --peers DIR --json FILE"),
    "jsonl": ("JSONL", jsonl.__doc__ or "", "python -m benchmarks jsonl --peers DIR --json FILE"),
    "stream": ("Streams", stream.__doc__ or "", "python -m benchmarks stream --peers DIR --json FILE"),
    "import": ("Import", imports.__doc__ or "", "python -m benchmarks import --json FILE"),
}
HEAD = """\
<!-- Made by `python -m benchmarks docs`; edit the benchmarks, not this page. -->
# Benchmarks

All numbers are from one machine and vary from run to run by more than some differences: read the ratios.
A ratio is the median over rounds in which the contenders took turns; beside it are the least and the greatest.
"""
TAIL = """\
## To run them

```bash
pip install -e ".[bench]"
python -m tests.peers DIR
```

The first brings the peers that can live in one environment; the second puts loaderx 0.7.3, which has this package's
name, data-forager, Hugging Face's datasets and webdataset in folders of their own. A peer that is not there is left
out, and its row says so. The bounds
need a C compiler with OpenMP, pkg-config and libzstd's header, the benchmark of JSONL orjson, tokenizers and Debian's
package perl-doc. `python -m benchmarks docs FILE...` writes this page, and
`python -m benchmarks --check-table` fails when a target has no number or this page is not what the results give.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument(
        "files", nargs="*", type=Path, metavar="FILE.json", help="default: benchmarks/results"
    )
    parser.add_argument("--check-table", action="store_true", help="check the page and write nothing")
    parser.add_argument(
        "--output", type=Path, default=PAGE, metavar="FILE", help="default: docs/benchmarks.md"
    )


def run(options: argparse.Namespace) -> int:
    """Write or check the page: 0 done, 1 the check failed, 2 a file cannot be read."""
    try:
        results = read_results(options.files or sorted(RESULTS_FOLDER.glob("*.json")))
    except ResultError as error:
        print(error)
        return 2
    page = format_page(results)
    if not options.check_table:
        options.output.parent.mkdir(parents=True, exist_ok=True)
        options.output.write_text(page, encoding="utf-8")
        return 0
    faults = find_faults(page, options.output, TARGETS, results)
    for fault in faults:
        print(fault)
    return 1 if faults else 0


def read_results(files: Sequence[Path]) -> dict[str, Result]:
    """Read result files, one a benchmark; the later of two wins."""
    results = {}
    for file in files:
        result = read_result(file)
        if result["benchmark"] not in SECTIONS:
            raise ResultError(f"{file}: unknown benchmark {result['benchmark']!r}")
        results[result["benchmark"]] = result
    return results


def find_faults(page: str, path: Path, targets: Sequence[Target], results: Mapping[str, Result]) -> list[str]:
    """Return a line for each target without a number, and one if the file is not the page."""
    faults = [
        f"no number for the target: {target.label} (python -m benchmarks {target.benchmark})"
        for target in targets
        if evaluate(target, results) is None
    ]
    found = path.read_text(encoding="utf-8") if path.exists() else None
    if found != page:
        state = "is missing" if found is None else "is not what the results give"
        faults.append(f"{path.name} {state}: python -m benchmarks docs")
    return faults


def format_page(results: Mapping[str, Result]) -> str:
    """Return the page: the targets, then a section a benchmark."""
    parts = [HEAD, "## Targets\n", format_targets(TARGETS, results) + "\n"]
    for name, (title, method, command) in SECTIONS.items():
        if name in results:
            parts += [f"## {title}\n", method.strip() + "\n", *format_result(results[name])]
            parts.append(f"Run with `{command}`.\n")
    return "\n".join([*parts, TAIL])


def format_result(result: Result) -> list[str]:
    """Return the paragraphs of one result: its tables, what was missing, what it ran on."""
    parts = []
    for table in result["tables"].values():
        parts += [f"### {table['title']}\n", format_table(table) + "\n"]
    if result["missing"]:
        parts.append("\n".join(f"- {name}: {reason}" for name, reason in result["missing"].items()) + "\n")
    facts = [
        ["", ""],
        *([key, str(value)] for key, value in (result["settings"] | result["environment"]).items()),
    ]
    parts += ["### Measured with\n", format_rows(facts) + "\n"]
    return parts
