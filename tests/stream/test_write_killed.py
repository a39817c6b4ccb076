"""`Stream.write` killed at any operation on files: columns are there as a whole or not at all, and the next goes on."""

from __future__ import annotations

import os
import shutil
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from loaderx.stream import Stream
from tests.store.children import finishes_before
from tests.stream.test_write import contents, of, read

FIRST = [{"a": b"x" * i, "b": i} for i in range(5)]
SECOND = [{"a": b"y" * i, "b": 10 * i} for i in range(4)]


@pytest.fixture(autouse=True)
def _no_waiting_for_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody pulls the plug here."""
    monkeypatch.setattr(os, "fsync", lambda _descriptor: None)


def write(path: Path, items: list[Any], overwrite: bool) -> None:
    of(*items).write(path, chunk_bytes=20, overwrite=overwrite)


def rows(path: Path) -> list[Any] | None:
    """Return what a folder of columns has, row by row; None: there is none."""
    if not path.exists() or not any(path.iterdir()):
        return None
    columns = read(path / "a.zr"), read(path / "b.zr")
    return [{"a": bytes(a), "b": b} for a, b in zip(*columns, strict=True)]


@pytest.mark.parametrize("way", ["new", "into_an_empty_folder", "append", "overwrite"])
def test_columns(tmp_path: Path, way: str, size: str) -> None:
    start = tmp_path / "start"
    if way == "into_an_empty_folder":
        start.mkdir()
    elif way != "new":
        write(start, FIRST, False)
    before = None if way in ("new", "into_an_empty_folder") else FIRST
    after = {"append": [*FIRST, *SECOND]}.get(way, SECOND)
    found = []
    for number in range(1, 400, 1 if size == "full" else 9):
        folder = tmp_path / str(number)
        path = folder / "c"
        folder.mkdir()
        if start.exists():
            shutil.copytree(start, path)
        ended = finishes_before(number, partial(write, path, SECOND, way == "overwrite"))
        if way == "append":
            # Some of the stores may have the new records: the next writer takes them back.
            write(path, [], False)
        shown = rows(path)
        assert shown in (before, after), number
        found.append(shown)
        write(path, FIRST, False)
        assert rows(path) == [*(shown or []), *FIRST]
        # What is left beside is swept by the next one who builds there.
        write(path, SECOND, True)
        assert [each.name for each in folder.iterdir()] == ["c"]
        assert sorted(each.name for each in path.iterdir()) == ["a.zr", "b.zr"]
        shutil.rmtree(folder)
        if ended:
            break
    assert ended
    assert before in found and after in found


@pytest.mark.parametrize("way", ["new", "append", "overwrite"])
def test_one_store(tmp_path: Path, way: str, size: str) -> None:
    start = tmp_path / "start"
    if way != "new":
        of(1, 2).write(start)
    found = set()
    for number in range(1, 400, 1 if size == "full" else 9):
        folder = tmp_path / str(number)
        path = folder / "a.zr"
        folder.mkdir()
        if start.exists():
            shutil.copytree(start, path)
        stream = Stream.from_shards([[7, 8, 9]])
        ended = finishes_before(
            number, partial(stream.write, path, chunk_bytes=8, overwrite=way == "overwrite")
        )
        shown = tuple(read(path)) if path.exists() else ()
        found.add(shown)
        of(5).write(path)
        assert read(path) == [*shown, 5]
        of(6).write(path, overwrite=True)
        assert list(contents(folder)) == [str(path)]
        shutil.rmtree(folder)
        if ended:
            break
    assert (
        found
        == {"new": {(), (7, 8, 9)}, "append": {(1, 2), (1, 2, 7, 8, 9)}, "overwrite": {(1, 2), (7, 8, 9)}}[
            way
        ]
    )
