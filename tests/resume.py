"""The one check of everything that resumes: a copy that begins where the original was gives what the original gave."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any, Protocol

import numpy as np


class Resumable(Protocol):
    """What has a state and gives one thing after another."""

    def __next__(self) -> Any: ...

    def state_dict(self) -> dict[str, Any]: ...

    def load_state_dict(self, state: dict[str, Any], /) -> None: ...

    def close(self) -> None: ...


def same(left: Any, right: Any) -> bool:
    """Return whether two batches are equal: type, keys, dtypes, shapes, every bit."""
    if isinstance(left, dict):
        return (
            isinstance(right, dict)
            and list(left) == list(right)
            and all(same(left[name], right[name]) for name in left)
        )
    if isinstance(left, tuple | list):
        return type(left) is type(right) and len(left) == len(right) and all(map(same, left, right))
    if isinstance(left, np.ndarray):
        return (
            isinstance(right, np.ndarray)
            and (left.dtype, left.shape) == (right.dtype, right.shape)
            and left.tobytes() == right.tobytes()
        )
    return bool(type(left) is type(right) and left == right)


def first_difference(left: list[Any], right: list[Any]) -> int | None:
    """Return the first place where two runs differ, in length too; None: nowhere."""
    for place, pair in enumerate(zip(left, right, strict=False)):
        if not same(*pair):
            return place
    return None if len(left) == len(right) else min(len(left), len(right))


def check_resume_everywhere(
    make: Callable[[], Resumable],
    n_steps: int,
    *,
    tail: int,
    make_other: Callable[[], Resumable] | None = None,
) -> None:
    """Save before every step; restore each state in another object, twice in a row; compare what follows.

    Parameters
    ----------
    make : callable
        Returns the object, from its beginning.
    n_steps : int
        How many steps are saved before.
    tail : int
        How many steps are compared behind each.
    make_other : callable, optional
        Returns what the states are loaded into; None: `make`. One such object takes all states in turn, from the last
        to the first, so that each but the first meets an object that was used; and each state meets a fresh one.

    Raises
    ------
    AssertionError
        Names the step whose state did not restore it, and where the difference is.
    """
    make_other = make_other or make
    with closing(make()) as original:
        states, whole = [], []
        for _ in range(n_steps):
            states.append(json.dumps(original.state_dict()))
            whole.append(next(original))
        whole.extend(next(original) for _ in range(tail))
    with closing(make_other()) as used:
        for step in reversed(range(n_steps)):
            with closing(make_other()) as fresh:
                for name, resumed in (("a fresh", fresh), ("a used", used)):
                    for attempt in ("first", "second"):
                        resumed.load_state_dict(json.loads(states[step]))
                        assert json.dumps(resumed.state_dict()) == states[step], (step, name, attempt)
                        place = first_difference(whole[step : step + tail], list(_take(resumed, tail)))
                        assert place is None, (
                            f"state of step {step} in {name} object, {attempt} time: differs at +{place}"
                        )


def _take(resumable: Resumable, n: int) -> Iterator[Any]:
    for _ in range(n):
        yield next(resumable)
