"""The format of a store, for NumPy: headers, table entries, limits and file names.

docs/format.md describes it byte by byte; loaderx/_core/layout.pxd is the same for the compiled core.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np

MAGIC: Final = b"ZREC"


@dataclass(frozen=True, slots=True)
class Version:
    """A version of the format, and what a store of it may hold.

    Attributes
    ----------
    number : int
    max_records, max_record_bytes, max_chunks : int
    max_codec : int
        The highest codec tag.
    """

    number: int
    max_records: int
    max_record_bytes: int
    max_chunks: int
    max_codec: int


#: Version 3, which loaderx 0.7.3 reads and writes.
NARROW: Final = Version(3, 1 << 24, 1 << 20, 1 << 12, 2)
#: Version 4: as far as the fields of a table entry reach. A store has it only where its records need it.
WIDE: Final = Version(4, (1 << 32) - 1, (1 << 32) - 1, 1 << 16, 4)
VERSIONS: Final = {version.number: version for version in (NARROW, WIDE)}

HEADER: Final = np.dtype(
    [("magic", "S4"), ("version", "<u2"), ("tail_chunk", "<u2"), ("tail_offset", "<u4"), ("length", "<u4")]
)
RECORD: Final = np.dtype(
    [
        ("offset", "<u4"),
        ("phys_length", "<u4"),
        ("logic_length", "<u4"),
        ("chunk_id", "<u2"),
        ("codec", "u1"),
        ("reserved", "u1"),
    ]
)

# A slot of sums.zr: one for each record, all zero where a record has no sum.
SUM: Final = np.dtype([("tag", "<u4"), ("checksum", "<u4")])

# Where the header's changing fields are: the version and the tail are written before the length, and the length alone
# commits.
VERSION_AT: Final = 4
TAIL_CHUNK_AT: Final = 6
TAIL_OFFSET_AT: Final = 8
LENGTH_AT: Final = 12

CODECS: Final = {"raw": 0, "zstd": 1, "zstd_dict": 2, "zstd_shuffle": 3, "zstd_shuffle_dict": 4}
CODEC_NAMES: Final = {tag: name for name, tag in CODECS.items()}
DEFAULT_LEVELS: Final = {"raw": 0, "zstd": 3, "zstd_dict": 19, "zstd_shuffle": 3, "zstd_shuffle_dict": 19}
#: Of each codec that shuffles, the one for records whose items it cannot shuffle.
UNSHUFFLED: Final[dict[str, Literal["zstd", "zstd_dict"]]] = {
    "zstd_shuffle": "zstd",
    "zstd_shuffle_dict": "zstd_dict",
}
#: The codecs that need the store's dictionary.
DICTIONARY_CODECS: Final = ("zstd_dict", "zstd_shuffle_dict")
#: Bytes of the items that can be shuffled.
MIN_ITEM_BYTES: Final = 2
MAX_ITEM_BYTES: Final = 255

CHUNK_BYTES: Final = 1 << 32
#: Bytes that a writer's session leaves between its last record and the header's tail.
TAIL_ROOM: Final = 1
#: The farthest that a tail lies in its chunk.
MAX_OFFSET: Final = (1 << 32) - 1
# loaderx 0.7.3 maps this much of meta.zr whatever the file's size, so a store it may append to keeps it, sparse.
META_BYTES: Final = HEADER.itemsize + NARROW.max_records * RECORD.itemsize

META: Final = "meta.zr"
DICTIONARY: Final = "dict.zr"
SCHEMA: Final = "schema.json"
LINES: Final = "lines.json"
# Beside the format: loaderx 0.7.3 does not look at them.
SUMS: Final = "sums.zr"
MARK: Final = "mark.zr"
JOURNAL: Final = "journal.zr"
LOCK: Final = "lock.zr"
#: What says of what kind the records are: written last, and until it is there nobody takes the store for finished.
KINDS: Final = (SCHEMA, LINES)
#: Every file of a store but its chunks.
OWN_FILES: Final = (META, DICTIONARY, SCHEMA, LINES, SUMS, MARK, JOURNAL, LOCK)

_CHUNK_NAME = re.compile(r"(0|[1-9][0-9]{0,4})\.zr")
_ASIDE_NAME = re.compile(r"journal-aside-[0-9a-f]+\.zr")


def chunk_name(chunk: int) -> str:
    """Return the file name of a chunk."""
    return f"{chunk}.zr"


def chunk_number(name: str) -> int | None:
    """Return the number of the chunk a file name means, or None."""
    chunk = int(name.removesuffix(".zr")) if _CHUNK_NAME.fullmatch(name) else WIDE.max_chunks
    return chunk if chunk < WIDE.max_chunks else None


def is_store_file(name: str) -> bool:
    """Return whether a file of this name belongs to a store's own files."""
    return name in OWN_FILES or chunk_number(name) is not None or is_set_aside(name)


def is_set_aside(name: str) -> bool:
    """Return whether a file of this name is a journal that did not fit, and was set aside."""
    return _ASIDE_NAME.fullmatch(name) is not None


def entry_at(index: int) -> int:
    """Return where in `meta.zr` the table entry of a record begins."""
    return HEADER.itemsize + index * RECORD.itemsize


def room_for(length: int) -> int:
    """Return how many records to map a table (or sums) for that has `length` now: all of a narrow store's, or twice."""
    return max(NARROW.max_records, 1 << (2 * length).bit_length())
