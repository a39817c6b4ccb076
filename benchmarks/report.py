"""Results as tables of text, for a terminal and for the page: the same rows, in Markdown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from benchmarks.pairing import pair_ratios, summarize
from benchmarks.results import Result, Table
from benchmarks.targets import TARGETS, Target, evaluate


def format_number(value: float) -> str:
    """Show three to four digits: 12,345  678  9.12  0.123."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def format_rows(rows: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table: the first row is the head, the first column is text, the others are numbers."""
    widths = [max(3, *(len(row[column]) for row in rows)) for column in range(len(rows[0]))]
    lines = []
    for number, row in enumerate(rows):
        cells = [row[0].ljust(widths[0]), *(row[k].rjust(widths[k]) for k in range(1, len(row)))]
        lines.append(f"| {' | '.join(cells)} |")
        if number == 0:
            rules = ["-" * widths[0], *("-" * (width - 1) + ":" for width in widths[1:])]
            lines.append(f"| {' | '.join(rules)} |")
    return "\n".join(lines)


def format_table(table: Table) -> str:
    """Return a result table as Markdown, best first; the last column is `Table.reference` over each row."""
    measured = {name: values for name, values in table["rows"].items() if values}
    best_first = sorted(measured, key=lambda name: summarize(measured[name]).median)
    if table["unit"].endswith("/s"):
        best_first.reverse()
    columns = sorted({column for more in table["more"].values() for column in more})
    reference = measured.get(table["reference"]) if len(measured) > 1 else None
    head = ["", f"{table['unit']}, median", "least", "greatest", *columns]
    rows = [[*head, f"{table['reference']} over it"] if reference else head]
    for name in best_first:
        summary, more = summarize(measured[name]), table["more"].get(name, {})
        row = [name, *map(format_number, (summary.median, summary.minimum, summary.maximum))]
        row += [format_number(more[column]) if column in more else "" for column in columns]
        if reference:
            ratio = summarize(pair_ratios(reference, measured[name])).median
            row.append("" if name == table["reference"] else format_number(ratio))
        rows.append(row)
    for name in [name for name in table["rows"] if name not in measured]:
        rows.append([name, "not installed"] + [""] * (len(rows[0]) - 2))
    return format_rows(rows)


def format_targets(targets: Sequence[Target], results: Mapping[str, Result]) -> str:
    """Return the table of targets: number, spread, target, and whether it is reached."""
    rows = [["", "median", "least", "greatest", "target", ""]]
    for target in targets:
        summary = evaluate(target, results)
        limit = f"{'>=' if target.sense == 'at least' else '<='} {target.limit:g} {target.unit}"
        if summary is None:
            rows.append([target.label, "no number", "", "", limit, ""])
            continue
        numbers = map(format_number, (summary.median, summary.minimum, summary.maximum))
        rows.append([target.label, *numbers, limit, "met" if target.is_met(summary.median) else "missed"])
    return format_rows(rows)


def print_result(result: Result) -> None:
    """Print the tables of one result and its targets."""
    for table in result["tables"].values():
        print(f"\n{table['title']}\n{format_table(table)}")
    for name, reason in result["missing"].items():
        print(f"\n{name}: {reason}")
    targets = [target for target in TARGETS if target.benchmark == result["benchmark"]]
    print(f"\nTargets\n{format_targets(targets, {result['benchmark']: result})}")
