"""Whether a saved state is one of a stream, and what is different if not."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator, Mapping
from typing import Any, NoReturn

from loaderx.errors import StateMismatchError
from loaderx.store.telling import said, shown

STATE_VERSION = 1

_PARTS = {"version", "pipeline", "epoch", "position"}
_MOST_EPOCH = 2**62
# What a list of files is told by, besides their number.
_NAMES = "names"


def check_state(state: Any, pipeline: list[Any]) -> None:
    """Look whether a state is one of this pipeline.

    Parameters
    ----------
    state : object
        What is to be one.
    pipeline : list
        What `Recipe.describe` says.

    Raises
    ------
    StateMismatchError
    """
    if not isinstance(state, Mapping) or not set(state) >= _PARTS:
        raise StateMismatchError(
            "this is no state of a stream: give the dict that state_dict() returned",
            mismatches={"state": (state, "a dict")},
        )
    version, epoch = state["version"], state["epoch"]
    if type(version) is not int or version != STATE_VERSION:
        raise StateMismatchError(
            f"the saved state is of version {shown(version)}, and this release reads {STATE_VERSION}",
            mismatches={"version": (version, STATE_VERSION)},
        )
    if type(epoch) is not int or not 0 <= epoch <= _MOST_EPOCH:
        raise StateMismatchError(
            f"the saved state is damaged: its epoch is {shown(epoch)}, and no number from 0 on. Load the one before it",
            mismatches={"epoch": (epoch, "a number")},
        )
    here = json.loads(json.dumps(pipeline))
    try:
        saved = json.loads(json.dumps(state["pipeline"]))
    except (TypeError, ValueError):
        saved = shown(state["pipeline"])
    if saved != here:
        raise StateMismatchError(
            f"the saved state is of another stream: {'; '.join(_differences(saved, here))}. Make this one as that one "
            "was made, or begin anew",
            mismatches={"pipeline": (saved, here)},
        )


def own(state: Any) -> Any:
    """Return a copy of a state, which whoever loads it may go on to change; what is none is left to `check_state`."""
    return copy.deepcopy(dict(state)) if isinstance(state, Mapping) else state


def refuse_position(error: Exception) -> NoReturn:
    """Raise what says that a state of this pipeline has a position that none of its passes was ever at."""
    raise StateMismatchError(
        "the saved state is damaged: its position fits no pass of this stream "
        f"({type(error).__name__}: {said(error)}). Load the one before it, or begin anew",
        mismatches={"position": ("damaged", "a position that state_dict() gave")},
    ) from error


def _differences(saved: Any, here: Any) -> Iterator[str]:
    """Yield what is different between two descriptions of pipelines, in words."""
    try:
        steps = _steps(saved), _steps(here)
    except (TypeError, ValueError, IndexError, AttributeError, RecursionError):
        yield f"what it says of its pipeline is no description of one: {str(saved)[:200]}"
        return
    if [name for name, _ in steps[0]] != [name for name, _ in steps[1]]:
        yield f"it was {_chain(saved)}, and is {_chain(here)} here"
        return
    for (name, was), (_, now) in zip(*steps, strict=True):
        for option in dict.fromkeys([*was, *now]):
            if was.get(option) == now.get(option):
                continue
            if option == _NAMES:
                yield f"the names of the sources of {name} are others"
            else:
                yield f"{option} of {name} was {_shown(was, option)}, and is {_shown(now, option)} here"


def _steps(pipeline: list[Any]) -> list[tuple[str, dict[str, Any]]]:
    """Return the steps of a description and their options, each in front of what it is made of."""
    name, told, *inputs = pipeline
    found = [(told.get("from", name) if not inputs else name, told)]
    for each in inputs:
        found += _steps(each)
    return found


def _chain(pipeline: list[Any]) -> str:
    """Return the names of the steps in the order in which they were written."""
    name, told, *inputs = pipeline
    if not inputs:
        return str(told.get("from", name))
    if len(inputs) == 1:
        return f"{_chain(inputs[0])} > {name}"
    return f"{name}({', '.join(map(_chain, inputs))})"


def _shown(told: dict[str, Any], option: str) -> str:
    return json.dumps(told[option]) if option in told else "not given"
