"""Options of the proofs, and the table of what they did: printed at the end, and written with ``--proof-report``."""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import Any

import pytest

from tests.proofs.report import Report, format_summary
from tests.proofs.scenarios import scenarios


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("proofs")
    group.addoption("--proof-report", metavar="FILE", default=None, help="write what the proofs did, as JSON")
    group.addoption(
        "--proof-seed", type=int, metavar="N", default=None, help="sample the power losses with this seed"
    )


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "scenario" in metafunc.fixturenames:
        cases = scenarios(metafunc.config.getoption("--size"))
        metafunc.parametrize("scenario", cases, ids=[case.name for case in cases])


_REPORT: pytest.StashKey[Report] = pytest.StashKey()


def pytest_configure(config: pytest.Config) -> None:
    config.stash[_REPORT] = Report()


@pytest.fixture(scope="session")
def proof_report(request: pytest.FixtureRequest) -> Report:
    """Return what collects the counts of the proofs."""
    return request.config.stash.setdefault(_REPORT, Report())


@pytest.fixture(scope="session")
def proof_seed(request: pytest.FixtureRequest, proof_report: Report) -> int:
    """Return the seed to sample power losses with: the one that was asked for, a new one in size "full", else 0."""
    seed = request.config.getoption("--proof-seed", default=None)
    if seed is None:
        seed = secrets.randbits(32) if request.config.getoption("--size") == "full" else 0
    proof_report.seed = int(seed)
    return int(seed)


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    report = config.stash.get(_REPORT, Report())
    for title, lines in format_summary(report):
        terminalreporter.section(title)
        for line in lines:
            terminalreporter.write_line(line)
    path = config.getoption("--proof-report", default=None)
    if path:
        Path(path).write_text(report.as_json(config.getoption("--size")), encoding="utf-8")
