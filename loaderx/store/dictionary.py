"""The store's dictionary, `dict.zr`: reading it, and holding it against what records were compressed with.

The mark of `sums.zr` has its tag, a checksum of its bytes. Zstd notices next to nothing of a damaged dictionary: frames
that refer to it come out as other bytes of the same length. So one that is not what the tag says is not used at all.

The tag speaks for the records that were there when the mark was written. Where none of those needs a dictionary, it
says nothing: any other one may have been trained since, by us or by another program.
"""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from loaderx._core.checksum import checksum
from loaderx._core.maps import FileMap
from loaderx._core.snapshot import DecompressionDictionary
from loaderx.errors import DictionaryError
from loaderx.store import files
from loaderx.store.format import CODECS, DICTIONARY, DICTIONARY_CODECS, SUMS
from loaderx.store.sums import SumsMark, sums_bytes, unpack_mark
from loaderx.store.table import table_blocks

# Far beyond what helps (zstd's own default is 110 KiB), and still nothing to fear from a forged file.
_MAX_BYTES = 256 << 20

_TAGS = [CODECS[name] for name in DICTIONARY_CODECS]


@dataclass(frozen=True, slots=True)
class Found:
    """A store's dictionary as it was found.

    Attributes
    ----------
    loaded : DecompressionDictionary or None
        None: there is none to be used.
    state : {"good", "unchecked", "damaged"} or None
        "unchecked": there was no tag to hold it against, or none that speaks for a record. None: there is no `dict.zr`.
    """

    loaded: DecompressionDictionary | None
    state: Literal["good", "unchecked", "damaged"] | None


def read_dictionary(store: Path) -> bytes | None:
    """Return the bytes of `dict.zr`, or None where there is none."""
    with files.errors_named(store, f"read {DICTIONARY}"):
        try:
            return files.read_whole(store / DICTIONARY, _MAX_BYTES) or None
        except FileNotFoundError:
            return None


def dictionary_stamp(store: Path) -> tuple[int, ...] | None:
    """Return numbers that change when `dict.zr` does; None where there is none."""
    try:
        info = os.stat(store / DICTIONARY)
    except OSError:
        return None
    return info.st_dev, info.st_ino, info.st_mtime_ns, info.st_size


def dictionary_tag(content: bytes) -> int:
    """Return the tag of a dictionary with these bytes; never 0, which stands for one that is not known."""
    return checksum(content) or 1


def load(content: bytes) -> DecompressionDictionary | None:
    """Return a dictionary made ready for reading; None where libzstd takes the bytes for none."""
    try:
        return DecompressionDictionary(content)
    except ValueError:
        return None


def first_dependent(store: Path, table: FileMap, length: int) -> int | None:
    """Return the first of so many records that was compressed with a dictionary; None where none was."""
    for first, entries in table_blocks(store, table, length):
        dependent = np.flatnonzero(np.isin(entries["codec"], _TAGS))
        if len(dependent):
            return first + int(dependent[0])
    return None


def is_another(store: Path, table: FileMap, length: int, content: bytes, mark: SumsMark | None) -> bool:
    """Return whether there are records that need a dictionary with other bytes than these, by the sums' mark.

    Those behind the mark's length another program may have written, with another dictionary.
    """
    if mark is None or mark.dictionary in (0, dictionary_tag(content)):
        return False
    return first_dependent(store, table, min(length, mark.header.length)) is not None


def find(store: Path, table: FileMap, length: int) -> Found:
    """Read a store's dictionary, and hold it against the tag that the sums have of it.

    Parameters
    ----------
    store : pathlib.Path
    table : FileMap
    length : int
        Number of records that the table is read for.

    Raises
    ------
    StoreIOError
    """
    while True:
        stamp = dictionary_stamp(store)
        content = read_dictionary(store)
        if content is None:
            return Found(None, None)
        mark = None
        with contextlib.suppress(OSError):  # whoever asks for sums is told; others can read without them
            mark = unpack_mark(files.read_beginning(store / SUMS, sums_bytes(0)) or b"")
        loaded = load(content)
        if loaded is not None and mark is not None and mark.dictionary == dictionary_tag(content):
            return Found(loaded, "good")
        if loaded is not None and not is_another(store, table, length, content, mark):
            return Found(loaded, "unchecked")
        # Unless a writer has trained one between the two looks.
        if stamp == dictionary_stamp(store):
            return Found(None, "damaged")


def damaged_error(store: Path, what: str = "") -> DictionaryError:
    """Return the error for a dictionary that is not the one that records were compressed with.

    Parameters
    ----------
    store : pathlib.Path
    what : str
        What the message begins with, where it is not the store: the record that cannot be read.
    """
    error = DictionaryError(
        f"{what or store}: {DICTIONARY} is damaged: its bytes are not those that the records were compressed with: "
        "restore it from a copy",
        store=store,
    )
    error.code = -7  # as for one that is missing; -9 is for training that failed
    return error
