"""The counts of the proofs: collected, printed, written as JSON, and made into the tables of docs/reliability.md."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, TypeVar


@dataclass(frozen=True)
class CutRow:
    """A scenario cut off at each operation."""

    scenario: str
    operations: int
    cuts: int
    torn: int
    faults: int


@dataclass(frozen=True)
class PowerRow:
    """A scenario whose unsynced writes were lost, torn and reordered after each operation."""

    scenario: str
    operations: int
    crashes: int
    sampled: int
    different: int
    faults: int


@dataclass(frozen=True)
class ForeignRow:
    """A scenario that was cut off at each operation, upon which another program changed the store."""

    scenario: str
    cases: int
    faults: int


Row = TypeVar("Row", CutRow, PowerRow, ForeignRow)


def add_row(rows: list[Row], row: Row) -> None:
    """Add a row, or add its counts to those of the row of this name."""
    for at, found in enumerate(rows):
        if found.scenario == row.scenario:
            counts = {name: n + getattr(row, name) for name, n in asdict(found).items() if name != "scenario"}
            rows[at] = replace(found, **counts)
            return
    rows.append(row)


@dataclass
class Report:
    """What the proofs of one run did."""

    cuts: list[CutRow] = field(default_factory=list)
    power: list[PowerRow] = field(default_factory=list)
    foreign: list[ForeignRow] = field(default_factory=list)
    seed: int | None = None

    def as_json(self, size: str) -> str:
        """Return the report as JSON."""
        tables = {table.key: [asdict(row) for row in getattr(self, table.key)] for table in TABLES}
        return json.dumps({"size": size, "seed": self.seed, **tables}, indent=2) + "\n"


@dataclass(frozen=True)
class Table:
    """How the rows of one kind are shown; `seeded` where chance has a part in them."""

    key: str
    title: str
    columns: dict[str, str]
    seeded: bool


TABLES = [
    Table(
        "cuts",
        "Every operation, every cut",
        {"operations": "operations N", "cuts": "cuts", "torn": "torn writes", "faults": "faults"},
        seeded=False,
    ),
    Table(
        "power",
        "Power loss",
        {
            "operations": "operations N",
            "crashes": "crashes",
            "sampled": "of which sampled",
            "different": "different disks",
            "faults": "faults",
        },
        seeded=True,
    ),
    Table("foreign", "Another program after a crash", {"cases": "cases", "faults": "faults"}, seeded=True),
]


def _cells(table: Table, rows: Sequence[dict[str, Any]]) -> list[list[str]]:
    """Return a head, the rows, and one more that adds them up."""
    total = {"scenario": "in all"}
    total |= {name: sum(row[name] for row in rows) for name in table.columns}
    head = ["scenario", *table.columns.values()]
    return [
        head,
        *([row["scenario"], *(f"{row[name]:,}" for name in table.columns)] for row in [*rows, total]),
    ]


def format_summary(report: Report) -> Iterator[tuple[str, list[str]]]:
    """Iterate over the sections of a run's summary: title, lines."""
    for table in TABLES:
        rows = [asdict(row) for row in getattr(report, table.key)]
        if rows:
            cells = _cells(table, rows)
            widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
            lines = [
                "  ".join([line[0].ljust(widths[0]), *map(str.rjust, line[1:], widths[1:])]) for line in cells
            ]
            yield f"{table.title}{f', seed {report.seed}' * table.seeded}", lines


def as_markdown(content: dict[str, Any]) -> str:
    """Return a written report as tables for a page of the documentation."""
    parts = []
    for table in TABLES:
        if rows := content[table.key]:
            seed = f", seed {content['seed']}" * table.seeded
            head, *lines = (f"| {' | '.join(line)} |" for line in _cells(table, rows))
            rule = "|---" + "|---:" * len(table.columns) + "|"
            parts.append(
                "\n".join([f"{table.title} (`--size {content['size']}`{seed}):", "", head, rule, *lines])
            )
    return "\n\n".join(parts) + "\n"
