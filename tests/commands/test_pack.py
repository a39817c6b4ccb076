"""``pack`` and ``unpack``: stores cut to their bytes, or a line that says why not."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import loaderx
from loaderx import Dataset, Zrecord, write_dataset
from loaderx.commands import waiting
from loaderx.commands.program import complain
from tests.commands.conftest import Run, listing
from tests.oracle import META_BYTES
from tests.store.children import hold, other_process
from tests.store.refusals import refusing

ROWS = np.arange(5000, dtype=np.uint8).reshape(50, 100)

#: meta.zr, 0.zr, sums.zr, and schema.json.
PACKED = (16 + 16 * 50) + 5000 + (32 + 8 * 50)

COMMANDS = ["pack", "unpack"]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Return a dataset of 50 raw records of 100 bytes."""
    path = tmp_path / "a.zr"
    write_dataset(path, ROWS, "raw", progress=False)
    return path


def total(path: Path) -> int:
    return sum(file.stat().st_size for file in path.iterdir())


def test_packs_and_unpacks(run: Run, path: Path) -> None:
    schema = (path / "schema.json").stat().st_size
    code, out, err = run("pack", path)
    assert (code, err) == (0, "")
    assert out.startswith(f"{path}: 256.0 MiB -> 6.2 KiB (") and out.endswith(" on disk), 1 file resized\n")
    assert total(path) == PACKED + schema
    with Dataset(path, verify=True) as ds:
        np.testing.assert_array_equal(ds[:], ROWS)
    assert run("pack", path) == (0, f"{path}: 6.2 KiB, nothing to do\n", "")
    code, out, err = run("unpack", path)
    assert (code, err) == (0, "") and out.startswith(f"{path}: 6.2 KiB -> 256.0 MiB (")
    assert (path / "meta.zr").stat().st_size == META_BYTES
    assert run("unpack", path) == (0, f"{path}: 256.0 MiB, nothing to do\n", "")
    assert loaderx.verify(path).checked == 50


def test_json(run: Run, path: Path) -> None:
    before = total(path)
    code, out, err = run("pack", path, "--json")
    assert (code, err, out.count("\n")) == (0, "", 1)
    facts = json.loads(out)
    assert facts.pop("allocated_before") >= facts.pop("allocated_after") > 0
    assert facts == {
        "path": str(path),
        "resized": ["meta.zr"],
        "removed": [],
        "set_aside": [],
        "bytes_before": before,
        "bytes_after": total(path),
    }
    facts = json.loads(run("unpack", path, "--json", "--quiet").out)
    assert (facts["resized"], facts["bytes_after"]) == (["meta.zr"], before)


def test_leftovers(run: Run, path: Path) -> None:
    (path / "1.zr").write_bytes(b"left")
    (path / "journal-aside-0a1b.zr").write_bytes(b"aside")
    out = run("pack", path).out
    assert out.endswith(", 1 file resized, 1 leftover removed, journal-aside-0a1b.zr kept\n")
    assert not (path / "1.zr").exists() and (path / "journal-aside-0a1b.zr").exists()


@pytest.mark.parametrize("name", COMMANDS)
def test_quiet(name: str, run: Run, path: Path) -> None:
    assert run(name, path, "--quiet") == (0, "", "")


def test_several(run: Run, path: Path, tmp_path: Path) -> None:
    """One that cannot be is a line, and those behind it are packed all the same."""
    other = tmp_path / "b.zr"
    with Zrecord(other) as z:
        z.append(b"abc", 3, 1)
    code, out, err = run("pack", path, tmp_path / "no.zr", other, "--json")
    assert code == 2 and [json.loads(line)["path"] for line in out.splitlines()] == [str(path), str(other)]
    assert err.count("\n") == 1 and err.startswith(f"loaderx pack: {tmp_path / 'no.zr'}: not a Zrecord store")
    assert (other / "meta.zr").stat().st_size == 16 + 3 * 16
    assert run("unpack", path, other, "--quiet") == (0, "", "")
    assert all((store / "meta.zr").stat().st_size == META_BYTES for store in (path, other))


@pytest.mark.parametrize("name", COMMANDS)
@pytest.mark.parametrize("kind", ["nothing", "file", "folder", "short", "newer"])
def test_what_is_no_store(name: str, kind: str, fails: Callable[..., str], tmp_path: Path) -> None:
    """Nothing is created, where a handle for writing would."""
    path = tmp_path / "x"
    if kind == "file":
        path.write_text("text")
    elif kind != "nothing":
        path.mkdir()
    if kind in ("short", "newer"):
        (path / "meta.zr").write_bytes({"short": b"ZREC", "newer": b"ZREC\x09" + bytes(11)}[kind])
    names = listing(tmp_path)
    assert str(path) in fails(name, path)
    assert listing(tmp_path) == names


@pytest.mark.parametrize("name", COMMANDS)
def test_a_folder_names_its_stores(name: str, fails: Callable[..., str], tmp_path: Path) -> None:
    for store in ("b", "a"):
        write_dataset(tmp_path / f"set/{store}.zr", np.zeros((3, 2)))
    assert fails(name, tmp_path / "set").endswith("; it holds the stores a.zr, b.zr")


@pytest.mark.parametrize("name", COMMANDS)
@pytest.mark.parametrize(
    ("arguments", "words"),
    [([], "PATH"), ([""], "it is empty"), (["x", "--timeout", "-1"], "no span of time")],
)
def test_wrong_usage(name: str, arguments: list[str], words: str, fails: Callable[..., str]) -> None:
    assert words in fails(name, *arguments)


@pytest.mark.parametrize("name", COMMANDS)
@pytest.mark.parametrize("mode", ["r", "a"])
def test_others_are_waited_for(
    name: str, mode: Any, run: Run, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiting, "SILENT_S", 0.1)
    with other_process(lambda pause: hold(path, pause, mode=mode)) as other:
        code, out, err = run(name, path, "--timeout", 0.3)
        assert (code, out) == (2, "")
        lines = err.splitlines()
        assert lines[0] == f"loaderx {name}: {path}: waiting for process {other.pid} to let go of the store"
        assert len(lines) == 2 and str(other.pid) in lines[1]
        monkeypatch.setattr(waiting, "complain", lambda *words: (complain(*words), other.kill()))
        code, out, err = run(name, path, "--timeout", 20)
    assert (code, err) == (0, lines[0] + "\n") and out.startswith(f"{path}: ")


def test_a_failing_disk(fails: Callable[..., str], run: Run, path: Path) -> None:
    with refusing("truncate", after=1):
        assert "No space left" in fails("pack", path)
    assert run("pack", path).code == 0
    with Dataset(path, verify=True) as ds:
        np.testing.assert_array_equal(ds[:], ROWS)
