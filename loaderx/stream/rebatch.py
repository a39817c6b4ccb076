"""Batches of another number of rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from loaderx.errors import StreamError
from loaderx.stream.calling import complain, make_anew
from loaderx.stream.keys import freeze, load_keys, save_keys
from loaderx.stream.node import Item, Key, Node, State


class Rebatch(Node):
    """Batches of `size` rows, whatever those of the input have. A key is a list of (key, first row, end).

    Parameters
    ----------
    upstream : Node
        Its items are batches: dicts of lists or of arrays, lists, or arrays.
    size : int
    drop_last : bool
        Leave out a last batch that is shorter.
    """

    called = "rebatch"
    makes_batches = True

    def __init__(self, upstream: Node, size: int, drop_last: bool = False) -> None:
        self._upstream = upstream
        self._size = size
        self._drop_last = drop_last

    def reset(self, state: State | None = None) -> None:
        self._upstream.reset(None if state is None else state["upstream"])
        # Parts of batches that have not been given: keys as above, the rows, and how many there are in all.
        self._keys: list[Key] = [] if state is None else load_keys(state["keys"])
        self._parts: list[Any] = self._rebuild_parts(self._keys)
        self._n = sum(end - first for _, first, end in self._keys)

    def next(self) -> tuple[Key, Item]:
        while self._n < self._size:
            try:
                key, batch = self._upstream.next()
            except StopIteration:
                if self._n == 0 or self._drop_last:
                    raise
                break
            try:
                n = _count_rows(batch)
            except Exception as error:
                raise complain(error, "rebatch", self._upstream.locate(key)) from error
            if n:
                self._keys.append((key, 0, n))
                self._parts.append(batch)
                self._n += n
        return self._take(min(self._size, self._n))

    def _take(self, n: int) -> tuple[Key, Item]:
        keys, parts = [], []
        while n:
            key, first, end = self._keys[0]
            here = min(n, end - first)
            keys.append((key, first, first + here))
            if here == end - first:
                parts.append(self._parts.pop(0))
                self._keys.pop(0)
            else:
                parts.append(_cut(self._parts[0], 0, here))
                self._parts[0] = _cut(self._parts[0], here, end - first)
                self._keys[0] = (key, first + here, end)
            n -= here
            self._n -= here
        try:
            return keys, _join(parts)
        except Exception as error:
            raise complain(error, "rebatch", self.locate(keys)) from error

    def get_state(self) -> State:
        return {"upstream": self._upstream.get_state(), "keys": save_keys(self._keys, self.shares_keys)}

    def rebuild(self, keys: Sequence[Key]) -> list[Item]:
        parts = iter(self._rebuild_parts([part for key in keys for part in key]))
        return make_anew(_join, ([next(parts) for _ in key] for key in keys), keys, self._blame)

    def _blame(self, error: Exception, key: Key) -> StreamError:
        return complain(error, "rebatch", self.locate(key), is_held=True)

    def _rebuild_parts(self, keys: Sequence[Any]) -> list[Any]:
        # A batch of which several parts are asked for is made once.
        places: dict[Key, int] = {}
        of: list[Key] = []
        at = []
        for key, _, _ in keys:
            frozen = freeze(key)
            if places.setdefault(frozen, len(of)) == len(of):
                of.append(key)
            at.append(places[frozen])
        batches = self._upstream.rebuild(of) if of else []
        return [_cut(batches[place], first, end) for place, (_, first, end) in zip(at, keys, strict=True)]

    def locate(self, key: Key) -> str:
        first = self._upstream.locate(key[0][0])
        return first if len(key) == 1 else f"{first}, and of {len(key) - 1} more batches"

    def close(self) -> None:
        self._keys, self._parts, self._n = [], [], 0
        self._upstream.close()


def _count_rows(batch: Any) -> int:
    if isinstance(batch, dict):
        lengths = {name: len(column) for name, column in batch.items()}
        if len(set(lengths.values())) != 1:
            raise ValueError(f"the lists of a batch have to be of one length, and have {lengths}")
        return next(iter(lengths.values()))
    if isinstance(batch, list | np.ndarray):
        return len(batch)
    raise TypeError(
        f"the item is a {type(batch).__name__}, and has to be a batch: a dict of lists or arrays, a list, or an array"
    )


def _cut(batch: Any, first: int, end: int) -> Any:
    if isinstance(batch, dict):
        return {name: column[first:end] for name, column in batch.items()}
    return batch[first:end]


def _join(parts: list[Any]) -> Any:
    first = parts[0]
    if len(parts) == 1:
        return first
    if isinstance(first, dict):
        names = list(first)
        for part in parts:
            if not isinstance(part, dict) or part.keys() != first.keys():
                raise ValueError(
                    f"the batches have to have the same names: one has {names}, and one {list(part)}"
                )
        return {name: _join([part[name] for part in parts]) for name in names}
    if all(isinstance(part, np.ndarray) for part in parts):
        return np.concatenate(parts)
    return [row for part in parts for row in part]
