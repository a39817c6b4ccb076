"""Documents without a text, ids that do not fit, and what is said about them."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from loaderx import DocumentError, JsonlError, OptionError
from loaderx.tokens import tokenize
from tests.tokens.kit import EOS, samples_of, utf8, write_jsonl

BAD: list[tuple[bytes, str, str]] = [
    (b'{"text": ""}', "empty", "its text is empty"),
    (b'{"txt": "one", "b": 2}', "missing", "it has no key 'text'; it has 'txt', 'b'"),
    (b"{}", "missing", "it has no key 'text': it is empty"),
    (b'{"text": null}', "null", "its 'text' is null"),
    (b'{"text": 3}', "not_text", "its 'text' is a int"),
    (b'{"text": {"a": 1}}', "not_text", "its 'text' is a dict"),
    (b"[1, 2]", "not_text", "the record is a list"),
    (b"null", "not_text", "the record is null"),
    (b'{"parts": []}', "empty", "it has no parts"),
    (b'{"parts": [{"type": "prompt", "text": ""}]}', "empty", "all its parts are empty"),
    (b'{"parts": ["prompt"]}', "parts", "part 0 is a str"),
    (b'{"parts": [{"type": "x", "text": "y"}, {"text": "one"}]}', "parts", '"type" of part 1 is missing'),
    (b'{"parts": [{"type": "prompt", "text": null}]}', "parts", '"text" of part 0 is null'),
    (b'{"parts": [{"type": 3, "text": "one"}]}', "parts", '"type" of part 0 is a int'),
]


@pytest.mark.parametrize(("line", "kind", "words"), BAD)
def test_a_record_without_a_text_is_named(tmp_path: Path, line: bytes, kind: str, words: str) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'{"text": "one"}\n\n' + line + b'\n{"text": "two"}\n')
    with pytest.raises(DocumentError) as caught:
        tokenize(path, tmp_path / "t", utf8, eos_id=EOS, sample_size=2)
    error = caught.value
    assert (error.document, error.file, error.line_number, error.kind) == (1, path, 3, kind)
    assert str(error) == f"{path}, line 3 (document 1): {error.problem}" and words in error.problem
    again = pickle.loads(pickle.dumps(error))
    assert str(again) == str(error) and again.document == 1 and again.line_number == 3
    result = tokenize(path, tmp_path / "t", utf8, eos_id=EOS, sample_size=2, on_error="skip")
    assert result.documents == 2 and result.skipped == {kind: 1}
    assert samples_of(tmp_path / "t") == [utf8("on"), [*utf8("e"), EOS], utf8("tw"), [*utf8("o"), EOS]]


def test_a_line_that_is_no_json_is_named(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'{"text": "one"}\n{"text": "tw\x00\n{"text": "six"}\n' + b"[" * 100_000 + b"\n")
    with pytest.raises(JsonlError) as caught:
        tokenize(path, tmp_path / "t", utf8, eos_id=EOS, sample_size=2)
    assert (caught.value.file, caught.value.line_number, caught.value.byte_offset, caught.value.index) == (
        path,
        2,
        16,
        1,
    )
    assert "\\x00" in caught.value.excerpt
    result = tokenize(path, tmp_path / "t", utf8, eos_id=EOS, sample_size=4, on_error="skip")
    assert result.skipped == {"json": 2} and result.documents == 2


def test_a_function_is_told_and_may_raise(tmp_path: Path) -> None:
    told: list[Any] = []
    records = ["one", "", {"text": None}, "two", 3]
    result = tokenize(records, tmp_path / "t", utf8, eos_id=EOS, sample_size=None, on_error=told.append)
    assert [(error.document, error.kind, error.file) for error in told] == [
        (1, "empty", None), (2, "null", None), (4, "not_text", None)
    ]  # fmt: skip
    assert result.skipped == {"empty": 1, "null": 1, "not_text": 1} and result.samples == 2

    def refuse(error: Exception) -> None:
        raise RuntimeError("enough") from error

    with pytest.raises(RuntimeError, match="enough"):
        tokenize(records, tmp_path / "u", utf8, eos_id=EOS, on_error=refuse)
    assert not (tmp_path / "u.unfinished").exists()


def test_a_text_function_that_raises_is_named(tmp_path: Path) -> None:
    path = write_jsonl(tmp_path / "a.jsonl", [{"text": "one"}, {"b": 1}, {"text": "two"}])

    def read(record: Any) -> Any:
        return record["text"]

    with pytest.raises(
        DocumentError, match=r"a\.jsonl, line 2 \(document 1\): text raised KeyError: 'text'"
    ) as caught:
        tokenize(path, tmp_path / "t", utf8, eos_id=EOS, sample_size=None, text=read)
    assert caught.value.kind == "function" and isinstance(caught.value.__cause__, KeyError)
    result = tokenize(path, tmp_path / "t", utf8, eos_id=EOS, sample_size=None, text=read, on_error="skip")
    assert result.documents == 2 and result.skipped == {"function": 1}


def test_a_sample_that_no_record_holds_is_an_option(tmp_path: Path) -> None:
    limit = 2**32 - 1
    for dtype, sides in ("uint32", []), ("uint8", ["document_ids"]), ("uint8", []):
        most = limit // (8 if sides else np.dtype(dtype).itemsize)
        with pytest.raises(OptionError, match=f"room for {most} tokens") as caught:
            tokenize(
                ["a"], tmp_path / "t", utf8, eos_id=0, sample_size=most + 1, dtype=dtype, side_streams=sides
            )
        assert caught.value.option == "sample_size"
        assert list(tmp_path.iterdir()) == []


def test_document_ids_count_what_was_skipped(tmp_path: Path) -> None:
    from loaderx.tokens import TokensDataset

    tokenize(["", "a", "", "b"], tmp_path / "t", utf8, eos_id=EOS, sample_size=4, on_error="skip",
             side_streams=["document_ids"])  # fmt: skip
    assert TokensDataset(tmp_path / "t")[0]["document_ids"].tolist() == [1, 1, 3, 3]


def test_empty_documents_by_leave(tmp_path: Path) -> None:
    records: list[Any] = ["", {"parts": []}, {"parts": [{"type": "prompt", "text": ""}]}, "a"]
    options: dict[str, Any] = {"eos_id": EOS, "allow_empty": True}
    tokenize(
        records, tmp_path / "t", utf8, sample_size=5, side_streams=["loss_mask", "document_ids"], **options
    )
    from loaderx.tokens import TokensDataset

    found = TokensDataset(tmp_path / "t")[0]
    assert found["tokens"].tolist() == [EOS, EOS, EOS, 97, EOS]
    assert found["document_ids"].tolist() == [0, 1, 2, 3, 3] and not found["loss_mask"].any()
    tokenize(records, tmp_path / "r", utf8, sample_size=None, **options)
    assert samples_of(tmp_path / "r") == [[], [], [], [97]]


class Encoding:
    """What `tokenizers` returns for a text, as far as anybody looks."""

    def __init__(self, ids: Any) -> None:
        self.ids = ids


WRONG: list[tuple[Any, str]] = [
    ([1, -1], "id -1 (token 1) is negative"),
    ([70_000], "id 70000 (token 0) does not fit uint16"),
    ([2**70], "does not fit uint16"),
    ([1.0], "id 1.0 (token 0) is no integer"),
    ([1, None], "id None (token 1) is no integer"),
    (["a"], "id 'a' (token 0) is no integer"),
    (np.array([1, 65_536]), "id 65536 (token 1) does not fit"),
    (np.array([-5], np.int8), "id -5 (token 0) is negative"),
    (np.array([1.5]), "ids of float64"),
    (np.array([[1, 2]]), "2 axes"),
    ([[1], [2, 3]], "no list of ids"),
    ("12", "a str, not a list"),
    (b"12", "a bytes, not a list"),
    ({"input_ids": [1]}, "a dict, not a list"),
    (5, "0 axes"),
    (None, "0 axes"),
    (Encoding([-1]), "negative"),
    ([True, False], "id True (token 0) is no integer"),
    ([5, False], "id False (token 1) is no integer"),
    ((5, True), "id True (token 1) is no integer"),
    ([5, np.bool_(True)], "(token 1) is no integer"),
    (np.array([True]), "ids of bool"),
    (Encoding([True]), "no integer"),
    ((number for number in (1, 2)), "a generator of 0 axes"),
]


@pytest.mark.parametrize(("ids", "words"), WRONG, ids=[words for _, words in WRONG])
def test_ids_that_do_not_fit_are_errors(tmp_path: Path, ids: Any, words: str) -> None:
    with pytest.raises(DocumentError) as caught:
        tokenize(
            ["a", "b", "wrong", "wrong"], tmp_path / "t", lambda text: ids if text == "wrong" else [1, 2], eos_id=0,
            sample_size=2, dtype="uint16", on_error="skip",
        )  # fmt: skip
    assert caught.value.document == 2 and caught.value.kind == "encode" and words in caught.value.problem


@pytest.mark.parametrize("ids", [[9], [0, 300], np.array([70_000]), [2**40]])
@pytest.mark.parametrize("dtype", ["auto", "uint64"])
def test_ids_beyond_the_vocabulary_are_errors(tmp_path: Path, ids: Any, dtype: Any) -> None:
    records: list[Any] = ["a", {"parts": [{"type": "x", "text": text} for text in ("a", "a", "wrong", "a")]}]
    options: dict[str, Any] = {"eos_id": 8, "vocab_size": 9, "dtype": dtype, "sample_size": 2}
    with pytest.raises(DocumentError, match="document 1: id ") as caught:
        tokenize(records, tmp_path / "t", lambda text: ids if text == "wrong" else [7, 8], **options)
    assert caught.value.kind == "encode" and f"id {ids[-1]} (token {len(ids) - 1})" in caught.value.problem
    options["vocab_size"] = 2**40 + 1  # what the model has
    assert (
        tokenize(
            records, tmp_path / "t", lambda text: ids if text == "wrong" else [7, 8], **options
        ).documents
        == 2
    )


@pytest.mark.parametrize("ids", [[1, 2], (1, 2), np.array([1, 2]), np.array([1, 2], "u1"), Encoding([1, 2]),
                                 [np.int64(1), np.uint8(2)], range(1, 3)])  # fmt: skip
def test_ids_in_every_form(tmp_path: Path, ids: Any) -> None:
    tokenize(["a", "", "b"], tmp_path / "t", lambda text: ids if text else [], eos_id=0, sample_size=None,
             allow_empty=True)  # fmt: skip
    assert samples_of(tmp_path / "t") == [[1, 2], [], [1, 2]]


def test_an_encoder_that_fails_is_named(tmp_path: Path) -> None:
    def encode(text: str) -> list[int]:
        if text == "b":
            raise KeyError("unknown")
        return [1]

    with pytest.raises(DocumentError, match="document 1: encode raised KeyError: 'unknown'") as caught:
        tokenize(["a", "b", "c"], tmp_path / "t", encode, eos_id=0, on_error="skip")
    assert isinstance(caught.value.__cause__, KeyError)
