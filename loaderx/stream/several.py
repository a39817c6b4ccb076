"""What nodes of several inputs have in common."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from loaderx.stream.ended import close_all
from loaderx.stream.node import Item, Key, Node, State


class Several(Node):
    """A node of several inputs.

    Parameters
    ----------
    *upstreams : Node
    """

    takes_several = True

    def __init__(self, *upstreams: Node) -> None:
        self._upstreams = list(upstreams)

    def inputs(self) -> Sequence[Node]:
        return self._upstreams

    def _reset_inputs(self, states: Sequence[State] | None) -> None:
        for i, upstream in enumerate(self._upstreams):
            upstream.reset(None if states is None else states[i])

    def _input_states(self) -> list[State]:
        return [upstream.get_state() for upstream in self._upstreams]

    def _rebuild_inputs(self, keys: Sequence[tuple[int, Key]]) -> list[Item]:
        """Return the items of some keys, each with the number of its input: one call for each input."""
        items: list[Any] = [None] * len(keys)
        groups: dict[int, list[int]] = {}
        for position, (number, _) in enumerate(keys):
            groups.setdefault(number, []).append(position)
        for number, positions in groups.items():
            found = self._rebuild_input(number, [keys[position][1] for position in positions])
            for position, item in zip(positions, found, strict=True):
                items[position] = item
        return items

    def _rebuild_input(self, number: int, keys: Sequence[Key]) -> list[Item]:
        return self._upstreams[number].rebuild(keys)

    def close(self) -> None:
        close_all(self._upstreams)
