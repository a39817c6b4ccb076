"""loaderx 0.7.3 beside the checksum that we keep of a store's dictionary."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import loaderx
from loaderx import DictionaryError, Zrecord
from tests.interop.driver import Peer073
from tests.oracle import swap_delete
from tests.store.samples import contents, fill, flip, read

pytestmark = pytest.mark.needs_peer

DICT = "dict.zr"
RECORDS = [f"user={i % 17};item={i * 7919 % 1000};country=NL;device=phone".encode() for i in range(1500)]
OTHERS = [f"{i * 31 % 977} times the brown fox, {i % 7} times the dog".encode() for i in range(1500)]


def ours(path: Path) -> None:
    with Zrecord(path, "zstd_dict", level=3) as z:
        z.train_dict(b"".join(RECORDS), [len(record) for record in RECORDS], 2000)
        fill(z, RECORDS[:30])


def check_good(path: Path, records: list[bytes], peer: Peer073, dictionary: str) -> None:
    assert contents(path) == records
    with Zrecord(path, mode="r", verify=True) as z:
        assert read(z) == records
    report = loaderx.verify(path)
    assert (report.ok, report.dictionary, report.unreadable) == (True, dictionary, 0)
    assert peer.read_store(path) == records


def check_damage_is_noticed(path: Path, n_dependent: int) -> None:
    flip(path, DICT, 900)
    report = loaderx.verify(path)
    assert (report.ok, report.dictionary, report.unreadable) == (False, "damaged", n_dependent)
    assert report.damaged == ()
    with Zrecord(path, mode="r") as z, pytest.raises(DictionaryError, match="damaged"):
        z.gather_packed([0])
    flip(path, DICT, 900)


def test_073_changes_a_store_with_our_dictionary(store_path: Path, peer: Peer073) -> None:
    """Whatever it does to the records, the tag of the dictionary holds."""
    ours(store_path)
    records = RECORDS[:30]
    peer.store(store_path, ("append", RECORDS[500:510]), codec="zstd_dict")
    records = records + RECORDS[500:510]
    check_good(store_path, records, peer, "good")
    check_damage_is_noticed(store_path, 40)
    peer.store(store_path, ("delete", [3, 38]), ("compact",))
    records = swap_delete(records, [3, 38])
    check_good(store_path, records, peer, "good")
    check_damage_is_noticed(store_path, 38)
    with Zrecord(store_path, "zstd_dict", level=3) as z:
        fill(z, RECORDS[600:610])
    check_good(store_path, records + RECORDS[600:610], peer, "good")
    check_damage_is_noticed(store_path, 48)


def test_a_dictionary_of_073(store_path: Path, peer: Peer073) -> None:
    """It has a tag from our first append on."""
    peer.store(store_path, ("train_dict", RECORDS, 2000), ("append", RECORDS[:30]), codec="zstd_dict")
    check_good(store_path, RECORDS[:30], peer, "unchecked")
    with Zrecord(store_path, "zstd_dict", level=3) as z:
        fill(z, RECORDS[30:40])
    check_good(store_path, RECORDS[:40], peer, "good")
    check_damage_is_noticed(store_path, 40)


def test_073_trains_over_one_that_records_need(store_path: Path, peer: Peer073) -> None:
    """It does so where its `train_dict` is called. The old one is right again when it is put back."""
    ours(store_path)
    content = (store_path / DICT).read_bytes()
    peer.store(store_path, ("train_dict", OTHERS, 2000), codec="zstd_dict")
    assert (store_path / DICT).read_bytes() != content
    report = loaderx.verify(store_path)
    assert (report.ok, report.dictionary, report.unreadable) == (False, "damaged", 30)
    assert report.damaged == ()
    (store_path / DICT).write_bytes(content)
    check_good(store_path, RECORDS[:30], peer, "good")


def test_073_adds_to_a_dataset_with_our_dictionary(store_path: Path, peer: Peer073) -> None:
    rows = [np.frombuffer(record, np.uint8) for record in RECORDS]
    loaderx.write_ragged(store_path, rows[:1000], codec="zstd_dict", level=3)
    peer.write_ragged(store_path, rows[1000:], "zstd_dict")
    check_good(store_path, RECORDS, peer, "good")
    check_damage_is_noticed(store_path, 1500)


def test_073_trains_where_a_dictionary_was_removed(store_path: Path, peer: Peer073) -> None:
    """Its own is taken for what it is, for no record of before needs the other."""
    with Zrecord(store_path) as z:
        fill(z, RECORDS[:10], "zstd")
        z.train_dict(b"".join(RECORDS), [len(record) for record in RECORDS], 2000)
        fill(z, RECORDS[10:12], "zstd")
    (store_path / DICT).unlink()
    peer.store(store_path, ("train_dict", OTHERS, 2000), ("append", OTHERS[:20]), codec="zstd_dict")
    check_good(store_path, RECORDS[:12] + OTHERS[:20], peer, "unchecked")
    with Zrecord(store_path, "zstd_dict", level=3) as z:
        fill(z, OTHERS[20:25])
    check_good(store_path, RECORDS[:12] + OTHERS[:25], peer, "good")


def test_073_trains_in_place_of_one_that_records_need(store_path: Path, peer: Peer073) -> None:
    """The old records are lost to everybody, and neither program's are given out wrong."""
    ours(store_path)
    (store_path / DICT).unlink()
    peer.store(store_path, ("train_dict", OTHERS, 2000), ("append", OTHERS[:20]), codec="zstd_dict")
    report = loaderx.verify(store_path)
    assert (report.ok, report.dictionary, report.unreadable) == (False, "damaged", 50)
    assert report.damaged == ()
    with Zrecord(store_path, mode="r") as z:
        for index in (0, 49):
            with pytest.raises(DictionaryError, match="damaged"):
                z.gather_packed([index])
    (store_path / "sums.zr").unlink()
    with Zrecord(store_path, mode="r") as z:
        assert z.gather_packed([49])[0].tobytes() == OTHERS[19]
