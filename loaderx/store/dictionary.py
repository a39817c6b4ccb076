"""A store's dictionary: trained and written, and made ready to compress with."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from loaderx._core.compress import CompressionDictionary
from loaderx.errors import DestinationError, DictionaryError
from loaderx.store import files
from loaderx.store.buffers import Indices
from loaderx.store.format import CODECS, DICTIONARY, DICTIONARY_CODECS
from loaderx.store.session import Session
from loaderx.store.snapshot import read_dictionary
from loaderx.store.table import table_blocks
from loaderx.store.training import train_on


def check_samples(store: Path, samples: memoryview, sizes: Indices) -> None:
    """Raise `DestinationError` where the samples are not as many bytes as their sizes say, or a size is negative."""
    # In two parts, for 64 bits may not hold it.
    total = (int((sizes >> 32).sum()) << 32) + int((sizes & 0xFFFFFFFF).sum())
    if len(sizes) and (sizes.min() < 0 or total > samples.nbytes):
        raise DestinationError(
            f"{store}: the sizes add up to {total} bytes, and there are {samples.nbytes} of samples",
            store=store,
            needed_bytes=total,
            given_bytes=samples.nbytes,
        )


def train_dictionary(
    store: Path, session: Session, samples: memoryview, sizes: Indices, target: int, item_size: int | None
) -> int:
    """Train a dictionary and make it the store's; its bytes.

    Parameters
    ----------
    store : pathlib.Path
        Named in errors.
    session : Session
    samples : memoryview of bytes
        One behind the other, as `check_samples` wants them.
    sizes : ndarray of int, shape (n,)
    target : int
        The most bytes the dictionary may have.
    item_size : int or None
        Where given, the samples are shuffled first.

    Raises
    ------
    DictionaryError
        There are too few samples, or records already depend on another dictionary.
    StoreIOError
    """
    dictionary_tags = [CODECS[name] for name in DICTIONARY_CODECS]
    for first, entries in table_blocks(store, session.files.table, session.header().length):
        dependent = np.flatnonzero(np.isin(entries["codec"], dictionary_tags))
        if len(dependent):
            raise DictionaryError(
                f"{store}: record {first + int(dependent[0])} was compressed with the store's dictionary, "
                "and could not be read with another: train before the first such record, or in a new store",
                store=store,
            )
    trained = train_on(samples, sizes, target, item_size)
    if isinstance(trained, str):
        raise DictionaryError(
            f"{store}: no dictionary could be trained on {len(sizes)} samples of {int(sizes.sum())} "
            f"bytes in all ({trained}): give more samples or another size, or use codec 'zstd'",
            store=store,
        )
    with files.errors_named(store, "write the dictionary"):
        files.write_new(store / DICTIONARY, trained)
        files.sync_directory(store)
    return len(trained)


class ReadyDictionaries:
    """A store's dictionary made ready to compress with, once for each level.

    Parameters
    ----------
    store : pathlib.Path
    """

    def __init__(self, store: Path) -> None:
        self._store = store
        self._content = b""
        self._ready: dict[int, CompressionDictionary] = {}

    def at_level(self, level: int, codec: str) -> CompressionDictionary:
        """Return the dictionary that the store has now, for a level.

        Raises
        ------
        DictionaryError
            It has none; names the codec that needs one.
        StoreIOError
        """
        content = read_dictionary(self._store)
        if content is None:
            raise DictionaryError(
                f"{self._store}: codec {codec!r} needs a dictionary, and the store has none: call train_dict first",
                store=self._store,
            )
        if content != self._content:  # also where another handle has trained one since
            self._content = content
            self._ready.clear()
        if level not in self._ready:
            self._ready[level] = CompressionDictionary(content, level)
        return self._ready[level]
