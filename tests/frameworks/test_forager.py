"""Programs written for data-forager run with loaderx's names, and see the same samples in the same order."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.peers import find_peer

ROOT = Path(__file__).resolve().parents[2]
WORDS = [
    "which",
    "words",
    "there",
    "are",
    "does",
    "not",
    "matter",
    "much",
    "here",
    "as",
    "long",
    "as",
    "they",
    "come",
]


def make_corpus(folder: Path) -> list[str]:
    """Write some files of JSONL and return their texts, in order."""
    texts = [" ".join(WORDS[(n * k + k) % len(WORDS)] for k in range(5 + n % 40)) for n in range(200)]
    folder.mkdir(parents=True)
    for number, name in enumerate(("part1.jsonl", "part2.jsonl", "part10.jsonl")):
        lines = [json.dumps({"text": text, "source": name}) for text in texts[number::3]]
        (folder / name).write_text("\n".join(lines) + "\n")
    return [text for number in range(3) for text in texts[number::3]]


def run(which: str, folder: Path, path: str) -> dict[str, Any]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("LOADERX_")}
    process = subprocess.run(
        [sys.executable, str(ROOT / "tests" / "frameworks" / "forager_program.py"), which, str(folder)],
        env=kept | {"PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert process.returncode == 0, process.stderr
    seen: dict[str, Any] = json.loads(process.stdout.splitlines()[-1])
    return seen


@pytest.mark.needs_torch
def test_the_two_examples(tmp_path: Path) -> None:
    texts = make_corpus(tmp_path / "data")
    make_corpus(tmp_path / "corpus")
    seen = run("loaderx", tmp_path, str(ROOT))
    objects, tokens = seen["objects"], seen["tokens"]
    assert objects["length"] == len(texts)
    assert objects["first"] == {"text": texts[0], "source": "part1.jsonl"}
    assert [sample["text"] for sample in objects["slice"]] == texts[1:6:2]
    for epoch in (objects["batches"], objects["lists"]):
        assert [len(batch) for batch in epoch] == [32] * 6 + [8]
        assert sorted(text for batch in epoch for text in batch) == sorted(texts)
        assert [text for batch in epoch for text in batch] != texts
    n_words = sum(len(text.split()) + 1 for text in texts)
    assert tokens["length"] == n_words // 64
    assert tokens["dtype"] == "uint16"
    assert {len(row) for batch in tokens["inputs"] for row in batch} == {63}
    for inputs, labels in zip(tokens["inputs"], tokens["labels"], strict=True):
        assert [row[1:] for row in inputs] == [row[:-1] for row in labels]


@pytest.mark.needs_torch
@pytest.mark.needs_peer("data-forager")
def test_the_same_program_sees_the_same(tmp_path: Path) -> None:
    peer = find_peer("data-forager")
    assert peer is not None
    for which in ("loaderx", "data-forager"):
        for name in ("data", "corpus"):
            make_corpus(tmp_path / which / name)
    ours = run("loaderx", tmp_path / "loaderx", str(ROOT))
    theirs = run("data-forager", tmp_path / "data-forager", str(peer))
    assert ours == theirs
    assert len(ours["tokens"]["inputs"]) == 10
