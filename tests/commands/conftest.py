"""What the tests of the commands share: run a command in this process, or in one of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from loaderx.__main__ import main


class Outcome(NamedTuple):
    """What a command did: exit code, stdout, stderr."""

    code: int
    out: str
    err: str


Run = Callable[..., Outcome]
Save = Callable[..., Path]


@pytest.fixture(autouse=True)
def _signals_as_in_a_terminal() -> Iterator[None]:
    """Let stop signals stop: whoever runs the tests in the background has them ignored, and children inherit that."""
    usual = {
        signal.SIGINT: signal.default_int_handler,
        signal.SIGTERM: signal.SIG_DFL,
        signal.SIGHUP: signal.SIG_DFL,
    }
    before = {number: signal.signal(number, handler) for number, handler in usual.items()}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """Run ``python -m loaderx ARGUMENTS`` in this process."""

    def run_command(*arguments: object) -> Outcome:
        code = main([str(argument) for argument in arguments])
        return Outcome(code, *capsys.readouterr())

    return run_command


@pytest.fixture
def fails(run: Run) -> Callable[..., str]:
    """Run a command that must fail with exit code 2, one line on stderr and nothing on stdout; give the line."""

    def run_command(*arguments: object) -> str:
        outcome = run(*arguments)
        assert (outcome.code, outcome.out) == (2, ""), outcome
        assert outcome.err.count("\n") == 1 and outcome.err.endswith("\n"), outcome.err
        assert outcome.err.startswith(f"loaderx {arguments[0]}: "), outcome.err
        return outcome.err.rstrip("\n")

    return run_command


@pytest.fixture
def save(tmp_path: Path) -> Save:
    """Save an array as .npy under the test's folder and give its path."""

    def save_array(name: str, array: object) -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        np.save(path, np.asarray(array), allow_pickle=True)
        return path

    return save_array


@pytest.fixture
def start() -> Callable[..., subprocess.Popen[str]]:
    """Start ``python -m MODULE ARGUMENTS`` in a process of its own, with pipes for its output."""

    def start_process(module: str, *arguments: object, **options: object) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", module, *map(str, arguments)],
            **{
                "stdout": subprocess.PIPE,
                "stderr": subprocess.PIPE,
                "text": True,
                "env": dict(os.environ),
                **options,
            },
        )

    return start_process


def listing(folder: Path) -> list[str]:
    """Names of everything below a folder, hidden files too; not of the lock file that a store's first writer makes."""
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.name != "lock.zr")


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
