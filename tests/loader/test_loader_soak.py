"""A loader used for long in every way at once: each batch is compared, and nothing is left in the end."""

from __future__ import annotations

import gc
import json
import os
import random
import threading
from collections import deque
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from loaderx import DataLoader, Dataset, RaggedDataset, Sampler, write_dataset, write_ragged
from tests.resume import same

pytestmark = pytest.mark.slow

N = 1009
BATCH = 16


class SometimesError(Exception):
    """What the transform raises at some steps."""


def sometimes(batch: dict[str, Any]) -> dict[str, Any]:
    """Return the batch, or raise where it begins with a certain number."""
    if batch["row"][0] % 17 == 3:
        raise SometimesError(int(batch["row"][0]))
    return batch


@pytest.fixture
def streams(tmp_path: Path) -> Any:
    """A fixed and a ragged dataset, and the row numbers."""
    write_dataset(tmp_path / "image.zr", np.arange(N * 300).reshape(N, 300))
    write_ragged(tmp_path / "text.zr", [np.arange(i % 37) + i for i in range(N)])
    with Dataset(tmp_path / "image.zr") as image, RaggedDataset(tmp_path / "text.zr") as text:
        yield {"row": np.arange(N), "image": image, "text": text}


def open_files() -> int:
    return len(os.listdir("/proc/self/fd"))


@pytest.mark.parametrize(
    ("options", "n"),
    [
        ({"num_workers": 0}, 40_000),
        ({"num_workers": 3, "prefetch_size": 2}, 40_000),
        ({"num_workers": 16, "prefetch_size": 0}, 40_000),
        ({"num_workers": 2, "worker_type": "process"}, 6_000),
    ],
)
@pytest.mark.parametrize("transform", [None, sometimes])
def test_a_long_life(streams: dict[str, Any], options: dict[str, Any], n: int, transform: Any) -> None:
    chance = random.Random(5)
    sampler = Sampler(N, BATCH, "cyclic", 9)
    held: deque[tuple[int, Any]] = deque(maxlen=20)  # batches that are looked at again, later

    def expected(step: int) -> dict[str, Any]:
        idxs = sampler.indices(step)
        return {
            "row": idxs.astype(np.int64),
            "image": streams["image"].__getitems__(idxs),
            "text": streams["text"].__getitems__(idxs),
        }

    def make() -> DataLoader:
        given = {} if transform is None else {"transform": transform}
        return DataLoader(streams, batch_size=BATCH, mode="cyclic", seed=9, **given, **options)

    threads, files = threading.active_count(), open_files()
    loader, step = make(), 0
    n_given = n_raised = 0
    for turn in range(n):
        what = chance.random()
        if what < 0.004:
            step = chance.randrange(10**9)
            loader.seek(step)
        elif what < 0.008:
            loader.load_state_dict(json.loads(json.dumps(loader.state_dict())))
        elif what < (0.0085 if options.get("worker_type") == "process" else 0.012):
            state = loader.state_dict()
            if chance.random() < 0.5:
                loader.close()
            loader = make()
            loader.load_state_dict(state)
        elif what < 0.02 and held:
            gone, batch = held[chance.randrange(len(held))]
            assert same(batch, expected(gone)), turn
        elif what < 0.021:
            gc.collect()
        assert loader.step == step
        wanted = expected(step)
        if transform is not None and wanted["row"][0] % 17 == 3:
            with pytest.raises(SometimesError, match=str(wanted["row"][0])):
                next(loader)
            n_raised += 1
        else:
            batch = next(loader)
            assert same(batch, wanted), (turn, step)
            n_given += 1
            if chance.random() < 0.1:
                held.append((step, batch))
        step += 1
    loader.close()
    assert n_given + n_raised == n
    assert (n_raised > n // 40) == (transform is not None)
    del loader, batch
    held.clear()
    gc.collect()
    assert threading.active_count() == threads
    assert open_files() <= files + 4  # multiprocessing keeps its own helpers


def test_many_threads_take_from_one_loader(streams: dict[str, Any]) -> None:
    n_threads, n_each = 8, 4_000
    sampler = Sampler(N, BATCH, "cyclic", 9)
    taken: list[list[bytes]] = [[] for _ in range(n_threads)]
    with DataLoader(streams, 3, BATCH, mode="cyclic", seed=9) as loader:

        def take(mine: list[bytes]) -> None:
            for _ in range(n_each):
                batch = next(loader)
                assert np.array_equal(batch["image"][:, 0], batch["row"] * 300)
                mine.append(batch["row"].tobytes())

        threads = [threading.Thread(target=take, args=(mine,)) for mine in taken]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert loader.step == n_threads * n_each
    every = sorted(row for mine in taken for row in mine)

    assert every == sorted(
        sampler.indices(step).astype(np.int64).tobytes() for step in range(n_threads * n_each)
    )
