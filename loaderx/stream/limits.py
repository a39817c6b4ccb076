"""Parts of a stream: without its first items, its first items alone, each n-th of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from loaderx.stream.node import Item, Key, Node, State, Transparent


class _Counted(Transparent):
    """Counts the items of its input that have gone by."""

    freezes_order = True

    def __init__(self, upstream: Node) -> None:
        super().__init__(upstream)
        self._n = 0

    def reset(self, state: State | None = None) -> None:
        inner, self._n = (None, 0) if state is None else state
        super().reset(inner)

    def get_state(self) -> State:
        return [self._upstream.get_state(), self._n]


class Skip(_Counted):
    """All items but the first `n`."""

    called = "skip"

    def __init__(self, upstream: Node, n: int) -> None:
        super().__init__(upstream)
        self._most = n

    def next(self) -> tuple[Key, Item]:
        while self._n < self._most:
            self._next()
            self._n += 1
        return self._next()


class Take(_Counted):
    """The first `n` items."""

    called = "take"

    def __init__(self, upstream: Node, n: int) -> None:
        super().__init__(upstream)
        self._most = n

    @classmethod
    def is_endless(cls, options: Mapping[str, Any], inputs: Sequence[bool]) -> bool:
        return False

    def fraction(self) -> float | None:
        return max(self._n / max(1, self._most), super().fraction() or 0.0)

    def next(self) -> tuple[Key, Item]:
        if self._n >= self._most:
            raise StopIteration
        pair = self._next()
        self._n += 1
        return pair


class Step(_Counted):
    """Each `n`-th item, beginning with number `first`."""

    called = "step"

    def __init__(self, upstream: Node, n: int, first: int = 0) -> None:
        super().__init__(upstream)
        self._step = n
        self._first = first

    def next(self) -> tuple[Key, Any]:
        while True:
            pair = self._next()
            n = self._n
            self._n = n + 1
            if n % self._step == self._first:
                return pair
