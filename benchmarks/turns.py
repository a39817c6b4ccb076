"""Turns of functions in this process: each for the same time, in rounds, again where other programs ran meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from benchmarks.neighbour import ForeignLoad
from benchmarks.pairing import run_rounds
from benchmarks.results import Table, make_table

MOST_FOREIGN_CORES = 0.1
MOST_TRIES = 6


@dataclass(frozen=True)
class Size:
    """How much data, how large a batch, how many rounds, and how long one turn is."""

    num_records: int = 20_000
    record_bytes: int = 12_288
    batch: int = 256
    num_rounds: int = 21
    turn_s: float = 0.15
    redo: bool = True


QUICK = Size(num_records=300, batch=32, num_rounds=2, turn_s=0.005, redo=False)


def take_turn(size: Size, measure: Callable[[], float], pids: Sequence[int] = ()) -> float:
    """Measure, again where others than this process and those in `pids` ran meanwhile."""
    for _ in range(MOST_TRIES if size.redo else 1):
        foreign = ForeignLoad(pids)
        value = measure()
        if foreign.measure() <= MOST_FOREIGN_CORES:
            break
    return value


def measure_rows(
    size: Size, title: str, unit: str, rows: dict[str, Callable[[], float]], pids: Sequence[int] = ()
) -> Table:
    """Measure rows in turn, in this process and those in `pids`; the first is the one that ratios are of."""
    values = run_rounds(list(rows), lambda name, _: take_turn(size, rows[name], pids), size.num_rounds)
    return make_table(title, unit, next(iter(rows)), values)
