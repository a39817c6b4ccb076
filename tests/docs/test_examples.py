"""The programs in docs/examples run, and print what their pages say."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parents[2] / "docs" / "examples"


@pytest.mark.needs_tokenizers
@pytest.mark.needs_kjv
def test_bigram_learns_from_real_text(tmp_path: Path) -> None:
    command = [sys.executable, "-W", "error", str(EXAMPLES / "bigram.py"), str(tmp_path / "work")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    (shown,) = re.findall(r"^```text\n(.*?)^```$", (EXAMPLES / "bigram.md").read_text("utf-8"), re.M | re.S)
    lines, expected = done.stdout.splitlines(), shown.splitlines()
    assert lines[0] == expected[0]
    numbers = re.compile(r"[\d,.]*\d")
    assert [numbers.sub("#", line) for line in lines] == [numbers.sub("#", line) for line in expected]
    # the program itself fails where the loss does not come down far enough
    loss, without, floor = map(float, re.findall(r"\d+\.\d+", lines[-1]))
    assert floor - 0.05 < loss < floor + 0.2 * (without - floor)
    steps = [float(line.rpartition(" ")[2]) for line in lines if line.startswith("step")]
    assert len(steps) == 6 and steps[-1] < steps[0] < 6.238
    assert sorted(path.name for path in (tmp_path / "work").iterdir()) == ["corpus", "tokens"]
