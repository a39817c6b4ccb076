"""One of two ranks: ``python -m tests.frameworks.gloo_program STORE RANK PORT`` prints the batches it had."""

from __future__ import annotations

import json
import sys

import torch.distributed as dist

from loaderx import DataLoader, Dataset
from loaderx.loader import rank_and_world
from loaderx.torch import prefetch_to_device


def main(path: str, rank: int, port: int) -> None:
    """Read 12 batches of each mode beside the other rank, and print them."""
    assert rank_and_world() == (0, 1)
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=2)
    told = rank_and_world()
    batches, states = {}, {}
    with Dataset(path) as ds:
        for mode in ("sequential", "iid", "cyclic"):
            with DataLoader({"x": ds}, 2, 8, mode=mode, rank=told[0], world_size=told[1]) as loader:
                ahead = prefetch_to_device(loader, "cpu")
                batches[mode] = []
                for step in range(12):
                    if step == 6:
                        states[mode] = ahead.state_dict()
                    batches[mode].append(next(ahead)["x"][:, 0].tolist())
                    dist.barrier()
    dist.barrier()  # or a rank that is done first sometimes aborts the other
    dist.destroy_process_group()
    print(json.dumps({"rank": told, "batches": batches, "states": states}))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
