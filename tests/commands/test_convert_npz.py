"""``convert`` of .npz files: a store an array, all of them or none."""

from __future__ import annotations

import json
import os
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from loaderx import Dataset, StoreIOError, Zrecord, write_dataset, write_ragged
from loaderx.commands import npz_folder
from loaderx.store import files
from tests.commands.conftest import Run, listing

Fails = Callable[..., str]

IMAGES = np.repeat(np.arange(40, dtype=np.float32), 64).reshape(40, 8, 8)
LABELS = np.arange(40)


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    np.savez(tmp_path / "set.npz", images=IMAGES, labels=LABELS)
    return tmp_path / "set.npz"


def read_all(path: Path) -> np.ndarray:
    with Dataset(path) as dataset:
        return dataset[:]


def contents(folder: Path) -> dict[str, object]:
    """The names in a folder, and of every store its records."""
    found: dict[str, object] = dict.fromkeys(listing(folder))
    for name in list(found):
        if name.endswith("schema.json"):
            with Zrecord((folder / name).parent, mode="r") as store:
                counts = store.stats()
            found[name] = (counts["records"], counts["live_bytes"])
    return found


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
@pytest.mark.parametrize("order", ["C", "F"])
def test_new_folder(run: Run, tmp_path: Path, save: Callable[..., None], order: str) -> None:
    save(tmp_path / "set.npz", images=np.asarray(IMAGES, order=order), labels=LABELS)
    code, out, err = run(
        "convert", tmp_path / "set.npz", tmp_path / "out", "--verify", "--chunk-bytes", "1KiB"
    )
    assert (code, err) == (0, "")
    assert sorted(os.listdir(tmp_path)) == ["out", "set.npz"]
    assert sorted(os.listdir(tmp_path / "out")) == ["images.zr", "labels.zr"]
    np.testing.assert_array_equal(read_all(tmp_path / "out/images.zr"), IMAGES)
    np.testing.assert_array_equal(read_all(tmp_path / "out/labels.zr"), LABELS)
    first, second = out.splitlines()
    assert first.startswith(f"{tmp_path}/out/images.zr: 40 records, 10.0 KiB -> ") and first.endswith(
        ", verified"
    )
    assert second.startswith(f"{tmp_path}/out/labels.zr: 40 records, 320 B -> ")


def test_arrays_named_like_the_files_of_a_store(run: Run, tmp_path: Path) -> None:
    np.savez(tmp_path / "set.npz", **{"meta": LABELS, "0": LABELS, "dict": LABELS})
    for options in ([], ["--append"], ["--force"]):
        assert run("convert", tmp_path / "set.npz", tmp_path / "out", "--verify", *options).code == 0
    assert sorted(os.listdir(tmp_path / "out")) == ["0.zr", "dict.zr", "meta.zr"]
    np.testing.assert_array_equal(read_all(tmp_path / "out/meta.zr"), LABELS)


def test_json(run: Run, archive: Path, tmp_path: Path) -> None:
    code, out, err = run("convert", archive, tmp_path / "out", "--json", "--codec", "raw")
    assert (code, err, out.count("\n")) == (0, "", 1)
    facts = json.loads(out)
    assert facts["path"] == f"{tmp_path}/out"
    assert (facts["records"], facts["bytes_in"], facts["bytes_out"]) == (80, 10240 + 320, 10240 + 320)
    assert facts["verified"] is False
    assert {
        name: (array["path"], array["records"], array["codec"]) for name, array in facts["arrays"].items()
    } == {
        "images": (f"{tmp_path}/out/images.zr", 40, "raw"),
        "labels": (f"{tmp_path}/out/labels.zr", 40, "raw"),
    }


def test_zstd_dict_is_trained_through_the_zip(run: Run, tmp_path: Path) -> None:
    array = np.random.default_rng(0).integers(0, 4, (5000, 16, 16), dtype=np.uint8)
    np.savez_compressed(tmp_path / "set.npz", a=array)
    code, _, err = run("convert", tmp_path / "set.npz", tmp_path / "out", "--codec", "zstd_dict", "--verify")
    assert (code, err) == (0, "")
    assert (tmp_path / "out/a.zr/dict.zr").stat().st_size > 0


def test_names_are_checked_before_anything_is_written(fails: Fails, tmp_path: Path) -> None:
    np.savez(tmp_path / "set.npz", **{"fine": LABELS, "../evil": LABELS})
    names = listing(tmp_path)
    assert "'../evil'" in fails("convert", tmp_path / "set.npz", tmp_path / "out")
    assert listing(tmp_path) == names


@pytest.mark.parametrize(
    "bad", [np.array([{}, 1], dtype=object), np.array(5), np.zeros((2, (1 << 20) + 1), np.uint8)]
)
def test_one_array_that_cannot_be_written_stops_all(fails: Fails, tmp_path: Path, bad: np.ndarray) -> None:
    np.savez(tmp_path / "set.npz", fine=LABELS, zbad=bad)
    names = listing(tmp_path)
    assert "zbad" in fails("convert", tmp_path / "set.npz", tmp_path / "out")
    assert listing(tmp_path) == names


@pytest.mark.parametrize("kind", ["folder", "file", "store"])
def test_an_existing_destination_is_an_error(fails: Fails, archive: Path, tmp_path: Path, kind: str) -> None:
    destination = tmp_path / "out"
    if kind == "folder":
        destination.mkdir()
    elif kind == "file":
        destination.write_text("text")
    else:
        write_dataset(destination, LABELS)
    names = listing(tmp_path)
    assert f"{destination} exists" in fails("convert", archive, destination)
    if kind == "file":
        assert f"{destination} is not a folder" in fails("convert", archive, destination, "--append")
        assert f"{destination} is not a folder" in fails("convert", archive, destination, "--force")
    if kind == "store":
        assert f"{destination} is a store" in fails("convert", archive, destination, "--append")
        assert f"{destination} is a store" in fails("convert", archive, destination, "--force")
    assert listing(tmp_path) == names


def test_append_adds_to_some_and_makes_others(run: Run, archive: Path, tmp_path: Path) -> None:
    write_dataset(tmp_path / "out/images.zr", IMAGES[:5], "raw")
    write_dataset(tmp_path / "out/other.zr", LABELS)
    code, out, err = run("convert", archive, tmp_path / "out", "--append", "--verify")
    assert (code, err) == (0, "")
    assert ": 40 records added to 5, " in out.splitlines()[0]
    np.testing.assert_array_equal(read_all(tmp_path / "out/images.zr"), np.concatenate([IMAGES[:5], IMAGES]))
    np.testing.assert_array_equal(read_all(tmp_path / "out/labels.zr"), LABELS)
    assert sorted(os.listdir(tmp_path / "out")) == ["images.zr", "labels.zr", "other.zr"]
    assert sorted(os.listdir(tmp_path)) == ["out", "set.npz"]


def test_force_replaces_some_and_leaves_others(run: Run, archive: Path, tmp_path: Path) -> None:
    write_ragged(tmp_path / "out/images.zr", [np.arange(3)])
    write_dataset(tmp_path / "out/other.zr", LABELS)
    code, _, err = run("convert", archive, tmp_path / "out", "--force", "--verify")
    assert (code, err) == (0, "")
    np.testing.assert_array_equal(read_all(tmp_path / "out/images.zr"), IMAGES)
    np.testing.assert_array_equal(read_all(tmp_path / "out/other.zr"), LABELS)
    assert sorted(os.listdir(tmp_path / "out")) == ["images.zr", "labels.zr", "other.zr"]
    assert sorted(os.listdir(tmp_path)) == ["out", "set.npz"]


@pytest.mark.parametrize(
    ("option", "kind"),
    [
        ("--append", "schema"),
        ("--append", "file"),
        ("--append", "folder"),
        ("--force", "file"),
        ("--force", "folder"),
        ("--force", "store with a letter"),
    ],
)
def test_what_does_not_fit_is_found_before_anything_is_written(
    fails: Fails, archive: Path, tmp_path: Path, option: str, kind: str
) -> None:
    write_dataset(tmp_path / "out/images.zr", IMAGES[:5])
    bad = tmp_path / "out/labels.zr"
    if kind == "schema":
        write_dataset(bad, LABELS.astype("f4"))
    elif kind == "file":
        bad.write_text("text")
    elif kind == "store with a letter":
        write_dataset(bad, LABELS)
        (bad / "letter.txt").write_text("dear reader")
    else:
        bad.mkdir()
        (bad / "thesis.txt").write_text("years of work")
    before = contents(tmp_path)
    assert str(bad) in fails("convert", archive, tmp_path / "out", option)
    assert contents(tmp_path) == before


@pytest.mark.parametrize("option", [None, "--append", "--force"])
def test_damage_in_a_later_array_takes_the_earlier_ones_back(
    fails: Fails, tmp_path: Path, option: str | None
) -> None:
    array = np.random.default_rng(0).integers(0, 255, (4000, 100), dtype=np.uint8)
    np.savez(tmp_path / "set.npz", a=array, b=array, c=array)
    if option:
        write_dataset(tmp_path / "out/a.zr", array[:7])
        write_dataset(tmp_path / "out/c.zr", array[:9])
    content = bytearray((tmp_path / "set.npz").read_bytes())
    with zipfile.ZipFile(tmp_path / "set.npz") as opened:
        content[opened.getinfo("c.npy").header_offset + 300_000] ^= 1
    (tmp_path / "set.npz").write_bytes(content)
    before = contents(tmp_path)
    line = fails("convert", tmp_path / "set.npz", tmp_path / "out", *([option] if option else []))
    assert "set.npz:c cannot be read: Bad CRC-32" in line
    assert contents(tmp_path) == before


def test_what_cannot_be_taken_back_is_said(
    fails: Fails, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_dataset(tmp_path / "out/a.zr", LABELS)
    np.savez(tmp_path / "set.npz", a=LABELS, b=LABELS)

    def fail(*_details: object) -> None:
        raise StoreIOError("the disk went away")

    monkeypatch.setattr(npz_folder, "_put_in_places", fail)
    monkeypatch.setattr(Zrecord, "delete", fail)
    line = fails("convert", tmp_path / "set.npz", tmp_path / "out", "--append")
    assert line == (
        "loaderx convert: the disk went away; and what was appended to "
        f"{tmp_path}/out/a.zr could not be deleted again"
    )
    assert listing(tmp_path / "out") == ["a.zr", "a.zr/0.zr", "a.zr/meta.zr", "a.zr/schema.json"]


def test_without_exchange_stores_are_still_replaced(
    run: Run, archive: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_dataset(tmp_path / "out/images.zr", IMAGES[:5])
    monkeypatch.setattr(files, "exchange", lambda _source, _target: False)
    assert run("convert", archive, tmp_path / "out", "--force").code == 0
    np.testing.assert_array_equal(read_all(tmp_path / "out/images.zr"), IMAGES)
    assert sorted(os.listdir(tmp_path / "out")) == ["images.zr", "labels.zr"]


def test_verify_names_the_array_and_record(
    run: Run, archive: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = npz_folder.verify

    def verify_after_a_change(*arguments: object, **options: object) -> None:
        changed = LABELS.copy()
        changed[11] = -1
        write_dataset(tmp_path / "out/labels.zr", changed, overwrite=True)
        real(*arguments, **options)

    monkeypatch.setattr(npz_folder, "verify", verify_after_a_change)
    code, out, err = run("convert", archive, tmp_path / "out", "--verify")
    assert (code, out) == (1, "")
    assert err == (
        f"loaderx convert: {tmp_path}/out/labels.zr: record 11 is not the same as its source {archive}:labels[11]\n"
    )
