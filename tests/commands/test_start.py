"""Ctrl-C before a command's modules are imported."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

#: Has Ctrl-C arrive while a module is imported that only commands need.
SCRIPT = """\
import builtins, runpy, signal, sys
import loaderx
real, wanted = builtins.__import__, sys.argv.pop(1)
def import_and_stop(name, *details, **options):
    if name == wanted:
        signal.raise_signal(signal.SIGINT)
    return real(name, *details, **options)
builtins.__import__ = import_and_stop
module = sys.argv.pop(1)
runpy.run_module(module, run_name="__main__", alter_sys=True)
"""


@pytest.mark.parametrize("interrupted_in", ["argparse", "zipfile", "loaderx.commands.program"])
@pytest.mark.parametrize("module", ["loaderx", "loaderx.convert"])
def test_ctrl_c_while_modules_are_imported_is_one_line(module: str, interrupted_in: str) -> None:
    words = ["convert"] if module == "loaderx" else []
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, interrupted_in, module, *words, "no.npy", "no.zr"],
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "loaderx convert: interrupted\n")


@pytest.fixture
def interrupted_numpy(tmp_path: Path) -> Path:
    """Return a folder to start Python in, in which Ctrl-C arrives while NumPy is imported."""
    (tmp_path / "numpy.py").write_text("import signal\nsignal.raise_signal(signal.SIGINT)\n")
    (tmp_path / "other").mkdir()
    (tmp_path / "other/__init__.py").write_text("import loaderx\n")
    (tmp_path / "other/__main__.py").write_text("")
    return tmp_path


@pytest.mark.parametrize(
    "words", [["-m", "loaderx", "verify", "-m"], ["-mloaderx"], ["-m", "loaderx.convert", "x"]]
)
def test_ctrl_c_while_the_package_is_imported_is_one_line(words: list[str], interrupted_numpy: Path) -> None:
    done = subprocess.run([sys.executable, *words], capture_output=True, text=True, cwd=interrupted_numpy)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "loaderx: interrupted\n")


@pytest.mark.parametrize("words", [["-c", "import loaderx"], ["-m", "other"], ["-m", "other", "loaderx"]])
def test_a_program_that_imports_loaderx_has_its_own_ctrl_c(words: list[str], interrupted_numpy: Path) -> None:
    done = subprocess.run([sys.executable, *words], capture_output=True, text=True, cwd=interrupted_numpy)
    assert done.returncode not in (0, 130) and "KeyboardInterrupt" in done.stderr


def test_a_command_that_has_begun_raises_for_ctrl_c() -> None:
    """The handler of the time before is not left behind."""
    script = (
        "import signal; from loaderx import _starting; from loaderx.commands.start import start;"
        "_starting.guard_imports(); print(start('x', lambda: signal.raise_signal(signal.SIGINT)))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "130\n", "x: interrupted\n")


def test_the_entry_points_import_nothing_slow_outside_of_their_guard() -> None:
    script = (
        "import sys, loaderx; before = set(sys.modules); import loaderx.__main__, loaderx.convert;"
        "print(sorted(set(sys.modules) - before))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert (
        done.stdout
        == "['loaderx.__main__', 'loaderx.commands', 'loaderx.commands.start', 'loaderx.convert']\n"
    )
