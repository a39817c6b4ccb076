"""Records of length 0, which 0.7.3 reads, moves and keeps but never writes itself."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest

import loaderx
from tests import oracle
from tests.interop.driver import Peer073

pytestmark = pytest.mark.needs_peer

CODECS = ("raw", "zstd", "zstd_dict")
FIRST_DELETED = [0, 2, 7]


def ragged_rows() -> list[np.ndarray]:
    """Return records of which many are empty, the first and the last among them."""
    rng = np.random.default_rng(3)
    rows = [rng.integers(0, 9, size=int(size), dtype=np.int32) for size in rng.integers(1, 90, size=60)]
    for index in (0, 1, 7, 30, 31, 58, 59):
        rows[index] = rows[index][:0]
    return rows


@pytest.fixture(params=CODECS)
def store(request: pytest.FixtureRequest, store_path: Path) -> tuple[Path, list[bytes]]:
    """Return a ragged store that we wrote, and its records."""
    rows = ragged_rows()
    assert loaderx.write_ragged(store_path, rows, codec=request.param, progress=False) == len(rows)
    records = [row.tobytes() for row in rows]
    written = oracle.OracleStore(store_path)
    assert written.records() == records
    assert written.faults() == []
    assert max(written.codecs()) == oracle.CODEC_NAMES[request.param]
    return store_path, records


def check(path: Path, records: list[bytes], peer: Peer073) -> None:
    """Check that all three readers give these records, and that the file keeps every rule."""
    after = oracle.OracleStore(path)
    assert after.records() == records
    assert after.faults() == []
    assert peer.read_store(path) == records
    with loaderx.Zrecord(path, mode="r") as ours:
        data, splits = ours.gather_packed(np.arange(len(records)))
    assert [data[a:b].tobytes() for a, b in itertools.pairwise(splits)] == records


def test_peer_gathers(store: tuple[Path, list[bytes]], peer: Peer073) -> None:
    path, records = store
    order = [59, 7, 3, 0, 0, 31, 12]
    assert peer.store(path, ("read", order))[0] == [records[index] for index in order]
    assert peer.store(path, ("lengths", order))[0] == [len(records[index]) for index in order]
    values, splits = peer.index("RaggedDataset", path, order)[0]
    assert values.tobytes() == b"".join(records[index] for index in order)
    assert splits.tolist() == np.cumsum([0, *(len(records[index]) // 4 for index in order)]).tolist()
    check(path, records, peer)


def test_peer_appends_behind(store: tuple[Path, list[bytes]], peer: Peer073) -> None:
    path, records = store
    more = [np.arange(size, dtype=np.int32) for size in (1, 40, 3)]
    assert peer.write_ragged(path, more, "zstd") == 3
    check(path, records + [row.tobytes() for row in more], peer)


def test_peer_deletes(store: tuple[Path, list[bytes]], peer: Peer073) -> None:
    path, records = store
    # empty and full ones; the swapped-in last record is an empty one
    peer.store(path, ("delete", FIRST_DELETED))
    check(path, oracle.swap_delete(records, FIRST_DELETED), peer)


def test_peer_compacts(store: tuple[Path, list[bytes]], peer: Peer073) -> None:
    path, records = store
    peer.store(path, ("delete", FIRST_DELETED), ("compact",))
    check(path, oracle.swap_delete(records, FIRST_DELETED), peer)


def test_we_compact_after_peer_deletes(store: tuple[Path, list[bytes]], peer: Peer073) -> None:
    path, records = store
    peer.store(path, ("delete", FIRST_DELETED))
    with loaderx.Zrecord(path) as ours:
        ours.compact()
    assert oracle.OracleStore(path).tail_offset == oracle.OracleStore(path).live_bytes()
    check(path, oracle.swap_delete(records, FIRST_DELETED), peer)


@pytest.mark.parametrize("shape", [(0,), (3, 0)])
def test_fixed_records_without_bytes(shape: tuple[int, ...], store_path: Path, peer: Peer073) -> None:
    loaderx.write_dataset(store_path, np.zeros((5, *shape), dtype=np.float32), progress=False)
    check(store_path, [b""] * 5, peer)
    assert peer.store(store_path, ("delete", [0, 4]), ("compact",), ("count",))[2] == 3
    check(store_path, [b""] * 3, peer)
    with loaderx.Dataset(store_path) as dataset:
        assert dataset[:].shape == (3, *shape)
        assert dataset[:].dtype == np.float32


def test_store_of_nothing_but_empty_records(store_path: Path, peer: Peer073) -> None:
    empty = np.zeros(0, dtype=np.int16)
    loaderx.write_ragged(store_path, [empty] * 4, progress=False)
    check(store_path, [b""] * 4, peer)
    peer.write_ragged(store_path, [np.array([1, 2], dtype=np.int16)], "raw")
    check(store_path, [b""] * 4 + [b"\x01\x00\x02\x00"], peer)
