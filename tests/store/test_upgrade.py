"""When a store becomes version 4, and what an append that would make it one leaves where it fails or is killed."""

from __future__ import annotations

import errno
import os
import pickle
import struct
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import loaderx
from loaderx import Dataset, Zrecord, write_dataset
from loaderx.store import files
from loaderx.store.format import LENGTH_AT, VERSION_AT
from tests.oracle import VERSION, WIDE, OracleStore
from tests.store.children import finishes_before
from tests.store.refusals import refusing
from tests.store.samples import ITEMS, LARGE, OVER, contents, fill, read, start_of_meta, version_of
from tests.store.sums import check_sums

pytestmark = pytest.mark.usefixtures("nothing_is_made_durable")

HELD = [b"one", b"two", b"three"]


@pytest.fixture
def narrow(tmp_path: Path) -> Path:
    """A store of version 3 that holds three records."""
    path = tmp_path / "narrow.zr"
    with Zrecord(path, "raw") as z:
        fill(z, [b"one", b"two", b"three"])
    assert version_of(path) == VERSION
    return path


#: What only version 4 holds: an append, and the error without `upgrade` where the store holds records.
Change = Callable[[Zrecord], Any]
WIDENING: dict[str, tuple[Change, bytes, type[Exception]]] = {
    "a large record": (lambda z: z.append(LARGE, 1, OVER, "zstd"), LARGE, loaderx.RecordTooLargeError),
    "a shuffled record": (
        lambda z: z.append(ITEMS, 1, len(ITEMS), "zstd_shuffle", item_size=4),
        ITEMS,
        loaderx.OptionError,
    ),
}
widening = pytest.mark.parametrize("what", WIDENING)


@widening
@pytest.mark.parametrize("start", ["fresh", "emptied", "emptied, and closed"])
def test_a_store_without_records_widens_by_itself(tmp_path: Path, start: str, what: str) -> None:
    change, record, _ = WIDENING[what]
    path = tmp_path / "a.zr"
    z = Zrecord(path)
    if start != "fresh":
        fill(z, HELD)
        z.delete([0, 1, 2])
    if start.endswith("closed"):
        z.close()
        z = Zrecord(path)
    with z:
        assert change(z) == 0
        assert version_of(path) == WIDE
        fill(z, HELD)
        change(z)
        assert read(z) == [record, *HELD, record]
    assert OracleStore(path).faults() == []
    check_sums(path)


@widening
def test_a_store_that_holds_records_is_upgraded_only_when_asked(narrow: Path, what: str) -> None:
    change, record, error = WIDENING[what]
    with Zrecord(narrow) as z:
        with pytest.raises(error, match="upgrade=True") as caught:
            change(z)
        assert "version 3" in str(caught.value)
        assert read(z) == HELD
        assert fill(z, [b"goes on"]) == 3
    assert contents(narrow) == [*HELD, b"goes on"]
    assert OracleStore(narrow, newest=VERSION).faults() == []
    with Zrecord(narrow, upgrade=True) as z:
        assert version_of(narrow) == VERSION, "opening changes nothing"
        fill(z, [b"small"])
        assert version_of(narrow) == VERSION, "nor does what version 3 holds"
        assert change(z) == 5
        assert version_of(narrow) == WIDE
        assert read(z) == [*HELD, b"goes on", b"small", record]
    assert OracleStore(narrow).faults() == []
    check_sums(narrow)
    with Zrecord(narrow) as z:
        assert change(z) == 6, "a store of version 4 takes it unasked"
        z.delete([5, 6])
    assert version_of(narrow) == WIDE, "there is no way back"
    assert contents(narrow) == [*HELD, b"goes on", b"small"]


@pytest.mark.parametrize(
    ("name", "version"),
    [
        ("incompressible", WIDE),
        ("no bytes", WIDE),
        ("items of a byte", VERSION),
        ("items too large", VERSION),
        ("none", VERSION),
    ],
)
def test_a_codec_that_shuffles_widens_whatever_its_records_come_to_be(
    tmp_path: Path, name: str, version: int
) -> None:
    """Or the first records of a store would decide whether the next append needs leave."""
    noise = np.random.default_rng(5).bytes(4000)
    record, item_size = {
        "incompressible": (noise, 4),
        "items of a byte": (ITEMS, 1),
        "items too large": (ITEMS, 256),
        "no bytes": (b"", 4),
        "none": (b"", 4),
    }[name]
    path = tmp_path / "a.zr"
    with Zrecord(path, "zstd_shuffle") as z:
        n = 0 if name == "none" else 2
        z.append(record * n, n, len(record), item_size=item_size)
        assert read(z) == [record] * n
        assert version_of(path) == version
        if version == WIDE or name == "none":
            z.append(ITEMS, 1, len(ITEMS), item_size=4)
            assert read(z) == [*[record] * n, ITEMS]
    assert OracleStore(path, newest=version_of(path)).faults() == []


@pytest.mark.parametrize("codec", ["zstd_shuffle", "zstd_shuffle_dict", "auto"])
def test_a_dataset_takes_its_own_codec_again(tmp_path: Path, codec: Any) -> None:
    """Noise first, of which nothing shrinks; then labels; then waves, which do."""
    noise = np.random.default_rng(5).integers(0, 2**32, (600, 64), dtype=np.uint32)
    waves = np.sin(np.arange(600 * 64).reshape(600, 64) / 50).astype(np.float32).view(np.uint32)
    path = tmp_path / "a.zr"
    write_dataset(path, noise, "zstd_shuffle" if codec == "auto" else codec)
    write_dataset(path, noise, codec)
    write_dataset(path, waves, codec)
    with Dataset(path) as ds:
        assert np.array_equal(ds[:], np.concatenate([noise, noise, waves]))
    assert version_of(path) == WIDE


def test_parts_of_one_append_widen_together(tmp_path: Path, narrow: Path) -> None:
    path = tmp_path / "a.zr"
    with Zrecord(path) as z:
        with z.appending() as parts:
            parts.add(b"small", 1, 5)
            parts.add(LARGE, 1, OVER)
            assert version_of(path) == VERSION, "until the commit nothing has happened"
            parts.add(ITEMS, 1, len(ITEMS), "zstd_shuffle", item_size=4)
        assert read(z) == [b"small", LARGE, ITEMS]
    assert OracleStore(path).faults() == []
    with Zrecord(narrow) as z:
        with z.appending() as parts:
            parts.add(b"small", 1, 5)
            for name, (change, _, error) in WIDENING.items():
                with pytest.raises(error):
                    change(_Parts(parts))
                assert name
        assert read(z) == [*HELD, b"small"], "what was refused is not a part of it"
    assert version_of(narrow) == VERSION


class _Parts:
    """An `Append` under the names of a `Zrecord`."""

    def __init__(self, parts: Any) -> None:
        self.append = parts.add


def test_an_append_that_is_given_up_leaves_the_version(narrow: Path) -> None:
    with Zrecord(narrow, upgrade=True) as z:
        with pytest.raises(InterruptedError), z.appending() as parts:
            parts.add(LARGE, 1, OVER)
            raise InterruptedError
        assert (version_of(narrow), read(z)) == (VERSION, HELD)
        fill(z, [b"goes on"])
    assert OracleStore(narrow, newest=VERSION).faults() == []
    check_sums(narrow)


@pytest.mark.parametrize("io", ["mmap", "pread"])
@widening
def test_readers_see_an_upgrade_when_they_refresh(narrow: Path, what: str, io: Any) -> None:
    change, record, _ = WIDENING[what]
    with (
        Zrecord(narrow, mode="r", io=io) as reader,
        Zrecord(narrow, io=io) as other,
        Zrecord(narrow, "raw", io=io, upgrade=True) as z,
    ):
        change(z)
        for handle in (reader, other):
            assert read(handle) == HELD
            assert handle.refresh() == 4
            assert read(handle) == [*HELD, record]
        z.close()
        change(other)  # a writer now, and without `upgrade`: the store is version 4 already
        assert reader.refresh() == 5
        assert read(reader) == [*HELD, record, record]


@widening
def test_another_handle_upgraded_the_store_between_two_appends(narrow: Path, what: str) -> None:
    """A session that is begun finds another version in the header: a program without locks has written it."""
    change, record, _ = WIDENING[what]
    with Zrecord(narrow) as z:
        fill(z, [b"begun"])
        with (narrow / "meta.zr").open("r+b") as file:
            file.seek(VERSION_AT)
            file.write(struct.pack("<H", WIDE))
        change(z)
        assert read(z) == [*HELD, b"begun", record]
    assert contents(narrow) == [*HELD, b"begun", record]


def test_pickling_keeps_upgrade(narrow: Path) -> None:
    with Zrecord(narrow, upgrade=True) as z, pickle.loads(pickle.dumps(z)) as copy:
        assert copy.upgrade is True
        copy.append(LARGE, 1, OVER)
        assert z.refresh() == 4
    with Zrecord(narrow) as z, pickle.loads(pickle.dumps(z)) as copy:
        assert copy.upgrade is False


@pytest.mark.parametrize("value", [1, None, "yes"])
def test_upgrade_is_a_bool(tmp_path: Path, value: Any) -> None:
    with pytest.raises(loaderx.OptionError, match="upgrade"):
        Zrecord(tmp_path / "a.zr", upgrade=value)
    with pytest.raises(loaderx.OptionError, match="upgrade"):
        loaderx.write_dataset(tmp_path / "a.zr", [1], upgrade=value)
    assert os.listdir(tmp_path) == []


# --- the datasets ------------------------------------------------------------------------------------------------


def test_datasets_of_large_items(tmp_path: Path) -> None:
    rows = np.arange(3 * OVER, dtype=np.uint32).astype(np.uint8).reshape(3, OVER)
    path = tmp_path / "fixed.zr"
    assert loaderx.write_dataset(path, rows, chunk_bytes=1000, progress=False) == 3
    with loaderx.Dataset(path) as dataset:
        np.testing.assert_array_equal(dataset[:], rows)
    assert OracleStore(path).faults() == []
    loaderx.write_dataset(path, rows[:, :5], "raw", overwrite=True, progress=False)
    assert version_of(path) == VERSION, "a store that is written anew is version 3 where that will do"
    path = tmp_path / "ragged.zr"
    arrays = [rows[0, :5], rows[1], rows[2, :0]]
    loaderx.write_ragged(path, arrays, chunk_bytes=1000, progress=False)
    with loaderx.RaggedDataset(path) as ragged:
        for index, array in enumerate(arrays):
            np.testing.assert_array_equal(ragged[index], array)
    assert OracleStore(path).faults() == []


@pytest.mark.parametrize("codec", ["zstd_shuffle", "zstd_shuffle_dict"])
def test_shuffled_datasets(tmp_path: Path, codec: Any) -> None:
    rows = np.cumsum(np.ones((400, 500), np.float32), axis=1) + np.arange(400, dtype=np.float32)[:, None]
    path = tmp_path / "a.zr"
    loaderx.write_dataset(path, rows, codec, level=1, progress=False)
    with loaderx.Dataset(path) as dataset:
        np.testing.assert_array_equal(dataset[:], rows)
    store = OracleStore(path)
    assert store.version == WIDE and set(store.codecs()) == {3 if codec == "zstd_shuffle" else 4}
    assert set(store.table["reserved"].tolist()) == {4}
    assert store.faults() == []


def test_appending_to_a_dataset_upgrades_it_when_asked(tmp_path: Path) -> None:
    path = tmp_path / "a.zr"
    loaderx.write_ragged(path, [np.arange(5, dtype=np.uint8)], progress=False)
    large = np.frombuffer(LARGE, np.uint8)
    before = start_of_meta(path)
    with pytest.raises(loaderx.RecordTooLargeError, match="upgrade=True"):
        loaderx.write_ragged(path, [large[:3], large], progress=False)
    assert start_of_meta(path) == before
    loaderx.write_ragged(path, [large[:3], large], progress=False, upgrade=True)
    assert OracleStore(path).faults() == []
    assert contents(path) == [bytes(range(5)), LARGE[:3], LARGE]
    fixed = tmp_path / "b.zr"
    rows = np.arange(4000, dtype=np.uint32).reshape(2, 2000)
    loaderx.write_dataset(fixed, rows, "zstd", progress=False)
    with pytest.raises(loaderx.LoaderxError, match="codec"):
        loaderx.write_dataset(fixed, rows, "zstd_shuffle", progress=False)
    assert version_of(fixed) == VERSION


# --- refusals and crashes ----------------------------------------------------------------------------------------


def operations_of(change: Callable[[], Any]) -> list[tuple[str, str, Any]]:
    """Return the operations of a call: kind, file name, and where it writes."""
    seen: list[tuple[str, str, Any]] = []

    def observe(operation: str, where: Any, *details: Any) -> None:
        name = (
            os.path.basename(os.readlink(f"/proc/self/fd/{where}")) if isinstance(where, int) else where.name
        )
        seen.append((operation, name, details))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(files, "observe", observe)
        change()
    return seen


@widening
def test_the_version_is_written_behind_the_data_and_before_the_length(narrow: Path, what: str) -> None:
    change, _, _ = WIDENING[what]
    with Zrecord(narrow, upgrade=True) as z:
        fill(z, [b"begun"])
        writes = [
            (name, details) for kind, name, details in operations_of(lambda: change(z)) if kind == "write"
        ]
    places = [(name, next(d for d in details if isinstance(d, int))) for name, details in writes]
    version, length = places.index(("meta.zr", VERSION_AT)), places.index(("meta.zr", LENGTH_AT))
    assert length == len(places) - 1
    assert [name for name, _ in places[:version]] == ["0.zr", "sums.zr", "meta.zr", "sums.zr"]
    assert all(name == "meta.zr" and at < 16 for name, at in places[version:])


def upgrade(path: Path, change: Change) -> None:
    with Zrecord(path, "raw", upgrade=True) as z:
        change(z)


@widening
@pytest.mark.parametrize("once", [True, False], ids=["one", "all that follow"])
def test_an_upgrade_that_is_refused_at_any_operation(tmp_path: Path, what: str, once: bool) -> None:
    """The store holds what it held or all of the new, its version fits, and the next append works."""
    change, record, _ = WIDENING[what]
    path = tmp_path / "a.zr"
    with Zrecord(path, "raw") as z:
        fill(z, HELD)
    kinds = {kind for kind, _, _ in operations_of(lambda: upgrade(copied(path, tmp_path / "trial"), change))}
    versions = set()
    for kind in sorted(kinds):
        for after in range(100):
            place = copied(path, tmp_path / f"{kind}-{after}")
            z = Zrecord(place, "raw", upgrade=True)
            with refusing(kind, after=after, once=once, number=errno.EIO) as seen:
                failed = False
                try:
                    change(z)
                except (loaderx.StoreIOError, OSError):
                    failed = True
                refused = seen.count(kind) > after
            shown = contents(place)
            versions.add((failed, version_of(place)))
            assert shown == (HELD if failed else [*HELD, record]), (kind, after)
            if failed and once:
                assert version_of(place) == VERSION, (kind, after)
            assert read(z) == shown
            with Zrecord(place, mode="r") as reader:
                assert read(reader) == shown
            fill(z, [b"goes on"])
            assert change(z) == len(shown) + 1
            z.close()
            assert contents(place) == [*shown, b"goes on", record]
            check_sums(place)
            if not refused:
                break
    assert (True, VERSION) in versions and (False, WIDE) in versions
    if not once:
        assert (True, WIDE) in versions, "some of the refusals came between the version and the length"


def copied(path: Path, place: Path) -> Path:
    """Copy a store, its holes as holes."""
    place.mkdir()
    for file in path.iterdir():
        with file.open("rb") as old, (place / file.name).open("wb") as new:
            new.write(old.read(1 << 16))
            new.truncate(file.stat().st_size)
    return place


@widening
def test_a_writer_killed_at_any_operation_of_an_upgrade(tmp_path: Path, what: str) -> None:
    change, record, _ = WIDENING[what]
    path = tmp_path / "a.zr"
    with Zrecord(path, "raw") as z:
        fill(z, HELD)
    found = set()
    for number in range(1, 200):
        place = copied(path, tmp_path / f"killed-{number}")
        ended = finishes_before(number, partial(upgrade, place, change))
        shown = contents(place)
        assert shown in (HELD, [*HELD, record])
        found.add((len(shown), version_of(place)))
        with Zrecord(place, mode="r") as reader:
            assert read(reader) == shown
        with Zrecord(place, "raw") as z:
            assert read(z) == shown
            assert fill(z, [b"goes on"]) == len(shown)
        assert contents(place) == [*shown, b"goes on"]
        check_sums(place)
        if ended:
            break
    assert found == {(3, VERSION), (3, WIDE), (4, WIDE)}
