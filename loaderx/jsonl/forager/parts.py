"""Documents in parts of several types, and arrays beside their tokens."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np


@dataclass
class Part:
    """A part of a document.

    Attributes
    ----------
    type : str
        Such as "system", "prompt", "response" or "text".
    text : str
    """

    type: str
    text: str


class AuxDataGenerator(Protocol):
    """Gives a value for each token, by the type of the part that it is in."""

    @property
    def dtype(self) -> np.dtype[Any]:
        """Of the values."""

    def generate(
        self, part_type: str, num_tokens: int, *, part_tokens: list[int] | None = None
    ) -> Sequence[int]:
        """Return the values of a part's tokens, as many as there are.

        Parameters
        ----------
        part_type : str
        num_tokens : int
        part_tokens : list of int, optional
            The tokens.
        """

    def generate_for_eos(self) -> int:
        """Return the value of an EOS behind a document."""


class LossMaskGenerator:
    """A mask of the tokens that are left out of the loss: 1 for those, 0 for all others.

    Parameters
    ----------
    masked_types : collection of str, optional
        Types of parts to leave out; None: "system" and "prompt".
    mask_eos : bool
        Whether to leave EOS out, too.
    """

    def __init__(self, masked_types: Collection[str] | None = None, mask_eos: bool = False) -> None:
        self._masked_types = frozenset(("system", "prompt") if masked_types is None else masked_types)
        self._mask_eos = mask_eos

    @property
    def dtype(self) -> np.dtype[Any]:
        """uint8."""
        return np.dtype(np.uint8)

    def generate(self, part_type: str, num_tokens: int, *, part_tokens: list[int] | None = None) -> list[int]:
        """Return a part's values (`AuxDataGenerator`)."""
        return [int(part_type in self._masked_types)] * num_tokens

    def generate_for_eos(self) -> int:
        """Return the value of an EOS."""
        return int(self._mask_eos)
