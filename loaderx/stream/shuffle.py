"""Items in a random order, as far as a buffer of them allows."""

from __future__ import annotations

from collections.abc import Sequence

from loaderx.stream.ended import Ended, remains
from loaderx.stream.keys import load_keys, save_keys
from loaderx.stream.node import Item, Key, Node, State
from loaderx.stream.seeds import Draws, mix


class Shuffle(Node):
    """Items through a buffer: each one that is given is drawn from it, and the next of the input takes its place.

    Where the input has ended, the last item of the buffer takes the place, so that what is left comes in random order.

    Parameters
    ----------
    upstream : Node
    buffer_size : int
    seed : int
    epoch : int
        Another one has another order.
    """

    called = "shuffle"
    is_seeded = True

    def __init__(self, upstream: Node, buffer_size: int, seed: int, epoch: int = 0) -> None:
        self._upstream = upstream
        self._next = upstream.next
        self._size = buffer_size
        self._draws = Draws(mix(seed, "shuffle", epoch))
        self._below = self._draws.below
        self._pairs: list[tuple[Key, Item]] = []
        # What is left of the input, once that has ended.
        self._ended: Ended | None = None

    def reset(self, state: State | None = None) -> None:
        self._is_filled = state is not None and state["filled"]
        # A state does not say that the input has ended, for the input says it again.
        self._ended = None
        self._draws.seek(0 if state is None else state["draws"])
        self._upstream.reset(None if state is None else state["upstream"])
        keys = [] if state is None else load_keys(state["keys"])
        self._pairs = list(zip(keys, self._upstream.rebuild(keys), strict=True)) if keys else []

    def _fill(self) -> None:
        pairs, upstream = self._pairs, self._next
        try:
            while len(pairs) < self._size:
                pairs.append(upstream())
        except StopIteration:
            self._end()
        self._is_filled = True

    def _end(self) -> None:
        self._ended, self._is_filled = remains(self._upstream), True
        self._upstream.close()

    def next(self) -> tuple[Key, Item]:
        pairs = self._pairs
        if not self._is_filled:
            self._fill()
        if not pairs:
            raise StopIteration
        if self._ended is None:
            # First what may raise: an error leaves the buffer as it is.
            try:
                new = self._next()
            except StopIteration:
                self._end()
            else:
                i = self._below(len(pairs))
                given = pairs[i]
                pairs[i] = new
                return given
        i = self._below(len(pairs))
        given = pairs[i]
        last = pairs.pop()
        if i < len(pairs):
            pairs[i] = last
        return given

    def get_state(self) -> State:
        return {
            "upstream": self._upstream.get_state() if self._ended is None else self._ended.state,
            "draws": self._draws.at,
            "filled": self._is_filled,
            "keys": save_keys([key for key, _ in self._pairs], self.shares_keys),
        }

    def rebuild(self, keys: Sequence[Key]) -> list[Item]:
        return self._upstream.rebuild(keys)

    def locate(self, key: Key) -> str:
        return self._upstream.locate(key)

    def close(self) -> None:
        self._pairs = []
        self._upstream.close()
