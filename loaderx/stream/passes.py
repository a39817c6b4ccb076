"""One input, read several times: each pass is a node of its own, in an order of its own where it is shuffled."""

from __future__ import annotations

from collections.abc import Sequence

from loaderx.stream.node import Item, Key, Node, Recipe
from loaderx.stream.seeds import mix


def build_pass(recipe: Recipe, epoch: int, number: int) -> Node:
    """Return the node of a pass, which has to be reset: the first one has the order of the epoch."""
    return recipe.build(epoch if number == 0 else mix(epoch, "pass", number))


def rebuild_passes(
    recipe: Recipe, epoch: int, keys: Sequence[tuple[int, Key]], live: tuple[int, Node] | None
) -> list[Item]:
    """Return the items of some keys, each with the number of its pass, in their order.

    Parameters
    ----------
    recipe : Recipe
    epoch : int
    keys : sequence of (int, Key)
    live : (int, Node) or None
        The pass that is running, if one is, and its number; others are built and closed again.
    """
    groups: dict[int, list[tuple[Key, int]]] = {}
    for position, (number, key) in enumerate(keys):
        groups.setdefault(number, []).append((key, position))
    items: list[Item] = [None] * len(keys)
    for number, group in groups.items():
        inner = [key for key, _ in group]
        if live is not None and number == live[0]:
            found = live[1].rebuild(inner)
        else:
            upstream = build_pass(recipe, epoch, number)
            try:
                upstream.reset()
                found = upstream.rebuild(inner)
            finally:
                upstream.close()
        for (_, position), item in zip(group, found, strict=True):
            items[position] = item
    return items
