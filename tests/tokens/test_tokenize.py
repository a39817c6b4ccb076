"""What `tokenize` writes: against the oracle, for every way of packing, source and encoder."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from loaderx import Dataset, NotAStoreError, OptionError, RaggedDataset, StateMismatchError
from loaderx.tokens import TokensDataset, tokenize
from tests.tokens import oracle
from tests.tokens.kit import (
    EOS,
    contents,
    ids_of,
    samples_of,
    some_parts,
    some_texts,
    utf8,
    utf8_array,
    write_jsonl,
)

TEXTS = some_texts(70)
SIDES = ("document_ids", "positions", "loss_mask")


def as_documents(texts: list[str], eos_id: int | None = EOS) -> list[list[oracle.Token]]:
    return [
        oracle.document_tokens(number, [("text", utf8(text))], eos_id) for number, text in enumerate(texts)
    ]


@pytest.mark.parametrize("last", ["drop", "pad", "keep"])
@pytest.mark.parametrize("sample_size", [1, 7, 64, 100_000])
@pytest.mark.parametrize("window", [None, 1, 9])
def test_a_stream_is_the_oracles(tmp_path: Path, last: Any, sample_size: int, window: int | None) -> None:
    options = {"eos_id": EOS, "sample_size": sample_size, "last": last, "window": window}
    result = tokenize(TEXTS, tmp_path / "t", utf8, pad_id=3 if last == "pad" else None, **options)
    documents = as_documents(TEXTS)
    expected = oracle.stream(documents, sample_size, last, pad_id=3)
    assert samples_of(tmp_path / "t") == ids_of(expected)
    n_tokens = sum(map(len, documents))
    assert (result.documents, result.tokens, result.samples) == (len(TEXTS), n_tokens, len(expected))
    assert result.dropped_tokens == (n_tokens % sample_size if last == "drop" else 0)
    assert result.pad_tokens == (-n_tokens % sample_size if last == "pad" else 0)
    # Without side streams it is a dataset like any other.
    if last == "keep":
        assert len(RaggedDataset(tmp_path / "t")) == len(expected)
    else:
        dataset = Dataset(tmp_path / "t")
        assert dataset.shape == (sample_size,) and len(dataset) == len(expected)
        assert dataset[:].tolist() == ids_of(expected)


@pytest.mark.parametrize("last", ["pad", "keep"])
@pytest.mark.parametrize("sample_size", [1, 8, 64])
@pytest.mark.parametrize("window", [1, 9, 1000])
def test_best_fit_is_the_oracles(tmp_path: Path, last: Any, sample_size: int, window: int) -> None:
    result = tokenize(
        TEXTS,
        tmp_path / "t",
        utf8,
        eos_id=EOS,
        sample_size=sample_size,
        packing="best_fit",
        window=window,
        last=last,
    )
    documents = as_documents(TEXTS)
    expected = oracle.best_fit(documents, sample_size, window, last, EOS)
    assert samples_of(tmp_path / "t") == ids_of(expected)
    assert result.samples == len(expected) and result.dropped_tokens == 0
    assert result.pad_tokens == sum(map(len, expected)) - sum(map(len, documents))


def test_documents_as_they_are(tmp_path: Path) -> None:
    result = tokenize(TEXTS, tmp_path / "t", utf8, eos_id=EOS, sample_size=None)
    assert samples_of(tmp_path / "t") == [utf8(text) for text in TEXTS]
    assert result.samples == result.documents == len(TEXTS)
    assert RaggedDataset(tmp_path / "t").dtype == np.uint32


@pytest.mark.parametrize("options", [
    {"sample_size": 16, "last": "pad"},
    {"sample_size": 16, "last": "keep"},
    {"sample_size": 16, "packing": "best_fit", "window": 7},
    {"sample_size": 16, "packing": "best_fit", "window": 7, "last": "keep"},
    {"sample_size": None},
    {"sample_size": 16, "last": "pad", "mask_eos": True, "masked_types": ["else", "text"]},
])  # fmt: skip
def test_side_streams_are_the_oracles(tmp_path: Path, options: dict[str, Any]) -> None:
    records = some_parts(40)
    pads = options.get("last", "pad") == "pad" and options["sample_size"] is not None
    pad_id = 5 if pads else None
    tokenize(records, tmp_path / "t", utf8, eos_id=EOS, pad_id=pad_id, side_streams=SIDES, **options)
    size = options["sample_size"]
    documents = [
        oracle.document_tokens(
            number,
            [(part["type"], utf8(part["text"])) for part in record["parts"]],
            None if size is None else EOS,
            tuple(options.get("masked_types", ("system", "prompt"))),
            options.get("mask_eos", False),
        )
        for number, record in enumerate(records)
    ]
    if size is None:
        expected = documents
    elif options.get("packing") == "best_fit":
        expected = oracle.best_fit(documents, size, options["window"], options.get("last", "pad"), 5)
    else:
        expected = oracle.stream(documents, size, options["last"], 5)
    dataset = TokensDataset(tmp_path / "t")
    assert dataset.names == ("tokens", *SIDES)
    assert len(dataset) == len(expected)
    for index, sample in enumerate(expected):
        found = dataset[index]
        assert found["tokens"].tolist() == [token.id for token in sample]
        assert found["document_ids"].tolist() == [token.document for token in sample]
        assert found["positions"].tolist() == [token.position for token in sample]
        assert found["loss_mask"].tolist() == [token.masked for token in sample]
    assert {name: dtype.name for name, dtype in dataset.dtypes.items()} == {
        "tokens": "uint32", "document_ids": "int64", "positions": "int32", "loss_mask": "uint8"
    }  # fmt: skip
    assert sorted(path.name for path in (tmp_path / "t").iterdir()) == [
        "document_ids.zr", "loss_mask.zr", "positions.zr", "tokens.json", "tokens.zr"
    ]  # fmt: skip


def as_strings(folder: Path) -> Any:
    return list(TEXTS)


def as_dicts(folder: Path) -> Any:
    return tuple({"text": text, "other": 1} for text in TEXTS)


def as_generator(folder: Path) -> Any:
    return ({"text": text} for text in TEXTS)


def as_file(folder: Path) -> Any:
    return write_jsonl(folder / "a b#[1].jsonl", ({"text": text} for text in TEXTS))


def as_folder(folder: Path) -> Any:
    write_jsonl(folder / "in" / "a.jsonl", ({"text": text} for text in TEXTS[:30]))
    write_jsonl(folder / "in" / "deep" / "b.jsonl", ({"text": text} for text in TEXTS[30:]))
    (folder / "in" / "c.jsonl").write_bytes(b"")
    (folder / "in" / "notes.txt").write_text("no documents")
    return str(folder / "in")


def as_paths(folder: Path) -> Any:
    write_jsonl(folder / "z.jsonl", ({"text": text} for text in TEXTS[:30]))
    write_jsonl(folder / "b.jsonl", ({"text": text} for text in TEXTS[30:]))
    return [folder / "z.jsonl", folder / "b.jsonl"]


@pytest.mark.parametrize("make", [as_strings, as_dicts, as_generator, as_file, as_folder, as_paths])
def test_every_source_gives_the_same(tmp_path: Path, make: Callable[[Path], Any]) -> None:
    result = tokenize(make(tmp_path), tmp_path / "t", utf8, eos_id=EOS, sample_size=16)
    assert samples_of(tmp_path / "t") == ids_of(oracle.stream(as_documents(TEXTS), 16))
    assert result.documents == len(TEXTS) and not result.skipped


def test_lines_as_they_come(tmp_path: Path) -> None:
    lines = (
        b'\xef\xbb\xbf{"text": "one"}\r\n\n \t\r\n{"text": "two\\u2028\xe2\x80\xa8\xc2\x85"}\n{"text": "end"}'
    )
    (tmp_path / "a.jsonl").write_bytes(lines)
    tokenize(tmp_path / "a.jsonl", tmp_path / "t", utf8, eos_id=EOS, sample_size=None)
    assert samples_of(tmp_path / "t") == [utf8("one"), utf8("two\u2028\u2028\x85"), utf8("end")]


@pytest.mark.parametrize("encode", [utf8, utf8_array, lambda text: tuple(utf8(text)),
                                    lambda text: np.array(utf8(text), np.int64)])  # fmt: skip
def test_encoders_return_lists_or_arrays(tmp_path: Path, encode: Any) -> None:
    tokenize(TEXTS, tmp_path / "t", encode, eos_id=EOS, sample_size=16)
    assert samples_of(tmp_path / "t") == ids_of(oracle.stream(as_documents(TEXTS), 16))


def test_text_is_a_key_or_a_function(tmp_path: Path) -> None:
    records = [{"body": {"x": text}} for text in TEXTS]
    tokenize(
        records, tmp_path / "f", utf8, eos_id=EOS, sample_size=16, text=lambda record: record["body"]["x"]
    )
    tokenize(
        [{"body": text} for text in TEXTS], tmp_path / "k", utf8, eos_id=EOS, sample_size=16, text="body"
    )
    expected = ids_of(oracle.stream(as_documents(TEXTS), 16))
    assert samples_of(tmp_path / "f") == samples_of(tmp_path / "k") == expected


@pytest.mark.parametrize(("vocab_size", "eos_id", "dtype"), [
    (None, 0, "uint32"), (256, 0, "uint8"), (257, 256, "uint16"), (65_536, 1, "uint16"),
    (65_537, 1, "uint32"), (2**32, 1, "uint32"), (2**32 + 1, 1, "uint64"), (None, 2**32, "uint64"),
])  # fmt: skip
def test_the_smallest_dtype_that_holds_the_vocabulary(
    tmp_path: Path, vocab_size: int | None, eos_id: int, dtype: str
) -> None:
    result = tokenize(["ab"], tmp_path / "t", utf8, eos_id=eos_id, sample_size=3, vocab_size=vocab_size)
    assert result.dtype == dtype
    assert TokensDataset(tmp_path / "t")[0].tolist() == [97, 98, eos_id]
    assert TokensDataset(tmp_path / "t").dtype == dtype


def test_a_finished_run_is_not_done_again(tmp_path: Path) -> None:
    options = {"eos_id": EOS, "sample_size": 16}
    first = tokenize(TEXTS, tmp_path / "t", utf8, **options)
    before = contents(tmp_path)
    again = tokenize(TEXTS, tmp_path / "t", utf8, **options)
    assert again.was_complete and not first.was_complete
    assert (again.documents, again.samples, again.dtype, again.skipped) == (
        first.documents, first.samples, first.dtype, first.skipped
    )  # fmt: skip
    assert contents(tmp_path) == before
    with pytest.raises(StateMismatchError, match="sample_size was 16, and is 17") as caught:
        tokenize(TEXTS, tmp_path / "t", utf8, eos_id=EOS, sample_size=17)
    assert caught.value.mismatches == {"sample_size": (16, 17)}
    with pytest.raises(StateMismatchError, match=r"source\.records"):
        tokenize(TEXTS[1:], tmp_path / "t", utf8, **options)
    assert contents(tmp_path) == before
    tokenize(TEXTS[1:], tmp_path / "t", utf8, overwrite=True, **options)
    assert samples_of(tmp_path / "t") == ids_of(oracle.stream(as_documents(TEXTS[1:]), 16))
    assert [path.name for path in tmp_path.iterdir()] == ["t"]


def test_a_changed_file_is_another_source(tmp_path: Path) -> None:
    path = write_jsonl(tmp_path / "a.jsonl", [{"text": "one"}, {"text": "two"}])
    tokenize(path, tmp_path / "t", utf8, eos_id=EOS, sample_size=2)
    write_jsonl(path, [{"text": "one"}, {"text": "owt"}])
    with pytest.raises(StateMismatchError, match=r"source\.files"):
        tokenize(path, tmp_path / "t", utf8, eos_id=EOS, sample_size=2)


def test_nothing_else_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "t").mkdir()
    (tmp_path / "t" / "thesis.txt").write_text("years")
    for overwrite in (False, True):
        with pytest.raises(NotAStoreError, match="thesis"):
            tokenize(TEXTS, tmp_path / "t", utf8, eos_id=EOS, sample_size=16, overwrite=overwrite)
    tokenize(TEXTS, tmp_path / "u", utf8, eos_id=EOS, sample_size=16)
    (tmp_path / "u" / "thesis.txt").write_text("years")
    with pytest.raises(NotAStoreError, match="thesis"):
        tokenize(TEXTS, tmp_path / "u", utf8, eos_id=EOS, sample_size=16, overwrite=True)
    assert (tmp_path / "u" / "thesis.txt").exists()
    (tmp_path / "v.unfinished").mkdir()
    (tmp_path / "v.unfinished" / "thesis.txt").write_text("years")
    with pytest.raises(NotAStoreError, match="thesis"):
        tokenize(TEXTS, tmp_path / "v", utf8, eos_id=EOS, sample_size=16, overwrite=True)


def test_an_empty_folder_and_a_link_are_fine(tmp_path: Path) -> None:
    (tmp_path / "t").mkdir()
    (tmp_path / "link").symlink_to("t")
    tokenize(TEXTS, tmp_path / "link", utf8, eos_id=EOS, sample_size=16)
    assert samples_of(tmp_path / "t") == samples_of(tmp_path / "link")
    assert (tmp_path / "link").is_symlink()


@pytest.mark.parametrize(("options", "option"), [
    ({"sample_size": 0}, "sample_size"), ({"eos_id": None}, "eos_id"), ({"eos_id": -1}, "eos_id"),
    ({"eos_id": 1.5}, "eos_id"), ({"dtype": "float32"}, "dtype"), ({"dtype": "no"}, "dtype"), ({"dtype": ","}, "dtype"),
    ({"dtype": "f4,("}, "dtype"),
    ({"dtype": "uint8"}, "eos_id"),
    ({"dtype": "uint16", "pad_id": 70_000, "last": "pad"}, "pad_id"), ({"pad_id": 3}, "pad_id"),
    ({"pad_id": 3, "last": "keep"}, "pad_id"), ({"pad_id": 3, "sample_size": None}, "pad_id"),
    ({"packing": "tight"}, "packing"), ({"last": "cut"}, "last"), ({"packing": "best_fit", "last": "drop"}, "last"),
    ({"sample_size": None, "last": "drop"}, "last"), ({"sample_size": None, "packing": "best_fit"}, "packing"),
    ({"window": 0}, "window"), ({"side_streams": ["weights"]}, "side_streams"), ({"text": 3}, "text"),
    ({"codec": "zstd_dict"}, "codec"), ({"level": 3, "codec": "raw"}, "level"), ({"workers": -1}, "workers"),
    ({"on_error": "ignore"}, "on_error"), ({"overwrite": 1}, "overwrite"), ({"progress": 3}, "progress"),
    ({"vocab_size": 0}, "vocab_size"), ({"add_special_tokens": True}, "add_special_tokens"),
    ({"masked_types": [1]}, "masked_types"), ({"vocab_size": EOS}, "eos_id"),
    ({"vocab_size": EOS + 1, "pad_id": EOS + 1, "last": "pad"}, "pad_id"), ({"allow_empty": "yes"}, "allow_empty"),
])  # fmt: skip
def test_options_are_checked_before_anything_is_written(
    tmp_path: Path, options: dict[str, Any], option: str
) -> None:
    with pytest.raises(OptionError) as caught:
        tokenize(TEXTS, tmp_path / "t", utf8, **{"eos_id": EOS, **options})
    assert caught.value.option == option
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("source", [3, None, {"text": "one"}, b"bytes", {"a", "b"}])
def test_what_is_no_source(tmp_path: Path, source: Any) -> None:
    with pytest.raises(OptionError) as caught:
        tokenize(source, tmp_path / "t", utf8, eos_id=EOS)
    assert caught.value.option == "source"


def test_no_documents_are_an_empty_dataset(tmp_path: Path) -> None:
    result = tokenize([], tmp_path / "t", utf8, eos_id=EOS)
    assert (result.documents, result.samples) == (0, 0)
    assert len(TokensDataset(tmp_path / "t")) == 0


@pytest.mark.parametrize("codec", ["raw", "zstd", "zstd_shuffle"])
def test_codecs(tmp_path: Path, codec: Any) -> None:
    tokenize(TEXTS, tmp_path / "t", utf8, eos_id=EOS, sample_size=16, codec=codec, vocab_size=500)
    assert Dataset(tmp_path / "t").codec == codec
    assert samples_of(tmp_path / "t") == ids_of(oracle.stream(as_documents(TEXTS), 16))


def test_progress_counts_the_files_bytes(tmp_path: Path) -> None:
    path = write_jsonl(tmp_path / "a.jsonl", ({"text": text} for text in TEXTS * 20))
    seen: list[tuple[int, int | None]] = []
    tokenize(
        path,
        tmp_path / "t",
        utf8,
        eos_id=EOS,
        sample_size=16,
        progress=lambda done, total: seen.append((done, total)),
    )
    size = path.stat().st_size
    assert len(seen) > 2 and seen[0] == (0, size) and seen[-1] == (size, size)
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)
