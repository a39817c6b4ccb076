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
from tests.oracle import OracleStore

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


def test_records_over_1_mib_make_a_store_of_version_4(run: Run, tmp_path: Path) -> None:
    np.savez(tmp_path / "set.npz", large=np.ones((2, (1 << 20) + 1), np.uint8), labels=LABELS)
    assert run("convert", tmp_path / "set.npz", tmp_path / "out").code == 0
    assert read_all(tmp_path / "out" / "large.zr").all()
    versions = {name: OracleStore(tmp_path / "out" / f"{name}.zr").version for name in ("large", "labels")}
    assert versions == {"large": 4, "labels": 3}


@pytest.mark.parametrize("bad", [np.array([{}, 1], dtype=object), np.array(5)])
def test_one_array_that_cannot_be_written_stops_all(fails: Fails, tmp_path: Path, bad: np.ndarray) -> None:
    np.savez(tmp_path / "set.npz", fine=LABELS, zbad=bad)
    names = listing(tmp_path)
    assert "zbad" in fails("convert", tmp_path / "set.npz", tmp_path / "out")
    assert listing(tmp_path) == names


@pytest.mark.parametrize("kind", ["folder", "file", "store", "folder of stores", "folder of other files"])
def test_an_existing_destination_is_an_error(fails: Fails, archive: Path, tmp_path: Path, kind: str) -> None:
    destination = tmp_path / "out"
    if kind == "folder":
        destination.mkdir()
    elif kind == "file":
        destination.write_text("text")
    elif kind == "store":
        write_dataset(destination, LABELS)
    elif kind == "folder of stores":
        write_dataset(destination / "images.zr", IMAGES)
        write_dataset(destination / "labels.zr", LABELS)
    elif kind == "folder of other files":
        destination.mkdir()
        (destination / "thesis.txt").write_text("years of work")
    before = contents(tmp_path)
    words = {
        "folder": "exists and holds no loaderx stores; choose another path",
        "folder of other files": "exists and holds no loaderx stores; choose another path",
        "folder of stores": "exists; --append adds records to its stores, --force replaces them",
        "file": "exists and is not a folder; a .npz file becomes a folder of stores: choose another path",
        "store": "is a store; a .npz file becomes a folder of stores: choose another path",
    }[kind]
    for option in ([], ["--append"], ["--force"]):
        if option and kind in ("folder", "folder of stores"):
            continue
        assert fails("convert", archive, destination, *option) == f"loaderx convert: {destination} {words}"
    assert contents(tmp_path) == before


@pytest.mark.parametrize("option", ["--append", "--force"])
@pytest.mark.parametrize("kind", ["nothing", "empty folder", "what a dead writer left"])
def test_append_and_force_make_what_is_not_there(
    run: Run, archive: Path, tmp_path: Path, option: str, kind: str
) -> None:
    if kind == "empty folder":
        (tmp_path / "out").mkdir()
    elif kind == "what a dead writer left":
        write_dataset(tmp_path / "out/..npz.partial-4242-0f1e2d3c", LABELS)
    assert run("convert", archive, tmp_path / "out", option, "--verify").code == 0
    assert sorted(os.listdir(tmp_path / "out")) == ["images.zr", "labels.zr"]
    np.testing.assert_array_equal(read_all(tmp_path / "out/images.zr"), IMAGES)
    np.testing.assert_array_equal(read_all(tmp_path / "out/labels.zr"), LABELS)


def test_append_adds_to_every_store(run: Run, archive: Path, tmp_path: Path) -> None:
    write_dataset(tmp_path / "out/images.zr", IMAGES[:5], "raw")
    write_dataset(tmp_path / "out/labels.zr", LABELS[:5])
    (tmp_path / "out/readme.txt").write_text("about")
    code, out, err = run("convert", archive, tmp_path / "out", "--append", "--verify")
    assert (code, err) == (0, "")
    assert all(": 40 records added to 5, " in line for line in out.splitlines())
    np.testing.assert_array_equal(read_all(tmp_path / "out/images.zr"), np.concatenate([IMAGES[:5], IMAGES]))
    np.testing.assert_array_equal(read_all(tmp_path / "out/labels.zr"), np.concatenate([LABELS[:5], LABELS]))
    assert sorted(os.listdir(tmp_path / "out")) == ["images.zr", "labels.zr", "readme.txt"]
    assert sorted(os.listdir(tmp_path)) == ["out", "set.npz"]


@pytest.mark.parametrize(
    ("stores", "only", "differences"),
    [
        (["images"], [], "{out} has no store labels.zr"),
        (["images", "labels", "masks"], [], "{archive} has no array for {out}/masks.zr"),
        (
            ["images", "masks"],
            [],
            "{out} has no store labels.zr and {archive} has no array for {out}/masks.zr",
        ),
        (["images", "labels"], ["images"], "--only names no array for {out}/labels.zr"),
    ],
)
def test_append_of_other_arrays_than_the_stores_is_refused(
    fails: Fails, archive: Path, tmp_path: Path, stores: list[str], only: list[str], differences: str
) -> None:
    out = tmp_path / "out"
    for name in stores:
        write_dataset(out / f"{name}.zr", {"images": IMAGES[:5], "labels": LABELS[:5]}.get(name, LABELS[:5]))
    before = contents(tmp_path)
    options = [word for name in only for word in ("--only", name)]
    assert fails("convert", archive, out, "--append", *options) == (
        f"loaderx convert: {differences.format(out=out, archive=archive)}; --append adds to every store of a folder, "
        "and only to them, so that they stay in step"
    )
    assert contents(tmp_path) == before


def test_force_replaces_stores_and_makes_others(run: Run, archive: Path, tmp_path: Path) -> None:
    write_ragged(tmp_path / "out/images.zr", [np.arange(3)])
    (tmp_path / "out/readme.txt").write_text("about")
    code, _, err = run("convert", archive, tmp_path / "out", "--force", "--verify")
    assert (code, err) == (0, "")
    np.testing.assert_array_equal(read_all(tmp_path / "out/images.zr"), IMAGES)
    np.testing.assert_array_equal(read_all(tmp_path / "out/labels.zr"), LABELS)
    assert sorted(os.listdir(tmp_path / "out")) == ["images.zr", "labels.zr", "readme.txt"]
    assert sorted(os.listdir(tmp_path)) == ["out", "set.npz"]


@pytest.mark.parametrize("only", [[], ["--only", "images"]])
def test_force_that_would_leave_stores_of_other_arrays_is_refused(
    fails: Fails, archive: Path, tmp_path: Path, only: list[str]
) -> None:
    out = tmp_path / "out"
    for name in ("images", "old10", "old2"):
        write_dataset(out / f"{name}.zr", LABELS)
    before = contents(tmp_path)
    what = "--only names" if only else f"{archive} has"
    assert fails("convert", archive, out, "--force", *only) == (
        f"loaderx convert: {what} no array for {out}/old10.zr, {out}/old2.zr, which --force would leave behind beside "
        "the new stores; move away or remove what is left over, or choose another path"
    )
    assert contents(tmp_path) == before


def test_only_takes_the_arrays_named(run: Run, fails: Fails, tmp_path: Path) -> None:
    np.savez(tmp_path / "set.npz", images=IMAGES, scale=np.float32(2), labels=LABELS, more=LABELS)
    line = fails("convert", tmp_path / "set.npz", tmp_path / "out")
    assert line == (
        f"loaderx convert: {tmp_path}/set.npz:scale holds a single value (shape ()); it has no axis 0 to take records "
        "from; choose the arrays to convert by --only NAME"
    )
    options = ["--only", "labels", "--only", "images", "--only", "labels", "--json"]
    code, out, err = run("convert", tmp_path / "set.npz", tmp_path / "out", *options)
    assert (code, err, list(json.loads(out)["arrays"])) == (0, "", ["images", "labels"])
    assert sorted(os.listdir(tmp_path / "out")) == ["images.zr", "labels.zr"]
    assert run("convert", tmp_path / "set.npz", tmp_path / "out", "--append", *options).code == 0
    np.testing.assert_array_equal(read_all(tmp_path / "out/labels.zr"), np.concatenate([LABELS, LABELS]))
    line = fails("convert", tmp_path / "set.npz", tmp_path / "new", "--only", "scale")
    assert line.endswith("it has no axis 0 to take records from")


def test_level_for_one_raw_store_of_several_is_refused(fails: Fails, archive: Path, tmp_path: Path) -> None:
    write_dataset(tmp_path / "out/images.zr", IMAGES)
    write_dataset(tmp_path / "out/labels.zr", LABELS, "raw")
    before = contents(tmp_path)
    line = fails("convert", archive, tmp_path / "out", "--append", "--level", "3")
    assert line.endswith(
        f"--level goes with a codec that compresses, and raw does not, and {tmp_path}/out/labels.zr has the codec raw"
    )
    assert contents(tmp_path) == before


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
        for number, name in enumerate("abc"):
            write_dataset(tmp_path / f"out/{name}.zr", array[: 7 + number])
    content = bytearray((tmp_path / "set.npz").read_bytes())
    with zipfile.ZipFile(tmp_path / "set.npz") as opened:
        content[opened.getinfo("c.npy").header_offset + 300_000] ^= 1
    (tmp_path / "set.npz").write_bytes(content)
    before = contents(tmp_path)
    line = fails("convert", tmp_path / "set.npz", tmp_path / "out", *([option] if option else []))
    assert "set.npz:c cannot be read: Bad CRC-32" in line
    assert contents(tmp_path) == before


def test_what_cannot_be_taken_back_is_said(
    run: Run, fails: Fails, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_dataset(tmp_path / "out/a.zr", LABELS)
    write_dataset(tmp_path / "out/b.zr", LABELS)
    np.savez(tmp_path / "set.npz", a=LABELS, b=LABELS)

    def fail(*_details: object) -> None:
        raise StoreIOError("the disk went away")

    real = npz_folder.convert_source

    def convert_the_first(source: object, path: Path, *details: object, **options: object) -> object:
        return real(source, path, *details, **options) if path.name == "a.zr" else fail()  # type: ignore[arg-type]

    with monkeypatch.context() as failing:
        failing.setattr(npz_folder, "convert_source", convert_the_first)
        failing.setattr(Zrecord, "delete", fail)
        line = fails("convert", tmp_path / "set.npz", tmp_path / "out", "--append")
    assert line == (
        "loaderx convert: the disk went away; and what was appended to "
        f"{tmp_path}/out/a.zr could not be deleted again; the next append to the folder tries it anew"
    )
    np.testing.assert_array_equal(read_all(tmp_path / "out/b.zr"), LABELS)
    assert run("convert", tmp_path / "set.npz", tmp_path / "out", "--append").code == 0
    assert sorted(os.listdir(tmp_path / "out")) == ["a.zr", "b.zr"]
    for name in ("a", "b"):
        np.testing.assert_array_equal(read_all(tmp_path / f"out/{name}.zr"), np.concatenate([LABELS, LABELS]))


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


def test_auto_chooses_for_every_array(run: Run, tmp_path: Path) -> None:
    waves = np.sin(np.arange(150 * 1024, dtype=np.float32) / 50).reshape(150, 1024)
    noise = np.random.default_rng(0).integers(0, 256, (300, 64), dtype=np.uint8)
    np.savez_compressed(tmp_path / "set.npz", waves=waves, noise=noise, columns=np.asfortranarray(waves))
    out = run("convert", tmp_path / "set.npz", tmp_path / "out", "--codec", "auto", "--verify", "--json").out
    arrays = json.loads(out)["arrays"]
    chosen = {name: facts["codec"] for name, facts in arrays.items()}
    assert chosen == {"waves": "zstd_shuffle", "noise": "raw", "columns": "zstd_shuffle"}
    assert all(facts["choice"]["codec"] == facts["codec"] for facts in arrays.values())


@pytest.mark.parametrize("how", [(), ("--append",), ("--force",), ("--quiet",), ("--json",)])
def test_arrays_of_different_lengths(how: tuple[str, ...], run: Run, tmp_path: Path) -> None:
    """Records that have the same index are taken to belong together, and some of these have no counterpart."""
    np.savez(tmp_path / "x.npz", images=np.zeros((1200, 4)), labels=np.zeros(1199), more=np.zeros(1200))
    code, _, err = run("convert", tmp_path / "x.npz", tmp_path / "d", *how)
    assert code == 0 and len(Dataset(tmp_path / "d/labels.zr")) == 1199
    assert err == (
        f"loaderx convert: warning: the arrays of {tmp_path}/x.npz differ in length (images 1,200, labels 1,199, more "
        "1,200), so the records of their stores do not go together by their indices\n"
    )
    code, _, err = run(
        "convert", tmp_path / "x.npz", tmp_path / "e", "--only", "images", "--only", "more", *how
    )
    assert (code, err) == (0, "")
