"""Training a dictionary on samples of records."""

from __future__ import annotations

import itertools

import numpy as np

from loaderx._core.compress import train
from loaderx._core.shuffle import shuffle
from loaderx.store.buffers import Indices
from loaderx.store.format import MAX_ITEM_BYTES, MIN_ITEM_BYTES

# What zstd's trainer looks at, at a time.
_LEAST_SAMPLE_BYTES = 8


def train_on(samples: memoryview, sizes: Indices, target: int, item_size: int | None) -> bytes | str:
    """Return a dictionary, or why none could be trained.

    Parameters
    ----------
    samples : memoryview of bytes
        One behind the other.
    sizes : ndarray of int, shape (n,)
        Bytes in each.
    target : int
        The most bytes the dictionary may have.
    item_size : int or None
        Where given, and items of that many bytes can be shuffled, the samples are before anything is learnt from them.
    """
    if item_size is not None and MIN_ITEM_BYTES <= item_size <= MAX_ITEM_BYTES:
        samples = memoryview(b"".join(shuffle(part, item_size) for part in _parts(samples, sizes)))
    samples, sizes = _long_enough(samples, sizes)
    return train(samples, sizes.astype(np.uint64), min(target, samples.nbytes))


def _long_enough(samples: memoryview, sizes: Indices) -> tuple[memoryview, Indices]:
    """Return the samples that zstd can learn from, which does so eight bytes at a time.

    The others would be among those that it counts, and where they come first it has nothing to learn from.
    """
    long_enough = sizes >= _LEAST_SAMPLE_BYTES
    if long_enough.all():
        return samples, sizes
    chosen = itertools.compress(_parts(samples, sizes), long_enough.tolist())
    return memoryview(b"".join(chosen)), sizes[long_enough]


def _parts(samples: memoryview, sizes: Indices) -> list[memoryview]:
    """Return the samples one by one."""
    ends = np.cumsum(sizes, dtype=np.int64)
    return [samples[end - size : end] for end, size in zip(ends.tolist(), sizes.tolist(), strict=True)]
