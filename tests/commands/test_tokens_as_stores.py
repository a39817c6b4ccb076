"""The commands for stores, given what `tokenize` wrote: a store, or with side streams a folder of several."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from loaderx.tokens import TokensDataset, tokenize
from tests.commands.conftest import Run

STORES = ["tokens.zr", "positions.zr", "loss_mask.zr"]


def encode(text: str) -> list[int]:
    return list(text.encode())


@pytest.fixture
def made(tmp_path: Path) -> Path:
    """Return a dataset of tokens with side streams."""
    tokenize(
        ["text"] * 9, tmp_path / "t", encode, eos_id=0, sample_size=4, side_streams=["loss_mask", "positions"]
    )
    return tmp_path / "t"


@pytest.mark.parametrize("command", ["info", "verify", "compact", "pack", "unpack"])
def test_every_store_of_it_is_taken(command: str, run: Run, made: Path) -> None:
    whole = {name: values.tolist() for name, values in TokensDataset(made)[:].items()}
    code, out, err = run(command, made, "--json")
    assert (code, err) == (0, "")
    assert [json.loads(line)["path"] for line in out.splitlines()] == [str(made / name) for name in STORES]
    assert {name: values.tolist() for name, values in TokensDataset(made)[:].items()} == whole


def test_damage_in_one_of_them_is_found(run: Run, made: Path) -> None:
    path = made / "positions.zr" / "0.zr"
    data = bytearray(path.read_bytes())
    data[5] ^= 1
    path.write_bytes(data)
    code, out, err = run("verify", made, "--quiet")
    assert (code, err) == (1, "") and out.startswith(f"{made}/positions.zr\n")


def test_without_side_streams_it_is_a_store(run: Run, tmp_path: Path) -> None:
    tokenize(["text"] * 9, tmp_path / "t", encode, eos_id=0, sample_size=4)
    assert run("info", tmp_path / "t").out.startswith(f"{tmp_path}/t\n")


@pytest.mark.parametrize("text", ["{", "{}"])
def test_a_damaged_tokens_json_is_no_way_to_stores(
    text: str, fails: Callable[..., str], run: Run, made: Path
) -> None:
    (made / "tokens.json").write_text(text)
    assert fails("info", made).endswith("it holds the stores loss_mask.zr, positions.zr, tokens.zr")
    os.remove(made / "tokens.zr" / "meta.zr")
    assert "not a Zrecord store" in run("verify", made).err
