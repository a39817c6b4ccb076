"""Stores of lines: what is written, in which order, how small, and what is refused or kept."""

from __future__ import annotations

import itertools
import json
import os
import pickle
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from loaderx import (
    ArchiveError,
    DictionaryError,
    NotAStoreError,
    OptionError,
    RecordTooLargeError,
    SchemaError,
    Zrecord,
    write_dataset,
)
from loaderx.jsonl import KeptSource, write_lines
from loaderx.jsonl.line_dictionary import sample_lines
from loaderx.jsonl.lines_file import read_lines_file
from loaderx.store import files
from tests.jsonl.texts import COMPRESSIONS, TEXTS, lines_of
from tests.oracle import OracleStore

WORDS = [
    "the",
    "store",
    "holds",
    "every",
    "line",
    "of",
    "it",
    "and",
    "some",
    "more",
    "of",
    "them",
    "by",
    "numbers",
]


def corpus(n: int, first: int = 0) -> bytes:
    """Make lines that resemble each other, as those of a corpus do."""
    lines = []
    for number in range(first, first + n):
        words = [WORDS[(number * step + step) % len(WORDS)] for step in range(1, 60)]
        lines.append(json.dumps({"id": number, "text": " ".join(words), "source": f"page {number % 7}"}))
    return "".join(line + "\n" for line in lines).encode()


def stored(path: Path) -> list[bytes]:
    with Zrecord(path, mode="r") as store:
        data, splits = store.gather_packed(range(len(store)))
    return [data[start:stop].tobytes() for start, stop in itertools.pairwise(splits)]


def codecs(path: Path) -> dict[str, int]:
    with Zrecord(path, mode="r") as store:
        counts: dict[str, int] = store.stats()["codecs"]
        return counts


def save(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    return path


@pytest.fixture
def dest(tmp_path: Path) -> Path:
    return tmp_path / "corpus.zr"


@pytest.fixture
def listing(tmp_path: Path) -> Callable[[], list[str]]:
    return lambda: sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*"))


@pytest.mark.parametrize("name", TEXTS)
def test_lines_as_they_come(name: str, tmp_path: Path, dest: Path) -> None:
    written = write_lines(save(tmp_path / "a.jsonl", TEXTS[name]), dest)
    assert stored(dest) == lines_of(TEXTS[name])
    assert (written.path, written.first, written.lines) == (dest, 0, len(lines_of(TEXTS[name])))
    assert written.kept == ()
    assert written.codec == "zstd"  # of so little no dictionary can be trained
    assert OracleStore(dest).length == written.lines


def test_a_corpus_gets_a_dictionary_at_the_quick_level(tmp_path: Path, dest: Path) -> None:
    text = corpus(3000)
    written = write_lines(save(tmp_path / "a.jsonl", text), dest)
    assert (written.codec, written.lines, written.text_bytes) == ("zstd_dict", 3000, len(text))
    assert stored(dest) == lines_of(text)
    assert codecs(dest) == {"zstd_dict": 3000}
    document = json.loads((dest / "lines.json").read_text())
    assert document == {"format": "loaderx-lines", "version": 1, "codec": "zstd_dict"}
    with Zrecord(dest, mode="r") as store:
        stats = store.stats()
    assert 1024 <= stats["dictionary_bytes"] <= len(text) // 100
    plain = tmp_path / "plain.zr"
    write_lines(tmp_path / "a.jsonl", plain, "zstd")
    with Zrecord(plain, mode="r") as store:
        assert stats["live_bytes"] + stats["dictionary_bytes"] < store.stats()["live_bytes"] * 0.7


@pytest.mark.parametrize(
    ("codec", "level", "used"), [(None, None, 3), (None, 7, 7), ("zstd", None, 3), ("zstd", 9, 9)]
)
def test_the_level(
    codec: Any, level: int | None, used: int, tmp_path: Path, dest: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    levels = []

    def compressor(self: Zrecord, session: Any, name: Any) -> Any:
        found = _compressor(self, session, name)
        levels.append(found[1])
        return found

    _compressor = Zrecord._compressor
    monkeypatch.setattr(Zrecord, "_compressor", compressor)
    write_lines(save(tmp_path / "a.jsonl", corpus(2000)), dest, codec, level=level)
    write_lines(tmp_path / "a.jsonl", dest, level=level)
    assert levels == [used, used]


def test_several_files_in_their_order(tmp_path: Path, dest: Path) -> None:
    parts = [corpus(50, first=100 * number)[: -1 if number == 2 else None] for number in range(5)]
    names = ["b.jsonl", "a.jsonl.gz", "c.txt.bz2", "part10.jsonl.xz", "part2.jsonl.zst"]
    paths = []
    for name, part in zip(names, parts, strict=True):
        compress = COMPRESSIONS.get(name.rsplit(".", 1)[1], bytes)
        paths.append(save(tmp_path / name, compress(part)))
    written = write_lines(paths, dest, chunk_bytes=5000)
    assert stored(dest) == [line for part in parts for line in lines_of(part)]
    assert written.text_bytes == sum(map(len, parts))
    assert written.blank_lines == 0


@pytest.mark.parametrize("chunk_bytes", [1, 1000, 1 << 20])
def test_pieces_of_any_size(
    chunk_bytes: int, tmp_path: Path, dest: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("loaderx.jsonl.reading._PIECE_BYTES", 777)
    text = corpus(200) + b"\n \n" + corpus(3)
    written = write_lines(save(tmp_path / "a.jsonl", text), dest, chunk_bytes=chunk_bytes)
    assert stored(dest) == lines_of(text)
    assert written.blank_lines == 2


def test_a_line_of_many_megabytes(tmp_path: Path, dest: Path) -> None:
    long = b'{"text": "' + b"0123456789abcdef" * (20 << 16) + b'"}'
    text = b'{"a": 1}\n' + long + b'\n{"a": 2}\n'
    write_lines(save(tmp_path / "a.jsonl.gz", COMPRESSIONS["gz"](text)), dest)
    assert stored(dest) == [b'{"a": 1}', long, b'{"a": 2}']
    with Zrecord(dest, mode="r") as store:
        assert store.stats()["format_version"] == 4  # longer than version 3 takes


def test_appending(tmp_path: Path, dest: Path) -> None:
    first, second = corpus(1500), corpus(700, first=5000)
    save(tmp_path / "a.jsonl", first)
    save(tmp_path / "b.jsonl", second)
    write_lines(tmp_path / "a.jsonl", dest)
    written = write_lines(tmp_path / "b.jsonl", dest)
    assert (written.first, written.lines, written.codec) == (1500, 700, "zstd_dict")
    assert stored(dest) == lines_of(first) + lines_of(second)
    assert codecs(dest) == {"zstd_dict": 2200}
    write_lines(tmp_path / "b.jsonl", dest, "raw")
    assert codecs(dest) == {"zstd_dict": 2200, "raw": 700}
    assert read_lines_file(dest) == "zstd_dict"
    replaced = write_lines(tmp_path / "b.jsonl", dest, "raw", overwrite=True)
    assert (replaced.first, replaced.codec) == (0, "raw")
    assert stored(dest) == lines_of(second)
    with pytest.raises(OptionError, match="level is 3, and codec 'raw'"):
        write_lines(tmp_path / "b.jsonl", dest, level=3)
    with pytest.raises(DictionaryError, match="needs a dictionary"):
        write_lines(tmp_path / "b.jsonl", dest, "zstd_dict")
    assert stored(dest) == lines_of(second)


def test_other_stores_take_no_lines(tmp_path: Path, dest: Path) -> None:
    source = save(tmp_path / "a.jsonl", corpus(3))
    write_dataset(dest, [1, 2, 3])
    with pytest.raises(NotAStoreError, match=r"no lines\.json"):
        write_lines(source, dest)
    with pytest.raises(SchemaError, match=r"meta\.zr but no schema\.json"):
        write_lines(source, tmp_path / "lines.zr")
        write_dataset(tmp_path / "lines.zr", [1, 2, 3])
    with pytest.raises(NotAStoreError, match="not a directory"):
        write_lines(source, source)
    assert source.read_bytes() == corpus(3)
    write_lines(source, dest, overwrite=True)
    assert stored(dest) == lines_of(corpus(3))


@pytest.mark.parametrize("overwrite", [False, True])
def test_a_folder_with_other_files_is_refused(tmp_path: Path, dest: Path, overwrite: bool) -> None:
    """A corpus with a store in it would be read as that store from then on."""
    dest.mkdir()
    source = save(dest / "a.jsonl", corpus(3))
    with pytest.raises(NotAStoreError, match=r"corpus\.zr.*(a\.jsonl|not a store).*"):
        write_lines(source, dest, overwrite=overwrite)
    assert os.listdir(dest) == ["a.jsonl"]


def test_into_an_empty_folder(tmp_path: Path, dest: Path) -> None:
    dest.mkdir()
    write_lines(save(tmp_path / "a.jsonl", corpus(3)), dest)
    assert stored(dest) == lines_of(corpus(3))
    assert read_lines_file(dest) == "zstd"


def test_killed_while_it_moves_into_a_folder(
    tmp_path: Path, dest: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever dies between two renames leaves no store that looks whole, and the next one begins anew."""
    source = save(tmp_path / "a.jsonl", corpus(3))

    class Killed(BaseException):
        pass

    for moved in range(4):
        folder = tmp_path / f"{moved}.zr"
        folder.mkdir()
        left = moved

        def observe(operation: str, *details: object, folder: Path = folder) -> None:
            nonlocal left
            if operation == "rename" and Path(str(details[1])).parent == folder:
                if not left:
                    raise Killed
                left -= 1

        with monkeypatch.context() as patched:
            patched.setattr(files, "observe", observe)
            patched.setattr(
                "loaderx.store.staging.os.path.ismount", lambda path, folder=folder: path == folder
            )
            patched.setattr("loaderx.store.staging.files.unlink", _die(Killed))
            patched.setattr("loaderx.store.staging.files.remove_tree", _die(Killed))
            with pytest.raises(Killed):
                write_lines(source, folder)
        assert not (folder / "lines.json").exists()
        write_lines(source, folder)
        assert stored(folder) == lines_of(corpus(3))
        assert sorted(os.listdir(folder)) == ["0.zr", "lines.json", "meta.zr", "sums.zr"]


def _die(kind: type[BaseException]) -> Callable[..., None]:
    def refuse(*_: object) -> None:
        raise kind

    return refuse


def test_nothing_is_there_before_all_is(tmp_path: Path, dest: Path) -> None:
    source = save(tmp_path / "a.jsonl", corpus(100))
    seen = []

    def progress(done: int, total: int) -> None:
        seen.append((done, total, dest.exists()))

    write_lines([source, source], dest, progress=progress)
    size = source.stat().st_size
    assert seen[-1][:2] == (2 * size, 2 * size)
    assert [done for done, _, _ in seen] == sorted(done for done, _, _ in seen)
    assert not any(there for _, _, there in seen)
    assert stored(dest) == lines_of(corpus(100)) * 2


def test_what_fails_leaves_nothing(tmp_path: Path, dest: Path, listing: Callable[[], list[str]]) -> None:
    good = save(tmp_path / "good.jsonl", corpus(2000))
    save(tmp_path / "cut.jsonl.gz", COMPRESSIONS["gz"](corpus(2000))[:-20])
    before = listing()

    def stop(done: int, total: int) -> None:
        raise ZeroDivisionError

    failures: list[tuple[type[Exception], Any, dict[str, Any]]] = [
        (ArchiveError, [good, tmp_path / "cut.jsonl.gz"], {}),
        (FileNotFoundError, [good, tmp_path / "absent.jsonl"], {}),
        (OptionError, [good, tmp_path], {}),
        (OptionError, [], {}),
        (OptionError, good, {"codec": "zstd_shuffle"}),
        (OptionError, good, {"codec": "raw", "level": 3}),
        (OptionError, good, {"dict_size": 0}),
        (OptionError, good, {"chunk_bytes": 0}),
        (OptionError, good, {"keep_whole": "yes"}),
        (OptionError, good, {"progress": 3}),
        (ZeroDivisionError, good, {"progress": stop}),
    ]
    for kind, sources, options in failures:
        with pytest.raises(kind):
            write_lines(sources, dest, **options)
        assert listing() == before
    with pytest.raises(DictionaryError, match="too little text"):
        write_lines(save(tmp_path / "short.txt", b"a\nb\n"), dest, "zstd_dict")
    assert not dest.exists()


def test_a_failed_append_leaves_the_store_as_it_was(tmp_path: Path, dest: Path) -> None:
    good = save(tmp_path / "good.jsonl", corpus(500))
    write_lines(good, dest)
    cut = save(tmp_path / "cut.jsonl.gz", COMPRESSIONS["gz"](corpus(5000))[:-20])
    with pytest.raises(ArchiveError):
        write_lines([good, cut], dest, chunk_bytes=1000)
    assert stored(dest) == lines_of(corpus(500))


def test_pipes_are_refused(tmp_path: Path, dest: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(OptionError, match="pipe: not a regular file"):
        write_lines(pipe, dest)


@pytest.mark.parametrize("suffix", COMPRESSIONS)
def test_a_cut_archive_says_how_much_is_whole(suffix: str, tmp_path: Path, dest: Path) -> None:
    text = corpus(4000)
    data = COMPRESSIONS[suffix](text[: len(text) // 2]) + COMPRESSIONS[suffix](text[len(text) // 2 :])
    path = save(tmp_path / f"a.jsonl.{suffix}", data[:-9])
    with pytest.raises(ArchiveError) as caught:
        write_lines(path, dest)
    error = pickle.loads(pickle.dumps(caught.value))
    assert (error.file, error.problem) == (path, "cut off")
    whole = text[: error.whole_bytes]
    assert len(whole) >= len(text) // 2
    assert error.whole_lines == whole.count(b"\n")
    assert f"({error.whole_lines:,} whole lines)" in str(error) and "keep_whole=True" in str(error)

    other = save(tmp_path / "b.jsonl", corpus(10, first=9000))
    written = write_lines([path, other], dest, keep_whole=True)
    kept = lines_of(whole[: whole.rfind(b"\n") + 1])
    assert stored(dest) == kept + lines_of(corpus(10, first=9000))
    assert written.lines == len(kept) + 10
    assert written.kept == (KeptSource(path, "cut off", len(kept), whole.rfind(b"\n") + 1),)


@pytest.mark.parametrize("suffix", COMPRESSIONS)
def test_of_a_damaged_archive_the_streams_before_are_kept(suffix: str, tmp_path: Path, dest: Path) -> None:
    text = corpus(3000)
    third = len(text) // 3
    streams = [COMPRESSIONS[suffix](text[at : at + third]) for at in range(0, len(text), third)]
    hurt = bytearray(streams[1])
    hurt[len(hurt) // 2] ^= 0x55
    path = save(tmp_path / f"a.jsonl.{suffix}", streams[0] + bytes(hurt) + b"".join(streams[2:]))
    with pytest.raises(ArchiveError, match="damaged") as caught:
        write_lines(path, dest)
    assert (caught.value.problem, caught.value.whole_bytes) == ("damaged", third)
    assert caught.value.whole_lines == text[:third].count(b"\n")
    written = write_lines(path, dest, keep_whole=True)
    kept = lines_of(text[: text.rfind(b"\n", 0, third) + 1])
    assert stored(dest) == kept
    assert [(source.problem, source.lines) for source in written.kept] == [("damaged", len(kept))]


def test_keeping_whole_what_is_whole_changes_nothing(tmp_path: Path, dest: Path) -> None:
    text = corpus(100)[:-1]  # a last line without its end is no cut
    paths = [save(tmp_path / f"a.{suffix}", compress(text)) for suffix, compress in COMPRESSIONS.items()]
    paths.append(save(tmp_path / "a.jsonl", text))
    written = write_lines(paths, dest, keep_whole=True)
    assert stored(dest) == lines_of(text) * 5
    assert written.kept == ()


def test_a_line_over_the_limit_is_named(tmp_path: Path, dest: Path) -> None:
    """A store of version 3 that is appended to takes a megabyte a record."""
    write_lines(save(tmp_path / "a.jsonl", corpus(10)), dest)
    fine = save(tmp_path / "fine.jsonl", corpus(5))
    long = save(tmp_path / "long.jsonl", b"\n" + corpus(2) + b"\n" + b"x" * ((1 << 20) + 1) + b"\n")
    with pytest.raises(RecordTooLargeError) as caught:
        write_lines([fine, long], dest)
    assert str(caught.value).startswith(f"{long}, line 5: ")
    assert "upgrade=True" in str(caught.value)
    assert stored(dest) == lines_of(corpus(10))
    assert write_lines([fine, long], dest, upgrade=True).lines == 8
    assert stored(dest)[-1] == b"x" * ((1 << 20) + 1)


def test_samples_come_from_all_over(tmp_path: Path) -> None:
    paths = [save(tmp_path / f"{number}.txt", b"%d\n" % number * 1000) for number in range(200)]
    samples, is_all = sample_lines(paths, 6400)
    assert not is_all
    assert len(set(samples)) == 64
    assert {int(sample) // 50 for sample in samples} == {0, 1, 2, 3}
    few, is_all = sample_lines(paths[:3], 1 << 20)
    assert (len(few), is_all) == (3000, True)


def test_a_plain_file_is_sampled_all_over(tmp_path: Path) -> None:
    text = b"".join(b"line %06d of all of them\n" % n for n in range(40_000))
    lines = text.splitlines()
    samples, is_all = sample_lines([save(tmp_path / "a.txt", text)], 200_000)
    assert not is_all
    assert 7000 < len(samples) < 8000
    numbers = [int(sample.removeprefix(b"line ")[:6]) for sample in samples]
    assert set(samples) < set(lines) and numbers == sorted(set(numbers))
    assert {number // 4000 for number in numbers} == set(range(10))
    first, _ = sample_lines([save(tmp_path / "a.txt.gz", COMPRESSIONS["gz"](text))], 200_000)
    assert first == lines[: len(first)] and len(first) > 7000


def test_long_lines_are_sampled_from_the_beginning(tmp_path: Path) -> None:
    """They may be longer than the stretches that are looked at."""
    text = b"\n".join([letter * 300_000 for letter in (b"x", b"y", b"z")]) + b"\n"
    samples, _ = sample_lines([save(tmp_path / "a.txt", text)], 40_000)
    assert samples == [letter * (16 << 10) for letter in (b"x", b"y", b"z")]


def test_what_a_short_file_leaves_goes_to_the_next(tmp_path: Path) -> None:
    short, long = save(tmp_path / "a.txt", b"aaaaaaaaaa\n"), save(tmp_path / "b.txt", b"bbbbbbbbbb\n" * 1000)
    samples, is_all = sample_lines([short, long], 1000)
    assert not is_all
    assert samples.count(b"a" * 10) == 1
    assert samples.count(b"b" * 10) == 90  # 990 bytes with their ends


def test_a_damaged_file_ends_the_sample_and_not_the_error(tmp_path: Path, dest: Path) -> None:
    cut = save(tmp_path / "cut.jsonl.gz", COMPRESSIONS["gz"](corpus(3000))[:-5000])
    samples, is_all = sample_lines([cut], 1 << 24)
    assert samples and not is_all
    assert write_lines(cut, dest, keep_whole=True).codec == "zstd_dict"


WRONG = {
    "not JSON": b"{",
    "a list": b"[]",
    "another format": b'{"format": "loaderx-zrecord", "version": 1, "codec": "zstd"}',
    "a later version": b'{"format": "loaderx-lines", "version": 2, "codec": "zstd"}',
    "a true version": b'{"format": "loaderx-lines", "version": true, "codec": "zstd"}',
    "another codec": b'{"format": "loaderx-lines", "version": 1, "codec": "lz4"}',
    "deep": b"[" * 100_000,
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_lines_file(name: str, tmp_path: Path, dest: Path) -> None:
    source = save(tmp_path / "a.jsonl", corpus(3))
    write_lines(source, dest)
    save(dest / "lines.json", WRONG[name])
    with pytest.raises(SchemaError, match=r"lines\.json is wrong"):
        read_lines_file(dest)
    with pytest.raises(SchemaError):
        write_lines(source, dest)
    assert stored(dest) == lines_of(corpus(3))


def test_a_lines_file_without_a_codec(tmp_path: Path, dest: Path) -> None:
    source = save(tmp_path / "a.jsonl", corpus(3))
    write_lines(source, dest)
    save(dest / "lines.json", b'{"format": "loaderx-lines", "version": 1}')
    assert read_lines_file(dest) == ("zstd_dict" if (dest / "dict.zr").exists() else "zstd")
    write_lines(source, dest)
    assert stored(dest) == lines_of(corpus(3)) * 2


def test_memory_stays_flat(tmp_path: Path, dest: Path, rss_anon: Callable[[], int]) -> None:
    """What is held does not grow with the text."""
    path = save(tmp_path / "a.jsonl.gz", COMPRESSIONS["gz"](corpus(500) * 4) * 20)
    most: list[int] = []

    def runs(times: int) -> Iterator[int]:
        for number in range(times):
            most.clear()
            write_lines(
                [path] * (number + 1) * 2,
                dest,
                chunk_bytes=1 << 20,
                overwrite=True,
                progress=lambda *_: most.append(rss_anon()),
            )
            yield max(most)

    first, *rest = runs(3)
    assert max(rest) - first < 8 << 20
