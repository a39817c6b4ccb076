"""Ids that a vocabulary has not: each would end in a model that has no row for it."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from loaderx.tokens.batches import Batch
from loaderx.tokens.encoders import EncodeError


def check_vocabulary(
    batch: Batch, ids: npt.NDArray[Any], lengths: npt.NDArray[np.int64], vocab_size: int | None
) -> None:
    """Raise where an id of a batch is none of the vocabulary's.

    Parameters
    ----------
    batch : Batch
    ids : ndarray, shape (n,)
        Not negative.
    lengths : ndarray of int64, shape (texts,)
        Ids of each text.
    vocab_size : int or None
        One more than the largest id; None: it is not known.

    Raises
    ------
    EncodeError
        For the first text at fault, with the batch.
    """
    if vocab_size is None or not len(ids) or int(ids.max()) < vocab_size:
        return
    at = int(np.flatnonzero(ids >= vocab_size)[0])
    ends = np.cumsum(lengths)
    text = int(np.searchsorted(ends, at, "right"))
    position = at - int(ends[text] - lengths[text])
    error = EncodeError(
        text,
        f"id {ids[at]} (token {position}) is beyond the vocabulary, whose ids are 0 to {vocab_size - 1}: give the size "
        "of the one that encode is of as vocab_size",
    )
    error.batch = batch
    raise error
