"""``convert`` of what a stream reads: tar archives, JSONL name by name, Parquet, Arrow, stores, and streams."""

from __future__ import annotations

import io
import json
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from loaderx import Dataset, RaggedDataset, write_dataset, write_ragged
from loaderx.commands import streams
from loaderx.jsonl import JsonlDataset, write_lines
from tests.commands.conftest import Run

Fails = Callable[..., str]

ROWS = [{"id": i, "ids": list(range(i % 5)), "text": f"line {i}\n"} for i in range(200)]


@pytest.fixture
def jsonl(tmp_path: Path) -> Path:
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    return path


@pytest.fixture
def tar(tmp_path: Path) -> Path:
    return save_tar(tmp_path / "samples.tar", range(30))


def save_tar(path: Path, numbers: range) -> Path:
    with tarfile.open(path, "w:gz" if path.suffix in (".gz", ".tgz") else "w") as archive:
        for i in numbers:
            for extension, data in [("jpg", b"\xff" * i), ("cls", str(i % 3).encode())]:
                member = tarfile.TarInfo(f"{i:04}.{extension}")
                member.size = len(data)
                archive.addfile(member, io.BytesIO(data))
    return path


def ragged(path: Path) -> list[list[Any]]:
    dataset = RaggedDataset(path)
    return [dataset[i].tolist() for i in range(len(dataset))]


def test_jsonl_name_by_name(run: Run, jsonl: Path, tmp_path: Path) -> None:
    dest = tmp_path / "c"
    code, out, err = run("convert", jsonl, dest, "--kind", "columns", "--verify")
    assert (code, err) == (0, "")
    assert [line.split(",")[0] for line in out.splitlines()] == [
        f"{dest}/{name}.zr: 200 records" for name in ("id", "ids", "text")
    ]
    assert out.count(", verified\n") == 3
    assert Dataset(dest / "id.zr")[:].tolist() == [row["id"] for row in ROWS]
    assert ragged(dest / "ids.zr") == [row["ids"] for row in ROWS]
    assert list(JsonlDataset(dest / "text.zr")[:]) == [row["text"] for row in ROWS]


def test_some_names(run: Run, jsonl: Path, tmp_path: Path) -> None:
    arguments = ["convert", jsonl, tmp_path / "c", "--kind", "columns", "--only", "id"]
    assert run(*arguments).code == 0
    assert [path.name for path in (tmp_path / "c").iterdir()] == ["id.zr"]


def test_json(run: Run, jsonl: Path, tmp_path: Path) -> None:
    dest = tmp_path / "c"
    code, out, err = run("convert", jsonl, dest, "--kind", "columns", "--json")
    assert (code, err, out.count("\n")) == (0, "", 1)
    facts = json.loads(out)
    assert (facts["kind"], facts["path"], facts["records"], facts["verified"]) == (
        "columns",
        str(dest),
        600,
        False,
    )
    assert list(facts["stores"]) == ["id", "ids", "text"]
    assert facts["stores"]["ids"]["path"] == str(dest / "ids.zr")
    assert facts["stores"]["id"]["bytes_in"] == 1600
    assert facts["stores"]["text"]["codec"] == "zstd_dict"
    assert facts["bytes_in"] == sum(store["bytes_in"] for store in facts["stores"].values())


def test_tar(run: Run, tar: Path, tmp_path: Path) -> None:
    assert run("convert", tar, tmp_path / "raw").err == ""
    assert ragged(tmp_path / "raw" / "cls.zr")[:4] == [[48], [49], [50], [48]]
    assert run("convert", tar, tmp_path / "c", "--decode", "--verify").err == ""
    assert Dataset(tmp_path / "c" / "cls.zr")[:].tolist() == [i % 3 for i in range(30)]
    assert ragged(tmp_path / "c" / "jpg.zr") == [[255] * i for i in range(30)]
    assert list(JsonlDataset(tmp_path / "c" / "__key__.zr")[:3]) == ["0000", "0001", "0002"]


@pytest.mark.parametrize("suffix", [".tar", ".tar.gz", ".tgz"])
def test_a_folder_of_archives(run: Run, tmp_path: Path, suffix: str) -> None:
    folder = tmp_path / "shards"
    folder.mkdir()
    for part in (10, 9):
        save_tar(folder / f"part{part}{suffix}", range(part * 10, part * 10 + 10))
    (folder / "notes.md").write_text("mine")
    code, _, err = run("convert", folder, tmp_path / "c", "--decode")
    assert (code, err) == (0, f"loaderx convert: left out: {folder}/notes.md\n")
    assert list(JsonlDataset(tmp_path / "c" / "__key__.zr")[:]) == [f"{i:04}" for i in range(90, 110)]


def test_append_and_force(run: Run, fails: Fails, tar: Path, tmp_path: Path) -> None:
    dest = tmp_path / "c"
    run("convert", tar, dest, "--decode")
    message = "--append adds records to its stores, --force replaces them"
    assert message in fails("convert", tar, dest, "--decode")
    code, out, _ = run("convert", tar, dest, "--decode", "--append", "--verify")
    assert (code, out.count("30 records added to 30")) == (0, 3)
    assert len(Dataset(dest / "cls.zr")) == 60
    assert run("convert", tar, dest, "--decode", "--force").code == 0
    assert len(Dataset(dest / "cls.zr")) == 30
    (tmp_path / "file").write_text("")
    assert "is not a loaderx store; choose another path" in fails("convert", tar, tmp_path / "file")


def test_stores(run: Run, tmp_path: Path) -> None:
    array = np.arange(300).reshape(100, 3)
    write_dataset(tmp_path / "a.zr", array)
    assert run("convert", tmp_path / "a.zr", tmp_path / "a.zr", tmp_path / "b.zr", "--codec", "raw").code == 0
    assert np.array_equal(Dataset(tmp_path / "b.zr")[:], np.concatenate([array, array]))
    assert Dataset(tmp_path / "b.zr").codec == "raw"
    write_ragged(tmp_path / "r.zr", [np.arange(i) for i in range(5)])
    assert run("convert", tmp_path / "r.zr", tmp_path / "s.zr", "--verify").code == 0
    assert ragged(tmp_path / "s.zr") == [list(range(i)) for i in range(5)]
    (tmp_path / "t.txt").write_text("x \ny\n")
    write_lines(tmp_path / "t.txt", tmp_path / "t.zr")
    assert run("convert", tmp_path / "t.zr", tmp_path / "u.zr", "--verify").code == 0
    assert list(JsonlDataset(tmp_path / "u.zr", parse=bytes)[:]) == [b"x ", b"y"]


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "some_pipeline.py").write_text(
        "from loaderx.stream import Stream\n"
        "numbers = Stream.from_shards([range(10)])\n"
        "n_calls = 0\n"
        "def doubled():\n"
        "    return numbers.map(lambda x: 2 * x)\n"
        "def other():\n"
        "    global n_calls\n"
        "    n_calls += 1\n"
        "    return numbers.map(lambda x: x * n_calls)\n"
        "def changing():\n"
        "    seen = []\n"
        "    def count(x):\n"
        "        seen.append(x)\n"
        "        return len(seen)\n"
        "    return numbers.map(count)\n"
        "def shorter():\n"
        "    seen = []\n"
        "    def some():\n"
        "        seen.append(0)\n"
        "        return range(5 - len(seen))\n"
        "    return Stream.from_generator(some)\n"
        "nothing = 3\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "some_pipeline", raising=False)
    return "some_pipeline"


def test_a_stream(run: Run, tmp_path: Path, module: str) -> None:
    assert run("convert", f"{module}:numbers", tmp_path / "a.zr", "--verify").code == 0
    assert run("convert", f"{module}:doubled", tmp_path / "a.zr", "--append").code == 0
    assert Dataset(tmp_path / "a.zr")[:].tolist() == [*range(10), *range(0, 20, 2)]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("nowhere:numbers", "there is no such file, and no module 'nowhere' here"),
        ("some_pipeline:absent", "some_pipeline has no 'absent'"),
        ("some_pipeline:nothing", "is of type int, and no loaderx.stream.Stream"),
    ],
)
def test_no_stream(fails: Fails, tmp_path: Path, module: str, name: str, message: str) -> None:
    assert message in fails("convert", name, tmp_path / "a.zr")
    assert not (tmp_path / "a.zr").exists()


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("changing", "record 0 is not the same as the stream gives"),
        ("shorter", "4 records were written, and the stream has 3 now"),
    ],
)
def test_what_does_not_read_back(run: Run, tmp_path: Path, module: str, name: str, message: str) -> None:
    code, _, err = run("convert", f"{module}:{name}", tmp_path / "a.zr", "--verify")
    assert code == 1
    assert message in err


def test_bad_lines(run: Run, fails: Fails, tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"a": 1}\n{\n{"a": 2}\n')
    assert "line 2 (byte 9) does not parse" in (
        message := fails("convert", path, tmp_path / "c", "--kind", "columns")
    )
    assert message.endswith("pass over what does not parse with --skip-bad")
    code, _, err = run("convert", path, tmp_path / "c", "--kind", "columns", "--skip-bad")
    assert (code, err) == (0, "loaderx convert: warning: 1 item left out by source\n")
    assert Dataset(tmp_path / "c" / "a.zr")[:].tolist() == [1, 2]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["{jsonl}"], "--lines, and JSONL name by name with --kind columns"),
        (["{jsonl}", "--lines", "--kind", "lines"], "--kind does not go with --lines"),
        (["{jsonl}", "--kind", "columns", "--ragged"], "--kind ragged is what there is"),
        (["{jsonl}", "--kind", "columns", "--decode"], "--decode does not go with jsonl"),
        (["{jsonl}", "{tar}", "--kind", "columns"], "of different formats (jsonl, webdataset)"),
        (["{npy}", "--kind", "array"], "--kind does not go with other sources than"),
        (["{npy}", "a:b"], "is converted alone"),
        (["a:b", "--decode"], "--decode does not go with a stream"),
        (["{store}", "--kind", "array"], "--kind does not go with stores"),
    ],
)
def test_what_does_not_go_together(
    fails: Fails, tmp_path: Path, jsonl: Path, tar: Path, arguments: list[str], message: str
) -> None:
    np.save(tmp_path / "a.npy", np.arange(3))
    write_dataset(tmp_path / "store.zr", np.arange(3))
    places = {"jsonl": jsonl, "tar": tar, "npy": tmp_path / "a.npy", "store": tmp_path / "store.zr"}
    filled = [argument.format(**places) for argument in arguments]
    n_sources = sum(not argument.startswith("-") for argument in arguments[:2])
    filled.insert(n_sources, str(tmp_path / "dest"))
    assert message in fails("convert", *filled)
    assert not (tmp_path / "dest").exists()


@pytest.mark.needs_pyarrow
@pytest.mark.parametrize("suffix", ["parquet", "arrow"])
def test_tables(run: Run, tmp_path: Path, suffix: str) -> None:
    import pyarrow
    import pyarrow.feather
    import pyarrow.parquet

    table = pyarrow.Table.from_pylist(ROWS)
    path = tmp_path / f"rows.{suffix}"
    if suffix == "parquet":
        pyarrow.parquet.write_table(table, path)
    else:
        pyarrow.feather.write_feather(table, str(path))
    assert run("convert", path, tmp_path / "a.zr", "--verify").code == 0
    assert list(JsonlDataset(tmp_path / "a.zr")[:]) == ROWS
    chosen = ["--only", "ids", "--only", "id"]
    assert run("convert", path, tmp_path / "c", "--kind", "columns", "--verify", *chosen).code == 0
    assert sorted(store.name for store in (tmp_path / "c").iterdir()) == ["id.zr", "ids.zr"]
    assert ragged(tmp_path / "c" / "ids.zr") == [row["ids"] for row in ROWS]


@pytest.mark.needs_pyarrow
@pytest.mark.parametrize("suffix", ["parquet", "arrow", "arrows"])
def test_columns_of_a_table_keep_their_dtypes(run: Run, tmp_path: Path, suffix: str) -> None:
    import pyarrow
    import pyarrow.parquet

    table = pyarrow.table(
        {
            "small": pyarrow.array([1, 2, 3], pyarrow.int8()),
            "short": pyarrow.array([0.5, 1.5, 2.5], pyarrow.float32()),
            "flag": [True, False, True],
            "vector": pyarrow.array([[1.0, 2.0]] * 3, pyarrow.list_(pyarrow.float16(), 2)),
            "tokens": pyarrow.array([[1], [2, 3], []], pyarrow.list_(pyarrow.uint16())),
            "gaps": pyarrow.array([1, None, 3], pyarrow.int32()),
        }
    )
    path = tmp_path / f"rows.{suffix}"
    if suffix == "parquet":
        pyarrow.parquet.write_table(table, path)
    else:
        new = pyarrow.ipc.new_file if suffix == "arrow" else pyarrow.ipc.new_stream
        with new(str(path), table.schema) as writer:
            writer.write_table(table)
    assert run("convert", path, tmp_path / "c", "--kind", "columns", "--verify").err == ""
    dtypes = {
        name: Dataset(tmp_path / "c" / f"{name}.zr").dtype for name in ("small", "short", "flag", "vector")
    }
    assert dtypes == {"small": np.int8, "short": np.float32, "flag": np.bool_, "vector": np.float16}
    tokens = RaggedDataset(tmp_path / "c" / "tokens.zr")
    assert (tokens.dtype, [tokens[i].tolist() for i in range(3)]) == (np.uint16, [[1], [2, 3], []])
    assert list(JsonlDataset(tmp_path / "c" / "gaps.zr")[:]) == [1, None, 3]


@pytest.mark.needs_pyarrow
@pytest.mark.parametrize(
    ("first", "second", "dtype", "values"),
    [
        ("int32", "double", np.float64, [1, 0.5]),
        ("float", "double", np.float64, [0.5, 0.1]),
        ("float", "int64", np.float64, [0.5, 2**24 + 1]),
        ("int8", "int8", np.int8, [1, 2]),
        ("int8", "int16", np.int64, [1, 300]),
    ],
)
def test_dtypes_that_files_do_not_share_change_no_value(
    run: Run, tmp_path: Path, first: str, second: str, dtype: Any, values: list[Any]
) -> None:
    import pyarrow
    import pyarrow.parquet

    paths = [tmp_path / "1.parquet", tmp_path / "2.parquet"]
    for path, kind, value in zip(paths, (first, second), values, strict=True):
        column = pyarrow.array(
            [value], getattr(pyarrow, {"float": "float32", "double": "float64"}.get(kind, kind))()
        )
        pyarrow.parquet.write_table(pyarrow.table({"x": column}), path)
    assert run("convert", *paths, tmp_path / "c", "--kind", "columns", "--verify").err == ""
    written = Dataset(tmp_path / "c" / "x.zr")
    assert (written.dtype, written[:].tolist()) == (dtype, values)


def test_verifying_goes_block_by_block(
    run: Run, jsonl: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streams, "_VERIFIED_RECORDS", 7)
    assert run("convert", jsonl, tmp_path / "c", "--kind", "columns", "--verify").code == 0


def test_a_file_that_is_cut_off_is_told_of(run: Run, fails: Fails, tar: Path, tmp_path: Path) -> None:
    tar.write_bytes(tar.read_bytes()[:20_000])
    assert "cut off" in fails("convert", tar, tmp_path / "c")
    code, _, err = run("convert", tar, tmp_path / "c", "--skip-bad")
    assert code == 0
    assert err.startswith(
        "loaderx convert: warning: of 1 file the rest was left out by source: cut off, damaged"
    )
    assert 0 < len(RaggedDataset(tmp_path / "c" / "cls.zr")) < 30
