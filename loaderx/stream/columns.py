"""Names of dicts: some of them alone, all but some, or under other names. Of batches that are dicts, too."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import itemgetter

from loaderx.stream.applied import Applied
from loaderx.stream.node import Item, Node


def _missing(item: Item, names: Sequence[str]) -> Exception:
    if not isinstance(item, dict):
        return TypeError(f"the item is a {type(item).__name__}, and has to be a dict")
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
        self._get = itemgetter(*self._names)

    def apply(self, item: Item) -> Item:
        names: dict[str, str] = self._names
        try:
            if len(names) == 1:
                return {names[0]: item[names[0]]}
            return dict(zip(names, self._get(item), strict=True))
        except (KeyError, TypeError, IndexError):
            raise _missing(item, self._names) from None


class Drop(Applied):
    """Dicts without some names."""

    called = "drop"

    def __init__(self, upstream: Node, names: Sequence[str]) -> None:
        super().__init__(upstream)
        self._names = tuple(names)

    def apply(self, item: Item) -> Item:
        try:
            rest = dict(item)
            for name in self._names:
                del rest[name]
        except (KeyError, TypeError, ValueError):
            raise _missing(item, self._names) from None
        return rest


class Rename(Applied):
    """Dicts with other names for some, in their places."""

    called = "rename"

    def __init__(self, upstream: Node, names: Mapping[str, str]) -> None:
        super().__init__(upstream)
        self._names = dict(names)
        # The last item's names, and what they become: most items have the same.
        self._old: tuple[str, ...] = ()
        self._new: tuple[str, ...] = ()

    def apply(self, item: Item) -> Item:
        old = tuple(item) if isinstance(item, dict) else None
        if old is None or old != self._old:
            self._new = self._plan(item)
            self._old = old or ()
        return dict(zip(self._new, item.values(), strict=True))

    def _plan(self, item: Item) -> tuple[str, ...]:
        names: dict[str, str] = self._names
        if not isinstance(item, dict) or not names.keys() <= item.keys():
            raise _missing(item, list(names))
        renamed = tuple(names.get(name, name) for name in item)
        if len(set(renamed)) != len(item):
            taken = [new for name, new in names.items() if new in item and new not in names]
            raise KeyError(f"{', '.join(map(repr, taken))} is in the item already: drop it before")
        return renamed
