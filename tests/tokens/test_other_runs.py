"""A run does not go on with, or pass for, one of another source, text function or encoder; nor with a damaged one."""

from __future__ import annotations

import json
import shutil
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from loaderx import SchemaError, StateMismatchError
from loaderx.jsonl import JsonlDataset, build_index, write_lines
from loaderx.tokens import tokenize
from tests.tokens.kit import EOS, contents, edit, samples_of, some_texts, utf8, write_jsonl

TEXTS = some_texts(700, seed=17)
OTHERS = some_texts(700, seed=18)
OPTIONS: dict[str, Any] = {"eos_id": 1, "sample_size": 7, "window": 20, "progress": False}


class Vocabulary:
    """Encoders whose methods have one name."""

    def __init__(self, first: int, stops_at: int = 1 << 60) -> None:
        self.first = first
        self.left = stops_at

    def encode(self, text: str) -> list[int]:
        self.left -= 1
        if self.left == 0:
            raise KeyboardInterrupt
        return shifted(self.first, text)


def shifted(first: int, text: str) -> list[int]:
    return [first + byte for byte in text.encode()]


def reads(name: str) -> Any:
    """Return functions that have one name, and read another key each."""
    return lambda record: record[name]


RECORDS = [{"a": a, "b": b} for a, b in zip(TEXTS, OTHERS, strict=True)]
#: For each what a run is given, and what one of the same names is given that is another.
PAIRS: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "instance": ({"encode": Vocabulary(0).encode}, {"encode": Vocabulary(100).encode}, "ids"),
    "partial": ({"encode": partial(shifted, 0)}, {"encode": partial(shifted, 100)}, "ids"),
    "text": ({"source": RECORDS, "text": reads("a")}, {"source": RECORDS, "text": reads("b")}, "texts"),
    "list": ({}, {"source": OTHERS}, ""),  # known by all of its records
    "iterable": ({"source": TEXTS}, {"source": OTHERS}, "texts"),
    "empty iterable": ({"source": TEXTS}, {"source": []}, "texts"),
}


def run(folder: Path, given: dict[str, Any], **options: Any) -> Any:
    arguments = {"source": TEXTS, "encode": Vocabulary(0).encode, **OPTIONS, **given, **options}
    return tokenize(arguments.pop("source"), folder / "t", arguments.pop("encode"), **arguments)


@pytest.mark.parametrize("is_complete", [True, False])
@pytest.mark.parametrize("kind", PAIRS)
def test_another_run_of_the_same_names(tmp_path: Path, kind: str, is_complete: bool) -> None:
    first, second, what = PAIRS[kind]
    if "iterable" in kind:
        first, second = ({**given, "source": iter(given["source"])} for given in (first, second))
    if is_complete:
        run(tmp_path, first)
    else:
        cut_off(tmp_path, first)
    before = contents(tmp_path)
    told = "for its first 20 documents" if what else "the source has other records"
    with pytest.raises(StateMismatchError, match=told) as caught:
        run(tmp_path, second)
    assert list(caught.value.mismatches) == [f"first_documents.{what}" if what else "source.digest"]
    assert contents(tmp_path) == before
    if "iterable" in kind:
        first, second = ({"source": iter(PAIRS[kind][at]["source"])} for at in (0, 1))
    assert run(tmp_path, first).was_complete == is_complete
    expected = run(tmp_path / "new", second)
    result = run(tmp_path, second if "iterable" not in kind else PAIRS[kind][1], overwrite=True)
    assert result.samples == expected.samples
    assert samples_of(tmp_path / "t") == samples_of(tmp_path / "new" / "t")


def cut_off(folder: Path, given: dict[str, Any]) -> None:
    """Leave a run that was stopped behind some windows."""
    calls = 0
    read = given.get("text")

    def text(record: Any) -> str:
        nonlocal calls
        calls += 1
        if calls > 600:
            raise KeyboardInterrupt
        found: str = read(record) if read else record
        return found

    # The same name as the text that a run goes on with.
    if "text" in given:
        text.__module__, text.__qualname__ = given["text"].__module__, given["text"].__qualname__
        given = {**given, "text": text}
    else:
        given = {**given, "encode": stopping(given.get("encode", Vocabulary(0).encode))}
    with pytest.raises(KeyboardInterrupt):
        run(folder, given)
    assert (folder / "t.unfinished" / "progress.json").exists()


def stopping(encode: Any) -> Any:
    if isinstance(encode, partial):
        return partial(StoppingPartial(), *encode.args)
    return Vocabulary(encode.__self__.first, stops_at=600).encode


class StoppingPartial:
    def __init__(self) -> None:
        self.left = 600

    def __call__(self, first: int, text: str) -> list[int]:
        self.left -= 1
        if self.left == 0:
            raise KeyboardInterrupt
        return shifted(first, text)


@pytest.mark.parametrize("is_store", [False, True])
def test_another_dataset_of_the_same_length(tmp_path: Path, is_store: bool) -> None:
    sources: list[Any] = []
    for name, texts in (("a", TEXTS), ("b", [*TEXTS[:-1], "other"]), ("c", OTHERS)):
        write_jsonl(tmp_path / name / "x.jsonl", ({"text": text} for text in texts))
        build_index(tmp_path / name, progress=False)
        if is_store:
            write_lines(tmp_path / name / "x.jsonl", tmp_path / f"{name}.zr")
            sources.append(JsonlDataset(tmp_path / f"{name}.zr"))
        else:
            sources.append(JsonlDataset(tmp_path / name))
    cut_off(tmp_path, {"source": sources[0]})
    for other in sources[2:] if is_store else sources[1:]:
        with pytest.raises(StateMismatchError):
            run(tmp_path, {"source": other})
    assert not run(tmp_path, {"source": sources[0]}).was_complete
    assert run(tmp_path, {"source": sources[0]}).was_complete
    for other in sources[2:] if is_store else sources[1:]:
        with pytest.raises(StateMismatchError):
            run(tmp_path, {"source": other})


def test_an_encoder_that_cannot_encode_the_first_documents_is_another(tmp_path: Path) -> None:
    cut_off(tmp_path, {})

    class Vocabulary:
        def encode(self, text: str) -> list[int]:
            raise KeyError(text)

    encode = Vocabulary().encode
    encode.__func__.__module__, encode.__func__.__qualname__ = utf8.__module__, "Vocabulary.encode"
    encode.__func__.__module__ = __name__
    with pytest.raises(StateMismatchError, match="encode raised KeyError"):
        run(tmp_path, {"encode": encode})


def test_an_iterator_that_was_looked_at_is_read_from_its_beginning(tmp_path: Path) -> None:
    options: dict[str, Any] = {"eos_id": EOS, "sample_size": 16, "window": 10, "progress": False}
    tokenize(iter(TEXTS), tmp_path / "whole", utf8, **options)
    tokenize(iter(TEXTS), tmp_path / "t", utf8, **options)
    assert tokenize(iter(TEXTS), tmp_path / "t", utf8, **options).was_complete
    assert contents(tmp_path / "t") == contents(tmp_path / "whole")


# --- damage ------------------------------------------------------------------------------------------------------

#: What a run believed that read it, and went on elsewhere.
CHANGES: list[dict[str, Any]] = [
    {"place": [1, 2]},
    {"place": [-100, 0, 0, 0]},
    {"place": [100, 0, 0, 0]},
    {"samples": 10},
    {"tokens": 5},
    {"rest": {"tokens": ""}},
    {"skips": {}, "documents": 0},
    {"data": 5},
    {"first_documents": None},
]


@pytest.mark.parametrize("change", CHANGES, ids=[next(iter(change)) for change in CHANGES])
def test_a_damaged_progress_is_not_believed(tmp_path: Path, change: dict[str, Any]) -> None:
    cut_off(tmp_path, {})
    path = tmp_path / "t.unfinished" / "progress.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    with pytest.raises(SchemaError, match=r"progress\.json: is wrong: it is damaged or was edited") as caught:
        run(tmp_path, {})
    assert "overwrite=True" in str(caught.value)
    run(tmp_path, {}, overwrite=True)
    run(tmp_path / "new", {})
    assert contents(tmp_path / "t") == contents(tmp_path / "new" / "t")


FORGED: list[dict[str, Any]] = [
    {"place": [1, 2]},
    {"place": 5},
    {"place": [1e400, 0, 0, 0]},
    {"place": [-100, 0, 0, 0]},
    {"samples": 1e400},
    {"samples": -5},
    {"skips": {"a": 1e400}},
    {"skips": [1]},
    {"rest": {}},
    {"rest": {"tokens": "AAA="}},
    {"tokens": 5},
    {"first_documents": {"documents": 1e400, "texts": "", "ids": ""}},
    {"first_documents": 5},
    {"data": "x"},
]


@pytest.mark.parametrize("change", FORGED, ids=[str(change)[:40] for change in FORGED])
def test_a_forged_progress_is_named(tmp_path: Path, change: dict[str, Any]) -> None:
    cut_off(tmp_path, {})
    edit(tmp_path / "t.unfinished" / "progress.json", **change)
    with pytest.raises(SchemaError, match=r"progress\.json: is wrong"):
        run(tmp_path, {})


@pytest.mark.parametrize("name", ["documents", "skips", "samples", "tokens", "first_documents"])
@pytest.mark.parametrize("value", ["missing", "x", 1e400])
def test_a_forged_manifest_is_named(tmp_path: Path, name: str, value: Any) -> None:
    run(tmp_path, {})
    path = tmp_path / "t" / "tokens.json"
    document = json.loads(path.read_text())
    if value == "missing":
        del document[name]
        path.write_text(json.dumps(document))
        edit(path)
    else:
        edit(path, **{name: value})
    with pytest.raises(SchemaError, match=r"tokens\.json: is wrong"):
        run(tmp_path, {})


def test_the_finished_dataset_was_moved_away(tmp_path: Path) -> None:
    run(tmp_path, {})
    expected = contents(tmp_path / "t")
    cut_off(tmp_path / "cut", {})
    unfinished = tmp_path / "t.unfinished"
    shutil.copytree(tmp_path / "cut" / "t.unfinished", unfinished)
    # As if killed between giving the dataset its name and tidying up.
    shutil.rmtree(unfinished / "data")
    edit(unfinished / "progress.json", data=(tmp_path / "t").stat().st_ino)
    (tmp_path / "t").rename(tmp_path / "moved")
    assert not run(tmp_path, {}).was_complete
    assert contents(tmp_path / "t") == expected and not unfinished.exists()


def test_another_folder_of_its_number_is_not_the_dataset(tmp_path: Path) -> None:
    cut_off(tmp_path, {})
    (tmp_path / "t").mkdir()
    edit(tmp_path / "t.unfinished" / "progress.json", data=(tmp_path / "t").stat().st_ino)
    shutil.rmtree(tmp_path / "t.unfinished" / "data")
    run(tmp_path, {})
    run(tmp_path / "new", {})
    assert contents(tmp_path / "t") == contents(tmp_path / "new" / "t")
