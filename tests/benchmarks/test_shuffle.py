"""The benchmark of shuffling runs, and what it measures is what its targets ask for; no speed is asserted here."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from benchmarks import bounds, docs, shuffle
from benchmarks.__main__ import main
from benchmarks.contenders import NotInstalledError
from benchmarks.data import NUM_TOKENS, make_tokens, make_waves
from benchmarks.results import read_result
from benchmarks.targets import TARGETS, evaluate
from benchmarks.turns import QUICK


@pytest.mark.needs_bounds
def test_quick_gives_every_target_a_number(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "shuffle.json"
    assert main(["shuffle", "--quick", "--json", str(file), "--dir", str(tmp_path)]) == 0
    result = read_result(file)
    targets = [target for target in TARGETS if target.benchmark == "shuffle"]
    assert len(targets) == 7 and not result["missing"]
    for target in targets:
        value = evaluate(target, {"shuffle": result})
        assert value is not None
        if target.table.endswith("_stored"):  # how much smaller: no speed has a part in it
            assert target.is_met(value.median)
    assert "shuffled gather over libzstd" in capsys.readouterr().out
    assert str(tmp_path) not in docs.format_page({"shuffle": result})


def test_without_a_compiler_the_rest_is_measured_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(command: list[str]) -> str:
        raise NotInstalledError(f"no {command[0]}")

    monkeypatch.setattr(shuffle, "run_tool", refuse)
    monkeypatch.setattr(bounds, "run_tool", refuse)
    result = shuffle.measure(QUICK, tmp_path)
    assert list(result["tables"]) == [
        f"{kind}_{table}" for kind in ("waves", "tokens") for table in ("stored", "gather", "compress")
    ]
    assert set(result["tables"]["waves_gather"]["rows"]) == {"zstd_shuffle", "zstd"}
    assert set(result["missing"]) == {"bounds", "in cache"}


@pytest.mark.needs_compiler
def test_the_kernels_are_those_of_the_package(tmp_path: Path) -> None:
    from loaderx._core.shuffle import kernels

    assert tuple(shuffle.Memory(tmp_path / "shuffle.so", QUICK).kernels) == kernels()


def test_data_is_the_same_for_the_same_seed() -> None:
    waves, tokens = make_waves(3, 500), make_tokens(3, 5000)
    assert waves.dtype == np.float32 and tokens.dtype == np.int32
    assert np.array_equal(waves[:2], make_waves(2, 500)) and np.array_equal(tokens[:2], make_tokens(2, 5000))
    assert not np.array_equal(waves[0], waves[1])
    assert tokens.min() >= 0 and tokens.max() < NUM_TOKENS
    assert np.bincount(tokens.ravel()).argmax() == 0
