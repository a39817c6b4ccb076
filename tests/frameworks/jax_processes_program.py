"""One of two processes: ``python -m tests.frameworks.jax_processes_program STORE RANK PORT`` prints what it had."""

from __future__ import annotations

import json
import sys
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from loaderx import DataLoader, Dataset
from loaderx.jax import prefetch_to_device
from loaderx.loader import rank_and_world


def main(path: str, rank: int, port: int) -> None:
    """Read 5 batches as global arrays beside the other process, and print this one's parts and the sums of all."""
    assert rank_and_world() == (0, 1)
    jax.distributed.initialize(f"127.0.0.1:{port}", num_processes=2, process_id=rank)
    told = rank_and_world()
    sharding = NamedSharding(Mesh(np.array(jax.devices()), ("batch",)), PartitionSpec("batch"))
    whole = NamedSharding(sharding.mesh, PartitionSpec())
    add_up = jax.jit(lambda x: x.sum(), out_shardings=whole)
    seen: dict[str, Any] = {"rank": told, "shapes": [], "parts": [], "sums": []}
    with (
        Dataset(path) as ds,
        DataLoader({"x": ds}, 2, 8, mode="cyclic", rank=told[0], world_size=told[1]) as loader,
    ):
        batches = prefetch_to_device(loader, 2, sharding)
        for _ in range(5):
            array = next(batches)["x"]
            seen["shapes"].append(array.shape)
            shards = sorted(array.addressable_shards, key=lambda shard: shard.index[0].start)
            seen["parts"].append(np.concatenate([shard.data for shard in shards])[:, 0].tolist())
            seen["sums"].append(float(add_up(array)))
    jax.distributed.shutdown()
    print(json.dumps(seen))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
