"""How commands run: exit codes, one line for an error, signals, a reader that went away, the list of commands."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from loaderx import __version__
from loaderx.__main__ import COMMANDS
from loaderx.commands import program
from loaderx.commands.program import CommandError, MismatchError, guard
from loaderx.convert import main as convert_main
from loaderx.errors import NotAStoreError, OptionError, StoreIOError
from tests.commands.conftest import Run


def fail_with(error: BaseException) -> Callable[[], int]:
    def action() -> int:
        raise error

    return action


@pytest.mark.parametrize(
    ("error", "code", "line"),
    [
        (CommandError("a.npy is cut\n  short"), 2, "a.npy is cut short"),
        (MismatchError("record 3 differs"), 1, "record 3 differs"),
        (NotAStoreError("x is not a store"), 2, "x is not a store"),
        (OptionError("level 99", option="level", value=99), 2, "level 99"),
        (StoreIOError("disk full", errno=errno.ENOSPC), 2, "disk full"),
        (FileNotFoundError(errno.ENOENT, "No such file", "a.npy"), 2, "a.npy: No such file"),
        (OSError(errno.EXDEV, "Cross-device", "a", None, "b"), 2, "a -> b: Cross-device"),
        (OSError("plain"), 2, "plain"),
        (OSError(errno.ENOSPC, "No space left"), 2, "No space left"),
        (MemoryError(), 2, "out of memory"),
        (MemoryError("1 TiB"), 2, "out of memory: 1 TiB"),
        (KeyboardInterrupt(), 130, "interrupted"),
        (program.Stopped(signal.SIGINT), 130, "interrupted"),
        (program.Stopped(signal.SIGTERM), 143, "terminated"),
        (program.Stopped(signal.SIGHUP), 129, "terminated"),
    ],
)
def test_error_is_one_line(
    error: BaseException, code: int, line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert guard("loaderx x", fail_with(error)) == code
    assert capsys.readouterr() == ("", f"loaderx x: {line}\n")


def test_fault_of_ours_shows_the_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    assert guard("loaderx x", fail_with(ZeroDivisionError("ours"))) == 70
    err = capsys.readouterr().err
    assert "Traceback" in err and "ZeroDivisionError: ours" in err
    assert err.endswith("loaderx x: this is a fault in loaderx; please report it with the lines above\n")


@pytest.mark.parametrize(
    ("sent", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)]
)
def test_stop_signals(sent: signal.Signals, code: int) -> None:
    before = signal.getsignal(sent)
    cleaned = []

    def action() -> int:
        try:
            signal.raise_signal(sent)
        finally:
            signal.raise_signal(sent)  # the second one may not stop the clean-up
            cleaned.append(True)
        return 0

    assert guard("loaderx x", action) == code
    assert cleaned == [True]
    assert signal.getsignal(sent) is before


@pytest.mark.parametrize(
    "what_it_becomes", [ImportError("no numpy"), SystemError("half"), CommandError("kept")]
)
def test_a_stop_that_an_import_turns_into_another_error(
    what_it_becomes: Exception, capsys: pytest.CaptureFixture[str]
) -> None:
    def action() -> int:
        try:
            signal.raise_signal(signal.SIGINT)
        except KeyboardInterrupt as stop:
            raise what_it_becomes from stop
        return 0

    own = isinstance(what_it_becomes, CommandError)  # it says what could not be cleaned up
    assert guard("loaderx x", action) == (2 if own else 130)
    assert capsys.readouterr().err == f"loaderx x: {'kept' if own else 'interrupted'}\n"


def test_second_signal_after_the_grace_stops_a_clean_up_that_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(program, "CLEANUP_GRACE_S", 0.0)
    reached = []

    def action() -> int:
        try:
            signal.raise_signal(signal.SIGINT)
        finally:
            signal.raise_signal(signal.SIGINT)
            reached.append(True)
        return 0

    assert guard("loaderx x", action) == 130
    assert reached == []


def test_ignored_signals_and_foreign_handlers_stay() -> None:
    seen = []
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, lambda number, _frame: seen.append(number))

        def action() -> int:
            signal.raise_signal(signal.SIGHUP)
            signal.raise_signal(signal.SIGTERM)
            return 0

        assert guard("loaderx x", action) == 0
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    assert seen == [signal.SIGTERM]


def test_runs_in_another_thread() -> None:
    codes: list[int] = []
    thread = threading.Thread(target=lambda: codes.append(guard("loaderx x", lambda: 0)))
    thread.start()
    thread.join()
    assert codes == [0]


def test_no_command_lists_the_commands(run: Run) -> None:
    code, out, err = run()
    assert (code, out) == (2, "")
    assert all(f"  {name} " in err for name in COMMANDS)


def test_help_lists_the_commands(run: Run) -> None:
    code, out, err = run("--help")
    assert (code, err) == (0, "")
    assert all(f"{name} " in out and summary in out for name, summary in COMMANDS.items())


def test_version(run: Run) -> None:
    assert run("--version") == (0, f"loaderx {__version__}\n", "")


@pytest.mark.parametrize(
    ("word", "hint"),
    [
        ("convrt", "there is no command 'convrt'; did you mean convert? (commands: "),
        ("--fast", "there is no command '--fast' (commands: "),
    ],
)
def test_unknown_command(run: Run, word: str, hint: str) -> None:
    code, out, err = run(word)
    assert (code, out) == (2, "")
    assert err.startswith("loaderx: ") and hint in err and err.count("\n") == 1


@pytest.mark.parametrize("name", COMMANDS)
def test_help_of_each_command(run: Run, name: str) -> None:
    code, out, err = run(name, "--help")
    assert (code, err) == (0, "")
    assert out.startswith(f"usage: python -m loaderx {name} ")
    assert "Exit code" in out or name == "info"


def test_alias_names_itself_in_its_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert convert_main(["--help"]) == 0
    assert capsys.readouterr().out.startswith("usage: python -m loaderx.convert ")


def test_alias_is_the_command(capsys: pytest.CaptureFixture[str], run: Run) -> None:
    assert convert_main(["one"]) == 2
    alias = capsys.readouterr().err
    assert alias.startswith("loaderx convert: ") and "DEST" in alias
    assert run("convert", "one").err == alias.replace("loaderx.convert", "loaderx convert")


def test_reader_that_went_away(start: Callable[..., subprocess.Popen[str]]) -> None:
    read_end, write_end = os.pipe()
    os.close(read_end)
    with start("loaderx", "--help", stdout=write_end) as process:
        os.close(write_end)
        assert process.communicate()[1] == ""
    assert process.returncode == 141


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="the system has no /dev/full")
def test_output_on_a_full_disk(start: Callable[..., subprocess.Popen[str]]) -> None:
    with open("/dev/full", "w") as full, start("loaderx", "convert", "--help", stdout=full) as process:
        err = process.communicate()[1]
    assert (process.returncode, err) == (2, "loaderx convert: standard output: No space left on device\n")


def test_names_move_no_cursor_and_end_no_line(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "a\n\x1b[2J\u2028\x85é.zr"
    escaped = "a\\n\\x1b[2J\\u2028\\x85é.zr"
    np.save(tmp_path / "x.npy", np.zeros((3, 5), "f4"))
    np.savez(tmp_path / "x.npz", **{"n\nl\x1b": np.zeros(3)})
    outcomes = [
        run("convert", tmp_path / "x.npy", path),
        run("convert", tmp_path / "x.npy", path, "--force", "--codec", "auto"),
        run("info", path),
        run("verify", path),
        run("compact", path),
        run("pack", path),
        run("unpack", path),
        run("convert", tmp_path / "x.npz", tmp_path / "folder"),
    ]
    for outcome in outcomes[:-1]:
        assert (outcome.code, outcome.err) == (0, "") and escaped in outcome.out
    assert outcomes[-1].out.startswith(f"{tmp_path}/folder/n\\nl\\x1b.zr: 3 records")
    outcomes.append(run("info", tmp_path / "none\x1b[2J"))
    assert outcomes[-1].code == 2 and "none\\x1b[2J: not a Zrecord store" in outcomes[-1].err
    for outcome in outcomes:
        for text in (outcome.out, outcome.err):
            assert all(line.isprintable() for line in text.split("\n"))


def test_a_reader_that_went_away_is_no_fault_of_a_path(
    start: Callable[..., subprocess.Popen[str]], tmp_path: Path
) -> None:
    (tmp_path / "a.jsonl").write_bytes(b"1\n2\n")
    for options in ((), ("--check",), ("--check", "--json")):
        read_end, write_end = os.pipe()
        os.close(read_end)
        with start("loaderx", "index", tmp_path, *options, stdout=write_end) as process:
            os.close(write_end)
            assert process.communicate()[1] == ""
        assert process.returncode == 141


@pytest.mark.parametrize("closed", ["1>&-", "2>&-", "1>&- 2>&-", "0<&- 1>&- 2>&-"])
def test_streams_that_the_caller_closed(closed: str, tmp_path: Path) -> None:
    """The work is done, and the exit code says so."""
    (tmp_path / "a.jsonl").write_bytes(b"1\n2\n")
    command = f'"{sys.executable}" -m loaderx index "{tmp_path}" {closed}'
    assert subprocess.run(command, shell=True, timeout=60).returncode == 0
    assert (tmp_path / "index" / "index.json").exists()
    command = f'"{sys.executable}" -m loaderx index "{tmp_path / "none"}" {closed}'
    assert subprocess.run(command, shell=True, timeout=60).returncode == 2
