"""What the tests of tokens share: documents, encoders that pickle, and what is in a folder, byte for byte."""

from __future__ import annotations

import hashlib
import json
import os
import random
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from loaderx._core.checksum import hash64
from loaderx.tokens import TokensDataset
from tests.tokens.oracle import Token

EOS = 256


def utf8(text: str) -> list[int]:
    """Encode a text as its bytes: an encoder of 256 ids."""
    return list(text.encode())


def utf8_array(text: str) -> Any:
    return np.frombuffer(text.encode(), np.uint8)


def some_texts(n: int, seed: int = 0, longest: int = 60) -> list[str]:
    """Return texts of very different lengths, some of them not ASCII."""
    rng = random.Random(seed)
    return ["".join(rng.choices("abc äß€\n", k=1 + int(longest * rng.random() ** 3))) for _ in range(n)]


def some_parts(n: int, seed: int = 0) -> list[dict[str, Any]]:
    """Return records of parts, some of them empty."""
    rng = random.Random(seed)
    kinds = ["system", "prompt", "response", "thinking", "text", "else"]
    return [
        {
            "parts": [
                {"type": rng.choice(kinds), "text": "xyz"[: rng.randrange(4)] * rng.randrange(5)}
                for _ in range(rng.randrange(5))
            ]
            + [{"type": "response", "text": "end"}]
        }
        for _ in range(n)
    ]


def write_jsonl(path: Path, records: Iterable[Any]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(
        "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records), encoding="utf-8"
    )
    return path


def contents(folder: Path) -> dict[str, tuple[int, str]]:
    """Return for each file below a folder its size and a hash of it; holes are passed over."""
    found = {}
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            found[str(path.relative_to(folder))] = path.stat().st_size, _digest(path)
    return found


def _digest(path: Path) -> str:
    digest = hashlib.sha256()
    with open(path, "rb") as stream:
        size, at = path.stat().st_size, 0
        while at < size:
            try:
                at = os.lseek(stream.fileno(), at, os.SEEK_DATA)
            except OSError:  # nothing but a hole
                break
            hole = os.lseek(stream.fileno(), at, os.SEEK_HOLE)
            # Where a hole begins is the file system's; only what is not zero counts.
            while at < hole:
                block = os.pread(stream.fileno(), min(4096 - at % 4096, hole - at), at)
                if block.count(0) < len(block):
                    digest.update(at.to_bytes(8, "little") + block)
                at += len(block)
    return digest.hexdigest()


def edit(path: Path, **changes: Any) -> None:
    """Change what ``tokens.json`` or ``progress.json`` says, and the hash of it too."""
    document = {**json.loads(path.read_text()), **changes}
    del document["xxh3_64"]
    digest = hash64(json.dumps(document, sort_keys=True).encode())
    path.write_text(json.dumps({**document, "xxh3_64": f"{digest:016x}"}))


def samples_of(path: Path) -> list[list[int]]:
    """Return the tokens of every sample."""
    with TokensDataset(path) as dataset:
        return [np.asarray(dataset[i] if len(dataset.names) == 1 else dataset[i]["tokens"]).tolist()
                for i in range(len(dataset))]  # fmt: skip


def ids_of(samples: list[list[Token]]) -> list[list[int]]:
    return [[token.id for token in sample] for sample in samples]
