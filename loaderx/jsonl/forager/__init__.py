"""The names of data-forager 0.2.0, for programs that were written for it: only their imports change.

What is behind them is loaderx's: `build_index`, `JsonlDataset`, `TokensDataset`. Files are read and written as
data-forager has them, so an index, and files of tokens, may be made by the one and read by the other.
"""

from __future__ import annotations

from loaderx.jsonl.forager.datasets import (
    JsonlDataset,
    SubsampledDataset,
    TokensDataset,
    TokensWithAuxDataset,
)
from loaderx.jsonl.forager.indexers import (
    create_default_jsonl_indexer,
    create_tokenize_and_index_jsonl_text_func,
    create_tokenize_and_index_with_aux_func,
)
from loaderx.jsonl.forager.parts import AuxDataGenerator, LossMaskGenerator, Part

__all__ = [
    "AuxDataGenerator",
    "JsonlDataset",
    "LossMaskGenerator",
    "Part",
    "SubsampledDataset",
    "TokensDataset",
    "TokensWithAuxDataset",
    "create_default_jsonl_indexer",
    "create_tokenize_and_index_jsonl_text_func",
    "create_tokenize_and_index_with_aux_func",
]
