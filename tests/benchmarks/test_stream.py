"""The benchmark of streams runs and measures what its targets ask for; no speed is asserted here."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from benchmarks import docs, stream
from benchmarks.__main__ import main
from benchmarks.corpus import write_corpus
from benchmarks.results import read_result
from benchmarks.stream_worker import StreamWorker
from benchmarks.streamers import OwnStream, list_streamers
from benchmarks.targets import TARGETS
from tests.peers import find_peer

TABLES: dict[str, Any] = {
    **stream.ROWS,
    "first": (stream.OWN,),
    "state": stream.STATES,
    "memory": stream.MEMORY,
}


def run_quick(tmp_path: Path, *more: str) -> dict[str, dict[str, list[float]]]:
    """Run the benchmark in its quick form, and return the rows of its tables."""
    file = tmp_path / "stream.json"
    assert main(["stream", "--quick", "--json", str(file), "--dir", str(tmp_path), *more]) == 0
    result = read_result(file)
    assert str(tmp_path) not in docs.format_page({"stream": result})
    return {name: table["rows"] for name, table in result["tables"].items()}


def test_quick_runs_every_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = run_quick(tmp_path)
    assert {name: set(table) for name, table in rows.items()} == {
        name: set(table) for name, table in TABLES.items()
    }
    peers = (stream.PEER, stream.TAR, stream.NODES)
    ours = [(name, row) for name in TABLES for row in TABLES[name] if row not in peers]
    assert [(name, row) for name, row in ours if not rows[name][row]] == []
    assert len(rows["plain"][stream.OWN]) == stream.QUICK.turns.num_rounds
    assert "Lines in batches of 32" in capsys.readouterr().out


@pytest.mark.needs_peer("datasets", "webdataset")
def test_quick_measures_peers(tmp_path: Path) -> None:
    folder = find_peer("datasets")
    assert folder is not None
    rows = run_quick(tmp_path, "--peers", str(folder.parent))
    # torchdata needs PyTorch, which is too large to be among the peers of the tests.
    empty = [(name, row) for name in rows for row, values in rows[name].items() if not values]
    assert empty == [("tar", stream.NODES)]


def test_every_target_names_rows_that_are_measured() -> None:
    targets = [target for target in TARGETS if target.benchmark == "stream"]
    assert len(targets) == 11
    for target in targets:
        assert {target.numerator, target.denominator} - {None} <= set(TABLES[target.table])


def test_every_row_has_a_contender() -> None:
    assert {name for names in stream.ROWS.values() for name in names} == set(list_streamers())


def test_a_contender_that_gives_other_items_is_found_out(tmp_path: Path) -> None:
    write_corpus(tmp_path, 20)
    stream.write_archive(tmp_path / "samples.tar", 5)
    worker = StreamWorker(OwnStream())
    worker.prepare()
    for way in stream.WAYS:
        worker.check(str(tmp_path), way, 20)
        with pytest.raises(ValueError, match=f"{way}: other items were given than were written"):
            worker.check(str(tmp_path), way, 22)
    worker.check(str(tmp_path / "samples.tar"), "tar", 5)
    with pytest.raises(ValueError, match="tar: other items"):
        worker.check(str(tmp_path / "samples.tar"), "tar", 4)


def test_too_few_rounds_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["stream", "--rounds", "3"]) == 2
    assert capsys.readouterr().out == "--rounds must be at least 7\n"
