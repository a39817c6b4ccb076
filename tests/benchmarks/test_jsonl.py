"""The benchmark of JSONL runs and measures what its targets ask for; no speed is asserted here."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from benchmarks import docs, jsonl
from benchmarks.__main__ import main
from benchmarks.corpus import checksum_of, find_manual, make_lines, write_corpus, write_manual
from benchmarks.jsonl_worker import JsonlWorker
from benchmarks.readers import OwnReader, ParserAlone, list_readers
from benchmarks.results import read_result
from benchmarks.targets import TARGETS
from tests.peers import find_peer

WHEN = ("opened", "later")
TABLES = {
    "index": jsonl.INDEX,
    **jsonl.READING,
    "memory": [f"{name}, {when}" for name in jsonl.MEMORY for when in WHEN],
    "opening": jsonl.MEMORY,
    "packing": jsonl.PACKING,
    "text": jsonl.TEXT,
    "size": jsonl.SIZES,
    "cold": jsonl.COLD,
}


@pytest.fixture
def pages(tmp_path: Path) -> Path:
    """Return a folder with two pages of a manual, in the place where the package has them."""
    folder = tmp_path / "manual" / "5.36.0" / "pod"
    folder.mkdir(parents=True)
    sections = [f"=head1 SECTION {k}\n\nText of the section {k}, {'very ' * k}long.\n\n" for k in range(60)]
    (folder / "perlfunc.pod").write_text("=encoding utf8\n\n" + "".join(sections))
    (folder / "perl.pod").write_bytes(b"=head1 NAME\n\nperl \xff\n\n=head2 More\n\nNo end")
    return tmp_path / "manual"


def run_quick(tmp_path: Path, *more: str) -> dict[str, dict[str, list[float]]]:
    """Run the benchmark in its quick form, and return the rows of its tables."""
    file = tmp_path / "jsonl.json"
    assert main(["jsonl", "--quick", "--json", str(file), "--dir", str(tmp_path), *more]) == 0
    result = read_result(file)
    measured = {row for table in result["tables"].values() for row, values in table["rows"].items() if values}
    assert not measured & set(result["missing"])
    assert str(tmp_path) not in docs.format_page({"jsonl": result})
    return {name: table["rows"] for name, table in result["tables"].items()}


def test_quick_runs_every_table(tmp_path: Path, pages: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = run_quick(tmp_path, "--text", str(pages))
    assert {name: list(table) for name, table in rows.items()} == {
        name: list(table) for name, table in TABLES.items()
    }
    ours = {
        name: [row for row in table if row.startswith(("loaderx", "plain", "line store"))]
        for name, table in TABLES.items()
        if name != "packing"
    }
    assert [(name, row) for name in ours for row in ours[name] if not rows[name][row]] == []
    assert len(rows["raw"]["loaderx"]) == jsonl.QUICK.turns.num_rounds
    assert "256 lines, parsed" in capsys.readouterr().out


@pytest.mark.needs_tokenizers
@pytest.mark.needs_peer("data-forager")
def test_quick_measures_peer_and_tokenizer(tmp_path: Path, pages: Path) -> None:
    folder = find_peer("data-forager")
    assert folder is not None
    rows = run_quick(tmp_path, "--text", str(pages), "--peers", str(folder.parent))
    assert [(name, row) for name in rows for row, values in rows[name].items() if not values] == []


def test_without_a_text_its_rows_say_how_to_get_one(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    rows = run_quick(tmp_path, "--text", str(tmp_path / "empty"))
    assert not any(rows["text"].values()) and not any(rows["size"].values())
    missing = read_result(tmp_path / "jsonl.json")["missing"]
    assert "apt-get install perl-doc" in missing["line store, json"]


def test_every_target_names_rows_that_are_measured() -> None:
    targets = [target for target in TARGETS if target.benchmark == "jsonl"]
    assert len(targets) == 14
    for target in targets:
        assert {target.numerator, target.denominator} - {None} <= set(TABLES[target.table])


def test_every_row_has_a_contender() -> None:
    reading = {process for rows in jsonl.READING.values() for process, _ in rows.values()}
    texts = {process for process, _ in jsonl.TEXT.values()}
    assert {*jsonl.INDEX.values(), *reading, *texts, *jsonl.PACKING} == set(list_readers())


def test_lines_are_the_same_for_the_same_seed_and_say_again_what_they_are() -> None:
    lines = list(make_lines(200, seed=3))
    assert lines == list(make_lines(200, seed=3)) != list(make_lines(200, seed=4))
    for number, line in enumerate(lines):
        document = json.loads(line)
        assert document["id"] == number and len(document["text"]) >= 40
        assert checksum_of(document) == checksum_of(line.rstrip(b"\n"))
        assert line.endswith(b"\n") and line.count(b"\n") == 1
    text = b"".join(lines)
    assert "é".encode() in text and b"\\n" in text


def test_files_hold_the_lines_in_order(tmp_path: Path) -> None:
    sums = write_corpus(tmp_path, 41)
    files = sorted(tmp_path.iterdir())
    assert [file.read_bytes().count(b"\n") for file in files] == [10, 10, 10, 11]
    lines = b"".join(file.read_bytes() for file in files).splitlines()
    assert sums.tolist() == [checksum_of(line) for line in lines]


def test_sections_of_the_manual_are_lines(tmp_path: Path, pages: Path) -> None:
    found = find_manual(pages)
    assert [page.name for page in found] == ["perl.pod", "perlfunc.pod"]
    sums = write_manual(found, tmp_path / "manual.jsonl")
    lines = (tmp_path / "manual.jsonl").read_bytes().splitlines()
    assert sums.tolist() == [checksum_of(json.loads(line)) for line in lines]
    documents = [json.loads(line) for line in lines]
    assert [document["text"] for document in documents[:3]] == [
        "=head1 NAME\n\nperl \ufffd",
        "=head2 More\n\nNo end",
        "=encoding utf8",
    ]
    assert len(documents) == 63 and documents[-1]["page"] == "perlfunc"
    assert find_manual(tmp_path) and not find_manual(tmp_path / "none")


def test_a_reader_that_gives_other_lines_is_found_out(tmp_path: Path) -> None:
    corpus = tmp_path / "corpus"
    corpus.mkdir()
    sums = write_corpus(corpus, 50)
    np.save(tmp_path / "sums.npy", sums)
    for reader in (OwnReader("json"), ParserAlone("json")):
        worker = JsonlWorker(reader)
        worker.prepare()
        assert len(worker.index(str(corpus), 0)) == 1
        assert worker.open(str(corpus), str(tmp_path / "sums.npy"), 8) == 50
        worker.close()
    np.save(tmp_path / "sums.npy", sums[::-1])
    with pytest.raises(ValueError, match=r"other lines were read than were written \(raw\)"):
        worker.open(str(corpus), str(tmp_path / "sums.npy"), 8)
    np.save(tmp_path / "sums.npy", sums[1:])
    with pytest.raises(ValueError, match="50 lines, where 49 were written"):
        worker.open(str(corpus), str(tmp_path / "sums.npy"), 8)
    worker.close()


def test_cold_files_need_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from benchmarks import cold

    monkeypatch.setattr(cold, "DROP_CACHES", tmp_path / "none" / "drop_caches")
    bench = jsonl.JsonlBench(jsonl.QUICK.turns, tmp_path, tmp_path, tmp_path)
    bench.contenders = dict.fromkeys(jsonl.COLD.values())  # type: ignore[arg-type]  # nothing is asked of them
    table = jsonl.measure_cold(bench, jsonl.DEFAULT, {})
    assert set(table["rows"]) == set(jsonl.COLD) and not any(table["rows"].values())
    assert bench.missing == {table["title"]: "not measured (only root can drop the page cache)"}


def test_too_few_rounds_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["jsonl", "--rounds", "3"]) == 2
    assert capsys.readouterr().out == "--rounds must be at least 7\n"
