"""Opening an index: nothing per sample, and a word about whatever is wrong with it."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from loaderx._core.checksum import hash64
from loaderx.errors import NotAnIndexError, OptionError, StaleIndexError
from loaderx.jsonl import Index, build_index, update_index
from tests.jsonl.samples import write


@pytest.fixture
def base(tmp_path: Path) -> Path:
    """Return a folder of two text files with an index."""
    base = write(tmp_path, [b"1\n2\n", b"3\n"])
    build_index(base)
    return base


def edit(base: Path, change: Callable[[dict[str, Any]], object]) -> None:
    path = base / "index" / "index.json"
    facts = json.loads(path.read_bytes())
    change(facts)
    path.write_text(json.dumps(facts))


def test_a_hundred_million_samples_take_no_memory(base: Path, rss_anon: Callable[[], int]) -> None:
    n = 100_000_000
    with open(base / "index" / "sample_locations.bin", "r+b") as file:
        file.truncate(24 * n)  # a hole: rows of zeros
        file.seek(24 * (n - 1))
        file.write(np.array([1, 0, 2], "<u8").tobytes())

    def grow(facts: dict[str, Any]) -> None:
        facts["count"] = n
        facts["sample_locations.bin"]["size"] = 24 * n

    edit(base, grow)
    before = rss_anon()
    index = Index.open(base)
    assert len(index) == n
    assert index.locations[-1].tolist() == [1, 0, 2]
    assert rss_anon() - before < 1 << 20


@pytest.mark.parametrize("missing", ["index", "file_location.txt", "sample_locations.bin"])
def test_no_index(missing: str, base: Path) -> None:
    if missing == "index":
        (base / "index").rename(base / "elsewhere")
    else:
        (base / "index" / missing).unlink()
    with pytest.raises(NotAnIndexError, match="build_index") as caught:
        Index.open(base)
    assert isinstance(caught.value, FileNotFoundError)
    assert caught.value.path == base / "index"
    assert missing == "index" or missing in str(caught.value)


def test_no_folder_at_all(base: Path) -> None:
    for path in (base / "nowhere", base / "nowhere" / "deep", base / "0.jsonl"):
        with pytest.raises(NotAnIndexError):
            Index.open(path)
    (base / "file").write_bytes(b"")
    with pytest.raises(NotAnIndexError, match="it is no folder"):
        Index.open(base, index_folder="file")


DAMAGE: dict[str, Callable[[dict[str, Any]], object]] = {
    "format": lambda facts: facts.update(format="other"),
    "version": lambda facts: facts.update(version="1"),
    "count": lambda facts: facts.update(count=2),
    "negative": lambda facts: facts.update(count=-3),
    "pattern": lambda facts: facts.update(pattern=7),
    "no_files": lambda facts: facts.pop("files"),
    "size": lambda facts: facts["files"][0].update(size=None),
    "too_large": lambda facts: facts["files"][0].update(size=2**63),
    "ends_behind": lambda facts: facts["files"][0].update(indexed_bytes=5),
    "mtime": lambda facts: facts["files"][0].update(mtime_ns="now"),
    "sample": lambda facts: facts["files"][0].update(unfinished_sample=-1),
    "no_pattern": lambda facts: facts.update(pattern=""),
    "another_sample": lambda facts: facts["files"][-1].update(unfinished_sample=0),
    "no_such_sample": lambda facts: facts["files"][-1].update(unfinished_sample=2**62),
    "another_start": lambda facts: facts["files"][-1].update(unfinished_sample=2, indexed_bytes=1),
    "no_fingerprint": lambda facts: facts["files"][0].pop("fingerprint"),
    "a_list": lambda facts: facts.update(files=[[]]),
}


@pytest.mark.parametrize("kind", DAMAGE)
def test_damaged_facts(kind: str, base: Path) -> None:
    edit(base, DAMAGE[kind])
    with pytest.raises(StaleIndexError, match="damaged") as caught:
        Index.open(base)
    assert caught.value.file == base / "index" / "index.json"


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b"null", b"\xff", b"[" * 100_000, b'{"format": NaN}'])
def test_facts_that_are_none(data: bytes, base: Path) -> None:
    (base / "index" / "index.json").write_bytes(data)
    with pytest.raises(StaleIndexError, match="damaged"):
        Index.open(base)


def test_a_name_with_a_nul(base: Path) -> None:
    (base / "index" / "file_location.txt").write_bytes(b"a\0b.jsonl\n")
    for is_ours in (True, False):
        with pytest.raises(StaleIndexError, match=r"file_location\.txt: it is damaged: .* NUL"):
            Index.open(base)
        if is_ours:
            (base / "index" / "index.json").unlink()


def test_going_on_within_a_line_is_refused(base: Path) -> None:
    """The sample of a line would be there twice, or another's overwritten."""
    edit(base, lambda facts: facts["files"][0].update(indexed_bytes=1))
    with open(base / "0.jsonl", "ab") as file:
        file.write(b"9\n")
    places = (base / "index" / "sample_locations.bin").read_bytes()
    with pytest.raises(
        StaleIndexError, match=r"index\.json: it is damaged: .*0\.jsonl begins at byte 1, where"
    ):
        update_index(base)
    assert (base / "index" / "sample_locations.bin").read_bytes() == places


def test_a_later_version(base: Path) -> None:
    edit(base, lambda facts: facts.update(version=2, count="many"))
    with pytest.raises(StaleIndexError, match="of version 2, and this release reads version 1"):
        Index.open(base)


def test_sizes_that_do_not_fit(base: Path) -> None:
    places, names = base / "index" / "sample_locations.bin", base / "index" / "file_location.txt"
    rows, text = places.read_bytes(), names.read_bytes()
    for data, words in (
        (rows[:-1], "no multiple of 24"),
        (rows[:-24], r"index\.json says 72"),
        (b"", "says 72"),
    ):
        places.write_bytes(data)
        with pytest.raises(StaleIndexError, match=words) as caught:
            Index.open(base)
        assert caught.value.file == places
    places.write_bytes(rows)
    names.write_bytes(text + b"2.jsonl\n")
    with pytest.raises(StaleIndexError, match=r"index\.json says") as caught:
        Index.open(base)
    edit(base, lambda facts: facts["file_location.txt"].update(size=len(text) + 8, xxh3_64=hash64(b"")))
    with pytest.raises(StaleIndexError, match="it lists 3 files") as caught:
        Index.open(base)
    assert caught.value.file == names


def test_options_outside_their_range(base: Path) -> None:
    for option in ("allow_outside", "check"):
        with pytest.raises(OptionError) as caught:
            Index.open(base, **{option: "no"})
        assert caught.value.option == option
    for call in (Index.open, build_index):
        with pytest.raises(OptionError, match="empty"):
            call("")


def test_indices_are_imported_only_by_who_asks() -> None:
    code = "import loaderx, sys; print([name for name in sys.modules if name.startswith('loaderx.jsonl')])"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout == "[]\n"
