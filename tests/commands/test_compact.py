"""``compact``: the space of deleted records given back, or a line that says why not."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import termios
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import loaderx
from loaderx import Dataset, Zrecord, write_dataset
from loaderx.commands import waiting
from loaderx.commands.program import complain
from loaderx.store import compact as compaction
from loaderx.store import files
from tests.commands.conftest import Run, drained, listing
from tests.oracle import swap_delete
from tests.store.children import hold, other_process
from tests.store.refusals import refusing
from tests.store.samples import contents

ROWS = [bytes([number]) * 100 for number in range(50)]
DELETED = [0, 1, 5, 30, 31, 32]
LEFT = swap_delete(ROWS, DELETED)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Return a store of 44 records of 100 bytes, from which six were deleted."""
    path = tmp_path / "a.zr"
    write_dataset(path, np.frombuffer(b"".join(ROWS), np.uint8).reshape(50, 100), "raw")
    with Zrecord(path) as z:
        z.delete(DELETED)
    return path


def test_gives_space_back(run: Run, path: Path) -> None:
    assert run("compact", path) == (
        0,
        f"{path}: 44 records, 600 B given back (4.9 KiB -> 4.3 KiB)\n",
        "",
    )
    assert contents(path) == LEFT and (path / "0.zr").stat().st_size == 4400
    assert loaderx.verify(path).ok
    assert run("compact", path).out == f"{path}: 44 records, 0 B given back (4.3 KiB -> 4.3 KiB)\n"
    assert contents(path) == LEFT
    with Dataset(path, verify=True) as ds:
        assert ds[:].tobytes() == b"".join(LEFT)


def test_json(run: Run, path: Path) -> None:
    code, out, err = run("compact", path, "--json")
    assert (code, err, out.count("\n")) == (0, "", 1)
    assert json.loads(out) == {
        "path": str(path),
        "records": 44,
        "bytes_before": 5000,
        "bytes_after": 4400,
        "bytes_given_back": 600,
    }


def test_a_store_without_records(run: Run, tmp_path: Path) -> None:
    write_dataset(tmp_path / "a.zr", np.zeros((0, 2)))
    assert run("compact", tmp_path / "a.zr").code == 0
    with Zrecord(tmp_path / "a.zr") as z:
        z.append(bytes(100), 10, 10, "raw")
        z.delete(np.arange(10))
    facts = json.loads(run("compact", tmp_path / "a.zr", "--json").out)
    assert (facts["records"], facts["bytes_after"], facts["bytes_given_back"]) == (0, 0, 100)


@pytest.mark.parametrize("kind", ["nothing", "file", "folder", "short"])
def test_what_is_no_store(kind: str, fails: Callable[..., str], tmp_path: Path) -> None:
    """Nothing is created, where a handle for writing would."""
    path = tmp_path / "x"
    if kind == "file":
        path.write_text("text")
    elif kind == "folder":
        path.mkdir()
    elif kind == "short":
        path.mkdir()
        (path / "meta.zr").write_bytes(b"ZREC")
    names = listing(tmp_path)
    assert str(path) in fails("compact", path)
    assert listing(tmp_path) == names


def test_a_folder_names_its_stores(fails: Callable[..., str], tmp_path: Path) -> None:
    for name in ("b", "a"):
        write_dataset(tmp_path / f"set/{name}.zr", np.zeros((3, 2)))
    assert fails("compact", tmp_path / "set").endswith("; it holds the stores a.zr, b.zr")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "PATH"),
        (["x", "--threads", "2"], "--threads"),
        ([""], "it is empty"),
        (["x", "--timeout", "-1"], "no span of time"),
    ],
)
def test_wrong_usage(arguments: list[str], words: str, fails: Callable[..., str]) -> None:
    assert words in fails("compact", *arguments)


@pytest.mark.parametrize("mode", ["r", "a"])
def test_a_store_that_others_have_open(mode: Any, fails: Callable[..., str], path: Path) -> None:
    before = contents(path)
    with other_process(lambda pause: hold(path, pause, mode=mode)) as other:
        line = fails("compact", path, "--timeout", 0.2)
        assert str(other.pid) in line
    assert contents(path)[:44] == before


@pytest.mark.parametrize("mode", ["r", "a"])
def test_others_are_waited_for(mode: Any, run: Run, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a line that says for whom, since nothing else is to be seen meanwhile."""
    monkeypatch.setattr(waiting, "SILENT_S", 0.1)
    with other_process(lambda pause: hold(path, pause, mode=mode)) as other:
        code, out, err = run("compact", path, "--timeout", 0.3)
        assert (code, out) == (2, "")
        lines = err.splitlines()
        assert lines[0] == f"loaderx compact: {path}: waiting for process {other.pid} to let go of the store"
        assert len(lines) == 2 and str(other.pid) in lines[1]
        monkeypatch.setattr(waiting, "complain", lambda *words: (complain(*words), other.kill()))
        code, out, err = run("compact", path, "--timeout", 20)
    assert (code, err) == (0, lines[0] + "\n") and "given back" in out


def test_quiet(run: Run, path: Path) -> None:
    assert run("compact", path, "--quiet") == (0, "", "")
    assert contents(path) == LEFT and (path / "0.zr").stat().st_size == 4400
    assert json.loads(run("compact", path, "--quiet", "--json").out)["bytes_given_back"] == 0


def test_records_that_share_bytes(fails: Callable[..., str], path: Path) -> None:
    with (path / "meta.zr").open("r+b") as meta:
        meta.seek(16 + 16)
        entry = meta.read(16)
        meta.seek(16)
        meta.write(entry)
    assert "shares bytes" in fails("compact", path)


def test_a_full_disk(fails: Callable[..., str], run: Run, path: Path) -> None:
    with refusing("write", after=1):
        assert "No space left" in fails("compact", path)
    assert run("compact", path).code == 0
    assert contents(path) == LEFT


@pytest.mark.parametrize(("sent", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_stopped_and_run_again(
    sent: signal.Signals, code: int, run: Run, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compaction, "_BLOCK_BYTES", 500)
    for number in range(200):
        seen = 0

        def stop(*_: object, number: int = number) -> None:
            nonlocal seen
            seen += 1
            if seen == number + 1:
                signal.raise_signal(sent)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(files, "observe", stop)
            outcome = run("compact", path)
        with Dataset(path, verify=True) as ds:
            assert ds[:].tobytes() == b"".join(LEFT)
        if outcome.code == 0:
            break
        assert outcome.code == code and outcome.out == ""
        assert outcome.err == f"loaderx compact: {'interrupted' if sent == signal.SIGINT else 'terminated'}\n"
    assert number > 5 and outcome.code == 0
    assert contents(path) == LEFT and (path / "0.zr").stat().st_size == 4400
    assert loaderx.verify(path).ok and not (path / "journal.zr").exists()


def test_a_bar_on_a_terminal(start: Callable[..., subprocess.Popen[str]], path: Path) -> None:
    shown = {}
    for options in ([], ["--json"], ["--quiet"]):
        with Zrecord(path) as z:
            z.delete([0])
        leader, follower = pty.openpty()
        termios.tcsetwinsize(follower, (24, 80))
        with start("loaderx", "compact", path, *options, stderr=follower) as process:
            os.close(follower)
            assert process.wait(60) == 0
            assert process.stdout is not None and (str(path) in process.stdout.read()) == (
                options != ["--quiet"]
            )
        shown["".join(options)] = drained(leader)
    assert b"compact" in shown.pop("") and shown == {"--json": b"", "--quiet": b""}


def test_several_stores(run: Run, tmp_path: Path) -> None:
    paths = [tmp_path / name for name in ("a.zr", "none.zr", "b.zr")]
    for path in paths[::2]:
        with Zrecord(path, "raw") as store:
            store.append(np.arange(1000, dtype="u1"), 10, 100)
            store.delete([2, 3])
    code, out, err = run("compact", *paths)
    assert code == 2 and err.count("\n") == 1 and f"{paths[1]}: not a Zrecord store" in err
    assert out.splitlines() == [
        f"{path}: 8 records, 200 B given back (1000 B -> 800 B)" for path in paths[::2]
    ]
    code, out, err = run("compact", paths[0], paths[2], "--json")
    assert (code, err) == (0, "")
    assert [json.loads(line)["path"] for line in out.splitlines()] == [str(paths[0]), str(paths[2])]
    assert not paths[1].exists()
