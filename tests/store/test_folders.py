"""Stores of one folder that are changed together: one writer at a time, and what a killed one left is taken back."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from loaderx import Zrecord
from loaderx.errors import StoreLockedError, ZrecordError
from loaderx.store import folders
from loaderx.store.folders import appended_together, held, is_store_name, place_to_build

SCRATCH = ".together"
JOURNAL = ".appending.json"


def add(path: Path, n: int) -> None:
    with Zrecord(path) as store:
        store.append(bytes(n), n, 1)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("a.zr", "b.zr"):
        add(tmp_path / "f" / name, 5)
    return tmp_path / "f"


def lengths(folder: Path) -> list[int]:
    found = []
    for name in ("a.zr", "b.zr"):
        with Zrecord(folder / name, mode="r") as store:
            found.append(len(store))
    return found


def append_both(folder: Path, second: int = 3) -> None:
    stores = [folder / "a.zr", folder / "b.zr"]
    with held(folder, SCRATCH), appended_together(folder, stores):
        add(stores[0], 3)
        if second < 0:
            raise ValueError("broken off")
        add(stores[1], second)


def test_both_or_none(folder: Path) -> None:
    append_both(folder)
    assert lengths(folder) == [8, 8]
    with pytest.raises(ValueError, match="broken off"):
        append_both(folder, -1)
    assert lengths(folder) == [8, 8]
    assert sorted(os.listdir(folder)) == ["a.zr", "b.zr"]


def test_one_writer_at_a_time(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folders, "_TIMEOUT_S", 0.05)
    with held(folder, SCRATCH), pytest.raises(StoreLockedError, match="another writer is at its stores"):
        append_both(folder)
    append_both(folder)
    assert lengths(folder) == [8, 8]


def test_what_a_killed_writer_left_is_taken_back(folder: Path) -> None:
    # As one is that was killed between its two commits.
    (folder / JOURNAL).write_text(json.dumps({"records": {"a.zr": 5, "b.zr": 5, "gone.zr": 1}}))
    add(folder / "a.zr", 4)
    (folder / f".{SCRATCH}.partial-1-0f").mkdir()
    append_both(folder)
    assert lengths(folder) == [8, 8]
    assert sorted(os.listdir(folder)) == ["a.zr", "b.zr"]


def test_what_is_whole_stays(folder: Path) -> None:
    (folder / JOURNAL).write_text(json.dumps({"records": {"a.zr": 5, "b.zr": 5}}))
    add(folder / "a.zr", 4)
    add(folder / "b.zr", 4)
    append_both(folder)
    assert lengths(folder) == [12, 12]


@pytest.mark.parametrize("text", ["", "{", "[]", '{"records": 3}', '{"records": {"a.zr": "x"}}'])
def test_a_damaged_journal_is_no_reason_to_delete(folder: Path, text: str) -> None:
    (folder / JOURNAL).write_text(text)
    add(folder / "a.zr", 4)
    with pytest.raises(ZrecordError, match=r"\.appending\.json, which says how many .* is damaged"):
        append_both(folder)
    assert lengths(folder) == [9, 5]


def test_where_others_files_are_it_is_built_within(folder: Path, tmp_path: Path) -> None:
    assert place_to_build(folder, SCRATCH) == tmp_path / f"f{SCRATCH}"
    assert place_to_build(tmp_path / "new", SCRATCH) == tmp_path / f"new{SCRATCH}"
    (folder / "notes.txt").write_text("mine")
    assert place_to_build(folder, SCRATCH) == folder / SCRATCH


@pytest.mark.parametrize(
    ("name", "is_one"),
    [
        ("a", True),
        ("a.b", True),
        ("\u00fc", True),
        ("x" * 200, True),
        ("", False),
        ("..", False),
        ("a/b", False),
        ("a\0", False),
        ("x" * 201, False),
        ("\ud800", False),
    ],
)
def test_names_of_stores(name: str, is_one: bool) -> None:
    assert is_store_name(name) == is_one
