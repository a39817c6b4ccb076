"""``verify``: good stores, damaged ones, unchecked ones, and what is none."""

from __future__ import annotations

import json
import os
import pty
import signal
import struct
import subprocess
import termios
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import loaderx
from loaderx import Zrecord, write_dataset
from loaderx.commands import verify
from loaderx.store import mark
from tests.commands.conftest import Run, listing
from tests.store.test_recovery import killed_session, start_of
from tests.store.test_sums import flip


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Return a store of 50 records of 100 bytes."""
    write_dataset(tmp_path / "a.zr", np.repeat(np.arange(50, dtype=np.uint8), 100).reshape(50, 100), "raw")
    return tmp_path / "a.zr"


def report_of(run: Run, path: Path, *options: object) -> tuple[int, dict[str, Any]]:
    code, out, err = run("verify", path, "--json", *options)
    assert (err, out.count("\n")) == ("", 1)
    report: dict[str, Any] = json.loads(out)
    assert code == (1 if report["damaged"] else 0)
    return code, report


def test_a_good_store(run: Run, path: Path) -> None:
    assert run("verify", path) == (
        0,
        f"{path}\n  records    50\n  checked    50\n  unchecked  0\n  damaged    0\n",
        "",
    )
    code, report = report_of(run, path)
    assert code == 0
    assert report == loaderx.verify(path).as_dict()
    assert (report["path"], report["records"], report["checked"]) == (str(path), 50, 50)
    assert (report["unchecked"], report["damaged"]) == (0, [])


def test_damaged_records_are_named_with_their_place(run: Run, path: Path) -> None:
    flip(path, "0.zr", 750)
    flip(path, "0.zr", 4999)
    code, out, err = run("verify", path)
    assert (code, err) == (1, "")
    assert "  records    50\n" in out and "  damaged    2\n" in out
    assert "  record 7 (0.zr, byte 700): " in out and "  record 49 (0.zr, byte 4900): " in out
    assert out.count("\n") == 7
    code, report = report_of(run, path)
    assert [(damage["record"], damage["chunk"], damage["byte_offset"]) for damage in report["damaged"]] == [
        (7, 0, 700),
        (49, 0, 4900),
    ]
    assert all(damage["problem"] for damage in report["damaged"])


def test_many_damaged_records_are_not_all_shown(run: Run, path: Path) -> None:
    with (path / "0.zr").open("r+b") as file:
        file.seek(500)
        file.write(bytes(4500))
    code, out, _ = run("verify", path)
    assert code == 1
    assert out.count("  record ") == verify.SHOWN
    assert out.endswith("  and 25 more: --json names them all\n")
    assert len(report_of(run, path)[1]["damaged"]) == 45


def test_unchecked_records_are_no_fault(run: Run, path: Path) -> None:
    (path / "sums.zr").unlink()
    code, out, err = run("verify", path)
    assert (code, err) == (0, "")
    assert "  unchecked  50 (no checksum: another program wrote them)\n  damaged    0\n" in out
    code, report = report_of(run, path)
    assert (code, report["checked"], report["unchecked"]) == (0, 0, 50)


def test_a_store_cut_short(run: Run, path: Path) -> None:
    os.truncate(path / "0.zr", 4750)
    code, report = report_of(run, path, "--threads", 1)
    assert code == 1 and [damage["record"] for damage in report["damaged"]] == [47, 48, 49]


@pytest.mark.parametrize("name", ["0.zr", "meta.zr"])
def test_so_damaged_that_it_does_not_open(name: str, run: Run, path: Path) -> None:
    if name == "0.zr":
        (path / "0.zr").unlink()
    else:
        os.truncate(path / "meta.zr", 100)
    for options in ([], ["--json"]):
        code, out, err = run("verify", path, *options)
        assert (code, out) == (1, "")
        assert err.startswith(f"loaderx verify: {path}: ") and name in err and err.count("\n") == 1


def test_a_damaged_dictionary(run: Run, tmp_path: Path) -> None:
    rows = [f"user={i % 17};item={i * 7919 % 1000};country=NL;device=phone".encode() for i in range(1000)]
    with Zrecord(tmp_path / "a.zr", "zstd_dict", level=3) as z:
        z.train_dict(b"".join(rows), [len(row) for row in rows], 2000)
        z.append(b"".join(rows[:1]) * 5, 5, len(rows[0]))
    (tmp_path / "a.zr/dict.zr").unlink()
    code, out, _ = run("verify", tmp_path / "a.zr")
    assert code == 1 and out.count("dict.zr") == 5


@pytest.mark.parametrize("kind", ["nothing", "file", "folder", "short", "version"])
def test_what_is_no_store(kind: str, fails: Callable[..., str], tmp_path: Path) -> None:
    path = tmp_path / "x"
    if kind == "file":
        path.write_text("text")
    elif kind == "folder":
        path.mkdir()
    elif kind == "short":
        path.mkdir()
        (path / "meta.zr").write_bytes(b"ZREC")
    elif kind == "version":
        write_dataset(path, np.zeros((3, 2)))
        with (path / "meta.zr").open("r+b") as meta:
            meta.seek(4)
            meta.write(struct.pack("<H", 9))
    names = listing(tmp_path)
    assert str(path) in fails("verify", path)
    assert listing(tmp_path) == names


def test_a_folder_names_its_stores(fails: Callable[..., str], tmp_path: Path) -> None:
    for name in ("b", "a"):
        write_dataset(tmp_path / f"set/{name}.zr", np.zeros((3, 2)))
    assert fails("verify", tmp_path / "set").endswith("; it holds the stores a.zr, b.zr")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "PATH"),
        (["x", "y"], "y"),
        ([""], "it is empty"),
        (["x", "--threads", "many"], "many"),
        (["x", "--threads", "-1"], "threads"),
    ],
)
def test_wrong_usage(arguments: list[str], words: str, fails: Callable[..., str]) -> None:
    assert words in fails("verify", *arguments)


def test_changes_nothing(run: Run, path: Path) -> None:
    before = {name: (path / name).stat() for name in listing(path)}
    assert run("verify", path).code == 0
    after = {name: (path / name).stat() for name in listing(path)}
    assert after.keys() == before.keys()
    for name, old in before.items():
        assert (after[name].st_mtime_ns, after[name].st_ctime_ns) == (old.st_mtime_ns, old.st_ctime_ns), name


def test_beside_a_writer(run: Run, path: Path) -> None:
    with Zrecord(path, "raw") as z:
        z.append(b"x" * 100, 1, 100)
        assert report_of(run, path)[1]["records"] == 51


def test_after_a_power_loss(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was cut off is said, and is no damage of what is there."""
    path = tmp_path / "a.zr"
    killed_session(path)
    flip(path, "0.zr", start_of(path, 17))
    monkeypatch.setattr(mark, "boot_id", lambda: b"another boot....")
    code, out, err = run("verify", path)
    assert code == 0
    assert err.startswith("loaderx verify: warning: ") and err.count("\n") == 1 and "17 to 19" in err
    assert "  records    17\n" in out and "  cut off    3 records, 17 to 19: see the warning\n" in out
    _, out, _ = run("verify", path, "--json")
    assert json.loads(out)["recovery"] is not None


def test_in_a_process_of_its_own(start: Callable[..., subprocess.Popen[str]], path: Path) -> None:
    flip(path, "0.zr", 750)
    with start("loaderx", "verify", path) as process:
        out, err = process.communicate()
    assert (process.returncode, err) == (1, "") and "record 7 " in out


def test_a_bar_on_a_terminal(start: Callable[..., subprocess.Popen[str]], tmp_path: Path) -> None:
    write_dataset(tmp_path / "a.zr", np.zeros((100, 1000), np.uint8), "raw")
    shown = {}
    for options in ([], ["--json"]):
        leader, follower = pty.openpty()
        termios.tcsetwinsize(follower, (24, 80))
        with start("loaderx", "verify", tmp_path / "a.zr", *options, stderr=follower) as process:
            os.close(follower)
            assert process.wait(60) == 0
            assert process.stdout is not None and "records" in process.stdout.read()
        shown[bool(options)] = drained(leader)
    assert b"verify" in shown[False] and shown[True] == b""


def drained(leader: int) -> bytes:
    """Return what was written to a terminal that nobody has open any more, and close it."""
    data = b""
    try:
        while block := os.read(leader, 4096):
            data += block
    except OSError:  # EIO: the other side is closed
        pass
    finally:
        os.close(leader)
    return data


def test_interrupted(run: Run, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stopped(*_: object, **__: object) -> None:
        signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(verify, "verify", stopped)
    assert run("verify", path) == (130, "", "loaderx verify: interrupted\n")
