"""Mixtures, steps and shuffles beside Hugging Face's datasets, which runs in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from loaderx.stream import Stream
from loaderx.stream.interleave import STOPPING
from tests.peers import find_peer

pytestmark = pytest.mark.needs_peer("datasets")

DRIVER = Path(__file__).with_name("hf_driver.py")
SIZES = [[4], [5, 5], [3, 8], [12, 2, 7], [40, 60, 20, 1]]


def ask(cases: list[dict[str, Any]], folder: Path) -> list[Any]:
    """Return what Hugging Face's package gives for each case."""
    peer = find_peer("datasets")
    assert peer is not None
    environment = {**os.environ, "PYTHONPATH": str(peer), "HF_HOME": str(folder), "HF_HUB_OFFLINE": "1"}
    run = subprocess.run(
        [sys.executable, "-P", str(DRIVER)],
        input=json.dumps(cases),
        capture_output=True,
        text=True,
        env=environment,
        timeout=300,
    )
    assert run.returncode == 0, run.stderr
    answers: list[Any] = json.loads(run.stdout.splitlines()[-1])
    return answers


def inputs(sizes: list[int]) -> list[list[int]]:
    return [list(range(1000 * i, 1000 * i + size)) for i, size in enumerate(sizes)]


def inputs_of(case: dict[str, Any]) -> list[list[int]]:
    found: list[list[int]] = case["inputs"]
    return found


def weights(n: int) -> list[list[float] | None]:
    uneven = [1.0 / 2**i for i in range(n)]
    return [None, [1 / n] * n, [each / sum(uneven) for each in uneven]]


def test_mixtures_are_those_of_hugging_face(tmp_path: Path) -> None:
    """The same items in the same order, and so the same counts and ends: every way to stop, drawn and in turns."""
    cases = [
        {"do": "mixture", "inputs": inputs(sizes), "probabilities": probabilities, "seed": seed, "stopping": stopping}
        for sizes in SIZES
        for probabilities, seed, stopping in product(weights(len(sizes)), (0, 42), STOPPING)
    ]  # fmt: skip
    differing = []
    for case, theirs in zip(cases, ask(cases, tmp_path), strict=True):
        streams = [Stream.from_shards([items]) for items in inputs_of(case)]
        mixed = Stream.interleave(
            streams, case["probabilities"], seed=case["seed"], stopping=case["stopping"]
        )
        if list(mixed) != theirs:
            differing.append((case, theirs, list(mixed)))
    assert differing == []


def test_long_mixtures_draw_as_often(tmp_path: Path) -> None:
    sizes = [3000, 3000, 3000]
    case = {
        "do": "mixture",
        "inputs": [list(range(10_000 * i, 10_000 * i + size)) for i, size in enumerate(sizes)],
        "probabilities": [0.6, 0.3, 0.1],
        "seed": 5,
        "stopping": "first_exhausted",
    }
    theirs = ask([case], tmp_path)[0]
    streams = [Stream.from_shards([items]) for items in inputs_of(case)]
    mixed = Stream.interleave(streams, [0.6, 0.3, 0.1], seed=5)
    assert Counter(x // 10_000 for x in mixed) == Counter(x // 10_000 for x in theirs)
    # Another epoch has other draws, of the same shares.
    mixed.set_epoch(1)
    ours = list(mixed)
    assert ours != theirs
    shares = np.bincount([x // 10_000 for x in ours]) / len(ours)
    assert abs(shares - [0.6, 0.3, 0.1]).max() < 4 * (0.25 / len(ours)) ** 0.5


def test_steps_give_what_those_of_hugging_face_give(tmp_path: Path) -> None:
    stream = Stream.from_shards([list(range(10)), list(range(10, 20)), list(range(20, 30))])
    steps = stream.map(lambda x: {"x": x}).skip(3).filter(lambda row: row["x"] % 3 != 1)
    # A function returns the whole item: {**row, ...} where Hugging Face's adds to it.
    steps = steps.map(lambda row: {**row, "y": 2 * row["x"]}).rename({"y": "z"}).drop("x").take(14).batch(4)
    assert list(steps) == ask([{"do": "steps", "n": 30, "take": 14}], tmp_path)[0]


def test_a_shuffle_moves_items_further_than_that_of_hugging_face(tmp_path: Path) -> None:
    """Theirs gives half of its buffer at a time; here each item that is given is drawn from all of it."""
    n, size = 20_000, 200
    theirs = ask([{"do": "shuffled", "n": n, "seed": 3, "buffer_size": size}], tmp_path)[0]
    ours = list(Stream.from_shards([range(n)]).shuffle(size, seed=3))
    assert sorted(ours) == sorted(theirs) == list(range(n))
    moved = [float(np.abs(np.arange(n) - np.array(order)).mean()) for order in (ours, theirs)]
    assert moved[0] > 1.25 * moved[1]
