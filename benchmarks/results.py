"""The shape of a result file, and reading and writing it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TypedDict

RESULTS_FOLDER = Path(__file__).parent / "results"


class Table(TypedDict):
    """Numbers of one kind, a row a contender, a number a round, none where the contender is not installed.

    `more` holds further columns, pooled over rounds; ratios are shown of the row `reference` to the others.
    """

    title: str
    unit: str
    reference: str
    rows: dict[str, list[float]]
    more: dict[str, dict[str, float]]


class Result(TypedDict):
    """What one benchmark's run gives; `missing` says for each contender left out how to have it."""

    benchmark: str
    settings: dict[str, str | int | float]
    environment: dict[str, str | int | float]
    tables: dict[str, Table]
    missing: dict[str, str]


class ResultError(Exception):
    """A result file that cannot be read as one."""


def round_number(value: float) -> float:
    """Round to five significant digits: less than any measurement here is good for, and short in the file."""
    return float(f"{value:.5g}")


def make_table(
    title: str,
    unit: str,
    reference: str,
    rows: dict[str, list[float]],
    more: dict[str, dict[str, float]] | None = None,
) -> Table:
    """Return a table with its numbers rounded."""
    return {
        "title": title,
        "unit": unit,
        "reference": reference,
        "rows": {name: [round_number(value) for value in values] for name, values in rows.items()},
        "more": {
            name: {column: round_number(value) for column, value in columns.items()}
            for name, columns in (more or {}).items()
        },
    }


def write_result(path: Path, result: Result) -> None:
    """Write a result file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


def read_result(path: Path) -> Result:
    """Read a result file.

    Raises
    ------
    ResultError
        The file is missing, no JSON, or lacks a key.
    """
    try:
        result: Result = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ResultError(f"{path}: {error}") from None
    lacking = [key for key in Result.__annotations__ if not isinstance(result, dict) or key not in result]
    if lacking:
        raise ResultError(f"{path}: not a result of these benchmarks, it has no {', '.join(lacking)}")
    return result
