"""Reads datasets in PyTorch's workers, after this process has read with a team of threads.

``python -m tests.frameworks.torch_workers_program DIR fork|spawn`` compares every batch, and prints how many samples
of each kind were right.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader

from loaderx import Dataset, RaggedDataset
from loaderx.torch import as_map_dataset, collate


def main(folder: Path, start_method: str) -> None:
    """Read in workers, and print what was right."""
    images, labels, tokens = (
        Dataset(folder / "images.zr"),
        Dataset(folder / "labels.zr"),
        RaggedDataset(folder / "tokens.zr"),
    )
    both = as_map_dataset({"image": images, "label": labels})
    # The parent reads first: 8 MiB, a team's work where there is more than one core.
    all_images, all_labels = torch.from_numpy(images[:]), torch.from_numpy(labels[:].astype(np.int32))
    both.__getitems__(list(range(512)))
    options: dict[str, Any] = {"batch_size": 64, "num_workers": 2, "multiprocessing_context": start_method}
    order = torch.randperm(512).tolist()

    def check(batches: Any, right: Any) -> int:
        n_right = 0
        for number, batch in enumerate(batches):
            part = order[64 * number : 64 * number + 64]
            n_right += len(part) if right(batch, part) else 0
        return n_right

    def is_right(batch: Any, part: list[int]) -> bool:
        return bool(
            torch.equal(batch["image"], all_images[part])
            and torch.equal(batch["label"], all_labels[part])
            and batch["label"].dtype == torch.int32
        )

    loader = DataLoader(both, sampler=order, collate_fn=collate, persistent_workers=True, **options)
    seen = {
        "collated": check(loader, is_right),
        "ragged": check(
            DataLoader(as_map_dataset(tokens), sampler=order, collate_fn=collate, **options),
            lambda batch, part: torch.equal(
                batch[0], torch.cat([torch.arange(index % 9, dtype=torch.int32) for index in part])
            ),
        ),
        "second pass": check(loader, is_right),
    }
    if start_method == "fork":  # spawned workers take seconds
        seen["stacked"] = check(DataLoader(both, sampler=order, **options), is_right)
        seen["images"] = check(
            DataLoader(images, sampler=order, collate_fn=torch.from_numpy, **options),
            lambda batch, part: torch.equal(batch, all_images[part]),
        )
    print(json.dumps(seen))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
