"""The user's functions, called by nodes: what they are given, and how what they raise says where."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from loaderx.errors import StreamError
from loaderx.stream.seeds import ItemRngs, mix


def describe(function: Callable[..., Any]) -> str:
    """Return what a function is called: the same in every process."""
    if isinstance(function, functools.partial):
        return f"partial({describe(function.func)})"
    return str(getattr(function, "__qualname__", None) or type(function).__qualname__)


def explain(error: Exception, node: str, function: Callable[..., Any], where: str) -> StreamError:
    """Return what to raise for what a user's function raised, which is its cause."""
    return StreamError(
        f"{node}: {describe(function)} raised {type(error).__name__}: {error} (for the item of {where})",
        node=node,
        function=describe(function),
        where=where,
    )


def complain(error: Exception, node: str, where: str) -> StreamError:
    """Return what to raise for an item that a step of ours cannot take; `error`, which says why, is its cause."""
    return StreamError(f"{node}: {error} (the item of {where})", node=node, function=None, where=where)


class Extras:
    """What a function is given behind the item: its number, random numbers of its own, or both in this order.

    Parameters
    ----------
    node : str
        Two kinds of nodes of the same seed have other random numbers.
    with_index : bool
    seed : int or None
        Of the random numbers; None: there are none.
    epoch : int
        Another one has other random numbers.
    """

    def __init__(self, node: str, with_index: bool, seed: int | None, epoch: int) -> None:
        self._with_index = with_index
        self._rngs = None if seed is None else ItemRngs(mix(seed, node, epoch))

    def of(self, number: int, index: Any) -> tuple[Any, ...]:
        """Return them for an item, or for a batch of items: its number, and what is given as its index."""
        if self._rngs is None:
            return (index,) if self._with_index else ()
        rng = self._rngs.of(number)
        return (index, rng) if self._with_index else (rng,)
