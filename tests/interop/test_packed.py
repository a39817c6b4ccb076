"""loaderx 0.7.3 and packed stores: it reads them, and appends once they are unpacked."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import loaderx
from loaderx import Zrecord, pack, unpack
from tests.interop.driver import Peer073
from tests.oracle import swap_delete
from tests.store.samples import contents, fill, numbered

pytestmark = pytest.mark.needs_peer

CHUNK_BYTES = 1 << 32


def check_good(path: Path, records: list[bytes], peer: Peer073) -> None:
    assert contents(path) == records
    assert loaderx.verify(path).ok
    assert peer.read_store(path) == records


@pytest.mark.parametrize("codec", ["raw", "zstd"])
@pytest.mark.parametrize("writer", ["they write", "we write"])
def test_it_reads_a_packed_store_and_appends_to_an_unpacked_one(
    writer: str, codec: Any, store_path: Path, peer: Peer073
) -> None:
    records = numbered(0, 300)
    if writer == "they write":
        peer.store(store_path, ("append", records, codec), ("delete", [299, 4]))
        assert (store_path / "0.zr").stat().st_size == CHUNK_BYTES
    else:
        with Zrecord(store_path, codec) as z:
            fill(z, records)
            z.delete([299, 4])
    records = swap_delete(records, [299, 4])
    change = pack(store_path)
    assert change.bytes_after == sum(file.stat().st_size for file in store_path.iterdir()) < 20_000
    assert change.bytes_before > 1 << 28
    check_good(store_path, records, peer)
    assert pack(store_path).changed == (), "reading has made nothing longer"

    copy = store_path.with_name("copy.zr")
    shutil.copytree(store_path, copy)
    assert unpack(copy).resized == ("meta.zr",)
    theirs = [b"theirs" * n for n in range(1, 40)]
    peer.store(copy, ("append", theirs, codec), ("delete", [7]))
    records = swap_delete([*records, *theirs], [7])
    check_good(copy, records, peer)
    with Zrecord(copy, codec) as z:
        fill(z, [b"ours"])
    pack(copy)
    check_good(copy, [*records, b"ours"], peer)
    with Zrecord(copy, codec) as z:  # which makes it long again, for them too
        fill(z, [b"more"])
    peer.store(copy, ("append", [b"and theirs"], codec), ("compact",))
    check_good(copy, [*records, b"ours", b"more", b"and theirs"], peer)


@pytest.mark.parametrize("codec", ["raw", "zstd"])
def test_what_it_appends_to_a_packed_store_is_lost_and_nothing_else(
    codec: Any, store_path: Path, peer: Peer073
) -> None:
    """It must not, and it happens. The error says what to do, and that is right."""
    with Zrecord(store_path, codec) as z:
        fill(z, numbered(0, 50))
    pack(store_path)
    peer.store(store_path, ("append", [b"theirs", b"lost"], codec))
    for use in (lambda: Zrecord(store_path), lambda: loaderx.verify(store_path), lambda: unpack(store_path)):
        with pytest.raises(
            loaderx.CorruptRecordError, match=r"0\.7\.3 has appended .* records 50 to 51 were never"
        ):
            use()
    os.truncate(store_path / "meta.zr", 268_435_472)
    with Zrecord(store_path, codec) as z:
        assert len(z) == 52 and z.lengths([50, 51]).tolist() == [0, 0]
        z.delete([50, 51])
        fill(z, [b"ours"])
    check_good(store_path, [*numbered(0, 50), b"ours"], peer)


def test_its_appends_since_our_last_one_stay(store_path: Path, peer: Peer073) -> None:
    """Sums that are of another state of the store say nothing of where its bytes end."""
    with Zrecord(store_path, "raw") as z:
        fill(z, numbered(0, 20))
    peer.store(store_path, ("delete", [3, 19]), ("append", numbered(20, 60), "zstd"))
    records = swap_delete(numbered(0, 20), [3, 19]) + numbered(20, 60)
    pack(store_path)
    check_good(store_path, records, peer)
    assert loaderx.verify(store_path).unchecked == 40 + 1


def test_datasets(store_path: Path, peer: Peer073) -> None:
    rows = np.arange(3000, dtype="<i4").reshape(500, 6)
    peer.write_dataset(store_path, rows, "zstd")
    assert pack(store_path).bytes_after < 100_000
    np.testing.assert_array_equal(np.stack(peer.index("Dataset", store_path, *range(500))), rows)
    with loaderx.Dataset(store_path) as ds:
        np.testing.assert_array_equal(ds[:], rows)
