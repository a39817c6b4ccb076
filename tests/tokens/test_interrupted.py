"""Runs that are cut off: killed before each of their operations on files, and gone on with."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from loaderx import DocumentError, StateMismatchError, StoreLockedError, TokenizeError, Zrecord
from loaderx.store import files
from loaderx.tokens import tokenize
from tests.store.children import finishes_before, other_process
from tests.tokens.kit import EOS, contents, samples_of, some_parts, some_texts, utf8, write_jsonl

TEXTS = some_texts(40, seed=1)
#: Each with several windows, and a rest between them.
RUNS: dict[str, tuple[Callable[[Path], Any], dict[str, Any]]] = {
    "stream": (lambda folder: TEXTS, {"sample_size": 16, "window": 9, "last": "pad"}),
    "drop": (lambda folder: (text for text in TEXTS), {"sample_size": 16, "window": 30}),
    "keep": (lambda folder: TEXTS, {"sample_size": 16, "window": 15, "last": "keep"}),
    "documents": (lambda folder: TEXTS, {"sample_size": None, "window": 15}),
    "best_fit": (lambda folder: TEXTS, {"sample_size": 16, "window": 15, "packing": "best_fit"}),
    "sides": (
        lambda folder: some_parts(20),
        {"sample_size": 16, "window": 8, "side_streams": ("document_ids", "loss_mask")},
    ),
    "files": (
        lambda folder: [
            write_jsonl(folder / "a.jsonl", ({"text": text} for text in TEXTS[:11])),
            write_jsonl(folder / "b.jsonl", ({"text": text} for text in [*TEXTS[11:], ""])),
        ],
        {"sample_size": 16, "window": 10, "on_error": "skip"},
    ),
}


#: Where the kills of each begin, so that together they meet every kind of operation.
RUN_NUMBERS = {kind: number for number, kind in enumerate(RUNS)}


def operations(call: Callable[[], Any]) -> int:
    """Return how many operations on files a call makes."""
    seen = itertools.count()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(files, "observe", lambda *_: next(seen))
        call()
    return next(seen)


@pytest.mark.parametrize("kind", RUNS)
def test_killed_anywhere_a_run_goes_on_to_the_same_files(tmp_path: Path, kind: str, size: str) -> None:
    make, options = RUNS[kind]

    def run(dest: str) -> Any:
        return tokenize(make(tmp_path), tmp_path / dest / "t", utf8, eos_id=EOS, **options)

    whole = run("whole")
    expected = contents(tmp_path / "whole")
    n_operations = operations(lambda: run("counted"))
    step = 1 if size == "full" else max(3, n_operations // 20)
    for number in range(RUN_NUMBERS[kind] % step + 1, n_operations + 1, step):
        dest = f"killed{number}"
        assert not finishes_before(number, lambda dest=dest: run(dest))
        result = run(dest)
        assert contents(tmp_path / dest) == expected, number
        assert (result.documents, result.samples, result.tokens, result.dropped_tokens, result.skipped) == (
            whole.documents, whole.samples, whole.tokens, whole.dropped_tokens, whole.skipped
        )  # fmt: skip


@pytest.mark.parametrize("kind", ["stream", "sides", "files"])
def test_killed_again_and_again(tmp_path: Path, kind: str) -> None:
    make, options = RUNS[kind]

    def run(dest: str) -> Any:
        return tokenize(make(tmp_path), tmp_path / dest / "t", utf8, eos_id=EOS, **options)

    run("whole")
    kills = 0
    # A run that gets a little farther each time.
    while not finishes_before(25 + kills, lambda: run("killed")):
        kills += 1
    assert kills > 3
    assert run("killed").was_complete
    assert contents(tmp_path / "killed") == contents(tmp_path / "whole")


@pytest.mark.parametrize("exchanges", [True, False])
def test_killed_while_it_replaces_another(
    tmp_path: Path, exchanges: bool, monkeypatch: pytest.MonkeyPatch, size: str
) -> None:
    if not exchanges:
        monkeypatch.setattr(files, "exchange", lambda *_: False)
    options: dict[str, Any] = {"eos_id": EOS, "sample_size": 16, "window": 25}

    def replace(dest: str) -> Any:
        return tokenize(TEXTS, tmp_path / dest / "t", utf8, overwrite=True, **options)

    def old(dest: str) -> None:
        tokenize(TEXTS[1:], tmp_path / dest / "t", utf8, **options)

    old("whole")
    n_operations = operations(lambda: replace("whole"))
    expected = contents(tmp_path / "whole")
    old("old")
    before = contents(tmp_path / "old" / "t")
    for number in range(1, n_operations + 1, 1 if size == "full" else 7):
        dest = f"killed{number}"
        old(dest)
        assert not finishes_before(number, lambda dest=dest: replace(dest))
        there = tmp_path / dest / "t"
        if exchanges:  # without it there is a moment in which nothing has the name
            assert contents(there) in (before, contents(tmp_path / "whole" / "t")), number
        replace(dest)
        assert contents(tmp_path / dest) == expected, number


def test_an_error_keeps_what_was_written(tmp_path: Path) -> None:
    records: list[Any] = [{"text": text} for text in TEXTS]
    records[33] = {"text": None}
    options: dict[str, Any] = {"eos_id": EOS, "sample_size": 16, "window": 10}
    with pytest.raises(DocumentError, match="document 33"):
        tokenize(records, tmp_path / "t", utf8, **options)
    assert [path.name for path in tmp_path.iterdir()] == ["t.unfinished"]
    encoded = []

    def encode(text: str) -> list[int]:
        encoded.append(text)
        return utf8(text)

    encode.__module__, encode.__qualname__ = utf8.__module__, utf8.__qualname__
    result = tokenize(records, tmp_path / "t", encode, on_error="skip", **options)
    # Those of the first window are looked at again, to know the encoder by.
    assert encoded == TEXTS[:10] + [text for at, text in enumerate(TEXTS) if at >= 30 and at != 33]
    assert result.skipped == {"null": 1}
    tokenize(records, tmp_path / "u", utf8, on_error="skip", **options)
    assert contents(tmp_path / "t") == contents(tmp_path / "u")


def test_an_error_before_anything_was_written_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(DocumentError, match="document 1"):
        tokenize(["one", ""], tmp_path / "deep" / "t", utf8, eos_id=EOS)
    assert list(tmp_path.iterdir()) == []


def interrupted(tmp_path: Path, source: Any, **options: Any) -> None:
    """Leave a run that stopped at a bad document."""
    with pytest.raises(DocumentError):
        tokenize([*source, None], tmp_path / "t", utf8, eos_id=EOS, sample_size=16, window=10, **options)


def test_a_run_goes_on_with_the_same_options_only(tmp_path: Path) -> None:
    interrupted(tmp_path, TEXTS)
    with pytest.raises(StateMismatchError, match="packing was 'stream', and is 'best_fit'") as caught:
        tokenize(
            [*TEXTS, None], tmp_path / "t", utf8, eos_id=EOS, sample_size=16, window=10, packing="best_fit"
        )
    assert caught.value.mismatches == {"packing": ("stream", "best_fit"), "last": ("drop", "pad")}
    with pytest.raises(StateMismatchError, match=r"source\.records was 41, and is 40"):
        tokenize(TEXTS, tmp_path / "t", utf8, eos_id=EOS, sample_size=16, window=10)
    with pytest.raises(StateMismatchError, match=r"encode was 'tests\.tokens\.kit\.utf8'"):
        tokenize([*TEXTS, None], tmp_path / "t", len, eos_id=EOS, sample_size=16, window=10)
    tokenize(TEXTS, tmp_path / "t", utf8, eos_id=EOS, sample_size=16, window=10, overwrite=True)
    assert [path.name for path in tmp_path.iterdir()] == ["t"]


class Sequence:
    """Records that are not in memory."""

    def __init__(self, records: list[Any]) -> None:
        self.records = records
        self.n_read = 0

    def __len__(self) -> int:
        return len(self.records)

    def __getitem__(self, index: int) -> Any:
        self.n_read += 1
        return self.records[index]


@pytest.mark.parametrize("make", [list, tuple, Sequence])
@pytest.mark.parametrize("kind", ["text", "object"])
def test_other_records_in_memory_are_another_source(tmp_path: Path, make: Any, kind: str) -> None:
    def source(texts: list[str]) -> Any:
        return make(texts if kind == "text" else [{"text": text, "tags": [1, None, {2.5}]} for text in texts])

    texts = [f"{number}\ud800é" for number in range(300)]
    options: dict[str, Any] = {"eos_id": EOS, "sample_size": 8, "dtype": "uint16"}
    tokenize(source(texts), tmp_path / "t", surrogates, **options)
    assert tokenize(source(list(texts)), tmp_path / "t", surrogates, **options).was_complete
    for at in (0, 299) if make is Sequence else (0, 150, 299):
        others = [*texts]
        others[at] = others[at][::-1]
        with pytest.raises(StateMismatchError, match=r"the source has other records \(source\.digest\)\."):
            tokenize(source(others), tmp_path / "t", surrogates, **options)


def test_a_sequence_is_not_read_through_to_be_known(tmp_path: Path) -> None:
    records = Sequence(["text"] * 1000)
    tokenize(records, tmp_path / "t", utf8, eos_id=EOS, sample_size=8)
    records.n_read = 0
    assert tokenize(records, tmp_path / "t", utf8, eos_id=EOS, sample_size=8).was_complete
    assert records.n_read == 2 * 64  # some from all over it, and those of the first documents


@pytest.mark.parametrize("length", [0, 1, 2])
def test_short_sequences_are_known_too(tmp_path: Path, length: int) -> None:
    for make in list, Sequence:
        name = f"{make.__name__}{length}"
        for _ in range(2):
            assert tokenize(make(["a"] * length), tmp_path / name, utf8, eos_id=EOS).documents == length


def surrogates(text: str) -> list[int]:
    return list(text.encode("utf-8", "surrogatepass"))


def test_an_iterable_begins_anew(tmp_path: Path) -> None:
    options: dict[str, Any] = {"eos_id": EOS, "sample_size": 16, "window": 10}
    with pytest.raises(DocumentError):
        tokenize(iter([*TEXTS, None]), tmp_path / "t", utf8, **options)
    with pytest.raises(StateMismatchError, match="has 15 records, and the run that was cut off had read 40"):
        tokenize(iter(TEXTS[:15]), tmp_path / "t", utf8, **options)
    tokenize(iter(TEXTS), tmp_path / "t", utf8, **options)
    tokenize(iter(TEXTS), tmp_path / "u", utf8, **options)
    assert contents(tmp_path / "t") == contents(tmp_path / "u")


def stopped_behind_an_append(tmp_path: Path, **options: Any) -> None:
    """Leave a run whose last window is in the store, but not in its progress."""

    def call() -> None:
        tokenize(iter(TEXTS), tmp_path / "t", utf8, eos_id=EOS, sample_size=16, window=10, **options)

    progress: list[int] = []
    seen = itertools.count(1)

    def observe(operation: str, *details: object) -> None:
        number = next(seen)
        if operation == "rename" and str(details[1]).endswith("progress.json"):
            progress.append(number)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(files, "observe", observe)
        tokenize(iter(TEXTS), tmp_path / "counted", utf8, eos_id=EOS, sample_size=16, window=10, **options)
    # The first is written before any window, the second behind the first one.
    assert not finishes_before(progress[2], call)


def test_documents_that_changed_meanwhile_are_noticed(tmp_path: Path) -> None:
    stopped_behind_an_append(tmp_path)
    with pytest.raises(TokenizeError, match="has changed"):
        tokenize(
            (text if at < 15 else text.upper() for at, text in enumerate(TEXTS)),
            tmp_path / "t",
            utf8,
            eos_id=EOS,
            sample_size=16,
            window=10,
        )
    tokenize(iter(TEXTS), tmp_path / "t", utf8, eos_id=EOS, sample_size=16, window=10)
    assert contents(tmp_path / "t") == contents(tmp_path / "counted")


def test_after_a_power_loss_the_records_are_the_same(tmp_path: Path) -> None:
    stopped_behind_an_append(tmp_path)
    # As if only a part of the window had reached the disk.
    with Zrecord(tmp_path / "t.unfinished" / "data") as store:
        n_records = len(store)
        store.delete([n_records - 1])
    tokenize(iter(TEXTS), tmp_path / "t", utf8, eos_id=EOS, sample_size=16, window=10)
    assert samples_of(tmp_path / "t") == samples_of(tmp_path / "counted")


def test_records_that_are_gone_are_named(tmp_path: Path) -> None:
    interrupted(tmp_path, TEXTS)
    with Zrecord(tmp_path / "t.unfinished" / "data") as store:
        store.delete(np.arange(1, len(store)))
    with pytest.raises(TokenizeError, match="has 1 records"):
        tokenize([*TEXTS, None], tmp_path / "t", utf8, eos_id=EOS, sample_size=16, window=10, on_error="skip")


def test_two_runs_at_once_are_refused(tmp_path: Path) -> None:
    def body(pause: Callable[..., None]) -> None:
        def slow() -> Iterator[str]:
            yield from TEXTS
            pause()

        tokenize(slow(), tmp_path / "t", utf8, eos_id=EOS, sample_size=16, window=10)

    with other_process(body), pytest.raises(StoreLockedError, match="another process is writing t"):
        tokenize(iter(TEXTS), tmp_path / "t", utf8, eos_id=EOS, sample_size=16, window=10)
    tokenize(iter(TEXTS), tmp_path / "t", utf8, eos_id=EOS, sample_size=16, window=10)
    assert os.listdir(tmp_path) == ["t"]
