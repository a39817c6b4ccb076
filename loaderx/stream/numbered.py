"""A function of each item and its number, or of random numbers of its own."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

from loaderx.errors import StreamError
from loaderx.stream.calling import Extras, explain, make_anew
from loaderx.stream.lazy import refuse_lazy
from loaderx.stream.node import Item, Key, Node, State
from loaderx.stream.skipping import MaySkip


class NumberedMap(MaySkip):
    """A function of each item and its number, random numbers of its own, or both: the number is in the key.

    Parameters
    ----------
    upstream : Node
    function : callable
        ``function(item, number)``, ``function(item, rng)`` or ``function(item, number, rng)``.
    with_index : bool
    seed : int or None
        Of the random numbers, which are a function of it, of the epoch and of the item's number; None: there are none.
    skips : bool
        Leave out the items that the function raises for, and count them.
    epoch : int
        Another one has other random numbers.
    """

    called = "map"
    is_seeded = True

    def __init__(
        self,
        upstream: Node,
        function: Callable[..., Item],
        with_index: bool = False,
        seed: int | None = None,
        skips: bool = False,
        epoch: int = 0,
    ) -> None:
        self._upstream = upstream
        self._next = upstream.next
        self._function = function
        # None: the number alone, which needs no detour.
        self._extras = None if seed is None else Extras("map", with_index, seed, epoch).of
        self._skips = skips
        self._is_looked_at = False

    def reset(self, state: State | None = None) -> None:
        inner: State
        self._n: int
        inner, self._n = self.load_skipped(state) or (None, 0)
        self._upstream.reset(inner)

    def next(self) -> tuple[Key, Item]:
        function, extras = self._function, self._extras
        while True:
            key, item = self._next()
            number = self._n
            self._n = number + 1
            try:
                made = function(item, number) if extras is None else function(item, *extras(number, number))
                if not self._is_looked_at:
                    refuse_lazy(made)
                    self._is_looked_at = True  # once: a function that does so does it for every item
                return (key, number), made
            except Exception as error:
                if not self._skips:
                    raise self._blame(error, (key, number)) from error
                self.n_skipped += 1

    def get_state(self) -> State:
        return self.save_skipped([self._upstream.get_state(), self._n])

    def rebuild(self, keys: Sequence[Key]) -> list[Item]:
        items = self._upstream.rebuild([key for key, _ in keys])
        numbered = zip(items, (number for _, number in keys), strict=True)
        return make_anew(self._call_anew, numbered, keys, functools.partial(self._blame, is_held=True))

    def _call_anew(self, numbered: tuple[Item, int]) -> Item:
        item, number = numbered
        return self._function(item, *(self._extras(number, number) if self._extras else (number,)))

    def _blame(self, error: Exception, key: Key, is_held: bool = False) -> StreamError:
        return explain(error, "map", self._function, self.locate(key), is_held)

    def locate(self, key: Key) -> str:
        return self._upstream.locate(key[0])

    def close(self) -> None:
        self._upstream.close()


class IndexedMap(NumberedMap):
    """A function that is given the item's number: which item has which number must not change with the epoch."""

    freezes_order = True
