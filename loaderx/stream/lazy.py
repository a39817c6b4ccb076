"""What a step is given as a function: refused where it makes what would give items later, which is no item."""

from __future__ import annotations

import inspect
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator
from typing import Any

from loaderx.errors import OptionError


def check_function(step: str, function: Any, may_yield: bool = False) -> None:
    """Raise `OptionError` for what is no function, or is one whose body would not run when it is called.

    Parameters
    ----------
    step : str
    function : object
    may_yield : bool
        What it makes is iterated, so it may be a generator function.
    """
    if not callable(function):
        raise OptionError(f"function is {function!r}: give a function", option="function", value=function)
    if _is(function, inspect.iscoroutinefunction) or _is(function, inspect.isasyncgenfunction):
        reason = (
            "is asynchronous, and nothing awaits what it makes: give a plain function, in threads if it waits"
        )
    elif _is(function, inspect.isgeneratorfunction) and not may_yield:
        reason = "yields, so that a call makes a generator and nothing of it runs: use return"
        if step == "map":
            reason += ", or flat_map for several items"
    else:
        return
    raise OptionError(f"{step}: the function {reason}", option="function", value=function)


def _is(function: Any, kind: Callable[[Any], bool]) -> bool:
    return kind(function) or kind(getattr(function, "__call__", None))  # noqa: B004 - an object's own


def refuse_lazy(made: Any) -> None:
    """Raise `TypeError` for what a function has made, if that is a generator or a coroutine."""
    refuse_async(made)
    if isinstance(made, Generator):
        raise TypeError("it returned a generator, which is no item: return the item, a list, or use flat_map")


def refuse_async(made: Any) -> None:
    """Raise `TypeError` for what has to be awaited."""
    if isinstance(made, Coroutine):
        made.close()  # or Python would warn that it was not awaited
    if isinstance(made, Coroutine | AsyncGenerator):
        raise TypeError("it returned what has to be awaited, which is no item: return the item")
