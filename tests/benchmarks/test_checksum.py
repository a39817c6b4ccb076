"""The benchmark of checksums runs, and what it measures is what its targets ask for; no speed is asserted here."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import checksum, docs
from benchmarks.__main__ import main
from benchmarks.contenders import NotInstalledError
from benchmarks.results import read_result
from benchmarks.targets import TARGETS, evaluate
from benchmarks.turns import QUICK


@pytest.mark.needs_compiler
def test_quick_gives_every_target_a_number(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "checksum.json"
    assert main(["checksum", "--quick", "--json", str(file), "--dir", str(tmp_path)]) == 0
    result = read_result(file)
    targets = [target for target in TARGETS if target.benchmark == "checksum"]
    assert len(targets) == 4 and not result["missing"]
    assert all(evaluate(target, {"checksum": result}) is not None for target in targets)
    assert "verified gather, the baseline kernel" in capsys.readouterr().out
    assert str(tmp_path) not in docs.format_page({"checksum": result})


def test_without_a_compiler_gathers_are_measured_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(command: list[str]) -> str:
        raise NotInstalledError(f"no {command[0]}")

    monkeypatch.setattr(checksum, "run_tool", refuse)
    result = checksum.measure(QUICK, tmp_path)
    assert list(result["tables"]) == ["gather"]
    assert result["missing"] == {"in cache": "not measured (no cc); a C compiler"}
