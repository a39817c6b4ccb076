"""The user's functions, called by nodes: what they raise says where, or is counted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from loaderx.errors import StreamError


def describe(function: Callable[..., Any]) -> str:
    """Return what a function is called, or an object that can be called is."""
    return str(getattr(function, "__qualname__", None) or repr(function))


def explain(error: Exception, node: str, function: Callable[..., Any], where: str) -> StreamError:
    """Return what to raise for what a user's function raised, which is its cause."""
    return StreamError(
        f"{node}: {describe(function)} raised {type(error).__name__}: {error} (for the item of {where})",
        node=node,
        function=describe(function),
        where=where,
    )
