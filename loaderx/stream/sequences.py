"""Shards that can be read at any index: sequences in memory, and ranges of a dataset."""

from __future__ import annotations

import bisect
import operator
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from functools import partial
from itertools import accumulate, repeat
from typing import Any

from loaderx.errors import LoaderxError, OptionError, StateMismatchError, StreamError
from loaderx.store.telling import said, shown
from loaderx.stream.calling import HELD, make_anew
from loaderx.stream.node import Item, Key
from loaderx.stream.paths import check_ordered
from loaderx.stream.positions import check_number
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


def check_no_text(option: str, value: Any) -> None:
    """Raise `OptionError` for text, whose letters nobody wants: it is a path, or stands where a list was meant."""
    if isinstance(value, str | bytes | bytearray):
        raise OptionError(
            f"{option} has the {type(value).__name__} {value[:50]!r}, whose items would be its letters: give what is "
            "to be read itself. Paths are for from_jsonl and the others that read files, or for Dataset, which opens a "
            "store; list(...) has the letters",
            option=option,
            value=value,
        )


def check_shards(option: str, value: Any) -> list[Any]:
    """Return what each stands for a shard, as a list.

    Raises
    ------
    OptionError
        It cannot be iterated, is a text, or gives another order in each process.
    """
    check_no_text(option, value)
    check_ordered(option, value)
    if not isinstance(value, Iterable) and not is_sequence(value):
        raise OptionError(
            f"{option} is {shown(value)}: give a list, of an item for each shard", option=option, value=value
        )
    return list(value)


def check_sequence(option: str, value: Any) -> None:
    """Raise `OptionError` for a text, and for what has no ``len()`` or no ``[i]``, or is too long for ``len()``."""
    check_no_text(option, value)
    if isinstance(value, Mapping):
        raise OptionError(
            f"{option} has a {type(value).__name__} of {', '.join(map(repr, list(value)[:5]))}, whose [i] are no "
            "numbers from 0 on: give one of its values, a list of them, or its keys to from_iterable",
            option=option,
            value=value,
        )
    if not is_sequence(value):
        raise OptionError(
            f"{option} has a {type(value).__name__}, which has no len() or no [i]: give sequences, or what can only be "
            "iterated to from_iterable",
            option=option,
            value=value,
        )
    try:
        len(value)
    except OverflowError:  # Python's own, which does not say of what
        raise OptionError(
            f"{option} has a {type(value).__name__} of more items than len() can say, {sys.maxsize}: give a part of "
            "it, or what can only be iterated to from_iterable",
            option=option,
            value=value,
        ) from None


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
        sequence = self._sequences[shard]
        at = 0 if state is None else check_number("an index", state, 0, len(sequence))
        return _SequenceReader(self, shard, sequence, at)

    def rebuild(self, shard: int, places: Sequence[int]) -> list[Item]:
        def blame(error: Exception, place: int) -> Exception:
            return sample_error(error, self.where(shard, place), is_held=True)

        return make_anew(partial(item_of, self._sequences[shard]), places, places, blame)

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
        None: some for a large dataset, so that a shuffle mixes what lies far apart. At most as many as samples.
    """

    unit = "index"

    def __init__(self, dataset: Any, num_shards: int | None = None) -> None:
        self._rows = Rows(dataset)
        self._name = type(dataset).__name__
        self._n = len(dataset)
        if num_shards is None:
            num_shards = max(1, min(_MOST_SHARDS, self._n // _SHARD_SAMPLES))
        self._num_shards = min(num_shards, max(1, self._n))

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
        first, end = self._begin(shard), self._begin(shard + 1)
        at = first if state is None else check_number("an index", state, first, end)
        return RowReader(self._rows, self._where, shard, first, at, end)

    def _where(self, place: int) -> str:
        return f"{self._name}, index {place}"

    def rebuild(self, shard: int, places: Sequence[int]) -> list[Item]:
        return read_held(self._rows, places, self._where)

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


def read_held(rows: Samples, places: Sequence[int], locate: Callable[[int], str]) -> list[Item]:
    """Return the samples of some indices, which a state holds.

    Parameters
    ----------
    rows : Samples
    places : sequence of int
    locate : callable
        Says where the sample of an index is, for errors.
    """
    try:
        items = read_all(rows, places)
    except Exception:
        # One by one, to know for which it is.
        def blame(error: Exception, place: int) -> Exception:
            return sample_error(error, locate(place), is_held=True)

        items = make_anew(rows.one, places, places, blame)
    for item, place in zip(items, places, strict=True):
        if item is MISSING:
            where = locate(place)
            raise StateMismatchError(
                f"the saved state holds the sample of {where}, which the dataset leaves out here: have it give that "
                "again, or begin anew",
                mismatches={where: ("a sample", "none")},
            )
    return items


def sample_error(error: Exception, where: str, is_held: bool = False) -> Exception:
    """Return what to raise for what a sequence or a dataset raised for a sample, which is its cause.

    Parameters
    ----------
    error : Exception
    where : str
    is_held : bool
        The sample is read anew, for a state holds it.
    """
    if isinstance(error, LoaderxError):
        return error
    explained = StreamError(
        f"{where}: could not be read: {type(error).__name__}: {said(error)}{HELD if is_held else ''}",
        node="source",
        function="[i]",
        where=where,
    )
    explained.__cause__ = error
    return explained
