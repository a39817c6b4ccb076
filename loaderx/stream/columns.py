"""Names of dicts: some of them alone, all but some, or under other names. Of batches that are dicts, too."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from loaderx.stream.applied import Applied
from loaderx.stream.collating import as_dict
from loaderx.stream.node import Item, Node


def _to_dict(item: Item) -> dict[str, Item]:
    found = as_dict(item)
    if found is None:
        raise TypeError(f"the item is a {type(item).__name__}, and has to be a dict")
    return found


def _missing(item: dict[str, Item], names: Sequence[str]) -> KeyError:
    missing = [name for name in names if name not in item]
    return KeyError(
        f"{', '.join(map(repr, missing))} not in the item, which has {', '.join(map(repr, item))}"
    )


class Select(Applied):
    """Dicts of some names, in this order."""

    called = "select"

    def __init__(self, upstream: Node, names: Sequence[str]) -> None:
        super().__init__(upstream)
        self._names = tuple(names)

    def apply(self, item: Item) -> Item:
        if type(item) is not dict:
            item = _to_dict(item)
        try:
            return {name: item[name] for name in self._names}
        except KeyError:
            raise _missing(item, self._names) from None


class Drop(Applied):
    """Dicts without some names."""

    called = "drop"

    def __init__(self, upstream: Node, names: Sequence[str]) -> None:
        super().__init__(upstream)
        self._names = tuple(names)

    def apply(self, item: Item) -> Item:
        rest = dict(_to_dict(item))
        try:
            for name in self._names:
                del rest[name]
        except KeyError:
            raise _missing(_to_dict(item), self._names) from None
        return rest


class Rename(Applied):
    """Dicts with other names for some, in their places."""

    called = "rename"

    def __init__(self, upstream: Node, names: Mapping[str, str]) -> None:
        super().__init__(upstream)
        self._names = dict(names)

    def apply(self, item: Item) -> Item:
        names, item = self._names, _to_dict(item)
        for name in names:
            if name not in item:
                raise _missing(item, list(names))
        renamed = {names.get(name, name): value for name, value in item.items()}
        if len(renamed) != len(item):
            taken = [new for name, new in names.items() if new in item and new not in names]
            raise KeyError(f"{', '.join(map(repr, taken))} is in the item already: drop it before")
        return renamed
