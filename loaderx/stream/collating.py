"""Items as a batch, and a batch as items: dicts become a dict of lists, which is what functions of batches take."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from loaderx.stream.node import Item


def collate(items: list[Item]) -> Any:
    """Return items as one batch.

    Parameters
    ----------
    items : list
        At least one.

    Returns
    -------
    dict of lists, or list
        Where all are dicts, a dict that has for each name the list of their values; the names are in the order in which
        they come, and an item without one has None there. Otherwise, and where no item has a name,
        `items`.
    """
    first = items[0]
    if type(first) is not dict or not any(items):
        return items
    n = len(first)
    try:
        if {*map(len, items)} == {n}:
            return {name: [item[name] for item in items] for name in first}
    except (KeyError, TypeError, IndexError):
        pass
    if not all(type(item) is dict for item in items):
        return items
    return {
        name: [item.get(name) for item in items]
        for name in dict.fromkeys(name for item in items for name in item)
    }


def spread(batch: Any) -> list[Item]:
    """Return the items of a batch: of a mapping, whose values are as long as one another, or of anything with items.

    Raises
    ------
    ValueError
        The values of a mapping differ in length.
    TypeError
        It is neither.
    """
    if isinstance(batch, Mapping):
        lengths = {name: len(column) for name, column in batch.items()}
        if len(set(lengths.values())) > 1:
            raise ValueError(f"the lists of a batch have to be of one length, and have {lengths}")
        names, rows = list(batch), zip(*batch.values(), strict=True)
        # By a comprehension, which takes half as long as dict(zip(...)).
        return [{name: value for name, value in zip(names, row, strict=True)} for row in rows]  # noqa: C416
    if batch is None or isinstance(batch, str | bytes):
        raise TypeError(f"it returned {batch!r}: give a dict of lists, or a list of items")
    return list(batch)
