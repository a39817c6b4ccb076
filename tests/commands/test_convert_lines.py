"""``convert --lines``: text files into a store of lines."""

from __future__ import annotations

import bz2
import gzip
import json
import lzma
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from loaderx import Zrecord, write_dataset
from loaderx.commands import lines
from tests.commands.conftest import Run, listing
from tests.jsonl.test_writing_lines import codecs, corpus, save, stored
from tests.jsonl.texts import lines_of

Fails = Callable[..., str]


@pytest.fixture
def dest(tmp_path: Path) -> Path:
    return tmp_path / "corpus.zr"


def test_a_line_for_what_was_done(run: Run, tmp_path: Path, dest: Path) -> None:
    text = corpus(2000)
    code, out, err = run(
        "convert", save(tmp_path / "a.jsonl.gz", gzip.compress(text)), dest, "--lines", "--verify"
    )
    assert (code, err) == (0, "")
    assert stored(dest) == lines_of(text)
    assert out.startswith(f"{dest}: 2,000 records, ")
    assert ", dictionary " in out and out.endswith(" MiB/s, verified\n")
    assert listing(dest) == ["0.zr", "dict.zr", "lines.json", "meta.zr", "sums.zr"]


def test_json(run: Run, tmp_path: Path, dest: Path) -> None:
    text = b"\n" + corpus(2000)
    source = save(tmp_path / "a.jsonl.gz", gzip.compress(text))
    code, out, err = run("convert", source, dest, "--lines", "--json", "--verify")
    assert (code, err, out.count("\n")) == (0, "", 1)
    facts = json.loads(out)
    with Zrecord(dest, mode="r") as store:
        stats = store.stats()
    assert facts.pop("seconds") > 0
    assert facts.pop("mib_per_s") > 0
    assert facts.pop("ratio") == pytest.approx(len(text) / stats["live_bytes"])
    assert facts == {
        "path": str(dest),
        "files": 1,
        "source_bytes": source.stat().st_size,
        "blank_lines": 1,
        "kept": [],
        "codec": "zstd_dict",
        "choice": None,
        "records": 2000,
        "total_records": 2000,
        "bytes_in": len(text),
        "bytes_out": stats["live_bytes"],
        "dictionary_bytes": stats["dictionary_bytes"],
        "verified": True,
    }


def test_as_a_module_of_its_own(tmp_path: Path, dest: Path) -> None:
    for number in range(2):
        save(tmp_path / f"part{number}.jsonl.gz", gzip.compress(corpus(20, first=20 * number)))
    program = shlex.join([sys.executable, "-m", "loaderx.convert"])
    folder = shlex.quote(str(tmp_path))
    subprocess.run(
        f"{program} {folder}/*.jsonl.gz {folder}/corpus.zr --lines --quiet", shell=True, check=True
    )
    assert stored(dest) == lines_of(corpus(40))


def test_the_order_of_the_arguments_is_kept(run: Run, tmp_path: Path, dest: Path) -> None:
    parts = [save(tmp_path / f"part{number}.txt", b"%d\n" % number) for number in (10, 9, 1)]
    assert run("convert", *parts, dest, "--lines").code == 0
    assert stored(dest) == [b"10", b"9", b"1"]


def test_a_folder_in_natural_order(run: Run, tmp_path: Path, dest: Path) -> None:
    folder = tmp_path / "corpus"
    (folder / "within.jsonl").mkdir(parents=True)
    save(folder / "part10.jsonl", b"10\n")
    save(folder / "part9.jsonl.xz", lzma.compress(b"9\n"))
    save(folder / "part1.ndjson.bz2", bz2.compress(b"1\n"))
    save(folder / "README.txt", b"read me\n")
    save(folder / ".hidden.jsonl", b"hidden\n")
    code, _, err = run("convert", folder, dest, "--lines")
    assert code == 0
    assert err == f"loaderx convert: left out: {folder / 'README.txt'}, {folder / 'within.jsonl'}\n"
    assert stored(dest) == [b"1", b"9", b"10"]


def test_append_and_force(run: Run, fails: Fails, tmp_path: Path, dest: Path) -> None:
    source = save(tmp_path / "a.jsonl", corpus(2000))
    assert run("convert", source, dest, "--lines", "--append").code == 0
    assert "--append adds records to it, --force replaces it" in fails("convert", source, dest, "--lines")
    code, out, _ = run("convert", source, dest, "--lines", "--append", "--verify")
    assert code == 0 and "2,000 records added to 2,000" in out
    assert stored(dest) == lines_of(corpus(2000)) * 2
    assert run("convert", source, dest, "--lines", "--force", "--codec", "raw", "--verify").code == 0
    assert (stored(dest), codecs(dest)) == (lines_of(corpus(2000)), {"raw": 2000})
    numbers = tmp_path / "numbers.zr"
    write_dataset(numbers, np.arange(3))
    assert "no lines.json" in fails("convert", source, numbers, "--lines", "--append")
    np.save(tmp_path / "a.npy", np.arange(3))
    assert "the directory has no schema.json" in fails("convert", tmp_path / "a.npy", dest, "--append")


def test_a_long_line_names_the_option(run: Run, fails: Fails, tmp_path: Path, dest: Path) -> None:
    assert run("convert", save(tmp_path / "a.jsonl", corpus(3)), dest, "--lines").code == 0
    long = save(tmp_path / "long.txt", b"x" * (2 << 20))
    message = fails("convert", long, dest, "--lines", "--append")
    assert f"{long}, line 1: " in message and "(--append --upgrade)" in message
    assert run("convert", long, dest, "--lines", "--append", "--upgrade").code == 0
    assert stored(dest)[-1] == b"x" * (2 << 20)


def test_a_cut_archive(run: Run, fails: Fails, tmp_path: Path, dest: Path) -> None:
    cut = save(tmp_path / "cut.jsonl.gz", gzip.compress(corpus(3000))[:-3000])
    message = fails("convert", cut, dest, "--lines")
    assert f"{cut}: cut off: " in message and "(--keep-whole)" in message
    assert listing(tmp_path) == ["cut.jsonl.gz"]
    code, out, err = run("convert", cut, dest, "--lines", "--keep-whole", "--json", "--verify")
    kept = stored(dest)
    assert code == 0
    assert kept == lines_of(corpus(3000))[: len(kept)] and 0 < len(kept) < 3000
    assert err == f"loaderx convert: warning: {cut} is cut off: of it {len(kept):,} whole lines were kept\n"
    text_bytes = sum(len(line) + 1 for line in kept)
    assert json.loads(out)["kept"] == [
        {"path": str(cut), "problem": "cut off", "lines": len(kept), "text_bytes": text_bytes}
    ]


def test_what_verify_finds(run: Run, tmp_path: Path, dest: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = (
        save(tmp_path / "a.jsonl", corpus(30)),
        save(tmp_path / "b.jsonl", b"\n" + corpus(30, first=30)),
    )
    write = lines.write_lines

    def changed(line: int, new: bytes) -> None:
        def write_and_change(*arguments: object, **options: object) -> object:
            written = write(*arguments, **options)
            second.write_bytes(b"\n".join([*second.read_bytes().split(b"\n")[:line], new, b""]))
            return written

        monkeypatch.setattr(lines, "write_lines", write_and_change)

    changed(5, b"x")
    code, out, err = run("convert", first, second, dest, "--lines", "--verify")
    assert (code, out) == (1, "")
    assert err == f"loaderx convert: {dest}: line 34 is not the same as line 6 of {second}\n"


def test_a_shorter_source_is_found(
    run: Run, tmp_path: Path, dest: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = save(tmp_path / "a.jsonl", corpus(30))
    write = lines.write_lines

    def write_and_cut(*arguments: object, **options: object) -> object:
        written = write(*arguments, **options)
        source.write_bytes(corpus(29))
        return written

    monkeypatch.setattr(lines, "write_lines", write_and_cut)
    code, _, err = run("convert", source, dest, "--lines", "--verify")
    assert code == 1
    assert "30 lines were written, and the sources have 29 now" in err


def test_a_damaged_store_is_found(
    run: Run, tmp_path: Path, dest: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = save(tmp_path / "a.jsonl", corpus(3000))
    write = lines.write_lines

    def write_and_damage(*arguments: object, **options: object) -> object:
        written = write(*arguments, **options)
        with open(dest / "0.zr", "r+b") as file:
            file.write(bytes(4096))
        return written

    monkeypatch.setattr(lines, "write_lines", write_and_damage)
    code, _, err = run("convert", source, dest, "--lines", "--verify")
    assert code == 1
    assert "does not read back" in err


REFUSED = [
    (["--lines", "--ragged"], "--ragged goes with NumPy files"),
    (["--lines", "--only", "a"], "--only goes with NumPy files"),
    (["--lines", "--codec", "zstd_shuffle"], "--lines goes with --codec raw, zstd, zstd_dict"),
    (["--lines", "--codec", "auto"], "not with auto"),
    (["--lines", "--codec", "zstd", "--dict-size", "4KiB"], "--dict-size goes with --codec zstd_dict"),
    (["--lines", "--codec", "raw", "--level", "3"], "raw does not"),
    (["--lines", "--upgrade"], "--upgrade goes with --append"),
    (["--keep-whole"], "--keep-whole goes with --lines"),
    ([], "is not a .npy file; the lines of text files are converted with --lines"),
]


@pytest.mark.parametrize(("options", "words"), REFUSED, ids=[" ".join(options) for options, _ in REFUSED])
def test_what_is_refused(options: list[str], words: str, fails: Fails, tmp_path: Path, dest: Path) -> None:
    assert words in fails("convert", save(tmp_path / "a.jsonl", corpus(3)), dest, *options)
    assert not dest.exists()


def test_a_folder_without_text(fails: Fails, tmp_path: Path, dest: Path) -> None:
    (tmp_path / "empty").mkdir()
    assert "is a folder without .jsonl files" in fails("convert", tmp_path / "empty", dest, "--lines")
    assert "No such file" in fails("convert", tmp_path / "absent.jsonl", dest, "--lines")


def test_options_reach_the_writer(
    run: Run, tmp_path: Path, dest: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = []
    write = lines.write_lines

    def recording(files: object, path: Path, *arguments: object, **options: object) -> object:
        calls.append((arguments, {name: value for name, value in options.items() if name != "progress"}))
        return write(files, path, *arguments, **options)

    monkeypatch.setattr(lines, "write_lines", recording)
    source = save(tmp_path / "a.jsonl", corpus(3000))
    options = [
        "--codec",
        "zstd_dict",
        "--level",
        1,
        "--dict-size",
        "4KiB",
        "--chunk-bytes",
        "1MiB",
        "--threads",
        1,
    ]
    options.append("--keep-whole")
    assert run("convert", source, dest, "--lines", *options).code == 0
    rest = {"level": 1, "threads": 1, "overwrite": False, "upgrade": False, "keep_whole": True}
    assert calls == [(("zstd_dict", 1 << 20, 4096), rest)]
    with Zrecord(dest, mode="r") as store:
        assert 0 < store.stats()["dictionary_bytes"] <= 4096


def test_info_knows_lines(run: Run, tmp_path: Path, dest: Path) -> None:
    run("convert", save(tmp_path / "a.jsonl", corpus(2000)), dest, "--lines")
    facts = json.loads(run("info", dest, "--json").out)
    assert (facts["kind"], facts["codec"], facts["records"]) == ("lines", "zstd_dict", 2000)
    assert (facts["dtype"], facts["shape"]) == (None, None)
    assert "  kind           lines\n" in run("info", dest).out
    assert run("verify", dest).code == 0
