"""Shards that can be read at any index: sequences in memory, and ranges of a dataset."""

from __future__ import annotations

import bisect
import operator
from collections.abc import Callable, Mapping, Sequence, Set
from itertools import accumulate, repeat
from typing import Any

from loaderx.errors import LoaderxError, OptionError, StreamError
from loaderx.stream.node import Item, Key
from loaderx.stream.rows import Growth, Rows, Samples, item_of, own, read_all
from loaderx.stream.shards import MISSING, BlockReader, Pull, RandomShards

# Elements of a list that are taken at a time.
_BLOCK_ITEMS = 4096
# Samples of a shard, where nobody says how many shards a dataset is to have.
_SHARD_SAMPLES = 4096
_MOST_SHARDS = 64


# Sequences whose elements are no dicts, so that nothing has to be looked at for each.
_OF_NO_DICTS = (range, str, bytes)


def is_sequence(value: Any) -> bool:
    """Return whether something has ``len()`` and, by index, ``[i]``."""
    kind = type(value)
    return hasattr(kind, "__len__") and hasattr(kind, "__getitem__") and not isinstance(value, Mapping | Set)


def check_sequence(option: str, value: Any) -> None:
    """Raise `OptionError` for what has no ``len()`` or no ``[i]``."""
    if not is_sequence(value):
        raise OptionError(
            f"{option} has a {type(value).__name__}, which has no len() or no [i]: give sequences, or what can only be "
            "iterated to from_iterable",
            option=option,
            value=value,
        )


class Sequences(RandomShards):
    """Sequences as shards, an item for each of their elements; a place is an index.

    Parameters
    ----------
    sequences : sequence of sequences
        Each with ``len()`` and ``[i]``.
    called : str
        The method of `Stream` that makes it.
    """

    unit = "index"

    def __init__(self, sequences: Sequence[Sequence[Any]], called: str = "from_shards") -> None:
        self._sequences = list(sequences)
        self._called = called
        # Where each begins, in the numbers that go through all of them; and their end.
        self._begins = list(accumulate(map(len, self._sequences), initial=0))

    def __len__(self) -> int:
        return len(self._sequences)

    def describe(self) -> dict[str, Any]:
        return {"from": self._called, "shards": len(self), "items": self.count()}

    def measure(self, shard: int) -> int:
        return len(self._sequences[shard])

    def size(self, shard: int) -> int:
        return len(self._sequences[shard])

    def name(self, shard: int) -> str:
        return f"{self._called}: shard {shard}"

    def open(self, shard: int, state: int | None = None) -> _SequenceReader:
        return _SequenceReader(self, shard, self._sequences[shard], state or 0)

    def rebuild(self, shard: int, places: Sequence[int]) -> list[Item]:
        sequence = self._sequences[shard]
        return [item_of(sequence, place) for place in places]

    def count(self) -> int:
        return self._begins[-1]

    def keys_at(self, numbers: Sequence[int]) -> list[Key]:
        shards = [bisect.bisect_right(self._begins, number) - 1 for number in numbers]
        return [(shard, number - self._begins[shard]) for shard, number in zip(shards, numbers, strict=True)]

    def fetch(self, numbers: Sequence[int]) -> list[Item]:
        return [item_of(self._sequences[shard], place) for shard, place in self.keys_at(numbers)]

    def fetch_one(self, number: int) -> Item:
        return self.fetch([number])[0]


class _SequenceReader(BlockReader):
    def __init__(self, shards: Sequences, shard: int, sequence: Sequence[Any], at: int) -> None:
        super().__init__(shard)
        self._shards = shards
        self._sequence = sequence
        # Where the block begins.
        self._at = at
        self._end = len(sequence)

    def block(self) -> Pull:
        is_cut_short = self._n_left > 0
        self._at += self._n_given
        self._pull((), ())
        if is_cut_short:  # a StopIteration of the sequence's has ended the block
            error = RuntimeError("[i] raised StopIteration")
            raise sample_error(error, self._where(self._at - 1))
        places = range(self._at, self._end)
        if not places:
            raise StopIteration
        if type(self._sequence) in (list, tuple):
            places = places[:_BLOCK_ITEMS]
            items = self._sequence[places.start : places.stop]
            if len(items) == len(places):  # as long as it was
                return self._pull(places, map(own, items) if dict in map(type, items) else items)
        # As [i] asks, whatever kind of sequence it is.
        getitem = operator.getitem if type(self._sequence) in _OF_NO_DICTS else item_of
        return self._pull(places, map(getitem, repeat(self._sequence), places))

    def judge(self, error: Exception) -> tuple[Key, Item] | None:
        raise sample_error(error, self._where(self.get_state() - 1))

    def _where(self, place: int) -> str:
        return self._shards.where(self._shard, place)

    def fraction(self) -> float:
        return self.get_state() / max(1, self._end)

    def get_state(self) -> int:
        return self._at + self._n_given


class Ranges(RandomShards):
    """A dataset, read in batches; each shard is a range of it, and a place is an index in the dataset.

    Parameters
    ----------
    dataset : object with ``len()`` and ``[i]``
    num_shards : int or None
        None: some for a large dataset, so that a shuffle mixes what lies far apart.
    """

    unit = "index"

    def __init__(self, dataset: Any, num_shards: int | None = None) -> None:
        self._rows = Rows(dataset)
        self._name = type(dataset).__name__
        self._n = len(dataset)
        if num_shards is None:
            num_shards = max(1, min(_MOST_SHARDS, self._n // _SHARD_SAMPLES))
        self._num_shards = num_shards

    def __len__(self) -> int:
        return self._num_shards

    def _begin(self, shard: int) -> int:
        return shard * self._n // self._num_shards

    def describe(self) -> dict[str, Any]:
        return {"from": "from_dataset", "dataset": self._name, "shards": len(self), "items": self._n}

    def measure(self, shard: int) -> int:
        return self._rows.count()

    def name(self, shard: int) -> str:
        return self._name

    def open(self, shard: int, state: int | None = None) -> RowReader:
        first = self._begin(shard)
        at = first if state is None else state
        return RowReader(self._rows, self._where, shard, first, at, self._begin(shard + 1))

    def _where(self, place: int) -> str:
        return f"{self._name}, index {place}"

    def rebuild(self, shard: int, places: Sequence[int]) -> list[Item]:
        return read_all(self._rows, places)

    def count(self) -> int:
        return self._n

    def keys_at(self, numbers: Sequence[int]) -> list[Key]:
        # Of shard i the numbers begin at i * n // shards.
        n, m = self._n, self._num_shards
        return [(((number + 1) * m - 1) // n, number) for number in numbers]

    def fetch(self, numbers: Sequence[int]) -> list[Item]:
        return self._rows.many(numbers)

    def fetch_one(self, number: int) -> Item:
        return self._rows.one(number)


class RowReader(BlockReader):
    """Samples from one index to before another, read in batches.

    Parameters
    ----------
    rows : Samples
    locate : callable
        Says where the sample of an index is, for errors.
    shard, first, at, end : int
        The shard begins with the first, and this with the second.
    """

    def __init__(
        self, rows: Samples, locate: Callable[[int], str], shard: int, first: int, at: int, end: int
    ) -> None:
        super().__init__(shard)
        self._rows = rows
        self._locate = locate
        # Where the next block begins.
        self._at = at
        self._first, self._end = first, end
        self._growth = Growth()
        self._missing: list[int] = []
        self._n_missing = 0

    @property
    def n_skipped(self) -> int:  # type: ignore[override]
        return self._n_missing - len(self._missing) + bisect.bisect_left(self._missing, self.get_state())

    def block(self) -> Pull:
        places: Sequence[int] = ()
        while not places:
            if self._at >= self._end:
                self._missing = []
                self._pull((), ())
                raise StopIteration
            wanted = range(self._at, self._end)
            try:
                items = self._growth.read(self._rows, wanted)
            except Exception:
                items = [self._alone()]
            places = wanted[: len(items)]
            self._at += len(items)
            self._missing = []
            if any(item is MISSING for item in items):
                self._missing = [place for place, item in zip(places, items, strict=True) if item is MISSING]
                self._n_missing += len(self._missing)
                places = [place for place, item in zip(places, items, strict=True) if item is not MISSING]
                items = [item for item in items if item is not MISSING]
        return self._pull(places, items)

    def _alone(self) -> Item:
        """Return the next sample, after one of a batch could not be read; where it is this one, it is behind us."""
        self._growth = Growth()
        try:
            return self._rows.one(self._at)
        except Exception as error:
            at = self._at
            self._at += 1
            self._missing = []
            self._pull((), ())
            raise sample_error(error, self._locate(at)) from error

    def fraction(self) -> float:
        return 1 - (self._end - self.get_state()) / max(1, self._end - self._first)

    def get_state(self) -> int:
        given = self._n_given
        return self._places[given] if given < len(self._places) else self._at


def sample_error(error: Exception, where: str) -> Exception:
    """Return what to raise for what a sequence or a dataset raised for a sample, which is its cause."""
    if isinstance(error, LoaderxError):
        return error
    explained = StreamError(
        f"{where}: could not be read: {type(error).__name__}: {error}",
        node="source",
        function="[i]",
        where=where,
    )
    explained.__cause__ = error
    return explained
