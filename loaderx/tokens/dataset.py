"""`TokensDataset`: samples of tokens, and what belongs to each token, by their index."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Protocol, Self

import numpy as np
import numpy.typing as npt

from loaderx.arrays.dataset import Dataset
from loaderx.arrays.ragged import RaggedDataset
from loaderx.arrays.schema import read_schema
from loaderx.errors import NotAStoreError, OptionError, SchemaError
from loaderx.store.format import SCHEMA
from loaderx.store.options import check_path
from loaderx.tokens.ranges import RangeTokens, is_token_index
from loaderx.tokens.sides import TOKENS
from loaderx.tokens.state import MANIFEST, read_manifest


class _Reader(Protocol):
    """What samples are read from: for each name an array, and all of them at the same indices."""

    dtypes: dict[str, np.dtype[Any]]
    sample_size: int | None

    def __len__(self) -> int: ...

    def read(self, idx: Any) -> dict[str, Any]:
        """Return a sample, or a batch, of each array, for any index of NumPy's."""

    def read_batch(self, idxs: Any) -> dict[str, Any]:
        """Return a batch of each array."""

    def prefetch(self, idxs: Any) -> None: ...

    def close(self) -> None: ...


class TokensDataset:
    """Token samples, opened for reading: what `tokenize` wrote, any dataset of tokens, or what data-forager wrote.

    ``ds[i]`` is one sample, an array; ``ds[2:10]``, ``ds[[3, 1, 3]]`` and ``ds[mask]`` are batches, ``(n,
    sample_size)``; where samples differ in length, packed as those of a `RaggedDataset`. Where there are side streams
    too, each is a dict with an entry for every one of them and "tokens". Everything is a copy.

    Parameters
    ----------
    path : str or os.PathLike
        What `tokenize` wrote; or a `Dataset` or `RaggedDataset` of integers; or the folder that data-forager's "index"
        is in. Never changed.
    token_dtype : dtype_like, optional
        What the tokens of a data-forager index are, which does not say so where it has no schema. Of anything else what
        it has to be.
    index_folder : str
        Name of data-forager's folder.
    threads : int
    max_batch_bytes : int, optional
    io : {"mmap", "pread"}
    timeout_s : float
    verify : bool
        As in `Dataset`; for a data-forager index the last two mean nothing.

    Attributes
    ----------
    path : pathlib.Path
    dtype : numpy.dtype
        Of the tokens.
    dtypes : dict of str to numpy.dtype
        Of every array.
    names : tuple of str
        Of the arrays; "tokens" first.
    sample_size : int or None
        Tokens in each sample; None: they differ.

    Raises
    ------
    NotAStoreError
        There are no tokens here.
    SchemaError
        They are of another dtype, or what describes them is wrong.
    OptionError
        `token_dtype` is needed, or no integer type.
    StaleIndexError
        Files that an index lists are gone, or shorter than it says.
    CorruptRecordError, FormatVersionError, StoreIOError

    Notes
    -----
    A stream of a `DataLoader`. Safe in any number of threads. A forked child may use it. Pickles by its path.

    Examples
    --------
    >>> from loaderx.tokens import TokensDataset, tokenize
    >>> texts, path = ["ab", "cde"], tmp_path / "t"
    >>> _ = tokenize(texts, path, lambda text: list(text.encode()), eos_id=0, sample_size=3, side_streams=["positions"])
    >>> TokensDataset(path)[1]
    {'tokens': array([ 99, 100, 101], dtype=uint32), 'positions': array([0, 1, 2], dtype=int32)}
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        token_dtype: npt.DTypeLike | None = None,
        index_folder: str = "index",
        threads: int = 0,
        max_batch_bytes: int | None = None,
        io: Literal["mmap", "pread"] = "mmap",
        timeout_s: float = 10.0,
        verify: bool = False,
    ) -> None:
        self.path = check_path(path)
        dtype = None if token_dtype is None else _check_dtype(token_dtype)
        options = {"threads": threads, "io": io, "timeout_s": timeout_s, "verify": verify}
        self._options = {
            "token_dtype": dtype,
            "index_folder": index_folder,
            "max_batch_bytes": max_batch_bytes,
            **options,
        }
        self._reader = _open(self.path, dtype, index_folder, max_batch_bytes, options)
        self.dtypes = self._reader.dtypes
        self.names = tuple(self.dtypes)
        self.dtype = self.dtypes[TOKENS]
        self.sample_size = self._reader.sample_size

    def __repr__(self) -> str:
        size = "any number of" if self.sample_size is None else str(self.sample_size)
        beside = f", and {', '.join(self.names[1:])}" if len(self.names) > 1 else ""
        return (
            f"<TokensDataset {str(self.path)!r}: {len(self)} samples of {size} {self.dtype} tokens{beside}>"
        )

    def __len__(self) -> int:
        return len(self._reader)

    def __getitem__(self, idx: Any) -> Any:
        """Return one sample or a batch: of the tokens, or a dict where there are side streams.

        Raises
        ------
        RecordIndexError
            No such sample (it is an `IndexError`).
        TypeError
            Not an index.
        CorruptRecordError, StoreIOError, ClosedError, OptionError
        """
        return self._given(self._reader.read(idx))

    def __getitems__(self, idxs: Any) -> Any:
        """Return a batch of samples.

        Parameters
        ----------
        idxs : sequence of int, or ndarray of int or bool

        Returns
        -------
        ndarray, shape (n, sample_size), or (values, row_splits), or dict of these
            `values` and `row_splits` as in `RaggedDataset`, where samples differ in length.

        Raises
        ------
        RecordIndexError, CorruptRecordError, StoreIOError, ClosedError, OptionError, TypeError
        """
        return self._given(self._reader.read_batch(idxs))

    def prefetch(self, idxs: Any) -> None:
        """Have the system begin to read samples that will be wanted soon (`Dataset.prefetch`).

        Parameters
        ----------
        idxs : slice, sequence of int, or ndarray of int or bool

        Raises
        ------
        RecordIndexError, ClosedError, TypeError
        """
        self._reader.prefetch(idxs)

    def _given(self, found: dict[str, Any]) -> Any:
        return found if len(found) > 1 else found[TOKENS]

    def __iter__(self) -> Iterator[Any]:
        for index in range(len(self)):
            yield self[index]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __reduce__(self) -> tuple[Any, ...]:
        return _reopen, (type(self), self.path, self._options)

    def close(self) -> None:
        """Let go of the files. Reads that run finish; every later one raises `ClosedError`."""
        self._reader.close()


def _reopen(cls: type[TokensDataset], path: Path, options: dict[str, Any]) -> TokensDataset:
    return cls(path, **options)


class _StoreTokens:
    """Stores with the same number of records each."""

    def __init__(self, path: Path, stores: dict[str, Dataset | RaggedDataset]) -> None:
        self._path = path
        self._stores = stores
        self.dtypes = {name: store.dtype for name, store in stores.items()}
        tokens = stores[TOKENS]
        self.sample_size = tokens.shape[0] if isinstance(tokens, Dataset) and tokens.shape else None

    def __len__(self) -> int:
        return len(self._stores[TOKENS])

    def read(self, idx: Any) -> dict[str, Any]:
        return {name: store[idx] for name, store in self._stores.items()}

    def read_batch(self, idxs: Any) -> dict[str, Any]:
        return {name: store.__getitems__(idxs) for name, store in self._stores.items()}

    def prefetch(self, idxs: Any) -> None:
        for store in self._stores.values():
            store.prefetch(idxs)

    def close(self) -> None:
        for store in self._stores.values():
            store.close()


def _open(
    path: Path,
    token_dtype: np.dtype[Any] | None,
    index_folder: str,
    max_batch_bytes: int | None,
    options: dict[str, Any],
) -> _Reader:
    if os.path.lexists(path / MANIFEST) or os.path.lexists(path / SCHEMA):
        return _open_stores(path, token_dtype, {"max_batch_bytes": max_batch_bytes, **options})
    if is_token_index(path, index_folder):
        return RangeTokens(
            path, index_folder, token_dtype, max_batch_bytes, options["threads"], options["io"]
        )
    raise NotAStoreError(
        f"{path}: there are no tokens here: no {MANIFEST}, no {SCHEMA}, and no {index_folder}/sample_locations.bin"
        + ("" if path.exists() else "; there is nothing at this path")
        + (
            f". {path.name}.unfinished holds a run that was cut off: run it again"
            if path.with_name(f"{path.name}.unfinished").is_dir()
            else ""
        ),
        store=path,
    )


def _open_stores(path: Path, token_dtype: np.dtype[Any] | None, options: dict[str, Any]) -> _Reader:
    manifest = read_manifest(path)
    folders = {TOKENS: "."} if manifest is None else manifest["arrays"]
    stores: dict[str, Dataset | RaggedDataset] = {}
    try:
        for name in (TOKENS, *(name for name in folders if name != TOKENS)):
            kind = RaggedDataset if read_schema(path / folders[name]).kind == "ragged" else Dataset
            stores[name] = kind(path / folders[name], **options)
        _check_stores(path, token_dtype, stores)
    except BaseException:
        for store in stores.values():
            store.close()
        raise
    return _StoreTokens(path, stores)


def _check_stores(
    path: Path, token_dtype: np.dtype[Any] | None, stores: dict[str, Dataset | RaggedDataset]
) -> None:
    tokens = stores[TOKENS]
    axes = tokens.shape if isinstance(tokens, Dataset) else (None, *tokens.item_shape)
    if tokens.dtype.kind not in "iu" or len(axes) != 1:
        raise SchemaError(f"{path}: holds {tokens!r}, and samples of tokens are rows of integers", path=path)
    if token_dtype is not None and tokens.dtype != token_dtype:
        raise SchemaError(f"{path}: its tokens are {tokens.dtype}, not {token_dtype}", path=path)
    lengths = {name: len(store) for name, store in stores.items()}
    if len(set(lengths.values())) > 1:
        told = ", ".join(f"{name} has {n}" for name, n in lengths.items())
        raise SchemaError(f"{path}: its arrays differ in length: {told}. Write it anew", path=path)


def _check_dtype(token_dtype: Any) -> np.dtype[Any]:
    dtype: np.dtype[Any]
    try:
        dtype = np.dtype(token_dtype)
    except (TypeError, ValueError, SyntaxError):  # NumPy reads some strings as Python
        dtype = np.dtype(object)
    if dtype.kind not in "iu":
        raise OptionError(
            f"token_dtype is {token_dtype!r}: give an integer type of NumPy's",
            option="token_dtype",
            value=token_dtype,
        )
    return dtype
