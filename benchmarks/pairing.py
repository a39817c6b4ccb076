"""Measure contenders in turn, pair their numbers by round, and say how far they spread.

The machine's speed drifts by more than the differences of interest, but slowly. So contenders take turns: a round
measures each once, the order moves on by one a round, and a ratio is taken within a round before the median over
rounds. What is common to a round cancels.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Summary:
    """Median of some numbers and their spread: the extremes and the quartiles (inclusive method)."""

    median: float
    minimum: float
    lower_quartile: float
    upper_quartile: float
    maximum: float
    count: int


def summarize(values: Sequence[float]) -> Summary:
    """Return median, extremes and quartiles.

    Raises
    ------
    ValueError
        There are no values.

    Examples
    --------
    >>> summarize([4.0, 1.0, 2.0, 3.0, 5.0])
    Summary(median=3.0, minimum=1.0, lower_quartile=2.0, upper_quartile=4.0, maximum=5.0, count=5)
    """
    if not values:
        raise ValueError("no values to summarize")
    ordered = sorted(values)
    if len(ordered) == 1:
        lower = upper = ordered[0]
    else:
        lower, _, upper = statistics.quantiles(ordered, n=4, method="inclusive")
    return Summary(statistics.median(ordered), ordered[0], lower, upper, ordered[-1], len(ordered))


def pair_ratios(numerators: Sequence[float], denominators: Sequence[float]) -> list[float]:
    """Divide round by round.

    Raises
    ------
    ValueError
        The two have different numbers of rounds.

    Examples
    --------
    >>> pair_ratios([2.0, 9.0], [1.0, 3.0])
    [2.0, 3.0]
    """
    if len(numerators) != len(denominators):
        raise ValueError(f"{len(numerators)} rounds against {len(denominators)}: they cannot be paired")
    return [numerator / denominator for numerator, denominator in zip(numerators, denominators, strict=True)]


def run_rounds(
    names: Sequence[str], measure: Callable[[str, int], float], num_rounds: int
) -> dict[str, list[float]]:
    """Measure every name once a round, each round beginning one name later.

    Parameters
    ----------
    names : sequence of str
    measure : callable (name, round index) -> float
    num_rounds : int

    Returns
    -------
    dict of str to list of float
        For each name its numbers, in the order of rounds.
    """
    values: dict[str, list[float]] = {name: [] for name in names}
    for index in range(num_rounds):
        for place in range(len(names)):
            name = names[(place + index) % len(names)]
            values[name].append(measure(name, index))
    return values
