"""A stream again and again, in another order each time where it is shuffled."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from loaderx.stream.node import Item, Key, Node, Recipe, State
from loaderx.stream.passes import build_pass, rebuild_passes
from loaderx.stream.tally import Counted, Tally, add_counts, counts_of


class Repeat(Node):
    """Passes over the same input. A key is (number of the pass, key in it).

    Parameters
    ----------
    upstream : Recipe
        Built for each pass: its epoch is this one's and the pass.
    n : int or None
        Passes; None: without end, but for an input without an item.
    epoch : int
    """

    called = "repeat"
    is_seeded = True
    builds_inputs = True

    def __init__(self, upstream: Recipe, n: int | None, epoch: int = 0) -> None:
        self._recipe = upstream
        self._most = n
        self._epoch = epoch
        self._upstream: Node | None = None
        # What the passes that have ended counted.
        self._counted: Counted = []

    @classmethod
    def is_endless(cls, options: Mapping[str, Any], inputs: Sequence[bool]) -> bool:
        return options["n"] is None or any(inputs)

    @property
    def shares_keys(self) -> bool:
        return self._recipe.shares_keys

    def reset(self, state: State | None = None) -> None:
        self.close()
        inner: State
        self._pass: int
        self._is_empty: bool
        inner, self._pass, self._is_empty, self._counted = (None, 0, True, []) if state is None else state
        self._upstream = build_pass(self._recipe, self._epoch, self._pass)
        self._upstream.reset(inner)

    def next(self) -> tuple[Key, Item]:
        while True:
            if self._most is not None and self._pass >= self._most:
                raise StopIteration
            assert self._upstream is not None, "reset comes first"
            try:
                key, item = self._upstream.next()
            except StopIteration:
                if self._is_empty:
                    raise
                self._begin_pass()
                continue
            self._is_empty = False
            return (self._pass, key), item

    def _begin_pass(self) -> None:
        following = build_pass(self._recipe, self._epoch, self._pass + 1)
        following.reset()
        before = self._upstream
        if before is not None:
            self._counted = counts_of(add_counts(before.tally(), self._counted))
        self._upstream, self._pass, self._is_empty = following, self._pass + 1, True
        if before is not None:
            before.close()

    def fraction(self) -> float | None:
        inner = None if self._upstream is None else self._upstream.fraction()
        return None if self._most is None or inner is None else (self._pass + inner) / max(1, self._most)

    def get_state(self) -> State:
        assert self._upstream is not None, "reset comes first"
        return [self._upstream.get_state(), self._pass, self._is_empty, self._counted]

    def tally(self) -> Tally:
        below = [] if self._upstream is None else add_counts(self._upstream.tally(), self._counted)
        return [{"step": self.called}, *below]

    def rebuild(self, keys: Sequence[Key]) -> list[Item]:
        assert self._upstream is not None, "reset comes first"
        return rebuild_passes(self._recipe, self._epoch, keys, (self._pass, self._upstream))

    def locate(self, key: Key) -> str:
        number, inner = key
        # By that pass: each has an order of its own, which may be in its keys.
        return f"{build_pass(self._recipe, self._epoch, number).locate(inner)}, in pass {number}"

    def close(self) -> None:
        if self._upstream is not None:
            self._upstream.close()
