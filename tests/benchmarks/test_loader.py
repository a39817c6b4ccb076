"""The benchmark of loaders runs and measures what its targets ask for; no speed is asserted here."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from benchmarks import docs, loader
from benchmarks.__main__ import main
from benchmarks.loaders import OwnLoader, list_loaders, spin
from benchmarks.neighbour import list_family
from benchmarks.results import read_result
from benchmarks.targets import TARGETS
from benchmarks.worker import Worker

TABLES = {
    "raw": loader.RAW,
    "zstd": loader.ZSTD,
    "ragged": loader.RAGGED,
    "large": loader.LARGE,
    "labels": (*loader.LABELS, loader.ADDED),
    "python": loader.PYTHON,
    "busy": loader.BUSY,
    "memory": ("later", "first"),
}


def test_quick_runs_every_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "loader.json"
    assert main(["loader", "--quick", "--json", str(file), "--dir", str(tmp_path)]) == 0
    result = read_result(file)
    assert {name: set(table["rows"]) for name, table in result["tables"].items()} == {
        name: set(rows) for name, rows in TABLES.items()
    }
    measured = {
        name for table in result["tables"].values() for name, values in table["rows"].items() if values
    }
    assert not measured & set(result["missing"])
    assert {name for name in measured if name.startswith("loaderx ") and name.split()[1][0].isalpha()} == {
        name
        for rows in TABLES.values()
        for name in rows
        if name.startswith("loaderx ") and name.split()[1][0].isalpha()
    }
    assert "Records stored as they are" in capsys.readouterr().out
    assert str(tmp_path) not in docs.format_page({"loader": result})


def test_every_target_names_rows_that_are_measured() -> None:
    targets = [target for target in TARGETS if target.benchmark == "loader"]
    assert len(targets) == 11
    for target in targets:
        assert {target.numerator, target.denominator} - {None} <= set(TABLES[target.table])


def test_every_row_has_a_contender() -> None:
    names = {contender.name for contender in list_loaders()}
    assert {name for rows in (*list(TABLES.values())[:-1],) for name in rows} - {loader.ADDED} == names


def test_a_loader_that_gives_other_bytes_is_found_out(tmp_path: Path) -> None:
    data = tmp_path / "data.npy"
    np.save(data, np.arange(100))
    worker = Worker("loaderx raw loader", OwnLoader("raw"))
    worker.prepare()
    worker.write(str(data), str(tmp_path / "stored"))
    assert worker.start(str(tmp_path / "stored"), str(data), 8) == 64
    worker.close()
    np.save(data, np.arange(100) + 1)
    with pytest.raises(ValueError, match="not written"):
        worker.start(str(tmp_path / "stored"), str(data), 50)
    worker.close()


def test_the_transform_gives_its_batch_back() -> None:
    batch = {"data": np.arange(3)}
    assert spin(batch) is batch


def test_a_family_is_a_process_with_its_descendants() -> None:
    child = "import subprocess, sys; q = subprocess.Popen([sys.executable, '-c', 'input()'], stdin=subprocess.PIPE)"
    parent = f"{child}; print(q.pid, flush=True); input(); q.communicate()"
    with subprocess.Popen(
        [sys.executable, "-c", parent], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        grandchild = int(process.stdout.readline())
        assert list_family(process.pid) == [process.pid, grandchild]
        process.communicate("\n")
