"""Batches in PyTorch's pinned memory."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from loaderx.arrays.dataset import Dataset
from loaderx.errors import OptionError
from loaderx.torch.tensors import torch_dtype


def pinned(dataset: Dataset) -> PinnedDataset:
    """Return a stream whose batches lie in PyTorch's pinned memory, from which devices copy on their own.

    Parameters
    ----------
    dataset : Dataset
        Of numbers that PyTorch has a type for.

    Returns
    -------
    PinnedDataset
        For ``DataLoader({"image": pinned(Dataset(...))}, ...)``, in place of the dataset.

    Raises
    ------
    OptionError
        It is no `Dataset`, PyTorch has no such type, or there is no accelerator to pin memory for.

    Notes
    -----
    Records are read straight into that memory: there is no copy between. PyTorch uses it again when the arrays and
    tensors of a batch are gone, and copies of it to a device are done.
    """
    return PinnedDataset(dataset)


class PinnedDataset:
    """A `Dataset` read into pinned memory: see `pinned`. Safe in several threads; does not pickle."""

    def __init__(self, dataset: Dataset) -> None:
        if not isinstance(dataset, Dataset):
            raise OptionError(
                f"pinned() is for a Dataset, not a {type(dataset).__name__}: batches of other kinds have no size that "
                "is known before they are read; pin their tensors, tensor.pin_memory()",
                option="dataset",
                value=dataset,
            )
        torch_dtype(dataset.dtype, str(dataset.path))
        try:
            _empty_pinned(1)
        except RuntimeError as error:
            raise OptionError(
                f"there is no pinned memory here: {error} Leave pinned() out where PyTorch has no accelerator",
                option="dataset",
                value=dataset,
            ) from error
        self.dataset = dataset

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitems__(self, idxs: Any) -> npt.NDArray[Any]:
        """Return a batch of records: an array, as `Dataset.__getitems__` does, over the memory of a pinned tensor."""
        shape = (len(idxs), *self.dataset.shape)
        n_bytes = int(np.prod(shape)) * self.dataset.dtype.itemsize
        out = _empty_pinned(n_bytes).numpy().view(self.dataset.dtype).reshape(shape)
        return self.dataset.__getitems__(idxs, out=out)

    def prefetch(self, idxs: Any) -> None:
        """See `Dataset.prefetch`."""
        self.dataset.prefetch(idxs)

    def __reduce__(self) -> tuple[Any, ...]:
        raise TypeError(
            "a pinned stream does not pickle: pinned memory belongs to one process. Use worker threads, or the Dataset"
        )


def _empty_pinned(n_bytes: int) -> Any:
    return torch.empty(n_bytes, dtype=torch.uint8, pin_memory=True)
