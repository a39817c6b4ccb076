"""Reading a dataset some samples at a time, and the samples of a batch one by one."""

from __future__ import annotations

import time
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Protocol

import numpy as np

from loaderx.arrays.dataset import Dataset
from loaderx.arrays.ragged import RaggedDataset
from loaderx.jsonl.byte_ranges import ByteRangeDataset
from loaderx.stream.node import Item
from loaderx.stream.shards import MISSING
from loaderx.tokens.dataset import TokensDataset

_MOST_SAMPLES = 256
_FEW_SECONDS = 0.004

#: Datasets whose batches are known, and give the same samples as their items are.
_KNOWN = (Dataset, RaggedDataset, TokensDataset, ByteRangeDataset)


def own(item: Item) -> Item:
    """Return an item that may be changed: of a dict, which somebody else may hold, a copy; what is in it is shared."""
    return item.copy() if type(item) is dict else item


def item_of(sequence: Any, index: int) -> Item:
    """Return ``sequence[index]``, as `own` has it."""
    return own(sequence[index])


class Rows:
    """Samples of a dataset by their indices, read in batches where it can do that.

    Parameters
    ----------
    dataset : object with ``len()`` and ``[i]``
        One with ``__getitems__``, which takes a list of indices and returns a list of samples, is asked for some at a
        time; so are loaderx's own.
    """

    def __init__(self, dataset: Any) -> None:
        self._dataset = dataset
        self._is_ours = isinstance(dataset, _KNOWN)
        self._leaves_out = isinstance(dataset, ByteRangeDataset)
        self._reads_batches = self._is_ours or callable(getattr(dataset, "__getitems__", None))

    def count(self) -> int:
        """Return how many samples there are now."""
        return len(self._dataset)

    def one(self, index: int) -> Item:
        """Return a sample, or `MISSING`."""
        if self._leaves_out:
            found = self._dataset.__getitems__([index])
            return found[0] if found else MISSING
        return self._dataset[index] if self._is_ours else item_of(self._dataset, index)

    def many(self, indices: Sequence[int]) -> list[Item]:
        """Return samples, in the order asked for; `MISSING` for those that the dataset leaves out.

        Raises
        ------
        Exception
            What the dataset raises, about any of them.
        """
        if not self._reads_batches:
            return [item_of(self._dataset, index) for index in indices]
        if self._is_ours:
            items = split_batch(self._dataset.__getitems__(np.asarray(indices, np.int64)))
        else:
            items = list(map(own, self._dataset.__getitems__(list(indices))))
        if len(items) == len(indices):
            return items
        if self._leaves_out:
            return [self.one(index) for index in indices]
        raise IndexError(
            f"__getitems__ of {type(self._dataset).__name__} returned {len(items)} samples for {len(indices)} indices"
        )


class Samples(Protocol):
    """What has samples by their indices."""

    def one(self, index: int) -> Item:
        """Return a sample, or `MISSING`."""

    def many(self, indices: Sequence[int]) -> list[Item]:
        """Return samples, in the order asked for; `MISSING` for those that are left out."""


class Growth:
    """How many samples to read at once: one, so that the first comes soon, and then as many as take little time."""

    def __init__(self) -> None:
        self._n = 1

    def read(self, rows: Samples, indices: Sequence[int]) -> list[Item]:
        """Read the first few of some samples."""
        started = time.perf_counter()
        items = rows.many(indices[: self._n])
        took = time.perf_counter() - started
        if took > 2 * _FEW_SECONDS:
            self._n = max(1, self._n // 4)
        elif took < _FEW_SECONDS:
            self._n = min(_MOST_SAMPLES, self._n * 4)
        return items


def read_all(rows: Samples, indices: Sequence[int]) -> list[Item]:
    """Return samples, read some at a time."""
    items: list[Item] = []
    growth = Growth()
    while len(items) < len(indices):
        items += growth.read(rows, indices[len(items) :])
    return items


def split_batch(batch: Any) -> list[Item]:
    """Return the samples of a batch of one of loaderx's datasets: each is its own memory, as ``dataset[i]`` is.

    Parameters
    ----------
    batch : ndarray, (values, row_splits), dict of these, or list
    """
    if isinstance(batch, list):
        return batch
    if isinstance(batch, dict):
        columns = [split_batch(column) for column in batch.values()]
        return [dict(zip(batch, row, strict=True)) for row in zip(*columns, strict=True)]
    if isinstance(batch, tuple):
        values, splits = batch
        ends = splits.tolist()
        return [values[begin:end].copy() for begin, end in pairwise(ends)]
    if batch.ndim > 1 or batch.dtype.names is not None:
        # A view of a row would keep the whole batch as long as the row is kept.
        return [row.copy() for row in batch]
    return list(batch)
