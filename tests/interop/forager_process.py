"""What is asked of data-forager, in a process that has it and not loaderx: ``forager_process.py REQUEST ANSWER``."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
from data_forager.datasets.common import Dataset, SubsampledDataset
from data_forager.datasets.jsonl import JsonlDataset
from data_forager.datasets.tokens import TokensDataset
from data_forager.datasets.tokens_with_aux import TokensWithAuxDataset
from data_forager.index_stores.fs_based import IndexStore
from data_forager.indexers.jsonl_indexer import create_default_jsonl_indexer
from data_forager.indexers.text_lines import FileTextLinesIndexer
from data_forager.indexers.tokenization_indexer import (
    create_tokenize_and_index_jsonl_text_func,
    create_tokenize_and_index_with_aux_func,
)
from data_forager.sample_generators.aux import LossMaskGenerator, Part


class LinesDataset(Dataset):
    """Samples as the bytes that they are."""

    def _process_sample(self, sample_bytes: bytes) -> bytes:
        return sample_bytes


def tokenizer(text: str) -> list[int]:
    """Give each byte of a text an id: the same as that of the tests."""
    return [byte + 300 for byte in text.encode()]


def parts(line: bytes) -> list[Part]:
    """Read a document in parts."""
    return [Part(type=part["type"], text=part["text"]) for part in json.loads(line)["parts"]]


class Positions:
    """The place of each token in its part, for an array that is no mask."""

    dtype = np.dtype(np.int32)

    def generate(self, part_type: str, num_tokens: int, *, part_tokens: Any = None) -> list[int]:
        """Count, from the length of the type's name on."""
        assert len(part_tokens) == num_tokens
        return [len(part_type) + position for position in range(num_tokens)]

    def generate_for_eos(self) -> int:
        """Return what no token has."""
        return -1


def index_jsonl(base: str) -> None:
    create_default_jsonl_indexer(base)()


def index_text(base: str, paths: list[str]) -> None:
    FileTextLinesIndexer(input_file_paths=paths, index_store=IndexStore(base))()


def read_jsonl(base: str, folder: str = "index") -> list[Any]:
    dataset = JsonlDataset.create_from_index_on_filesystem(base, index_data_folder=folder)
    dataset.initialize()
    return [dataset[index] for index in range(len(dataset))]


def read_lines(base: str, folder: str = "index") -> list[str]:
    dataset = LinesDataset.create_from_index_on_filesystem(base, index_data_folder=folder)
    return [dataset[index].hex() for index in range(len(dataset))]


def tokenize(eos: int, dtype: str = "uint16", **options: Any) -> None:
    create_tokenize_and_index_jsonl_text_func(tokenizer, eos, token_dtype=np.dtype(dtype), **options)()


def tokenize_text(eos: int, **options: Any) -> None:
    create_tokenize_and_index_jsonl_text_func(
        tokenizer, eos, process_text_line_func=bytes.decode, **options
    )()


def tokenize_parts(eos: int, **options: Any) -> None:
    generators = {"loss_mask": LossMaskGenerator(), "a_position": Positions()}
    create_tokenize_and_index_with_aux_func(parts, tokenizer, eos, generators, **options)()


def read_tokens(base: str, dtype: str) -> list[list[int]]:
    dataset = TokensDataset.create_from_index_on_filesystem(base, token_dtype=np.dtype(dtype))
    return [dataset[index].tolist() for index in range(len(dataset))]


def read_aux(base: str) -> list[dict[str, Any]]:
    dataset = TokensWithAuxDataset.create_from_index_on_filesystem(base)
    samples = [dataset[index] for index in range(len(dataset))]
    return [
        {name: [str(array.dtype), array.tolist()] for name, array in sample.items()} for sample in samples
    ]


def subsample(length: int, **options: Any) -> list[int]:
    dataset = SubsampledDataset(range(length), **options)
    return [dataset[index] for index in range(len(dataset))]


if __name__ == "__main__":
    request = json.loads(Path(sys.argv[1]).read_text())
    answer = globals()[request["call"]](**request["arguments"])
    Path(sys.argv[2]).write_text(json.dumps(answer))
