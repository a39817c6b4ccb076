"""Token samples for training: `tokenize` packs documents into a dataset, `TokensDataset` reads it."""

from __future__ import annotations

from loaderx.tokens.dataset import TokensDataset
from loaderx.tokens.result import TokenizeResult
from loaderx.tokens.tokenizing import tokenize

__all__ = ["TokenizeResult", "TokensDataset", "tokenize"]
