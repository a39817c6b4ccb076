"""The benchmark of recycled memory runs and measures what its targets ask for; no speed is asserted here."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import docs, recycle
from benchmarks.__main__ import main
from benchmarks.results import read_result
from benchmarks.targets import TARGETS, evaluate


def test_quick_gives_every_target_a_number(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "recycle.json"
    assert main(["recycle", "--quick", "--json", str(file), "--dir", str(tmp_path)]) == 0
    result = read_result(file)
    targets = [target for target in TARGETS if target.benchmark == "recycle"]
    assert len(targets) == 2 and not result["missing"]
    assert all(evaluate(target, {"recycle": result}) is not None for target in targets)
    assert list(result["tables"]["burst"]["rows"]) == list(recycle.STEPS)
    assert "memory after a burst" in capsys.readouterr().out
    assert str(tmp_path) not in docs.format_page({"recycle": result})
