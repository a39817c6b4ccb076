"""`TokensDataset` over stores: indices, pickles, threads and forks, and what is refused."""

from __future__ import annotations

import os
import pickle
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from loaderx import (
    ClosedError,
    DataLoader,
    NotAStoreError,
    OptionError,
    RecordIndexError,
    SchemaError,
    Zrecord,
    write_dataset,
    write_ragged,
)
from loaderx.tokens import TokensDataset, tokenize
from tests.store.children import in_child
from tests.tokens.kit import EOS, edit, some_texts, utf8

TEXTS = some_texts(80, seed=11)
SIDES = ("document_ids", "positions", "loss_mask")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with datasets of every kind."""
    folder = tmp_path_factory.mktemp("made")
    for name, options in {
        "plain": {"sample_size": 16},
        "sides": {"sample_size": 16, "side_streams": SIDES},
        "documents": {"sample_size": None},
        "ragged_sides": {"sample_size": None, "side_streams": SIDES},
    }.items():
        tokenize(TEXTS, folder / name, utf8, eos_id=EOS, **options)
    return folder


KEYS: list[Any] = [0, -1, np.int64(3), slice(None), slice(2, 20, 3), slice(None, None, -2), [3, 1, 3], [],
                   np.array([[1, 2], [3, 4]]), np.array([-1, 0], np.int32)]  # fmt: skip


def test_indices_are_numpys(made: Path) -> None:
    plain, sides = TokensDataset(made / "plain"), TokensDataset(made / "sides")
    whole = plain[:]
    assert len(plain) == len(sides) == len(whole) and plain.sample_size == sides.sample_size == 16
    for key in [*KEYS, np.arange(len(whole)) % 3 == 0]:
        found = plain[key]
        assert np.array_equal(found, whole[key]) and found.flags.writeable
        of_sides = sides[key]
        assert list(of_sides) == ["tokens", *SIDES]
        assert np.array_equal(of_sides["tokens"], found)
        assert all(values.shape == found.shape for values in of_sides.values())
    for dataset in plain, sides:
        with pytest.raises(RecordIndexError):
            dataset[len(whole)]
        with pytest.raises(TypeError):
            dataset[1.5]
        with pytest.raises(TypeError):
            dataset.__getitems__(3)
    assert np.array_equal(np.stack(list(plain)), whole)


def test_documents_come_packed(made: Path) -> None:
    plain, sides = TokensDataset(made / "documents"), TokensDataset(made / "ragged_sides")
    assert plain.sample_size is None and sides.sample_size is None
    values, splits = plain.__getitems__([4, 2])
    assert values.tolist() == utf8(TEXTS[4]) + utf8(TEXTS[2])
    assert splits.tolist() == np.cumsum([0, len(utf8(TEXTS[4])), len(utf8(TEXTS[2]))]).tolist()
    found = sides[[4, 2]]
    assert all(np.array_equal(splits, other) for _, other in found.values())
    assert found["document_ids"][0].tolist() == [4] * splits[1] + [2] * (splits[2] - splits[1])
    assert sides[4]["positions"].tolist() == list(range(splits[1]))


@pytest.mark.parametrize("name", ["plain", "sides"])
def test_pickles_threads_and_forks(made: Path, name: str) -> None:
    dataset = TokensDataset(made / name, io="pread", verify=True)
    again = pickle.loads(pickle.dumps(dataset))
    assert again.path == dataset.path and repr(again) == repr(dataset)

    def tokens(found: Any) -> Any:
        return (found if name == "plain" else found["tokens"]).tolist()

    whole = tokens(dataset[:])
    assert tokens(again[:]) == whole
    assert in_child(lambda: tokens(dataset[[5, 1]])) == [whole[5], whole[1]]
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda at: tokens(dataset[at % len(whole)]), range(200)))
    assert found == [whole[at % len(whole)] for at in range(200)]


@pytest.mark.parametrize("worker_kind", ["thread", "process"])
def test_it_feeds_a_loader(made: Path, worker_kind: Any) -> None:
    dataset = TokensDataset(made / "sides")
    dataset.prefetch([0, 1])
    with DataLoader(
        {"x": dataset}, batch_size=8, mode="sequential", num_workers=2, worker_type=worker_kind
    ) as loader:
        batch = next(loader)["x"]
    assert {name: values.tolist() for name, values in batch.items()} == {
        name: values.tolist() for name, values in dataset[:8].items()
    }


def test_closed_is_closed(made: Path) -> None:
    for name in "plain", "sides":
        with TokensDataset(made / name) as dataset:
            assert len(dataset) > 0
        with pytest.raises(ClosedError):
            dataset[0]


def test_any_dataset_of_tokens_opens(tmp_path: Path) -> None:
    write_dataset(tmp_path / "fixed", np.arange(12, dtype=np.uint16).reshape(3, 4))
    write_ragged(tmp_path / "ragged", [[1, 2], [3]], "int32")
    assert TokensDataset(tmp_path / "fixed")[1].tolist() == [4, 5, 6, 7]
    assert TokensDataset(tmp_path / "ragged")[1].tolist() == [3]
    with pytest.raises(SchemaError, match="uint16, not uint32"):
        TokensDataset(tmp_path / "fixed", token_dtype=np.uint32)
    for token_dtype in ",", "f4,(", "no", 3.5, float:
        with pytest.raises(OptionError, match="give an integer type"):
            TokensDataset(tmp_path / "fixed", token_dtype=token_dtype)
    write_dataset(tmp_path / "floats", np.zeros((3, 4)))
    write_dataset(tmp_path / "images", np.zeros((3, 4, 4), np.uint8))
    write_dataset(tmp_path / "scalars", np.zeros(3, np.uint8))
    for name in "floats", "images", "scalars":
        with pytest.raises(SchemaError, match="rows of integers"):
            TokensDataset(tmp_path / name)


def test_what_is_no_tokens_is_named(tmp_path: Path) -> None:
    with pytest.raises(NotAStoreError, match="there is nothing at this path"):
        TokensDataset(tmp_path / "none")
    with pytest.raises(NotAStoreError, match=r"no tokens\.json"):
        TokensDataset(tmp_path)
    with pytest.raises(ValueError, match="document 15"):
        tokenize(["a"] * 15 + [""], tmp_path / "t", utf8, eos_id=EOS, sample_size=2, window=4)
    with pytest.raises(NotAStoreError, match=r"t\.unfinished holds a run that was cut off"):
        TokensDataset(tmp_path / "t")


def edited(made: Path, tmp_path: Path, **changes: Any) -> Path:
    path = Path(shutil.copytree(made / "sides", tmp_path / f"copy{len(os.listdir(tmp_path))}"))
    edit(path / "tokens.json", **changes)
    return path


def test_a_forged_manifest_leads_nowhere(made: Path, tmp_path: Path) -> None:
    for changes, words in (
        ({"format": "other"}, "no loaderx-tokens"),
        ({"version": 2}, "version is 2"),
        ({"arrays": ["tokens"]}, "arrays is"),
        ({"arrays": {"positions": "positions.zr"}}, "arrays is"),
        ({"arrays": {"tokens": 5}}, "arrays is"),
        ({"arrays": {"tokens": "../plain"}}, "outside"),
        ({"arrays": {"tokens": str(made / "plain")}}, "outside"),
    ):
        with pytest.raises(SchemaError, match=words):
            TokensDataset(edited(made, tmp_path, **changes))
    path = edited(made, tmp_path)
    (path / "tokens.json").write_text("{")
    with pytest.raises(SchemaError, match="not JSON"):
        TokensDataset(path)
    path = edited(made, tmp_path)
    text = (path / "tokens.json").read_text()
    (path / "tokens.json").write_text(
        text.replace('"positions": "positions.zr"', '"positions": "loss_mask.zr"')
    )
    with pytest.raises(SchemaError, match="damaged or was edited"):
        TokensDataset(path)
    path = edited(made, tmp_path)
    with Zrecord(path / "positions.zr") as store:
        store.delete([0])
    with pytest.raises(SchemaError, match="differ in length"):
        TokensDataset(path)
    shutil.rmtree(path / "positions.zr")
    with pytest.raises(NotAStoreError, match="positions"):
        TokensDataset(path)
