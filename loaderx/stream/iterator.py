"""A pass over a stream, which knows where it is."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NoReturn, Self

from loaderx.errors import ClosedError, StateMismatchError
from loaderx.loader.fetch import put_note
from loaderx.stream.node import Item, Key, Node, Recipe

STATE_VERSION = 1


class StreamIterator:
    """The items of a stream, from its beginning or from a state. Made by ``iter(stream)``.

    Parameters
    ----------
    recipe : Recipe
    epoch : int
    state : mapping, optional
        Where to begin: what `state_dict` returned.

    Raises
    ------
    StateMismatchError
        The state is of another stream, or of files that have changed since.
    """

    def __init__(self, recipe: Recipe, epoch: int, state: Mapping[str, Any] | None = None) -> None:
        self._recipe = recipe
        self._pipeline = recipe.describe()
        self._epoch = epoch
        self._final: Any
        self._begin(state)

    def _begin(self, state: Mapping[str, Any] | None) -> None:
        epoch, position = self._epoch, None
        if state is not None:
            check_state(state, self._pipeline)
            epoch, position = state["epoch"], state["position"]
        node = self._build(epoch, position)
        self._epoch, self._node, self._next, self._final = epoch, node, node.next, None

    def _build(self, epoch: int, position: Any) -> Node:
        """Return the last step of the pipeline, which stands at a position."""
        node = self._recipe.build(epoch)
        try:
            node.reset(position)
        except BaseException as error:
            if position is not None:
                put_note(error, "while a saved state ", "was loaded")
            node.close()
            raise
        return node

    def __next__(self) -> Item:
        try:
            return self._next()[1]
        except StopIteration:
            self._end()
            raise

    def _end(self) -> None:
        if self._final is None:
            # What is left is where this is.
            self._final, self._next = self._node.get_state(), _stop
            self._node.close()

    def pull(self) -> tuple[Key, Item]:
        """Return the next item with its key, which `locate` understands."""
        try:
            return self._next()
        except StopIteration:
            self._end()
            raise

    def locate(self, key: Key) -> str:
        """Return where the item of a key comes from, as errors say it."""
        return self._node.locate(key)

    def __iter__(self) -> Self:
        return self

    def state_dict(self) -> dict[str, Any]:
        """Return where this is: plain JSON. Another iterator of such a stream goes on there exactly.

        Waits for the item that the thread of a `prefetch` is at.

        Dump it before the next item is taken: it may share memory with what runs.
        """
        return {
            "version": STATE_VERSION,
            "pipeline": self._pipeline,
            "epoch": self._epoch,
            "position": self._position(),
        }

    def _position(self) -> Any:
        if self._final is not None:
            return self._final
        if self._next is _refuse:
            raise ClosedError("the iterator is closed, and has no state any more: ask for it before")
        return self._node.get_state()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on at a state, wherever this has been.

        Raises
        ------
        StateMismatchError
            It does not fit; this stays where it is.
        """
        before = self._node
        self._begin(state)
        before.close()

    def counts(self) -> list[dict[str, Any]]:
        """Return what the steps have counted, the last step first: those that count nothing are left out.

        Returns
        -------
        list of dict
            Each has ``step``, what `Stream` calls it, and the counts by name: of a mixture ``given`` and ``passes``,
            for each stream how many items it has given, and how often it has begun again; of a source ``skipped``, how
            many items were bad, and left out or replaced. They include what was counted
            before the state that has been loaded, and in earlier passes of a `repeat` or a mixture. They are there
            behind the end and behind `close`, too.
        """
        return [counts for counts in self._node.tally() if len(counts) > 1]

    def fraction(self) -> float | None:
        """Return how much of the source has been read, about, from 0 to 1; None: nobody knows.

        By bytes of files, rows or indices. What a buffer holds counts as read. A pass that went on from a state counts
        what was read before, too.
        """
        return 1.0 if self._final is not None else self._node.fraction()

    def close(self) -> None:
        """Let go of files and workers: there is no further item, and no state, until one is loaded.

        From any thread: whoever waits for workers in `next` gets a `ClosedError`. Returns within a second for each step
        that has workers: one that is in a function for longer ends behind it. Called too when the last item has been
        given, and where the iterator is dropped.
        """
        self._next = _refuse
        self._node.close()

    def __repr__(self) -> str:
        return f"<StreamIterator of {self._recipe}, epoch {self._epoch}, {self._tell()}>"

    def _tell(self) -> str:
        if self._next is _refuse:
            return "closed"
        try:
            fraction = self.fraction()
        except Exception:  # a file that is not there: what comes next says so
            fraction = None
        return "under way" if fraction is None else f"{fraction:.0%} read"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def _stop() -> NoReturn:
    raise StopIteration


def _refuse() -> NoReturn:
    raise ClosedError("the iterator is closed: make another one, and load its state to go on where it was")


def check_state(state: Any, pipeline: list[Any]) -> None:
    """Look whether a state is one of this pipeline.

    Raises
    ------
    StateMismatchError
    """
    if not isinstance(state, Mapping) or not {"version", "pipeline", "epoch", "position"} <= set(state):
        raise StateMismatchError(
            "this is no state of a stream: give the dict that state_dict() returned",
            mismatches={"state": (state, "a dict")},
        )
    if state["version"] != STATE_VERSION:
        raise StateMismatchError(
            f"the saved state is of version {state['version']!r}, and this release reads {STATE_VERSION}",
            mismatches={"version": (state["version"], STATE_VERSION)},
        )
    here = json.loads(json.dumps(pipeline))
    saved = json.loads(json.dumps(state["pipeline"]))
    if saved != here:
        raise StateMismatchError(
            f"the saved state is of another stream: it was {json.dumps(saved)}, and is {json.dumps(here)} here. Make "
            "this one as that one was made, or begin anew",
            mismatches={"pipeline": (saved, here)},
        )
