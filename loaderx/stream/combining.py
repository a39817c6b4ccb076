"""Several streams as one: what is checked before."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from loaderx.errors import OptionError
from loaderx.store.options import check_count
from loaderx.store.telling import shown
from loaderx.stream.interleave import Phases
from loaderx.stream.node import Recipe

Weights = Sequence[float] | Mapping[int, Sequence[float]]


def check_streams(streams: Any, kind: type[Any]) -> list[Any]:
    """Return streams as a list, which has at least one, or raise `OptionError`."""
    if isinstance(streams, kind):
        raise OptionError("streams is one stream: give a list of them", option="streams", value=streams)
    try:
        found = list(streams)
    except TypeError:
        raise OptionError(
            f"streams is {shown(streams)}: give a list of streams", option="streams", value=streams
        ) from None
    if not found:
        raise OptionError("streams is empty: give at least one", option="streams", value=streams)
    for i, each in enumerate(found):
        if not isinstance(each, kind):
            raise OptionError(
                f"streams[{i}] is a {type(each).__name__}: give a list of streams",
                option="streams",
                value=streams,
            )
    return found


def check_ends(recipes: Sequence[Recipe]) -> None:
    """Raise `OptionError` where a stream that has no end stands before another."""
    for i, recipe in enumerate(recipes[:-1]):
        if recipe.is_endless:
            raise OptionError(
                f"concatenate: stream {i} has no end, so nothing behind it would ever be read: {recipe}. Take some of "
                "it, put it last, or interleave them",
                option="streams",
                value=i,
            )


def plan_phases(probabilities: Weights | None, n: int) -> Phases | None:
    """Return the phases of a mixture of `n` streams, the first one from item 0 on.

    Raises
    ------
    OptionError
        A weight is negative or no number, all of them are 0, there is not one for each stream, or the first phase does
        not begin at 0.
    """
    if probabilities is None:
        return None
    if not isinstance(probabilities, Mapping):
        return [(0, _check_weights(probabilities, n))]
    phases = sorted(
        (check_count("probabilities", begin), _check_weights(weights, n))
        for begin, weights in probabilities.items()
    )
    if not phases or phases[0][0] != 0:
        raise OptionError(
            f"probabilities begins with item {phases[0][0] if phases else None}: give those from item 0 on, too",
            option="probabilities",
            value=probabilities,
        )
    return phases


def _check_weights(weights: Any, n: int) -> list[float]:
    try:
        found = [float(weight) for weight in weights]
    except (TypeError, ValueError, OverflowError):
        found = []
    if len(found) != n:
        raise OptionError(
            f"probabilities is {shown(weights)}: give a number for each of the {n} streams",
            option="probabilities",
            value=weights,
        )
    if not all(weight >= 0 and math.isfinite(weight) for weight in found) or not 0 < sum(found) < math.inf:
        raise OptionError(
            f"probabilities is {shown(weights)}: give numbers of 0 or more, one of them above 0",
            option="probabilities",
            value=weights,
        )
    return found
