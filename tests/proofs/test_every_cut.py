"""Every operation, every cut: append, delete, compact, train_dict, sync, conversion, creation, recovery."""

from __future__ import annotations

from pathlib import Path

from tests.proofs.cutting import cut_everywhere
from tests.proofs.report import CutRow, Report, add_row
from tests.proofs.scenarios import Scenario


def test_every_cut(scenario: Scenario, tmp_path: Path, proof_report: Report) -> None:
    cuts = cut_everywhere(scenario, tmp_path)
    n_cuts = cuts.operations + cuts.torn
    name = scenario.group or scenario.name
    add_row(proof_report.cuts, CutRow(name, cuts.operations, cuts.operations, cuts.torn, len(cuts.faults)))
    faults = "\n\n".join(cuts.faults[:5])
    assert not cuts.faults, f"{len(cuts.faults)} of {n_cuts} cuts went wrong; the first:\n{faults}"
