"""Text files into a store of lines: one record for each, compressed, that is read in any order."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from loaderx.errors import OptionError, RecordTooLargeError
from loaderx.jsonl.line_dictionary import FileLines
from loaderx.jsonl.line_writer import LineCodec, LineWriter
from loaderx.jsonl.reading import KeptSource, LineReader
from loaderx.jsonl.splitting import Lines
from loaderx.store.append import Append
from loaderx.store.options import Codec, check_count, check_flag, check_path
from loaderx.store.progress import Progress, reporting

_CHUNK_BYTES = 64 << 20


@dataclass(frozen=True)
class WrittenLines:
    """What `write_lines` did.

    Attributes
    ----------
    path : pathlib.Path
        The store.
    codec : str
        How its lines were compressed.
    first : int
        Index of the first new line.
    lines : int
        New lines.
    blank_lines : int
        Lines of nothing but spaces and tabs, which were left out.
    text_bytes : int
        Bytes of text that was read: lines, their ends, and blank lines.
    kept : tuple of KeptSource
        The sources that were not whole; empty without ``keep_whole=True``.
    """

    path: Path
    codec: Codec
    first: int
    lines: int
    blank_lines: int
    text_bytes: int
    kept: tuple[KeptSource, ...]


def write_lines(
    sources: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
    dest: str | os.PathLike[str],
    codec: LineCodec | None = None,
    chunk_bytes: int = _CHUNK_BYTES,
    dict_size: int | None = None,
    *,
    level: int | None = None,
    threads: int = 0,
    progress: Progress = None,
    overwrite: bool = False,
    upgrade: bool = False,
    keep_whole: bool = False,
) -> WrittenLines:
    r"""Write the lines of text files, compressed or not, as a store: one record for each line, without its end.

    Parameters
    ----------
    sources : str, os.PathLike or iterable of them
        Files, in the order in which their lines are to be: plain text, or compressed by gzip (any number of members),
        bzip2, xz or zstd (any number of streams or frames), which is told by how a file begins.
    dest : str or os.PathLike
        The store's directory. Where there is none, the store appears when it is complete. An existing store of lines is
        appended to, and shows all new lines or none.
    codec : {"zstd_dict", "zstd", "raw"}, optional
        None: that of the store which is appended to, and for a new one "zstd_dict", or "zstd" where there is too little
        text to train a dictionary on.
    chunk_bytes : int
        About how many bytes of text are compressed at a time; with the longest line it bounds the memory taken.
    dict_size : int, optional
        The most bytes a dictionary may have; None: a hundredth of the text, at most 112,640. It is trained on lines
        from all over plain files and on the first ones of compressed files, of many files on those of some.
    level : int, optional
        zstd's level; None: 3, with a dictionary too.
    threads : int
        The most threads to compress with; 0: every core in the affinity mask.
    progress : bool or callable, optional
        None: a bar where standard error is a terminal. Or whether to show one. Or called with (bytes of the files read,
        their bytes in all).
    overwrite : bool
        Replace an existing store, once the new one is complete, instead of appending to it.
    upgrade : bool
        Let the store that is appended to become format version 4, for good, where the new lines need it (`Zrecord`).
    keep_whole : bool
        Of a compressed file that is cut off or damaged, take the lines that are whole, and go on with the next file. Of
        one that is cut off these are all before the cut; of one that is damaged those in streams before the damaged
        one, for nothing else says which bytes of a stream are right. Each compressed file is decompressed twice then.

    Returns
    -------
    WrittenLines

    Raises
    ------
    ArchiveError
        A source is cut off, damaged, or of a kind that is not read; says how much of it is whole.
    RecordTooLargeError
        A line is over the store's limit (4 GiB - 1, in a store of format version 3 that is appended to 1 MiB); the
        message names file and line.
    NotAStoreError, SchemaError
        What is at `dest` is no store of lines, such as a folder that holds other files.
    DictionaryError
        There is too little text to train the dictionary that was asked for.
    StoreFullError, StoreIOError, StoreLockedError, OptionError
    OSError
        A source cannot be read. In every case what was there before is unchanged.

    Notes
    -----
    A line ends with "\n" or "\r\n" and with nothing else; the last one of a file may end with the file. Blank lines (of
    spaces and tabs only) are left out, and so is a byte-order mark at the beginning of a file. Bytes are stored as they
    are.

    Examples
    --------
    >>> (tmp_path / "a.jsonl").write_text('{"a": 1}\n\n{"a": 2}\n') and None
    >>> write_lines(tmp_path / "a.jsonl", tmp_path / "a.zr").lines
    2
    """
    target = check_path(dest)
    paths = _as_paths(sources)
    chunk_bytes = check_count("chunk_bytes", chunk_bytes, least=1)
    reader = LineReader(paths, keep_whole=check_flag("keep_whole", keep_whole))
    writer = LineWriter(target, codec, level, threads, dict_size, overwrite, upgrade)
    with reporting(progress, reader.total_bytes) as reader.report, writer.writing(FileLines(paths)) as append:
        batch = _Batch(append)
        for path, lines in reader:
            batch.take(path, lines)
            if batch.n_bytes >= chunk_bytes:
                batch.add()
        batch.add()
    return WrittenLines(
        path=target,
        codec=writer.codec,
        first=append.first,
        lines=batch.n_added,
        blank_lines=reader.blank_lines,
        text_bytes=reader.text_bytes,
        kept=tuple(reader.kept),
    )


class _Batch:
    """Lines that wait to be added to a store together, from any number of files."""

    def __init__(self, append: Append) -> None:
        self._append = append
        self._parts: list[tuple[Path, Lines]] = []
        self.n_bytes = 0
        self.n_added = 0

    def take(self, path: Path, lines: Lines) -> None:
        """Let lines wait."""
        if len(lines.starts):
            self._parts.append((path, lines))
            self.n_bytes += len(lines.data)

    def add(self) -> None:
        """Add all that wait."""
        parts, self._parts, self.n_bytes = self._parts, [], 0
        if not parts:
            return
        ends = np.cumsum([len(lines.data) for _, lines in parts])
        data = parts[0][1].data if len(parts) == 1 else b"".join(lines.data for _, lines in parts)
        starts = [lines.starts + (end - len(lines.data)) for (_, lines), end in zip(parts, ends, strict=True)]
        sizes = [lines.sizes for _, lines in parts]
        try:
            self._append.add_var(data, np.concatenate(starts), np.concatenate(sizes))
            self.n_added += sum(map(len, sizes))
        except RecordTooLargeError as error:
            self._name_line(parts, error)
            raise

    def _name_line(self, parts: list[tuple[Path, Lines]], error: RecordTooLargeError) -> None:
        """Have the error say in which file and line the record is."""
        position = error.position or 0
        for path, lines in parts:
            if position < len(lines.starts):
                error.message = f"{path}, line {lines.numbers[position]}: {error.message}"
                error.args = (error.message,)
                return
            position -= len(lines.starts)


def _as_paths(sources: str | os.PathLike[str] | Iterable[str | os.PathLike[str]]) -> list[Path]:
    if isinstance(sources, str | os.PathLike):
        sources = [sources]
    paths = [Path(source) for source in sources]
    if not paths:
        raise OptionError("sources is empty: name at least one file", option="sources", value=paths)
    return paths
