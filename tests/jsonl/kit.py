"""Text files for the tests, an index of them by plain Python, and a store of lines."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from loaderx import Zrecord
from tests.jsonl.oracle import MARK, lines_of


def without_end(line: bytes) -> bytes:
    """Return a line without its line end."""
    if line.endswith(b"\r\n"):
        return line[:-2]
    return line.removesuffix(b"\n")


def write_files(base: Path, files: Mapping[str, bytes]) -> list[bytes]:
    """Write text files and an index of them, as data-forager has it; return their samples without line ends."""
    rows, samples = [], []
    for number, (name, data) in enumerate(files.items()):
        (base / name).parent.mkdir(parents=True, exist_ok=True)
        (base / name).write_bytes(data)
        for at, size in lines_of(data):
            rows.append((number, at, size))
            samples.append(without_end(data[at : at + size]))
    write_index(base, list(files), rows)
    return samples


def write_index(base: Path, names: Sequence[str], rows: Sequence[tuple[int, int, int]]) -> None:
    """Write an index of two files, as data-forager does."""
    folder = base / "index"
    folder.mkdir(parents=True, exist_ok=True)
    np.array(rows, np.uint64).astype("<u8").tofile(folder / "sample_locations.bin")
    (folder / "file_location.txt").write_text("".join(f"{name}\n" for name in names), encoding="utf-8")


def write_line_store(path: Path, lines: Sequence[bytes], codec: Any = "zstd") -> Path:
    """Write a store of lines."""
    with Zrecord(path, codec) as store:
        lens = [len(line) for line in lines]
        store.append_var(b"".join(lines), np.cumsum([0, *lens])[:-1], lens)
    (path / "lines.json").write_text(json.dumps({"format": "loaderx-lines", "version": 1}))
    return path


def some_object(rng: random.Random, number: int) -> dict[str, Any]:
    """Return an object for a line of JSON."""
    text = "".join(rng.choices('abc äöü \u2028\u0085\n\0"\\ \U0001f600', k=rng.randrange(60)))
    return {"n": number, "text": text, "list": [rng.random() for _ in range(rng.randrange(4))], "none": None}


def write_corpus(base: Path, n: int = 500, n_files: int = 3) -> list[dict[str, Any]]:
    """Write JSONL files of all kinds of line ends, and their index; return the objects."""
    rng = random.Random(0)
    objects = [some_object(rng, number) for number in range(n)]
    files = {}
    for number, part in enumerate(np.array_split(np.arange(n), n_files)):
        end = (b"\n", b"\r\n", b"\n \t\n\r\n")[number % 3]
        lines = [json.dumps(objects[i], ensure_ascii=bool(i % 2)).encode() for i in part]
        data = b"".join(line + end for line in lines)
        if number % 3 == 2:
            data = MARK + data.removesuffix(end)
        files[f"part {number} [ü]/#{number}.jsonl"] = data
    write_files(base, files)
    return objects
