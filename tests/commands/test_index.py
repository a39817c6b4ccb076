"""``index``: indices of text files, built, brought up to date and checked."""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from loaderx.commands import index as index_command
from loaderx.commands import program
from loaderx.errors import StaleIndexWarning
from loaderx.jsonl import Index
from tests.commands.conftest import Run
from tests.jsonl.samples import bytes_below, write


@pytest.fixture
def base(tmp_path: Path) -> Path:
    """Return a folder of two text files."""
    return write(tmp_path / "corpus", {"a.jsonl": b"1\n2\n", "sub/b.jsonl": b"3"})


def test_builds(run: Run, base: Path) -> None:
    code, out, err = run("index", base)
    assert (code, err) == (0, "")
    assert out.startswith(f"{base}: 3 samples of 2 files, 5 B scanned, ")
    assert out.endswith(" MiB/s, 1 file without a line end at the end\n")
    assert len(Index.open(base)) == 3
    assert run("index", base, "--quiet") == (0, "", "")


def test_json(run: Run, base: Path) -> None:
    code, out, err = run(
        "index", base, "--json", "--threads", 1, "--pattern", "*.jsonl", "--index-folder", "here"
    )
    assert (code, err) == (0, "")
    facts = json.loads(out)
    assert 0 < facts.pop("seconds") < 60
    assert facts == {
        "path": str(base),
        "index": str(base / "here"),
        "samples": 2,
        "files": 1,
        "scanned_bytes": 4,
        "unfinished": [],
    }


def test_several_paths_whatever_is_wrong_with_one(run: Run, base: Path, tmp_path: Path) -> None:
    code, out, err = run("index", base, tmp_path / "nowhere", base / "a.jsonl")
    assert code == 2
    assert [line.split(": ")[0] for line in out.splitlines()] == [str(base), str(base / "a.jsonl")]
    assert err == f"loaderx index: {tmp_path / 'nowhere'}: No such file or directory\n"
    assert (base / "a.jsonl.index").is_dir()


def test_updates(run: Run, base: Path) -> None:
    run("index", base)
    (base / "sub" / "b.jsonl").write_bytes(b"43\n4\n")
    code, out, err = run("index", base, "--update")
    changed = f"loaderx index: {base}/sub/b.jsonl: it has other bytes than when it was indexed; build the index anew"
    assert (code, out) == (1, "") and err.startswith(changed)
    (base / "sub" / "b.jsonl").write_bytes(b"3 \n4\n")
    code, out, err = run("index", base, "--update")
    assert (code, err) == (0, "") and out.startswith(f"{base}: 4 samples of 2 files, 5 B scanned, ")
    code, out, err = run("index", base, "--update")
    assert (code, out, err) == (0, f"{base}: 4 samples of 2 files, nothing scanned\n", "")


def test_checks(run: Run, base: Path) -> None:
    run("index", base)
    before = bytes_below(base)
    rows = "  samples  {}\n  files    {}\n  damaged  {}\n  changed  {}\n  grown    {}\n  new      {}\n"
    assert run("index", base, "--check") == (0, f"{base}\n" + rows.format(3, 2, 0, 0, 0, 0), "")
    assert run("index", base, "--check", "--quiet") == (0, "", "")
    (base / "a.jsonl").write_bytes(b"1\n2\n4\n")
    (base / "sub" / "b.jsonl").write_bytes(b"")
    write(base, {"c.jsonl": b""})
    code, out, err = run("index", base, "--check")
    assert (code, err) == (1, "")
    assert out == (
        f"{base}\n{rows.format(3, 2, 0, 1, 1, 1)}"
        f"  {base}/sub/b.jsonl: it has 0 bytes, and had 1 when it was indexed\n"
        f"  {base}/a.jsonl: it has grown\n  {base}/c.jsonl: it is not in the index\n"
    )
    code, out, err = run("index", base, "--check", "--json")
    assert (code, err) == (1, "")
    assert json.loads(out) == {
        "path": str(base),
        "index": str(base / "index"),
        "ok": False,
        "samples": 3,
        "files": 2,
        "known": True,
        "damaged": [],
        "changed": [
            {"file": f"{base}/sub/b.jsonl", "problem": "it has 0 bytes, and had 1 when it was indexed"}
        ],
        "grown": [f"{base}/a.jsonl"],
        "new": [f"{base}/c.jsonl"],
        "error": None,
    }
    assert {name: data for name, data in bytes_below(base).items() if name.startswith("index")} == {
        name: data for name, data in before.items() if name.startswith("index")
    }


def flip(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)


def test_checks_the_hashes(run: Run, base: Path) -> None:
    run("index", base)
    flip(base / "index" / "sample_locations.bin", 8)  # sample 0 begins at byte 1: nothing else shows it
    assert len(Index.open(base)) == 3
    code, out, err = run("index", base, "--check", "--json")
    assert (code, err) == (1, "")
    (damage,) = json.loads(out)["damaged"]
    assert damage["file"] == f"{base}/index/sample_locations.bin" and "its hash is " in damage["problem"]
    run("index", base)
    flip(base / "index" / "file_location.txt", 0)
    write(base, {"`.jsonl": b"1\n2\n"})
    os.utime(base / "`.jsonl", ns=(0, os.stat(base / "a.jsonl").st_mtime_ns))
    code, out, err = run("index", base, "--check", "--json")
    assert code == 1 and json.loads(out)["damaged"][0]["file"] == f"{base}/index/file_location.txt"


def test_an_index_that_cannot_be_opened(run: Run, base: Path) -> None:
    run("index", base)
    (base / "index" / "index.json").write_bytes(b"{")
    code, out, err = run("index", base, "--check", "--json")
    assert code == 1
    assert json.loads(out)["error"] + "\n" == err.removeprefix("loaderx index: ")
    (base / "index" / "sample_locations.bin").unlink()
    code, out, err = run("index", base, "--check", "--json")
    assert (code, out) == (2, "") and "it has no sample_locations.bin" in err


def test_checks_the_places_of_another_programs_index(run: Run, base: Path) -> None:
    folder = base / "index"
    folder.mkdir()
    (folder / "file_location.txt").write_text("a.jsonl\nsub/b.jsonl\n")
    good = [[0, 0, 2], [1, 0, 1]]
    for wrong in (
        None,
        [2, 0, 1],
        [0, 5, 1],
        [0, 3, 2],
        [0, 2**64 - 1, 2],
        [1, 1, 2**64 - 1],
        [2**64 - 1, 0, 0],
    ):
        rows = [*good, *([] if wrong is None else [wrong])]
        (folder / "sample_locations.bin").write_bytes(np.array(rows, "<u8").tobytes())
        code, out, _ = run("index", base, "--check", "--json")
        facts = json.loads(out)
        assert (code, facts["known"], facts["samples"]) == (0 if wrong is None else 1, False, len(rows))
        assert [damage["problem"][:8] for damage in facts["damaged"]] == (
            [] if wrong is None else ["sample 2"]
        )
    assert "another program's index" in run("index", base, "--check")[1]
    (base / "a.jsonl").unlink()
    assert "a.jsonl: it is not there" in run("index", base, "--check")[1]


def test_many_faults_are_cut_short(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index_command, "SHOWN", 2)
    base = write(tmp_path, [b"1\n"] * 4)
    run("index", base)
    for i in range(4):
        (base / f"{i}.jsonl").write_bytes(b"")
    out = run("index", base, "--check")[1]
    assert out.endswith("  and 2 more: --json names them all\n")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--update", "--check"], "not allowed with"),
        (["--update", "--pattern", "*"], "--pattern is for building"),
        (["--threads", "-1"], "threads is -1"),
        (["--pattern", "*.parquet"], "no file fits '*.parquet'"),
        (["--update"], "no index"),
        (["--check"], "no index"),
    ],
)
def test_wrong_usage(options: list[str], words: str, fails: Callable[..., str], base: Path) -> None:
    assert words in fails("index", base, *options)


def test_links_out_of_the_folder(run: Run, fails: Callable[..., str], base: Path, tmp_path: Path) -> None:
    write(tmp_path / "elsewhere", {"x.jsonl": b"5\n"})
    (base / "link.jsonl").symlink_to(tmp_path / "elsewhere" / "x.jsonl")
    assert "outside" in fails("index", base)
    assert run("index", base, "--allow-outside")[0] == 0
    assert "outside" in fails("index", base, "--check")
    assert run("index", base, "--allow-outside", "--check")[0] == 0


def test_a_warning_of_grown_files_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    def action() -> int:
        warnings.warn("a.jsonl: grown", StaleIndexWarning, stacklevel=1)
        return 0

    assert program.guard("loaderx x", action) == 0
    assert capsys.readouterr().err == "loaderx x: warning: a.jsonl: grown\n"
