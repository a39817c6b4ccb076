"""Journals and marks whose checks are right and whose content no writer makes."""

from __future__ import annotations

import os
import struct
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from loaderx import StoreWarning, Zrecord
from loaderx._core.checksum import checksum
from loaderx._core.maps import FileMap
from loaderx.store import journal, mark
from loaderx.store.format import META_BYTES
from loaderx.store.header import Header
from loaderx.store.journal import ROW, Journal
from loaderx.store.table import read_entries
from tests.store.samples import contents, fill

RECORDS = [bytes([number]) * 50 for number in range(20)]


def row_of(path: Path, index: int) -> np.ndarray:
    rows = np.zeros(1, ROW)
    rows["index"] = index
    rows["old"] = rows["new"] = read_entries(FileMap(path / "meta.zr", META_BYTES, False), np.array([index]))
    return rows


def with_new(rows: np.ndarray, **fields: int) -> np.ndarray:
    for name, value in fields.items():
        rows["new"][name] = value
    return rows


FORGERIES: dict[str, Callable[[Journal], Journal]] = {
    "a length beyond every number": lambda good: replace(good, new=Header(*good.new.tail, 1 << 40)),
    "more records than before": lambda good: replace(good, new=Header(*good.new.tail, 200)),
    "a chunk of the tail beyond every number": lambda good: replace(good, new=Header(1 << 20, 0, 20)),
    "a tail beyond every chunk": lambda good: replace(good, new=Header(0, 1 << 40, 20)),
    "a record in a chunk that is not there": lambda good: replace(
        good, rows=with_new(good.rows, chunk_id=999)
    ),
    "a record that grows": lambda good: replace(good, rows=with_new(good.rows, phys_length=90)),
    "data shorter than its rows": lambda good: replace(good, data=good.data[:10]),
    "the same record twice": lambda good: replace(
        good, rows=np.concatenate([good.rows] * 2), data=memoryview(bytes(good.data) * 2)
    ),
    "a record that there is not": lambda good: replace(good, rows=np.array(good.rows, copy=True)),
}


@pytest.mark.parametrize("forgery", FORGERIES)
def test_a_journal_that_no_writer_makes_is_set_aside(forgery: str, tmp_path: Path) -> None:
    path = tmp_path / "s.zr"
    with Zrecord(path, "raw") as z:
        fill(z, RECORDS)
    header = Header(0, 1000, 20)
    rows = with_new(row_of(path, 3), offset=0)
    forged = FORGERIES[forgery](Journal(header, header, rows, memoryview(RECORDS[3])))
    if forgery == "a record that there is not":
        forged.rows["index"] = 20
    with journal.Keeper(path) as keeper:
        keeper.stage(forged)
    with pytest.warns(StoreWarning, match="not carried out"), Zrecord(path, mode="r") as z:
        assert bytes(z.gather_packed(np.arange(20))[0]) == b"".join(RECORDS)
    with pytest.warns(StoreWarning, match="set aside"), Zrecord(path, "raw") as z:
        fill(z, [b"x"])
    assert contents(path) == [*RECORDS, b"x"] and list(path.glob("journal-aside-*.zr"))


def forged_mark(tail_chunk: int, length: int, tail_offset: int) -> bytes:
    head = struct.pack("<4sHHIQQ16s", b"ZMRK", 1, 0, tail_chunk, length, tail_offset, b"another boot....")
    return head + struct.pack("<I", checksum(head))


@pytest.mark.parametrize(
    "put",
    [
        lambda path: path.write_bytes(forged_mark(0xFFFFFFFF, 0, 0)),
        lambda path: path.write_bytes(forged_mark(0, 1 << 60, 0)),
        lambda path: path.write_bytes(forged_mark(0, 0, 1 << 60)),
        lambda path: path.write_bytes(bytes(5000)),
        lambda path: os.mkfifo(path),
        lambda path: path.symlink_to(path.name),
        lambda path: path.mkdir(),
    ],
    ids=["chunk", "length", "offset", "too large", "fifo", "loop", "directory"],
)
def test_a_mark_that_no_writer_makes_is_not_followed(put: Callable[[Path], Any], tmp_path: Path) -> None:
    path = tmp_path / "s.zr"
    with Zrecord(path, "raw") as z:
        fill(z, RECORDS)
    put(path / "mark.zr")
    with pytest.warns(StoreWarning, match=r"mark\.zr is damaged"), Zrecord(path, mode="r") as z:
        assert bytes(z.gather_packed(np.arange(20))[0]) == b"".join(RECORDS)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", StoreWarning)
        with Zrecord(path, "raw") as z:
            fill(z, [b"x"])
    assert contents(path) == [*RECORDS, b"x"] and not os.path.lexists(path / "mark.zr")
    assert mark.read_mark(path) is None


def large_hole(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(5 << 30)


def forged_size(path: Path) -> None:
    """Write a head that is right, of a journal with more bytes than there is memory."""
    head = journal._HEAD.pack(b"ZJNL", 1, 1 << 55, 1 << 60, 0, 0, 20, 0, 0, 20, 0, 0, 0)[:-4]
    path.write_bytes(head + struct.pack("<I", checksum(head)) + bytes(1000))


@pytest.mark.parametrize(
    "put",
    [
        lambda path: path.mkdir(),
        lambda path: (path / "x").mkdir(parents=True),
        lambda path: os.mkfifo(path),
        lambda path: path.symlink_to(path.name),
        large_hole,
        forged_size,
    ],
    ids=["directory", "full directory", "fifo", "loop", "5 GiB", "a size beyond memory"],
)
def test_what_is_no_journal_stops_nobody(put: Callable[[Path], Any], tmp_path: Path) -> None:
    path = tmp_path / "s.zr"
    with Zrecord(path, "raw") as z:
        fill(z, RECORDS)
    put(path / "journal.zr")
    with Zrecord(path, mode="r") as z:
        assert bytes(z.gather_packed(np.arange(20))[0]) == b"".join(RECORDS)
    with Zrecord(path, "raw") as z:
        fill(z, [b"x"])
        z.delete([20])
        z.compact()
    assert contents(path) == RECORDS and not os.path.lexists(path / "journal.zr")
