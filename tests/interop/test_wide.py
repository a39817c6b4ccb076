"""A store of version 4, which 0.7.3 refuses by its own error and leaves as it is; and what stays version 3 for it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import loaderx
from tests.interop.driver import Peer073, PeerError
from tests.oracle import VERSION, WIDE, OracleStore

pytestmark = pytest.mark.needs_peer

ITEMS = np.arange(4000, dtype="<u4").reshape(2, 2000)


def files_of(path: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes()[:4096] for file in path.iterdir()}


@pytest.mark.parametrize("codec", ["raw", "zstd_shuffle"])
def test_peer_refuses_version_4(store_path: Path, peer: Peer073, codec: str) -> None:
    large = np.zeros((2, (1 << 20) + 1), np.uint8)
    rows = large if codec == "raw" else ITEMS
    loaderx.write_dataset(store_path, rows, codec, progress=False)
    assert OracleStore(store_path).version == WIDE
    before = files_of(store_path)
    for step in (("read", [0]), ("append", [b"x"]), ("delete", [0]), ("compact",), ("count",)):
        with pytest.raises(PeerError) as caught:
            peer.store(store_path, step)
        assert caught.value.code == -8
    with pytest.raises(PeerError, match=r"version|codec"):
        peer.index("Dataset", store_path, 0)
    assert files_of(store_path) == before
    with loaderx.Dataset(store_path) as dataset:
        np.testing.assert_array_equal(dataset[:], rows)


def test_peer_refuses_a_store_of_its_own_once_it_was_upgraded(store_path: Path, peer: Peer073) -> None:
    peer.store(store_path, ("append", [b"theirs"]))
    with loaderx.Zrecord(store_path, "raw", upgrade=True) as z:
        z.append(b"ours", 1, 4)
    assert peer.read_store(store_path) == [b"theirs", b"ours"]
    with loaderx.Zrecord(store_path, upgrade=True) as z:
        z.append(bytes((1 << 20) + 1), 1, (1 << 20) + 1)
    with pytest.raises(PeerError) as caught:
        peer.read_store(store_path)
    assert caught.value.code == -8
    assert OracleStore(store_path).records() == [b"theirs", b"ours", bytes((1 << 20) + 1)]


def test_peer_reads_what_needs_no_version_4(store_path: Path, peer: Peer073) -> None:
    """The largest record of version 3; and an upgrade that was given up."""
    records = [b"small", np.random.default_rng(0).bytes(1 << 20)]
    with loaderx.Zrecord(store_path, "raw", upgrade=True) as z:
        z.append_var(b"".join(records), [0, 5], [5, 1 << 20])
        with pytest.raises(InterruptedError), z.appending() as append:
            append.add(bytes((1 << 20) + 1), 1, (1 << 20) + 1)
            raise InterruptedError
    assert OracleStore(store_path).version == VERSION
    assert peer.read_store(store_path) == records
    peer.store(store_path, ("append", [b"theirs"]))
    assert peer.read_store(store_path) == [*records, b"theirs"]


@pytest.mark.parametrize("codec", ["zstd_shuffle", "zstd_shuffle_dict"])
def test_peer_reads_a_dataset_of_bytes_that_was_to_be_shuffled(
    store_path: Path, peer: Peer073, codec: str
) -> None:
    """Items of a byte are not shuffled, so the store is version 3, and its schema must be one that 0.7.3 knows."""
    rows = np.random.default_rng(1).integers(0, 4, (400, 300), np.uint8)
    loaderx.write_dataset(store_path, rows, codec, level=3, progress=False)
    assert OracleStore(store_path, newest=VERSION).faults() == []
    np.testing.assert_array_equal(peer.index("Dataset", store_path, 3)[0], rows[3])
