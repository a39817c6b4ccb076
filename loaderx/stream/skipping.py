"""What nodes that may leave out items, for a function that raises, have in common: how many they left out."""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

from loaderx.stream.node import Key, Node, State

OnError: TypeAlias = Literal["raise", "skip"]
ON_ERROR: tuple[OnError, ...] = ("raise", "skip")


class MaySkip(Node):
    """A node that may leave out the items that its function raises for: then it counts them, in its state too.

    Attributes
    ----------
    n_skipped : int
        Items of the input that were left out.
    """

    _skips = False
    n_skipped = 0

    def weigh(self, key: Key) -> int:
        """Return how many items of the input a call of the function is for."""
        return 1

    def load_skipped(self, state: State | None) -> State | None:
        """Begin with the count of a state, and return what else is in the state."""
        if not self._skips:
            return state
        inner: State
        inner, self.n_skipped = (None, 0) if state is None else state
        return inner

    def save_skipped(self, inner: State) -> State:
        """Return a state with the count in it."""
        return [inner, self.n_skipped] if self._skips else inner

    def counts(self) -> dict[str, Any]:
        return {"skipped": self.n_skipped} if self._skips else {}
