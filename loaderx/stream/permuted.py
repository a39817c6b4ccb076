"""All items of a source that can be read in any order, in a random one: a shuffle without a buffer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from loaderx.errors import OptionError
from loaderx.loader.sampler import Sampler
from loaderx.stream.node import Item, Key, Recipe
from loaderx.stream.positions import check_number
from loaderx.stream.seeds import mix
from loaderx.stream.sequences import RowReader, read_held
from loaderx.stream.shards import RandomShards, Shards
from loaderx.stream.source import Source

# Numbers that are drawn at a time; the order depends on it.
_DRAWN = 256


class Permuted(Source):
    """The items of random-access shards in an order of the seed, each once; a key is (0, position in the order).

    The order is a cycle of `Sampler`, which computes any part of it from the seed: nothing is stored by length, and a
    state is one number.

    Parameters
    ----------
    shards : RandomShards
    permuted_by : int
        The seed.
    epoch : int
        Another one has another order.
    """

    def __init__(self, shards: RandomShards, permuted_by: int, epoch: int = 0) -> None:
        self._ordered = _Order(shards, mix(permuted_by, "permuted", epoch))
        super().__init__(self._ordered)

    def locate(self, key: Key) -> str:
        return self._ordered.locate(key[1])


class _Order(Shards):
    """One shard, which has the items of others in a random order; a place is a position in it."""

    unit = "position"

    def __init__(self, shards: RandomShards, seed: int) -> None:
        self._shards = shards
        self._n = n = shards.count()
        self._sampler = Sampler(n, _DRAWN, "cyclic", seed, drop_remainder=False) if n else None
        self._step = -1
        self._drawn: list[int] = []

    def __len__(self) -> int:
        return 1

    def describe(self) -> dict[str, Any]:
        return self._shards.describe()

    def measure(self, shard: int) -> int:
        return self._shards.count()

    def name(self, shard: int) -> str:
        return "all items"

    def open(self, shard: int, state: int | None = None) -> RowReader:
        at = 0 if state is None else check_number("a position", state, 0, self._n)
        return RowReader(self, self.locate, shard, 0, at, self._n)

    def rebuild(self, shard: int, places: Sequence[int]) -> list[Item]:
        return read_held(self, places, self.locate)

    def one(self, index: int) -> Item:
        """Return the item at a position."""
        return self._shards.fetch_one(self._number(index))

    def many(self, indices: Sequence[int]) -> list[Item]:
        """Return the items at some positions."""
        return self._shards.fetch([self._number(index) for index in indices])

    def locate(self, position: int) -> str:
        """Return where the item at a position is."""
        shard, place = self._shards.keys_at([self._number(position)])[0]
        return self._shards.where(shard, place)

    def _number(self, position: int) -> int:
        step, i = divmod(position, _DRAWN)
        if step != self._step:
            assert self._sampler is not None, "an order of nothing has no positions"
            self._drawn, self._step = self._sampler.indices(step).tolist(), step
        return self._drawn[i]


def permute(recipe: Recipe, seed: int) -> Recipe:
    """Return a recipe whose source gives its items in a random order, each once.

    Parameters
    ----------
    recipe : Recipe
        A source, and above it nothing but steps that do something with each item for itself: so it is the same whether
        what is below them is shuffled or what they give.
    seed : int

    Raises
    ------
    OptionError
        The source cannot be read in any order, or the order matters to a step above it.
    """
    if recipe.kind is Source:
        shards = recipe.options["shards"]
        if not isinstance(shards, RandomShards):
            shards.refuse_random()
        told: Mapping[str, Any] = {**recipe.told, "permuted_by": seed}
        return Recipe(Permuted, (), {"shards": shards, "permuted_by": seed}, told)
    if recipe.kind is Permuted:
        reason = "the stream is in such an order already: shuffle it once"
    elif recipe.kind.is_itemwise and not recipe.kind.freezes_order:
        return recipe.with_inputs(lambda below: permute(below, seed))
    else:
        reason = (
            f"{recipe.kind.called} stands before the shuffle, and what it gives has an order of its own: "
            "shuffle right behind the source, or give a buffer_size"
        )
    raise OptionError(
        f"buffer_size is None, for an order of all items; {reason}", option="buffer_size", value=None
    )
