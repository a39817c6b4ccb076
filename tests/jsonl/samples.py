"""Text files for the tests, and what an index of them must give."""

from __future__ import annotations

import os
from pathlib import Path

from loaderx.jsonl import Index


def write(base: Path, texts: dict[str, bytes] | list[bytes]) -> Path:
    """Write text files below a folder, by their names or as 0.jsonl, 1.jsonl, ..."""
    if isinstance(texts, list):
        texts = {f"{i}.jsonl": text for i, text in enumerate(texts)}
    for name, text in texts.items():
        (base / name).parent.mkdir(parents=True, exist_ok=True)
        (base / name).write_bytes(text)
    return base


def samples_of(index: Index) -> list[bytes]:
    """Read every sample of an index, slowly."""
    texts = [Path(path).read_bytes() for path in index.paths]
    return [texts[file][at : at + size] for file, at, size in index.locations.tolist()]


def bytes_below(folder: Path) -> dict[str, bytes]:
    """Return every file below a folder."""
    found = [Path(path) / name for path, _, names in os.walk(folder) for name in names]
    return {str(path.relative_to(folder)): path.read_bytes() for path in found}
