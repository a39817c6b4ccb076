"""Runs in a process whose path starts with the folder of Hugging Face's datasets: JSON in, what it gives out."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from typing import Any

os.environ["HF_HUB_OFFLINE"] = "1"


def rows(shards: list[list[int]]) -> Iterator[dict[str, int]]:
    for shard in shards:
        for x in shard:
            yield {"x": x}


def source(*shards: list[int]) -> Any:
    from datasets import IterableDataset

    return IterableDataset.from_generator(rows, gen_kwargs={"shards": list(shards)})


def mixture(case: dict[str, Any]) -> list[int]:
    from datasets import interleave_datasets

    mixed = interleave_datasets(
        [source(items) for items in case["inputs"]],
        probabilities=case["probabilities"],
        seed=case["seed"],
        stopping_strategy=case["stopping"],
    )
    return [row["x"] for row in mixed]


def shuffled(case: dict[str, Any]) -> list[int]:
    stream = source(list(range(case["n"])))
    return [row["x"] for row in stream.shuffle(seed=case["seed"], buffer_size=case["buffer_size"])]


def steps(case: dict[str, Any]) -> list[Any]:
    stream = source(list(range(case["n"])))
    stream = stream.skip(3).filter(lambda row: row["x"] % 3 != 1).map(lambda row: {"y": 2 * row["x"]})
    return list(stream.rename_column("y", "z").remove_columns("x").take(case["take"]).batch(4))


if __name__ == "__main__":
    functions = {"mixture": mixture, "shuffled": shuffled, "steps": steps}
    print(json.dumps([functions[case["do"]](case) for case in json.load(sys.stdin)]))
