"""Records and stores that several tests make, and what lies of them on disk."""

from __future__ import annotations

import itertools
import threading
from pathlib import Path
from typing import Any

import numpy as np

from loaderx import Zrecord
from tests.oracle import OracleStore

#: One byte more than a record of version 3 may have, and
OVER = (1 << 20) + 1
#: a record of so many, which is next to nothing once it is compressed.
LARGE = bytes(range(256)) * 4096 + b"\xff"
#: Items of 4 bytes that shrink when their bytes are shuffled.
ITEMS = np.arange(2000, dtype="<u4").tobytes()


class SmallChunks(Zrecord):
    """A store whose chunks end early."""

    _chunk_bytes = 1000


def some_records(n: int, seed: int = 0, largest: int = 200) -> list[bytes]:
    rng = np.random.default_rng(seed)
    return [rng.integers(0, 3, rng.integers(0, largest), dtype=np.uint8).tobytes() for _ in range(n)]


def numbered(start: int, stop: int) -> list[bytes]:
    """Return records that carry their number, of different lengths."""
    return [b"%06d" % number * (1 + number % 5) for number in range(start, stop)]


def fill(z: Zrecord, records: list[bytes], codec: Any = None) -> int:
    lens = [len(record) for record in records]
    return z.append_var(b"".join(records), np.cumsum([0, *lens])[:-1], lens, codec)


def read(z: Zrecord) -> list[bytes]:
    """Return every record through a handle."""
    data, splits = z.gather_packed(np.arange(len(z)))
    return [data[a:b].tobytes() for a, b in itertools.pairwise(splits)]


def contents(path: Path) -> list[bytes]:
    store = OracleStore(path)
    return [store.record(index) for index in range(len(store))]


def start_of(path: Path, index: int) -> int:
    return int(OracleStore(path).table["offset"][index])


def version_of(path: Path) -> int:
    """Return the version in the file."""
    with (path / "meta.zr").open("rb") as file:
        return int.from_bytes(file.read(6)[4:], "little")


def start_of_meta(path: Path) -> bytes:
    """Return the header."""
    with (path / "meta.zr").open("rb") as file:
        return file.read(16)


def flip(path: Path, name: str, offset: int, bits: int = 0x10) -> None:
    """Flip bits of one byte of a file."""
    with (path / name).open("r+b") as file:
        file.seek(offset)
        byte = file.read(1)[0]
        file.seek(offset)
        file.write(bytes([byte ^ bits]))


def tree(path: Path) -> dict[str, int]:
    return {file.name: file.stat().st_size for file in path.iterdir()}


def state(path: Path) -> dict[str, tuple[int, int, bytes]]:
    """Return of each file of a store its size, the time of its last change, and its first bytes."""
    found = {}
    for file in path.iterdir():
        with file.open("rb") as stream:
            found[file.name] = (file.stat().st_size, file.stat().st_ctime_ns, stream.read(4096))
    return found


def wait_until_looked_at_again() -> None:
    """Let the time pass for which a small batch may trust what it knows of a file's size."""
    threading.Event().wait(0.011)
