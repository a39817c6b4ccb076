"""`Stream`: a lazy pipeline, put together call by call."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Self

from loaderx.jsonl.parser import Parse, choose_parser
from loaderx.store.options import check_callable, check_count, check_flag
from loaderx.stream.batch import Batch
from loaderx.stream.calling import describe
from loaderx.stream.filter import Filter
from loaderx.stream.iterator import StreamIterator, check_state
from loaderx.stream.limits import Skip, Step, Take
from loaderx.stream.lines import TextFiles
from loaderx.stream.map import Map, NumberedMap
from loaderx.stream.node import Item, Recipe
from loaderx.stream.repeat import Repeat
from loaderx.stream.sequences import Sequences
from loaderx.stream.shards import Shards
from loaderx.stream.shuffle import Shuffle
from loaderx.stream.source import Source

_MOST = 1 << 62


class Stream:
    """Items of files or other sources, through a chain of steps that nothing runs until it is iterated."""

    def __init__(self, recipe: Recipe, epoch: int = 0) -> None:
        self._recipe = recipe
        self._epoch = epoch
        self._state: Mapping[str, Any] | None = None
        self._newest: StreamIterator | None = None

    @classmethod
    def _of(cls, shards: Shards) -> Self:
        return cls(Recipe(Source, options={"shards": shards}, told=shards.describe()))

    @classmethod
    def from_shards(cls, sequences: Sequence[Sequence[Any]]) -> Self:
        """Return the items of sequences in memory, each of which is a shard."""
        return cls._of(Sequences(sequences))

    @classmethod
    def from_jsonl(cls, paths: Sequence[str | os.PathLike[str]], *, parse: Parse | str | None = None) -> Self:
        """Return the objects of JSONL files."""
        return cls._of(TextFiles([os.fspath(path) for path in paths], choose_parser(parse), _explain))

    def _then(self, kind: Any, options: dict[str, Any], **told: Any) -> Self:
        return type(self)(Recipe(kind, (self._recipe,), options, told), self._epoch)

    def map(self, function: Callable[..., Item], *, with_index: bool = False, seed: int | None = None) -> Self:
        check_callable("function", function)
        told = {"function": describe(function)}
        if with_index or seed is not None:
            return self._then(NumberedMap, {"function": function, "seed": seed}, **told)
        return self._then(Map, {"function": function}, **told)

    def filter(self, function: Callable[[Item], Any]) -> Self:
        return self._then(Filter, {"function": function}, function=describe(function))

    def shuffle(self, buffer_size: int, seed: int = 42, max_input_shards: int = 10) -> Self:
        below = self._recipe
        if not below.is_frozen:
            below = shuffle_shards(below, seed, max_input_shards)
        told = {"buffer_size": buffer_size, "seed": seed}
        return type(self)(Recipe(Shuffle, (below,), told, told), self._epoch)

    def batch(self, n: int, drop_last: bool = False) -> Self:
        return self._then(Batch, {"size": n, "drop_last": drop_last}, n=n, drop_last=drop_last)

    def skip(self, n: int) -> Self:
        return self._then(Skip, {"n": n}, n=n)

    def take(self, n: int) -> Self:
        return self._then(Take, {"n": n}, n=n)

    def step(self, n: int, first: int = 0) -> Self:
        return self._then(Step, {"n": n, "first": first}, n=n, first=first)

    def repeat(self, n: int | None = None) -> Self:
        return self._then(Repeat, {"n": n}, n=n)

    def set_epoch(self, epoch: int) -> None:
        self._epoch = epoch

    def __iter__(self) -> StreamIterator:
        state, self._state = self._state, None
        self._newest = StreamIterator(self._recipe, self._epoch, state)
        return self._newest


def shuffle_shards(recipe: Recipe, seed: int, most_open: int) -> Recipe:
    """Return a recipe whose sources read their shards in an order of the seed, some in turns."""
    if recipe.kind is Source:
        return recipe.with_options(seed=seed, most_open=most_open)
    return recipe.with_inputs(lambda each: shuffle_shards(each, seed, most_open))


def _explain(error: Exception, path: str, line: bytes, at: int) -> Exception:
    return error
