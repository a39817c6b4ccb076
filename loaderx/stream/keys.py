"""Keys in a state: what many of them have in common is written once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from loaderx.stream.node import Key


class Shared(list[Any]):
    """A part that the keys of several items have in common: the keys of the batch that a function made them of."""

    __slots__ = ()


def save_keys(keys: Sequence[Key], shares: bool) -> Any:
    """Return keys as a state holds them.

    Parameters
    ----------
    keys : sequence
    shares : bool
        Whether there may be a `Shared` in them, which `Node.shares_keys` says. Otherwise they are left as they are.

    Returns
    -------
    list or dict
        A dict has the shared parts and the keys, where ``{"shared": i}`` stands for the part number i.
    """
    if not shares:
        return list(keys)
    parts: list[Any] = []
    by_id: dict[int, int] = {}
    by_content: dict[str, int] = {}

    def fold(key: Key) -> Any:
        if type(key) is Shared:
            place = by_id.get(id(key))
            if place is None:
                # By content too: after a resume, two nodes have made the same part anew.
                content = [fold(each) for each in key]
                place = by_content.setdefault(repr(content), len(parts))
                if place == len(parts):
                    parts.append(content)
                by_id[id(key)] = place
            return {"shared": place}
        return [fold(each) for each in key] if isinstance(key, tuple | list) else key

    folded = [fold(key) for key in keys]
    return {"keys": folded, "shared": parts}


def load_keys(saved: Any) -> list[Key]:
    """Return the keys that `save_keys` saved."""
    if not isinstance(saved, dict):
        return list(saved)
    parts: list[Shared] = []

    def unfold(key: Any) -> Key:
        if isinstance(key, dict):
            return parts[key["shared"]]
        return [unfold(each) for each in key] if isinstance(key, list) else key

    for part in saved["shared"]:
        parts.append(Shared(map(unfold, part)))
    return [unfold(key) for key in saved["keys"]]


def freeze(key: Key) -> Key:
    """Return a key as nested tuples, so that equal ones are found by a dict, whether or not they have been JSON."""
    return tuple(map(freeze, key)) if isinstance(key, tuple | list) else key
