"""What steps of ours that change each item by itself have in common."""

from __future__ import annotations

import functools
from abc import abstractmethod
from collections.abc import Sequence

from loaderx.errors import StreamError
from loaderx.stream.calling import complain, make_anew
from loaderx.stream.node import Item, Key, Transparent


class Applied(Transparent):
    """A node that changes each item by itself; keys are its input's."""

    is_itemwise = True

    @abstractmethod
    def apply(self, item: Item) -> Item:
        """Return what becomes of an item, or raise what says why it cannot be."""

    def next(self) -> tuple[Key, Item]:
        key, item = self._next()
        try:
            return key, self.apply(item)
        except Exception as error:
            raise self._blame(error, key) from error

    def rebuild(self, keys: Sequence[Key]) -> list[Item]:
        blame = functools.partial(self._blame, is_held=True)
        return make_anew(self.apply, self._upstream.rebuild(keys), keys, blame)

    def _blame(self, error: Exception, key: Key, is_held: bool = False) -> StreamError:
        return complain(error, self.called, self.locate(key), is_held)
