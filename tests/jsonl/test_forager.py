"""The names of data-forager without data-forager: what is refused, and what is left where something fails."""

from __future__ import annotations

import contextlib
import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from loaderx import DocumentError, NotAnIndexError, OptionError, tokens
from loaderx.jsonl import forager
from loaderx.store import files

EOS = 9


def tokenizer(text: str) -> list[int]:
    return [byte + 300 for byte in text.encode()]


def save(path: Path, *lines: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines))
    return path


@pytest.fixture
def base(tmp_path: Path) -> Path:
    folder = tmp_path / "corpus"
    save(folder / "part2.jsonl", {"text": "two"}, {"text": "and more"})
    save(folder / "part10.jsonl", {"text": "ten"})
    return folder


def listing(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


def make(base: Path, encode: Callable[[str], Any] = tokenizer, **options: Any) -> None:
    forager.create_tokenize_and_index_jsonl_text_func(encode, EOS, base, **options)()


def read(base: Path, dtype: Any = np.uint16) -> list[list[int]]:
    with forager.TokensDataset.create_from_index_on_filesystem(base, token_dtype=dtype) as dataset:
        return [sample.tolist() for sample in dataset[:]]


# --- lines ----------------------------------------------------------------------------------------------------------


def test_lines(base: Path) -> None:
    with pytest.raises(NotAnIndexError):
        forager.JsonlDataset.create_from_index_on_filesystem(base)
    indexer = forager.create_default_jsonl_indexer(str(base), name="not used")
    assert not (base / "index").exists()
    assert indexer() is None
    save(base / "part1.JSONL", {"text": "one"})
    indexer()  # an index that is there is replaced
    dataset = forager.JsonlDataset.create_from_index_on_filesystem(base, "index", "not used", parse="json")
    dataset.initialize()
    assert dataset.is_initialized
    assert [dataset[at]["text"] for at in range(4)] == ["one", "two", "and more", "ten"]
    assert dataset[-1] == {"text": "ten"}
    assert dataset[0:4:2] == [{"text": "one"}, {"text": "and more"}]
    again = pickle.loads(pickle.dumps(dataset))
    assert type(again) is forager.JsonlDataset and list(again) == list(dataset)
    dataset.close()
    again.close()


# --- tokens ---------------------------------------------------------------------------------------------------------


def test_samples_of_one_size(base: Path) -> None:
    make(base, sample_size=4)
    stream = [*tokenizer("two"), EOS, *tokenizer("and more"), EOS, *tokenizer("ten"), EOS]
    assert read(base) == [stream[at : at + 4] for at in range(0, 16, 4)]
    assert listing(base) == [
        "index",
        "index/file_location.txt",
        "index/sample_locations.bin",
        "part10.jsonl",
        "part2.jsonl",
        "tokenized-samples",
        "tokenized-samples/part10-tokenized-samples.bin",
        "tokenized-samples/part2-tokenized-samples.bin",
    ]
    assert (base / "index" / "file_location.txt").read_text().split() == [
        "tokenized-samples/part2-tokenized-samples.bin",
        "tokenized-samples/part10-tokenized-samples.bin",
    ]


def test_samples_of_any_size(base: Path) -> None:
    make(base)
    assert read(base) == [tokenizer("two"), tokenizer("and more"), tokenizer("ten")]
    with forager.TokensDataset.create_from_index_on_filesystem(base, token_dtype=np.uint16) as dataset:
        assert dataset.is_initialized
        dataset.initialize()
        assert [sample.tolist() for sample in dataset[[1, -1]]] == [tokenizer("and more"), tokenizer("ten")]
        again = pickle.loads(pickle.dumps(dataset))
    assert [sample.tolist() for sample in again.__getitems__([0])] == [tokenizer("two")]
    again.close()


def test_many_documents_in_many_batches(tmp_path: Path) -> None:
    texts = [f"{n} " * (n % 50) for n in range(2000)]
    save(tmp_path / "a.jsonl", *({"text": text} for text in texts))
    make(tmp_path, sample_size=64)
    stream = [token for text in texts for token in [*tokenizer(text), EOS]]
    assert read(tmp_path) == [stream[at : at + 64] for at in range(0, len(stream) - 63, 64)]


def test_blank_lines_and_marks_are_no_documents(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes(b'\xef\xbb\xbf{"text": "a"}\r\n\r\n \n{"text": "b"}')
    make(tmp_path)
    assert read(tmp_path) == [tokenizer("a"), tokenizer("b")]


def test_files_of_one_name(tmp_path: Path) -> None:
    for folder in ("x", "y", "z"):
        save(tmp_path / folder / "a.jsonl", {"text": folder})
    save(tmp_path / "x" / "a-2.jsonl", {"text": "2"})
    make(tmp_path)
    assert read(tmp_path) == [tokenizer("2"), tokenizer("x"), tokenizer("y"), tokenizer("z")]
    names = sorted(
        path.name.removesuffix("-tokenized-samples.bin")
        for path in (tmp_path / "tokenized-samples").iterdir()
    )
    assert names == ["a", "a-2", "a-3", "a-4"]


class Encoding:
    """What a tokenizer may return in place of a list."""

    def __init__(self, ids: list[int]) -> None:
        self.ids = ids


RETURNED = {
    "an array": lambda text: np.array(tokenizer(text)),
    "an object with ids": lambda text: Encoding(tokenizer(text)),
    "a tuple": lambda text: tuple(tokenizer(text)),
}


@pytest.mark.parametrize("name", RETURNED)
def test_what_an_encoder_may_return(name: str, base: Path) -> None:
    make(base, RETURNED[name], sample_size=4)
    assert read(base)[0] == [*tokenizer("two"), EOS]


def only_a(line: bytes) -> str:
    if b'"a"' not in line:
        raise ValueError("only a")
    return "a"


FAULTS: dict[str, tuple[Any, dict[str, Any], str, str]] = {
    "not JSON": ("{", {}, "not_text", "JSONDecodeError"),
    "no text": ({"txt": 1}, {}, "missing", "no key 'text'"),
    "a number": ({"text": 1}, {}, "not_text", "its text is a int, not a string"),
    "null": ({"text": None}, {}, "not_text", "its text is a NoneType"),
    "a list": ([1], {}, "not_text", "TypeError"),
    "not UTF-8": ('{"text": "\udcff"}', {}, "not_text", "UnicodeDecodeError"),
    "a large id": ({"text": "é"}, {"token_dtype": np.uint8}, "encode", "does not fit uint8"),
    "encode fails": ({"text": "b"}, {"encode": lambda text: {"a": [1]}[text]}, "encode", "KeyError"),
    "no ids": ({"text": "b"}, {"encode": lambda text: [1] if text == "a" else "b"}, "encode", "not a list of ids"),
    "text_of fails": ({"text": "b"}, {"process_text_line_func": only_a}, "not_text", "ValueError: only a"),
}  # fmt: skip


@pytest.mark.parametrize("name", FAULTS)
def test_a_line_at_fault_is_named(name: str, tmp_path: Path) -> None:
    line, options, kind, words = FAULTS[name]
    if "token_dtype" in options:
        options = {"encode": lambda text: [ord(text) + 100], **options}
    path = tmp_path / "b.jsonl"
    save(tmp_path / "a.jsonl", *[{"text": "a"}] * 3)
    text = line if isinstance(line, str) else json.dumps(line, ensure_ascii=False)
    path.write_bytes((json.dumps({"text": "a"}) + "\n\n" + text + "\n").encode("utf-8", "surrogateescape"))
    before = listing(tmp_path)
    with pytest.raises(DocumentError, match=words) as caught:
        make(tmp_path, **{"encode": tokenizer, **options})
    error = caught.value
    assert (error.file, error.line_number, error.document, error.kind) == (path, 3, 4, kind)
    assert str(error).startswith(f"{path}, line 3 (document 4): ")
    assert [name for name in listing(tmp_path) if name != "tokenized-samples"] == before


def test_nothing_is_replaced(base: Path) -> None:
    make(base, sample_size=4)
    before = {name: (base / name).read_bytes() for name in listing(base) if (base / name).is_file()}
    with pytest.raises(OptionError, match="there is an index already"):
        make(base, sample_size=4)
    (base / "index").rename(base / "old")
    with pytest.raises(FileExistsError, match="there is a file of samples already"):
        make(base, sample_size=4)
    (base / "old").rename(base / "index")
    assert {name: (base / name).read_bytes() for name in before} == before
    with pytest.raises(OptionError, match="another program's index of other files"):
        forager.create_default_jsonl_indexer(base)()


@pytest.mark.parametrize("operation", ["create", "write", "fsync", "rename"])
def test_what_fails_leaves_nothing(operation: str, base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = listing(base)
    until = 0

    def observe(happening: str, *_: object) -> None:
        nonlocal until
        if happening == operation:
            until -= 1
            if until == 0:
                raise ZeroDivisionError

    monkeypatch.setattr(files, "observe", observe)
    stops = 0
    while not (base / "index").exists():  # which comes last, and has to be whole then
        assert [name for name in listing(base) if name != "tokenized-samples"] == before
        stops += 1
        until = stops
        with contextlib.suppress(ZeroDivisionError):
            make(base, sample_size=4)
    assert stops > 2
    assert len(read(base)) == 4


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "no input": ({"input_base_path": None}, "neither input_base_path nor input_file_paths"),
    "no output": ({"input_base_path": None, "input_file_paths": ["a.jsonl"]}, "neither output_base_path nor"),
    "a store": ({"index_store": object()}, "index_store is given"),
    "no integers": ({"token_dtype": "f4"}, "give an integer type"),
    "eos": ({"token_dtype": "u1", "eos_idx": 300, "sample_size": 4}, "eos_idx is 300"),
    "no samples": ({"sample_size": 0}, "sample_size is 0"),
    "no tokenizer": ({"tokenizer_func": 3}, "give a tokenizer"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused_at_once(name: str, base: Path) -> None:
    options, words = REFUSED[name]
    given = {"tokenizer_func": tokenizer, "eos_idx": EOS, "input_base_path": base, **options}
    with pytest.raises(OptionError, match=words):
        forager.create_tokenize_and_index_jsonl_text_func(**given)


def test_no_files(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="there are no files to read"):
        make(tmp_path)
    assert listing(tmp_path) == []


# --- parts ----------------------------------------------------------------------------------------------------------


def parts(line: bytes) -> list[forager.Part]:
    return [forager.Part(**part) for part in json.loads(line)["parts"]]


def make_parts(base: Path, generators: dict[str, Any], **options: Any) -> None:
    forager.create_tokenize_and_index_with_aux_func(parts, tokenizer, EOS, generators, base, **options)()


def chat(base: Path) -> Path:
    turn = [{"type": "prompt", "text": "ab"}, {"type": "response", "text": "c"}]
    return save(base / "chat.jsonl", {"parts": turn}, {"parts": turn[::-1]})


def test_masks(tmp_path: Path) -> None:
    chat(tmp_path)
    make_parts(
        tmp_path,
        {"m": forager.LossMaskGenerator(), "n": forager.LossMaskGenerator({"response"}, mask_eos=True)},
        sample_size=4,
    )
    with forager.TokensWithAuxDataset.create_from_index_on_filesystem(tmp_path) as dataset:
        found = [{name: array.tolist() for name, array in sample.items()} for sample in dataset[:]]
    assert found == [
        {"tokens": [*tokenizer("abc"), EOS], "m": [1, 1, 0, 0], "n": [0, 0, 1, 1]},
        {"tokens": [*tokenizer("cab"), EOS], "m": [0, 1, 1, 0], "n": [1, 0, 0, 1]},
    ]
    assert json.loads((tmp_path / "index" / "sample_schema.json").read_text()) == {
        "sample_size": 4,
        "arrays": [
            {"name": "tokens", "dtype": "uint32", "offset": 0},
            {"name": "m", "dtype": "uint8", "offset": 16},
            {"name": "n", "dtype": "uint8", "offset": 20},
        ],
        "total_bytes_per_sample": 24,
    }
    with tokens.TokensDataset(tmp_path) as stream:
        assert stream[0]["m"].tolist() == [1, 1, 0, 0]


class Generator:
    def __init__(self, values: Any, dtype: Any = np.uint8) -> None:
        self._values = values
        self.dtype = np.dtype(dtype)

    def generate(self, part_type: str, num_tokens: int, *, part_tokens: list[int] | None = None) -> Any:
        return self._values

    def generate_for_eos(self) -> int:
        return 0


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ([1], r"its values are \(1,\), and there are 2 tokens"),
        ([1, 256], "do not fit uint8"),
        ("ab", "do not fit"),
    ],
)
def test_values_that_do_not_fit(values: Any, words: str, tmp_path: Path) -> None:
    path = chat(tmp_path)
    with pytest.raises(DocumentError, match=words) as caught:
        make_parts(tmp_path, {"m": Generator(values)}, sample_size=4)
    assert (caught.value.file, caught.value.line_number, caught.value.kind) == (path, 1, "parts")


def test_parts_that_are_refused(base: Path, tmp_path: Path) -> None:
    for generators in ({}, {"tokens": forager.LossMaskGenerator()}):
        with pytest.raises(OptionError, match="aux_generators"):
            make_parts(tmp_path, generators)
    with pytest.raises(DocumentError, match="no key 'parts'"):
        make_parts(base, {"m": forager.LossMaskGenerator()})
    make(base, sample_size=4)
    with pytest.raises(OptionError, match="nothing beside them"):
        forager.TokensWithAuxDataset.create_from_index_on_filesystem(base, token_dtype=np.uint16)
    with pytest.raises(OptionError, match="give token_dtype"):
        forager.TokensWithAuxDataset.create_from_index_on_filesystem(base)


# --- some of the samples --------------------------------------------------------------------------------------------


def test_some_samples() -> None:
    some = forager.SubsampledDataset(range(100), 0.25, seed=4)
    chosen = [some[at] for at in range(len(some))]
    assert len(set(chosen)) == 25 and chosen == sorted(chosen)
    mixed = forager.SubsampledDataset(range(100), 0.25, seed=4, random_order=True)
    assert sorted(mixed.__getitems__(np.arange(25))) == chosen
    assert mixed.__getitems__(np.arange(25)) != chosen
    for factor in (0, -1, 1.5, float("nan")):
        with pytest.raises(OptionError):
            forager.SubsampledDataset(range(100), factor)


def test_some_samples_of_a_dataset(base: Path) -> None:
    forager.create_default_jsonl_indexer(base)()
    with forager.JsonlDataset.create_from_index_on_filesystem(base) as dataset:
        some = forager.SubsampledDataset(dataset, 0.7, seed=0)
        assert some.__getitems__([1, 0]) == [some[1], some[0]]
