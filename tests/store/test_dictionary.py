"""A damaged, cut, missing or other dict.zr: never other records in silence, and no record is given up for it."""

from __future__ import annotations

import json
import os
import pickle
import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
import zstandard

import loaderx
from loaderx import DictionaryError, Zrecord, write_ragged
from loaderx.store import mark
from tests.oracle import OracleStore, swap_delete, train
from tests.store.children import Pause, other_process
from tests.store.refusals import refusing
from tests.store.samples import contents, fill, flip, read
from tests.store.sums import SUMS, check_sums, checksum32

DICT = "dict.zr"
RECORDS = [f"user={i % 17};item={i * 7919 % 1000};country=NL;device=phone".encode() for i in range(1500)]
OTHERS = [f"{i * 31 % 977} times the brown fox, {i % 7} times the dog".encode() for i in range(1500)]
PLAIN = [b"plain record %d" % number * 3 for number in range(10)]
#: What the message of every refusal for a damaged dictionary says.
DAMAGED = "dict.zr is damaged: its bytes are not those that the records were compressed with: restore it from a copy"


def train_on(z: Zrecord, samples: list[bytes] = RECORDS, target: int = 2000) -> None:
    z.train_dict(b"".join(samples), [len(sample) for sample in samples], target)


@pytest.fixture
def path(store_path: Path) -> Path:
    """Return a store of 10 records without and 300 with the dictionary, made in one session."""
    with Zrecord(store_path, "zstd_dict", level=3) as z:
        fill(z, PLAIN, "zstd")
        train_on(z)
        fill(z, RECORDS[:300])
    return store_path


def tag_of(path: Path) -> int:
    """Return the dictionary's tag in the mark of sums.zr."""
    return int(struct.unpack_from("<I", (path / SUMS).read_bytes(), 24)[0])


def forget_tag(path: Path) -> None:
    """Have the mark be one of before there were tags."""
    with (path / SUMS).open("r+b") as file:
        head = file.read(24) + bytes(4)
        file.seek(0)
        file.write(head + struct.pack("<I", checksum32(head)))


def check_unusable(path: Path, state: Literal["missing", "damaged"], *, n_dependent: int = 300) -> None:
    """Check that records that need the dictionary are refused everywhere, others read, and nothing is given up."""
    words = DAMAGED if state == "damaged" else "the store has no dict.zr"
    for io in ("mmap", "pread"):
        for verify in (False, True):
            with Zrecord(path, mode="r", io=io, verify=verify) as z:
                assert not z.has_dict()
                assert z.gather_packed(np.arange(10))[0].tobytes() == b"".join(PLAIN)
                for index in (10, 10 + n_dependent - 1):
                    with pytest.raises(DictionaryError, match=f"record {index} .*{words}") as caught:
                        z.gather_packed([0, index])
                    assert caught.value.code == -7 and caught.value.store == path
    report = loaderx.verify(path)
    assert (report.ok, report.dictionary, report.unreadable) == (False, state, n_dependent)
    assert report.damaged == () and report.checked == report.records and report.unchecked == 0
    plain = report.as_dict()
    assert (plain["ok"], plain["dictionary"], plain["unreadable"]) == (False, state, n_dependent)
    assert json.loads(json.dumps(plain)) == plain


def check_whole(path: Path, records: list[bytes]) -> None:
    report = loaderx.verify(path)
    assert (report.ok, report.dictionary, report.unreadable, report.damaged) == (True, "good", 0, ())
    with Zrecord(path, mode="r", verify=True) as z:
        assert z.has_dict() and read(z) == records
    assert contents(path) == records


# ---- the tag -----------------------------------------------------------------------------------------------------


def test_the_mark_has_the_checksum_of_the_dictionary(path: Path) -> None:
    assert tag_of(path) == checksum32((path / DICT).read_bytes())
    check_sums(path)
    check_whole(path, PLAIN + RECORDS[:300])
    with Zrecord(path, "zstd_dict") as z:
        fill(z, RECORDS[300:310])
        z.delete([3, 200])
        z.compact()
        z.pack()
    check_sums(path)
    check_whole(path, swap_delete(PLAIN + RECORDS[:310], [3, 200]))


def test_a_store_without_a_dictionary_has_no_tag(store_path: Path) -> None:
    with Zrecord(store_path) as z:
        fill(z, PLAIN)
    assert tag_of(store_path) == 0
    report = loaderx.verify(store_path)
    assert (report.ok, report.dictionary, report.unreadable) == (True, None, 0)


@pytest.mark.parametrize("order", ["train first", "append first", "two handles"])
def test_whenever_it_is_trained(order: str, store_path: Path) -> None:
    with Zrecord(store_path, "zstd_dict", level=3) as z:
        if order != "train first":
            fill(z, PLAIN, "raw")
        if order != "two handles":
            train_on(z)
            fill(z, RECORDS[:5])
    if order == "two handles":
        with Zrecord(store_path) as z:
            train_on(z)
        assert tag_of(store_path) == checksum32((store_path / DICT).read_bytes())
        with Zrecord(store_path, "zstd_dict", level=3) as z:
            fill(z, RECORDS[:5])
    check_sums(store_path)
    assert loaderx.verify(store_path).dictionary == "good"


def test_a_dataset_has_it(tmp_path: Path) -> None:
    for codec in ("zstd_dict", "zstd_shuffle_dict"):
        rows = [np.frombuffer(record[: len(record) // 2 * 2], "<u2") for record in RECORDS]
        write_ragged(tmp_path / codec, rows, codec=codec, level=3)
        assert tag_of(tmp_path / codec) == checksum32((tmp_path / codec / DICT).read_bytes())
        flip(tmp_path / codec, DICT, -20 % (tmp_path / codec / DICT).stat().st_size)
        report = loaderx.verify(tmp_path / codec)
        assert not report.ok and report.unreadable > 1000 and report.damaged == ()
        with (
            loaderx.RaggedDataset(tmp_path / codec) as dataset,
            pytest.raises(DictionaryError, match=DAMAGED),
        ):
            dataset[:]
        with pytest.raises(DictionaryError, match=DAMAGED):
            write_ragged(tmp_path / codec, rows[:5], codec=codec)
        flip(tmp_path / codec, DICT, -20 % (tmp_path / codec / DICT).stat().st_size)
        assert loaderx.verify(tmp_path / codec).ok, "it is not removed, nor is it trained anew"


def test_training_anew_changes_it(store_path: Path) -> None:
    """As long as no record needs the old one; also behind an append of others, in the same session."""
    with Zrecord(store_path, "zstd_dict", level=3) as z:
        fill(z, PLAIN, "raw")
        train_on(z, OTHERS)
        first = tag_of(store_path)
        train_on(z)
        assert tag_of(store_path) == checksum32((store_path / DICT).read_bytes()) != first
        fill(z, RECORDS[:9])
        assert read(z) == PLAIN + RECORDS[:9]
    check_whole(store_path, PLAIN + RECORDS[:9])


@pytest.mark.parametrize("before", ["write", "fsync"])
def test_training_anew_that_is_cut_off_before_the_mark(before: str, store_path: Path) -> None:
    """The mark names the old one, and no record needs it: the new one is good for whoever comes."""
    with Zrecord(store_path, "zstd_dict", level=3) as z:
        fill(z, PLAIN, "raw")
        train_on(z, OTHERS)
    old = tag_of(store_path)
    with Zrecord(store_path, "zstd_dict", level=3) as z:
        with refusing(before, after=2, once=True), pytest.raises(loaderx.StoreIOError, match="dictionary"):
            train_on(z)
        assert (tag_of(store_path) == old) == (before == "write")
        assert checksum32((store_path / DICT).read_bytes()) != old
        assert loaderx.verify(store_path).ok
        fill(z, RECORDS[:9])
    check_sums(store_path)
    check_whole(store_path, PLAIN + RECORDS[:9])


def test_an_older_store_gets_a_tag_with_the_next_append(path: Path) -> None:
    forget_tag(path)
    report = loaderx.verify(path)
    assert (report.ok, report.dictionary, report.unreadable) == (True, "unchecked", 0)
    with Zrecord(path) as z:
        assert read(z) == PLAIN + RECORDS[:300]
        fill(z, [b"one more"], "raw")
    check_sums(path)
    check_whole(path, [*PLAIN, *RECORDS[:300], b"one more"])


def test_without_sums_nothing_is_known(path: Path) -> None:
    (path / SUMS).unlink()
    report = loaderx.verify(path)
    assert (report.ok, report.dictionary, report.unchecked) == (True, "unchecked", 310)
    with Zrecord(path, "zstd_dict") as z:
        assert read(z) == PLAIN + RECORDS[:300]
        fill(z, RECORDS[:2])
    assert tag_of(path) == checksum32((path / DICT).read_bytes())


# ---- damage ------------------------------------------------------------------------------------------------------


def test_every_flipped_byte_is_noticed(path: Path) -> None:
    size = (path / DICT).stat().st_size
    assert size > 1000
    for offset in [*range(0, size, 37), size - 1]:
        flip(path, DICT, offset, 1 << offset % 8)
        report = loaderx.verify(path)
        assert (report.ok, report.dictionary, report.unreadable, report.damaged) == (
            False,
            "damaged",
            300,
            (),
        )
        with Zrecord(path, mode="r") as z, pytest.raises(DictionaryError, match=DAMAGED):
            read(z)
        flip(path, DICT, offset, 1 << offset % 8)
    check_whole(path, PLAIN + RECORDS[:300])


DAMAGES: dict[str, Callable[[Path], Any]] = {
    "flipped": lambda path: flip(path, DICT, 900),
    "no magic": lambda path: flip(path, DICT, 0),
    "a damaged head": lambda path: (path / DICT).write_bytes((path / DICT).read_bytes()[:8] + bytes(1000)),
    "cut": lambda path: os.truncate(path / DICT, (path / DICT).stat().st_size // 2),
    "cut by a byte": lambda path: os.truncate(path / DICT, (path / DICT).stat().st_size - 1),
    "longer": lambda path: (path / DICT).write_bytes((path / DICT).read_bytes() + b"\0"),
    "another's": lambda path: (path / DICT).write_bytes(train(OTHERS, 2000)),
    "removed": lambda path: (path / DICT).unlink(),
    "emptied": lambda path: os.truncate(path / DICT, 0),
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES.keys())
def test_a_dictionary_that_is_not_what_it_was(
    damage: Callable[[Path], Any], path: Path, tmp_path: Path
) -> None:
    shutil.copy(path / DICT, tmp_path / "copy")
    tag = tag_of(path)
    damage(path)
    is_there = (path / DICT).exists() and (path / DICT).stat().st_size > 0
    state: Literal["missing", "damaged"] = "damaged" if is_there else "missing"
    check_unusable(path, state)

    # Other records can be appended, and nothing is appended or trained that would make things worse.
    with Zrecord(path, "zstd_dict") as z:
        for codec in ("zstd_dict", None):
            with pytest.raises(DictionaryError, match=DAMAGED if is_there else "train_dict first") as caught:
                fill(z, RECORDS[:3], codec)
            assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)
        with pytest.raises(DictionaryError, match=DAMAGED if is_there else "could not be read with another"):
            train_on(z)
        fill(z, [b"more"], "zstd")
        fill(z, [b"and more"], "raw")
        assert z.gather_packed([310, 311])[0].tobytes() == b"moreand more"
    assert tag_of(path) == tag, "what is damaged is never taken for right"
    check_unusable(path, state)

    # What the recipe for damaged records does; and the store is changed in every other way.
    with Zrecord(path) as z:
        z.delete([damage.record for damage in loaderx.verify(path).damaged])
        assert len(z) == 312
        z.compact()
        z.delete([311])
        z.pack()
    assert tag_of(path) == tag
    check_unusable(path, state)

    shutil.copy(tmp_path / "copy", path / DICT)
    check_whole(path, [*PLAIN, *RECORDS[:300], b"more"])
    with Zrecord(path, "zstd_dict") as z:
        fill(z, RECORDS[300:302])
    check_sums(path)
    check_whole(path, [*PLAIN, *RECORDS[:300], b"more", *RECORDS[300:302]])


def test_a_handle_keeps_the_dictionary_that_it_has_read(path: Path) -> None:
    """What becomes of the file after that is no reason to stop."""
    with Zrecord(path, mode="r") as reader:
        for damage in (DAMAGES["flipped"], DAMAGES["removed"]):
            damage(path)
            reader.refresh()
            assert reader.has_dict() and read(reader) == PLAIN + RECORDS[:300]


def test_a_handle_sees_mending_when_it_refreshes(path: Path, tmp_path: Path) -> None:
    shutil.copy(path / DICT, tmp_path / "copy")
    flip(path, DICT, 900)
    with Zrecord(path, mode="r") as reader:
        with pytest.raises(DictionaryError, match=DAMAGED):
            read(reader)
        with Zrecord(path) as z:
            fill(z, [b"more"])
        assert reader.refresh() == 311 and reader.gather_packed([310])[0].tobytes() == b"more"
        with pytest.raises(DictionaryError, match=DAMAGED):
            read(reader)
        shutil.copy(tmp_path / "copy", path / DICT)
        reader.refresh()
        assert reader.has_dict() and read(reader) == [*PLAIN, *RECORDS[:300], b"more"]


def test_damaged_in_the_middle_of_a_session(path: Path, tmp_path: Path) -> None:
    with Zrecord(path, "zstd_dict", level=3) as z:
        fill(z, RECORDS[300:302])
        shutil.copy(path / DICT, tmp_path / "copy")
        flip(path, DICT, 900)
        with pytest.raises(DictionaryError, match=DAMAGED):
            fill(z, RECORDS[302:304])
        fill(z, [b"raw"], "raw")
        shutil.copy(tmp_path / "copy", path / DICT)
        fill(z, RECORDS[302:304])
        assert read(z) == [*PLAIN, *RECORDS[:302], b"raw", *RECORDS[302:304]]
    check_sums(path)


def test_a_record_that_is_damaged_too_is_named(path: Path) -> None:
    """Its own damage is found without the dictionary; the others are still not accused."""
    flip(path, DICT, 900)
    entry = OracleStore(path).table[50]
    flip(path, "0.zr", int(entry["offset"]) + int(entry["phys_length"]) - 1)
    report = loaderx.verify(path)
    assert [damage.record for damage in report.damaged] == [50] and "checksum" in report.damaged[0].problem
    assert (report.dictionary, report.unreadable) == ("damaged", 299)


def test_damage_where_there_is_no_tag(path: Path) -> None:
    """Frames that are what was written and cannot be decompressed: no record is accused of it."""
    forget_tag(path)
    (path / DICT).write_bytes(train(OTHERS, 2000))
    report = loaderx.verify(path)
    assert (report.ok, report.dictionary, report.unreadable, report.damaged) == (False, "damaged", 300, ())
    (path / DICT).write_bytes(b"\x37\xa4\x30\xec" + bytes(99))
    check_unusable(path, "damaged")
    with Zrecord(path) as z:
        fill(z, [b"more"])
    assert tag_of(path) == 0, "what libzstd takes for no dictionary is not what records need"


def test_a_damaged_dictionary_that_nobody_needs(store_path: Path) -> None:
    """It is what it is: records are compressed with what is there, and one that is none can be trained anew."""
    with Zrecord(store_path) as z:
        fill(z, PLAIN)
        train_on(z)
    flip(store_path, DICT, 900)
    assert loaderx.verify(store_path).dictionary == "unchecked" and loaderx.verify(store_path).ok
    with Zrecord(store_path, "zstd_dict", level=3) as z:
        assert z.has_dict()
        fill(z, RECORDS[:4])
    check_sums(store_path)
    check_whole(store_path, PLAIN + RECORDS[:4])
    with Zrecord(store_path) as z:
        z.delete(range(10, 14))
    (store_path / DICT).write_bytes(b"\x37\xa4\x30\xec" + bytes(99))
    report = loaderx.verify(store_path)
    assert (report.ok, report.dictionary, report.unreadable) == (False, "damaged", 0)
    with Zrecord(store_path, "zstd_dict", level=3) as z:
        assert read(z) == PLAIN and not z.has_dict()
        with pytest.raises(DictionaryError, match=DAMAGED):
            fill(z, RECORDS[:4])
        train_on(z)
        fill(z, RECORDS[:4])
        assert read(z) == PLAIN + RECORDS[:4]
    check_sums(store_path)
    check_whole(store_path, PLAIN + RECORDS[:4])


def test_once_no_record_needs_it_another_may_be_trained(path: Path) -> None:
    flip(path, DICT, 900)
    with Zrecord(path, "zstd_dict", level=3) as z:
        z.delete(range(10, 310))
        train_on(z, OTHERS)
        fill(z, OTHERS[:20])
    check_sums(path)
    check_whole(path, PLAIN + OTHERS[:20])


def test_after_a_killed_session(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a power loss may have taken is judged by the sums, and the tag stays what it was."""

    def body(pause: Pause) -> None:
        z = Zrecord(path, "zstd_dict", level=3)
        fill(z, RECORDS[300:320])
        pause()

    with other_process(body) as other:
        other.kill()
    tag = tag_of(path)
    flip(path, DICT, 900)
    monkeypatch.setattr(mark, "boot_id", lambda: b"another boot....")
    check_unusable(path, "damaged", n_dependent=320)
    with Zrecord(path) as z:
        fill(z, [b"more"])
    assert tag_of(path) == tag
    check_unusable(path, "damaged", n_dependent=320)


# ---- other programs ----------------------------------------------------------------------------------------------


def other_appends(path: Path, frame: bytes, length: int) -> None:
    """Append a record of codec 2 as a program does that knows of no sums."""
    store = OracleStore(path)
    with (path / "0.zr").open("r+b") as chunk, (path / "meta.zr").open("r+b") as meta:
        chunk.seek(store.tail_offset)
        chunk.write(frame)
        meta.seek(16 + 16 * store.length)
        meta.write(struct.pack("<IIIHBB", store.tail_offset, len(frame), length, 0, 2, 0))
        meta.seek(8)
        meta.write(struct.pack("<II", store.tail_offset + len(frame), store.length + 1))


def framed(record: bytes, dictionary: bytes) -> bytes:
    return zstandard.ZstdCompressor(dict_data=zstandard.ZstdCompressionDict(dictionary)).compress(record)


def test_another_program_appends_with_the_dictionary(path: Path) -> None:
    """The mark is no longer the store's, and its tag of the dictionary holds: nobody changes that."""
    other_appends(path, framed(RECORDS[700], (path / DICT).read_bytes()), len(RECORDS[700]))
    report = loaderx.verify(path)
    assert (report.ok, report.dictionary, report.unchecked) == (True, "good", 1)
    flip(path, DICT, 900)
    with Zrecord(path, mode="r") as z, pytest.raises(DictionaryError, match=DAMAGED):
        z.gather_packed([310])
    report = loaderx.verify(path)
    assert (report.dictionary, report.unreadable, report.unchecked) == ("damaged", 301, 1)
    tag = tag_of(path)
    with Zrecord(path) as z:
        fill(z, [b"more"])
    assert tag_of(path) == tag
    flip(path, DICT, 900)
    assert read(Zrecord(path, mode="r", verify=True)) == [*PLAIN, *RECORDS[:300], RECORDS[700], b"more"]


def test_another_program_trains_where_there_is_none(store_path: Path) -> None:
    """No record of before needs one, so the tag of one that was removed speaks for nothing."""
    with Zrecord(store_path) as z:
        fill(z, PLAIN)
        train_on(z)
    (store_path / DICT).unlink()
    dictionary = train(OTHERS, 2000)
    (store_path / DICT).write_bytes(dictionary)
    other_appends(store_path, framed(OTHERS[0], dictionary), len(OTHERS[0]))
    report = loaderx.verify(store_path)
    assert (report.ok, report.dictionary) == (True, "unchecked")
    with Zrecord(store_path, "zstd_dict", level=3) as z:
        assert read(z) == [*PLAIN, OTHERS[0]]
        fill(z, OTHERS[1:3])
    check_sums(store_path, unchecked=[10])
    check_whole(store_path, PLAIN + OTHERS[:3])


@pytest.mark.parametrize("change", ["delete", "compact", "pack"])
def test_another_program_trains_and_we_change_without_appending(change: str, store_path: Path) -> None:
    """The mark comes to be the store's again, and its tag the new dictionary's."""
    with Zrecord(store_path) as z:
        fill(z, PLAIN)
        train_on(z)
    dictionary = train(OTHERS, 2000)
    (store_path / DICT).write_bytes(dictionary)
    for record in OTHERS[:3]:
        other_appends(store_path, framed(record, dictionary), len(record))
    with Zrecord(store_path) as z:
        {"delete": lambda: z.delete([4]), "compact": z.compact, "pack": z.pack}[change]()
    records = PLAIN + OTHERS[:3]
    check_whole(store_path, swap_delete(records, [4]) if change == "delete" else records)
    flip(store_path, DICT, 900)
    assert loaderx.verify(store_path).dictionary == "damaged"


def test_a_change_without_an_append_gives_an_older_store_its_tag(path: Path) -> None:
    forget_tag(path)
    with Zrecord(path) as z:
        z.delete([3])
    check_sums(path)
    check_whole(path, swap_delete(PLAIN + RECORDS[:300], [3]))


def test_another_program_trains_in_place_of_a_lost_one(path: Path) -> None:
    """The tag holds for the old records, so the new dictionary is not used; without sums.zr it is."""
    (path / DICT).unlink()
    dictionary = train(OTHERS, 2000)
    (path / DICT).write_bytes(dictionary)
    other_appends(path, framed(OTHERS[0], dictionary), len(OTHERS[0]))
    report = loaderx.verify(path)
    assert (report.ok, report.dictionary, report.unreadable, report.damaged) == (False, "damaged", 301, ())
    with Zrecord(path, mode="r") as z, pytest.raises(DictionaryError, match=DAMAGED):
        z.gather_packed([310])
    (path / SUMS).unlink()
    with Zrecord(path, mode="r") as z:
        assert z.gather_packed([310])[0].tobytes() == OTHERS[0]
        with pytest.raises(loaderx.CorruptRecordError, match=r"record 309 .*not a whole zstd frame"):
            z.gather_packed([309])
