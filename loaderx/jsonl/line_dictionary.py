"""The dictionary of a new store of lines: trained on some of them."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Protocol

from loaderx.errors import ArchiveError, DictionaryError, RecordTooLargeError
from loaderx.jsonl.archives import TextFile
from loaderx.jsonl.splitting import split_lines
from loaderx.store.zrecord import Zrecord

# zstd advises a dictionary of a hundredth of its samples, and its own default is this much at most.
_MAX_BYTES = 112_640
_MIN_BYTES = 1024
_SAMPLED_FOR_EACH_BYTE = 100
# Of more sources than this some are sampled, and of a longer line its beginning is.
_SAMPLED_SOURCES = 64
_SAMPLED_LINE_BYTES = 16 << 10
_PIECE_BYTES = 1 << 20
# Of a file that can be read anywhere, lines come from so many places at most, and of each so many bytes at least.
_STRETCHES = 64
_STRETCH_BYTES = 16 << 10


class SampledLines(Protocol):
    """What gives some of the lines that a store will hold."""

    def sample(self, n_bytes: int) -> tuple[Sequence[bytes], bool]:
        """Return about so many bytes of lines, and whether these are all lines there are."""


class FileLines:
    """Samples of the lines of files.

    Parameters
    ----------
    paths : sequence of pathlib.Path
        All files whose lines the store will hold. Of many, some that are spread over them are looked at. What is wrong
        with one is not said here.
    """

    def __init__(self, paths: Sequence[Path]) -> None:
        self._paths = paths

    def sample(self, n_bytes: int) -> tuple[list[bytes], bool]:
        """Return about so many bytes of lines, and whether these are all lines there are (`sample_lines`)."""
        return sample_lines(self._paths, n_bytes)


def train_line_dictionary(store: Zrecord, lines: SampledLines, dict_size: int | None) -> bool:
    """Train a dictionary for a new store on some of its lines; return whether there was text enough.

    Parameters
    ----------
    store : Zrecord
    lines : SampledLines
    dict_size : int, optional
        The most bytes it may have; None: a hundredth of the lines, at most 112,640.
    """
    size = _MAX_BYTES if dict_size is None else dict_size
    samples, is_all = lines.sample(size * _SAMPLED_FOR_EACH_BYTE)
    if is_all and dict_size is None:
        size = max(_MIN_BYTES, min(size, sum(map(len, samples)) // _SAMPLED_FOR_EACH_BYTE))
    try:
        store.train_dict(b"".join(samples), [len(sample) for sample in samples], size)
    except DictionaryError:
        return False
    return True


def sample_lines(paths: Sequence[Path], n_bytes: int) -> tuple[list[bytes], bool]:
    """Return about so many bytes of lines of files, the same of each, and whether these are all lines there are.

    Of a plain file they are spread over it, of a compressed one the first.
    """
    count = min(len(paths), _SAMPLED_SOURCES)
    samples: list[bytes] = []
    left, is_all = n_bytes, count == len(paths)
    for number in range(count):
        share = left // (count - number)  # what a short file leaves goes to those behind it
        found, is_whole = _some_lines(paths[number * len(paths) // count], share)
        samples += found
        left -= sum(map(len, found))
        is_all = is_all and is_whole
    return samples, is_all


def _some_lines(path: Path, n_bytes: int) -> tuple[list[bytes], bool]:
    """Return about so many bytes of lines of a file, and whether these are all of its lines."""
    try:
        source = TextFile(path)
    except ArchiveError:
        return [], False
    if source.kind is None and path.stat().st_size > n_bytes:
        samples, _ = _take(path, _stretches(path, n_bytes), n_bytes)
        if samples:
            return samples, False
    return _take(path, source, n_bytes)


def _stretches(path: Path, n_bytes: int) -> Iterator[bytes]:
    """Yield whole lines from all over a plain file."""
    with open(path, "rb") as file:
        size = file.seek(0, os.SEEK_END)
        count = max(1, min(_STRETCHES, n_bytes // _STRETCH_BYTES))
        for number in range(count):
            at = file.seek(size * number // count)
            block = file.read(n_bytes // count)
            begin = 0 if at == 0 else block.find(b"\n") + 1
            yield block[begin : block.rfind(b"\n") + 1]


def _take(path: Path, blocks: Iterable[bytes], n_bytes: int) -> tuple[list[bytes], bool]:
    samples: list[bytes] = []
    is_whole = True

    def until_fault() -> Iterator[bytes]:
        nonlocal is_whole
        try:
            yield from blocks
        except ArchiveError:
            is_whole = False  # and what came before does for a sample

    try:
        for lines in split_lines(path, until_fault(), min(_PIECE_BYTES, n_bytes)):
            for start, size in zip(lines.starts.tolist(), lines.sizes.tolist(), strict=True):
                if n_bytes <= 0:
                    return samples, False
                samples.append(lines.data[start : start + min(size, _SAMPLED_LINE_BYTES)])
                n_bytes -= len(samples[-1])
    except RecordTooLargeError:
        is_whole = False
    return samples, is_whole
