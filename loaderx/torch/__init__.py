"""Batches as PyTorch's tensors, and datasets and loaders as PyTorch's own.

Needs PyTorch (``pip install torch``); nothing else of loaderx imports this package.
"""

try:
    import torch as _torch  # noqa: F401
except ModuleNotFoundError as error:
    if error.name != "torch":
        raise
    from loaderx.errors import MissingDependencyError

    raise MissingDependencyError(
        "loaderx.torch needs PyTorch, which is not installed: pip install torch",
        package="torch",
        extra="torch",
    ) from None

from loaderx.torch.loading import LoaderDataset, as_iterable_dataset, prefetch_to_device
from loaderx.torch.mapping import MapDataset, Samples, as_map_dataset, collate
from loaderx.torch.pinning import PinnedDataset, pinned
from loaderx.torch.tensors import to_tensors

__all__ = [
    "LoaderDataset",
    "MapDataset",
    "PinnedDataset",
    "Samples",
    "as_iterable_dataset",
    "as_map_dataset",
    "collate",
    "pinned",
    "prefetch_to_device",
    "to_tensors",
]
