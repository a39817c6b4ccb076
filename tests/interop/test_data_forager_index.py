"""Indices of text files go both ways between loaderx and data-forager 0.2.0, which runs in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from loaderx.errors import OptionError
from loaderx.jsonl import Index, build_index
from tests.jsonl.samples import samples_of, write
from tests.peers import find_peer

pytestmark = pytest.mark.needs_peer("data-forager")

TEXTS = {
    "2.jsonl": b'{"text": "two"}\n{"n": [1, 2.5, null]}\n',
    "10.jsonl": b'{"text": "ten"}\r\n{"last": true}',
    "deep/er/a b.jsonl": '{"text": "gr\u00fc\u00dfe \u2028 \u65e5\u672c"}\n'.encode(),
    "empty.jsonl": b"",
}


def run_peer(code: str, *arguments: Path | str) -> Any:
    """Run a program with data-forager in its path; return what it prints, in JSON, on its last line."""
    folder = find_peer("data-forager")
    assert folder is not None
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "LOADERX_"))
    }
    environment |= {"PYTHONPATH": str(folder), "PYTHONUTF8": "1"}
    command = [sys.executable, "-S", "-c", code, *map(str, arguments)]
    run = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
    assert run.returncode == 0, run.stderr
    return json.loads(run.stdout.splitlines()[-1])


READ = """
import json, sys
from data_forager.datasets.jsonl import JsonlDataset
dataset = JsonlDataset.create_from_index_on_filesystem(sys.argv[1], *sys.argv[2:])
dataset.initialize()
print(json.dumps([dataset[i] for i in range(len(dataset))]))
"""

INDEX = """
import json, sys
from data_forager.indexers.jsonl_indexer import create_default_jsonl_indexer
create_default_jsonl_indexer(sys.argv[1])()
print()
print(json.dumps("done"))
"""


def parsed(index: Index) -> list[Any]:
    return [json.loads(sample) for sample in samples_of(index)]


def test_an_index_made_here_opens_there(tmp_path: Path) -> None:
    index = build_index(write(tmp_path, TEXTS))
    assert index.names == ["2.jsonl", "10.jsonl", "deep/er/a b.jsonl", "empty.jsonl"]
    assert run_peer(READ, tmp_path) == parsed(index)


def test_an_index_of_a_single_file_opens_there(tmp_path: Path) -> None:
    index = build_index(write(tmp_path, TEXTS) / "10.jsonl")
    assert run_peer(READ, tmp_path, "10.jsonl.index") == parsed(index)


def test_an_index_made_there_opens_here(tmp_path: Path) -> None:
    assert run_peer(INDEX, write(tmp_path, TEXTS)) == "done"
    index = Index.open(tmp_path)
    assert index.facts is None
    assert parsed(index) == run_peer(READ, tmp_path)
    made_there = index.locations.tolist(), index.names
    ours = build_index(tmp_path)  # it is of these files, so it may be replaced
    lines_there = sorted((made_there[1][file], at, size) for file, at, size in made_there[0])
    assert lines_there == sorted((ours.names[file], at, size) for file, at, size in ours.locations.tolist())


def test_an_index_of_tokens_is_not_replaced(tmp_path: Path) -> None:
    code = """
import json, sys
import numpy as np
from data_forager.indexers.tokenization_indexer import create_tokenize_and_index_jsonl_text_func
create_tokenize_and_index_jsonl_text_func(
    input_base_path=sys.argv[1], tokenizer_func=lambda text: [ord(c) for c in text], eos_idx=0, sample_size=4,
    token_dtype=np.uint16,
)()
print()
print(json.dumps("done"))
"""
    write(tmp_path, {"a.jsonl": b'{"text": "some words"}\n' * 3})
    assert run_peer(code, tmp_path) == "done"
    before = Index.open(tmp_path)
    assert {size for _, _, size in before.locations.tolist()} == {8}
    with pytest.raises(OptionError, match="another program's index of other files") as caught:
        build_index(tmp_path)
    assert caught.value.option == "index_folder"
    assert Index.open(tmp_path).locations.tolist() == before.locations.tolist()
    assert len(build_index(tmp_path, index_folder="text")) == 3
