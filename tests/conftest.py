"""Options, marks and fixtures of the tests.

``--require=all`` (or a list: ``--require=peer,torch``) turns the absence of what a mark needs into a failure;
without it such tests are deselected, and the header and the summary say which and why.
``--size=full`` runs the long forms of the tests; ``ci``, the default, the short ones.
"""

from __future__ import annotations

import functools
import importlib.util
import os
import re
import resource
import shlex
import shutil
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.peers import PEERS, find_peer
from tests.residency import can_drop

INTEROP_PEER = "loaderx-0.7.3"
MANY_FILES = 9000


@dataclass(frozen=True)
class Need:
    """What a mark stands for: `is_met` takes the mark's arguments; `cure` says how to meet it."""

    mark: str
    description: str
    is_met: Callable[..., bool]
    cure: str


def _has_module(name: str) -> Callable[[], bool]:
    return lambda: importlib.util.find_spec(name) is not None


def _has_peers(*names: str) -> bool:
    return all(find_peer(name) is not None for name in names or (INTEROP_PEER,))


def _may_open_many() -> bool:
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    return hard == resource.RLIM_INFINITY or hard >= MANY_FILES


def _has_compiler() -> bool:
    return shutil.which("cc") is not None


@functools.cache
def _can_compile_bounds() -> bool:
    if not _has_compiler() or shutil.which("pkg-config") is None:
        return False
    flags = subprocess.run(["pkg-config", "--cflags", "libzstd"], capture_output=True, text=True)
    command = ["cc", "-fopenmp", "-fsyntax-only", "-x", "c", *shlex.split(flags.stdout), "-"]
    source = "#include <omp.h>\n#include <zstd.h>\n"
    return (
        flags.returncode == 0
        and subprocess.run(command, input=source.encode(), capture_output=True).returncode == 0
    )


NEEDS = {
    need.mark: need
    for need in (
        Need("needs_torch", "torch", _has_module("torch"), "pip install torch"),
        Need("needs_jax", "jax", _has_module("jax"), "pip install jax"),
        Need("needs_pyarrow", "pyarrow", _has_module("pyarrow"), "pip install pyarrow"),
        Need("needs_ray", "Ray", _has_module("ray"), "pip install ray"),
        Need("needs_ml_dtypes", "ml_dtypes", _has_module("ml_dtypes"), "pip install ml_dtypes"),
        Need(
            "needs_peer",
            f"other packages, in a folder of their own ({', '.join(PEERS)})",
            _has_peers,
            "python -m tests.peers DIR, then set LOADERX_TEST_PEERS=DIR",
        ),
        Need("root", "the rights of root", lambda: os.geteuid() == 0, "run as root"),
        Need(
            "needs_cold_files",
            "temporary files that leave the memory when asked to",
            can_drop,
            "set TMPDIR to a folder on a disk",
        ),
        Need("needs_open_files", f"{MANY_FILES:,} open files", _may_open_many, f"ulimit -Hn {MANY_FILES}"),
        Need("needs_compiler", "a C compiler", _has_compiler, "install one, as cc"),
        Need(
            "needs_bounds",
            "what the benchmarks' bounds are compiled with",
            _can_compile_bounds,
            "install a C compiler with OpenMP, pkg-config and libzstd's header",
        ),
    )
}

OTHER_MARKS = {
    "wheel": "fit to run against an installed wheel, outside the source tree",
    "slow": "long: runs only with --size=full",
    "needs_network": "needs a package index; runs only with --require=network or --require=all",
    "interop_matrix": "one case of the matrix with the peer; counted in the summary",
}


def _short(mark: str) -> str:
    return mark.removeprefix("needs_")


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("loaderx")
    group.addoption(
        "--require",
        default="",
        metavar="NEEDS",
        help=f"fail, instead of deselecting, where one of these is absent: {', '.join(map(_short, NEEDS))}, or all",
    )
    group.addoption(
        "--size",
        choices=("ci", "full"),
        default="ci",
        help="how much the long tests do (default: %(default)s)",
    )


def _required(config: pytest.Config) -> set[str]:
    known = {_short(mark) for mark in NEEDS} | {"network"}
    asked = {word.strip() for word in config.getoption("--require").split(",") if word.strip()}
    if unknown := asked - known - {"all"}:
        raise pytest.UsageError(
            f"--require={','.join(sorted(unknown))}: known are {', '.join(sorted(known))}, all"
        )
    return known if "all" in asked else asked


def pytest_configure(config: pytest.Config) -> None:
    for need in NEEDS.values():
        config.addinivalue_line("markers", f"{need.mark}: needs {need.description}")
    for mark, description in OTHER_MARKS.items():
        config.addinivalue_line("markers", f"{mark}: {description}")
    _required(config)
    config.stash[_LEFT_OUT] = Counter()
    if importlib.util.find_spec("hypothesis") is not None:
        _load_hypothesis_profile(config.getoption("--size"))


def _load_hypothesis_profile(size: str) -> None:
    from hypothesis import HealthCheck, settings

    # Files are slow now and then, and a store is made inside the example: neither is a fault of the test.
    slow_is_fine = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.function_scoped_fixture]
    common: dict[str, Any] = {"deadline": None, "suppress_health_check": slow_is_fine, "database": None}
    settings.register_profile("ci", derandomize=True, max_examples=60, **common)
    settings.register_profile("full", print_blob=True, max_examples=2000, **common)
    settings.load_profile(size)


_LEFT_OUT: pytest.StashKey[Counter[str]] = pytest.StashKey()


def _unmet(item: pytest.Item) -> Need | None:
    for mark in item.iter_markers():
        need = NEEDS.get(mark.name)
        if need is not None and not need.is_met(*mark.args):
            return need
    return None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    required = _required(config)
    left_out = config.stash[_LEFT_OUT]
    kept, deselected = [], []
    for item in items:
        need = _unmet(item)
        reason = None
        if need is not None and _short(need.mark) not in required:
            reason = f"{need.mark} ({need.cure})"
        elif item.get_closest_marker("slow") and config.getoption("--size") != "full":
            reason = "slow (--size=full)"
        elif item.get_closest_marker("needs_network") and "network" not in required:
            reason = "needs_network (--require=network)"
        if reason is None:
            kept.append(item)
        else:
            deselected.append(item)
            left_out[reason] += 1
    if deselected:
        config.hook.pytest_deselected(items=deselected)
        items[:] = kept


def pytest_runtest_setup(item: pytest.Item) -> None:
    need = _unmet(item)
    if need is not None:
        pytest.fail(
            f"--require: this test needs {need.description}, which is absent: {need.cure}", pytrace=False
        )


def pytest_report_header(config: pytest.Config) -> list[str]:
    met = [_short(need.mark) for need in NEEDS.values() if need.is_met()]
    absent = [_short(need.mark) for need in NEEDS.values() if not need.is_met()]
    return [
        f"loaderx tests: size {config.getoption('--size')}; has {', '.join(met)}; lacks {', '.join(absent) or '-'}"
    ]


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    for reason, count in sorted(config.stash[_LEFT_OUT].items()):
        terminalreporter.write_line(f"deselected {count}: {reason}")
    cases: Counter[str] = Counter()
    for outcome in ("passed", "failed"):
        for report in terminalreporter.stats.get(outcome, ()):
            if report.when == "call" and "interop_matrix" in report.keywords:
                cases[outcome] += 1
    if cases:
        failed = f", {cases['failed']} failed" if cases["failed"] else ""
        terminalreporter.write_line(f"interop with loaderx 0.7.3: {cases.total()} cases{failed}")


def rss_anon_bytes(pid: int | str = "self") -> int:
    """Return the anonymous memory of a process: what it costs, without the pages of mapped files."""
    status = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    match = re.search(r"^RssAnon:\s+(\d+) kB$", status, re.MULTILINE)
    if match is None:
        raise RuntimeError(f"/proc/{pid}/status has no RssAnon")
    return int(match[1]) * 1024


@pytest.fixture
def rss_anon() -> Callable[[], int]:
    """Return the function that measures this process's anonymous memory, in bytes."""
    return rss_anon_bytes


@pytest.fixture
def store_path(tmp_path: Path) -> Path:
    """Return a path at which a test may create a store."""
    return tmp_path / "store.zr"


@pytest.fixture
def new_path(tmp_path_factory: pytest.TempPathFactory) -> Callable[[], Path]:
    """Return a function that gives a fresh path each call, for tests that make a store per example."""
    return lambda: tmp_path_factory.mktemp("store", numbered=True) / "store.zr"


@pytest.fixture(scope="session")
def size(request: pytest.FixtureRequest) -> str:
    """Return --size: 'ci' or 'full'."""
    value: str = request.config.getoption("--size")
    return value


@pytest.fixture(scope="session")
def peer() -> Iterator[Any]:
    """Return loaderx 0.7.3 in a subprocess, as a `tests.interop.driver.Peer073`."""
    from tests.interop.driver import Peer073

    folder = find_peer(INTEROP_PEER)
    assert folder is not None, "mark the test needs_peer"
    driver = Peer073(folder)
    yield driver
    driver.close()
