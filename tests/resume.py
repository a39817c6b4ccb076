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


def check_stream_resumes(make_stream: Callable[[], Any], n_items: int | None = None) -> list[Any]:
    """Check a stream before every item and at its end, as `check_resume_everywhere` checks what has no end.

    Each state goes through JSON into a stream made anew, into an iterator that has just begun, and into one that was
    used, twice in a row; what follows, the end among it, has to be what the first run gave, and the state behind it
    the first run's. All states are of one shape.

    Parameters
    ----------
    make_stream : callable
        Returns the stream: each time an equal one.
    n_items : int, optional
        Of a stream without end, or a long one: how many items are looked at; None: all of them.

    Returns
    -------
    list
        The items.

    Raises
    ------
    AssertionError
        Names the item whose state did not restore it, and where the difference is.
    """
    states, whole = _run(iter(make_stream()), n_items)
    shapes = _shapes(json.loads(states[0]))
    for place, state in enumerate(states):
        _merge_shapes(shapes, _shapes(json.loads(state)), f"state before item {place}")
    again = make_stream()
    for attempt in ("first", "second"):
        place = first_difference(whole, list(_take_some(iter(again), len(whole))))
        assert place is None, f"the {attempt} pass over one stream differs at item {place}"
    used = iter(make_stream())
    for place in reversed(range(len(states))):
        loaded = make_stream()
        loaded.load_state_dict(json.loads(states[place]))
        runs = {"a stream's own": iter(loaded)}
        for attempt in ("first", "second"):
            used.load_state_dict(json.loads(states[place]))
            _check_run(used, states[place], whole, place, n_items, f"a used iterator, {attempt} time")
        fresh = iter(make_stream())
        fresh.load_state_dict(json.loads(states[place]))
        runs["a fresh iterator"] = fresh
        for name, run in runs.items():
            later = _check_run(run, states[place], whole, place, n_items, name)
            assert later == states[-1], f"state of item {place} in {name}: the last state differs"
            run.close()
    used.close()
    return whole


def _run(run: Any, n_items: int | None) -> tuple[list[str], list[Any]]:
    """Return what a run gives, and its states: before each item and behind the last one."""
    states, items = [json.dumps(run.state_dict())], []
    for item in run if n_items is None else _take_some(run, n_items):
        items.append(item)
        states.append(json.dumps(run.state_dict()))
    if n_items is None:
        # It has ended, and has to stay so; the end, too, is a place to save.
        assert next(run, None) is None, "there is an item behind the end"
        states.append(json.dumps(run.state_dict()))
    return states, items


def _check_run(run: Any, state: str, whole: list[Any], place: int, n_items: int | None, name: str) -> str:
    """Check what a run gives from a state on; return the state that it is in then."""
    assert run.state_dict() == json.loads(state), f"state of item {place} in {name}: saved anew it differs"
    at = min(place, len(whole))
    tail = list(run if n_items is None else _take_some(run, len(whole) - at))
    difference = first_difference(whole[at:], tail)
    assert difference is None, f"state of item {place} in {name}: differs at +{difference}"
    if n_items is None:
        assert next(run, None) is None, f"state of item {place} in {name}: there is an item behind the end"
    return json.dumps(run.state_dict())


def _take_some(run: Any, n: int) -> Iterator[Any]:
    for _, item in zip(range(n), run, strict=False):
        yield item


def _shapes(state: Any, path: str = "", found: dict[str, Any] | None = None) -> dict[str, Any]:
    """Return for each place in a state that is a dict the names in it; of lists only the inputs have places."""
    found = {} if found is None else found
    if isinstance(state, dict):
        if set(state) != {"shared"}:
            assert found.setdefault(path, sorted(state)) == sorted(state), path
        for name, each in state.items():
            if name != "pipeline":
                _shapes(each, f"{path}/{name}", found)
    elif isinstance(state, list):
        for place, each in enumerate(state):
            _shapes(each, f"{path}/{place if path.endswith('/upstreams') else '*'}", found)
    return found


def _merge_shapes(shapes: dict[str, Any], others: dict[str, Any], where: str) -> None:
    for path, names in others.items():
        assert shapes.setdefault(path, names) == names, f"{where}: {path} has {names}, and had {shapes[path]}"


def _take(resumable: Resumable, n: int) -> Iterator[Any]:
    for _ in range(n):
        yield next(resumable)
