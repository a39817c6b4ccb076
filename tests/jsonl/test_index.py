"""Indexing text files: which lines are samples, which files are found, and what is written."""

from __future__ import annotations

import json
import os
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from loaderx import errors
from loaderx._core.checksum import hash64
from loaderx.jsonl import Index, build_index, scan
from tests.jsonl.oracle import rows_of
from tests.jsonl.samples import samples_of, write

TEXTS = [
    b'{"a": 1}\n{"b": 2}\n',
    b"",
    b'\xef\xbb\xbf{"mark": 1}\r\n\r\n{"crlf": 2}\r\n',
    b'\n \t\n{"blank": 1}\n\n',
    '{"u": "a\u2028b\u0085c\u2029"}\n{"n": "\0"}'.encode(),
    b"   ",
    b'  {"indented": 1}\n{"no end": 1}',
]


@pytest.mark.parametrize("threads", [0, 1, 3])
def test_lines_as_they_come(threads: int, tmp_path: Path) -> None:
    index = build_index(write(tmp_path, TEXTS), threads=threads)
    assert index.locations.tolist() == rows_of(TEXTS)
    assert index.locations.dtype == np.uint64
    assert [Path(path).name for path in index.paths] == [f"{i}.jsonl" for i in range(len(TEXTS))]
    assert len(index) == 9
    assert samples_of(index)[2] == b'{"mark": 1}\r\n'
    assert [Path(path).name for path in index.unfinished] == ["4.jsonl", "6.jsonl"]


def test_what_is_on_disk(tmp_path: Path) -> None:
    first, names = b"1\n22\n", b"b.jsonl\nsub/a.jsonl\n"
    write(tmp_path, {"b.jsonl": first, "sub/a.jsonl": b"333"})
    build_index(tmp_path)
    folder = tmp_path / "index"
    assert sorted(os.listdir(tmp_path)) == ["b.jsonl", "index", "sub"]
    assert sorted(os.listdir(folder)) == ["file_location.txt", "index.json", "sample_locations.bin"]
    assert (folder / "file_location.txt").read_bytes() == names
    rows = np.array([[0, 0, 2], [0, 2, 3], [1, 0, 3]], "<u8").tobytes()
    assert (folder / "sample_locations.bin").read_bytes() == rows
    mtimes = [os.stat(tmp_path / name).st_mtime_ns for name in ("b.jsonl", "sub/a.jsonl")]
    assert json.loads((folder / "index.json").read_bytes()) == {
        "format": "loaderx-jsonl-index",
        "version": 1,
        "count": 3,
        "pattern": "**/*.jsonl",
        "file_location.txt": {"size": 20, "xxh3_64": f"{hash64(names):016x}"},
        "sample_locations.bin": {"size": 72, "xxh3_64": f"{hash64(rows):016x}"},
        "files": [
            {
                "size": 5,
                "mtime_ns": mtimes[0],
                "fingerprint": f"{hash64(first):016x}",
                "indexed_bytes": 5,
                "unfinished_sample": None,
            },
            {
                "size": 3,
                "mtime_ns": mtimes[1],
                "fingerprint": f"{hash64(b'333'):016x}",
                "indexed_bytes": 0,
                "unfinished_sample": 2,
            },
        ],
    }


def test_pieces_of_a_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    for size in (1, 2, 3, 7, 64, 1000):
        monkeypatch.setattr(scan, "PIECE_BYTES", size + 2)  # at least a byte-order mark
        texts = []
        for density in (0.5, 0.1, 0.01, 0.0):
            text = rng.choice(np.frombuffer(b"ab \t\r", np.uint8), 4000)
            text[rng.random(4000) < density] = 10
            texts.append(text.tobytes())
        texts += [b"\xef\xbb\xbf" + texts[0], b" " * 3000 + b"\n" + b" " * 3000 + b"x"]
        for threads in (1, 3):
            base = write(tmp_path / f"{size}-{threads}", texts)
            assert build_index(base, threads=threads).locations.tolist() == rows_of(texts)


def test_a_line_of_many_pieces(tmp_path: Path) -> None:
    long = b'"' + b"x" * (5 * scan.PIECE_BYTES) + b'"\n'
    texts = [b"1\n" + long + b"2\n", long[:-1]]
    index = build_index(write(tmp_path, texts), threads=2)
    assert index.locations.tolist() == rows_of(texts)
    assert len(index) == 4


def test_a_single_file(tmp_path: Path) -> None:
    write(tmp_path, {"one.txt": b"a\nb\n", "two.txt": b"c\n"})
    index = build_index(tmp_path / "one.txt")
    assert index.paths == [str(tmp_path / "one.txt")]
    assert index.folder == tmp_path / "one.txt.index"
    assert index.base == tmp_path
    again = Index.open(tmp_path / "one.txt")
    assert again.locations.tolist() == [[0, 0, 2], [0, 2, 2]]
    assert again.facts is not None
    assert again.facts.pattern is None


def test_an_index_elsewhere(tmp_path: Path) -> None:
    write(tmp_path / "data", [b"1\n"])
    build_index(tmp_path / "data", index_folder="deep")
    assert build_index(tmp_path / "data", index_folder=tmp_path / "other").folder == tmp_path / "other"
    assert sorted(os.listdir(tmp_path / "data")) == ["0.jsonl", "deep"]
    assert len(Index.open(tmp_path / "data", index_folder="deep")) == 1
    with pytest.raises(errors.OptionError, match="a folder of its own") as caught:
        build_index(tmp_path / "data", index_folder=".")
    assert caught.value.option == "index_folder"


def test_an_index_pickles_by_its_path(tmp_path: Path) -> None:
    index = build_index(write(tmp_path, [b"1\n" * 100_000]))
    data = pickle.dumps(index)
    assert len(data) < 1000
    again = pickle.loads(data)
    assert again.locations.tolist() == index.locations.tolist()
    assert again.paths == index.paths
    single = build_index(tmp_path / "0.jsonl")
    assert pickle.loads(pickle.dumps(single)).folder == tmp_path / "0.jsonl.index"


def test_the_locations_are_read_only(tmp_path: Path) -> None:
    for texts in ([b"1\n"], [b""]):
        index = build_index(write(tmp_path, texts))
        assert index.locations.shape == (len(index), 3)
        with pytest.raises(ValueError, match="read-only"):
            index.locations[:] = 0


def test_progress_is_told_in_bytes(tmp_path: Path) -> None:
    write(tmp_path, [b"1\n" * 10, b"2\n" * 20])
    told: list[tuple[int, int | None]] = []
    build_index(tmp_path, progress=lambda done, total: told.append((done, total)))
    assert told[-1] == (60, 60)
    assert [done for done, _ in told] == sorted(done for done, _ in told)
    with pytest.raises(errors.OptionError, match="progress"):
        build_index(tmp_path, progress="yes")  # type: ignore[arg-type]


def test_arguments_outside_their_range(tmp_path: Path) -> None:
    write(tmp_path, [b"1\n"])
    wrong: list[tuple[str, dict[str, Any]]] = [
        ("threads", {"threads": -1}),
        ("allow_outside", {"allow_outside": "yes"}),
        ("pattern", {"pattern": ""}),
        ("pattern", {"pattern": "/x/*"}),
        ("pattern", {"pattern": "../*.jsonl"}),
        ("pattern", {"pattern": "*.parquet"}),
    ]
    for option, options in wrong:
        with pytest.raises(errors.OptionError) as caught:
            build_index(tmp_path, **options)
        assert caught.value.option == option
    assert os.listdir(tmp_path) == ["0.jsonl"]
    with pytest.raises(FileNotFoundError):
        build_index(tmp_path / "nowhere")
