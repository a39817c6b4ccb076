"""Some records of what is to be written: to choose a codec by, and to train a dictionary on."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from loaderx.arrays.ragged import RaggedDataset
from loaderx.arrays.ragged_records import RaggedRecords
from loaderx.arrays.schema import Schema
from loaderx.arrays.sources import Sliced, read_slice
from loaderx.store.buffers import as_source

# More records of one length than this would say no more, and each costs a call of the source.
_MOST_RECORDS = 16_384
# So many records give the mean length of all.
_FOR_A_MEAN = 256


class Samples(Protocol):
    """What `_Writer` and `choose` are given of the data to write."""

    item_bytes: int

    def total_bytes(self) -> int | None:
        """Return how many bytes there are to write, about; None where nobody knows."""

    def take(self, n_bytes: int, most: int | None = None, piece_bytes: int | None = None) -> list[memoryview]:
        """Return records spread over the data, in their order.

        Parameters
        ----------
        n_bytes : int
            About how many bytes to take in all.
        most : int, optional
            The most records.
        piece_bytes : int, optional
            Of a longer record, about so many bytes from its middle, whole items.
        """


class SliceSamples:
    """Samples of an array that is written record by record along axis 0."""

    def __init__(self, target: Path, source: Sliced, n: int, schema: Schema) -> None:
        self._target = target
        self._source = source
        self._n = n
        self._schema = schema
        self._record_bytes = schema.item_bytes
        self.item_bytes = schema.dtype.itemsize

    def total_bytes(self) -> int:
        """Return how many bytes there are to write."""
        return self._n * self._record_bytes

    def take(self, n_bytes: int, most: int | None = None, piece_bytes: int | None = None) -> list[memoryview]:
        """Return records spread over the data (`Samples`)."""
        each = min(self._record_bytes, piece_bytes or self._record_bytes)
        count = min(max(1, n_bytes // max(1, each)), self._n, most or self._n)
        return [
            _middle(
                as_source(read_slice(self._target, self._source, self._n, self._schema, index, index + 1)),
                piece_bytes,
                self.item_bytes,
            )
            for index in evenly(self._n, count).tolist()
        ]


class _Numbered(ABC):
    """Samples of records some of which can be had in any order."""

    item_bytes: int

    @abstractmethod
    def _sampled(self) -> tuple[int, Callable[[int], memoryview]]:
        """Return how many records can be had in any order, and what gives one of them."""

    def take(self, n_bytes: int, most: int | None = None, piece_bytes: int | None = None) -> list[memoryview]:
        """Return records spread over the data (`Samples`)."""
        n, record = self._sampled()
        chosen: dict[int, memoryview] = {}
        total = 0
        # Wherever there are bytes enough, the records so far are spread over all of them.
        indices = evenly(n, min(n, most or _MOST_RECORDS))
        for index in indices[_halving(len(indices))].tolist():
            chosen[index] = _middle(record(index), piece_bytes, self.item_bytes)
            total += chosen[index].nbytes
            if total >= n_bytes:
                break
        return [chosen[index] for index in sorted(chosen)]


class HeadSamples(_Numbered):
    """Samples of the first of the records that will be written.

    Parameters
    ----------
    records : sequence of memoryview
    is_all : bool
        Whether there are no others.
    item_bytes : int
    """

    def __init__(self, records: Sequence[memoryview], is_all: bool, item_bytes: int) -> None:
        self._records = records
        self._is_all = is_all
        self.item_bytes = item_bytes

    def total_bytes(self) -> int | None:
        """Return how many bytes there are to write; None where these are not all records."""
        return sum(record.nbytes for record in self._records) if self._is_all else None

    def _sampled(self) -> tuple[int, Callable[[int], memoryview]]:
        return len(self._records), self._records.__getitem__


class RaggedSamples(_Numbered):
    """Samples of arrays that become a ragged dataset; and all of its records, once.

    A sequence is sampled all over. Any other iterable gives each array once, so its head stands for all of it: that is
    read, when samples are first asked for, kept, and the first of what iterating over this object gives.

    Parameters
    ----------
    target : pathlib.Path
        Named in the log.
    arrays : iterable of array_like
    records : RaggedRecords
        Of `arrays`.
    head_bytes : int
        Bytes that the head may have.
    """

    def __init__(self, target: Path, arrays: Any, records: RaggedRecords, head_bytes: int) -> None:
        self._target = target
        self._arrays = arrays if isinstance(arrays, Sequence | RaggedDataset | np.ndarray) else None
        self._records = records
        self._rest = iter(records)
        self._head: list[memoryview] | None = None
        self._head_bytes = head_bytes
        self._is_all = False
        self.item_bytes = records.dtype.itemsize

    def __iter__(self) -> Iterator[memoryview]:
        yield from self._head or ()
        yield from self._rest

    def total_bytes(self) -> int | None:
        """Return how many bytes there are to write, about; None where they do not end with the head."""
        n, record = self._sampled()
        if self._arrays is None:
            return sum(record(index).nbytes for index in range(n)) if self._is_all else None
        sampled = evenly(n, min(n, _FOR_A_MEAN)).tolist()
        return sum(record(index).nbytes for index in sampled) * n // max(1, len(sampled))

    def _sampled(self) -> tuple[int, Callable[[int], memoryview]]:
        if self._arrays is not None:
            arrays = self._arrays
            return len(arrays), lambda index: self._records.convert(arrays[index], index)
        head = self._head if self._head is not None else self._read_head()
        return len(head), head.__getitem__

    def _read_head(self) -> list[memoryview]:
        import logging

        self._head = []
        total = 0
        self._is_all = True
        for record in self._rest:
            self._head.append(memoryview(bytes(record)))
            total += record.nbytes
            if total >= self._head_bytes:
                self._is_all = False
                logging.getLogger(__name__).info(
                    "%s: an iterable cannot be sampled all over: its first %d bytes stand for all of it",
                    self._target,
                    self._head_bytes,
                )
                break
        return self._head


def evenly(n: int, count: int) -> npt.NDArray[np.int64]:
    """Return `count` of the numbers below `n`, in order: the first and the last, and between them one of each stretch.

    Which of a stretch is as good as random, and always the same one: equal steps would see one kind of records only
    where two take turns.
    """
    edges = np.arange(count + 1, dtype=np.int64) * n // max(count, 1)
    chosen = edges[:-1] + (scattered(np.arange(count)) % np.diff(edges).astype(np.uint64)).astype(np.int64)
    if count > 1:
        chosen[0], chosen[-1] = 0, n - 1
    return chosen


def scattered(numbers: npt.NDArray[Any]) -> npt.NDArray[np.uint64]:
    """Return a number of 64 bits for each, as good as random (the finalizer of Steele, Lea and Flood's SplitMix64)."""
    mixed = (numbers.astype(np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return mixed ^ (mixed >> np.uint64(31))


def _halving(n: int) -> npt.NDArray[np.int64]:
    """Return the numbers below `n` in an order whose every beginning is spread over them.

    Of the first two one is in each half, of the first four one in each quarter, and so on, at a place in it that is as
    good as random: van der Corput's sequence, scrambled as Owen does.
    """
    digits = max(n - 1, 0).bit_length()
    places = np.arange(1 << digits, dtype=np.int64)
    order = np.zeros_like(places)
    for digit in range(digits):
        # The digits of a place, the lowest first, say to which half of a half of ... it belongs.
        upper = places & ((1 << digit) - 1)
        flipped = (scattered(upper + (1 << digit)) & np.uint64(1)).astype(np.int64)
        order = 2 * order + (places >> digit & 1 ^ flipped)
    return order[order < n]


def _middle(record: memoryview, piece_bytes: int | None, item_bytes: int) -> memoryview:
    """Return a record, or of a longer one than `piece_bytes` a copy of so many from its middle."""
    if piece_bytes is None or record.nbytes <= piece_bytes:
        return record
    length = max(1, piece_bytes // item_bytes) * item_bytes
    first = (record.nbytes - length) // 2 // item_bytes * item_bytes
    return memoryview(bytes(record[first : first + length]))
