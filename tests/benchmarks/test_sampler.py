"""The benchmark of the sampler runs and measures what its targets ask for; no speed is asserted here."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import docs, sampler
from benchmarks.__main__ import main
from benchmarks.results import read_result
from benchmarks.targets import TARGETS
from loaderx._core.draw import kernels


def test_quick_runs_every_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "sampler.json"
    assert main(["sampler", "--quick", "--json", str(file)]) == 0
    result = read_result(file)
    by_kernel = ["kernels_iid", "kernels_cyclic", "kernels_far"]
    assert list(result["tables"]) == [*sampler.KINDS, *by_kernel]
    for name, kind in sampler.KINDS.items():
        assert set(result["tables"][name]["rows"]) == set(kind.names) - set(sampler.HINTS)
        assert len(result["tables"][name]["rows"][sampler.OWN]) == sampler.QUICK.num_rounds
    for name in by_kernel:
        assert tuple(result["tables"][name]["rows"]) == kernels()
    assert set(result["missing"]) == set(sampler.HINTS)
    assert "IID, 256 of 1,000,000" in capsys.readouterr().out
    assert str(tmp_path) not in docs.format_page({"sampler": result})


def test_every_target_names_rows_that_are_measured() -> None:
    targets = [target for target in TARGETS if target.benchmark == "sampler"]
    assert len(targets) == 8
    for target in targets:
        assert {target.numerator, target.denominator} <= set(sampler.KINDS[target.table].names)


def test_wrong_options_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sampler", "--rounds", "3"]) == 2
    assert capsys.readouterr().out == "--rounds must be at least 7\n"
