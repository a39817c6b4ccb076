"""What a source reads: a list of shards, each of which can be read from any place on."""

from __future__ import annotations

import operator
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from itertools import repeat
from typing import Any, ClassVar, NoReturn, TypeAlias

from loaderx.errors import OptionError
from loaderx.stream.node import Item, Key, State

#: Gives the next item with its key, and raises StopIteration where there is no more.
Pull: TypeAlias = Callable[[], tuple[Key, Item]]


class _Missing:
    def __repr__(self) -> str:
        return "MISSING"


#: Stands for an item that a source leaves out, because it is bad.
MISSING = _Missing()


class Reader(ABC):
    """A shard that is being read, a block at a time.

    Attributes
    ----------
    n_skipped : int
        Of its items that were passed over, or replaced, because they are bad: those before where it is.
    """

    n_skipped: int = 0

    @abstractmethod
    def block(self) -> Pull:
        """Read on, and return what gives the next items.

        It is called once the block before it is used up, so that what gives items may be an iterator in C.

        Raises
        ------
        StopIteration
            The shard has ended.
        Exception
            `Shards.ends` says whether the shard cannot be read further; else this is asked again.
        """

    @abstractmethod
    def get_state(self) -> State:
        """Return where it is, so that `Shards.open` goes on there. Always of the same shape."""

    def fraction(self) -> float:
        """Return how much of the shard has been read, about, from 0 to 1; 0 where nobody knows."""
        return 0.0

    def where(self, place: Any) -> str | None:
        """Return what `Shards.where` says of a place, if that is known here without reading anything."""
        return None

    def judge(self, error: Exception) -> tuple[Key, Item] | None:
        """Return what takes the place of an item for which a pull raised; None: nothing does.

        Raises
        ------
        Exception
            What is to be told the user; the item is behind us then.
        """
        raise error

    def close(self) -> None:  # noqa: B027 - there may be none
        """Let go of the file."""


class BlockReader(Reader):
    """A reader that knows the places of a block's items beforehand.

    Parameters
    ----------
    shard : int
    """

    def __init__(self, shard: int) -> None:
        self._shard = shard
        self._places: Sequence[Any] = ()
        # Its length hint says how many places are left: nothing has to be counted for each item.
        self._left: Any = iter(())

    def _pull(self, places: Sequence[Any], items: Iterable[Item]) -> Pull:
        """Return what gives some items; `items` is asked for each once, and may raise for it and go on."""
        self._places = places
        self._left = iter(places)
        return zip(zip(repeat(self._shard), self._left), items).__next__  # noqa: B905 - they may go on after an error

    def _replace(self, place: Any, judge: Callable[[], Item]) -> tuple[Key, Item] | None:
        """Return what takes the place of an item, as `judge` says, and count it."""
        self.n_skipped += 1
        try:
            item = judge()
        except BaseException:
            self.n_skipped -= 1
            raise
        return None if item is MISSING else ((self._shard, place), item)

    @property
    def _n_given(self) -> int:
        """How many places of the block are behind us."""
        return len(self._places) - operator.length_hint(self._left)

    @property
    def _n_left(self) -> int:
        return operator.length_hint(self._left)


class Shards(ABC):
    """A list of shards. Nothing of it changes, and it pickles."""

    #: What a place is the number of, for errors: "byte", "row".
    unit: ClassVar[str] = "item"

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def describe(self) -> dict[str, Any]:
        """Return what they are, as JSON: small, for any number of them."""

    @abstractmethod
    def open(self, shard: int, state: State | None = None) -> Reader:
        """Return a reader of a shard, at its beginning or at a state."""

    @abstractmethod
    def measure(self, shard: int) -> int | str:
        """Return a text or a number by which a changed shard is noticed, such as its size in bytes."""

    def ends(self, error: Exception) -> bool:
        """Return whether what `measure`, `open` or `Reader.block` raised says that the shard cannot be read further.

        Else it is about an item, which is behind the reader, or about the machine.
        """
        return False

    def leave_out(self, error: Exception) -> None:
        """Leave out the rest of a shard that cannot be read further, or raise what is to be told the user."""
        raise error

    def size(self, shard: int) -> int:
        """Return how much of the work a shard is, beside others, such as its bytes."""
        return 1

    @abstractmethod
    def rebuild(self, shard: int, places: Sequence[Any]) -> list[Item]:
        """Return the items at some places of a shard, which are in order and each there once."""

    @abstractmethod
    def name(self, shard: int) -> str:
        """Return what errors and mismatches call a shard."""

    def where(self, shard: int, place: Any) -> str:
        """Return what errors say of where an item is."""
        return f"{self.name(shard)}, {self.unit} {place}"

    def refuse_random(self) -> NoReturn:
        """Raise what says why its items cannot be read in any order; asked of what is no `RandomShards`."""
        raise OptionError(
            f"buffer_size is None, and the items of {type(self).__name__} cannot be read in any order: give a "
            "buffer_size",
            option="buffer_size",
            value=None,
        )


class RandomShards(Shards):
    """Shards whose items have numbers, across all of them, and can be read in any order."""

    @abstractmethod
    def count(self) -> int:
        """Return how many items there are."""

    @abstractmethod
    def keys_at(self, numbers: Sequence[int]) -> list[Key]:
        """Return the keys of items."""

    @abstractmethod
    def fetch(self, numbers: Sequence[int]) -> list[Item]:
        """Return items, in the order asked for; `MISSING` for those that the source leaves out."""

    @abstractmethod
    def fetch_one(self, number: int) -> Item:
        """Return an item, or `MISSING`."""


def by_shard(keys: Sequence[Key]) -> dict[int, list[tuple[Any, list[int]]]]:
    """Return for each shard the places in it, in order and each once, with its positions among the keys."""
    groups: dict[int, dict[Any, list[int]]] = {}
    for position, (shard, place) in enumerate(keys):
        groups.setdefault(shard, {}).setdefault(place, []).append(position)
    return {shard: sorted(group.items()) for shard, group in groups.items()}
