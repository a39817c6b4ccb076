"""A peer that is absent is said so, and with ``--require`` it is a failure: cases must not vanish in silence."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.peers import PEERS, find_peer

ROOT = Path(__file__).resolve().parent.parent.parent
ONE_CASE = "fixed-raw-they_write-read"


def run_without_peers(*options: str) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if name != "LOADERX_TEST_PEERS"}
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "tests/interop/test_matrix.py"]
    command += ["-k", ONE_CASE, *options]
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)


def test_absent_peer_deselects_and_says_so() -> None:
    run = run_without_peers()
    assert run.returncode == pytest.ExitCode.NO_TESTS_COLLECTED, run.stdout
    assert "deselected 48: needs_peer" in run.stdout
    assert "lacks" in run.stdout
    assert "peer" in run.stdout.split("lacks", 1)[1].splitlines()[0]


@pytest.mark.parametrize("require", ["all", "peer", "torch,peer"])
def test_required_peer_that_is_absent_fails(require: str) -> None:
    run = run_without_peers(f"--require={require}")
    assert run.returncode == pytest.ExitCode.TESTS_FAILED, run.stdout
    assert "python -m tests.peers DIR" in run.stdout


def test_unknown_requirement_is_a_usage_error() -> None:
    run = run_without_peers("--require=pear")
    assert run.returncode == pytest.ExitCode.USAGE_ERROR
    assert "pear" in run.stderr


def test_peer_is_found_only_when_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOADERX_TEST_PEERS", str(tmp_path))
    assert find_peer("loaderx-0.7.3") is None
    (tmp_path / "loaderx-0.7.3" / PEERS["loaderx-0.7.3"].module).mkdir(parents=True)
    assert find_peer("loaderx-0.7.3") == tmp_path / "loaderx-0.7.3"
