"""The user's functions, called by nodes: what they are given, and how what they raise says where."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any, NoReturn

from loaderx.errors import StateMismatchError, StreamError
from loaderx.store.telling import said
from loaderx.stream.node import Item, Key
from loaderx.stream.seeds import ItemRngs, mix

#: What errors say besides of an item that was given before a state was saved, and cannot be made anew.
HELD = ". The state holds what was made of this item, and cannot be loaded without"


def describe(function: Callable[..., Any]) -> str:
    """Return what a function is called: the same in every process."""
    if isinstance(function, functools.partial):
        return f"partial({describe(function.func)})"
    try:
        name = function.__qualname__
    except Exception:  # an object that is called, and has none, or raises when it is asked
        name = None
    return name if isinstance(name, str) and name else type(function).__qualname__


def explain(
    error: Exception, node: str, function: Callable[..., Any], where: str, is_held: bool = False
) -> StreamError:
    """Return what to raise for what a user's function raised, which is its cause.

    Parameters
    ----------
    error : Exception
    node : str
    function : callable
    where : str
        Where the item comes from.
    is_held : bool
        The item is made anew, for a state holds it.
    """
    return StreamError(
        f"{node}: {describe(function)} raised {type(error).__name__}: {said(error)} (for the item of {where})"
        f"{HELD if is_held else ''}",
        node=node,
        function=describe(function),
        where=where,
    )


def complain(error: Exception, node: str, where: str, is_held: bool = False) -> StreamError:
    """Return what to raise for an item that a step of ours cannot take; `error`, which says why, is its cause."""
    return StreamError(
        f"{node}: {said(error)} (the item of {where}){HELD if is_held else ''}",
        node=node,
        function=None,
        where=where,
    )


def make_anew(
    call: Callable[..., Item],
    items: Iterable[Item],
    keys: Iterable[Key],
    blame: Callable[[Exception, Key], Exception],
) -> list[Item]:
    """Return what a function makes of items that a state holds.

    Parameters
    ----------
    call : callable
        Called with each of `items`.
    items, keys : iterable
        As many.
    blame : callable
        Makes of what was raised, and the key, what to raise.
    """
    made = []
    for item, key in zip(items, keys, strict=True):
        try:
            made.append(call(item))
        except Exception as error:
            raise blame(error, key) from error
    return made


def refuse_fewer(node: str, function: Callable[..., Any], where: str, place: int, n: int) -> NoReturn:
    """Raise, for a function gives fewer items than it gave when a state was saved.

    Parameters
    ----------
    node : str
    function : callable
    where : str
        What it is called for.
    place : int
        The number of an item that it gave.
    n : int
        How many it gives now.
    """
    raise StateMismatchError(
        f"{node}: {describe(function)} gives {n} items here, and gave item {place} when the state was saved (for the "
        f"item of {where}): it has to give the same each time. Begin anew",
        mismatches={describe(function): (f"more than {place} items", f"{n} items")},
    )


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
