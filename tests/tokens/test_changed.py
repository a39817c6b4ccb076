"""Source files that change while a run reads them: never taken for what they were."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from loaderx import StateMismatchError, TokenizeError
from loaderx.tokens import tokenize
from tests.tokens.kit import EOS, samples_of, utf8, write_jsonl

N = 5000
OPTIONS: dict[str, Any] = {"eos_id": EOS, "sample_size": None, "window": 100, "progress": False}


def lines(first: int, n: int = N) -> list[dict[str, str]]:
    return [{"text": f"{number:06d}"} for number in range(first, first + n)]


LINE_BYTES = len('{"text": "000000"}\n')


def encoder(change: Callable[[], None], at: int = 5) -> Callable[[str], list[int]]:
    """Return an encoder that changes something when it is called for a certain time."""
    calls = 0

    def encode(text: str) -> list[int]:
        nonlocal calls
        calls += 1
        if calls == at:
            change()
        return utf8(text)

    return encode


def rewrite_end(path: Path) -> None:
    with path.open("r+b") as file:
        file.seek(LINE_BYTES * (N - 10))
        file.write(b'{"text": "XXXXXX"}\n' * 10)
    os.utime(path, ns=(1, 1))  # two writes within one tick of the system's clock have one time


def replace(path: Path) -> None:
    os.replace(write_jsonl(path.with_name("other"), lines(N)), path)


CHANGES: dict[str, Callable[[Path], None]] = {
    "cut at a line's end": lambda path: os.truncate(path, LINE_BYTES * (N // 2)),
    "cut within a line": lambda path: os.truncate(path, LINE_BYTES * (N // 2) + 5),
    "emptied": lambda path: os.truncate(path, 0),
    "rewritten in place": rewrite_end,
    "written to, and of the same bytes": lambda path: os.utime(path, ns=(1, 1)),
    "replaced": replace,
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=list(CHANGES))
def test_a_file_that_changes_while_it_is_read_is_an_error(
    tmp_path: Path, change: Callable[[Path], None]
) -> None:
    path = write_jsonl(tmp_path / "in" / "a.jsonl", lines(0))
    encode = encoder(lambda: change(path), at=N // 10)
    with pytest.raises(TokenizeError, match=r"a\.jsonl: was changed while the run read it") as caught:
        tokenize(path, tmp_path / "t", encode, **OPTIONS)
    assert caught.value.path == path and not (tmp_path / "t").exists()
    # What was written may be of both: it is not gone on with, whatever the file is now.
    write_jsonl(path, lines(0))
    with pytest.raises(StateMismatchError, match="changed_while_read"):
        tokenize(path, tmp_path / "t", encode, **OPTIONS)
    tokenize(path, tmp_path / "t", encode, overwrite=True, **OPTIONS)
    assert samples_of(tmp_path / "t") == [utf8(line["text"]) for line in lines(0)]


@pytest.mark.parametrize("change", [replace, CHANGES["cut at a line's end"]], ids=["replaced", "cut"])
@pytest.mark.parametrize("changed", ["a.jsonl", "b.jsonl"])
def test_one_of_several_files(tmp_path: Path, change: Callable[[Path], None], changed: str) -> None:
    """Before the run gets to it, and when it is through with it."""
    for name in "a.jsonl", "b.jsonl":
        write_jsonl(tmp_path / "in" / name, lines(0))
    encode = encoder(lambda: change(tmp_path / "in" / changed), at=5 if changed == "b.jsonl" else N + 1000)
    with pytest.raises(TokenizeError, match=changed):
        tokenize(tmp_path / "in", tmp_path / "t", encode, **OPTIONS)
    assert not (tmp_path / "t").exists()


def test_what_is_appended_meanwhile_is_not_read(tmp_path: Path) -> None:
    path = write_jsonl(tmp_path / "a.jsonl", lines(0))

    def append() -> None:
        with path.open("a") as file:
            file.write('{"text": "more"}\n' * 100)

    assert tokenize(path, tmp_path / "t", encoder(append), **OPTIONS).documents == N
    assert samples_of(tmp_path / "t") == [utf8(line["text"]) for line in lines(0)]


def test_a_copy_in_place_of_a_file_that_is_read_later_is_the_file(tmp_path: Path) -> None:
    for name in "a.jsonl", "b.jsonl":
        write_jsonl(tmp_path / "in" / name, lines(0))

    def copy() -> None:
        (tmp_path / "copy").write_bytes((tmp_path / "in" / "b.jsonl").read_bytes())
        os.replace(tmp_path / "copy", tmp_path / "in" / "b.jsonl")

    assert tokenize(tmp_path / "in", tmp_path / "t", encoder(copy), **OPTIONS).documents == 2 * N
