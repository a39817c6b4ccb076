"""README.md and the pages: their examples run, their links lead somewhere, and their bytes are a store."""

from __future__ import annotations

import doctest
import re
import shlex
import shutil
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from loaderx import Dataset, RaggedDataset, Zrecord, verify, write_dataset, write_ragged
from loaderx._core.checksum import checksum
from loaderx.store import files
from loaderx.store.format import CODECS
from loaderx.store.mark import boot_id
from tests.oracle import OracleStore

ROOT = Path(__file__).resolve().parents[2]
README = ROOT / "README.md"
PAGES = sorted((ROOT / "docs").glob("*.md"))
FORMAT = ROOT / "docs" / "format.md"
STORE = ROOT / "docs" / "store.md"
RECIPES = ROOT / "docs" / "recipes.md"
RELIABILITY = ROOT / "docs" / "reliability.md"
#: Pages whose examples need a package that may not be there: tests/frameworks runs them.
OF_FRAMEWORKS = {"torch.md", "jax.md"}

TINY = [b"abc" * 12, b"xyz", b""]


def code_blocks(page: Path, language: str) -> list[str]:
    """Return the fenced blocks of a language."""
    found = re.findall(rf"^```{language}\n(.*?)^```$", page.read_text("utf-8"), re.MULTILINE | re.DOTALL)
    assert found, f"{page.name} has no block of {language}"
    return found


def anchors(page: Path) -> set[str]:
    """Return the names of a page's headings, as links give them."""
    headings = re.findall(r"^#+ (.+)$", page.read_text("utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_readme_example_runs(capsys: pytest.CaptureFixture[str]) -> None:
    (example,) = code_blocks(README, "python")
    assert len(example.splitlines()) <= 15
    for _ in range(2):  # also where it ran before
        exec(compile(example, "README.md", "exec"), {})
    (expected,) = code_blocks(README, "text")
    assert capsys.readouterr().out == expected * 2


def run_examples(page: Path) -> None:
    """Run the blocks of `pycon` of a page, as one doctest."""
    source = "\n".join(code_blocks(page, "pycon"))
    test = doctest.DocTestParser().get_doctest(source, {}, page.name, str(page), 0)
    report: list[str] = []
    result = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(test, out=report.append)
    assert result.attempted > 0 and result.failed == 0, "".join(report)


@pytest.mark.parametrize(
    "page",
    [page for page in PAGES if "```pycon" in page.read_text("utf-8") and page.name not in OF_FRAMEWORKS],
    ids=lambda page: page.name,
)
def test_examples_of_a_page_run(page: Path) -> None:
    run_examples(page)


@pytest.mark.parametrize("page", [README, *PAGES], ids=lambda page: page.name)
def test_relative_links_lead_to_files(page: Path) -> None:
    text = re.sub(r"^```.*?^```$", "", page.read_text("utf-8"), flags=re.MULTILINE | re.DOTALL)
    for link in re.findall(r"\]\(([^)\s]+)\)", text):
        name, _, anchor = link.partition("#")
        target = page.parent / name if name else page
        assert "://" not in link and not name.startswith("/"), f"{page.name} points outside: {link}"
        assert target.exists(), f"{page.name}: {link} does not exist"
        if anchor:
            assert anchor in anchors(target), f"{page.name}: {link} has no such heading"


# ---- docs/store.md, docs/recipes.md ------------------------------------------------------------------------------


@pytest.mark.skipif(
    sys.platform != "linux" or not shutil.which("bash"), reason="the page's commands are GNU's"
)
def test_commands_of_the_page_pack_a_store_that_reads_and_grows() -> None:
    write_dataset("a.zr", np.arange(1000), progress=False)
    full = Path("a.zr/meta.zr").stat().st_size
    (commands,) = code_blocks(STORE, "bash")
    commands = commands.replace("python -m", f"{shlex.quote(sys.executable)} -m")
    subprocess.run(["bash", "-euc", commands], check=True, stdout=subprocess.DEVNULL)
    assert Path("upload.zr/meta.zr").stat().st_size == 16 + 16 * 1000
    np.testing.assert_array_equal(Dataset("upload.zr")[:], np.arange(1000))
    write_dataset("upload.zr", np.arange(5), progress=False)
    assert Path("upload.zr/meta.zr").stat().st_size == full
    assert len(Dataset("upload.zr")) == 1005


def test_cut_of_the_page_keeps_the_first_rows(tmp_path: Path) -> None:
    source = "\n".join(code_blocks(RECIPES, "pycon"))
    examples = doctest.DocTestParser().get_examples(source)
    (definition,) = [example.source for example in examples if example.source.startswith("def cut")]
    names: dict[str, Any] = {"np": np}
    exec(compile(definition, "docs/recipes.md", "exec"), names)
    rng = np.random.default_rng(0)
    arrays = [rng.random((rows, 2)) for rows in (0, 5, 3, 9, 0, 1)]
    write_ragged("rows.zr", arrays, progress=False)
    with RaggedDataset("rows.zr") as rds:
        for max_len in (0, 1, 4, 100):
            for batch in ([], [4], [3, 0, 1, 5, 2]):
                values, row_splits = names["cut"](*rds[batch], max_len)
                expected = [arrays[index][:max_len] for index in batch]
                np.testing.assert_array_equal(values, np.concatenate([np.empty((0, 2)), *expected]))
                assert np.diff(row_splits).tolist() == [len(array) for array in expected]


# ---- docs/format.md ----------------------------------------------------------------------------------------------


@pytest.fixture
def reader() -> dict[str, Any]:
    """Return the functions of the reader that the page shows."""
    (source,) = [block for block in code_blocks(FORMAT, "python") if "def read_records" in block]
    names: dict[str, Any] = {}
    exec(compile(source, "docs/format.md", "exec"), names)
    return names


def dumps_of_the_page() -> list[bytes]:
    """Return the bytes that the page shows: of two stores `meta.zr` and `0.zr`, then `sums.zr` of the first."""
    dumps = [block for block in code_blocks(FORMAT, "text") if block.startswith("00000000: ")]
    return [
        bytes.fromhex("".join(line[10:50].replace(" ", "") for line in dump.splitlines())) for dump in dumps
    ]


def write_files(store: Path, *contents: bytes) -> Path:
    store.mkdir()
    for name, content in zip(("meta.zr", "0.zr", "sums.zr"), contents, strict=False):
        (store / name).write_bytes(content)
    return store


@pytest.fixture
def dumped() -> Callable[[], Path]:
    """Return a function that makes a store of the bytes that the page shows."""
    meta, chunk, _, _, sums = dumps_of_the_page()
    return lambda: write_files(Path("dumped.zr"), meta, chunk, sums)


def test_dumped_bytes_are_the_store_of_the_page(dumped: Callable[[], Path], reader: dict[str, Any]) -> None:
    store = dumped()
    assert list(reader["read_records"](store)) == TINY
    with Zrecord(store, mode="r") as z:
        data, splits = z.gather_packed([0, 1, 2])
        assert data.tobytes() == b"".join(TINY)
        assert splits.tolist() == [0, 36, 39, 39]
    report = verify(store)
    assert report.ok and report.checked == 3


def test_page_makes_the_dumped_bytes(dumped: Callable[[], Path], reader: dict[str, Any]) -> None:
    (source,) = [block for block in code_blocks(FORMAT, "python") if "tiny.zr" in block]
    exec(compile(source, "docs/format.md", "exec"), {})
    assert list(reader["read_records"]("tiny.zr")) == TINY
    with open("tiny.zr/meta.zr", "rb") as meta:
        head = meta.read(64)
    store, made = dumped(), Path("tiny.zr/0.zr").read_bytes()
    if len(made) == (store / "0.zr").stat().st_size:  # another release of zstd may find another frame
        assert head == (store / "meta.zr").read_bytes()
        assert made[-3:] == b"xyz"
    if made == (store / "0.zr").read_bytes():
        assert Path("tiny.zr/sums.zr").read_bytes() == (store / "sums.zr").read_bytes()


def test_the_shuffled_record_of_the_page(reader: dict[str, Any]) -> None:
    _, _, meta, chunk, _ = dumps_of_the_page()
    store = write_files(Path("dumped.zr"), meta, chunk)
    (source,) = [block for block in code_blocks(FORMAT, "python") if "shuffled.zr" in block]
    names: dict[str, Any] = {}
    exec(compile(source, "docs/format.md", "exec"), names)
    for path in (store, "shuffled.zr"):
        assert list(reader["read_records"](path)) == [names["numbers"]]
        assert OracleStore(path).records() == [names["numbers"]]
        assert OracleStore(path).codecs() == [3]
        with Zrecord(path, mode="r") as z:
            assert z.gather_packed([0])[0].tobytes() == names["numbers"]


def test_reader_of_the_page_reads_datasets(reader: dict[str, Any]) -> None:
    array = np.random.default_rng(0).integers(0, 3, (700, 5, 4), dtype=np.int16)
    for codec in CODECS:
        write_dataset(f"{codec}.zr", array, codec, progress=False)
        np.testing.assert_array_equal(list(reader["read_arrays"](f"{codec}.zr")), Dataset(f"{codec}.zr")[:])
    write_ragged("ragged.zr", [array[:n, 0] for n in (3, 0, 5)], progress=False)
    for row, expected in zip(reader["read_arrays"]("ragged.zr"), RaggedDataset("ragged.zr"), strict=True):
        np.testing.assert_array_equal(row, expected)


def test_reader_of_the_page_follows_delete_and_compact(reader: dict[str, Any]) -> None:
    with Zrecord("letters.zr", "raw") as z:
        z.append(b"ABCDEF", 6, 1)
        z.delete([1, 4])
        assert list(reader["read_records"]("letters.zr")) == [b"A", b"F", b"C", b"D"]
        z.compact()
        assert list(reader["read_records"]("letters.zr")) == [b"A", b"F", b"C", b"D"]


def test_reader_of_the_page_refuses_damage(dumped: Callable[[], Path], reader: dict[str, Any]) -> None:
    store = dumped()
    meta = bytearray((store / "meta.zr").read_bytes())
    meta[16 + 8] = 37  # the original length of record 0
    (store / "meta.zr").write_bytes(meta)
    with pytest.raises(ValueError, match="a damaged record"):
        list(reader["read_records"](store))


def layouts(title: str) -> list[struct.Struct]:
    """Return the layouts that the tables of a section show, after checking that their fields lie side by side."""
    (section,) = re.findall(
        rf"^### {re.escape(title)}\n(.*?)(?=^##)", FORMAT.read_text("utf-8"), re.MULTILINE | re.DOTALL
    )
    kinds = {"u16": "H", "u32": "I", "u64": "Q"}
    formats: list[str] = []
    end = 0
    for first, last, kind in re.findall(r"^\| (\d+)-(\d+) \|.*\| ([^|]+) \|$", section, re.MULTILINE):
        field = kinds.get(kind) or f"{kind.removesuffix(' bytes')}s"
        if first == "0":
            formats.append("<")
            end = 0
        assert int(first) == end and int(last) + 1 == end + struct.calcsize(f"<{field}"), (
            f"{title}: {first}-{last}"
        )
        end = int(last) + 1
        formats[-1] += field
    return [struct.Struct(layout) for layout in formats]


def header_of(store: Path) -> tuple[int, int, int]:
    """Return tail_chunk, tail_offset and length as they are in the file."""
    with (store / "meta.zr").open("rb") as meta:
        _, _, tail_chunk, tail_offset, length = struct.unpack("<4sHHII", meta.read(16))
    return tail_chunk, tail_offset, length


def journals_of(store: Path, change: Callable[[], None], monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """Return the journals of a change, as they were when they reached the disk."""
    seen: list[bytes] = []

    def observe(operation: str, *_: object) -> None:
        if operation == "fsync" and (store / "journal.zr").exists():
            seen.append((store / "journal.zr").read_bytes())

    with monkeypatch.context() as patch:
        patch.setattr(files, "observe", observe)
        change()
    return seen


def test_sums_and_mark_are_as_the_tables_of_the_page_say() -> None:
    head, slot = layouts("sums.zr")
    (mark,) = layouts("mark.zr")
    store = Path("s.zr")
    with Zrecord(store, "raw") as z:
        z.append_var(b"abcdefgh", [0, 3, 6], [3, 3, 2])
        z.sync()
        base = (store / "mark.zr").read_bytes()
        assert mark.unpack(base) == (b"ZMRK", 1, 0, 0, 3, 8, boot_id(), checksum(base[:-4]))
        z.append(b"ij", 1, 2)
        assert (store / "mark.zr").read_bytes() == base
        assert header_of(store) == (0, 10 + 1, 4), "the room"
        sums = (store / "sums.zr").read_bytes()
        assert head.unpack_from(sums) == (b"ZSUM", 1, 0, 0, 4, 10 + 1, 0, checksum(sums[:28]))
        words = [b"user %d asked for page %d" % (i, i * 7 % 50) for i in range(1000)]
        z.train_dict(b"".join(words), [len(word) for word in words], 1024)
    assert header_of(store) == (0, 10, 4)
    sums = (store / "sums.zr").read_bytes()
    tag = checksum((store / "dict.zr").read_bytes())
    assert head.unpack_from(sums) == (b"ZSUM", 1, 0, 0, 4, 10, tag, checksum(sums[:28]))
    assert head.size == 32 and len(sums) == 32 + 4 * slot.size
    oracle = OracleStore(store)
    for index, record in enumerate(oracle.records()):
        entry = oracle.table[index : index + 1].tobytes()
        assert slot.unpack_from(sums, 32 + 8 * index) == (checksum(entry), checksum(record))
    assert not (store / "mark.zr").exists() and (store / "lock.zr").read_bytes() == b""


def test_journals_are_as_the_tables_of_the_page_say(monkeypatch: pytest.MonkeyPatch) -> None:
    head, row = layouts("journal.zr")
    assert (head.size, row.size) == (76, 56)
    store = Path("s.zr")
    with Zrecord(store, "raw") as z:
        z.append_var(b"abcdefgh", [0, 3, 6], [3, 3, 2])
    before = OracleStore(store).table.copy()
    slots = (store / "sums.zr").read_bytes()[32:]
    with Zrecord(store, "raw") as z:
        journal, *_ = journals_of(store, lambda: z.delete([0]), monkeypatch)
    sums = checksum(journal[76:]), checksum(b""), checksum(journal[:72])
    assert head.unpack_from(journal) == (b"ZJNL", 1, 1, 0, 0, 8, 3, 0, 8, 2, *sums)
    old, new = before[0:1].tobytes(), before[2:3].tobytes()
    assert row.unpack_from(journal, 76) == (0, old, new, slots[:8], slots[16:24])
    assert len(journal) == 76 + 56

    before = OracleStore(store).table.copy()
    slots = (store / "sums.zr").read_bytes()[32:]
    with Zrecord(store, "raw") as z:
        journal, *_ = journals_of(store, z.compact, monkeypatch)
    rows = journal[76 : 76 + 2 * 56]
    sums = checksum(rows), checksum(b"defgh"), checksum(journal[:72])
    assert head.unpack_from(journal) == (b"ZJNL", 1, 2, 5, 0, 8, 2, 0, 8, 2, *sums)
    after = OracleStore(store).table
    slots_after = (store / "sums.zr").read_bytes()[32:]
    for at, index in enumerate((1, 0)):  # in the order in which they lie
        old, new = before[index : index + 1].tobytes(), after[index : index + 1].tobytes()
        of_record = slice(8 * index, 8 * index + 8)
        assert row.unpack_from(rows, 56 * at) == (index, old, new, slots[of_record], slots_after[of_record])
    assert journal[76 + 2 * 56 :] == b"defgh"


# ---- docs/reliability.md -----------------------------------------------------------------------------------------


def test_every_test_that_the_page_names_is_there() -> None:
    text = RELIABILITY.read_text("utf-8")
    named = re.findall(r"`([\w/]+\.py)::(\w+)`", text)
    assert len(named) > 80 and len(named) == text.count("::")
    sources = {path: (ROOT / "tests" / path).read_text("utf-8") for path, _ in named}
    missing = [f"{path}::{name}" for path, name in named if f"\ndef {name}(" not in sources[path]]
    assert not missing, f"the page names tests that are not there: {missing}"


def test_the_counts_of_the_page_have_no_faults() -> None:
    _, _, rest = RELIABILITY.read_text("utf-8").partition("<!-- proofs: begin -->")
    counts, _, _ = rest.partition("<!-- proofs: end -->")
    rows = re.findall(r"^\| (in all|.+?) \|.* (\d+) \|$", counts, re.MULTILINE)
    assert [name for name, _ in rows].count("in all") == 3
    assert all(faults == "0" for _, faults in rows)
