"""Power loss after every operation: a right prefix, all that was synced, never a wrong byte."""

from __future__ import annotations

from pathlib import Path

from tests.proofs.power import EFFORTS, lose_power_everywhere
from tests.proofs.report import PowerRow, Report, add_row
from tests.proofs.scenarios import Scenario


def test_power_loss(
    scenario: Scenario, size: str, tmp_path: Path, proof_report: Report, proof_seed: int
) -> None:
    losses = lose_power_everywhere(scenario, tmp_path, EFFORTS[size], proof_seed)
    counts = (losses.operations, losses.crashes, losses.sampled, losses.different, len(losses.faults))
    add_row(proof_report.power, PowerRow(scenario.group or scenario.name, *counts))
    faults = "\n\n".join(losses.faults[:5])
    assert not losses.faults, f"{len(losses.faults)} disks are wrong; the first:\n{faults}"
