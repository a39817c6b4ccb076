"""The matrix with the real loaderx 0.7.3: what one writes, the other reads, extends, thins out and compacts.

{fixed, ragged} x {raw, zstd, dictionary} x {they write, we write} x {read, append, delete, compact}: 48 cases. The
writer's counterpart does the operation; then both libraries and the oracle read the store, and all must agree with
a list of bytes.
"""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import loaderx
from tests import oracle
from tests.interop.driver import Peer073

KINDS = ("fixed", "ragged")
CODECS = ("raw", "zstd", "zstd_dict")
WRITERS = ("they_write", "we_write")
OPERATIONS = ("read", "append", "delete", "compact")

CASES = [
    pytest.param(kind, codec, writer, operation, id=f"{kind}-{codec}-{writer}-{operation}")
    for kind in KINDS
    for codec in CODECS
    for writer in WRITERS
    for operation in OPERATIONS
]

# repeats, the last record with the first, and an order that no swap undoes by chance
DELETED = [5, 95, 0, 5, 40, 41, 94, 17]
ITEM = (6, 8)


def make_arrays(kind: str, seed: int, count: int = 96) -> list[np.ndarray[Any, Any]]:
    """Return records that compress alone, look alike enough for a dictionary, and are all different."""
    base = np.random.default_rng(0).integers(0, 40, size=(64, *ITEM), dtype=np.uint16)
    rng = np.random.default_rng(seed)
    arrays = []
    for index in range(count):
        rows = 1 if kind == "fixed" else int(rng.integers(1, 12))
        start = int(rng.integers(0, 52))
        array = base[start : start + rows].copy()
        array[0, 0, :2] = (index, seed)
        arrays.append(array[0] if kind == "fixed" else array)
    return arrays


class Ours:
    """Our library, with the same operations as the driver of 0.7.3."""

    def write(self, kind: str, path: Path, arrays: list[np.ndarray[Any, Any]], codec: str) -> int:
        if kind == "fixed":
            return int(loaderx.write_dataset(path, np.stack(arrays), codec, progress=False))
        return int(loaderx.write_ragged(path, arrays, codec=codec, progress=False))

    def delete(self, path: Path, indices: list[int]) -> None:
        with loaderx.Zrecord(path) as store:
            store.delete(np.array(indices))

    def compact(self, path: Path) -> dict[str, int]:
        with loaderx.Zrecord(path) as store:
            store.compact()
            return dict(store.stats())

    def read_store(self, path: Path) -> list[bytes]:
        with loaderx.Zrecord(path, mode="r") as store:
            data, splits = store.gather_packed(np.arange(len(store)))
            return [data[start:end].tobytes() for start, end in itertools.pairwise(splits)]

    def index(self, kind: str, path: Path, *indices: Any) -> list[Any]:
        with (loaderx.Dataset if kind == "fixed" else loaderx.RaggedDataset)(path) as dataset:
            return [dataset[index] for index in indices]

    def padded(self, path: Path, indices: list[int]) -> Any:
        with loaderx.RaggedDataset(path) as dataset:
            return dataset.getitems_padded(indices)


class Theirs:
    """0.7.3, with the same operations."""

    def __init__(self, peer: Peer073) -> None:
        self.peer = peer

    def write(self, kind: str, path: Path, arrays: list[np.ndarray[Any, Any]], codec: str) -> int:
        if kind == "fixed":
            return self.peer.write_dataset(path, np.stack(arrays), codec)
        return self.peer.write_ragged(path, arrays, codec)

    def delete(self, path: Path, indices: list[int]) -> None:
        self.peer.store(path, ("delete", indices))

    def compact(self, path: Path) -> dict[str, int]:
        stats: dict[str, int] = self.peer.store(path, ("compact",), ("stats",))[1]
        return stats

    def read_store(self, path: Path) -> list[bytes]:
        return self.peer.read_store(path)

    def index(self, kind: str, path: Path, *indices: Any) -> list[Any]:
        return self.peer.index("Dataset" if kind == "fixed" else "RaggedDataset", path, *indices)

    def padded(self, path: Path, indices: list[int]) -> Any:
        return self.peer.padded(path, indices)


def assert_same(got: Any, expected: np.ndarray[Any, Any]) -> None:
    """Compare bit by bit, dtype and shape included."""
    assert isinstance(got, np.ndarray)
    assert got.dtype == expected.dtype
    assert got.shape == expected.shape
    assert got.tobytes() == expected.tobytes()


def check_arrays(library: Any, kind: str, path: Path, arrays: list[np.ndarray[Any, Any]]) -> None:
    """Read the store through a library's array layer, in every way both have."""
    n = len(arrays)
    batch = [n - 1, 3, 3, 0, n // 2]
    whole, single, stepped, gathered = library.index(
        kind, path, slice(None), n // 3, slice(1, n - 2, 3), batch
    )
    if kind == "fixed":
        stacked = np.stack(arrays)
        assert_same(whole, stacked)
        assert_same(single, stacked[n // 3])
        assert_same(stepped, stacked[1 : n - 2 : 3])
        assert_same(gathered, stacked[batch])
        return
    assert_same(single, arrays[n // 3])
    for (values, splits), chosen in (
        (whole, arrays),
        (stepped, arrays[1 : n - 2 : 3]),
        (gathered, [arrays[i] for i in batch]),
    ):
        assert_same(values, np.concatenate(chosen))
        assert splits.tolist() == np.cumsum([0, *map(len, chosen)]).tolist()
    padded, lengths = library.padded(path, batch)
    assert lengths.tolist() == [len(arrays[i]) for i in batch]
    expected = np.zeros((len(batch), max(lengths), *ITEM), dtype=np.uint16)
    for row, index in enumerate(batch):
        expected[row, : len(arrays[index])] = arrays[index]
    assert_same(padded, expected)


def check_everywhere(
    kind: str, path: Path, arrays: list[np.ndarray[Any, Any]], ours: Ours, theirs: Theirs
) -> None:
    """Both libraries and the oracle read exactly these records."""
    model = [array.tobytes() for array in arrays]
    assert oracle.OracleStore(path).records() == model
    assert ours.read_store(path) == model
    assert theirs.read_store(path) == model
    check_arrays(ours, kind, path, arrays)
    check_arrays(theirs, kind, path, arrays)


@pytest.mark.needs_peer
@pytest.mark.interop_matrix
@pytest.mark.parametrize(("kind", "codec", "writer", "operation"), CASES)
def test_matrix(kind: str, codec: str, writer: str, operation: str, store_path: Path, peer: Peer073) -> None:
    ours, theirs = Ours(), Theirs(peer)
    writing, operating = (theirs, ours) if writer == "they_write" else (ours, theirs)
    arrays = make_arrays(kind, seed=1)
    assert writing.write(kind, store_path, arrays, codec) == len(arrays)
    before = oracle.OracleStore(store_path)
    assert before.faults() == []
    # the case is what its name says: the codec was used, not the raw fallback throughout
    assert max(before.codecs()) == oracle.CODEC_NAMES[codec]

    if operation == "read":
        check_arrays(operating, kind, store_path, arrays)
        assert operating.read_store(store_path) == [array.tobytes() for array in arrays]
    elif operation == "append":
        more = make_arrays(kind, seed=2, count=50)
        assert operating.write(kind, store_path, more, codec) == len(more)
        arrays = arrays + more
        assert max(oracle.OracleStore(store_path).codecs()[-50:]) == oracle.CODEC_NAMES[codec]
    elif operation == "delete":
        operating.delete(store_path, DELETED)
        arrays = oracle.swap_delete(arrays, DELETED)
    else:
        writing.delete(store_path, DELETED)
        arrays = oracle.swap_delete(arrays, DELETED)
        stats = operating.compact(store_path)
        after = oracle.OracleStore(store_path)
        assert stats["records"] == len(arrays)
        assert stats["live_bytes"] == stats["chunk_bytes"] == after.live_bytes() == after.tail_offset
        assert stats["reclaimable"] == 0
        assert after.tail_offset < before.tail_offset

    assert oracle.OracleStore(store_path).faults() == []
    check_everywhere(kind, store_path, arrays, ours, theirs)


def test_matrix_is_whole() -> None:
    assert len(CASES) == 48
    assert len({case.id for case in CASES}) == 48
