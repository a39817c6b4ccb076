"""Keys in a state: what many of them have in common is written once."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from typing import Any

from loaderx.stream.node import Key
from loaderx.stream.packing import Packed, change_shared, length, pack, unpack


class Shared:
    """A part that the keys of several items have in common: the keys of the batch that a function made them of.

    It does not change. Two of the same content are equal, also where one was made anew, perhaps through JSON.

    Parameters
    ----------
    first, number : int
        The number of the batch's first item, and its own.
    keys : sequence of Key or None
        At least one.
    packed : list, optional
        They, packed, in their place.
    """

    __slots__ = ("__weakref__", "_digest", "_keys", "_packed", "first", "n", "number")

    _digest: bytes

    def __init__(
        self, first: int, number: int, keys: Sequence[Key] | None, packed: Packed | None = None
    ) -> None:
        self.first = first
        self.number = number
        self._keys = keys
        self._packed = packed
        self.n = length(packed) if keys is None and packed is not None else len(keys or ())

    def unpacked(self) -> Sequence[Key]:
        """Return the keys of the batch's items."""
        keys = self._keys
        return unpack(self.packed()) if keys is None else keys

    def packed(self) -> Packed:
        """Return them packed, and hold them so: one item that is left of a large batch keeps the keys of all."""
        if self._packed is None:
            self._packed = pack(self._keys or (), Shared)
            self._keys = None
        return self._packed

    def _identify(self) -> bytes:
        try:
            return self._digest
        except AttributeError:
            content = change_shared(self.packed(), lambda each: each._identify().hex(), thaw)
            told = repr([self.first, self.number, content]).encode()
            self._digest = blake2b(told, digest_size=16).digest()
            return self._digest

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, Shared) and self._identify() == other._identify())

    def __hash__(self) -> int:
        return hash(self._identify())


def thaw(key: Key) -> Key:
    """Return a key as nested lists, as it comes out of JSON, with the name of what is shared in its place."""
    if isinstance(key, Shared):
        return key._identify().hex()
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
        A dict has the shared parts, each behind those that are in it, and the keys, packed (`packing`), with the
        numbers of the parts in their places; in keys that are left plain, ``{"shared": i}`` stands for the part
        number i.
    """
    if not shares:
        return list(keys)
    parts: list[Any] = []
    # By content: after a resume, two nodes have made the same part anew.
    places: dict[Shared, int] = {}

    def name(part: Shared) -> int:
        place = places.get(part)
        if place is None:
            content = [part.first, part.number, change_shared(part.packed(), name, fold)]
            place = places[part] = len(parts)
            parts.append(content)
        return place

    def fold(key: Key) -> Any:
        if isinstance(key, Shared):
            return {"shared": name(key)}
        return [fold(each) for each in key] if isinstance(key, tuple | list) else key

    return {"keys": change_shared(pack(keys, Shared), name, fold), "shared": parts}


def load_keys(saved: Any) -> list[Key]:
    """Return the keys that `save_keys` saved."""
    if not isinstance(saved, dict):
        return list(saved)
    parts: list[Shared] = []

    def load(packed: Packed) -> Packed:
        return change_shared(packed, parts.__getitem__, unfold)

    def unfold(key: Any) -> Key:
        if isinstance(key, dict):
            return parts[key["shared"]]
        return [unfold(each) for each in key] if isinstance(key, list) else key

    for first, number, packed in saved["shared"]:
        parts.append(Shared(first, number, None, load(packed)))
    return unpack(load(saved["keys"]))


def freeze(key: Key) -> Key:
    """Return a key as nested tuples, so that equal ones are found by a dict, whether or not they have been JSON."""
    return tuple(map(freeze, key)) if isinstance(key, tuple | list) else key
