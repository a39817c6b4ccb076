"""``verify``: good stores, damaged ones, unchecked ones, and what is none."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import shutil
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
from loaderx import Zrecord, write_dataset, write_ragged
from loaderx.commands import verify, waiting
from loaderx.commands.program import complain
from loaderx.store import mark
from loaderx.store.format import RECORD
from tests.commands.conftest import Run, drained, listing
from tests.store.children import Pause, in_child, other_process
from tests.store.crashes import killed_session, left_by
from tests.store.samples import flip, start_of

NOBODY = 65534


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Return a store of 50 records of 100 bytes."""
    write_dataset(tmp_path / "a.zr", np.repeat(np.arange(50, dtype=np.uint8), 100).reshape(50, 100), "raw")
    return tmp_path / "a.zr"


def report_of(run: Run, path: Path, *options: object) -> tuple[int, dict[str, Any]]:
    code, out, err = run("verify", path, "--json", *options)
    assert (err, out.count("\n")) == ("", 1)
    report: dict[str, Any] = json.loads(out)
    assert code == (0 if report["ok"] else 1) and report["error"] is None
    return code, report


def test_a_good_store(run: Run, path: Path) -> None:
    assert run("verify", path) == (
        0,
        f"{path}\n  records    50\n  checked    50\n  unchecked  0\n  damaged    0\n",
        "",
    )
    code, report = report_of(run, path)
    assert code == 0
    assert report == {**loaderx.verify(path).as_dict(), "error": None}
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
    assert "  unchecked  50 (no checksum: there is no sums.zr)\n  damaged    0\n" in out
    code, report = report_of(run, path)
    assert (code, report["checked"], report["unchecked"]) == (0, 0, 50)


def test_unchecked_records_of_another_program(run: Run, path: Path) -> None:
    """Their records behind ours: sums.zr has none of them."""
    with (path / "meta.zr").open("r+b") as meta, (path / "0.zr").open("r+b") as chunk:
        chunk.seek(5000)
        chunk.write(bytes(100))
        meta.seek(16 + 16 * 50)
        entry = np.zeros((), RECORD)
        entry["offset"], entry["phys_length"], entry["logic_length"] = 5000, 100, 100
        meta.write(entry.tobytes())
        meta.seek(8)
        meta.write(struct.pack("<II", 5100, 51))
    assert "  unchecked  1 (no checksum: another program wrote them, or " in run("verify", path).out


@pytest.mark.parametrize("kind", ["delete", "compact"])
def test_a_change_that_was_cut_off_leaves_no_record_unchecked(kind: str, run: Run, tmp_path: Path) -> None:
    """The sums of what it touched are in its journal."""
    path = tmp_path / "a.zr"
    left_by(path, kind, "half")
    code, out, err = run("verify", path, "--strict")
    assert (code, err) == (0, "")
    assert "  unchecked   0\n" in out and "  unfinished  a delete or a compaction" in out


def test_strict_takes_unchecked_records_for_a_fault(run: Run, many: list[Path]) -> None:
    assert run("verify", many[0], many[4], "--strict").code == 0
    (many[0] / "sums.zr").unlink()
    assert run("verify", many[0], many[4]).code == 0
    code, out, err = run("verify", many[0], many[4], "--strict")
    assert (code, err) == (1, "") and "  unchecked  50 (" in out
    code, report = report_of(run, many[0], "--strict")
    assert (code, report["ok"], report["damaged"]) == (1, False, [])


def test_quiet_says_only_what_is_not_good(run: Run, many: list[Path]) -> None:
    assert run("verify", many[0], "--quiet") == (0, "", "")
    assert run("verify", *many, "--quiet") == (
        2,
        run("verify", many[1]).out,
        run("verify", many[2]).err + run("verify", many[3]).err,
    )
    assert run("verify", many[0], "--quiet", "--json").out == run("verify", many[0], "--json").out


@pytest.mark.parametrize("ragged", [False, True])
def test_records_that_do_not_fit_the_schema(ragged: bool, run: Run, tmp_path: Path) -> None:
    path = tmp_path / "a.zr"
    if ragged:
        write_ragged(path, [np.zeros((rows, 3), np.int16) for rows in (2, 0, 1)])
    else:
        write_dataset(path, np.zeros((3, 3), np.int16))
    assert run("verify", path).code == 0
    with Zrecord(path) as z:
        z.append_var(bytes(100), [0, 0, 0, 0], [6, 12, 7, 0], "raw")
    flip(path, "0.zr", start_of(path, 5))
    wrong = [5] if ragged else [4, 5, 6]
    code, out, err = run("verify", path)
    assert (code, err) == (1, "") and f"  damaged    {len(wrong)}\n" in out
    code, report = report_of(run, path)
    assert [damage["record"] for damage in report["damaged"]] == wrong
    problems = {damage["record"]: damage["problem"] for damage in report["damaged"]}
    assert "checksum" in problems[5], "what the bytes say comes first"
    if not ragged:
        assert problems[4] == "it has 12 bytes, and by schema.json a record of int16 (3,) has 6"
    assert [damage.record for damage in loaderx.verify(path).damaged] == [5], "bytes alone"


def test_a_schema_that_is_wrong(run: Run, many: list[Path]) -> None:
    (many[0] / "schema.json").write_text("{")
    code, out, err = run("verify", many[0], many[4])
    assert code == 1 and out.count("  damaged    0\n") == 2
    assert err.startswith(f"loaderx verify: {many[0]}: schema.json is wrong: ") and err.count("\n") == 1
    code, out, err = run("verify", many[0], "--json")
    facts = json.loads(out)
    assert (code, facts["ok"], facts["damaged"], facts["checked"]) == (1, False, [], 50)
    assert err == f"loaderx verify: {facts['error']}\n"
    assert run("verify", many[0], "--quiet").code == 1
    (many[0] / "schema.json").unlink()
    assert run("verify", many[0]).code == 0, "without it, it is a store of bytes"
    (many[0] / "schema.json").mkdir()
    code, out, _ = run("verify", many[0], "--json")
    assert code == 2 and json.loads(out)["ok"] is False


@pytest.mark.parametrize("released", [True, False])
def test_a_delete_elsewhere_is_waited_for(
    released: bool, run: Run, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiting, "SILENT_S", 0.1)

    def body(pause: Pause) -> None:
        with (path / "meta.zr").open("rb") as meta:
            fcntl.flock(meta, fcntl.LOCK_EX)  # as a delete does
            pause()

    with other_process(body) as other:
        if released:
            monkeypatch.setattr(waiting, "complain", lambda *words: (complain(*words), other.kill()))
        code, out, err = run("verify", path, "--timeout", 20 if released else 0.3)
    assert err.startswith(f"loaderx verify: {path}: waiting for ")
    assert (code, err.count("\n")) == ((0, 1) if released else (2, 2))
    assert ("  damaged    0\n" in out) == released


def test_a_store_cut_short(run: Run, path: Path) -> None:
    os.truncate(path / "0.zr", 4750)
    code, report = report_of(run, path, "--threads", 1)
    assert code == 1 and [damage["record"] for damage in report["damaged"]] == [47, 48, 49]


@pytest.fixture
def many(tmp_path: Path, path: Path) -> list[Path]:
    """Return paths of a good store, a damaged one, one without a chunk, what is no store, and another good one."""
    paths = [path, *(tmp_path / f"{name}.zr" for name in ("damaged", "cut", "none", "b"))]
    for other in paths[1:3] + paths[4:]:
        shutil.copytree(path, other)
    flip(paths[1], "0.zr", 750)
    (paths[2] / "0.zr").unlink()
    return paths


def test_several_stores(run: Run, many: list[Path]) -> None:
    """Each is reported in its turn, and what is wrong with one keeps no other from being looked at."""
    code, out, err = run("verify", many[0], many[4])
    assert (code, out, err) == (0, run("verify", many[0]).out + run("verify", many[4]).out, "")
    good, damaged, cut, none, last = (run("verify", path) for path in many)
    assert [outcome.code for outcome in (good, damaged, cut, none, last)] == [0, 1, 1, 2, 0]
    assert run("verify", *many) == (2, good.out + damaged.out + last.out, cut.err + none.err)
    assert none.err.startswith(f"loaderx verify: {many[3]}: ") and none.err.count("\n") == 1


@pytest.mark.parametrize(
    ("chosen", "code"), [([0, 4], 0), ([0, 1, 4], 1), ([2, 0], 1), ([3, 0], 2), ([3, 1], 2), ([1, 3, 0], 2)]
)
def test_the_exit_code_of_several(chosen: list[int], code: int, run: Run, many: list[Path]) -> None:
    """That not every one could be looked at says more than that some are damaged."""
    for options in ([], ["--json"]):
        assert run("verify", *(many[number] for number in chosen), *options).code == code


def test_several_as_json(run: Run, many: list[Path]) -> None:
    """An object a line, as for one; what is no store has none, and one that does not open what is wrong with it."""
    code, out, err = run("verify", *many, "--json")
    assert (code, err.count("\n")) == (2, 2)
    good, damaged, cut, last = (json.loads(line) for line in out.splitlines())
    for facts, path in ((good, many[0]), (damaged, many[1]), (last, many[4])):
        assert facts == {**loaderx.verify(path).as_dict(), "error": None}
    assert cut["path"] == str(many[2]) and cut["ok"] is False and "0.zr is missing" in cut["error"]


def test_several_and_a_folder_of_stores(run: Run, tmp_path: Path, path: Path) -> None:
    write_dataset(tmp_path / "set/c.zr", np.zeros((3, 2)))
    code, out, err = run("verify", tmp_path / "set", path)
    assert (code, out) == (2, run("verify", path).out)
    assert err.endswith("; it holds the stores c.zr\n") and err.count("\n") == 1


@pytest.mark.root
def test_several_and_a_folder_that_must_not_be_listed(run: Run, tmp_path: Path, path: Path) -> None:
    """Whatever refuses one path, the others are looked at."""
    closed = tmp_path / "closed"
    closed.mkdir()
    for folder in (tmp_path, *tmp_path.parents):
        if folder != Path("/") and folder.stat().st_uid == os.getuid() and not folder.stat().st_mode & 0o001:
            folder.chmod(0o755)
    closed.chmod(0o311)
    code, out, err = in_child(lambda: tuple(run("verify", closed, path)), uid=NOBODY)
    assert (code, out) == (2, run("verify", path).out)
    assert str(closed) in err and err.count("\n") == 1


@pytest.mark.parametrize("name", ["0.zr", "meta.zr"])
def test_so_damaged_that_it_does_not_open(name: str, run: Run, path: Path) -> None:
    if name == "0.zr":
        (path / "0.zr").unlink()
    else:
        os.truncate(path / "meta.zr", 100)
    for options in ([], ["--json"]):
        code, out, err = run("verify", path, *options)
        assert code == 1
        if options:
            facts = json.loads(out)
            assert facts == {"path": str(path), "ok": False, "error": facts["error"]}
            assert err == f"loaderx verify: {facts['error']}\n"
        else:
            assert out == ""
        assert err.startswith(f"loaderx verify: {path}: ") and name in err and err.count("\n") == 1


def test_a_damaged_dictionary(run: Run, tmp_path: Path) -> None:
    rows = [f"user={i % 17};item={i * 7919 % 1000};country=NL;device=phone".encode() for i in range(1000)]
    with Zrecord(tmp_path / "a.zr", "zstd_dict", level=3) as z:
        z.train_dict(b"".join(rows), [len(row) for row in rows], 2000)
        z.append(b"".join(rows[:1]) * 5, 5, len(rows[0]))
    path = tmp_path / "a.zr"
    code, out, err = run("verify", path)
    assert (code, err) == (0, "") and out.endswith("  damaged     0\n  dictionary  good\n")
    content = (path / "dict.zr").read_bytes()
    for state in ("missing", "damaged"):
        if state == "missing":
            (path / "dict.zr").unlink()
        else:
            (path / "dict.zr").write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
        code, out, err = run("verify", path, "--quiet")
        assert (code, err) == (1, "") and "  damaged     0\n" in out
        words = "5 records cannot be read without it, and must not be deleted for that"
        assert out.endswith(f"\n  dictionary  {state}: restore dict.zr from a copy ({words})\n")
        code, facts = report_of(run, path)
        assert (code, facts["ok"], facts["damaged"]) == (1, False, [])
        assert (facts["dictionary"], facts["unreadable"], facts["checked"]) == (state, 5, 5)
    (path / "dict.zr").write_bytes(b"\x37\xa4\x30\xec" + bytes(99))
    with Zrecord(path) as z:
        z.delete(range(5))
    code, out, _ = run("verify", path)
    assert code == 1 and "  dictionary  damaged: restore dict.zr from a copy (no record needs it)\n" in out
    (path / "sums.zr").unlink()
    (path / "dict.zr").write_bytes(content)
    code, out, _ = run("verify", path)
    assert code == 0 and "  dictionary  no checksum of it is known\n" in out


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
        (["x", ""], "it is empty"),
        ([""], "it is empty"),
        (["x", "--threads", "many"], "many"),
        (["x", "--threads", "-1"], "threads"),
        (["x", "y", "--threads", "-1"], "threads"),
        (["x", "--timeout", "-1"], "'-1' is no span of time"),
        (["x", "--timeout", "soon"], "'soon' is no span of time"),
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


def test_interrupted(run: Run, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stopped(*_: object, **__: object) -> None:
        signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(verify, "verify", stopped)
    assert run("verify", path) == (130, "", "loaderx verify: interrupted\n")
    assert run("verify", path, path) == (130, "", "loaderx verify: interrupted\n")
