"""Many keys in little room: numbers in a row by the first one, others by their differences."""

from __future__ import annotations

import base64
import zlib
from array import array
from collections.abc import Callable, Sequence
from itertools import accumulate, chain
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from loaderx.stream.node import Key

#: Keys that are packed: a list, the first of which says how. Of plain JSON, but for what is shared. One list of keys
#: has one form, whatever it is made from.
#:
#: - ``["run", first, step, n]``: numbers.
#: - ``["steps", first, dtype, differences]``: numbers, by the bytes of their differences, in base 64.
#: - ``["deflated steps", ...]``: many of them. Shards that are read in turns repeat themselves.
#: - ``["columns", *packed]``: keys of as many parts, each part of all of them by itself.
#: - ``["lists", packed, packed]``: keys of different lengths: these, and all parts in a row.
#: - ``["shared", parts, packed]``: parts that several have in common, each once, and the number of that of each key.
#: - ``["plain", keys]``: anything else.
Packed: TypeAlias = list[Any]

_STEPS = ("steps", "deflated steps")
_DTYPES = ("<i1", "<i2", "<i4", "<i8")
# Below it the differences of any two fit 64 bits.
_MOST = 2**62
_MANY_BYTES = 64


def pack(keys: Sequence[Key], shared: type[Any]) -> Packed:
    """Return keys packed.

    Parameters
    ----------
    keys : sequence
    shared : type
        That of the parts which keys have in common. They hash, and equal ones are written once.
    """
    kinds = {*map(type, keys)}
    if kinds == {int}:
        return _pack_numbers(keys)
    if kinds and kinds <= {tuple, list}:
        lengths = [*map(len, keys)]
        if len(set(lengths)) > 1:
            return ["lists", _pack_numbers(lengths), pack([*chain.from_iterable(keys)], shared)]
        if lengths[0]:
            return ["columns", *(pack(column, shared) for column in zip(*keys, strict=True))]
    if kinds == {shared}:
        # By identity first, which is faster: they are few. Then by content: after a resume two may be one.
        by_id = {id(key): key for key in keys}
        places: dict[Any, int] = {}
        place_of = {name: places.setdefault(key, len(places)) for name, key in by_id.items()}
        return ["shared", [*places], _pack_numbers([place_of[id(key)] for key in keys])]
    return ["plain", [*keys]]


def _pack_numbers(numbers: Sequence[int]) -> Packed:
    first, n = numbers[0], len(numbers)
    step = numbers[1] - first if n > 1 else 1
    # A run looks like one at its end; only then are all of them compared.
    if numbers[-1] - first == step * (n - 1) and (
        numbers.count(first) == n
        if step == 0
        else tuple(numbers) == tuple(range(first, first + step * n, step))
    ):
        return ["run", first, step, n]
    if min(numbers) < -_MOST or max(numbers) > _MOST:
        return ["plain", [*numbers]]
    steps = np.diff(np.frombuffer(array("q", numbers), np.int64))
    least, most = int(steps.min()), int(steps.max())
    dtype = next(dtype for dtype in _DTYPES if np.iinfo(dtype).min <= least and most <= np.iinfo(dtype).max)
    data = steps.astype(dtype).tobytes()
    how = _STEPS[len(data) > _MANY_BYTES]
    if how != "steps":
        data = zlib.compress(data, 1)
    return [how, first, dtype, base64.b64encode(data).decode()]


def _unpack_steps(how: str, dtype: str, steps: str) -> npt.NDArray[Any]:
    data = base64.b64decode(steps)
    return np.frombuffer(data if how == "steps" else zlib.decompress(data), dtype)


def unpack(packed: Packed) -> list[Key]:
    """Return the keys, those of several parts as tuples."""
    how, *what = packed
    if how == "run":
        first, step, n = what
        return [first] * n if step == 0 else [*range(first, first + step * n, step)]
    if how in _STEPS:
        first, dtype, steps = what
        return [*accumulate(_unpack_steps(how, dtype, steps).tolist(), initial=first)]
    if how == "columns":
        if len({*map(length, what)}) != 1:
            raise ValueError("keys whose parts are not as many")
        return [*zip(*map(unpack, what), strict=True)]
    if how == "lists":
        parts = iter(unpack(what[1]))
        return [tuple(next(parts) for _ in range(n)) for n in unpack(what[0])]
    if how == "shared":
        return [what[0][place] for place in unpack(what[1])]
    return [*what[0]]


def length(packed: Packed) -> int:
    """Return how many keys there are."""
    how, *what = packed
    if how == "run":
        return int(what[2])
    if how in _STEPS:
        return 1 + len(_unpack_steps(how, *what[1:]))
    if how == "shared":
        return length(what[1])
    return length(what[0]) if how in ("columns", "lists") else len(what[0])


def change_shared(packed: Packed, change: Callable[[Any], Any], plain: Callable[[Key], Key]) -> Packed:
    """Return keys that are packed with other shared parts, and what is left as it was changed by `plain`."""
    how, *what = packed
    if how == "shared":
        return [how, [*map(change, what[0])], what[1]]
    if how in ("columns", "lists"):
        return [how, *(change_shared(each, change, plain) for each in what)]
    return [how, [*map(plain, what[0])]] if how == "plain" else packed
