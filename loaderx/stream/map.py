"""A function of each item."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

from loaderx.errors import StreamError
from loaderx.stream.calling import explain, make_anew
from loaderx.stream.lazy import refuse_lazy
from loaderx.stream.node import Item, Key, Node, State, Transparent
from loaderx.stream.skipping import MaySkip


class Map(MaySkip, Transparent):
    """A function of each item, of the same key.

    Parameters
    ----------
    upstream : Node
    function : callable
        The user's.
    skips : bool
        Leave out the items that the function raises for, and count them.
    call : callable, optional
        What calls `function`, where that gets something else than the item.
    """

    called = "map"
    is_itemwise = True

    def __init__(
        self,
        upstream: Node,
        function: Callable[..., Item],
        skips: bool = False,
        call: Callable[[Item], Item] | None = None,
    ) -> None:
        super().__init__(upstream)
        self._function = function
        self._skips = skips
        self._plain_call = function if call is None else call

    def reset(self, state: State | None = None) -> None:
        super().reset(self.load_skipped(state))

    def _call(self, item: Item) -> Item:
        made = self._plain_call(item)
        refuse_lazy(made)
        # Looked at once, for it costs time: a function that does so does it for every item.
        self._call = self._plain_call  # type: ignore[assignment]
        return made

    def next(self) -> tuple[Key, Item]:
        while True:
            key, item = self._next()
            try:
                return key, self._call(item)
            except Exception as error:
                if not self._skips:
                    raise self._blame(error, key) from error
                self.n_skipped += self.weigh(key)

    def get_state(self) -> State:
        return self.save_skipped(super().get_state())

    def rebuild(self, keys: Sequence[Key]) -> list[Item]:
        blame = functools.partial(self._blame, is_held=True)
        return make_anew(self._call, self._upstream.rebuild(keys), keys, blame)

    def _blame(self, error: Exception, key: Key, is_held: bool = False) -> StreamError:
        return explain(error, "map", self._function, self.locate(key), is_held)
