"""A loader's position as plain JSON, and whether a saved one fits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from loaderx.errors import StateMismatchError

#: Of the state's layout, and of the order that a sampler gives.
STATE_VERSION = 1

_MISSING = "missing"


def make_state(
    step: int, *, seed: int, mode: str, global_batch: int, drop_remainder: bool, lengths: Mapping[str, int]
) -> dict[str, Any]:
    """Return a position and what it is a position in, of types that JSON has."""
    return {
        "version": STATE_VERSION,
        "step": step,
        "seed": seed,
        "mode": mode,
        "global_batch": global_batch,
        "drop_remainder": drop_remainder,
        "lengths": dict(lengths),
    }


def check_state(saved: Any, here: Mapping[str, Any]) -> int:
    """Return the step of a saved state.

    Parameters
    ----------
    saved : object
        What `make_state` gave, perhaps through JSON.
    here : mapping
        The state of what it is loaded into; its step does not matter.

    Raises
    ------
    StateMismatchError
        The saved state is of something else, or no state at all.
    """
    if not isinstance(saved, Mapping):
        raise StateMismatchError(
            f"the state is a {type(saved).__name__}: give the dict that state_dict() returned",
            mismatches={"state": (saved, dict(here))},
        )
    mismatches: dict[str, tuple[object, object]] = {}
    for field in {**here, **saved}:
        if field == "step":
            continue
        was, is_now = saved.get(field, _MISSING), here.get(field, _MISSING)
        if type(was) is not type(is_now) or was != is_now:
            mismatches[field] = (was, is_now)
    step = saved.get("step", _MISSING)
    if type(step) is not int or step < 0:
        raise StateMismatchError(
            f"the saved state has the step {step!r}, which is none: give the dict that state_dict() returned",
            mismatches={"step": (step, here["step"])},
        )
    if mismatches:
        told = "; ".join(
            f"{field} was {was!r} and is {now!r} here" for field, (was, now) in mismatches.items()
        )
        raise StateMismatchError(
            f"the saved state is of another loader: {told}. Make this one as that one was made, or begin anew",
            mismatches=mismatches,
        )
    return int(step)
