"""The benchmark of small calls runs and measures what its targets ask for; no speed is asserted here."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from benchmarks import docs, small
from benchmarks.__main__ import main
from benchmarks.data import make_sequences
from benchmarks.results import read_result
from benchmarks.targets import TARGETS


def test_quick_runs_every_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "small.json"
    assert main(["small", "--quick", "--json", str(file), "--dir", str(tmp_path)]) == 0
    result = read_result(file)
    assert list(result["tables"]) == [*small.KINDS, *(f"busy_{name}" for name in small.KINDS)]
    for name, kind in small.KINDS.items():
        for table in (result["tables"][name], result["tables"][f"busy_{name}"]):
            assert set(table["rows"]) == set(kind.names)
            assert len(table["rows"][kind.names[0]]) == small.QUICK.num_rounds
        assert set(result["tables"][f"busy_{name}"]["more"][kind.names[0]]) == {"p50", "p99"}
    # without its folder, only the version before is missing
    assert all("0.7.3" in name for name in result["missing"])
    assert "256 labels of 8 bytes" in capsys.readouterr().out
    assert str(tmp_path) not in docs.format_page({"small": result})


def test_every_target_names_rows_that_are_measured() -> None:
    targets = [target for target in TARGETS if target.benchmark == "small"]
    assert len(targets) == 6
    for target in targets:
        assert {target.numerator, target.denominator} <= set(small.KINDS[target.table].names)


def test_sequences_end_where_their_zeros_begin() -> None:
    sequences = make_sequences(200, 3, 9)
    lengths = np.count_nonzero(sequences, axis=1)
    assert sequences.shape == (200, 9)
    assert sequences.dtype == np.dtype(np.int32)
    assert (lengths.min(), lengths.max()) == (3, 9)
    assert all(sequence[:length].all() for sequence, length in zip(sequences, lengths, strict=True))
