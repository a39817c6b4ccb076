"""Ctrl-C before a command's modules are imported."""

from __future__ import annotations

import subprocess
import sys

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
