"""Beside the real data-forager 0.2.0: the same samples of the same text, and its token indices read here."""

from __future__ import annotations

import json
import os
import pickle
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from loaderx import (
    CorruptRecordError,
    DataLoader,
    OptionError,
    RecordIndexError,
    SchemaError,
    StaleIndexError,
)
from loaderx.tokens import TokensDataset, tokenize
from tests.peers import find_peer
from tests.tokens.kit import EOS, some_parts, some_texts, utf8, write_jsonl

pytestmark = pytest.mark.needs_peer("data-forager")

TEXTS = [*some_texts(50, seed=3), "", *some_texts(9, seed=4)]
PROGRAM = Path(__file__).with_name("forager_process.py")


def ask_peer(base: Path, output: Path, **request: Any) -> list[Any]:
    """Have data-forager tokenize what is in `base`, and return the samples that it reads."""
    peer = find_peer("data-forager")
    assert peer is not None
    found = subprocess.run(
        [sys.executable, str(PROGRAM)],
        input=json.dumps(
            {"base": str(base), "output": str(output), "masked": False, "mask_eos": False, **request}
        ),
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(peer)},
        timeout=120,
    )
    assert found.returncode == 0, found.stderr
    samples: list[Any] = json.loads(found.stdout)
    return samples


def corpus(folder: Path) -> Path:
    """Write two files whose natural order is not that of their names."""
    write_jsonl(folder / "part2.jsonl", ({"text": text} for text in TEXTS[:25]))
    write_jsonl(folder / "part10.jsonl", ({"text": text} for text in TEXTS[25:]))
    return folder


@pytest.mark.parametrize("sample_size", [1, 16, 100])
def test_the_bytes_of_a_stream_are_the_peers(tmp_path: Path, sample_size: int) -> None:
    base = corpus(tmp_path / "in")
    samples = ask_peer(base, tmp_path / "peer", dtype="uint16", eos_id=EOS, sample_size=sample_size)
    result = tokenize(
        base, tmp_path / "here", utf8, eos_id=EOS, sample_size=sample_size, dtype="uint16", allow_empty=True
    )
    here = TokensDataset(tmp_path / "here")[:]
    assert here.tolist() == samples
    assert result.dropped_tokens == sum(len(text.encode()) + 1 for text in TEXTS) % sample_size
    # Its files, one behind the other, are the bytes of our records.
    names = (tmp_path / "peer" / "index" / "file_location.txt").read_text().split("\n")[:-1]
    assert b"".join((tmp_path / "peer" / name).read_bytes() for name in names) == here.tobytes()
    there = TokensDataset(tmp_path / "peer", token_dtype=np.uint16)
    assert there.sample_size == sample_size and there.dtype == np.uint16
    assert there[:].tolist() == samples


def test_documents_as_records_are_the_peers(tmp_path: Path) -> None:
    base = corpus(tmp_path / "in")
    samples = ask_peer(base, tmp_path / "peer", dtype="uint16", eos_id=EOS, sample_size=None)
    tokenize(base, tmp_path / "here", utf8, eos_id=EOS, sample_size=None, dtype="uint16", allow_empty=True)
    here = TokensDataset(tmp_path / "here")
    there = TokensDataset(tmp_path / "peer", token_dtype=np.uint16)
    assert here.sample_size is None and there.sample_size is None
    for index, sample in enumerate(samples):
        assert here[index].tolist() == there[index].tolist() == sample
    for found in zip(here[[5, 50, -1]], there[[5, 50, -1]], strict=True):
        assert found[0].tolist() == found[1].tolist()
    with pytest.raises(RecordIndexError, match="one axis"):
        there[np.array([[1, 2]])]


@pytest.mark.parametrize("mask_eos", [False, True])
def test_loss_masks_are_the_peers(tmp_path: Path, mask_eos: bool) -> None:
    write_jsonl(tmp_path / "in" / "a.jsonl", some_parts(40))
    samples = ask_peer(
        tmp_path / "in",
        tmp_path / "peer",
        dtype="uint32",
        eos_id=EOS,
        sample_size=16,
        masked=True,
        mask_eos=mask_eos,
    )
    tokenize(
        tmp_path / "in", tmp_path / "here", utf8, eos_id=EOS, sample_size=16, side_streams=["loss_mask"],
        mask_eos=mask_eos,
    )  # fmt: skip
    here, there = TokensDataset(tmp_path / "here"), TokensDataset(tmp_path / "peer")
    assert here.dtypes == there.dtypes and here.names == there.names == ("tokens", "loss_mask")
    assert len(samples) == len(here) == len(there) > 5
    for dataset in here, there:
        batch = dataset[:]
        assert batch["tokens"].tolist() == [sample["tokens"] for sample in samples]
        assert batch["loss_mask"].tolist() == [sample["loss_mask"] for sample in samples]
        assert {name: values.tolist() for name, values in dataset[3].items()} == samples[3]


@pytest.fixture(scope="module")
def indexed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Any]]:
    """Return what data-forager made, and the samples it reads."""
    folder = tmp_path_factory.mktemp("forager")
    base = corpus(folder / "in")
    return folder / "peer", ask_peer(base, folder / "peer", dtype="uint16", eos_id=EOS, sample_size=16)


def test_every_index_form(indexed: tuple[Path, list[Any]]) -> None:
    path, samples = indexed
    with TokensDataset(path, token_dtype="uint16") as dataset:
        array = np.array(samples, np.uint16)
        assert len(dataset) == len(array) and dataset.names == ("tokens",)
        keys: list[Any] = [0, -1, np.int64(3), slice(None), slice(2, 20, 3), slice(None, None, -2), [3, 1, 3], [],
                           np.arange(len(array)) % 3 == 0, np.array([[1, 2], [3, 4]]), np.array([-1, 0])]  # fmt: skip
        for key in keys:
            found = dataset[key]
            assert found.dtype == np.uint16 and np.array_equal(found, array[key])
            assert found.flags.writeable
        assert np.array_equal(dataset.__getitems__(np.array([5, 2], np.uint64)), array[[5, 2]])
        assert np.array_equal(np.stack(list(dataset)), array)
        assert np.array_equal(pickle.loads(pickle.dumps(dataset))[:], array)
        dataset.prefetch([1, 2])
        for wrong in len(array), -len(array) - 1, [0, len(array)]:
            with pytest.raises(RecordIndexError):
                dataset[wrong]
        assert repr(dataset).endswith(f"{len(array)} samples of 16 uint16 tokens>")


def test_it_feeds_a_loader(indexed: tuple[Path, list[Any]]) -> None:
    path, samples = indexed
    loader = DataLoader({"x": TokensDataset(path, token_dtype="uint16")}, batch_size=4, seed=1)
    batch = next(iter(loader))["x"]
    assert batch.shape == (4, 16)
    assert all(row in samples for row in batch.tolist())


def test_the_dtype_has_to_be_told(indexed: tuple[Path, list[Any]]) -> None:
    path, _ = indexed
    with pytest.raises(OptionError, match="give token_dtype"):
        TokensDataset(path)
    with pytest.raises(OptionError, match="integer type"):
        TokensDataset(path, token_dtype="float32")


def test_damage_is_named(indexed: tuple[Path, list[Any]], tmp_path: Path) -> None:
    source, _ = indexed

    def copy(name: str) -> Path:
        return Path(shutil.copytree(source, tmp_path / name))

    odd = copy("odd")
    rows = np.fromfile(odd / "index" / "sample_locations.bin", "<u8").reshape(-1, 3)
    rows[:, 2] = 31
    rows.tofile(odd / "index" / "sample_locations.bin")
    with pytest.raises(SchemaError, match="31 bytes"):
        TokensDataset(odd, token_dtype="uint16")
    rows[:, 2] = 32
    rows[4, 2] = 31
    rows.tofile(odd / "index" / "sample_locations.bin")
    dataset = TokensDataset(odd, token_dtype="uint16")
    assert dataset.sample_size is None
    with pytest.raises(CorruptRecordError, match="sample 4 has 31 bytes") as caught:
        dataset[3:6]
    assert caught.value.record == 4
    short = copy("short")
    name = next((short / "tokenized-samples").glob("part10*"))
    os.truncate(name, 5)
    with pytest.raises(StaleIndexError, match="part10"):
        TokensDataset(short, token_dtype="uint16")[:]
    schema = copy("schema")
    for text, words in (
        ("{", "JSONDecodeError"),
        ('{"sample_size": 16}', "KeyError"),
        ('{"sample_size": 16, "total_bytes_per_sample": 32, "arrays": []}', "no array 'tokens'"),
        ('{"sample_size": 16, "total_bytes_per_sample": 30, "arrays": '
         '[{"name": "tokens", "dtype": "uint16", "offset": 0}]}', "does not lie in"),
        ('{"sample_size": 16, "total_bytes_per_sample": 32, "arrays": '
         '[{"name": "tokens", "dtype": "O", "offset": 0}]}', "dtype 'O' is none of numbers"),
        *((f'{{"sample_size": {size}, "total_bytes_per_sample": {n}, "arrays": '
           f'[{{"name": "tokens", "dtype": "uint16", "offset": {offset}}}]}}', f"{number} is no whole number")
          for size, n, offset, number in (
            ("1e999", 32, 0, "inf"), (16, "-1e999", 0, "-inf"), (16, 32, "1e999", "inf"), (8.7, 32, 0, "8.7"),
            ("true", 32, 0, "True"), ('"16"', 32, 0, "'16'"), (16, 32, "null", "None"))),
        *(('{"sample_size": 16, "total_bytes_per_sample": 64, "arrays": [{"name": "tokens", "dtype": "uint16", '
           f'"offset": 0}}, {{"name": "a", "dtype": {dtype}, "offset": 32}}]}}', "is wrong")
          for dtype in ('","', '"f4,("', '"V0"', '"S0"', '"U0"', "[]", '"2i4"', '"M8[s]"', "5", '"i4,i4"')),
    ):  # fmt: skip
        (schema / "index" / "sample_schema.json").write_text(text)
        with pytest.raises(SchemaError, match=words):
            TokensDataset(schema)
    (schema / "index" / "sample_schema.json").write_text(
        '{"sample_size": 16, "total_bytes_per_sample": 32, "arrays": [{"name": "tokens", "dtype": "uint16", '
        '"offset": 0}]}'
    )
    assert np.array_equal(TokensDataset(schema)[:], TokensDataset(source, token_dtype="uint16")[:])
    with pytest.raises(SchemaError, match="are uint16, not uint32"):
        TokensDataset(schema, token_dtype="uint32")
