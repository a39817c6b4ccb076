"""A slow reader and writer of stores: what the library is compared with.

Written from the description of the format alone, in NumPy and python-zstandard. It never imports loaderx, so a
mistake there cannot hide here. `OracleStore` reads a directory; `Forge` writes one byte by byte, right or wrong.

Where the format forbids something, a subclass of `OracleFault` is raised. `LIBRARY_CLASSES` says which exception
of `loaderx.errors` the library raises for the same store, by name, and each fault carries the number that the
library's exception shows as ``.code``.
"""

from __future__ import annotations

import itertools
import json
import math
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import zstandard

MAGIC = b"ZREC"
VERSION = 3
WIDE = 4
CHUNK_LIMIT = 1 << 32
HEADER_BYTES = 16
ENTRY_BYTES = 16

RAW, ZSTD, ZSTD_DICT, ZSTD_SHUFFLE, ZSTD_SHUFFLE_DICT = range(5)
SHUFFLED = (ZSTD_SHUFFLE, ZSTD_SHUFFLE_DICT)
WITH_DICTIONARY = (ZSTD_DICT, ZSTD_SHUFFLE_DICT)
MIN_ITEM_SIZE, MAX_ITEM_SIZE = 2, 255
SHUFFLE_BLOCK = 32768
CODEC_NAMES = {
    "raw": RAW,
    "zstd": ZSTD,
    "zstd_dict": ZSTD_DICT,
    "zstd_shuffle": ZSTD_SHUFFLE,
    "zstd_shuffle_dict": ZSTD_SHUFFLE_DICT,
}


@dataclass(frozen=True)
class Limits:
    """The most that a store of a version may hold, and its highest codec tag."""

    records: int
    record_bytes: int
    chunks: int
    codec: int


LIMITS = {
    VERSION: Limits(1 << 24, 1 << 20, 4096, ZSTD_DICT),
    WIDE: Limits((1 << 32) - 1, (1 << 32) - 1, 65536, ZSTD_SHUFFLE_DICT),
}
#: Of meta.zr as a writer of version 3 makes it. A store that becomes version 4 keeps it until its table is longer.
META_BYTES = HEADER_BYTES + LIMITS[VERSION].records * ENTRY_BYTES

HEADER = np.dtype(
    [("magic", "V4"), ("version", "<u2"), ("tail_chunk", "<u2"), ("tail_offset", "<u4"), ("length", "<u4")]
)
ENTRY = np.dtype(
    [
        ("offset", "<u4"),
        ("phys_length", "<u4"),
        ("logic_length", "<u4"),
        ("chunk_id", "<u2"),
        ("codec", "u1"),
        ("reserved", "u1"),
    ]
)
assert HEADER.itemsize == HEADER_BYTES and ENTRY.itemsize == ENTRY_BYTES


class OracleFault(Exception):
    """A rule of the format is broken."""

    code: ClassVar[int | None] = None


class AbsentFault(OracleFault):
    """There is no directory, or no meta.zr in it."""

    code = -8


class ForeignFault(OracleFault):
    """meta.zr is not a store's: too short for a header, or other magic bytes."""

    code = -8


class VersionFault(OracleFault):
    """The header names a version that is not known, or not wanted."""

    code = -8


class TableFault(OracleFault):
    """The header promises more than the limits allow or than meta.zr holds."""

    code = -7


class RecordFault(OracleFault):
    """A table entry, or the stored bytes it points at, cannot be right."""

    code = -7


class FrameFault(RecordFault):
    """The blocks of a frame are damaged, in the eyes of the libzstd that python-zstandard holds.

    Later versions of libzstd find damage in more frames: another version may take the same bytes for a good frame of
    the right length. Everything else about a frame is judged alike by all.
    """


class MissingDictionaryFault(OracleFault):
    """A record needs dict.zr and there is none."""

    code = -7


class DictionaryFault(OracleFault):
    """A record needs dict.zr, and it is damaged so that zstd takes it for none."""

    code = -7


class IndexFault(OracleFault):
    """There is no record of this index."""

    code = -3


class SchemaFault(OracleFault):
    """schema.json does not describe an array."""


LIBRARY_CLASSES: dict[type[OracleFault], str] = {
    AbsentFault: "NotAStoreError",
    ForeignFault: "NotAStoreError",
    VersionFault: "FormatVersionError",
    TableFault: "CorruptRecordError",
    RecordFault: "CorruptRecordError",
    FrameFault: "CorruptRecordError",
    MissingDictionaryFault: "DictionaryError",
    DictionaryFault: "DictionaryError",
    IndexFault: "RecordIndexError",
    SchemaFault: "SchemaError",
}


@dataclass(frozen=True)
class Verdict:
    """How a read ended: with a value, or with an exception, named as the library names it."""

    value: Any = None
    error: str | None = None
    code: int | None = None
    depends_on_libzstd: bool = field(default=False, compare=False)


def oracle_verdict(read: Callable[[], Any]) -> Verdict:
    """Run a read of the oracle; an `OracleFault` becomes the name of the library's class."""
    try:
        return Verdict(value=read())
    except OracleFault as fault:
        name = LIBRARY_CLASSES[type(fault)]
        return Verdict(error=name, code=fault.code, depends_on_libzstd=isinstance(fault, FrameFault))


def library_verdict(read: Callable[[], Any], base: type[BaseException]) -> Verdict:
    """Run a read of the library; only exceptions under `base` (`LoaderxError`) are verdicts, others pass through."""
    try:
        return Verdict(value=read())
    except base as error:
        return Verdict(error=type(error).__name__, code=getattr(error, "code", None))


#: A frame without content, made without a dictionary: what a good dictionary of any kind can decompress.
_EMPTY_FRAME = zstandard.ZstdCompressor().compress(b"")


def _decompress(frame: bytes, logic_length: int, dictionary: zstandard.ZstdCompressionDict | None) -> bytes:
    """Decompress one frame whose content size must be `logic_length`."""
    try:
        parameters = zstandard.get_frame_parameters(frame)
    except zstandard.ZstdError as error:
        raise RecordFault(f"not a zstd frame: {error}") from None
    if parameters.content_size != logic_length:
        raise RecordFault(f"the frame holds {parameters.content_size} bytes, the table says {logic_length}")
    if dictionary is None:
        decompressor = zstandard.ZstdDecompressor()
    else:
        decompressor = zstandard.ZstdDecompressor(dict_data=dictionary)
    try:
        # python-zstandard takes an empty content for "nothing to do" and would not look at the frame's rest
        if logic_length == 0:
            record: bytes = decompressor.decompressobj().decompress(frame)
        else:
            record = decompressor.decompress(frame, allow_extra_data=False)
    except zstandard.ZstdError as error:
        raise FrameFault(f"the frame does not decompress: {error}") from None
    if len(record) != logic_length:
        raise RecordFault(f"the frame gave {len(record)} bytes of {logic_length}")
    return record


def _turn(data: bytes, item_size: int, *, undo: bool) -> bytes:
    whole = len(data) - len(data) % item_size
    step = SHUFFLE_BLOCK - SHUFFLE_BLOCK % item_size
    parts: list[bytes] = []
    for start in range(0, whole, step):
        block = np.frombuffer(data[start : min(start + step, whole)], dtype=np.uint8)
        rows = block.reshape(item_size, -1) if undo else block.reshape(-1, item_size)
        parts.append(rows.T.tobytes())
    return b"".join(parts) + data[whole:]


def shuffle(record: bytes, item_size: int) -> bytes:
    """Return a record with its blocks byte-shuffled: byte 0 of every item, then byte 1 of every item, and so on."""
    return _turn(record, item_size, undo=False)


def unshuffle(shuffled: bytes, item_size: int) -> bytes:
    """Return a record as it was before `shuffle`."""
    return _turn(shuffled, item_size, undo=True)


class OracleStore:
    """A store, read record by record.

    Parameters
    ----------
    path
        The store's directory. The header is checked here; entries and bytes when a record is read.
    newest
        The newest version to read; `VERSION` for stores that loaderx 0.7.3 is to read too.
    """

    def __init__(self, path: str | os.PathLike[str], *, newest: int = WIDE) -> None:
        self.path = Path(path)
        meta_path = self.path / "meta.zr"
        if not meta_path.is_file():
            raise AbsentFault(f"no meta.zr in {self.path}")
        self.meta_bytes = meta_path.stat().st_size
        with meta_path.open("rb") as file:
            head = file.read(HEADER_BYTES)
            if len(head) < HEADER_BYTES or head[:4] != MAGIC:
                raise ForeignFault(f"{meta_path} does not start with a store's header")
            header = np.frombuffer(head, dtype=HEADER)[0]
            self.version = int(header["version"])
            self.tail_chunk = int(header["tail_chunk"])
            self.tail_offset = int(header["tail_offset"])
            self.length = int(header["length"])
            if not VERSION <= self.version <= newest:
                raise VersionFault(f"version {self.version}")
            self.limits = LIMITS[self.version]
            if self.length > self.limits.records:
                raise TableFault(f"length {self.length} is over the limit of {self.limits.records}")
            if self.tail_chunk >= self.limits.chunks:
                raise TableFault(
                    f"tail_chunk {self.tail_chunk} is over the limit of {self.limits.chunks - 1}"
                )
            if HEADER_BYTES + self.length * ENTRY_BYTES > self.meta_bytes:
                raise TableFault(f"{self.length} records do not fit in {self.meta_bytes} bytes of meta.zr")
            if self.length > LIMITS[VERSION].records:
                self.table = np.memmap(meta_path, ENTRY, "r", HEADER_BYTES, (self.length,))  # mostly a hole
            else:
                self.table = np.frombuffer(file.read(self.length * ENTRY_BYTES), dtype=ENTRY)
        for chunk_id in range(self.tail_chunk + 1):
            if not (self.path / f"{chunk_id}.zr").is_file():
                raise TableFault(f"chunk {chunk_id} of {self.tail_chunk + 1} is missing")
        self.dictionary_damage = ""
        self.dictionary = self._read_dictionary()

    def __len__(self) -> int:
        return self.length

    def __iter__(self) -> Iterator[bytes]:
        return (self.record(index) for index in range(self.length))

    def _read_dictionary(self) -> zstandard.ZstdCompressionDict | None:
        dict_path = self.path / "dict.zr"
        content = dict_path.read_bytes() if dict_path.is_file() else b""
        if not content:
            return None
        dictionary = zstandard.ZstdCompressionDict(content)
        try:
            zstandard.ZstdDecompressor(dict_data=dictionary).decompress(_EMPTY_FRAME)
        except zstandard.ZstdError as error:
            self.dictionary_damage = str(error)
            return None
        return dictionary

    def stored(self, index: int) -> bytes:
        """Return the bytes of record `index` as they lie in the chunk, after checking its table entry."""
        if not 0 <= index < self.length:
            raise IndexFault(f"record {index} of {self.length}")
        entry = self.table[index]
        offset, phys, logic = int(entry["offset"]), int(entry["phys_length"]), int(entry["logic_length"])
        codec, chunk_id = int(entry["codec"]), int(entry["chunk_id"])
        if codec > self.limits.codec:
            raise RecordFault(f"record {index}: codec {codec}")
        if codec in SHUFFLED and entry["reserved"] < MIN_ITEM_SIZE:
            raise RecordFault(f"record {index}: items of {entry['reserved']} bytes")
        if logic > self.limits.record_bytes:
            raise RecordFault(f"record {index}: {logic} bytes is over the limit")
        if codec == RAW and phys != logic:
            raise RecordFault(f"record {index}: raw, but {phys} bytes stored for {logic}")
        if logic > 65536 * phys + 65536:
            raise RecordFault(f"record {index}: {logic} bytes cannot come out of {phys}")
        if chunk_id > self.tail_chunk:
            raise RecordFault(f"record {index}: chunk {chunk_id}, but the last is {self.tail_chunk}")
        chunk_path = self.path / f"{chunk_id}.zr"
        if offset + phys > chunk_path.stat().st_size:
            raise RecordFault(f"record {index}: ends behind chunk {chunk_id}")
        with chunk_path.open("rb") as file:
            file.seek(offset)
            return file.read(phys)

    def record(self, index: int) -> bytes:
        """Return record `index`, decompressed; negative indices are not wrapped here."""
        stored = self.stored(index)
        entry = self.table[index]
        codec, logic = int(entry["codec"]), int(entry["logic_length"])
        if codec == RAW:
            return stored
        if codec in WITH_DICTIONARY and self.dictionary_damage:
            raise DictionaryFault(f"record {index}: dict.zr is damaged: {self.dictionary_damage}")
        if codec in WITH_DICTIONARY and self.dictionary is None:
            raise MissingDictionaryFault(f"record {index}: no dict.zr in {self.path}")
        content = _decompress(stored, logic, self.dictionary if codec in WITH_DICTIONARY else None)
        return unshuffle(content, int(entry["reserved"])) if codec in SHUFFLED else content

    def records(self, indices: Iterable[int] | None = None) -> list[bytes]:
        """Return records in the order of `indices` (all by default); the first that cannot be read raises."""
        return [self.record(index) for index in (range(self.length) if indices is None else indices)]

    def codecs(self) -> list[int]:
        """Return the codec tag of each record."""
        return [int(codec) for codec in self.table["codec"]]

    def needs_wide(self) -> bool:
        """Return whether some record, or the number of them or of chunks, is beyond what version 3 may hold."""
        narrow = LIMITS[VERSION]
        return bool(
            self.length > narrow.records
            or self.tail_chunk >= narrow.chunks
            or np.any(self.table["codec"] > narrow.codec)
            or np.any(self.table["logic_length"] > narrow.record_bytes)
        )

    def faults(self) -> list[str]:
        """List every rule that a store fresh from a correct writer keeps and this one breaks.

        Stricter than reading: also the full size of meta.zr, that the version is no higher than the records need,
        which chunk files there are, that records neither overlap nor lie behind the tail, and that compression was
        kept only where it shrinks.
        """
        found: list[str] = []
        table_bytes = max(META_BYTES, HEADER_BYTES + self.length * ENTRY_BYTES)
        if self.meta_bytes != table_bytes:
            found.append(f"meta.zr has {self.meta_bytes} bytes, not {table_bytes}")
        if self.version == WIDE and not self.needs_wide():
            found.append("version 4, and nothing in it needs that")
        chunk_names = {name for name in os.listdir(self.path) if name.endswith(".zr") and name[:-3].isdigit()}
        expected = {f"{chunk}.zr" for chunk in range(self.tail_chunk + 1)}
        if chunk_names != expected:
            found.append(f"chunk files {sorted(chunk_names)}, by the header {sorted(expected)}")
        ends: list[tuple[int, int, int, int]] = []
        for index in range(self.length):
            entry = self.table[index]
            start, phys, chunk = int(entry["offset"]), int(entry["phys_length"]), int(entry["chunk_id"])
            if entry["reserved"] != 0 and entry["codec"] not in SHUFFLED:
                found.append(f"record {index}: reserved byte {entry['reserved']}")
            if start + phys >= CHUNK_LIMIT:
                found.append(f"record {index}: reaches the end of the chunk's range")
            if (chunk, start + phys) > (self.tail_chunk, self.tail_offset):
                found.append(f"record {index}: lies behind the tail")
            if entry["codec"] != RAW and phys >= int(entry["logic_length"]):
                found.append(f"record {index}: compressed without shrinking")
            if phys:
                ends.append((chunk, start, start + phys, index))
            try:
                self.record(index)
            except OracleFault as fault:
                found.append(f"record {index}: {fault}")
                continue
            if entry["codec"] != RAW:
                dict_id = zstandard.get_frame_parameters(self.stored(index)).dict_id
                expected_id = 0
                if entry["codec"] in WITH_DICTIONARY and self.dictionary is not None:
                    expected_id = self.dictionary.dict_id()
                if dict_id != expected_id:
                    found.append(f"record {index}: frame of dictionary {dict_id}, not {expected_id}")
        ends.sort()
        for (chunk_a, _, end_a, index_a), (chunk_b, start_b, _, index_b) in itertools.pairwise(ends):
            if chunk_a == chunk_b and start_b < end_a:
                found.append(f"records {index_a} and {index_b} overlap")
        return found

    def live_bytes(self) -> int:
        """Return the sum of the stored lengths."""
        return int(self.table["phys_length"].sum(dtype=np.int64))


# --- the NumPy layer ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class OracleSchema:
    """What schema.json says."""

    kind: str
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    codec: str

    @property
    def item_bytes(self) -> int:
        """Bytes of one record (fixed), or of one row (ragged)."""
        return self.dtype.itemsize * math.prod(self.shape)


#: What `numpy.dtype.str` looks like: NumPy's constructor reads much more than that.
_DTYPE_STR = re.compile(r"[<>|=][biufcmMSUVO]\d*(\[\d*[a-zA-Z]+(/\d+)?\])?")


def _describe(value: Any) -> np.dtype[Any]:
    """Build the dtype of a `descr` key: a string, the name of an ml_dtypes type, [base, shape], or a dict of fields."""
    if isinstance(value, str) and _DTYPE_STR.fullmatch(value):
        return np.dtype(value)
    if isinstance(value, str):
        import ml_dtypes

        scalar = getattr(ml_dtypes, value, None)
        if not (isinstance(scalar, type) and issubclass(scalar, np.generic)):
            raise SchemaFault(f"descr {value!r}")
        return np.dtype(scalar)
    if isinstance(value, list) and len(value) == 2 and isinstance(value[1], list):
        if not all(type(extent) is int and extent >= 0 for extent in value[1]):
            raise SchemaFault(f"descr shape {value[1]!r}")
        return np.dtype((_describe(value[0]), tuple(value[1])))
    if not isinstance(value, dict):
        raise SchemaFault(f"descr {value!r}")
    fields = dict(value)
    aligned = bool(fields.pop("aligned", False))
    if not {"names", "formats", "offsets", "itemsize"} <= fields.keys():
        raise SchemaFault(f"descr has only {sorted(fields)}")
    if not all(isinstance(name, str) for name in fields["names"]):
        raise SchemaFault(f"field names {fields['names']!r}")
    fields["formats"] = [_describe(format_) for format_ in fields["formats"]]
    return np.dtype(fields, align=aligned)


def _dtype_of(dtype_text: Any, content: dict[str, Any]) -> np.dtype[Any]:
    if not isinstance(dtype_text, str) or not _DTYPE_STR.fullmatch(dtype_text):
        raise SchemaFault(f"dtype {dtype_text!r}")
    try:
        plain = np.dtype(dtype_text)
        dtype = _describe(content["descr"]) if "descr" in content else plain
    except (TypeError, ValueError, AttributeError, OverflowError, MemoryError) as error:
        raise SchemaFault(f"dtype {dtype_text!r}, descr {content.get('descr')!r}: {error}") from None
    if dtype.kind in "SU" and dtype.itemsize == 0:
        raise SchemaFault(f"NumPy makes no arrays of {dtype.str}")
    if dtype.hasobject or dtype.subdtype is not None or dtype.itemsize != plain.itemsize:
        raise SchemaFault(f"dtype {dtype} for {dtype_text!r}")
    return dtype


def read_schema(path: str | os.PathLike[str]) -> OracleSchema:
    """Read schema.json and check every key."""
    try:
        data = Path(path, "schema.json").read_bytes()
    except FileNotFoundError:
        raise AbsentFault(f"no schema.json in {path}") from None
    try:
        content = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise SchemaFault(f"not JSON: {error}") from None
    if not isinstance(content, dict):
        raise SchemaFault("not a JSON object")
    version = content.get("version")
    if content.get("format") != "loaderx-zrecord" or type(version) is not int or version != 1:
        raise SchemaFault(f"format {content.get('format')!r} version {version!r}")
    ragged = content.get("ragged", False)
    if not isinstance(ragged, bool):
        raise SchemaFault(f"ragged {ragged!r}")
    shape = content.get("item_shape" if ragged else "shape")
    if not isinstance(shape, list) or not all(type(extent) is int and extent >= 0 for extent in shape):
        raise SchemaFault(f"shape {shape!r}")
    if len(shape) > 63:
        raise SchemaFault(f"{len(shape)} axes leave NumPy none for the batch")
    dtype = _dtype_of(content.get("dtype"), content)
    codec = content.get("codec")
    if not isinstance(codec, str) or codec not in CODEC_NAMES:
        raise SchemaFault(f"codec {codec!r}")
    schema = OracleSchema("ragged" if ragged else "fixed", dtype, tuple(shape), codec)
    if schema.item_bytes > LIMITS[WIDE].record_bytes or any(extent > 1 << 31 for extent in shape):
        raise SchemaFault(f"an item of shape {shape!r} has {schema.item_bytes} bytes")
    # an extent of 0 must not hide others that NumPy cannot multiply
    if dtype.itemsize * math.prod(extent for extent in shape if extent) > np.iinfo(np.int64).max:
        raise SchemaFault(f"shape {shape!r} overflows")
    return schema


def read_dataset(path: str | os.PathLike[str]) -> np.ndarray[Any, Any]:
    """Return the array of a fixed store, records along axis 0."""
    schema = read_schema(path)
    if schema.kind != "fixed":
        raise SchemaFault("a ragged store")
    store = OracleStore(path)
    for index in range(len(store)):
        if int(store.table[index]["logic_length"]) != schema.item_bytes:
            raise RecordFault(
                f"record {index}: {store.table[index]['logic_length']} bytes, not {schema.item_bytes}"
            )
    array = np.zeros((len(store), *schema.shape), dtype=schema.dtype)
    for index, record in enumerate(store):
        if schema.item_bytes:
            array[index] = np.frombuffer(record, dtype=schema.dtype).reshape(schema.shape)
    return array


def read_ragged(path: str | os.PathLike[str]) -> list[np.ndarray[Any, Any]]:
    """Return the records of a ragged store, each an array of rows."""
    schema = read_schema(path)
    if schema.kind != "ragged":
        raise SchemaFault("a fixed store")
    arrays: list[np.ndarray[Any, Any]] = []
    for index, record in enumerate(OracleStore(path)):
        if schema.item_bytes == 0 or len(record) % schema.item_bytes:
            raise RecordFault(f"record {index}: {len(record)} bytes are no whole rows of {schema.item_bytes}")
        rows = len(record) // schema.item_bytes
        arrays.append(np.frombuffer(record, dtype=schema.dtype).reshape(rows, *schema.shape))
    return arrays


def swap_delete(records: list[Any], indices: Iterable[int]) -> list[Any]:
    """Delete as the format does: in descending order, the last record takes the freed place; repeats count once."""
    left = list(records)
    for index in sorted(set(indices), reverse=True):
        left[index] = left[-1]
        left.pop()
    return left


# --- writing -----------------------------------------------------------------------------------------------------


def compress(record: bytes, codec: int, dictionary: bytes | None = None, item_size: int = 0) -> bytes:
    """Return one plain frame with its content size, as a writer makes it; `item_size` for shuffled codecs."""
    if codec in SHUFFLED:
        record = shuffle(record, item_size)
    if codec not in WITH_DICTIONARY:
        return zstandard.ZstdCompressor(level=3).compress(record)
    if dictionary is None:
        raise ValueError(f"codec {codec} needs a dictionary")
    trained = zstandard.ZstdCompressionDict(dictionary)
    return zstandard.ZstdCompressor(level=19, dict_data=trained).compress(record)


def train(samples: Sequence[bytes], size: int = 4096) -> bytes:
    """Return a dictionary trained on the samples."""
    return bytes(zstandard.train_dictionary(size, list(samples)).as_bytes())


@dataclass
class Forge:
    """A store in memory, written byte by byte; every field may be set wrong before `write`.

    `entries`, `chunks` and the header fields start empty and right; `add` keeps them right. `blank` records without a
    byte come before the others, as a hole in meta.zr; what lies `apart` in a chunk has a hole before it.
    """

    magic: bytes = MAGIC
    version: int = VERSION
    tail_chunk: int = 0
    tail_offset: int = 0
    length: int = 0
    entries: list[dict[str, int]] = field(default_factory=list)
    chunks: dict[int, bytearray] = field(default_factory=lambda: {0: bytearray()})
    dictionary: bytes | None = None
    schema: Any = None
    blank: int = 0
    apart: list[tuple[int, int, bytes]] = field(default_factory=list)

    def add(
        self,
        record: bytes,
        codec: int = RAW,
        *,
        item_size: int = 0,
        keep: bool = False,
        new_chunk: bool = False,
        at: tuple[int, int] | None = None,
    ) -> int:
        """Append a record and return its index.

        `item_size` is for shuffled codecs, which only version 4 has; `keep` stores the frame also where it does not
        shrink; `new_chunk` starts another chunk file first; `at` is a chunk and a byte, behind every record so far.
        """
        stored, tag, reserved = record, RAW, 0
        if codec != RAW:
            frame = compress(record, codec, self.dictionary, item_size)
            if keep or len(frame) < len(record):
                stored, tag, reserved = frame, codec, item_size
        if new_chunk:
            self.tail_chunk += 1
            self.tail_offset = 0
            self.chunks[self.tail_chunk] = bytearray()
        if at is not None:
            self.tail_chunk, self.tail_offset = at
            for chunk in range(self.tail_chunk + 1):
                self.chunks.setdefault(chunk, bytearray())
        self.entries.append(
            {
                "offset": self.tail_offset,
                "phys_length": len(stored),
                "logic_length": len(record),
                "chunk_id": self.tail_chunk,
                "codec": tag,
                "reserved": reserved,
            }
        )
        if len(self.chunks[self.tail_chunk]) == self.tail_offset:
            self.chunks[self.tail_chunk] += stored
        else:
            self.apart.append((self.tail_chunk, self.tail_offset, stored))
        self.tail_offset += len(stored)
        self.length = self.blank + len(self.entries)
        return self.length - 1

    def describe(
        self, dtype: str, shape: Sequence[int], *, codec: str = "raw", ragged: bool = False, **more: Any
    ) -> None:
        """Set schema.json; further keys are written as they are."""
        content: dict[str, Any] = {"format": "loaderx-zrecord", "version": 1}
        content |= {"ragged": True} if ragged else {}
        content |= {"dtype": dtype, "item_shape" if ragged else "shape": list(shape), "codec": codec}
        self.schema = content | more

    def header_bytes(self) -> bytes:
        """Return the 16 bytes of the header."""
        header = np.zeros(1, dtype=HEADER)
        header["magic"] = np.frombuffer(self.magic, dtype="V4")
        header["version"], header["length"] = self.version, self.length
        header["tail_chunk"], header["tail_offset"] = self.tail_chunk, self.tail_offset
        return header.tobytes()

    def write(self, path: str | os.PathLike[str], *, meta_bytes: int | None = META_BYTES) -> Path:
        """Write the directory; `meta_bytes` sets the size of meta.zr (None: up to the last entry)."""
        directory = Path(path)
        directory.mkdir(parents=True)
        table = np.zeros(len(self.entries), dtype=ENTRY)
        for index, entry in enumerate(self.entries):
            for name, value in entry.items():
                table[name][index] = value
        with (directory / "meta.zr").open("wb") as file:
            file.write(self.header_bytes())
            file.seek(HEADER_BYTES + self.blank * ENTRY_BYTES)
            file.write(table.tobytes())
            file.truncate(file.tell())
            if meta_bytes is not None:
                file.truncate(max(meta_bytes, file.tell()) if self.blank else meta_bytes)
        for chunk_id, content in self.chunks.items():
            (directory / f"{chunk_id}.zr").write_bytes(content)
        for chunk_id, offset, content in self.apart:
            with (directory / f"{chunk_id}.zr").open("r+b") as file:
                file.seek(offset)
                file.write(content)
        if self.dictionary is not None:
            (directory / "dict.zr").write_bytes(self.dictionary)
        if isinstance(self.schema, bytes):
            (directory / "schema.json").write_bytes(self.schema)
        elif self.schema is not None:
            (directory / "schema.json").write_text(json.dumps(self.schema, indent=2), encoding="utf-8")
        return directory
