"""What tests of sources share: small data of every kind, and the check that a stream goes on where it was."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import tarfile
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import zstandard

from loaderx.stream.stream import Stream
from tests.resume import first_difference

COMPRESS: dict[str, Callable[[bytes], bytes]] = {
    "": bytes,
    ".gz": gzip.compress,
    ".bz2": bz2.compress,
    ".xz": lzma.compress,
    ".zst": zstandard.ZstdCompressor().compress,
}


def write_texts(folder: Path, texts: Sequence[bytes], suffix: str = "") -> list[Path]:
    """Write files of text, compressed as the suffix says."""
    paths = []
    for i, text in enumerate(texts):
        path = folder / f"part{i}.jsonl{suffix}"
        path.write_bytes(COMPRESS[suffix](text))
        paths.append(path)
    return paths


def json_lines(items: Iterable[Any]) -> bytes:
    """Return items as lines of JSON."""
    return b"".join(json.dumps(item).encode() + b"\n" for item in items)


def write_tar(
    path: Path, members: Iterable[tuple[str, bytes]], mode: str = "w", form: int = tarfile.USTAR_FORMAT
) -> Path:
    """Write a tar archive."""
    with tarfile.open(path, mode, format=form) as archive:  # type: ignore[call-overload]
        for name, data in members:
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return path


def check_resume(make: Callable[[], Stream]) -> list[Any]:
    """Save before every item and at the end, restore each state in a fresh stream through JSON twice, compare the rest.

    Returns
    -------
    list
        The items.
    """
    iterator = iter(make())
    states, whole = [], []
    while True:
        states.append(json.dumps(iterator.state_dict()))
        try:
            whole.append(next(iterator))
        except StopIteration:
            break
    iterator.close()
    for at, state in enumerate(states):
        resumed = iter(make())
        for attempt in ("first", "second"):
            resumed.load_state_dict(json.loads(state))
            assert json.dumps(resumed.state_dict()) == state, (at, attempt)
            place = first_difference(whole[at:], list(resumed))
            assert place is None, f"state {at}, {attempt} time: differs at +{place}"
        resumed.close()
    return whole


def check_source(make: Callable[[], Stream], expected: list[Any]) -> None:
    """Check a source's items and its resume, alone, with its shards in turns, and through a buffer."""
    assert first_difference(check_resume(make), expected) is None
    assert first_difference(check_resume(lambda: make().repeat(2)), expected * 2) is None
    for most_open in (1, 2, 10):
        shuffled = check_resume(lambda most_open=most_open: make().shuffle(3, 5, most_open))  # type: ignore[misc]
        assert sorted(map(repr, shuffled)) == sorted(map(repr, expected))
    check_resume(lambda: make().batch(2))
