"""Whether what a saved position says can be true; what raises here is `StateMismatchError` where it is loaded."""

from __future__ import annotations

from typing import Any, NoReturn

from loaderx.errors import StateMismatchError


def check_number(name: str, value: Any, least: int = 0, most: int | None = None) -> int:
    """Return a number of a state.

    Raises
    ------
    ValueError
        It is no whole number, or too small or large.
    """
    if type(value) is not int or value < least or (most is not None and value > most):
        upto = "on" if most is None else f"to {most}"
        raise ValueError(f"{name} is {value!r}, and no whole number from {least} {upto}")
    return value


def check_list(name: str, value: Any) -> list[Any]:
    """Return a list of a state, or raise `ValueError`."""
    if not isinstance(value, list | tuple):
        raise ValueError(f"{name} is {value!r}, and no list")
    return list(value)


def refuse_beyond(name: str, place: str, found: str) -> NoReturn:
    """Raise, for a shard has ended before the place where a state goes on, which was not known before it was read.

    Parameters
    ----------
    name : str
        What errors call the shard.
    place, found : str
        Where the state is, and how much there is.
    """
    raise StateMismatchError(
        f"the saved state is damaged: it goes on at {place} of {name}, which has {found}. Load the one before it, or "
        "begin anew",
        mismatches={name: (place, found)},
    )
