"""Sources that part with `loaderx.jsonl`: indices, their datasets, stores of lines."""

from __future__ import annotations

import bz2
import gzip
import lzma
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import zstandard

from loaderx import (
    ArchiveError,
    DocumentError,
    JsonlError,
    OptionError,
    StaleIndexError,
    StaleIndexWarning,
    StateMismatchError,
    StoreIOError,
)
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


def test_a_pattern_chooses_with_an_index_too(corpus: Path, tmp_path: Path) -> None:
    (corpus / "index").rename(tmp_path / "aside")
    tokenize(corpus, tmp_path / "plain", utf8, pattern="part2*", **OPTIONS)
    (tmp_path / "aside").rename(corpus / "index")
    assert tokenize(corpus, tmp_path / "t", utf8, pattern="part2*", **OPTIONS).documents == 20
    assert without_manifest(tmp_path / "t") == without_manifest(tmp_path / "plain")
    with pytest.raises(OptionError, match=r"no file here fits '\*\.txt'"):
        tokenize(corpus, tmp_path / "u", utf8, pattern="*.txt", **OPTIONS)
    # Of the pattern that was indexed, the index is taken; and without one, whatever it is of.
    assert tokenize(corpus, tmp_path / "v", utf8, pattern="**/*.jsonl", **OPTIONS).documents == 50
    build_index(corpus, "part2*", progress=False)
    assert tokenize(corpus, tmp_path / "w", utf8, **OPTIONS).documents == 20


def test_a_pattern_is_for_folders(corpus: Path, tmp_path: Path) -> None:
    write_lines([corpus / "part2.jsonl"], tmp_path / "lines.zr")
    for source in (
        corpus / "part2.jsonl",
        Index.open(corpus),
        [corpus / "part2.jsonl"],
        ["text"],
        tmp_path / "lines.zr",
    ):
        with pytest.raises(OptionError, match="pattern is") as caught:
            tokenize(source, tmp_path / "t", utf8, pattern="*.jsonl", **OPTIONS)
        assert caught.value.option == "pattern"


def test_what_an_index_lacks_is_told_once(corpus: Path, tmp_path: Path) -> None:
    for name in ("part3", "part11", "part12", "part13"):
        write_jsonl(corpus / f"{name}.jsonl", [{"text": "new"}])
    with pytest.warns(
        StaleIndexWarning, match=r"lacks 4 new files \(.*part3\.jsonl, .* and 1 more\)"
    ) as told:
        assert tokenize(corpus, tmp_path / "t", utf8, **OPTIONS).documents == 50
    assert len(told) == 1 and told[0].filename == __file__ and "update_index" in str(told[0].message)
    with (corpus / "part2.jsonl").open("a") as file:
        file.write('{"text": "added"}\n')
    with pytest.warns(StaleIndexWarning, match=r"lacks 4 new files .* and what was added to 1 ") as told:
        assert tokenize(corpus, tmp_path / "t", utf8, **OPTIONS).was_complete
    assert len(told) == 1
    with pytest.warns(StaleIndexWarning, match="grown since indexed") as told:
        tokenize(Index.open(corpus), tmp_path / "u", utf8, **OPTIONS)
    assert len(told) == 1
    update_index(corpus, progress=False)
    assert tokenize(corpus, tmp_path / "v", utf8, **OPTIONS).documents == 55


def test_names_of_files_are_no_documents(corpus: Path, tmp_path: Path) -> None:
    names = [str(corpus / "part2.jsonl"), str(corpus / "part10.jsonl")]
    for source in names, tuple(names), ["nowhere/a.jsonl"], [names[0], "nowhere/a.jsonl"]:
        with pytest.raises(OptionError, match=r"names of files .*pathlib\.Path") as caught:
            tokenize(source, tmp_path / "t", utf8, **OPTIONS)
        assert caught.value.option == "source"
    assert not (tmp_path / "t").exists()
    # One that is no name, and they are documents; one that is a Path, and they are files.
    assert tokenize([*names, "a text"], tmp_path / "u", utf8, **OPTIONS).documents == 3
    assert tokenize([Path(names[0]), names[1]], tmp_path / "v", utf8, **OPTIONS).documents == 50
    assert tokenize([{"text": name} for name in names], tmp_path / "w", utf8, **OPTIONS).documents == 2


def test_of_several_sources_each_is_a_file(corpus: Path, tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="in: not a regular file"):
        tokenize([corpus / "part2.jsonl", corpus], tmp_path / "t", utf8, **OPTIONS)
    for source in tmp_path / "none", [tmp_path / "none"]:
        with pytest.raises(StoreIOError) as caught:
            tokenize(source, tmp_path / "t", utf8, **OPTIONS)
        assert str(caught.value) == f"{tmp_path}/none: could not read it: No such file or directory"
    assert not (tmp_path / "t.unfinished").exists()


def as_zstd(data: bytes) -> bytes:
    return zstandard.ZstdCompressor().compress(data)


@pytest.mark.parametrize(("compress", "name"), [
    (gzip.compress, "gzip"), (bz2.compress, "bzip2"), (lzma.compress, "xz"), (as_zstd, "zstd")
])  # fmt: skip
def test_compressed_files_are_named_as_such(
    tmp_path: Path, compress: Callable[[bytes], bytes], name: str
) -> None:
    path = tmp_path / "in" / "a.jsonl"
    path.parent.mkdir()
    path.write_bytes(compress(b'{"text": "one"}\n'))
    for source in path, path.parent, [path]:
        with pytest.raises(OptionError, match=f"a.jsonl: compressed by {name}.*convert FILES STORE --lines"):
            tokenize(source, tmp_path / "t", utf8, on_error="skip", **OPTIONS)
    path.write_bytes(b"PK\x03\x04" + bytes(100))
    with pytest.raises(ArchiveError, match="zip"):
        tokenize(path, tmp_path / "t", utf8, on_error="skip", **OPTIONS)
    assert os.listdir(tmp_path) == ["in"]


def test_documents_of_an_index_are_named_by_file_and_line(corpus: Path, tmp_path: Path) -> None:
    with (corpus / "part10.jsonl").open("a") as file:
        file.write('\n{"text": ""}\n{"text": "bad"}\n')
    build_index(corpus, progress=False)

    def encode(text: str) -> list[int]:
        return [-1] if text == "bad" else utf8(text)

    with JsonlDataset(corpus) as dataset:
        for source in corpus, Index.open(corpus), dataset:
            for options, number, line in ({}, 50, 32), ({"on_error": "skip"}, 51, 33):
                with pytest.raises(
                    DocumentError, match=rf"part10\.jsonl, line {line} \(document {number}\): "
                ) as caught:
                    tokenize(source, tmp_path / "t", encode, overwrite=True, **options, **OPTIONS)
                error = caught.value
                assert (error.file, error.line_number) == (corpus / "part10.jsonl", line)
    write_lines(corpus / "part10.jsonl", tmp_path / "lines.zr")
    with pytest.raises(DocumentError, match=r"lines\.zr \(document 30\): its text is empty") as caught:
        tokenize(tmp_path / "lines.zr", tmp_path / "u", utf8, **OPTIONS)
    assert (caught.value.file, caught.value.line_number) == (tmp_path / "lines.zr", None)
