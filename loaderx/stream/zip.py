"""Streams side by side: an item of each at a time."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, NoReturn

from loaderx.errors import StreamError
from loaderx.stream.keys import load_keys, save_keys
from loaderx.stream.node import Item, Key, Node, State
from loaderx.stream.several import Several


class _Failure(NamedTuple):
    """What is wrong at the end: which input has ended, which has another item, whence, and its state before that."""

    ended: int
    number: int
    where: str
    state: State


class Zip(Several):
    """Tuples of an item of each input, until one of them ends. A key is the list of their keys.

    Parameters
    ----------
    *upstreams : Node
    strict : bool
        Raise where the inputs do not end together.
    """

    called = "zip"
    # What belongs together does so by its place.
    freezes_order = True

    def __init__(self, *upstreams: Node, strict: bool = False) -> None:
        super().__init__(*upstreams)
        self._strict = strict
        # Of the items that the next tuple has already.
        self._keys: list[Key] = []
        self._items: list[Item] = []

    @classmethod
    def count_shards(cls, options: Mapping[str, Any], inputs: Sequence[int]) -> int:
        return 1

    @classmethod
    def is_endless(cls, options: Mapping[str, Any], inputs: Sequence[bool]) -> bool:
        return all(inputs)

    def reset(self, state: State | None = None) -> None:
        self._reset_inputs(None if state is None else state["upstreams"])
        self._nexts = [upstream.next for upstream in self._upstreams]
        self._keys = [] if state is None else load_keys(state["keys"])
        self._items = self._rebuild_inputs(list(enumerate(self._keys)))
        self._failure: _Failure | None = None

    def next(self) -> tuple[Key, Item]:
        # They are kept while something below raises, so that what belongs together stays so.
        keys, items = self._keys, self._items
        if self._failure is not None:
            self._fail(self._failure)
        try:
            for upstream in self._nexts[len(keys) :] if keys else self._nexts:
                key, item = upstream()
                keys.append(key)
                items.append(item)
        except StopIteration:
            if self._strict:
                self._check_all_end()
            raise
        self._keys, self._items = [], []
        return keys, tuple(items)

    def _check_all_end(self) -> None:
        """Raise where the input whose turn it is has ended and another has not."""
        ended = len(self._keys)
        if ended:
            self._fail(_Failure(ended, 0, self._upstreams[0].locate(self._keys[0]), None))
        for number in range(1, len(self._nexts)):
            upstream = self._upstreams[number]
            state = json.loads(json.dumps(upstream.get_state()))  # a copy: it may share memory
            try:
                key, _ = upstream.next()
            except StopIteration:
                continue
            # The item is gone: it is the state before it that says where this is.
            self._failure = _Failure(ended, number, upstream.locate(key), state)
            self._fail(self._failure)

    def _fail(self, failure: _Failure) -> NoReturn:
        raise StreamError(
            f"zip: stream {failure.ended} has ended, and stream {failure.number} has not: its next item is that of "
            f"{failure.where}. Make them as long, or leave out strict=True, which leaves out the rest",
            node="zip",
            function=None,
            where=failure.where,
        )

    def get_state(self) -> State:
        states = self._input_states()
        if self._failure is not None:
            states[self._failure.number] = self._failure.state
        return {"upstreams": states, "keys": save_keys(self._keys, self.shares_keys)}

    def rebuild(self, keys: Sequence[Key]) -> list[Item]:
        n = len(self._upstreams)
        flat = self._rebuild_inputs([pair for key in keys for pair in enumerate(key)])
        return [tuple(flat[i : i + n]) for i in range(0, len(flat), n)]

    def locate(self, key: Key) -> str:
        return " with ".join(
            upstream.locate(inner) for upstream, inner in zip(self._upstreams, key, strict=True)
        )

    def close(self) -> None:
        self._keys, self._items = [], []
        super().close()
