"""``convert`` of what a stream reads: Parquet, Arrow, tar archives, JSONL by names, stores, and any stream."""

from __future__ import annotations

import argparse
import contextlib
import importlib
import os
import time
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

from loaderx import CorruptRecordError, Dataset, LoaderxError, RaggedDataset, Zrecord
from loaderx.arrays.schema import read_schema
from loaderx.commands.bar import Tick, growing_bar
from loaderx.commands.conversion import Conversion, Settings
from loaderx.commands.program import CommandError, MismatchError, complain, listed
from loaderx.commands.streamed import STORE, expand, format_of, refuse
from loaderx.jsonl import JsonlDataset
from loaderx.jsonl.lines_file import read_lines_file
from loaderx.store.folders import find_stores, is_store
from loaderx.store.format import LINES
from loaderx.stream import Stream, WrittenStream
from loaderx.stream.arrow_types import Typed, common_dtypes
from loaderx.stream.iterator import StreamIterator
from loaderx.stream.layout import Layout, read_layout
from loaderx.stream.records import Kind, Unfit

_VERIFIED_BYTES = 16 << 20
_VERIFIED_RECORDS = 1 << 16
_END = object()
#: What an error's advice is called here.
_OPTIONS = {"upgrade=True": "--append --upgrade", "on_error='skip'": "--skip-bad"}


def make_stream(options: argparse.Namespace) -> tuple[Stream, Kind | None]:
    """Return the stream that the arguments name (`is_streamed`), and what its items become; None: what fits them.

    Raises
    ------
    CommandError
        They do not go together.
    """
    paths = []
    for source in options.sources:
        found_here = expand(source)
        paths += found_here
        if found_here != [source] and (
            skipped := sorted(str(entry) for entry in source.iterdir() if entry not in found_here)
        ):
            complain("loaderx convert", f"left out: {listed(skipped)}")
    found = sorted({str(format_of(path)) for path in paths})
    if len(found) > 1:
        raise CommandError(
            f"the sources are of different formats ({listed(found)}): convert one after the other"
        )
    name = found[0]
    if name == STORE:
        refuse(options, "stores", ("kind", "decode", "skip_bad", "only"))
        return _of_stores(paths)
    if name != "webdataset":
        refuse(options, f"{name} sources", ("decode",))
    if name not in ("webdataset", "jsonl"):
        refuse(options, f"{name} sources", ("skip_bad",))
    files = [str(path) for path in paths]
    on_error: Any = "skip" if options.skip_bad else "raise"
    if name == "parquet":
        stream = Stream.from_parquet(files, columns=list(dict.fromkeys(options.only)) or None)
        return _typed(stream, files, options.kind), options.kind
    if name == "arrow":
        stream = _typed(Stream.from_arrow(files), files, options.kind)
    elif name == "webdataset":
        stream = Stream.from_webdataset(files, decode=options.decode or None, on_error=on_error)
    elif name == "jsonl":
        stream = Stream.from_jsonl(files, on_error=on_error)
    else:
        stream = _load(files[0])
    return (stream.select(list(dict.fromkeys(options.only))) if options.only else stream), options.kind


def _load(name: str) -> Stream:
    module, _, attribute = name.partition(":")
    try:
        found: Any = importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name != module and not module.startswith(f"{error.name}."):
            raise _of_theirs(name, f"importing {module}", error) from error
        raise CommandError(
            f"{name}: there is no such file, and no module {module!r} here: {error}"
        ) from error
    except (Exception, SystemExit) as error:
        raise _of_theirs(name, f"importing {module}", error) from error
    for part in attribute.split("."):
        if not hasattr(found, part):
            raise CommandError(f"{name}: {module} has no {attribute!r}")
        found = getattr(found, part)
    if not isinstance(found, Stream) and callable(found):
        try:
            found = found()
        except (Exception, SystemExit) as error:
            raise _of_theirs(name, f"{attribute}()", error) from error
    if not isinstance(found, Stream):
        raise CommandError(
            f"{name} is of type {type(found).__name__}, and no loaderx.stream.Stream, nor returns one"
        )
    return found


def _typed(stream: Stream, files: Sequence[str], kind: Kind | None) -> Stream:
    """Return rows of tables whose numbers have the dtypes that all files have them in, where they become arrays."""
    return stream.map(Typed(common_dtypes(files))) if kind == "columns" else stream


def _of_theirs(name: str, what: str, error: BaseException) -> CommandError:
    """Return what to raise for what somebody's own code raised: it is no fault of this program."""
    where = traceback.extract_tb(error.__traceback__)
    last = f" ({where[-1].filename}, line {where[-1].lineno})" if where else ""
    return CommandError(f"{name}: {what} raised {type(error).__name__}: {error}{last}")


def _of_stores(paths: Sequence[Path]) -> tuple[Stream, Kind]:
    streams = []
    kinds: set[Kind] = set()
    for path in paths:
        dataset: Any
        if (path / LINES).exists():
            dataset, kind = JsonlDataset(path, parse=bytes), "lines"
        elif read_schema(path).kind == "fixed":
            dataset, kind = Dataset(path), "array"
        else:
            dataset, kind = RaggedDataset(path), "ragged"
        kinds.add(cast(Kind, kind))
        streams.append(Stream.from_dataset(dataset))
    if len(kinds) > 1:
        raise CommandError(
            f"the stores are of different kinds ({listed(sorted(kinds))}): convert one after the other"
        )
    return Stream.concatenate(streams), kinds.pop()


def check_place(path: Path, settings: Settings) -> None:
    """Check that nothing stands at the place that was not meant to be changed.

    Raises
    ------
    CommandError
    """
    if not os.path.lexists(path) or settings.append or settings.force:
        return
    if is_store(path):
        raise CommandError(f"{path} exists; --append adds records to it, --force replaces it")
    if path.is_dir() and find_stores(path):
        raise CommandError(f"{path} exists; --append adds records to its stores, --force replaces them")
    raise CommandError(f"{path} exists and is not a loaderx store; choose another path")


def convert_stream(
    stream: Stream, path: Path, kind: Kind | None, settings: Settings, *, verified: bool, bar: bool
) -> tuple[WrittenStream, dict[str, Conversion]]:
    """Write the items of a stream into a store, or into a folder of stores.

    Parameters
    ----------
    stream : Stream
    path : Path
    kind : str, optional
        As `Stream.write` takes it.
    settings : Settings
    verified : bool
        Whether to go through the stream once more, and compare.
    bar : bool
        Whether to show progress, where stderr is a terminal.

    Returns
    -------
    WrittenStream
    dict of str to Conversion
        By name; of one store, by the name "".

    Raises
    ------
    CommandError
        `path` exists and the settings do not say what to do then.
    MismatchError
        A record read back is not the one that the stream gives.
    LoaderxError
        As `Stream.write` raises it; what was there before is unchanged then.
    """
    check_place(path, settings)
    before = {place: _stats(place) for place in _stores_at(path)} if settings.append else {}
    started = time.perf_counter()
    with growing_bar(path.name, None, shown=bar) as tick:
        written = _write(stream, path, kind, settings, tick)
    seconds = time.perf_counter() - started
    places = {name: path / store.name for name, store in written.stores.items()} or {"": path}
    conversions = {
        name: _conversion(place, before.get(place), written, settings, seconds / len(places))
        for name, place in places.items()
    }
    if verified:
        with growing_bar(f"verify {path.name}", written.record_bytes, shown=bar) as tick:
            _verify(stream, written, settings.threads, tick)
    return written, conversions


def _write(stream: Stream, path: Path, kind: Kind | None, settings: Settings, tick: Tick) -> WrittenStream:
    try:
        return stream.write(
            path,
            kind,
            settings.codec,
            settings.chunk_bytes,
            settings.dict_size,
            level=settings.level,
            threads=settings.threads,
            progress=tick,
            overwrite=settings.force,
            upgrade=settings.upgrade,
        )
    except LoaderxError as error:
        message = str(error)
        for argument, option in _OPTIONS.items():
            message = message.replace(argument, option)
        if message != str(error):
            raise CommandError(message) from error
        raise


def _stores_at(path: Path) -> list[Path]:
    if is_store(path):
        return [path]
    return [path / name for name in find_stores(path)] if path.is_dir() else []


def _stats(path: Path) -> dict[str, Any]:
    with Zrecord(path, mode="r") as store:
        return store.stats()


def _conversion(
    path: Path, before: dict[str, Any] | None, written: WrittenStream, settings: Settings, seconds: float
) -> Conversion:
    was = before or {"live_bytes": 0, "logical_bytes": 0}
    after = _stats(path)
    codec: Any = settings.codec
    if before is None or codec in (None, "auto"):
        codec = read_lines_file(path) if (path / LINES).exists() else read_schema(path).codec
    return Conversion(
        path=path,
        codec=codec,
        choice=None,
        first_record=written.first,
        records=written.records,
        bytes_in=after["logical_bytes"] - was["logical_bytes"],
        bytes_out=after["live_bytes"] - was["live_bytes"],
        dictionary_bytes=after["dictionary_bytes"],
        seconds=seconds,
    )


def _verify(stream: Stream, written: WrittenStream, threads: int, tick: Tick) -> None:
    """Go through the stream once more, and compare the records that were written with what it gives."""
    layout = read_layout(written.path)
    assert layout is not None, "it was written"
    places = [written.stores[name] if name is not None else written.path for name in layout.columns]
    with contextlib.ExitStack() as opened, iter(stream) as passing:
        stores = [opened.enter_context(Zrecord(place, mode="r", threads=threads)) for place in places]
        index = written.first
        done = 0
        while block := _take(passing, layout):
            for store, place, expected in zip(stores, places, zip(*block, strict=True), strict=True):
                stop = min(index + len(block), written.first + written.records)
                try:
                    data, splits = store.gather_packed(range(index, stop))
                except CorruptRecordError as error:
                    raise MismatchError(f"{place} does not read back: {error}") from error
                for at, record in enumerate(expected):
                    if index + at >= stop or data.data[splits[at] : splits[at + 1]] != record:
                        raise MismatchError(
                            f"{place}: record {index + at} is not the same as the stream gives"
                        )
                done += len(data)
            index += len(block)
            tick(done, written.record_bytes)
    if index - written.first != written.records:
        raise MismatchError(
            f"{written.path}: {written.records} records were written, and the stream has {index - written.first} now"
        )


def _take(passing: StreamIterator, layout: Layout) -> list[list[memoryview | bytes]]:
    """Return the records of the next items, some at a time; none where there are no more."""
    block: list[list[memoryview | bytes]] = []
    n_bytes = 0
    while n_bytes < _VERIFIED_BYTES and len(block) < _VERIFIED_RECORDS:
        item = next(passing, _END)
        if item is _END:
            break
        try:
            block.append(layout.records(item))
        except Unfit as unfit:
            raise MismatchError(f"the stream gives another item than before, which {unfit}") from unfit
        n_bytes += sum(map(len, block[-1]))
    return block
