"""A program that was written for data-forager, with PyTorch's DataLoader; only its imports differ.

``forager_program.py loaderx|data-forager FOLDER`` prints what it saw, as JSON.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader

if sys.argv[1] == "loaderx":
    from loaderx.jsonl.forager import (
        JsonlDataset,
        TokensDataset,
        create_default_jsonl_indexer,
        create_tokenize_and_index_jsonl_text_func,
    )
else:
    from data_forager.datasets.jsonl import JsonlDataset
    from data_forager.datasets.tokens import TokensDataset
    from data_forager.indexers.jsonl_indexer import create_default_jsonl_indexer
    from data_forager.indexers.tokenization_indexer import create_tokenize_and_index_jsonl_text_func


class WordTokenizer:
    """A tokenizer that numbers words, in place of one that would have to be fetched."""

    eos_token_id = 0

    def __init__(self) -> None:
        self._ids: dict[str, int] = {}

    def encode(self, text: str) -> list[int]:
        """Return the numbers of a text's words."""
        return [self._ids.setdefault(word, len(self._ids) + 1) for word in text.split()]


def read_objects(folder: str) -> dict[str, Any]:
    """Index JSONL files once, then read them at random."""
    indexer = create_default_jsonl_indexer(folder)
    indexer()

    dataset = JsonlDataset.create_from_index_on_filesystem(folder)
    dataset.initialize()
    seen: dict[str, Any] = {"length": len(dataset), "first": dataset[0], "slice": dataset[1:6:2]}

    torch.manual_seed(1)
    loader = DataLoader(dataset, batch_size=32, shuffle=True)
    seen["batches"] = [batch["text"] for batch in loader]

    torch.manual_seed(2)
    # Forked workers of data-forager share the position in a file that was opened before, and read each other's lines.
    num_workers = 2 if sys.argv[1] == "loaderx" else 0
    loader = DataLoader(dataset, batch_size=32, shuffle=True, collate_fn=list, num_workers=num_workers)
    seen["lists"] = [[sample["text"] for sample in batch] for batch in loader]
    return seen


def read_tokens(folder: str) -> dict[str, Any]:
    """Make samples of tokens once, then read them as inputs and labels."""
    tokenizer = WordTokenizer()
    indexer = create_tokenize_and_index_jsonl_text_func(
        input_base_path=folder,
        tokenizer_func=tokenizer.encode,
        eos_idx=tokenizer.eos_token_id,
        sample_size=64,
    )
    indexer()

    dataset = TokensDataset.create_from_index_on_filesystem(folder, token_dtype=np.uint16)
    seen: dict[str, Any] = {"length": len(dataset), "dtype": str(dataset[0].dtype)}
    torch.manual_seed(3)
    loader = DataLoader(dataset, batch_size=8, shuffle=True)
    seen["inputs"], seen["labels"] = [], []
    for batch in loader:
        inputs = batch[:, :-1]
        labels = batch[:, 1:]
        seen["inputs"].append(inputs.tolist())
        seen["labels"].append(labels.tolist())
    return seen


if __name__ == "__main__":
    base = Path(sys.argv[2])
    print(
        json.dumps({"objects": read_objects(str(base / "data")), "tokens": read_tokens(str(base / "corpus"))})
    )
