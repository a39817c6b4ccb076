"""The dictionary a store compresses with: trained and written, and made ready once for each level."""

from __future__ import annotations

from pathlib import Path

from loaderx._core.compress import CompressionDictionary
from loaderx.errors import DestinationError, DictionaryError, OptionError
from loaderx.store import files
from loaderx.store.buffers import Indices
from loaderx.store.dictionary import damaged_error, first_dependent, load, read_dictionary
from loaderx.store.format import DICTIONARY
from loaderx.store.session import Session
from loaderx.store.training import train_on


def check_samples(store: Path, samples: memoryview, sizes: Indices) -> None:
    """Raise where the samples are not as many bytes as their sizes say.

    Raises
    ------
    OptionError
        A size is negative.
    DestinationError
    """
    if len(sizes) and sizes.min() < 0:
        raise OptionError(
            f"{store}: sizes holds {sizes.min()}: give the bytes of each sample",
            option="sizes",
            value=int(sizes.min()),
        )
    needed_bytes = sum(sizes.tolist())  # of any number of bits
    if needed_bytes > samples.nbytes:
        raise DestinationError(
            f"{store}: the sizes add up to {needed_bytes} bytes, and there are {samples.nbytes} of samples",
            store=store,
            needed_bytes=needed_bytes,
            given_bytes=samples.nbytes,
        )


def train_dictionary(
    store: Path,
    session: Session,
    samples: memoryview,
    sizes: Indices,
    target: int,
    item_size: int | None,
    is_damaged: bool,
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
    is_damaged : bool
        The store's dictionary was found damaged.

    Raises
    ------
    DictionaryError
        There are too few samples, or records already depend on another dictionary.
    StoreIOError
        The dictionary may have its name already.
    """
    dependent = first_dependent(store, session.files.table, session.header().length)
    if dependent is not None and is_damaged:
        raise damaged_error(store)
    if dependent is not None:
        raise DictionaryError(
            f"{store}: record {dependent} was compressed with the store's dictionary, and could not be read with "
            "another: train before the first such record, or in a new store",
            store=store,
        )
    trained = train_on(samples, sizes, target, item_size)
    if isinstance(trained, str):
        raise DictionaryError(
            f"{store}: no dictionary could be trained on {len(sizes)} samples of {sum(sizes.tolist())} "
            f"bytes in all ({trained}): give more samples or another size, or use codec 'zstd'",
            store=store,
        )
    with files.errors_named(store, "write the dictionary"):
        files.write_new(store / DICTIONARY, trained)
        files.sync_directory(store)
        session.note_dictionary(trained)
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

    def at_level(self, session: Session, level: int, codec: str) -> CompressionDictionary:
        """Return the dictionary that the store has now, for a level.

        Raises
        ------
        DictionaryError
            It has none (names the codec that needs one), or a damaged one.
        StoreIOError
        """
        content = read_dictionary(self._store)
        if content is None:
            raise DictionaryError(
                f"{self._store}: codec {codec!r} needs a dictionary, and the store has none: call train_dict first",
                store=self._store,
            )
        if content != self._content:  # also where another handle has trained one since
            if load(content) is None or not session.takes_dictionary(content):
                raise damaged_error(self._store)
            self._content = content
            self._ready.clear()
        if level not in self._ready:
            self._ready[level] = CompressionDictionary(content, level)
        return self._ready[level]
