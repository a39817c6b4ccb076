"""Keys in a state: what many of them have in common is written once."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from typing import Any

from loaderx.stream.node import Key


class Shared(list[Any]):
    """A part that the keys of several items have in common: the keys of the batch that a function made them of.

    It does not change.
    """

    __slots__ = ("_digest",)

    def digest(self) -> bytes:
        """Return what it has in common with one that was made anew, perhaps through JSON."""
        try:
            return self._digest
        except AttributeError:
            self._digest: bytes = blake2b(repr(thaw(self)).encode(), digest_size=16).digest()
            return self._digest


def thaw(key: Key) -> Key:
    """Return a key as nested lists, as it comes out of JSON."""
    return [thaw(each) for each in key] if isinstance(key, tuple | list) else key


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
    by_id: dict[int, dict[str, int]] = {}
    by_content: dict[bytes, int] = {}

    def fold(key: Key) -> Any:
        kind = type(key)
        if kind is Shared:
            name = by_id.get(id(key))
            if name is None:
                # By content too: after a resume, two nodes have made the same part anew.
                place = by_content.get(key.digest())
                if place is None:
                    content = [fold(each) for each in key]
                    place = by_content[key.digest()] = len(parts)
                    parts.append(content)
                name = by_id[id(key)] = {"shared": place}
            return name
        return [fold(each) for each in key] if kind is tuple or kind is list else key

    return {"keys": [fold(key) for key in keys], "shared": parts}


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
