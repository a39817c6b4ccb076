"""``convert`` of .npy files: what is written, what is refused, what is printed."""

from __future__ import annotations

import contextlib
import json
import os
import re
import stat
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from loaderx import Dataset, RaggedDataset, Zrecord, write_dataset, write_ragged
from loaderx.arrays.schema import read_schema
from loaderx.commands import conversion
from loaderx.commands.bar import byte_bar, growing_bar
from tests.commands.conftest import Run, Save, listing
from tests.oracle import VERSION, WIDE, OracleStore

Fails = Callable[..., str]

IMAGES = np.repeat(np.arange(40, dtype=np.float32), 64).reshape(40, 8, 8)


def read_all(path: Path) -> np.ndarray:
    with Dataset(path) as dataset:
        return dataset[:]


def stats(path: Path) -> dict[str, object]:
    with Zrecord(path, mode="r") as store:
        return store.stats()


def save_beyond_the_limit(folder: Path) -> Path:
    """Save a .npy file whose items have a byte more than a store can hold; it is sparse."""
    path = folder / "big.npy"
    with open(path, "wb") as file:
        header = {"descr": "|u1", "fortran_order": False, "shape": (1, 1 << 32)}
        np.lib.format.write_array_header_1_0(file, header)
        file.truncate(file.tell() + (1 << 32))
    return path


def test_one_file(run: Run, save: Save, tmp_path: Path) -> None:
    code, out, err = run("convert", save("images.npy", IMAGES), tmp_path / "images.zr")
    assert (code, err) == (0, "")
    np.testing.assert_array_equal(read_all(tmp_path / "images.zr"), IMAGES)
    stored = stats(tmp_path / "images.zr")
    assert stored["codecs"] == {"zstd": 40}
    assert re.fullmatch(
        re.escape(f"{tmp_path}/images.zr: 40 records, 10.0 KiB -> ")
        + r"[0-9.]+ K?i?B \([0-9.]+x\), [0-9.,]+ MiB/s\n",
        out,
    )
    names = [
        "images.npy",
        "images.zr",
        "images.zr/0.zr",
        "images.zr/meta.zr",
        "images.zr/schema.json",
        "images.zr/sums.zr",
    ]
    assert listing(tmp_path) == names


@pytest.mark.parametrize("codec", ["raw", "zstd", "zstd_dict", "zstd_shuffle", "zstd_shuffle_dict"])
def test_json(run: Run, save: Save, tmp_path: Path, codec: str) -> None:
    images = np.random.default_rng(0).integers(0, 4, (3000, 16, 16), dtype=np.uint16)
    destination = tmp_path / "images.zr"
    code, out, err = run(
        "convert", save("a.npy", images), destination, "--codec", codec, "--json", "--verify"
    )
    assert (code, err, out.count("\n")) == (0, "", 1)
    facts = json.loads(out)
    stored = stats(destination)
    assert facts.pop("seconds") > 0
    assert facts.pop("mib_per_s") > 0
    assert facts.pop("ratio") == pytest.approx(images.nbytes / stored["live_bytes"])
    assert facts == {
        "path": str(destination),
        "files": 1,
        "codec": codec,
        "choice": None,
        "records": 3000,
        "total_records": 3000,
        "bytes_in": images.nbytes,
        "bytes_out": stored["live_bytes"],
        "dictionary_bytes": stored["dictionary_bytes"],
        "verified": True,
    }
    assert (facts["dictionary_bytes"] > 0) == codec.endswith("dict")
    assert read_schema(destination).codec == codec


def test_every_option_reaches_the_writer(
    run: Run, save: Save, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = []

    def recording(path: Path, source: object, *arguments: object, **options: object) -> int:
        calls.append((arguments, {name: value for name, value in options.items() if name != "progress"}))
        return write_dataset(path, source, *arguments, **options)

    monkeypatch.setattr(conversion, "write_dataset", recording)
    many = save("a.npy", np.random.default_rng(0).integers(0, 4, (3000, 16, 16), dtype=np.uint8))
    options = [
        "--codec",
        "zstd_dict",
        "--level",
        "1",
        "--dict-size",
        "4KiB",
        "--chunk-bytes",
        "1MiB",
        "--threads",
        "1",
    ]
    code, out, _ = run("convert", many, tmp_path / "a.zr", *options, "--verify")
    assert code == 0
    assert calls == [
        (("zstd_dict", 1 << 20, 4096), {"level": 1, "threads": 1, "overwrite": False, "upgrade": False})
    ]
    assert stats(tmp_path / "a.zr")["dictionary_bytes"] <= 4096
    assert ", dictionary " in out and out.endswith(" MiB/s, verified\n")


def test_quiet(run: Run, save: Save, tmp_path: Path) -> None:
    source = save("a.npy", IMAGES)
    assert run("convert", source, tmp_path / "a.zr", "--quiet") == (0, "", "")
    assert len(read_all(tmp_path / "a.zr")) == 40
    code, out, err = run("convert", source, tmp_path / "b.zr", "--quiet", "--json")
    assert (code, err, json.loads(out)["records"]) == (0, "", 40)


KINDS = {
    "labels": np.arange(7),
    "no records": np.zeros((0, 3), "f4"),
    "no bytes": np.zeros((4, 0), "f4"),
    "fortran": np.asfortranarray(np.arange(24).reshape(4, 3, 2)),
    "big-endian": np.arange(6, dtype=">u4"),
    "structured": np.array([(1, 2.5), (3, 4.5)], dtype=[("left", "<i4"), ("right", "<f8")]),
    "padded": np.zeros(3, np.dtype([("a", "u1"), ("b", "<i8")], align=True)),
    "dates": np.array(["2020-01-01", "NaT"], dtype="M8[s]"),
    "text": np.array(["a", "bc", "ż"]),
}


@pytest.mark.parametrize("name", KINDS)
def test_every_kind_of_array(run: Run, save: Save, tmp_path: Path, name: str) -> None:
    array = KINDS[name]
    code, out, err = run("convert", save("a.npy", array), tmp_path / "a.zr", "--verify")
    assert (code, err) == (0, "")
    assert out.startswith(f"{tmp_path}/a.zr: {len(array)} records, ")
    with Dataset(tmp_path / "a.zr") as dataset:
        assert dataset.dtype == array.dtype
        assert tuple(dataset.shape) == array.shape[1:]
        np.testing.assert_array_equal(dataset[:], array)


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("suffix", ["npy", "npz"])
def test_bytes_between_fields_are_kept(run: Run, save: Save, tmp_path: Path, order: str, suffix: str) -> None:
    dtype = np.dtype([("a", "u1"), ("b", "<i8")], align=True)
    items = np.random.default_rng(0).integers(0, 255, (50, 3, 16), dtype=np.uint8)
    source = save("a.npy", np.zeros((50, 3), dtype, order=order))
    in_file_order = items if order == "C" else items.swapaxes(0, 1)
    source.write_bytes(source.read_bytes()[: -items.nbytes] + in_file_order.tobytes())
    destination = store = tmp_path / "out"
    if suffix == "npz":
        with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive:
            archive.write(source, "a.npy")
        source, store = tmp_path / "a.npz", destination / "a.zr"
    assert run("convert", source, destination, "--verify").code == 0
    got = np.empty((50, 48), np.uint8)
    with Zrecord(store, mode="r") as records:
        records.gather(np.arange(50), got, 48)
    np.testing.assert_array_equal(got, items.reshape(50, 48))


def test_what_is_left_out_of_a_folder_is_said(run: Run, save: Save, tmp_path: Path) -> None:
    for name in ("in/a.npy", "in/.hidden.npy", "in/deeper/c.npy", "in/.git/d.npy", "b.npy"):
        save(name, IMAGES)
    (tmp_path / "in/readme.txt").write_text("text")
    code, out, err = run("convert", tmp_path / "in", tmp_path / "b.npy", tmp_path / "x.zr")
    assert (code, out.count("\n")) == (0, 1)
    assert err == f"loaderx convert: left out: {tmp_path}/in/.hidden.npy, {tmp_path}/in/deeper\n"


def test_several_files_and_folders_join_in_natural_order(run: Run, save: Save, tmp_path: Path) -> None:
    parts = np.split(IMAGES, [3, 3, 20])
    names = ["p1.npy", "p2.npy", "p9.npy", "p10.npy"]
    files = [save(f"in/{name}", part) for name, part in zip(names, parts, strict=True)]
    for number, sources in enumerate(([tmp_path / "in"], reversed(files), [files[3], tmp_path / "in"])):
        destination = tmp_path / f"{number}.zr"
        code, out, _ = run("convert", *sources, destination, "--verify", "--json", "--chunk-bytes", "1KiB")
        assert code == 0
        twice = number == 2  # named by itself and by its folder
        expected = np.concatenate([IMAGES, parts[3]]) if twice else IMAGES
        np.testing.assert_array_equal(read_all(destination), expected)
        assert json.loads(out)["files"] == (5 if twice else 4)


def test_thousands_of_files_need_few_descriptors(run: Run, save: Save, tmp_path: Path) -> None:
    import resource

    for number in range(1500):
        save(f"in/{number}.npy", np.full((2, 3), number))
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(64 + len(os.listdir("/proc/self/fd")), soft), hard))
    try:
        code, _, err = run("convert", tmp_path / "in", tmp_path / "out.zr", "--verify")
        ragged_code, _, ragged_err = run(
            "convert", tmp_path / "in", tmp_path / "ragged.zr", "--verify", "--ragged"
        )
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert (code, err, ragged_code, ragged_err) == (0, "", 0, "")
    np.testing.assert_array_equal(read_all(tmp_path / "out.zr")[::2, 0], np.arange(1500))


@pytest.mark.parametrize("codec", ["raw", "zstd", "zstd_dict"])
def test_ragged(run: Run, save: Save, tmp_path: Path, codec: str) -> None:
    lengths = [3, 0, 5, *range(100, 200)]
    rows = [np.arange(length * 2, dtype="<i4").reshape(length, 2) for length in lengths]
    for number, array in enumerate(rows):
        save(f"in/{number}.npy", array)
    code, out, err = run(
        "convert", tmp_path / "in", tmp_path / "r.zr", "--ragged", "--verify", "--codec", codec, "--json"
    )
    assert (code, err) == (0, "")
    facts = json.loads(out)
    assert (facts["records"], facts["bytes_in"]) == (len(rows), sum(array.nbytes for array in rows))
    with RaggedDataset(tmp_path / "r.zr") as dataset:
        assert dataset.dtype == "<i4"
        assert tuple(dataset.item_shape) == (2,)
        values, row_splits = dataset.__getitems__(np.arange(len(rows)))
    np.testing.assert_array_equal(np.diff(row_splits), lengths)
    np.testing.assert_array_equal(values, np.concatenate(rows))


def test_append(run: Run, save: Save, tmp_path: Path) -> None:
    first, second = save("1.npy", IMAGES[:15]), save("2.npy", IMAGES[15:])
    destination = tmp_path / "a.zr"
    assert run("convert", first, destination, "--codec", "raw", "--append").code == 0  # nothing there: made
    code, out, _ = run("convert", second, destination, "--append", "--json", "--verify")
    assert code == 0
    facts = json.loads(out)
    assert (facts["records"], facts["total_records"], facts["bytes_out"]) == (25, 40, IMAGES[15:].nbytes)
    assert stats(destination)["codecs"]["raw"] == 40  # the store's own codec, as none was named
    np.testing.assert_array_equal(read_all(destination), IMAGES)
    code, out, _ = run("convert", second, destination, "--append", "--codec", "zstd")
    assert out.startswith(f"{destination}: 25 records added to 40, ")
    assert stats(destination)["codecs"] == {"raw": 40, "zstd": 25}


def test_append_ragged(run: Run, save: Save, tmp_path: Path) -> None:
    write_ragged(tmp_path / "r.zr", [np.arange(3), np.arange(5)])
    files = [save("1.npy", np.arange(2)), save("2.npy", np.arange(4))]
    assert run("convert", *files, tmp_path / "r.zr", "--append", "--ragged", "--verify").code == 0
    with RaggedDataset(tmp_path / "r.zr") as dataset:
        np.testing.assert_array_equal(np.diff(dataset.__getitems__(np.arange(4))[1]), [3, 5, 2, 4])


@pytest.mark.parametrize(
    ("array", "options"),
    [
        (IMAGES.astype("f8"), []),
        (IMAGES[:, :4], []),
        (IMAGES, ["--ragged"]),
        (IMAGES, ["--level", "99"]),
        (IMAGES[:3], ["--codec", "zstd_dict"]),  # far too little to train on
    ],
)
def test_append_that_does_not_fit_changes_nothing(
    fails: Fails, save: Save, tmp_path: Path, array: np.ndarray, options: list[str]
) -> None:
    destination = tmp_path / "a.zr"
    write_dataset(destination, IMAGES)
    source = save("a.npy", array)
    before = stats(destination), listing(tmp_path), (destination / "schema.json").read_bytes()
    line = fails("convert", source, destination, "--append", *options)
    assert (stats(destination), listing(tmp_path), (destination / "schema.json").read_bytes()) == before
    assert str(destination) in line or "level" in line
    np.testing.assert_array_equal(read_all(destination), IMAGES)


@pytest.mark.parametrize("codec", ["zstd", "zstd_dict"])
@pytest.mark.parametrize("ragged", [[], ["--ragged"]])
def test_append_that_fails_half_way_leaves_the_old_store(
    fails: Fails, save: Save, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ragged: list[str], codec: str
) -> None:
    destination = tmp_path / "a.zr"
    rows = IMAGES.reshape(40, 64)
    if ragged:
        write_ragged(destination, list(rows))
    else:
        write_dataset(destination, rows)
    files = [
        save(f"in/{number}.npy", rows[number] if ragged else rows[number : number + 1])
        for number in range(40)
    ]
    before = stats(destination), listing(tmp_path)

    @contextlib.contextmanager
    def cut_a_file_on_the_way(*_arguments: object, **_options: object) -> Iterator[Callable[..., None]]:
        yield lambda _done, _total: files[33].write_bytes(b"")

    monkeypatch.setattr(conversion, "byte_bar", cut_a_file_on_the_way)
    options = ["--append", "--codec", codec, "--chunk-bytes", "1KiB", *ragged]
    line = fails("convert", tmp_path / "in", destination, *options)
    assert "33.npy" in line
    assert (stats(destination), listing(tmp_path)) == before


def test_records_over_1_mib_make_a_store_of_version_4(run: Run, save: Save, tmp_path: Path) -> None:
    large = np.arange(2 * ((1 << 20) + 1), dtype=np.uint32).astype(np.uint8).reshape(2, -1)
    assert run("convert", save("large.npy", large), tmp_path / "large.zr", "--verify").code == 0
    np.testing.assert_array_equal(read_all(tmp_path / "large.zr"), large)
    assert OracleStore(tmp_path / "large.zr").version == WIDE
    assert run("convert", save("small.npy", large[:, 1:]), tmp_path / "small.zr", "--verify").code == 0
    assert OracleStore(tmp_path / "small.zr").version == VERSION


def test_a_store_that_holds_records_takes_none_over_1_mib(fails: Fails, save: Save, tmp_path: Path) -> None:
    destination = tmp_path / "a.zr"
    write_ragged(destination, [np.zeros(10, np.uint8)])
    before = stats(destination)
    large = save("large/0.npy", np.zeros((1 << 20) + 1, np.uint8))
    line = fails("convert", large.parent, destination, "--append", "--ragged")
    assert "1048577" in line.replace(",", "") and "version 4" in line
    assert (stats(destination), OracleStore(destination).version) == (before, VERSION)


def test_force_replaces_a_store(run: Run, save: Save, tmp_path: Path) -> None:
    destination = tmp_path / "a.zr"
    write_ragged(destination, [np.arange(3)])
    assert run("convert", save("a.npy", IMAGES), destination, "--force", "--verify").code == 0
    np.testing.assert_array_equal(read_all(destination), IMAGES)
    assert run("convert", save("b.npy", IMAGES[:2]), destination, "--force").code == 0
    np.testing.assert_array_equal(read_all(destination), IMAGES[:2])
    assert run("convert", save("b.npy", IMAGES[:2]), tmp_path / "new.zr", "--force").code == 0
    assert sorted(os.listdir(tmp_path)) == ["a.npy", "a.zr", "b.npy", "new.zr"]


def test_force_that_fails_leaves_the_old_store(fails: Fails, save: Save, tmp_path: Path) -> None:
    destination = tmp_path / "a.zr"
    write_dataset(destination, IMAGES)
    big = save_beyond_the_limit(tmp_path)
    names = listing(tmp_path)
    assert "4294967296 bytes" in fails("convert", big, destination, "--force")
    assert listing(tmp_path) == names
    np.testing.assert_array_equal(read_all(destination), IMAGES)


def test_force_leaves_a_store_with_other_files_in_it(fails: Fails, save: Save, tmp_path: Path) -> None:
    destination = tmp_path / "a.zr"
    write_dataset(destination, IMAGES)
    (destination / "letter.txt").write_text("dear reader")
    source = save("b.npy", IMAGES[:2])
    names = listing(tmp_path)
    assert "letter.txt" in fails("convert", source, destination, "--force")
    assert listing(tmp_path) == names
    np.testing.assert_array_equal(read_all(destination), IMAGES)


@pytest.mark.parametrize("kind", ["file", "folder", "array"])
def test_force_replaces_nothing_but_a_store(fails: Fails, save: Save, tmp_path: Path, kind: str) -> None:
    source = save("a.npy", IMAGES)
    destination = tmp_path / "there"
    if kind == "folder":
        destination.mkdir()
        (destination / "thesis.txt").write_text("years of work")
    elif kind == "file":
        destination.write_text("years of work")
    else:
        destination = save("b.npy", IMAGES)
    names = listing(tmp_path)
    for option in ("--force", "--append"):
        line = fails("convert", source, destination, option)
        assert f"{destination}: not a loaderx store" in line and line.endswith("choose another path")
    assert listing(tmp_path) == names


@pytest.mark.parametrize(
    "options",
    [["--append"], ["--append", "--codec", "auto"], ["--append", "--codec", "raw"], ["--codec", "raw"]],
)
def test_level_is_refused_where_records_are_raw(
    fails: Fails, save: Save, tmp_path: Path, options: list[str]
) -> None:
    destination = tmp_path / "a.zr"
    why = ""
    if "--append" in options:
        write_dataset(destination, IMAGES, "raw")
        why = "" if "raw" in options else f", and {destination} has the codec raw"
    source = save("a.npy", IMAGES)
    names = listing(tmp_path)
    line = fails("convert", source, destination, "--level", "3", *options)
    assert line == f"loaderx convert: --level goes with a codec that compresses, and raw does not{why}"
    assert listing(tmp_path) == names
    if "--append" in options:
        np.testing.assert_array_equal(read_all(destination), IMAGES)


def test_level_is_taken_where_new_records_of_a_raw_store_are_compressed(
    run: Run, save: Save, tmp_path: Path
) -> None:
    write_dataset(tmp_path / "a.zr", IMAGES, "raw")
    options = ["--append", "--codec", "zstd", "--level", "9"]
    assert run("convert", save("a.npy", IMAGES), tmp_path / "a.zr", *options).code == 0
    assert stats(tmp_path / "a.zr")["codecs"] == {"raw": 40, "zstd": 40}


@pytest.mark.parametrize("option", ["--append", "--force"])
def test_an_empty_folder_is_no_store_in_the_way(run: Run, save: Save, tmp_path: Path, option: str) -> None:
    (tmp_path / "out").mkdir()
    assert run("convert", save("a.npy", IMAGES), tmp_path / "out", option).code == 0
    np.testing.assert_array_equal(read_all(tmp_path / "out"), IMAGES)


@pytest.mark.parametrize("kind", ["store", "file", "empty folder", "dangling link"])
def test_an_existing_destination_is_an_error(fails: Fails, save: Save, tmp_path: Path, kind: str) -> None:
    source = save("a.npy", IMAGES)
    destination = tmp_path / "there"
    if kind == "store":
        write_dataset(destination, IMAGES)
    elif kind == "file":
        destination.write_text("text")
    elif kind == "empty folder":
        destination.mkdir()
    else:
        destination.symlink_to(tmp_path / "nowhere")
    names = listing(tmp_path)
    line = fails("convert", source, destination)
    advice = (
        "exists; --append adds records to it, --force replaces it"
        if kind == "store"
        else "exists and is not a loaderx store; choose another path"
    )
    assert line == f"loaderx convert: {destination} {advice}"
    assert listing(tmp_path) == names


USAGE = [
    (["{a}"], "the following arguments are required: DEST"),
    ([], "the following arguments are required: SRC, DEST"),
    (["{a}", "{new}", "--codec", "gzip"], "argument --codec: invalid choice: 'gzip'"),
    (["{a}", "{new}", "--append", "--force"], "not allowed with argument"),
    (["{npz}", "{new}", "--append", "--force"], "not allowed with argument"),
    (["{a}", "{new}", "--chunk-bytes", "many"], "argument --chunk-bytes: 'many' is not a size"),
    (["{a}", "{new}", "--chunk-bytes", "0"], "chunk"),
    (["{a}", "{new}", "--level", "x"], "argument --level: invalid int value: 'x'"),
    (["{a}", "{new}", "--level", "99"], "level"),
    (["{a}", "{new}", "--threads", "-1"], "threads"),
    (
        ["{a}", "{new}", "--dict-size", "4KiB"],
        "--dict-size goes with --codec zstd_dict, zstd_shuffle_dict or auto",
    ),
    (["{a}", "{new}", "--upgrade"], "--upgrade goes with --append"),
    (["{a}", "{new}", "--upgrade", "--force"], "--upgrade goes with --append"),
    (["{a}", "{new}", "--codec", "zstd_dict", "--dict-size", "0"], "dict"),
    (["{a}", "{new}", "--verfy"], "unrecognized arguments: --verfy"),
    (["{a}", "{new}", "--verif"], "unrecognized arguments: --verif"),
    (["{dir}/none.npy", "{new}"], "{dir}/none.npy: No such file or directory"),
    (["{text}", "{new}"], "{text} is not a .npy file"),
    (["{text}.npz", "{new}"], "{text}.npz is not a .npz file: it does not begin as a zip does"),
    (["{hollow}", "{new}"], "{hollow} is not a .npz file: it is empty"),
    (["{torn}", "{new}"], "{torn} is not a .npz file that can be read: File is not a zip file"),
    (["{empty}", "{new}"], "{empty} is a folder without .npy files"),
    (
        ["{mixed}", "{new}"],
        "{mixed} holds .npz files, and of a folder .npy files are taken: b2.npz, b10.npz; convert the first into a "
        "folder of stores, and add the others one by one with --append",
    ),
    (["{mixed}", "{new}", "--ragged"], "{mixed} holds .npz files"),
    (["{a}", ""], "argument DEST: it is empty, where a path is expected"),
    (["", "{new}"], "argument SRC: it is empty, where a path is expected"),
    (["{a}", "{new}", "--only", "x"], "--only goes with a .npz file, whose arrays have names"),
    (["{npz}", "{new}", "--only", "b", "--only", "c"], "{npz} holds no array 'b', 'c'; it holds 'a'"),
    (["{npz}", "{new}", "--codec", "raw", "--level", "3"], "--level goes with a codec that compresses"),
    (["{a}", "{npz}", "{new}"], "{npz} is a .npz file, which is converted alone; got 2 sources"),
    (["{npz}", "{new}", "--ragged"], "{npz} is a .npz file; --ragged takes .npy files"),
    (["{objects}", "{new}"], "{objects} holds Python objects (dtype object)"),
    (["{zero}", "{new}"], "{zero} holds a single value"),
    (["{zero}", "{new}", "--ragged"], "{zero} holds a single value"),
    (["{a}", "{double}", "{new}"], "{double} has dtype float64, expected float32 as in {a}"),
    (["{a}", "{narrow}", "{new}"], "{narrow} has items of shape (8, 4), expected (8, 8) as in {a}"),
    (["{a}", "{double}", "{new}", "--ragged"], "{double} has dtype float64, expected float32 as in {a}"),
    (
        ["{a}", "{narrow}", "{new}", "--ragged"],
        "{narrow} has items of shape (8, 4), expected (8, 8) as in {a}",
    ),
    (["{a}", "{zero}", "{new}"], "{zero} holds a single value"),
    (["{cut}", "{new}"], "{cut} is cut short: its header says 10240 bytes"),
    (["{big}", "{new}"], "4294967296 bytes each, and a store takes at most 4294967295"),
    (["{big}", "{new}", "--codec", "auto"], "4294967296 bytes"),
    (["{a}", "{text}/x.zr"], "{text}/x.zr"),
]


@pytest.mark.parametrize(("arguments", "words"), USAGE)
def test_refused(fails: Fails, save: Save, tmp_path: Path, arguments: list[str], words: str) -> None:
    paths = {
        "dir": tmp_path,
        "new": tmp_path / "new.zr",
        "a": save("a.npy", IMAGES),
        "double": save("double.npy", IMAGES.astype("f8")),
        "narrow": save("narrow.npy", IMAGES[:, :, :4]),
        "zero": save("zero.npy", np.float32(5)),
        "objects": save("objects.npy", np.array([{}, 1], dtype=object)),
        "big": save_beyond_the_limit(tmp_path),
        "cut": save("cut.npy", IMAGES),
        "text": tmp_path / "text.txt",
        "empty": tmp_path / "empty",
        "npz": tmp_path / "arrays.npz",
        "torn": tmp_path / "torn.npz",
        "hollow": tmp_path / "hollow.npz",
        "mixed": tmp_path / "mixed",
    }
    paths["cut"].write_bytes(paths["cut"].read_bytes()[:-100])
    paths["text"].write_text("text")
    paths["empty"].mkdir()
    np.savez(paths["npz"], a=IMAGES)
    paths["torn"].write_bytes(paths["npz"].read_bytes()[:-100])
    paths["hollow"].write_bytes(b"")
    (tmp_path / "text.txt.npz").write_text("text")
    save("mixed/a.npy", IMAGES)
    for name in ("b10.npz", "b2.npz", ".hidden.npz"):
        (paths["mixed"] / name).write_bytes(paths["npz"].read_bytes())
    names = listing(tmp_path)
    line = fails("convert", *(argument.format(**paths) for argument in arguments))
    assert words.format(**paths) in line
    assert listing(tmp_path) == names


def test_names_that_break_lines_stay_on_one(fails: Fails, tmp_path: Path) -> None:
    assert "a b.npy" in fails("convert", tmp_path / "a\nb.npy", tmp_path / "x.zr")


def test_a_read_only_source_and_a_new_store_like_any_file(run: Run, save: Save, tmp_path: Path) -> None:
    source = save("a.npy", IMAGES)
    source.chmod(stat.S_IRUSR)
    previous = os.umask(0o027)
    try:
        assert run("convert", source, tmp_path / "a.zr").code == 0
    finally:
        os.umask(previous)
    written = [tmp_path / name for name in listing(tmp_path) if name != "a.npy"]
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in written}
    assert modes == {"a.zr": 0o750} | dict.fromkeys(("0.zr", "meta.zr", "schema.json", "sums.zr"), 0o640)


@pytest.mark.parametrize("ragged", [[], ["--ragged"]])
@pytest.mark.parametrize("appended", [False, True])
def test_verify_names_the_first_record_that_differs(
    run: Run, save: Save, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ragged: list[str], appended: bool
) -> None:
    rows = IMAGES.reshape(40, 64)
    files = [
        save(f"in/{number}.npy", rows[number] if ragged else rows[number : number + 1])
        for number in range(40)
    ]
    destination = tmp_path / "a.zr"
    if appended:
        assert run("convert", tmp_path / "in", destination, *ragged).code == 0
    real = conversion.verify

    def verify_after_a_change(*arguments: object, **options: object) -> None:
        for number in (23, 31):
            with open(files[number], "r+b") as file:
                file.seek(-1, os.SEEK_END)
                file.write(b"\xff")
        real(*arguments, **options)

    monkeypatch.setattr("loaderx.commands.convert.verify", verify_after_a_change)
    monkeypatch.setattr(conversion, "_VERIFIED_BYTES", 1000)
    code, out, err = run("convert", tmp_path / "in", destination, "--verify", "--append", "--json", *ragged)
    place = str(files[23]) if ragged else f"{files[23]}[0]"
    record = 63 if appended else 23
    assert (code, out) == (1, "")
    assert err == f"loaderx convert: {destination}: record {record} is not the same as its source {place}\n"


def test_verify_finds_a_record_that_cannot_be_read(
    run: Run, save: Save, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    destination = tmp_path / "a.zr"
    real = conversion.verify

    def verify_after_damage(*arguments: object, **options: object) -> None:
        with open(destination / "0.zr", "r+b") as file:
            file.write(b"\0\0\0\0")  # the magic number of the first frame
        real(*arguments, **options)

    monkeypatch.setattr("loaderx.commands.convert.verify", verify_after_damage)
    code, out, err = run("convert", save("a.npy", IMAGES), destination, "--verify")
    assert (code, out, err.count("\n")) == (1, "", 1)
    assert err.startswith(f"loaderx convert: {destination} does not read back: ") and "record 0" in err


class Terminal:
    """Stands in for stderr on a terminal."""

    def __init__(self) -> None:
        self.text = ""

    def write(self, text: str) -> int:
        self.text += text
        return len(text)

    def flush(self) -> None:
        pass

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("options", "shown"), [([], True), (["--ragged"], True), (["--quiet"], False), (["--json"], False)]
)
def test_bar_on_a_terminal(
    run: Run, save: Save, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: list[str], shown: bool
) -> None:
    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    code = run("convert", save("a.npy", IMAGES), tmp_path / "a.zr", "--verify", *options).code
    assert code == 0
    assert ("a.zr: " in terminal.text) == shown
    assert ("verify a.zr: " in terminal.text) == shown
    assert ("/10.0k " in terminal.text) == shown


def test_bar_gets_every_part(monkeypatch: pytest.MonkeyPatch) -> None:
    parts = []

    class RecordingBar:
        n = 0

        def __init__(self, **options: object) -> None:
            self.total = options["total"]
            parts.append(options["total"])

        def __enter__(self) -> RecordingBar:
            return self

        def __exit__(self, *_details: object) -> None:
            parts.append("closed")

        def update(self, part: int) -> None:
            self.n += part
            parts.append(part)

    monkeypatch.setattr("tqdm.tqdm", RecordingBar)
    monkeypatch.setattr("sys.stderr", Terminal())
    with byte_bar("a.zr", 100, shown=True) as tick:
        tick(30, 100)
        tick(100, None)
    assert parts == [100, 30, 70, "closed"]
    parts.clear()
    with growing_bar("a.zr", None, shown=True) as tick:
        tick(30, None)
        tick(40, 80)
    assert parts == [None, 30, 10, "closed"]


WAVES = np.sin(np.arange(150 * 1024, dtype=np.float32) / 50).reshape(150, 1024)


def test_auto_says_what_it_chose_and_why(run: Run, save: Save, tmp_path: Path) -> None:
    source, destination = save("a.npy", WAVES), tmp_path / "a.zr"
    code, out, err = run("convert", source, destination, "--codec", "auto", "--verify")
    assert (code, err) == (0, "")
    why, done = out.splitlines()
    assert why.startswith(f"{destination}: codec zstd_shuffle: ") and "smaller than raw" in why
    assert "loaderx 0.7.3 cannot read" in why
    assert done.startswith(f"{destination}: 150 records, ")
    assert read_schema(destination).codec == "zstd_shuffle"
    # what it chose is the store's codec, and nothing is chosen again
    code, out, _ = run("convert", source, destination, "--append", "--codec", "auto", "--json")
    facts = json.loads(out)
    assert (code, facts["codec"], facts["choice"], facts["total_records"]) == (0, "zstd_shuffle", None, 300)
    assert stats(destination)["codecs"] == {"zstd_shuffle": 300}


def test_auto_in_json(run: Run, save: Save, tmp_path: Path) -> None:
    out = run("convert", save("a.npy", WAVES), tmp_path / "a.zr", "--codec", "auto", "--json").out
    facts = json.loads(out)
    choice = facts["choice"]
    assert facts["codec"] == choice["codec"] == "zstd_shuffle"
    assert "loaderx 0.7.3" in choice["reason"] and choice["sampled_bytes"] > 0 < choice["sampled_records"]
    assert [trial["codec"] for trial in choice["candidates"]][:3] == ["raw", "zstd", "zstd_shuffle"]
    for trial in choice["candidates"]:
        assert trial.keys() == {"codec", "level", "stored_bytes", "ratio", "decode_mib_per_s"}


def test_auto_takes_a_level_and_a_dictionary_size_that_it_may_not_need(
    run: Run, save: Save, tmp_path: Path
) -> None:
    noise = save("a.npy", np.random.default_rng(0).integers(0, 256, (300, 512), dtype=np.uint8))
    options = ["--codec", "auto", "--level", "5", "--dict-size", "2KiB"]
    assert run("convert", noise, tmp_path / "a.zr", *options).code == 0
    assert stats(tmp_path / "a.zr")["codecs"] == {"raw": 300}


def test_auto_of_files_that_become_ragged_records(run: Run, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    for number in range(20):
        np.save(tmp_path / f"in/{number}.npy", WAVES[: number + 1])
    destination = tmp_path / "a.zr"
    assert run("convert", tmp_path / "in", destination, "--ragged", "--codec", "auto", "--verify").code == 0
    assert read_schema(destination).codec == "zstd_shuffle"


def test_large_records_make_a_new_store_wide(run: Run, save: Save, tmp_path: Path) -> None:
    large = save("a.npy", np.random.default_rng(0).integers(0, 9, (2, (1 << 20) + 8), dtype=np.uint8))
    assert run("convert", large, tmp_path / "a.zr", "--verify").code == 0
    assert stats(tmp_path / "a.zr")["format_version"] == 4


@pytest.mark.parametrize("what", ["large", "shuffled"])
def test_upgrade_has_to_be_asked_for(run: Run, fails: Fails, save: Save, tmp_path: Path, what: str) -> None:
    destination = tmp_path / "a.zr"
    rows = np.zeros((2, 1 if what == "shuffled" else 100), np.int32)
    write_ragged(destination, rows)
    more = np.arange(5000 if what == "shuffled" else 1 << 19, dtype=np.int32)
    options = ["--ragged", "--append", *(["--codec", "zstd_shuffle"] if what == "shuffled" else [])]
    source = save("b.npy", more)
    line = fails("convert", source, destination, *options)
    assert "--append --upgrade" in line and "upgrade=True" not in line
    assert stats(destination)["format_version"] == 3 and stats(destination)["records"] == 2
    assert run("convert", source, destination, *options, "--upgrade", "--verify").code == 0
    assert stats(destination)["format_version"] == 4 and stats(destination)["records"] == 3


def test_a_dictionary_size_goes_with_the_stores_codec(
    run: Run, fails: Callable[..., str], save: Save, tmp_path: Path
) -> None:
    source = save("a.npy", np.arange(100_000, dtype="i4").reshape(1000, 100) % 1000)
    for codec in ("zstd_dict", "zstd"):
        path = tmp_path / f"{codec}.zr"
        assert run("convert", source, path, "--codec", codec).code == 0
    assert run("convert", source, tmp_path / "zstd_dict.zr", "--append", "--dict-size", "1KiB").code == 0
    assert run("convert", source, path, "--append", "--codec", "auto", "--dict-size", "1KiB").code == 0
    said = fails("convert", source, path, "--append", "--dict-size", "1KiB")
    assert said.endswith(
        f"--dict-size goes with --codec zstd_dict, zstd_shuffle_dict or auto, and {path} has the codec zstd"
    )
    for how in ((), ("--append",)):  # of what is new it is zstd
        said = fails("convert", source, tmp_path / "new.zr", *how, "--dict-size", "1KiB")
        assert said.endswith("--dict-size goes with --codec zstd_dict, zstd_shuffle_dict or auto")
    assert not (tmp_path / "new.zr").exists()


def test_a_pool_that_has_no_size_is_told_of_before_anything_is_written(save: Save, tmp_path: Path) -> None:
    source = save("a.npy", np.zeros((10, 100_000), "u1"))
    done = subprocess.run(
        [sys.executable, "-m", "loaderx", "convert", source, tmp_path / "a.zr", "--verify"],
        env={**os.environ, "LOADERX_POOL_BYTES": "abc"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (2, "") and "LOADERX_POOL_BYTES" in done.stderr
    assert not (tmp_path / "a.zr").exists()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="the system has no /dev/full")
def test_a_full_standard_output_is_named(save: Save, tmp_path: Path) -> None:
    source = save("a.npy", np.zeros((10, 10), "u1"))
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "loaderx", "convert", source, tmp_path / "a.zr"],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert done.returncode == 2
    assert done.stderr == "loaderx convert: standard output: No space left on device\n"
