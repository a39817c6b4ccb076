"""``convert``: .npy and .npz files into stores, lines of text, and whatever a stream reads."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from loaderx._env import read_pool_bytes
from loaderx.commands.conversion import (
    DEFAULT_CODEC,
    LEVEL_WITHOUT_CODEC,
    Conversion,
    Settings,
    check_destination,
    check_dict_size,
    convert_source,
    verify,
)
from loaderx.commands.lines import check_options, convert_lines
from loaderx.commands.npy_files import (
    ZIP_MAGICS,
    NpyFiles,
    NpyRecords,
    file_magic,
    find_npy_files,
    find_skipped,
)
from loaderx.commands.npy_header import NPY_MAGIC
from loaderx.commands.npz_folder import convert_npz
from loaderx.commands.paths import parse_path
from loaderx.commands.program import DONE, CommandError, complain, listed, say, shown
from loaderx.commands.sizes import count, format_bytes, format_ratio, mib_per_s, parse_size, ratio
from loaderx.commands.streamed import add_arguments as add_stream_arguments
from loaderx.commands.streamed import is_streamed
from loaderx.store.format import CODECS

DESCRIPTION = """\
Turn NumPy files, Parquet, Arrow and tar files into stores, and with --lines the lines of text files.

  one .npy file         one store at DEST, a record for every item along axis 0
  several, or a folder  joined along axis 0 in natural name order (part2 before part10), whatever the order of the
                        arguments; every file must have the same dtype and item shape. Of a folder, its own .npy
                        files are taken, not hidden ones and not those of folders within (a line on stderr names
                        them); .npz files in it are an error
  the same, --ragged    one ragged store at DEST, every file one record, in the same order
  one .npz file         a folder DEST with a store NAME.zr for every array, or for those that --only names
  text, with --lines    one store of lines at DEST, a record for every line that is not blank, of .jsonl or any other
                        text, plain or compressed (.gz, .bz2, .xz, .zst), file by file as the arguments name them; of a
                        folder its own .jsonl and .ndjson files, compressed too, in natural name order
  .parquet, .arrow      a record for each row: a line of JSON, or with --kind columns a folder DEST with a store NAME.zr
                        for every column (needs pyarrow)
  .tar, .tar.gz ...     samples as WebDataset has them: a folder DEST with a store NAME.zr for every extension, of
                        bytes, or with --decode of what they hold
  .jsonl, with --kind   with columns a folder DEST with a store NAME.zr for every name
  stores                one store of all their records, such as in another codec
  MODULE:NAME           the items of a loaderx.stream.Stream of that name, or of what a function returns that makes one

The files are read piece by piece, so they may be larger than memory. DEST appears when it is complete; whatever goes
wrong, nothing half-written stays.

With a .npz file, --append needs the stores in DEST to be those of exactly the arrays converted, so that all of them
grow together, and --force refuses a DEST that also holds stores of other arrays. Nothing is written before that is
known. Where DEST does not exist, both make it.

Exit code: 0 done, 1 the data read back by --verify differs, 2 wrong usage or an error with files, 130 interrupted.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument(
        "sources",
        metavar="SRC",
        nargs="+",
        type=parse_path,
        help="a .npy or .npz file, or a folder of .npy; .parquet, .arrow or .tar files; stores; MODULE:NAME of "
        "a stream; with --lines files of text",
    )
    parser.add_argument(
        "destination", metavar="DEST", type=parse_path, help="the store to write, such as images.zr"
    )
    parser.add_argument(
        "--codec",
        choices=(*CODECS, "auto"),
        help=f"how records are stored (default: {DEFAULT_CODEC}, of lines zstd_dict where there is text enough to "
        "train it; with --append, the store's own). zstd_shuffle suits numbers of 2 to 16 bytes, and makes a store "
        "that loaderx 0.7.3 cannot read; those with dict train a dictionary first, best for many small, similar "
        "records; auto tries them on some records and chooses",
    )
    parser.add_argument(
        "--level",
        type=int,
        metavar="N",
        help="zstd level (default: 3, with the dictionary 19, but of lines 3 too); not for raw",
    )
    parser.add_argument(
        "--dict-size",
        type=parse_size,
        metavar="SIZE",
        help="largest dictionary, for zstd_dict, zstd_shuffle_dict and auto",
    )
    parser.add_argument(
        "--chunk-bytes",
        type=parse_size,
        metavar="SIZE",
        default=64 << 20,
        help="bytes read and compressed at a time: whole bytes, or with KiB, MiB or GiB (default: 64MiB)",
    )
    parser.add_argument("--threads", type=int, metavar="N", default=0, help="threads (default: 0, all cores)")
    existing = parser.add_mutually_exclusive_group()
    existing.add_argument(
        "--append",
        action="store_true",
        help="add the records to DEST if it exists, or make it: dtype and shape must match, and on failure it stays as "
        "it was",
    )
    existing.add_argument(
        "--force",
        action="store_true",
        help="replace DEST if it exists, once the new one stands, or make it; only ever a store",
    )
    parser.add_argument(
        "--upgrade",
        action="store_true",
        help="with --append: let DEST become format version 4 for good, which loaderx 0.7.3 cannot read, where the new "
        "records need it (over 1 MiB, beyond 16,777,216 of them, or a codec with shuffle); a new store is version 4 "
        "where it needs to be",
    )
    parser.add_argument("--ragged", action="store_true", help="make every file one record, of its own length")
    parser.add_argument(
        "--only",
        metavar="NAME",
        action="append",
        default=[],
        help="of a .npz file this array, of rows and samples this name; may be repeated",
    )
    parser.add_argument("--lines", action="store_true", help="make every line of text files one record")
    parser.add_argument(
        "--keep-whole",
        action="store_true",
        help="with --lines: of a compressed file that is cut off or damaged, keep the lines that are whole and go on",
    )
    add_stream_arguments(parser)
    parser.add_argument(
        "--verify", action="store_true", help="read everything back and compare it, bit for bit"
    )
    parser.add_argument(
        "--quiet", action="store_true", help="no progress bar, no line on stdout; --json still prints"
    )
    parser.add_argument(
        "--json", action="store_true", help="no progress bar; print one JSON object instead of lines"
    )


def run(options: argparse.Namespace) -> int:
    """Convert, verify if asked to, and say what was done."""
    if options.level is not None and options.codec == "raw":
        raise CommandError(LEVEL_WITHOUT_CODEC)
    if options.lines:
        check_options(options)
    elif options.keep_whole:
        raise CommandError("--keep-whole goes with --lines")
    elif options.dict_size is not None and not (options.append and options.codec is None):
        check_dict_size(options.codec)
    if options.verify:
        read_pool_bytes()  # what is wrong with it is said before anything is written
    if options.upgrade and not options.append:
        raise CommandError("--upgrade goes with --append: a new store is of the format version that it needs")
    settings = Settings(
        codec=options.codec,
        level=options.level,
        dict_size=options.dict_size,
        chunk_bytes=options.chunk_bytes,
        threads=options.threads,
        append=options.append,
        force=options.force,
        upgrade=options.upgrade,
    )
    bar = not (options.quiet or options.json)
    details: dict[str, Any]
    streamed = not options.lines and is_streamed(options)
    archive = None if options.lines or streamed else _find_npz(options.sources, ragged=options.ragged)
    if streamed:
        conversions, details = _convert_stream(options, settings, bar=bar)
    elif options.lines:
        conversion, facts = convert_lines(
            options.sources,
            options.destination,
            settings,
            keep_whole=options.keep_whole,
            verified=options.verify,
            bar=bar,
        )
        conversions = [conversion]
        details = {**facts, **_store_facts(conversion)}
    elif archive is not None:
        by_name = convert_npz(
            archive, options.destination, settings, only=options.only, verified=options.verify, bar=bar
        )
        conversions = list(by_name.values())
        details = {
            "path": str(options.destination),
            "arrays": {name: _store_facts(conversion) for name, conversion in by_name.items()},
        }
    else:
        if options.only:
            raise CommandError("--only goes with a .npz file, whose arrays have names")
        check_destination(options.destination, settings)
        files = find_npy_files(options.sources)
        if skipped := find_skipped(options.sources):
            complain("loaderx convert", f"left out: {listed([str(path) for path in skipped])}")
        source = NpyRecords(files) if options.ragged else NpyFiles(files)
        conversions = [convert_source(source, options.destination, settings, bar=bar)]
        if options.verify:
            verify(source, conversions[0], threads=settings.threads, bar=bar)
        details = {"files": len(files), **_store_facts(conversions[0])}
    if options.json:
        say(json.dumps({**details, **_facts(conversions), "verified": options.verify}))
    elif not options.quiet:
        for conversion in conversions:
            if conversion.choice is not None:
                say(f"{shown(conversion.path)}: codec {conversion.codec}: {conversion.choice.reason}")
            say(_line(conversion, verified=options.verify))
    return DONE


def _convert_stream(
    options: argparse.Namespace, settings: Settings, *, bar: bool
) -> tuple[list[Conversion], dict[str, Any]]:
    from loaderx.commands.streams import convert_stream, make_stream  # NumPy files have no need of all that

    stream, kind = make_stream(options)
    written, by_name = convert_stream(
        stream, options.destination, kind, settings, verified=options.verify, bar=bar
    )
    conversions = list(by_name.values())
    for counted in written.counts:
        if n := counted.get("skipped"):
            complain("loaderx convert", f"warning: {count(n, 'item')} left out by {counted['step']}")
        if n := counted.get("skipped_shards"):
            complain(
                "loaderx convert",
                f"warning: of {count(n, 'file')} the rest was left out by {counted['step']}: cut off, damaged, or not "
                "to be read; without skipping them, the first is an error that names it",
            )
    details: dict[str, Any] = {"kind": written.kind, "counts": written.counts}
    if written.stores:
        stores = {name: _store_facts(conversion) for name, conversion in by_name.items()}
        return conversions, {**details, "path": str(options.destination), "stores": stores}
    return conversions, {**details, **_store_facts(conversions[0])}


def _find_npz(sources: Sequence[Path], *, ragged: bool) -> Path | None:
    """Give the .npz file among the arguments, which must stand alone."""
    archives = [source for source in sources if _is_npz(source)]
    if not archives:
        return None
    if len(sources) > 1:
        raise CommandError(
            f"{archives[0]} is a .npz file, which is converted alone; got {len(sources)} sources"
        )
    if ragged:
        raise CommandError(f"{archives[0]} is a .npz file; --ragged takes .npy files")
    return archives[0]


def _is_npz(source: Path) -> bool:
    """Tell whether a file is a .npz file by how it begins.

    Raises
    ------
    CommandError
        If only its name says so.
    """
    magic = file_magic(source)
    if magic.startswith(ZIP_MAGICS):
        return True
    if source.suffix == ".npz" and not source.is_dir() and not magic.startswith(NPY_MAGIC):
        raise CommandError(
            f"{source} is not a .npz file: it does not begin as a zip does"
            if magic
            else f"{source} is not a .npz file: it is empty"
        )
    return False


def _store_facts(conversion: Conversion) -> dict[str, Any]:
    return {
        "path": str(conversion.path),
        "codec": conversion.codec,
        "choice": None if conversion.choice is None else asdict(conversion.choice),
        "total_records": conversion.first_record + conversion.records,
        **_facts([conversion]),
    }


def _facts(conversions: Sequence[Conversion]) -> dict[str, Any]:
    """Sum conversions up for --json; for text see `_line`."""
    bytes_in = sum(conversion.bytes_in for conversion in conversions)
    bytes_out = sum(conversion.bytes_out for conversion in conversions)
    seconds = sum(conversion.seconds for conversion in conversions)
    return {
        "records": sum(conversion.records for conversion in conversions),
        "bytes_in": bytes_in,
        "bytes_out": bytes_out,
        "dictionary_bytes": sum(conversion.dictionary_bytes for conversion in conversions),
        "ratio": ratio(bytes_in, bytes_out),
        "seconds": seconds,
        "mib_per_s": mib_per_s(bytes_in, seconds),
    }


def _line(conversion: Conversion, *, verified: bool) -> str:
    """Say in one line what one conversion did."""
    parts = [count(conversion.records, "record")]
    if conversion.first_record:
        parts[0] += f" added to {conversion.first_record:,}"
    size = f"{format_bytes(conversion.bytes_in)} -> {format_bytes(conversion.bytes_out)}"
    parts.append(f"{size} ({format_ratio(conversion.bytes_in, conversion.bytes_out)})")
    if conversion.dictionary_bytes:
        parts.append(f"dictionary {format_bytes(conversion.dictionary_bytes)}")
    parts.append(f"{mib_per_s(conversion.bytes_in, conversion.seconds):,.1f} MiB/s")
    if verified:
        parts.append("verified")
    return f"{shown(conversion.path)}: " + ", ".join(parts)
