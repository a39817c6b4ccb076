"""Batches of another number of rows."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any

import numpy as np

from loaderx.errors import StreamError
from loaderx.stream.calling import complain, make_anew
from loaderx.stream.collating import as_dict, count_rows
from loaderx.stream.keys import freeze, load_keys, save_keys
from loaderx.stream.node import Item, Key, Node, State
from loaderx.stream.regular import join


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
        # Batches of which rows have not been given: keys as above, the whole batches, and how many rows that is in all.
        # They are never cut for what is left: that would copy the rest of a large one for each small one.
        self._keys: deque[Key] = deque([] if state is None else load_keys(state["keys"]))
        self._batches: deque[Any] = deque(self._rebuild_batches([key for key, _, _ in self._keys]))
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
                batch = _as_batch(batch)
                n = len(batch) if not isinstance(batch, dict) else count_rows(batch)
            except Exception as error:
                raise complain(error, "rebatch", self._upstream.locate(key)) from error
            if n:
                self._keys.append((key, 0, n))
                self._batches.append(batch)
                self._n += n
        return self._take(min(self._size, self._n))

    def _take(self, n: int) -> tuple[Key, Item]:
        keys, parts = [], []
        while n:
            (key, first, end), batch = self._keys[0], self._batches[0]
            stop = min(first + n, end)
            keys.append((key, first, stop))
            parts.append(batch if (first, stop) == (0, end) else _cut(batch, first, stop))
            if stop == end:
                self._keys.popleft()
                self._batches.popleft()
            else:
                self._keys[0] = (key, stop, end)
            n -= stop - first
            self._n -= stop - first
        try:
            return keys, _join(parts)
        except Exception as error:
            raise complain(error, "rebatch", self.locate(keys)) from error

    def get_state(self) -> State:
        return {"upstream": self._upstream.get_state(), "keys": save_keys(list(self._keys), self.shares_keys)}

    def rebuild(self, keys: Sequence[Key]) -> list[Item]:
        parts = iter(self._rebuild_parts([part for key in keys for part in key]))
        return make_anew(_join, ([next(parts) for _ in key] for key in keys), keys, self._blame)

    def _blame(self, error: Exception, key: Key) -> StreamError:
        return complain(error, "rebatch", self.locate(key), is_held=True)

    def _rebuild_parts(self, keys: Sequence[Any]) -> list[Any]:
        batches = self._rebuild_batches([key for key, _, _ in keys])
        return [_cut(batch, first, end) for batch, (_, first, end) in zip(batches, keys, strict=True)]

    def _rebuild_batches(self, keys: Sequence[Key]) -> list[Any]:
        # A batch of which several parts are asked for is made once.
        places: dict[Key, int] = {}
        of: list[Key] = []
        at = []
        for key in keys:
            frozen = freeze(key)
            if places.setdefault(frozen, len(of)) == len(of):
                of.append(key)
            at.append(places[frozen])
        batches = list(map(_as_batch, self._upstream.rebuild(of))) if of else []
        return [batches[place] for place in at]

    def locate(self, key: Key) -> str:
        first = self._upstream.locate(key[0][0])
        return first if len(key) == 1 else f"{first}, and of {len(key) - 1} more batches"

    def close(self) -> None:
        self._keys, self._batches, self._n = deque(), deque(), 0
        self._upstream.close()


def _as_batch(item: Any) -> Any:
    if isinstance(item, list | np.ndarray):
        return item
    batch = as_dict(item)
    if batch is None:
        raise TypeError(
            f"the item is a {type(item).__name__}, and has to be a batch: a dict of lists or arrays, a list, or "
            "an array"
        )
    if not batch:
        raise ValueError("the batch is a dict without names, and nobody knows how many rows it has")
    return batch


def _cut(batch: Any, first: int, end: int) -> Any:
    if isinstance(batch, dict):
        return {name: column[first:end] for name, column in batch.items()}
    return batch[first:end]


def _join(parts: list[Any], name: str = "the batches") -> Any:
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
        return {name: _join([part[name] for part in parts], repr(name)) for name in names}
    if all(isinstance(part, np.ndarray) for part in parts):
        found = join(parts, np.concatenate)
        if found is None:
            dtypes = ", ".join(sorted({str(part.dtype) for part in parts}))
            raise ValueError(
                f"{name}: no dtype holds the values of {dtypes} as they are: give them one by map"
            )
        return found
    return [row for part in parts for row in part]
