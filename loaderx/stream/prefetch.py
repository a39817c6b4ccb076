"""Items that a thread takes from the input ahead of time."""

from __future__ import annotations

import weakref
from collections.abc import Sequence

from loaderx.loader.ending import Ending
from loaderx.stream.failure import load_failure, save_failure
from loaderx.stream.keys import load_keys, save_keys
from loaderx.stream.node import Item, Key, Node, State
from loaderx.stream.runner import Runner


class Prefetch(Node):
    """The items of the input, of the same keys; a thread runs the input, up to `n` items ahead.

    What the input raises comes in its turn, behind the items before it. The state is that of the item that is given
    next: it holds the keys of those that are there.

    Parameters
    ----------
    upstream : Node
    n : int
    """

    called = "prefetch"
    is_itemwise = True

    def __init__(self, upstream: Node, n: int) -> None:
        self._upstream = upstream
        self._n = n
        self._begin(Runner(upstream, n))

    def _begin(self, runner: Runner) -> None:
        self._runner = runner
        # Of the thread, without this node: it must not keep that, nor what ends it.
        self._ending = Ending(())
        self._ending.workers = runner
        self._finalizer = weakref.finalize(self, self._ending.end)
        self._finalizer.atexit = False

    def reset(self, state: State | None = None) -> None:
        self._finalizer()
        self._runner.join()
        self._upstream.reset(None if state is None else state["upstream"])
        keys = [] if state is None else load_keys(state["keys"])
        items = self._upstream.rebuild(keys) if keys else []
        failure = None if state is None else load_failure(state["failure"])
        self._begin(Runner(self._upstream, self._n, zip(keys, items, strict=True), failure))

    def next(self) -> tuple[Key, Item]:
        return self._runner.take()

    def get_state(self) -> State:
        runner = self._runner
        with runner.paused():
            return {
                "upstream": self._upstream.get_state(),
                "keys": save_keys([key for key, _ in runner.pairs], self.shares_keys),
                "failure": save_failure(runner.failure),
            }

    def rebuild(self, keys: Sequence[Key]) -> list[Item]:
        with self._runner.paused():
            return self._upstream.rebuild(keys)

    def locate(self, key: Key) -> str:
        with self._runner.paused():
            return self._upstream.locate(key)

    def interrupt(self) -> None:
        self._runner.stop()

    def close(self) -> None:
        self._ending.end()
        self._runner.close_node()
