"""Streams as a map-style dataset of PyTorch, read a batch at a time."""

from __future__ import annotations

import operator
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch.utils.data import Dataset as TorchDataset
from torch.utils.data import default_collate, get_worker_info

from loaderx._core.threads import limit_this_thread
from loaderx.arrays.ragged import RaggedDataset
from loaderx.loader.streams import RandomAccess, check_streams
from loaderx.store.options import check_flag
from loaderx.tokens.dataset import TokensDataset
from loaderx.torch.tensors import to_tensors


def as_map_dataset(streams: RandomAccess | Mapping[str, RandomAccess], *, widen: bool = True) -> MapDataset:
    """Return a dataset, or several of one length, as a map-style dataset of PyTorch, which reads a batch in one call.

    Parameters
    ----------
    streams : Dataset, RaggedDataset, loaderx.tokens.TokensDataset, or mapping of str to these
        Or to anything with ``len()`` and ``__getitems__(idxs)``.
    widen : bool
        As in `to_tensors`.

    Returns
    -------
    MapDataset
        A sample is a tensor, or a dict of them where `streams` is a mapping. A record of a RaggedDataset is a tensor of
        its rows, and a sample of a TokensDataset with side streams a dict of tensors.

    Raises
    ------
    OptionError
        No streams, streams of different lengths, or what is no stream.

    Examples
    --------
    >>> from loaderx.torch import as_map_dataset, collate
    >>> write_dataset(tmp_path / "x.zr", np.arange(10))
    10
    >>> dataset = as_map_dataset({"x": Dataset(tmp_path / "x.zr")})
    >>> dataset[3]
    {'x': tensor(3)}
    >>> loader = torch.utils.data.DataLoader(dataset, batch_size=5, collate_fn=collate)
    >>> [batch["x"].tolist() for batch in loader]
    [[0, 1, 2, 3, 4], [5, 6, 7, 8, 9]]
    """
    return MapDataset(streams, widen)


class MapDataset(TorchDataset):
    """Streams as a map-style dataset: see `as_map_dataset`.

    Notes
    -----
    Works in PyTorch's workers, forked or spawned, and pickles by the streams' paths. A worker reads with one thread a
    call, as PyTorch's own operations do there: several of them have the cores between them.
    """

    def __init__(self, streams: Any, widen: bool) -> None:
        self._is_one = not isinstance(streams, Mapping)
        self.streams, _ = check_streams({"data": streams} if self._is_one else streams)
        self._widen = check_flag("widen", widen)

    def __len__(self) -> int:
        return min(map(len, self.streams.values()))

    def __repr__(self) -> str:
        kinds = {name: type(stream).__name__ for name, stream in self.streams.items()}
        told = ", ".join(f"{name}: {kind}" for name, kind in kinds.items())
        return f"<MapDataset of {kinds['data'] if self._is_one else f'{{{told}}}'}: {len(self)} samples>"

    def __getitem__(self, index: Any) -> Any:
        """Return one sample.

        Raises
        ------
        TypeError
            `index` is no whole number.
        RecordIndexError
            There is no such record (it is an `IndexError`).
        OptionError, CorruptRecordError, DictionaryError, StoreIOError, ClosedError
        """
        try:
            if isinstance(index, bool):
                raise TypeError
            number = operator.index(index)
        except TypeError:
            raise TypeError(
                f"the index of a sample is a whole number, not a {type(index).__name__}: several samples are had by "
                "dataset.__getitems__([3, 1, 4]), as PyTorch's DataLoader does where it has a batch_size"
            ) from None
        return self.__getitems__([number])[0]

    def __getitems__(self, indices: Any) -> Samples:
        """Return the samples of a batch: every stream is read once, and the samples are views of that.

        PyTorch's DataLoader calls this with the indices of a batch, and gives the answer to its ``collate_fn``.
        """
        if get_worker_info() is not None:
            limit_this_thread(1)
        idxs: Any = np.asarray(indices) if len(indices) else np.empty(0, np.int64)
        batch, parts = {}, {}
        for name, stream in self.streams.items():
            read = stream.__getitems__(idxs)
            batch[name] = to_tensors(read, widen=self._widen)
            parts[name] = _split(batch[name], _is_ragged(stream), len(indices))
        if self._is_one:
            return Samples(parts["data"], batch["data"])
        return Samples(
            (dict(zip(parts, sample, strict=True)) for sample in zip(*parts.values(), strict=True)), batch
        )


def _is_ragged(stream: Any) -> bool:
    """Return whether arrays of a stream come as ``(values, row_splits)``."""
    return isinstance(stream, RaggedDataset) or (
        isinstance(stream, TokensDataset) and stream.sample_size is None
    )


def _split(batch: Any, is_ragged: bool, n: int) -> list[Any]:
    """Return what each sample of a batch of tensors has."""
    if is_ragged and isinstance(batch, tuple):
        values, row_splits = batch
        return list(values.split(row_splits.diff().tolist()))
    if isinstance(batch, torch.Tensor):
        return list(batch.unbind())
    if isinstance(batch, dict):
        columns = zip(*(_split(item, is_ragged, n) for item in batch.values()), strict=True)
        return [dict(zip(batch, sample, strict=True)) for sample in columns]
    if isinstance(batch, tuple):
        return list(zip(*(_split(item, False, n) for item in batch), strict=True))
    return list(batch)


class Samples(list[Any]):
    """The samples of a batch: a list, which any ``collate_fn`` takes; and all of them in one piece.

    Attributes
    ----------
    batch : object
        The batch as `to_tensors` gives it, of which the samples are views.
    """

    def __init__(self, samples: Any, batch: Any) -> None:
        super().__init__(samples)
        self.batch = batch


def collate(samples: Any) -> Any:
    """Return the batch of some samples: a ``collate_fn`` that does not copy what `MapDataset` read in one piece.

    Parameters
    ----------
    samples : list
        What a dataset's ``__getitems__`` returned. What is not of a `MapDataset` goes through PyTorch's
        ``default_collate``.

    Returns
    -------
    object
        A tensor with the samples along its first axis, or a dict of them; of a RaggedDataset ``(values, row_splits)``,
        and of a TokensDataset whose samples differ in length that of every stream.

    Raises
    ------
    TypeError
        It is one sample, as PyTorch's DataLoader gives it with ``batch_size=None``.
    """
    if isinstance(samples, Mapping | torch.Tensor):
        raise TypeError(
            f"collate is given a {type(samples).__name__}, which is one sample, and makes batches of lists of them: "
            "give PyTorch's DataLoader a batch_size, or leave collate_fn out"
        )
    return samples.batch if isinstance(samples, Samples) else default_collate(samples)
