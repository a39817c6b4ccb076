"""The benchmarks' own arithmetic, page and plumbing; no speed is asserted here."""

from __future__ import annotations

import copy
import doctest
from pathlib import Path

import numpy as np
import pytest
import zstandard

from benchmarks import cold, docs, loaders, pairing, registry, safety, small, store
from benchmarks.__main__ import main
from benchmarks.contenders import NotInstalledError
from benchmarks.data import make_records
from benchmarks.neighbour import ForeignLoad, busy_process
from benchmarks.process import ContenderProcess, WorkerError
from benchmarks.report import format_number, format_table
from benchmarks.results import Result, make_table, read_result, write_result
from benchmarks.targets import TARGETS, Target, evaluate

PAIR = Target("store", "ours over theirs", "gather", "ours", "theirs", "at least", 2.0)


def result_of(rows: dict[str, list[float]]) -> Result:
    """Return a result of the store's benchmark with one table."""
    table = make_table("Gather", "MiB/s", "ours", rows)
    return {
        "benchmark": "store",
        "settings": {"rounds": 3},
        "environment": {"cpu": "any"},
        "tables": {"gather": table},
        "missing": {},
    }


def test_the_examples_of_pairing_hold() -> None:
    assert doctest.testmod(pairing).failed == 0


def test_a_ratio_is_taken_within_a_round_before_the_median() -> None:
    # the medians alone give 30 / 10 = 3; the rounds give 1, 3 and 4
    summary = evaluate(PAIR, {"store": result_of({"ours": [10.0, 30.0, 80.0], "theirs": [10.0, 10.0, 20.0]})})
    assert summary is not None
    assert (summary.median, summary.minimum, summary.maximum, summary.count) == (3.0, 1.0, 4.0, 3)
    assert (summary.lower_quartile, summary.upper_quartile) == (2.0, 3.5)


def test_unequal_rounds_are_not_paired() -> None:
    with pytest.raises(ValueError, match="2 rounds against 1"):
        pairing.pair_ratios([1.0, 2.0], [1.0])
    with pytest.raises(ValueError, match="no values"):
        pairing.summarize([])


def test_rounds_measure_each_name_once_in_rotating_order() -> None:
    order: list[tuple[str, int]] = []

    def measure(name: str, index: int) -> float:
        order.append((name, index))
        return float(len(order))

    values = pairing.run_rounds(["a", "b", "c"], measure, 3)
    assert [name for name, _ in order] == ["a", "b", "c", "b", "c", "a", "c", "a", "b"]
    assert [index for _, index in order] == [0, 0, 0, 1, 1, 1, 2, 2, 2]
    assert values == {"a": [1.0, 6.0, 8.0], "b": [2.0, 4.0, 9.0], "c": [3.0, 5.0, 7.0]}


@pytest.mark.parametrize(
    ("sense", "value", "met"),
    [("at least", 2.0, True), ("at least", 1.99, False), ("at most", 2.0, True), ("at most", 2.01, False)],
)
def test_a_limit_itself_is_met(sense: str, value: float, met: bool) -> None:
    fields = {**PAIR.__dict__, "sense": sense}
    assert Target(**fields).is_met(value) is met


def test_every_target_names_rows_that_its_benchmark_measures() -> None:
    tables = {
        "gather_raw": store.GATHER_RAW,
        "gather_zstd": store.GATHER_ZSTD,
        "write_raw": store.WRITE_RAW,
        "write_zstd": store.WRITE_ZSTD,
        "busy_raw": store.BUSY_RAW,
    }
    every = registry.list_contenders(Path("none"))
    small_names = [kind.names for kind in small.KINDS.values()]
    loader_names = {contender.name for contender in loaders.list_loaders()}
    names = set().union(*tables.values(), store.BUSY_ZSTD, safety.GATHERS, *small_names, loader_names)
    assert names == set(every)
    for target in TARGETS:
        assert target.benchmark in docs.SECTIONS
        if target.benchmark == "store":
            assert {target.numerator, target.denominator} <= set(tables[target.table])
        if target.benchmark == "safety":
            assert {target.numerator, target.denominator} <= set(safety.GATHERS)
        if target.benchmark == "cold":
            cold_tables = {"random": cold.RANDOM, "sequential": cold.SEQUENTIAL, "warm": cold.WARM}
            assert {target.numerator, target.denominator} <= set(cold_tables[target.table])


@pytest.mark.parametrize(
    ("value", "text"), [(12345.6, "12,346"), (678.4, "678"), (9.123, "9.12"), (0.1234, "0.123")]
)
def test_numbers_are_short(value: float, text: str) -> None:
    assert format_number(value) == text


def test_a_table_is_best_first_and_has_a_row_for_what_is_not_installed() -> None:
    rows = {"theirs": [2.0, 2.0], "ours": [4.0, 8.0], "absent": []}
    assert format_table(make_table("Gather", "MiB/s", "ours", rows)).splitlines() == [
        "|        | MiB/s, median | least | greatest | ours over it |",
        "| ------ | ------------: | ----: | -------: | -----------: |",
        "| ours   |             6 |     4 |        8 |              |",
        "| theirs |             2 |     2 |        2 |            3 |",
        "| absent | not installed |       |          |              |",
    ]
    names = [
        line.split("|")[1].strip() for line in format_table(make_table("", "us", "ours", rows)).splitlines()
    ]
    assert names == ["", "------", "theirs", "ours", "absent"]


def test_the_check_fails_without_a_number_and_on_another_page(tmp_path: Path) -> None:
    result = result_of({"ours": [3.0], "theirs": [1.0]})
    page, path = docs.format_page({"store": result}), tmp_path / "benchmarks.md"
    assert docs.find_faults(page, path, [PAIR], {"store": result}) == [
        "benchmarks.md is missing: python -m benchmarks docs"
    ]
    path.write_text(page, encoding="utf-8")
    assert docs.find_faults(page, path, [PAIR], {"store": result}) == []

    without = copy.deepcopy(result)
    del without["tables"]["gather"]["rows"]["theirs"]
    (fault,) = docs.find_faults(page, path, [PAIR], {"store": without})
    assert fault == "no number for the target: ours over theirs (python -m benchmarks store)"
    (fault,) = docs.find_faults(page + "edited\n", path, [PAIR], {"store": result})
    assert fault == "benchmarks.md is not what the results give: python -m benchmarks docs"


def test_check_table_is_a_command_with_a_status(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file, page = tmp_path / "store.json", tmp_path / "page.md"
    write_result(file, result_of({"ours": [3.0], "theirs": [1.0]}))
    assert read_result(file)["tables"]["gather"]["rows"] == {"ours": [3.0], "theirs": [1.0]}
    monkeypatch.setattr(docs, "RESULTS_FOLDER", tmp_path)
    monkeypatch.setattr(docs, "TARGETS", (PAIR,))
    assert main(["docs", "--output", str(page)]) == 0
    assert main(["docs", "--output", str(page), "--check-table"]) == 0
    page.write_text("edited", encoding="utf-8")
    assert main(["docs", "--output", str(page), "--check-table"]) == 1
    assert "is not what the results give" in capsys.readouterr().out

    # short for the command, on the page that is committed: here there is none of these results
    assert main(["--check-table"]) == 1
    file.write_text('{"benchmark": "store"}', encoding="utf-8")
    assert main(["docs", "--output", str(page)]) == 2
    assert "it has no settings, environment, tables, missing" in capsys.readouterr().out


def test_the_data_are_the_same_for_the_same_seed_and_barely_compressible() -> None:
    records = make_records(20, (3, 64, 64), seed=7)
    assert records.shape == (20, 3, 64, 64)
    assert records.dtype == np.dtype(np.uint8)
    assert np.array_equal(records, make_records(20, (3, 64, 64), seed=7))
    assert not np.array_equal(records, make_records(20, (3, 64, 64), seed=8))
    frames = [zstandard.compress(record.tobytes(), 3) for record in records]
    assert 1.05 < records.nbytes / sum(map(len, frames)) < 1.12


def test_quick_runs_every_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "store.json"
    only = [
        "loaderx raw",
        "loaderx zstd",
        "loaderx raw, 1 thread",
        "npy memmap",
        "memcpy bound",
        "libzstd alone",
    ]
    arguments = ["store", "--quick", "--json", str(file), "--dir", str(tmp_path), "--tmpfs", str(tmp_path)]
    assert main([*arguments, *(word for name in only for word in ("--only", name))]) == 0
    result = read_result(file)
    measured = {name for table in result["tables"].values() for name in table["rows"]}
    assert measured | set(result["missing"]) == set(only)
    assert "npy memmap" in measured
    assert {"loaderx raw", "loaderx zstd"} <= measured
    assert len(result["tables"]["gather_raw"]["rows"]["npy memmap"]) == store.QUICK.num_rounds
    assert set(result["tables"]["busy_raw"]["more"]["loaderx raw"]) == {"p50", "p99"}
    text = capsys.readouterr().out
    assert "raw gather over npy memmap" in text
    assert str(tmp_path) not in docs.format_page({"store": result})


@pytest.mark.parametrize(
    ("words", "answer"),
    [
        *(
            ([command, "--rounds", rounds], "--rounds must be at least 7")
            for command in ("store", "checksum", "shuffle", "recycle", "small", "safety", "import")
            for rounds in ("3", "0")
        ),
        (["cold", "--rounds", "4"], "--rounds must be at least 5"),
        (["store", "--only", "nobody"], "unknown contender: nobody"),
    ],
)
def test_wrong_options_are_refused(
    words: list[str], answer: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = [] if words[0] == "import" else ["--dir", str(tmp_path)]
    assert main([*words, *folder]) == 2
    assert capsys.readouterr().out == f"{answer}\n"


def test_a_missing_peer_says_how_to_install_it(tmp_path: Path) -> None:
    bench = store.Bench(store.QUICK, tmp_path, tmp_path, tmp_path / "data.npy")
    bench.start(["loaderx 0.7.3 raw", "memcpy bound"], tmp_path / "bounds.so", tmp_path)
    try:
        assert not bench.contenders
        assert bench.missing["loaderx 0.7.3 raw"].startswith("not installed (")
        assert bench.missing["loaderx 0.7.3 raw"].endswith("python -m tests.peers DIR, then --peers DIR")
        assert bench.missing["memcpy bound"].startswith("not installed (bounds.c was not compiled)")
    finally:
        bench.stop()


def test_a_failing_contender_says_what_failed(tmp_path: Path) -> None:
    every = registry.list_contenders(tmp_path / "bounds.so")
    with pytest.raises(NotInstalledError, match=r"bounds\.c was not compiled"):
        ContenderProcess(every["memcpy bound"], tmp_path / "bounds.so", None)
    with ContenderProcess(every["npy memmap"], tmp_path / "bounds.so", None) as contender:
        assert contender.version == np.__version__
        with pytest.raises(WorkerError, match=r"npy memmap: open: FileNotFoundError"):
            contender.ask("open", path=str(tmp_path / "no"), data=str(tmp_path / "no.npy"), batch=8)


def test_foreign_load_sees_a_neighbour_unless_it_is_known() -> None:
    with busy_process() as neighbour:
        unknown, known = ForeignLoad([]), ForeignLoad([neighbour])
        total = sum(number * number for number in range(3_000_000))
        seen, unseen = unknown.measure(), known.measure()
    assert total > 0
    assert seen >= unseen


def test_cold_quick_runs_every_table_and_needs_root_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "cold.json"
    assert main(["cold", "--quick", "--json", str(file), "--dir", str(tmp_path)]) == 0
    tables = read_result(file)["tables"]
    assert set(tables) == {"random", "sequential", "warm"}
    for name, row in (("random", cold.PREFETCHED), ("sequential", cold.PREAD), ("warm", cold.OURS)):
        assert tables[name]["rows"][row]
    assert {"p5 ms", "p50 ms", "p95 ms"} == set(tables["random"]["more"][cold.OURS])

    monkeypatch.setattr(cold, "DROP_CACHES", tmp_path / "none" / "drop_caches")
    assert main(["cold", "--dir", str(tmp_path)]) == 2
    assert "only be measured by root" in capsys.readouterr().out
