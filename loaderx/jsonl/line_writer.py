"""Putting lines into a store of lines: a new one, which appears complete, or behind those of one that is there."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from loaderx.errors import DictionaryError, NotAStoreError
from loaderx.jsonl.line_dictionary import SampledLines, train_line_dictionary
from loaderx.jsonl.lines_file import read_lines_file, write_lines_file
from loaderx.store import files
from loaderx.store.append import Append
from loaderx.store.create import foreign_files
from loaderx.store.format import META
from loaderx.store.options import (
    Codec,
    check_choice,
    check_count,
    check_flag,
    check_level,
    check_threads,
)
from loaderx.store.staging import Staging, take_back_moves
from loaderx.store.zrecord import StagedZrecord, Zrecord

#: The codecs for lines: bytes of text have no items to shuffle.
LineCodec = Literal["raw", "zstd", "zstd_dict"]
LINE_CODECS = ("raw", "zstd", "zstd_dict")

_LEVEL = 3


class LineWriter:
    """Puts lines into a new store of lines, or behind those of an existing one.

    Parameters
    ----------
    target : pathlib.Path
    codec, level, threads, dict_size, overwrite, upgrade
        As in `write_lines`.

    Attributes
    ----------
    codec : str
        How the lines are compressed, once there are any.

    Raises
    ------
    OptionError
    """

    codec: Codec

    def __init__(
        self,
        target: Path,
        codec: LineCodec | None,
        level: int | None,
        threads: int,
        dict_size: int | None,
        overwrite: bool,
        upgrade: bool,
    ) -> None:
        self._target = target
        self._upgrade = check_flag("upgrade", upgrade)
        self._overwrite = check_flag("overwrite", overwrite)
        self._threads = check_threads(threads)
        self._asked = None if codec is None else check_choice("codec", codec, LINE_CODECS)
        self._dict_size = None if dict_size is None else check_count("dict_size", dict_size, least=1)
        self._level = check_level(level, codec)

    @contextlib.contextmanager
    def writing(self, lines: SampledLines) -> Iterator[Append]:
        """Give what takes lines; all that were added are there at the end of the ``with`` block, or none.

        Parameters
        ----------
        lines : SampledLines
            Gives some of those that will be added.
        """
        there = None if self._overwrite else _codec_of_lines_at(self._target)
        if there is not None:
            self.codec = self._asked or there
            check_level(self._level, self.codec)
            with self._open(Zrecord, self._target) as store, store.appending() as append:
                yield append
            return
        with Staging(self._target, replace=self._overwrite) as staging:
            self.codec = self._asked or "zstd_dict"
            if self.codec == "zstd_dict":
                self._train(staging.path, lines)
            with self._open(StagedZrecord, staging.path) as store, store.appending() as append:
                yield append
            write_lines_file(staging.path, self.codec)
            staging.install()

    def _open(self, kind: type[Zrecord], path: Path) -> Zrecord:
        # The level of the store alone is slow with a dictionary.
        level = None if self.codec == "raw" else _LEVEL if self._level is None else self._level
        return kind(path, self.codec, level=level, threads=self._threads, upgrade=self._upgrade)

    def _train(self, path: Path, lines: SampledLines) -> None:
        with StagedZrecord(path, "zstd_dict") as store:
            if train_line_dictionary(store, lines, self._dict_size):
                return
        if self._asked is not None:
            raise DictionaryError(
                f"{self._target}: there is too little text to train a dictionary on: use codec 'zstd', or none",
                store=self._target,
            )
        self.codec = "zstd"


def _codec_of_lines_at(target: Path) -> Codec | None:
    """Return the codec of the store of lines at a path; None where there is no store.

    Raises
    ------
    NotAStoreError
        There is one of something else, or other files.
    """
    with files.errors_named(target, "look for a store there"):
        take_back_moves(Path(os.path.realpath(target)))
        if not (target / META).exists():
            _check_own(target)
            return None
    try:
        return read_lines_file(target)
    except NotAStoreError as error:
        raise NotAStoreError(
            f"{error.message}; a store of other records takes no lines: choose another path", store=target
        ) from None


def _check_own(target: Path) -> None:
    """Refuse a folder that holds files of somebody else's: a store among them would hide what they are."""
    others = []
    if target.is_dir():
        # A hidden one may be of another builder, who is about to put a store there.
        others = [name for name in foreign_files(target) if not name.startswith(".")]
    if others:
        raise NotAStoreError(
            f"{target}: it holds other files than a store's, such as {others[0]!r}, and a store needs a folder of its "
            "own: choose another path",
            store=target,
        )
