"""Side streams: what belongs to each token beside its id."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from loaderx.errors import OptionError
from loaderx.tokens.packing import Flat

TOKENS: Final = "tokens"
DOCUMENT_IDS: Final = "document_ids"
POSITIONS: Final = "positions"
LOSS_MASK: Final = "loss_mask"

#: The side streams there are, in the order of their stores, and what they are stored as.
SIDE_DTYPES: Final[Mapping[str, np.dtype[Any]]] = MappingProxyType(
    {
        DOCUMENT_IDS: np.dtype(np.int64),
        POSITIONS: np.dtype(np.int32),
        LOSS_MASK: np.dtype(np.uint8),
    }
)
#: What stands where a sample is padded: no document, and no loss.
SIDE_PADS: Final[Mapping[str, int]] = MappingProxyType({DOCUMENT_IDS: -1, POSITIONS: 0, LOSS_MASK: 1})


def make_sides(
    names: tuple[str, ...],
    numbers: npt.NDArray[np.int64],
    lengths: npt.NDArray[np.int64],
    mask_values: npt.NDArray[np.uint8] | None,
    mask_lengths: npt.NDArray[np.int64] | None,
) -> Flat:
    """Return the side streams of some documents.

    Parameters
    ----------
    names : tuple of str
        Of `SIDE_DTYPES`.
    numbers : ndarray of int64, shape (documents,)
        Number of each document in the source.
    lengths : ndarray of int64, shape (documents,)
        Tokens of each, its EOS included.
    mask_values, mask_lengths : ndarray, shape (stretches,), optional
        The loss mask as stretches of one value each; needed for "loss_mask".

    Raises
    ------
    OptionError
        A document has more tokens than "positions" can count.
    """
    made: Flat = {}
    for name in names:
        dtype = SIDE_DTYPES[name]
        if name == DOCUMENT_IDS:
            made[name] = np.repeat(numbers.astype(dtype), lengths)
        elif name == POSITIONS:
            if int(lengths.max(initial=0)) > np.iinfo(dtype).max:
                raise OptionError(
                    f"a document has {lengths.max()} tokens, and side stream {POSITIONS!r} counts to "
                    f"{np.iinfo(dtype).max}: leave it out, or split the document",
                    option="side_streams",
                    value=names,
                )
            starts = np.cumsum(lengths) - lengths
            counts = np.arange(int(lengths.sum()), dtype=np.int64) - np.repeat(starts, lengths)
            made[name] = counts.astype(dtype)
        else:
            assert mask_values is not None and mask_lengths is not None, "they come with the loss mask"
            made[name] = np.repeat(mask_values.astype(dtype), mask_lengths)
    return made
