"""Several items of each item."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import NoReturn

from loaderx.errors import StreamError
from loaderx.stream.calling import explain, refuse_fewer
from loaderx.stream.collating import check_items
from loaderx.stream.keys import freeze, load_keys, save_keys
from loaderx.stream.lazy import refuse_async
from loaderx.stream.node import Item, Key, Node, State
from loaderx.stream.skipping import MaySkip

_WANTED = (
    "a list of items, an empty one for none, [item] for one; what returns a dict of lists is for map(..., "
    "batched=True, batch_size=1)"
)


class FlatMap(MaySkip):
    """All items that a function gives for each item. A key is (key of the item, number of the part).

    Parameters
    ----------
    upstream : Node
    function : callable
        Returns what can be iterated, a generator too: for the same item always the same.
    skips : bool
        Leave out the rest of an item that the function raises for, and count the item.
    """

    _key: Key
    _at: int
    _parts: Iterator[Item]

    called = "flat_map"
    makes_batches = False

    def __init__(
        self, upstream: Node, function: Callable[[Item], Iterable[Item]], skips: bool = False
    ) -> None:
        self._upstream = upstream
        self._function = function
        self._skips = skips

    def reset(self, state: State | None = None) -> None:
        state = self.load_skipped(state)
        self._upstream.reset(None if state is None else state["upstream"])
        keys = [] if state is None else load_keys(state["keys"])
        self._leave()
        if keys:
            (item,) = self._upstream.rebuild(keys)
            self._go_into(keys[0], item, state["at"] if state is not None else 0)

    def _go_into(self, key: Key, item: Item, at: int) -> None:
        """Be in the midst of an item, some parts of which were given."""
        try:
            parts = self._begin_parts(item)
            n = sum(1 for _ in islice(parts, at))
        except Exception as error:
            raise self._blame(error, key, is_held=True) from error
        if n < at:
            self._refuse(key, at - 1, n)
        self._key, self._at, self._parts = key, at, parts

    def _leave(self) -> None:
        """Be behind an item."""
        self._key = None
        self._at = 0
        self._parts = iter(())

    def next(self) -> tuple[Key, Item]:
        while True:
            try:
                part = next(self._parts)
            except StopIteration:
                self._begin_item()
                continue
            except Exception as error:
                self._fail(error, self._key)
                continue
            at = self._at
            self._at = at + 1
            return (self._key, at), part

    def _begin_parts(self, item: Item) -> Iterator[Item]:
        made = self._function(item)
        refuse_async(made)
        return iter(check_items(made, _WANTED))

    def _begin_item(self) -> None:
        self._leave()
        key, item = self._upstream.next()
        try:
            self._parts = self._begin_parts(item)
            self._key = key
        except Exception as error:
            self._fail(error, key)

    def _fail(self, error: Exception, key: Key) -> None:
        self._leave()
        if not self._skips:
            raise self._blame(error, key) from error
        self.n_skipped += 1

    def _blame(self, error: Exception, key: Key, is_held: bool = False) -> StreamError:
        return explain(error, "flat_map", self._function, self._upstream.locate(key), is_held)

    def _refuse(self, key: Key, place: int, n: int) -> NoReturn:
        refuse_fewer("flat_map", self._function, self._upstream.locate(key), place, n)

    def get_state(self) -> State:
        keys = [] if self._key is None else [self._key]
        return self.save_skipped(
            {
                "upstream": self._upstream.get_state(),
                "keys": save_keys(keys, self.shares_keys),
                "at": self._at,
            }
        )

    def rebuild(self, keys: Sequence[Key]) -> list[Item]:
        wanted: dict[Key, list[tuple[int, int]]] = {}
        of: list[Key] = []
        for position, (key, at) in enumerate(keys):
            frozen = freeze(key)
            if frozen not in wanted:
                of.append(key)
            wanted.setdefault(frozen, []).append((at, position))
        items: list[Item] = [None] * len(keys)
        for key, item, group in zip(of, self._upstream.rebuild(of), wanted.values(), strict=True):
            most = max(at for at, _ in group)
            try:
                parts = list(islice(self._begin_parts(item), most + 1))
            except Exception as error:
                raise self._blame(error, key, is_held=True) from error
            if len(parts) <= most:
                self._refuse(key, most, len(parts))
            for at, position in group:
                items[position] = parts[at]
        return items

    def locate(self, key: Key) -> str:
        return f"{self._upstream.locate(key[0])}, part {key[1]}"

    def close(self) -> None:
        self._leave()
        self._upstream.close()
