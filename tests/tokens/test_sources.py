"""Sources that part with `loaderx.jsonl`: indices, their datasets, stores of lines."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from loaderx import JsonlError, StaleIndexError, StateMismatchError
from loaderx.jsonl import Index, JsonlDataset, TextLinesDataset, build_index, update_index, write_lines
from loaderx.tokens import TokensDataset, tokenize
from tests.tokens.kit import EOS, contents, samples_of, some_texts, utf8, write_jsonl

TEXTS = some_texts(50, seed=13)
OPTIONS: dict[str, Any] = {"eos_id": EOS, "sample_size": 16, "window": 20, "side_streams": ["document_ids"]}


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    """Return a folder with two files, and an index."""
    write_jsonl(tmp_path / "in" / "part2.jsonl", ({"text": text} for text in TEXTS[:20]))
    write_jsonl(tmp_path / "in" / "part10.jsonl", ({"text": text} for text in TEXTS[20:]))
    build_index(tmp_path / "in", progress=False)
    return tmp_path / "in"


def without_manifest(folder: Path) -> dict[str, tuple[int, str]]:
    found = contents(folder)
    del found["tokens.json"]
    return found


def test_every_way_to_the_lines_gives_the_same(corpus: Path, tmp_path: Path) -> None:
    write_lines([corpus / "part2.jsonl", corpus / "part10.jsonl"], tmp_path / "lines.zr")
    with JsonlDataset(corpus) as dataset:
        sources: dict[str, Any] = {
            "records": [{"text": text} for text in TEXTS],
            "path": corpus,
            "index": Index.open(corpus),
            "dataset": dataset,
            "lines": tmp_path / "lines.zr",
            "files": [corpus / "part2.jsonl", corpus / "part10.jsonl"],
        }
        for name, source in sources.items():
            tokenize(source, tmp_path / name, utf8, **OPTIONS)
    expected = without_manifest(tmp_path / "records")
    for name in sources:
        assert without_manifest(tmp_path / name) == expected, name
    (corpus / "index").rename(tmp_path / "aside")
    tokenize(corpus, tmp_path / "unindexed", utf8, **OPTIONS)
    assert without_manifest(tmp_path / "unindexed") == expected


def test_a_file_with_an_index_of_its_own(corpus: Path, tmp_path: Path) -> None:
    build_index(corpus / "part2.jsonl", progress=False)
    for name, source in {"path": corpus / "part2.jsonl", "index": Index.open(corpus / "part2.jsonl")}.items():
        assert tokenize(source, tmp_path / name, utf8, **OPTIONS).documents == 20
    assert without_manifest(tmp_path / "path") == without_manifest(tmp_path / "index")


def test_lines_of_text_are_documents(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("one\n\ntwo\n")
    build_index(tmp_path, "*.txt", progress=False)
    tokenize(TextLinesDataset(tmp_path), tmp_path / "t", utf8, eos_id=EOS, sample_size=None)
    assert samples_of(tmp_path / "t") == [utf8("one"), utf8("two")]


def test_document_ids_are_the_indexs(corpus: Path, tmp_path: Path) -> None:
    write_jsonl(corpus / "part1.jsonl", [{"text": "new"}])
    with (corpus / "part2.jsonl").open("a") as file:
        file.write('{"text": "added"}\n')
    update_index(corpus, progress=False)
    tokenize(corpus, tmp_path / "t", utf8, eos_id=EOS, sample_size=None, side_streams=["document_ids"])
    with JsonlDataset(corpus) as dataset, TokensDataset(tmp_path / "t") as tokens:
        assert len(dataset) == len(tokens) == 52
        for sample in tokens:
            (number,) = set(sample["document_ids"].tolist())
            assert sample["tokens"].tolist() == utf8(dataset[number]["text"])


def test_a_stale_index_is_an_error(corpus: Path, tmp_path: Path) -> None:
    write_jsonl(corpus / "part2.jsonl", [{"text": "other"}])
    with pytest.raises(StaleIndexError, match="part2"):
        tokenize(corpus, tmp_path / "t", utf8, **OPTIONS)


def test_lines_that_do_not_parse(corpus: Path, tmp_path: Path) -> None:
    with (corpus / "part2.jsonl").open("a") as file:
        file.write('{"text"\n{"text": "last"}\n')
    update_index(corpus, progress=False)
    with pytest.raises(JsonlError, match="line 21") as caught:
        tokenize(corpus, tmp_path / "t", utf8, **OPTIONS)
    assert caught.value.index == 50
    assert (tmp_path / "t.unfinished").exists()
    result = tokenize(corpus, tmp_path / "t", utf8, on_error="skip", **OPTIONS)
    assert result.skipped == {"json": 1} and result.documents == 51
    # The same files, without an index: other numbers of documents, and as many.
    files = [corpus / "part2.jsonl", corpus / "part10.jsonl"]
    assert tokenize(files, tmp_path / "u", utf8, on_error="skip", **OPTIONS).skipped == {"json": 1}


def test_another_index_is_another_source(corpus: Path, tmp_path: Path) -> None:
    tokenize(corpus, tmp_path / "t", utf8, **OPTIONS)
    build_index(corpus, progress=False)  # the same again
    assert tokenize(corpus, tmp_path / "t", utf8, **OPTIONS).was_complete
    write_jsonl(corpus / "part3.jsonl", [{"text": "new"}])
    update_index(corpus, progress=False)
    with pytest.raises(StateMismatchError, match=r"source\.records was 50, and is 51"):
        tokenize(corpus, tmp_path / "t", utf8, **OPTIONS)


def test_the_index_of_data_foragers_tokens_is_not_taken_for_one_of_text(corpus: Path, tmp_path: Path) -> None:
    (corpus / "index" / "index.json").unlink()
    (corpus / "index" / "file_location.txt").write_text("tokenized-samples/a.bin\n")
    assert tokenize(corpus, tmp_path / "t", utf8, **OPTIONS).documents == len(TEXTS)
