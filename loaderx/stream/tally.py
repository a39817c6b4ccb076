"""What nodes have counted, summed over nodes that are gone."""

from __future__ import annotations

from typing import Any, TypeAlias

#: A dict for each node, from the top: what it is called (``step``), and its counts by name. One pipeline has one shape.
Tally: TypeAlias = list[dict[str, Any]]
#: The counts of a tally alone: [place in it, name, count]. Of plain JSON.
Counted: TypeAlias = list[list[Any]]


def counts_of(tally: Tally) -> Counted:
    """Return the counts of a tally, as a state holds them."""
    return [
        [place, name, count]
        for place, counts in enumerate(tally)
        for name, count in counts.items()
        if name != "step"
    ]


def add_counts(tally: Tally, counted: Counted) -> Tally:
    """Return a tally with the counts of an earlier one of the same pipeline in it."""
    summed = [dict(counts) for counts in tally]
    for place, name, count in counted:
        summed[place][name] = _add(summed[place].get(name), count)
    return summed


def _add(count: Any, earlier: Any) -> Any:
    if count is None:
        return earlier
    return list(map(_add, count, earlier)) if isinstance(count, list) else count + earlier
