"""``convert --lines``: text files into a store of lines."""

from __future__ import annotations

import argparse
import dataclasses
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from loaderx import CorruptRecordError, LoaderxError, Zrecord
from loaderx.commands.bar import Tick, byte_bar
from loaderx.commands.conversion import Conversion, Settings, check_destination, check_store_or_nothing
from loaderx.commands.program import CommandError, MismatchError, complain, listed
from loaderx.commands.streamed import refuse
from loaderx.jsonl.line_writer import LINE_CODECS
from loaderx.jsonl.lines import WrittenLines, write_lines
from loaderx.jsonl.reading import LineReader
from loaderx.store.folders import is_store
from loaderx.store.natural import natural_key

_SUFFIXES = (".jsonl", ".ndjson")
_COMPRESSED = ("", ".gz", ".bz2", ".xz", ".zst")
#: What an error's advice is called here.
_OPTIONS = {"upgrade=True": "--append --upgrade", "keep_whole=True": "--keep-whole"}


def check_options(options: argparse.Namespace) -> None:
    """Refuse options that go with NumPy files only.

    Raises
    ------
    CommandError
    """
    for name in ("ragged", "only"):
        if getattr(options, name):
            raise CommandError(f"--{name} goes with NumPy files, not with --lines")
    refuse(options, "--lines", ("kind", "decode", "skip_bad"))
    if options.codec is not None and options.codec not in LINE_CODECS:
        raise CommandError(f"--lines goes with --codec {', '.join(LINE_CODECS)}, not with {options.codec}")
    if options.dict_size is not None and options.codec not in (None, "zstd_dict"):
        raise CommandError("--dict-size goes with --codec zstd_dict, which is the default of --lines")


def convert_lines(
    sources: Sequence[Path], path: Path, settings: Settings, *, keep_whole: bool, verified: bool, bar: bool
) -> tuple[Conversion, dict[str, Any]]:
    """Write the lines of text files into a store.

    Parameters
    ----------
    sources : sequence of Path
        Files, in their order, and folders, whose own .jsonl and .ndjson files are taken, in natural order.
    path : Path
        The store.
    settings : Settings
        How to write it.
    keep_whole : bool
        As `loaderx.jsonl.write_lines` takes it.
    verified : bool
        Whether to read everything back and compare.
    bar : bool
        Whether to show progress, where stderr is a terminal.

    Returns
    -------
    Conversion
    dict
        More of what was done, for --json.

    Raises
    ------
    CommandError
        `path` exists and the settings do not say what to do then, or a folder holds no such files.
    MismatchError
        A line read back is not the one written.
    LoaderxError
        As `loaderx.jsonl.write_lines` raises it; the store is then as it was before.
    """
    check_destination(path, settings)
    check_store_or_nothing(path)
    files = find_text_files(sources)
    source_bytes = sum(file.stat().st_size for file in files)
    before = _stats(path) if settings.append and is_store(path) else {"live_bytes": 0}
    started = time.perf_counter()
    with byte_bar(path.name, source_bytes, shown=bar) as tick:
        written = _write(files, path, settings, keep_whole, tick)
    seconds = time.perf_counter() - started
    for kept in written.kept:
        complain(
            "loaderx convert",
            f"warning: {kept.path} is {kept.problem}: of it {kept.lines:,} whole lines were kept",
        )
    after = _stats(path)
    conversion = Conversion(
        path=path,
        codec=written.codec,
        choice=None,
        first_record=written.first,
        records=written.lines,
        bytes_in=written.text_bytes,
        bytes_out=after["live_bytes"] - before["live_bytes"],
        dictionary_bytes=after["dictionary_bytes"],
        seconds=seconds,
    )
    if verified:
        with byte_bar(f"verify {path.name}", source_bytes, shown=bar) as tick:
            _verify(files, written, settings.threads, keep_whole, tick)
    facts = {
        "files": len(files),
        "source_bytes": source_bytes,
        "blank_lines": written.blank_lines,
        "kept": [{**dataclasses.asdict(kept), "path": str(kept.path)} for kept in written.kept],
    }
    return conversion, facts


def find_text_files(sources: Sequence[Path]) -> list[Path]:
    """List the files that the arguments name: in their order, of a folder its own in natural order.

    Raises
    ------
    CommandError
        If a folder holds none.
    """
    found: list[Path] = []
    for source in sources:
        if not source.is_dir():
            found.append(source)
            continue
        entries = sorted((entry for entry in source.iterdir() if entry.name[0] != "."), key=natural_key)
        own = [entry for entry in entries if entry.is_file() and _is_text(entry.name)]
        if not own:
            raise CommandError(f"{source} is a folder without .jsonl files")
        if skipped := [entry for entry in entries if entry not in own]:
            complain("loaderx convert", f"left out: {listed([str(entry) for entry in skipped])}")
        found += own
    return found


def _is_text(name: str) -> bool:
    return name.endswith(tuple(suffix + end for suffix in _SUFFIXES for end in _COMPRESSED))


def _write(
    files: Sequence[Path], path: Path, settings: Settings, keep_whole: bool, tick: Tick
) -> WrittenLines:
    try:
        return write_lines(
            files,
            path,
            settings.codec,  # type: ignore[arg-type]  # `check_options`
            settings.chunk_bytes,
            settings.dict_size,
            level=settings.level,
            threads=settings.threads,
            progress=tick,
            overwrite=settings.force,
            upgrade=settings.upgrade,
            keep_whole=keep_whole,
        )
    except LoaderxError as error:
        message = str(error)
        for argument, option in _OPTIONS.items():
            message = message.replace(argument, option)
        if message != str(error):
            raise CommandError(message) from error
        raise


def _verify(files: Sequence[Path], written: WrittenLines, threads: int, keep_whole: bool, tick: Tick) -> None:
    """Compare every line that was written with its source."""
    index = written.first
    with Zrecord(written.path, mode="r", threads=threads) as store:
        reader = LineReader(files, keep_whole=keep_whole)
        done = 0

        def report(n_bytes: int) -> None:
            nonlocal done
            done += n_bytes
            tick(done, reader.total_bytes)

        reader.report = report
        for path, lines in reader:
            stop = min(index + len(lines.starts), written.first + written.lines)
            try:
                data, splits = store.gather_packed(range(index, stop))
            except CorruptRecordError as error:
                raise MismatchError(f"{written.path} does not read back: {error}") from error
            for at, (start, size) in enumerate(zip(lines.starts, lines.sizes, strict=True)):
                expected = memoryview(lines.data)[start : start + size]
                if index + at >= stop or data.data[splits[at] : splits[at + 1]] != expected:
                    raise MismatchError(
                        f"{written.path}: line {index + at} is not the same as line {lines.numbers[at]} of {path}"
                    )
            index = stop
    n_now = index - written.first
    if n_now != written.lines:
        raise MismatchError(
            f"{written.path}: {written.lines} lines were written, and the sources have {n_now} now"
        )


def _stats(path: Path) -> dict[str, Any]:
    with Zrecord(path, mode="r") as store:
        return store.stats()
