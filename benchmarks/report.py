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
        cells = [
            cell.rjust(width) if column else cell.ljust(width) for column, (cell, width) in _pair(row, widths)
        ]
        lines.append(f"| {' | '.join(cells)} |")
        if number == 0:
            rules = [
                "-" * width if column == 0 else "-" * (width - 1) + ":" for column, width in enumerate(widths)
            ]
            lines.append(f"| {' | '.join(rules)} |")
    return "\n".join(lines)


def _pair(row: Sequence[str], widths: Sequence[int]) -> list[tuple[int, tuple[str, int]]]:
    return list(enumerate(zip(row, widths, strict=True)))


def format_table(table: Table, missing: Mapping[str, str] | None = None) -> str:
    """Return a result table as Markdown, fastest first; ratios are those of `Table.reference` to each row."""
    reference = table["rows"].get(table["reference"])
    columns = sorted({column for more in table["more"].values() for column in more})
    head = ["", f"{table['unit']}, median", "least", "greatest", *columns]
    if reference and len(table["rows"]) > 1:
        head.append(f"{table['reference']} over it")
    is_rate = table["unit"].endswith("/s")
    rows = [head]
    for name, values in sorted(
        table["rows"].items(), key=lambda row: summarize(row[1]).median, reverse=is_rate
    ):
        summary = summarize(values)
        row = [name, *map(format_number, (summary.median, summary.minimum, summary.maximum))]
        more = table["more"].get(name, {})
        row += [format_number(more[column]) if column in more else "" for column in columns]
        if reference and len(table["rows"]) > 1:
            ratio = summarize(pair_ratios(reference, values))
            row.append("" if name == table["reference"] else format_number(ratio.median))
        rows.append(row)
    rows += [[name, reason] + [""] * (len(head) - 2) for name, reason in (missing or {}).items()]
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
