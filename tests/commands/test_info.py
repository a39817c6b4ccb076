"""``info``: the facts about every kind of store, without changing anything."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from loaderx import Zrecord, write_dataset, write_ragged
from tests.commands.conftest import Run, listing


def facts_of(run: Run, path: Path) -> dict[str, object]:
    code, out, err = run("info", path, "--json")
    assert (code, err, out.count("\n")) == (0, "", 1)
    facts: dict[str, object] = json.loads(out)
    return facts


def test_fixed(run: Run, tmp_path: Path) -> None:
    images = np.repeat(np.arange(40, dtype=">f4"), 64).reshape(40, 8, 8)
    write_dataset(tmp_path / "a.zr", images, "raw")
    write_dataset(tmp_path / "a.zr", images, "zstd")
    facts = facts_of(run, tmp_path / "a.zr")
    stored = facts["stored_bytes"]
    assert images.nbytes < stored < 2 * images.nbytes
    assert facts == {
        "path": f"{tmp_path}/a.zr",
        "kind": "fixed",
        "records": 80,
        "dtype": ">f4",
        "shape": [8, 8],
        "codec": "raw",
        "codecs": {"raw": 40, "zstd": 40},
        "logical_bytes": 2 * images.nbytes,
        "stored_bytes": stored,
        "ratio": 2 * images.nbytes / stored,
        "reclaimable_bytes": 0,
        "dictionary_bytes": 0,
        "chunks": 1,
        "format_version": 3,
    }


def test_ragged_with_a_dictionary(run: Run, tmp_path: Path) -> None:
    rows = [np.arange(length * 3, dtype="i4").reshape(length, 3) for length in range(20, 400)]
    write_ragged(tmp_path / "a.zr", rows, codec="zstd_dict")
    facts = facts_of(run, tmp_path / "a.zr")
    assert (facts["kind"], facts["dtype"], facts["shape"]) == ("ragged", "int32", [3])
    assert facts["dictionary_bytes"] == os.path.getsize(tmp_path / "a.zr/dict.zr")
    assert facts["logical_bytes"] == sum(row.nbytes for row in rows)
    assert facts["codecs"]["zstd_dict"] > 300  # type: ignore[index]
    out = run("info", tmp_path / "a.zr").out
    assert "  row shape      (3,)\n" in out and "  dictionary     none" not in out


def test_bytes_with_deleted_records(run: Run, tmp_path: Path) -> None:
    with Zrecord(tmp_path / "a.zr", "raw") as store:
        store.append(np.zeros((10, 100), np.uint8), 10, 100)
        store.delete([2, 3])
    assert facts_of(run, tmp_path / "a.zr") == {
        "path": f"{tmp_path}/a.zr",
        "kind": "bytes",
        "records": 8,
        "dtype": None,
        "shape": None,
        "codec": None,
        "codecs": {"raw": 8},
        "logical_bytes": 800,
        "stored_bytes": 800,
        "ratio": 1.0,
        "reclaimable_bytes": 200,
        "dictionary_bytes": 0,
        "chunks": 1,
        "format_version": 3,
    }


def test_wide_store_with_shuffled_records(run: Run, tmp_path: Path) -> None:
    write_dataset(tmp_path / "a.zr", np.arange(4000, dtype="i4").reshape(4, 1000), "zstd_shuffle")
    facts = facts_of(run, tmp_path / "a.zr")
    assert (facts["codec"], facts["codecs"], facts["format_version"]) == (
        "zstd_shuffle",
        {"zstd_shuffle": 4},
        4,
    )
    out = run("info", tmp_path / "a.zr").out
    assert "  codecs         zstd_shuffle 4\n" in out and "  format         version 4\n" in out


def test_text(run: Run, tmp_path: Path) -> None:
    write_dataset(tmp_path / "a.zr", np.zeros((3000, 2), [("x", "<i4"), ("y", "<f8")]), "raw")
    code, out, err = run("info", tmp_path / "a.zr")
    assert (code, err) == (0, "")
    assert out == (
        f"{tmp_path}/a.zr\n"
        "  kind           fixed\n"
        "  records        3,000\n"
        "  dtype          [('x', '<i4'), ('y', '<f8')]\n"
        "  shape          (2,)\n"
        "  codecs         raw 3,000\n"
        "  logical bytes  72,000 (70.3 KiB)\n"
        "  stored bytes   72,000 (70.3 KiB)\n"
        "  ratio          1.00x\n"
        "  reclaimable    0 B\n"
        "  dictionary     none\n"
        "  chunks         1 file\n"
        "  format         version 3\n"
    )


def test_empty_store(run: Run, tmp_path: Path) -> None:
    write_dataset(tmp_path / "a.zr", np.zeros((0, 2), "f4"))
    facts = facts_of(run, tmp_path / "a.zr")
    assert (facts["records"], facts["ratio"], facts["stored_bytes"]) == (0, None, 0)
    out = run("info", tmp_path / "a.zr").out
    assert "codecs         none yet\n" in out and "ratio          no bytes\n" in out


def test_changes_nothing(run: Run, tmp_path: Path) -> None:
    write_dataset(tmp_path / "a.zr", np.zeros((30, 2), "f4"))
    before = {name: (tmp_path / name).stat() for name in listing(tmp_path)}
    assert run("info", tmp_path / "a.zr").code == 0
    after = {name: (tmp_path / name).stat() for name in listing(tmp_path)}
    assert after.keys() == before.keys()
    for name, old in before.items():
        assert (after[name].st_mtime_ns, after[name].st_ctime_ns) == (old.st_mtime_ns, old.st_ctime_ns), name


@pytest.mark.parametrize("kind", ["nothing", "file", "folder", "short", "other schema"])
def test_what_is_no_store(fails: Callable[..., str], tmp_path: Path, kind: str) -> None:
    path = tmp_path / "x"
    if kind == "file":
        path.write_text("text")
    elif kind == "folder":
        path.mkdir()
    elif kind == "short":
        path.mkdir()
        (path / "meta.zr").write_bytes(b"ZREC")
    elif kind == "other schema":
        write_dataset(path, np.zeros((3, 2)))
        (path / "schema.json").write_text("{}")
    names = listing(tmp_path)
    assert str(path) in fails("info", path)
    assert listing(tmp_path) == names


def test_folder_made_of_a_npz_file_names_its_stores(fails: Callable[..., str], tmp_path: Path) -> None:
    for name in ("b", "a"):
        write_dataset(tmp_path / f"set/{name}.zr", np.zeros((3, 2)))
    assert "; it holds the stores a.zr, b.zr" in fails("info", tmp_path / "set")


def test_several_stores(run: Run, tmp_path: Path) -> None:
    write_dataset(tmp_path / "a.zr", np.zeros((3, 2), "f4"))
    write_ragged(tmp_path / "b.zr", [[1], [2, 3]])
    paths = [tmp_path / name for name in ("a.zr", "none.zr", "b.zr")]
    one = [run("info", path).out for path in (paths[0], paths[2])]
    code, out, err = run("info", *paths)
    assert (code, out) == (2, "".join(one))
    assert err == f"loaderx info: {paths[1]}: not a Zrecord store: there is nothing at this path\n"
    code, out, err = run("info", paths[0], paths[2], "--json")
    assert (code, err) == (0, "")
    assert [json.loads(line) for line in out.splitlines()] == [facts_of(run, path) for path in paths[::2]]
