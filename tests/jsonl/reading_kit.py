"""What worker processes import: functions that read, by their names."""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from loaderx.jsonl import JsonlDataset


def numbers(batch: dict[str, Any]) -> Any:
    """Return what a transform makes of a batch of lines and labels."""
    return {"n": np.array([sample["n"] for sample in batch["text"]]), "label": batch["label"]}


def placeholder(error: Exception) -> Any:
    """Put something in the place of a sample that does not parse."""
    return {"n": -1}


def length_of_n(raw: bytes) -> int:
    """Parse a line in a way of its own."""
    return len(raw)


def read(dataset: JsonlDataset, idxs: list[int]) -> tuple[int, list[Any], Any, int]:
    """Return this process's number and what it reads."""
    return os.getpid(), dataset.__getitems__(idxs), dataset[idxs[0]], len(dataset)


class Wrapped:
    """A stream that reads another one."""

    def __init__(self, stream: JsonlDataset) -> None:
        self.stream = stream

    def __len__(self) -> int:
        return len(self.stream)

    def __getitems__(self, idxs: Any) -> list[Any]:
        return self.stream.__getitems__(idxs)
