"""A stream again and again, in another order each time where it is shuffled."""

from __future__ import annotations

from collections.abc import Sequence

from loaderx.stream.node import Item, Key, Node, Recipe, State
from loaderx.stream.seeds import mix


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

    is_seeded = True
    builds_inputs = True

    def __init__(self, upstream: Recipe, n: int | None, epoch: int = 0) -> None:
        self._recipe = upstream
        self._most = n
        self._epoch = epoch
        self._upstream: Node | None = None

    def _build(self, number: int) -> Node:
        return self._recipe.build(self._epoch if number == 0 else mix(self._epoch, "pass", number))

    def reset(self, state: State | None = None) -> None:
        self.close()
        inner, self._pass, self._is_empty = (None, 0, True) if state is None else state
        self._upstream = self._build(self._pass)
        self._upstream.reset(inner)

    def next(self) -> tuple[Key, Item]:
        while True:
            if self._pass == self._most:
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
        following = self._build(self._pass + 1)
        following.reset()
        if self._upstream is not None:
            self._upstream.close()
        self._upstream, self._pass, self._is_empty = following, self._pass + 1, True

    def get_state(self) -> State:
        assert self._upstream is not None, "reset comes first"
        return [self._upstream.get_state(), self._pass, self._is_empty]

    def rebuild(self, keys: Sequence[Key]) -> list[Item]:
        groups: dict[int, list[tuple[Key, int]]] = {}
        for position, (number, key) in enumerate(keys):
            groups.setdefault(number, []).append((key, position))
        items: list[Item] = [None] * len(keys)
        for number, group in groups.items():
            upstream = self._build(number)
            upstream.reset()
            found = upstream.rebuild([key for key, _ in group])
            upstream.close()
            for (_, position), item in zip(group, found, strict=True):
                items[position] = item
        return items

    def locate(self, key: Key) -> str:
        number, inner = key
        assert self._upstream is not None, "reset comes first"
        return f"{self._upstream.locate(inner)}, in pass {number}"

    def close(self) -> None:
        if self._upstream is not None:
            self._upstream.close()
            self._upstream = None
