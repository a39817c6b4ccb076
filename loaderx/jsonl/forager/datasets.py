"""data-forager's datasets, as thin covers of loaderx's."""

from __future__ import annotations

import itertools
import os
from collections.abc import Sequence
from typing import Any, Protocol, Self

import numpy as np
import numpy.typing as npt

from loaderx import jsonl, tokens
from loaderx.errors import OptionError


class JsonlDataset(jsonl.JsonlDataset):
    """The lines of JSONL files, each as the object it says: a `loaderx.jsonl.JsonlDataset`."""

    @classmethod
    def create_from_index_on_filesystem(
        cls,
        base_path: str | os.PathLike[str],
        index_data_folder: str | None = None,
        name: str | None = None,
        **options: Any,
    ) -> Self:
        """Open an index that `create_default_jsonl_indexer` made, or data-forager.

        Parameters
        ----------
        base_path : str or os.PathLike
            The folder that was indexed.
        index_data_folder : str, optional
            The index's folder; None: ``index``.
        name : str, optional
            Not used.
        **options
            Of `loaderx.jsonl.JsonlDataset`.

        Raises
        ------
        NotAnIndexError, StaleIndexError, StoreIOError, OptionError
        """
        return cls(base_path, index_folder=index_data_folder, **options)

    def initialize(self) -> None:
        """Do nothing: files are opened when they are first read, also in a process that was forked or started anew."""

    @property
    def is_initialized(self) -> bool:
        """True."""
        return True


class TokensDataset(tokens.TokensDataset):
    """Samples of tokens, each an array: a `loaderx.tokens.TokensDataset` whose slices and batches are lists."""

    @classmethod
    def create_from_index_on_filesystem(
        cls,
        base_path: str | os.PathLike[str],
        index_data_folder: str = "index",
        name: str | None = None,
        *,
        token_dtype: npt.DTypeLike | None = None,
        **options: Any,
    ) -> Self:
        """Open an index of tokens that `create_tokenize_and_index_jsonl_text_func` made, or data-forager.

        Parameters
        ----------
        base_path : str or os.PathLike
            The folder that the index's folder is in.
        index_data_folder : str
        name : str, optional
            Not used.
        token_dtype : dtype_like
            Of the tokens; the index does not say so.
        **options
            Of `loaderx.tokens.TokensDataset`.

        Raises
        ------
        NotAStoreError, SchemaError, CorruptRecordError, StoreIOError, OptionError
        """
        return cls(base_path, token_dtype=token_dtype, index_folder=index_data_folder, **options)

    def __getitem__(self, idx: Any) -> Any:
        """Return one sample; of a slice, or of several indices, a list of them."""
        if isinstance(idx, int | np.integer):
            return self._sample(super().__getitem__(idx))
        return self._samples(super().__getitem__(idx))

    def __getitems__(self, idxs: Any) -> list[Any]:
        """Return a list of samples."""
        return self._samples(super().__getitems__(idxs))

    def initialize(self) -> None:
        """Do nothing: files are opened when they are first read, also in a process that was forked or started anew."""

    @property
    def is_initialized(self) -> bool:
        """True."""
        return True

    def _sample(self, found: Any) -> Any:
        """Return what a sample is here."""
        return found["tokens"] if isinstance(found, dict) else found

    def _samples(self, found: Any) -> list[Any]:
        """Return the samples of a batch, apart."""
        if isinstance(found, dict):
            names = list(found)
            apart = [_apart(found[name]) for name in names]
            return [
                self._sample(dict(zip(names, arrays, strict=True))) for arrays in zip(*apart, strict=True)
            ]
        return [self._sample(sample) for sample in _apart(found)]


class TokensWithAuxDataset(TokensDataset):
    """Samples of tokens with other arrays beside them, each a dict of arrays."""

    def __init__(self, path: str | os.PathLike[str], **options: Any) -> None:
        super().__init__(path, **options)
        if len(self.names) == 1:
            self.close()
            raise OptionError(
                f"{self.path}: there are tokens and nothing beside them: open it with TokensDataset",
                option="path",
                value=path,
            )

    def _sample(self, found: Any) -> Any:
        return found


def _apart(batch: Any) -> list[Any]:
    """Return the samples of a batch: of an array its rows, else the values between splits."""
    if isinstance(batch, tuple):
        values, splits = batch
        return [values[start:stop] for start, stop in itertools.pairwise(splits)]
    return list(batch)


class _Indexed(Protocol):
    def __len__(self) -> int: ...

    def __getitem__(self, idx: int, /) -> Any: ...


class SubsampledDataset:
    """Some samples of a dataset, chosen at random and without repeats.

    Parameters
    ----------
    dataset : object
        With a length and ``[i]``, and perhaps `__getitems__`.
    subsample_factor : float
        How many of the samples, over 0 and at most 1: of 10 samples and 0.25, 2.
    seed : int, optional
        The same seed chooses the same samples. (With NumPy's `default_rng`, as data-forager does.)
    random_order : bool
        Leave them in random order, in place of that of the dataset.

    Raises
    ------
    OptionError
    """

    def __init__(
        self,
        dataset: _Indexed,
        subsample_factor: float,
        seed: int | None = None,
        random_order: bool = False,
    ) -> None:
        if not 0 < subsample_factor <= 1:
            raise OptionError(
                f"subsample_factor is {subsample_factor!r}: give a share of the samples, over 0 and at most 1",
                option="subsample_factor",
                value=subsample_factor,
            )
        self._dataset = dataset
        n_all = len(dataset)
        chosen = np.random.default_rng(seed).choice(n_all, int(n_all * subsample_factor), replace=False)
        self._chosen = chosen if random_order else np.sort(chosen)

    def __len__(self) -> int:
        return len(self._chosen)

    def __getitem__(self, idx: int) -> Any:
        """Return one sample."""
        return self._dataset[int(self._chosen[idx])]

    def __getitems__(self, idxs: Sequence[int] | npt.NDArray[Any]) -> Any:
        """Return several samples, as the dataset gives them."""
        chosen = self._chosen[np.asarray(idxs, np.int64)]
        batch = getattr(self._dataset, "__getitems__", None)
        return [self._dataset[int(index)] for index in chosen] if batch is None else batch(chosen)
