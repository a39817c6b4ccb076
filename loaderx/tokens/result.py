"""What a run did."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np


@dataclass(frozen=True, slots=True)
class TokenizeResult:
    """What `tokenize` has made.

    Attributes
    ----------
    path : pathlib.Path
        The dataset.
    documents : int
        Documents taken in.
    skipped : dict of str to int
        Documents left out, by what was wrong with them: "empty", "missing", "null", "not_text", "parts",
        "function" (`text` raised an exception), "json".
    tokens : int
        Tokens of the documents, the EOS behind each included.
    samples : int
        Records of the dataset.
    dropped_tokens : int
        Of `tokens`, those of the last sample, which was not full, where it was dropped.
    pad_tokens : int
        Tokens that fill samples up; not among `tokens`.
    dtype : numpy.dtype
        Of the tokens.
    was_complete : bool
        The dataset was there already: nothing was done.
    """

    path: Path
    documents: int
    skipped: Mapping[str, int]
    tokens: int
    samples: int
    dropped_tokens: int
    pad_tokens: int
    dtype: np.dtype[Any]
    was_complete: bool = False
