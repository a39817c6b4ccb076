"""`loaderx.torch` and `loaderx.jax` with the real packages, each in a process of its own.

Beside tests that fork JAX warns, and so does Python where threads run; and most tests should not wait for the imports.
"""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from loaderx import DataLoader, Dataset, write_dataset, write_ragged
from loaderx.jsonl import build_index

ROOT = Path(__file__).resolve().parents[2]
LAUNCHERS = re.compile(r"(OMPI_COMM_WORLD|PMI|SLURM)_.*|RANK|WORLD_SIZE|LOCAL_RANK|MASTER_.*")
needs = {"torch": pytest.mark.needs_torch, "jax": pytest.mark.needs_jax}


def environment(**variables: str) -> dict[str, str]:
    """Return this process's environment, without a launcher's variables, and with one of four devices for JAX."""
    kept = {name: value for name, value in os.environ.items() if not LAUNCHERS.fullmatch(name)}
    kept |= {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": "--xla_force_host_platform_device_count=4"}
    return kept | {"GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "2"} | variables


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def run_side_by_side(*commands: list[str]) -> list[Any]:
    """Return what each of some programs printed last, as JSON; all run at once."""
    processes = [
        subprocess.Popen(
            [sys.executable, "-m", *command],
            cwd=ROOT,
            env=environment(),
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        for command in commands
    ]
    try:
        outputs = [process.communicate(timeout=400) for process in processes]
    finally:
        for process in processes:
            process.kill()
            process.wait()
    for process, (_, errors) in zip(processes, outputs, strict=True):
        assert process.returncode == 0, errors
    return [json.loads(output.splitlines()[-1]) for output, _ in outputs]


@pytest.mark.parametrize(
    ("name", "sources"),
    [
        pytest.param("torch", ["loaderx/torch"], marks=needs["torch"]),
        pytest.param("jax", ["loaderx/jax.py"], marks=needs["jax"]),
    ],
)
def test_adapter(name: str, sources: list[str]) -> None:
    """Run the tests of an adapter and the examples in its docstrings."""
    files = [f"tests/frameworks/{name}_adapter.py", *sources]
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--require={name}", *files]
    done = subprocess.run(command, cwd=ROOT, env=environment(), capture_output=True, text=True, timeout=580)
    assert done.returncode == 0, done.stdout + done.stderr
    print(done.stdout.splitlines()[-1])


@pytest.mark.parametrize(("name", "package"), [("torch", "PyTorch"), ("jax", "JAX")])
def test_a_package_that_is_missing_is_named(name: str, package: str) -> None:
    program = f"""
import sys
sys.modules[{name!r}] = None  # as if it were not installed
import loaderx
try:
    import loaderx.{name}
except loaderx.MissingDependencyError as error:
    print(error.package, error.extra, error, sep="|")
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, cwd=ROOT, check=True
    )
    message = f"loaderx.{name} needs {package}, which is not installed: pip install {name}"
    assert done.stdout.strip() == f"{name}|{name}|{message}"


@pytest.mark.needs_torch
@pytest.mark.parametrize("start_method", ["fork", "spawn"])
def test_torchs_workers_read_after_the_parent_has(start_method: str, tmp_path: Path) -> None:
    """GNU OpenMP hangs in a forked child whose parent has run a team: a reader must not."""
    rng = np.random.default_rng(0)
    write_dataset(tmp_path / "images.zr", rng.random((512, 4096), np.float32), "zstd")
    write_dataset(tmp_path / "labels.zr", rng.integers(0, 60000, 512, dtype=np.uint16))
    write_ragged(tmp_path / "tokens.zr", [np.arange(i % 9) for i in range(512)], dtype="int32")
    (seen,) = run_side_by_side(["tests.frameworks.torch_workers_program", str(tmp_path), start_method])
    kinds = ["collated", "ragged", "second pass"] + ["stacked", "images"] * (start_method == "fork")
    assert seen == dict.fromkeys(kinds, 512)


@pytest.mark.needs_torch
@pytest.mark.parametrize("start_method", ["fork", "spawn"])
def test_torchs_workers_read_lines_of_json(start_method: str, tmp_path: Path) -> None:
    text = "." * 1000  # enough of it for a team of threads
    lines = [json.dumps({"n": n, "text": text})[: 20 if n % 10 == 0 else None] for n in range(1000)]
    (tmp_path / "0.jsonl").write_text("\n".join(lines[:600]))
    (tmp_path / "1.jsonl").write_text("\n".join(lines[600:]))
    build_index(tmp_path)
    (seen,) = run_side_by_side(["tests.frameworks.torch_lines_program", str(tmp_path), start_method])
    kinds = ["lists", "placed"] + ["collated", "singles", "shuffled"] * (start_method == "fork")
    assert seen == dict.fromkeys(kinds, True)


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    """Return the path of a dataset of 1,000 rows, each of which tells its number."""
    write_dataset(
        tmp_path / "rows.zr", np.arange(1000, dtype=np.float32)[:, None] + np.zeros((1, 8), np.float32)
    )
    return tmp_path / "rows.zr"


def global_batches(path: Path, mode: str, n_steps: int) -> list[list[float]]:
    """Return the numbers of the rows of each global batch, as one process reads them."""
    with Dataset(path) as ds, DataLoader({"x": ds}, 0, 16, mode=mode) as loader:
        return [next(loader)["x"][:, 0].tolist() for _ in range(n_steps)]


@pytest.mark.needs_torch
def test_two_ranks_of_gloo_have_the_global_batch_between_them(rows: Path) -> None:
    program, port = "tests.frameworks.gloo_program", str(free_port())
    first, second = run_side_by_side(*([program, str(rows), str(rank), port] for rank in (0, 1)))
    assert (first["rank"], second["rank"]) == ([0, 2], [1, 2])
    for mode, batches in first["batches"].items():
        together = [left + right for left, right in zip(batches, second["batches"][mode], strict=True)]
        assert together == global_batches(rows, mode, 12), mode
        # A state that a rank saved is a single process's too.
        assert first["states"][mode] == second["states"][mode]
        with Dataset(rows) as ds, DataLoader({"x": ds}, 0, 16, mode=mode) as alone:
            alone.load_state_dict(first["states"][mode])
            assert [next(alone)["x"][:, 0].tolist() for _ in range(6)] == together[6:], mode
    assert list(first["batches"]) == ["sequential", "iid", "cyclic"]


@pytest.mark.needs_jax
def test_two_processes_of_jax_make_the_global_batch_one_array(rows: Path) -> None:
    program, port = "tests.frameworks.jax_processes_program", str(free_port())
    first, second = run_side_by_side(*([program, str(rows), str(rank), port] for rank in (0, 1)))
    assert (first["rank"], second["rank"]) == ([0, 2], [1, 2])
    expected = global_batches(rows, "cyclic", 5)
    assert [left + right for left, right in zip(first["parts"], second["parts"], strict=True)] == expected
    for seen in (first, second):
        assert seen["shapes"] == [[16, 8]] * 5
        assert seen["sums"] == [sum(batch) * 8 for batch in expected]
