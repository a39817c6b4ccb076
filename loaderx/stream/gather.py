"""Batches as a function of batches takes them, each with the numbers of its items."""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Callable, Sequence
from itertools import islice
from typing import Any, NamedTuple

from loaderx.stream.calling import Extras
from loaderx.stream.collating import collate, spread
from loaderx.stream.keys import Shared, load_keys, save_keys
from loaderx.stream.node import Item, Key, Node, State

# Of what is still held when so many more batches have come, the keys are packed, if they are not few: packing takes
# about as long as gathering them.
_LATER = 16
_FEW = 64


class Gathered(NamedTuple):
    """A batch for the function: what `collate` made of its items, their first number, how many, and its own number."""

    batch: Any
    first: int
    n: int
    number: int


class Gather(Node):
    """Batches of `size` items, as `Gathered`.

    A key is a `Shared`.

    Parameters
    ----------
    upstream : Node
    size : int
    drop_last : bool
        Leave out a last batch that is shorter.
    """

    called = "map"
    makes_shared_keys = True

    def __init__(self, upstream: Node, size: int, drop_last: bool) -> None:
        self._upstream = upstream
        self._size = size
        self._drop_last = drop_last
        self._latest: deque[weakref.ref[Shared]] = deque()

    def reset(self, state: State | None = None) -> None:
        if state is None:
            state = {"upstream": None, "keys": [], "n": 0, "n_batches": 0}
        self._upstream.reset(state["upstream"])
        # How many items were in the batches so far, and how many batches.
        self._n, self._n_batches = state["n"], state["n_batches"]
        # What the next batch has already: kept while something below raises.
        self._keys = load_keys(state["keys"])
        self._rows = self._upstream.rebuild(self._keys) if self._keys else []

    def next(self) -> tuple[Key, Item]:
        keys, rows, upstream = self._keys, self._rows, self._upstream.next
        try:
            for _ in range(self._size - len(keys)):
                key, row = upstream()
                keys.append(key)
                rows.append(row)
        except StopIteration:
            if not keys or self._drop_last:
                raise
        made_of = Shared(self._n, self._n_batches, keys)
        self._n += len(keys)
        self._n_batches += 1
        self._keys, self._rows = [], []
        if made_of.n >= _FEW:
            self._note(made_of)
        return made_of, _put_together(made_of, rows)

    def _note(self, made_of: Shared) -> None:
        self._latest.append(weakref.ref(made_of))
        if len(self._latest) > _LATER:
            held = self._latest.popleft()()
            if held is not None:
                held.packed()

    def get_state(self) -> State:
        return {
            "upstream": self._upstream.get_state(),
            "keys": save_keys(self._keys, self._upstream.shares_keys),
            "n": self._n,
            "n_batches": self._n_batches,
        }

    def rebuild(self, keys: Sequence[Key]) -> list[Item]:
        rows = iter(self._upstream.rebuild([key for made_of in keys for key in made_of.unpacked()]))
        return [_put_together(made_of, list(islice(rows, made_of.n))) for made_of in keys]

    def locate(self, key: Key) -> str:
        first = self._upstream.locate(key.unpacked()[0])
        return first if key.n == 1 else f"{first}, and {key.n - 1} more in its batch"

    def close(self) -> None:
        self._keys, self._rows = [], []
        self._upstream.close()


def _put_together(made_of: Key, rows: list[Item]) -> Gathered:
    return Gathered(collate(rows), made_of.first, len(rows), made_of.number)


class GatheredCall:
    """Calls a function of batches for what `Gather` gives, and returns the list of its items. It pickles.

    Parameters
    ----------
    function : callable
    extras : Extras
    """

    def __init__(self, function: Callable[..., Any], extras: Extras) -> None:
        self._function = function
        self._extras = extras

    def __call__(self, gathered: Gathered) -> list[Item]:
        batch, first, n, number = gathered
        return spread(self._function(batch, *self._extras.of(number, list(range(first, first + n)))))
