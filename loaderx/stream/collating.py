"""Items as a batch, and a batch as items: dicts become a dict of lists, which is what functions of batches take."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from typing import Any

from loaderx.stream.node import Item

_MOST_TOLD = 60


def as_dict(item: Any) -> dict[Any, Any] | None:
    """Return a mapping, such as a `collections.UserDict`, as a dict, and a dict as it is; None: it is no mapping."""
    if type(item) is dict:
        return item
    # A copy of the others: some make up what is asked for and is not there.
    return dict(item) if isinstance(item, Mapping) else None


def collate(items: list[Item]) -> Any:
    """Return items as one batch.

    Parameters
    ----------
    items : list
        At least one.

    Returns
    -------
    dict of lists, or list
        Where all are dicts or other mappings, a dict that has for each name the list of their values; the names are in
        the order in which they come, and an item without one has None there. Otherwise, and where no item has a name,
        `items`.
    """
    kinds = {*map(type, items)}
    if kinds != {dict}:
        if not all(issubclass(kind, Mapping) for kind in kinds):
            return items
        items = list(map(dict, items))
    if not any(items):
        return items
    first = items[0]
    try:
        if {*map(len, items)} == {len(first)}:
            return {name: [item[name] for item in items] for name in first}
    except KeyError:
        pass
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
        count_rows(batch)
        names, rows = list(batch), zip(*batch.values(), strict=True)
        # By a comprehension, which takes half as long as dict(zip(...)).
        return [{name: value for name, value in zip(names, row, strict=True)} for row in rows]  # noqa: C416
    return list(check_items(batch, "a dict of lists, or a list of items"))


def count_rows(batch: Mapping[Any, Any]) -> int:
    """Return how many rows a batch has, whose values are lists or arrays of one length.

    Raises
    ------
    ValueError
        They differ in length.
    TypeError
        One of them has no values for rows: it is a number, or a text, which has letters only.
    """
    lengths = {}
    for name, column in batch.items():
        try:
            if isinstance(column, str | bytes | Mapping | Set):
                raise TypeError
            lengths[name] = len(column)
        except TypeError:
            raise TypeError(
                f"{name!r} is {_tell(column)}, and has to be a list or an array, with a value for each row"
            ) from None
    if len(set(lengths.values())) > 1:
        raise ValueError(f"the lists of a batch have to be of one length, and have {lengths}")
    return next(iter(lengths.values()), 0)


def check_items(found: Any, wanted: str) -> Iterable[Item]:
    """Return what a function gave as several items, or raise `TypeError` where it would come apart as something else.

    Parameters
    ----------
    found : object
    wanted : str
        What to return instead.
    """
    if isinstance(found, Mapping) or (hasattr(found, "columns") and hasattr(found, "shape")):
        raise TypeError(f"it returned a {type(found).__name__}, which would come as its names: give {wanted}")
    if isinstance(found, str | bytes):
        raise TypeError(f"it returned {_tell(found)}, which would come letter by letter: give {wanted}")
    if not isinstance(found, Iterable) and not hasattr(found, "__getitem__"):
        raise TypeError(f"it returned {_tell(found)}: give {wanted}")
    items: Iterable[Item] = found
    return items


def _tell(value: Any) -> str:
    told = repr(value)
    return told if len(told) <= _MOST_TOLD else f"a {type(value).__name__}"
