"""Reads lines of JSON in PyTorch's workers, after this process has read with a team of threads.

``python -m tests.frameworks.torch_lines_program DIR fork|spawn``: the key "n" of each line is its index, and every
tenth line is cut off. Prints which kinds of loaders gave what they have to.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import DataLoader

from loaderx import JsonlError
from loaderx.jsonl import JsonlDataset


def placeholder(error: JsonlError) -> dict[str, Any]:
    """Put something in the place of a line that does not parse."""
    return {"n": -error.index, "text": ""}


def main(folder: Path, start_method: str) -> None:
    """Read in workers, and print what came."""
    skipping = JsonlDataset(folder, on_error="skip", threads=2)
    kept = JsonlDataset(folder, on_error=placeholder, threads=2)
    n = len(kept)
    # The parent reads first: a team's work where there is more than one core.
    whole = [sample["n"] for sample in kept[:]]
    assert whole == [-i if i % 10 == 0 else i for i in range(n)]
    generator = torch.Generator().manual_seed(0)
    order = torch.randperm(n, generator=generator).tolist()
    options: dict[str, Any] = {"batch_size": 64, "num_workers": 2, "multiprocessing_context": start_method}
    lists = DataLoader(skipping, sampler=order, collate_fn=list, **options)
    seen = {"lists": [[sample["n"] for sample in batch] for batch in lists] == parts(order, skip=True)}
    placed = DataLoader(kept, sampler=order, collate_fn=list, **options)
    seen["placed"] = [[sample["n"] for sample in batch] for batch in placed] == parts(order, skip=False)
    if start_method == "fork":  # spawned workers take seconds
        seen |= more(skipping, kept, order, options)
    print(json.dumps(seen))


def more(
    skipping: JsonlDataset, kept: JsonlDataset, order: list[int], options: dict[str, Any]
) -> dict[str, bool]:
    """Read in more ways."""
    seen = {}
    collated = DataLoader(skipping, sampler=order, **options)
    seen["collated"] = [batch["n"].tolist() for batch in collated] == parts(order, skip=True)
    singles = DataLoader(kept, sampler=order, **{**options, "batch_size": None})
    seen["singles"] = [sample["n"] for sample in singles] == [
        i for part in parts(order, skip=False) for i in part
    ]
    shuffled = DataLoader(kept, shuffle=True, collate_fn=list, **options)
    seen["shuffled"] = sorted(abs(sample["n"]) for batch in shuffled for sample in batch) == sorted(order)
    return seen


def parts(order: list[int], *, skip: bool) -> list[list[int]]:
    """Return the numbers of each batch of 64."""
    batches = [order[at : at + 64] for at in range(0, len(order), 64)]
    return [[-i if i % 10 == 0 else i for i in batch if i % 10 or not skip] for batch in batches]


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
