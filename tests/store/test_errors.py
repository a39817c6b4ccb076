"""Every bad input and its error: one row a condition."""

from __future__ import annotations

import contextlib
import errno
import os
import pickle
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import loaderx
from loaderx import errors
from tests.oracle import META_BYTES, RAW, WIDE, ZSTD, ZSTD_DICT, Forge, train
from tests.store.children import in_child
from tests.store.refusals import refusing

RECORD = bytes(range(200)) * 2
NOBODY = 65534


@dataclass(frozen=True)
class Row:
    """How a condition is made, and the error it must give."""

    name: str
    make: Callable[[Path], Any]
    error: type[BaseException]
    code: int | None
    words: tuple[str, ...]
    attributes: dict[str, Any] = field(default_factory=dict)
    marks: tuple[Any, ...] = ()


def forged(
    path: Path, change: Callable[[Forge], Any] = lambda forge: None, *, n: int = 3, codec: int = ZSTD
) -> Path:
    """Write a store of equal records, after a change to one of its bytes or fields."""
    forge = Forge(
        dictionary=train([RECORD[i:] + RECORD[:i] for i in range(400)]) if codec == ZSTD_DICT else None
    )
    for _ in range(n):
        forge.add(RECORD, codec, keep=True)
    forge.describe("|u1", [len(RECORD)])
    change(forge)
    return forge.write(path, meta_bytes=None)


def read_all(path: Path) -> Any:
    with loaderx.Dataset(path) as ds:
        return ds[:]


def entry(index: int, **fields: int) -> Callable[[Forge], None]:
    return lambda forge: forge.entries[index].update(fields)


def header(**fields: Any) -> Callable[[Forge], None]:
    def change(forge: Forge) -> None:
        for name, value in fields.items():
            setattr(forge, name, value)

    return change


def wide(change: Callable[[Forge], None]) -> Callable[[Forge], None]:
    def both(forge: Forge) -> None:
        forge.version = WIDE
        change(forge)

    return both


def schema(**keys: Any) -> Callable[[Path], Any]:
    def make(path: Path) -> Any:
        return loaderx.Dataset(forged(path, lambda forge: forge.schema.update(keys)))

    return make


def cut(path: Path, name: str, n_bytes: int) -> Path:
    os.truncate(path / name, n_bytes)
    return path


def damaged_frame(forge: Forge) -> None:
    forge.chunks[0][forge.entries[1]["offset"] + 20] ^= 0xFF
    forge.chunks[0][forge.entries[1]["offset"] + 4] ^= 0x07


def with_store(call: Callable[[loaderx.Zrecord], Any]) -> Callable[[Path], Any]:
    """Make the condition with a handle on a store of three records."""

    def make(path: Path) -> Any:
        with loaderx.Zrecord(forged(path)) as z:
            return call(z)

    return make


def closed(call: Callable[[loaderx.Zrecord], Any]) -> Callable[[Path], Any]:
    def make(path: Path) -> Any:
        z = loaderx.Zrecord(forged(path))
        z.close()
        return call(z)

    return make


def ended_append(path: Path) -> Any:
    with loaderx.Zrecord(path) as z:
        with z.appending() as append:
            append.add(RECORD, 1, 400)
        with contextlib.ExitStack() as mine:  # files that take the descriptors the append had
            own = [mine.enter_context(open(path / f"own{i}", "w+b")) for i in range(6)]
            try:
                append.add(RECORD, 1, 400)
            finally:
                assert [os.fstat(file.fileno()).st_size for file in own] == [0] * 6


def nested(change: Callable[[loaderx.Zrecord], Any]) -> Callable[[Path], Any]:
    """Make a change inside an append of the same handle; whatever becomes of it, the store must stay right."""

    def make(path: Path) -> Any:
        with loaderx.Zrecord(path) as z:
            z.append(RECORD, 4, 100)
            try:
                with z.appending() as append:
                    append.add(b"outer", 1, 5)
                    change(z)
            finally:
                assert len(z) == 4
                assert z.append(b"after", 1, 5) == 4
                assert bytes(z.gather_packed(np.arange(5))[0]) == RECORD + b"after"

    return make


def nearly_full(path: Path) -> loaderx.Zrecord:
    forged(path, header(length=(1 << 24) - 1))
    os.truncate(path / "meta.zr", META_BYTES)
    return loaderx.Zrecord(path)


def read_only(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    array.flags.writeable = False
    return array


def piped(name: str) -> Callable[[Path], Any]:
    def make(path: Path) -> Any:
        forged(path)
        (path / name).unlink(missing_ok=True)
        os.mkfifo(path / name)
        return loaderx.Dataset(path)

    return make


def huge_dictionary(path: Path) -> Any:
    forged(path)
    with open(path / "dict.zr", "wb") as stream:
        stream.truncate(1 << 40)
    return loaderx.Zrecord(path)


def out_of_space(path: Path) -> Any:
    with loaderx.Zrecord(path) as z, refusing("write"):
        z.append(RECORD, 1, len(RECORD))


def unreadable(path: Path) -> Any:
    os.chmod(forged(path) / "meta.zr", 0o600)
    for folder in (path, *path.parents):
        if folder != Path("/") and folder.stat().st_uid == os.getuid() and not folder.stat().st_mode & 0o001:
            folder.chmod(0o755)
    return in_child(lambda: loaderx.Zrecord(path, mode="r"), uid=NOBODY)


BUFFER = np.zeros((3, 400), np.uint8)
ROWS = [
    Row("no such path", lambda p: loaderx.Dataset(p), errors.NotAStoreError, -8, ("nothing at this path",)),
    Row("no such path, bytes", lambda p: loaderx.Zrecord(p, mode="r"), errors.NotAStoreError, -8, ("nothing at this path",)),
    Row("not a directory", lambda p: (p.write_text("x"), loaderx.Zrecord(p, mode="r")), errors.NotAStoreError, -8,
        ("not a directory",)),
    Row("not a store", lambda p: (p.mkdir(), loaderx.Zrecord(p, mode="r")), errors.NotAStoreError, -8, ("no meta.zr",)),
    Row("foreign files", lambda p: (p.mkdir(), (p / "notes.txt").write_text("x"), loaderx.Zrecord(p)),
        errors.NotAStoreError, -8, ("notes.txt", "directory of its own")),
    Row("empty meta.zr", lambda p: loaderx.Zrecord(cut(forged(p), "meta.zr", 0)), errors.NotAStoreError, -8, ("is empty",)),
    Row("cut header", lambda p: loaderx.Zrecord(cut(forged(p), "meta.zr", 9)), errors.NotAStoreError, -8, ("ZREC",)),
    Row("cut table", lambda p: loaderx.Zrecord(cut(forged(p), "meta.zr", 40)), errors.CorruptRecordError, -7,
        ("cut off", "3 records", "40")),
    Row("foreign meta.zr", lambda p: loaderx.Zrecord(forged(p, header(magic=b"PK\3\4"))), errors.NotAStoreError, -8,
        ("PK",)),
    Row("unknown version", lambda p: loaderx.Zrecord(forged(p, header(version=9))), errors.FormatVersionError, -8,
        ("version 9", "versions 3 and 4"), {"version": 9}),
    Row("impossible length", lambda p: loaderx.Zrecord(forged(p, header(length=(1 << 24) + 1))),
        errors.CorruptRecordError, -7, ("16777217", "version 3")),
    Row("impossible tail", lambda p: loaderx.Zrecord(forged(p, header(tail_chunk=4096))), errors.CorruptRecordError, -7,
        ("4097 chunks", "version 3")),
    Row("table cut off, of version 4", lambda p: loaderx.Zrecord(forged(p, header(version=4, length=(1 << 24) + 1))),
        errors.CorruptRecordError, -7, ("cut off", "16777217")),
    Row("missing chunk", lambda p: loaderx.Zrecord(forged(p, header(tail_chunk=1))), errors.CorruptRecordError, -7,
        ("1.zr is missing",), {"chunk": 1}),
    Row("short chunk", lambda p: read_all(cut(forged(p), "0.zr", 10)), errors.CorruptRecordError, -7,
        ("record 0", "0.zr", "10 bytes"), {"record": 0, "chunk": 0, "byte_offset": 0}),
    Row("entry in an unknown chunk", lambda p: read_all(forged(p, entry(1, chunk_id=7))), errors.CorruptRecordError, -7,
        ("record 1", "names chunk 7"), {"record": 1, "chunk": 7}),
    Row("entry of an unknown codec", lambda p: read_all(forged(p, entry(2, codec=3))), errors.CorruptRecordError, -7,
        ("record 2", "codec 3"), {"record": 2}),
    Row("entry of an unknown codec, in version 4", lambda p: read_all(forged(p, wide(entry(2, codec=5)))),
        errors.CorruptRecordError, -7, ("record 2", "codec 5"), {"record": 2}),
    Row("entry of items of a byte", lambda p: read_all(forged(p, wide(entry(2, codec=3, reserved=1)))),
        errors.CorruptRecordError, -7, ("record 2", "item"), {"record": 2}),
    Row("raw entry of two lengths", lambda p: read_all(forged(p, entry(1, logic_length=399), codec=RAW)),
        errors.CorruptRecordError, -7, ("400 stored bytes", "399"), {"record": 1, "byte_offset": 400}),
    Row("entry that expands beyond reason", lambda p: read_all(forged(p, entry(1, phys_length=0, logic_length=1 << 17))),
        errors.CorruptRecordError, -7, ("131072",), {"record": 1}),
    Row("record over the format's limit", lambda p: read_all(forged(p, entry(1, logic_length=(1 << 20) + 1))),
        errors.CorruptRecordError, -7, ("1048576",), {"record": 1}),
    Row("damaged frame", lambda p: read_all(forged(p, damaged_frame)), errors.CorruptRecordError, -7, ("record 1",),
        {"record": 1, "chunk": 0}),
    Row("frame of another length", lambda p: loaderx.Zrecord(forged(p, entry(1, logic_length=401))).gather_packed([1]), errors.CorruptRecordError,
        -7, ("400 bytes", "401"), {"record": 1}),
    Row("missing dictionary", lambda p: read_all(forged(p, header(dictionary=None), codec=ZSTD_DICT)),
        errors.DictionaryError, -7, ("dict.zr",)),
    Row("too little to train on", with_store(lambda z: z.train_dict(b"abc" * 10, [3] * 10, 1000)), errors.DictionaryError,
        -9, ("256 bytes",)),
    Row("dictionary that was never trained", with_store(lambda z: z.append(RECORD, 1, 400, "zstd_dict")),
        errors.DictionaryError, -9, ("train_dict first",)),
    Row("dictionary in use", lambda p: loaderx.Zrecord(forged(p, codec=ZSTD_DICT)).train_dict(RECORD, [400], 1000),
        errors.DictionaryError, -9, ("record 0", "could not be read with another")),
    Row("schema: no JSON", lambda p: loaderx.Dataset(forged(p, header(schema=b"{"))), errors.SchemaError, None,
        ("not JSON",)),
    Row("schema: nested beyond reason", lambda p: loaderx.Dataset(forged(p, header(schema=b"[" * 100_000))),
        errors.SchemaError, None, ("schema.json",)),
    Row("schema: a list", lambda p: loaderx.Dataset(forged(p, header(schema=[1]))), errors.SchemaError, None, ("list",)),
    Row("schema: another format", schema(format="zarr"), errors.SchemaError, None, ("'zarr'",)),
    Row("schema: another version", schema(version=2), errors.SchemaError, None, ("version is 2",)),
    Row("schema: a version that is true", schema(version=True), errors.SchemaError, None, ("True",)),
    Row("schema: dtype of objects", schema(dtype="|O"), errors.SchemaError, None, ("Python objects",)),
    Row("schema: dtype of objects inside", schema(dtype="|V400", descr={"names": ["a"], "formats": ["|O"], "offsets": [0],
        "itemsize": 400}), errors.SchemaError, None, ("Python objects",)),
    Row("schema: dtype that is no dtype", schema(dtype="<f3"), errors.SchemaError, None, ("<f3",)),
    Row("schema: dtype in a language", schema(dtype="i4,(999999999,)i4"), errors.SchemaError, None, ("dtype string",)),
    Row("schema: dtype that is a number", schema(dtype=4), errors.SchemaError, None, ("dtype is 4",)),
    Row("schema: descr of another size", schema(dtype="|V4", descr="<f8"), errors.SchemaError, None, ("8 bytes",)),
    Row("schema: strings of no bytes", schema(dtype="|S0"), errors.SchemaError, None, ("no array has dtype",)),
    Row("schema: a sub-array", schema(dtype="|V400", descr=["<i4", [100]]), errors.SchemaError, None, ("no array",)),
    Row("schema: axes that overflow behind one of nothing", schema(shape=[1 << 31, 1 << 31, 1 << 31, 0]),
        errors.SchemaError, None, ("so large",)),
    Row("indices that fit no type", with_store(lambda z: z.lengths([0, 2**63])), errors.RecordIndexError, -3,
        (str(2**63),)),
    Row("damaged dictionary", lambda p: read_all(forged(p, header(dictionary=b"\x37\xa4\x30\xec" + bytes(99)), codec=ZSTD_DICT)),
        errors.DictionaryError, -7, ("record 0", "dict.zr is damaged")),
    Row("damaged dictionary, append", lambda p: loaderx.Zrecord(forged(p, header(dictionary=b"\x37\xa4\x30\xec" + bytes(99)))).append(
        RECORD, 1, 400, "zstd_dict"), errors.DictionaryError, -7, ("dict.zr is damaged",)),
    Row("pad: more than memory", lambda p: loaderx.pad([1], [0, 1], 1 << 61), errors.OptionError, None, ("memory",)),
    Row("schema: negative shape", schema(shape=[-1]), errors.SchemaError, None, ("[-1]",)),
    Row("schema: shape of fractions", schema(shape=[2.5]), errors.SchemaError, None, ("[2.5]",)),
    Row("schema: shape that overflows", schema(shape=[1 << 30, 1 << 30]), errors.SchemaError, None, ("4294967295",)),
    Row("schema: shape that overflows to nothing", schema(shape=[0, 1 << 62]), errors.SchemaError, None, ("4611686018427387904",)),
    Row("schema: shape of many axes", schema(shape=[1] * 65), errors.SchemaError, None, ("65 axes",)),
    Row("schema: unknown codec", schema(codec="lz4"), errors.SchemaError, None, ("'lz4'",)),
    Row("schema: ragged that is no bool", schema(ragged=1), errors.SchemaError, None, ("ragged is 1",)),
    Row("schema of other records", lambda p: read_all(forged(p, lambda forge: forge.describe("<f4", [10]))),
        errors.CorruptRecordError, -7, ("400 bytes", "40"), {"record": 0}),
    Row("ragged, opened as fixed", lambda p: (loaderx.write_ragged(p, [[1]]), loaderx.Dataset(p)), errors.SchemaError,
        None, ("RaggedDataset",)),
    Row("fixed, opened as ragged", lambda p: (loaderx.write_dataset(p, [1]), loaderx.RaggedDataset(p)),
        errors.SchemaError, None, ("Dataset",)),
    Row("ragged record of half a row", lambda p: (forged(p, lambda forge: forge.describe("<f8", [3], ragged=True)),
        loaderx.RaggedDataset(p)[1]), errors.CorruptRecordError, -7, ("record 1", "400", "24"), {"record": 1}),
    Row("record over the limit", with_store(lambda z: z.append(bytes((1 << 20) + 1), 1, (1 << 20) + 1)),
        errors.RecordTooLargeError, -4, ("1048577", "1048576", "upgrade=True"),
        {"record_bytes": (1 << 20) + 1, "limit_bytes": 1 << 20}),
    Row("one record over the limit", with_store(lambda z: z.append_var(bytes(2 << 20), [0, 5], [9, (1 << 20) + 1])),
        errors.RecordTooLargeError, -4, ("position 1",), {"position": 1}),
    Row("array of records over every limit", lambda p: loaderx.write_dataset(p, np.broadcast_to(0.0, (2, 1 << 29))),
        errors.RecordTooLargeError, -4, ("4294967296", "4294967295"), {"limit_bytes": (1 << 32) - 1}),
    Row("ragged array over every limit",
        lambda p: loaderx.write_ragged(p, [np.zeros(1), np.broadcast_to(0.0, 1 << 29)]),
        errors.RecordTooLargeError, -4, ("array 1",), {"position": 1, "limit_bytes": (1 << 32) - 1}),
    Row("ragged array over the limit of a store that holds others",
        lambda p: (loaderx.write_ragged(p, [np.zeros(1)]), loaderx.write_ragged(p, [np.zeros((1 << 17) + 1)])),
        errors.RecordTooLargeError, -4, ("1048584", "upgrade=True"), {"limit_bytes": 1 << 20}),
    Row("shuffled into a store that holds others",
        with_store(lambda z: z.append(RECORD, 1, 400, "zstd_shuffle", item_size=4)), errors.OptionError, None,
        ("'zstd_shuffle'", "version 4", "upgrade=True"), {"option": "codec", "value": "zstd_shuffle"}),
    Row("shuffled, nobody knows what", with_store(lambda z: z.append(RECORD, 1, 400, "zstd_shuffle")),
        errors.OptionError, None, ("item_size",), {"option": "item_size"}),
    Row("full store", lambda p: nearly_full(p).append(RECORD, 2, 200), errors.StoreFullError, -5,
        ("16777216", "upgrade=True"), {"length": (1 << 24) - 1, "requested": 2, "limit": 1 << 24}),
    Row("index beyond the end", with_store(lambda z: z.gather([0, 3], BUFFER, 400)), errors.RecordIndexError, -3,
        ("index 3", "position 1", "3 records"), {"index": 3, "position": 1, "length": 3}),
    Row("index before the beginning", with_store(lambda z: z.lengths([-4])), errors.RecordIndexError, -3, ("index -4",),
        {"index": -4, "position": 0}),
    Row("index beyond 63 bits", with_store(lambda z: z.lengths(np.array([2**64 - 1], np.uint64))),
        errors.RecordIndexError, -3, (str(2**64 - 1),), {"index": 2**64 - 1}),
    Row("index beyond 64 bits", with_store(lambda z: z.lengths([2**64])), errors.RecordIndexError, -3, (str(2**64),)),
    Row("deleted index", with_store(lambda z: z.delete([0, 9])), errors.RecordIndexError, -3, ("index 9", "position 1"),
        {"index": 9, "position": 1}),
    Row("lowest of several", with_store(lambda z: z.gather([0, 7, 1, 8], np.zeros((4, 400), np.uint8), 400)),
        errors.RecordIndexError, -3, ("index 7",), {"position": 1}),
    Row("two axes of indices", with_store(lambda z: z.lengths([[0, 1]])), errors.RecordIndexError, -3, ("one dimension",)),
    Row("a bare index", with_store(lambda z: z.delete(2)), errors.RecordIndexError, -3, ("one dimension", "give [2]")),
    Row("a bare index of NumPy's", with_store(lambda z: z.delete(np.uint8(2))), errors.RecordIndexError, -3, ("give [2]",)),
    Row("fractional index", with_store(lambda z: z.lengths([0.5])), TypeError, None, ("float64",)),
    Row("mask of byte records", with_store(lambda z: z.lengths([True, False, True])), TypeError, None, ("bool",)),
    Row("destination too small", with_store(lambda z: z.gather([0, 1, 2], BUFFER[:2], 400)), errors.DestinationError, -6,
        ("800", "1200"), {"needed_bytes": 1200, "given_bytes": 800}),
    Row("stride too small", with_store(lambda z: z.gather([0, 1], BUFFER, 399)), errors.DestinationError, -6,
        ("record 0", "399"), {"needed_bytes": 400, "given_bytes": 399, "position": 0}),
    Row("negative stride", with_store(lambda z: z.gather([0], BUFFER, -1)), errors.OptionError, None, ("stride is -1",)),
    Row("destination strided", with_store(lambda z: z.gather([0], BUFFER[:, ::2], 400)), errors.DestinationError, -6,
        ("contiguous",)),
    Row("destination read-only", with_store(lambda z: z.gather([0], bytes(400), 400)), errors.DestinationError, -6,
        ("read-only",)),
    Row("destination array read-only", with_store(lambda z: z.gather([0], read_only(np.zeros(400, np.uint8)), 400)),
        errors.DestinationError, -6, ("read-only",)),
    Row("destination of objects", with_store(lambda z: z.gather([0], np.empty(400, object), 400)), TypeError, None,
        ("objects",)),
    Row("destination no buffer", with_store(lambda z: z.gather([0], [0] * 400, 400)), TypeError, None, ("bytes-like",)),
    Row("places that overlap", with_store(lambda z: z.gather_var([0, 1, 2], BUFFER, [0, 800, 399])),
        errors.DestinationError, -6, ("positions 0 and 2", "overlap"), {"position": 2}),
    Row("place outside", with_store(lambda z: z.gather_var([0, 1], BUFFER, [0, 801])), errors.DestinationError, -6,
        ("position 1", "1201"), {"position": 1, "needed_bytes": 1201, "given_bytes": 1200}),
    Row("place before", with_store(lambda z: z.gather_var([0], BUFFER, [-1])), errors.DestinationError, -6, ("position 0",)),
    Row("too few places", with_store(lambda z: z.gather_var([0, 1], BUFFER, [0])), errors.DestinationError, -6, ("2 indices",)),
    Row("indices in the destination", with_store(lambda z: (idxs := np.zeros(50, np.int64), z.gather(idxs[:1], idxs, 400))),
        errors.DestinationError, -6, ("shares memory",)),
    Row("source too small", with_store(lambda z: z.append(RECORD, 3, 200)), errors.DestinationError, -6, ("400", "600"),
        {"needed_bytes": 600, "given_bytes": 400}),
    Row("source of objects", with_store(lambda z: z.append(np.empty(3, object), 3, 8)), TypeError, None, ("objects",)),
    Row("record outside the source", with_store(lambda z: z.append_var(RECORD, [0, 399], [1, 2])),
        errors.DestinationError, -6, ("record 1", "399"), {"position": 1}),
    Row("negative count", with_store(lambda z: z.append(RECORD, -1, 4)), errors.OptionError, None, ("n is -1",)),
    Row("closed: gather", closed(lambda z: z.gather([0], BUFFER, 400)), errors.ClosedError, -2, ("closed",)),
    Row("closed: append", closed(lambda z: z.append(RECORD, 1, 400)), errors.ClosedError, -2, ("closed",)),
    Row("closed: len", closed(len), errors.ClosedError, -2, ("closed",)),
    Row("closed: sync", closed(lambda z: z.sync()), errors.ClosedError, -2, ("closed",)),
    Row("closed: pickled", closed(pickle.dumps), errors.ClosedError, -2, ("closed",)),
    Row("change of a handle that reads", lambda p: loaderx.Zrecord(forged(p), mode="r").append(RECORD, 1, 400),
        errors.OptionError, None, ("mode 'r'",), {"option": "mode"}),
    Row("append after its end", ended_append, errors.ClosedError, -2, ("has ended",)),
    Row("change inside an append", nested(lambda z: z.append(RECORD, 1, 400)), errors.StoreLockedError, -2,
        ("end its appending() block",)),
    Row("delete inside an append", nested(lambda z: z.delete([0])), errors.StoreLockedError, -2, ("appending()",)),
    Row("compact inside an append", nested(lambda z: z.compact()), errors.StoreLockedError, -2, ("appending()",)),
    Row("training inside an append", nested(lambda z: z.train_dict(RECORD, [400], 500)), errors.StoreLockedError, -2,
        ("appending()",)),
    Row("a pad of nothing", with_store(lambda z: z.gather_padded([0], 400, b"")), errors.OptionError, None, ("here 0",)),
    Row("a pad that does not divide", with_store(lambda z: z.gather_padded([0], 402, b"abc")), errors.OptionError, None,
        ("here 3", "402")),
    Row("a dictionary of next to nothing", with_store(lambda z: z.train_dict(bytes(9000), [9] * 1000, 100)),
        errors.DictionaryError, -9, ("at least 256 bytes",)),
    Row("a name the system refuses", lambda p: loaderx.write_dataset(p.with_name("x" * 300), [1]), errors.StoreIOError, -2,
        ("name too long",), {"errno": errno.ENAMETOOLONG}),
    Row("a name the system refuses, to replace", lambda p: loaderx.write_dataset(p.with_name("x" * 300), [1],
        overwrite=True), errors.StoreIOError, -2, ("name too long",)),
    Row("a byte store's name the system refuses", lambda p: loaderx.Zrecord(p.with_name("x" * 300)), errors.StoreIOError,
        -2, ("name too long",)),
    Row("lists of different lengths", lambda p: loaderx.write_dataset(p, [[1], [2, 3]]), errors.SchemaError, None,
        ("write_ragged",)),
    Row("a generator as an array", lambda p: loaderx.write_dataset(p, (i for i in range(3))), errors.SchemaError, None,
        ("generator", "write_ragged")),
    Row("text as arrays", lambda p: loaderx.write_ragged(p, "abc"), errors.SchemaError, None, ("str",)),
    Row("bytes as an array", lambda p: loaderx.write_ragged(p, [b"abc"]), errors.SchemaError, None, ("np.frombuffer",)),
    Row("several axes at once", lambda p: (loaderx.write_dataset(p, np.zeros((3, 3))), loaderx.Dataset(p)[:, 0]), TypeError,
        None, ("only the first axis",)),
    Row("max_len that is no number", lambda p: (loaderx.write_ragged(p, [[1]]),
        loaderx.RaggedDataset(p).getitems_padded([0], "3")), errors.OptionError, None, ("'3'",)),
    Row("a pipe for meta.zr", piped("meta.zr"), errors.StoreIOError, -2, ("not a regular file", "meta.zr")),
    Row("a pipe for a chunk", piped("0.zr"), errors.StoreIOError, -2, ("not a regular file", "0.zr")),
    Row("a pipe for dict.zr", piped("dict.zr"), errors.StoreIOError, -2, ("not a regular file", "dict.zr")),
    Row("a pipe for schema.json", piped("schema.json"), errors.StoreIOError, -2, ("not a regular file", "schema.json")),
    Row("a dictionary beyond reason", huge_dictionary, errors.StoreIOError, -2, ("dict.zr", "at most")),
    Row("entry of an unknown chunk, compacted", lambda p: loaderx.Zrecord(forged(p, entry(1, chunk_id=7))).compact(),
        errors.CorruptRecordError, -7, ("no such chunk", "Nothing was changed"), {"record": 1, "chunk": 7}),
    Row("progress that is no function", with_store(lambda z: z.compact(5)), errors.OptionError, None, ("progress is 5",),  # type: ignore[arg-type]
        {"option": "progress", "value": 5}),
    Row("sizes of small integer types", with_store(lambda z: z.append(bytes(100), np.uint8(200), np.uint8(200))),
        errors.DestinationError, -6, ("40000",), {"needed_bytes": 40_000}),
    Row("fractional stride", with_store(lambda z: z.gather([0], BUFFER, 400.5)), errors.OptionError, None, ("400.5",)),  # type: ignore[arg-type]
    Row("negative stride of a padded batch", with_store(lambda z: z.gather_padded([0], -4)), errors.OptionError, None, ("-4",)),
    Row("more empty records than there is room for", with_store(lambda z: z.append(b"", 2**40, 0)), errors.StoreFullError,
        -5, (str(2**40), "format version 3 ends at 16777216 records. Begin another store"), {"limit": 1 << 24}),
    Row("more empty records than any store takes", lambda p: loaderx.Zrecord(p).append(b"", 2**32, 0), errors.StoreFullError,
        -5, (str(2**32), "format version 4 ends at 4294967295 records. Begin another store"), {"limit": (1 << 32) - 1}),
    Row("sizes of samples beyond 64 bits", with_store(lambda z: z.train_dict(b"x" * 1000, np.array([2**63, 2**63], np.uint64), 1000)),
        errors.OptionError, None, (str(2**63), "sizes"), {"option": "sizes"}),
    Row("sizes of samples that add up beyond 64 bits", with_store(lambda z: z.train_dict(b"x" * 1000, [2**62] * 4, 1000)),
        errors.DestinationError, -6, (str(2**64), "1000"), {"needed_bytes": 2**64, "given_bytes": 1000}),
    Row("threads beyond reason", lambda p: loaderx.Zrecord(p, threads=2**40), errors.OptionError, None, ("4096",)),
    Row("threads that is a bool", lambda p: loaderx.Zrecord(p, threads=True), errors.OptionError, None, ("True",)),
    Row("dictionary size beyond reason", lambda p: loaderx.write_dataset(p, [1], "zstd_dict", dict_size=2**70),
        errors.OptionError, None, ("dict_size",)),
    Row("negative item_shape", lambda p: loaderx.write_ragged(p, [], "i1", (-1,)), errors.OptionError, None, ("-1",)),
    Row("fractional item_shape", lambda p: loaderx.write_ragged(p, [], "i1", (1.5,)), errors.OptionError, None, ("1.5",)),  # type: ignore[arg-type]
    Row("empty path", lambda p: loaderx.write_dataset("", [1]), errors.OptionError, None, ("path is empty",)),
    Row("empty path of a byte store", lambda p: loaderx.Zrecord(""), errors.OptionError, None, ("path is empty",)),
    Row("disk full", out_of_space, errors.StoreIOError, -2, ("free some space", "as it was before"),
        {"errno": errno.ENOSPC}),
    Row("no permission", unreadable, errors.StoreIOError, -2, ("Permission denied", "meta.zr"), {"errno": errno.EACCES},
        (pytest.mark.root,)),
    Row("unknown codec", lambda p: loaderx.Zrecord(p, "lz4"), errors.OptionError, None, ("'lz4'", "zstd_dict"),  # type: ignore[arg-type]
        {"option": "codec", "value": "lz4"}),
    Row("unknown codec of one append", with_store(lambda z: z.append(RECORD, 1, 400, "lz4")), errors.OptionError, None,  # type: ignore[arg-type]
        ("'lz4'",)),
    Row("level too high", lambda p: loaderx.Zrecord(p, level=23), errors.OptionError, None, ("level is 23", "22")),
    Row("level that is no number", lambda p: loaderx.Zrecord(p, level="max"), errors.OptionError, None, ("'max'",)),  # type: ignore[arg-type]
    Row("negative threads", lambda p: loaderx.Zrecord(p, threads=-1), errors.OptionError, None, ("threads is -1",)),
    Row("unknown mode", lambda p: loaderx.Zrecord(p, mode="w"), errors.OptionError, None, ("'w'",)),  # type: ignore[arg-type]
    Row("unknown io", lambda p: loaderx.Zrecord(p, io="uring"), errors.OptionError, None, ("'uring'",)),  # type: ignore[arg-type]
    Row("array without an axis", lambda p: loaderx.write_dataset(p, np.array(3)), errors.SchemaError, None, ("no axis",)),
    Row("array of objects", lambda p: loaderx.write_dataset(p, np.array([None])), errors.SchemaError, None, ("objects",)),
    Row("array with objects inside", lambda p: loaderx.write_dataset(p, np.zeros(2, [("a", [("b", "O")])])),
        errors.SchemaError, None, ("objects",)),
    Row("masked array", lambda p: loaderx.write_dataset(p, np.ma.masked_array([1, 2], [0, 1])), errors.SchemaError, None,
        ("mask",)),
    Row("array of another dtype", lambda p: (loaderx.write_dataset(p, np.zeros(2)), loaderx.write_dataset(p, [1, 2])),
        errors.SchemaError, None, ("float64", "int64")),
    Row("array of another shape", lambda p: (loaderx.write_dataset(p, np.zeros((2, 3))),
        loaderx.write_dataset(p, np.zeros((2, 4)))), errors.SchemaError, None, ("(3,)", "(4,)")),
    Row("dataset into a store of bytes", lambda p: (loaderx.Zrecord(p).close(), loaderx.write_dataset(p, [1])),
        errors.SchemaError, None, ("no schema.json", "Zrecord")),
    Row("replacing what is no store", lambda p: (p.write_text("x"), loaderx.write_dataset(p, [1], overwrite=True)),
        errors.NotAStoreError, -8, ("not a directory",)),
    Row("replacing a folder that is no store", lambda p: (p.mkdir(), (p / "notes").write_text("x"),
        loaderx.write_dataset(p, [1], overwrite=True)), errors.NotAStoreError, -8, ("no meta.zr",)),
    Row("too little for a dictionary", lambda p: loaderx.write_dataset(p, [1, 2], "zstd_dict"), errors.DictionaryError, -9,
        ("2 samples",)),
    Row("replacing a store with other files", lambda p: (loaderx.write_dataset(p, [1]), (p / "notes").write_text("x"),
        loaderx.write_dataset(p, [1], overwrite=True)), errors.NotAStoreError, -8, ("notes",)),
    Row("no arrays", lambda p: loaderx.write_ragged(p, []), errors.SchemaError, None, ("no arrays",)),
    Row("ragged array without an axis", lambda p: loaderx.write_ragged(p, [np.zeros(2), np.array(1.0)]),
        errors.SchemaError, None, ("array 1", "no axis")),
    Row("ragged array of other rows", lambda p: loaderx.write_ragged(p, [np.zeros((1, 3)), np.zeros((1, 2))]),
        errors.SchemaError, None, ("array 1", "(2,)", "(3,)")),
    Row("ragged array of another dtype", lambda p: loaderx.write_ragged(p, [np.zeros(2, "i4"), np.zeros(2)]),
        errors.SchemaError, None, ("array 1", "float64", "int32")),
    Row("ragged value that does not fit", lambda p: loaderx.write_ragged(p, [[1], [1 << 40]], dtype="i4"),
        errors.SchemaError, None, ("array 1",)),
    Row("ragged fraction among whole numbers", lambda p: loaderx.write_ragged(p, [[1], [1.5]], dtype="i4"),
        errors.SchemaError, None, ("array 1",)),
    Row("ragged rows of no bytes", lambda p: loaderx.write_ragged(p, [np.zeros((2, 0))]), errors.SchemaError, None,
        ("no bytes",)),
    Row("chunk_bytes of nothing", lambda p: loaderx.write_dataset(p, [1], chunk_bytes=0), errors.OptionError, None,
        ("chunk_bytes is 0",)),
    Row("dict_size of nothing", lambda p: loaderx.write_dataset(p, [1], dict_size=-1), errors.OptionError, None,
        ("dict_size is -1",)),
    Row("mask of another length", lambda p: (loaderx.write_dataset(p, [1, 2, 3]), loaderx.Dataset(p)[np.ones(2, bool)]),
        errors.RecordIndexError, -3, ("(2,)", "(3,)"), {"length": 3}),
    Row("batch over the limit", lambda p: (loaderx.write_dataset(p, np.zeros((9, 9))),
        loaderx.Dataset(p, max_batch_bytes=100)[:]), errors.OptionError, None, ("648", "max_batch_bytes=100")),
    Row("ragged batch over the limit", lambda p: (loaderx.write_ragged(p, [np.zeros(50)] * 9),
        loaderx.RaggedDataset(p, max_batch_bytes=800)[[1, 2, 3]]), errors.OptionError, None, ("1200",)),
    Row("padded batch over the limit", lambda p: (loaderx.write_ragged(p, [np.zeros(50)] * 9),
        loaderx.RaggedDataset(p, max_batch_bytes=800).getitems_padded([1, 2], 60)), errors.OptionError, None, ("960",)),
    Row("out of another dtype", lambda p: (loaderx.write_dataset(p, np.zeros((9, 9))),
        loaderx.Dataset(p).__getitems__([0, 1], out=np.zeros((2, 9), "f4"))), errors.DestinationError, -6,
        ("float64 (2, 9)", "float32 (2, 9)")),
    Row("out of another shape", lambda p: (loaderx.write_dataset(p, np.zeros((9, 9))),
        loaderx.Dataset(p).__getitems__([0, 1], out=np.zeros((3, 9)))), errors.DestinationError, -6, ("(3, 9)",)),
    Row("max_len too small", lambda p: (loaderx.write_ragged(p, [[1], [1, 2, 3], [4]]),
        loaderx.RaggedDataset(p).getitems_padded([0, 1], 2)), errors.OptionError, None, ("record 1", "3 rows", "max_len=2")),
    Row("pad value of another dtype", lambda p: (loaderx.write_ragged(p, [[1]]),
        loaderx.RaggedDataset(p).getitems_padded([0], pad_value=0.5)), errors.OptionError, None, ("0.5", "int64")),
    Row("pad: max_len too small", lambda p: loaderx.pad(np.arange(4), [0, 1, 4], 2), errors.OptionError, None,
        ("position 1", "3 rows")),
    Row("pad: splits of other values", lambda p: loaderx.pad(np.arange(4), [0, 1, 5]), errors.OptionError, None, ("5",)),
]  # fmt: skip


@pytest.mark.parametrize("row", [pytest.param(row, id=row.name, marks=row.marks) for row in ROWS])
def test_bad_input_gives_its_error(row: Row, tmp_path: Path) -> None:
    path = tmp_path / "bad.zr"
    with pytest.raises(row.error) as caught:
        row.make(path)
    error: Any = caught.value
    assert type(error) is row.error
    message = str(error)
    assert "\n" not in message
    for word in row.words:
        assert word in message
    if row.code is not None:
        assert error.code == row.code
        assert isinstance(error, loaderx.ZrecordError)
        assert str(tmp_path) in message
    for name, value in row.attributes.items():
        assert getattr(error, name) == value
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is type(error) and str(copy) == message
    for name in row.attributes:
        assert getattr(copy, name) == getattr(error, name)
    if row.code is not None:
        assert copy.code == row.code


def test_every_class_has_a_row_or_another_test() -> None:
    elsewhere = {
        errors.ArchiveError,
        errors.LoaderxError,
        errors.ZrecordError,
        errors.StoreMemoryError,
        errors.MissingDependencyError,
        errors.StateMismatchError,
        errors.LoaderError,
        errors.StaleIndexError,
        errors.NotAnIndexError,
        errors.StreamError,
    }
    classes = {getattr(errors, name) for name in errors.__all__}
    classes -= {errors.StoreWarning, errors.StaleIndexWarning}
    assert classes - {row.error for row in ROWS} == elsewhere


@pytest.mark.parametrize("number", range(-9, 0))
def test_the_old_numbers_still_make_errors(number: int) -> None:
    error = loaderx.ZrecordError(number)
    assert error.code == number and isinstance(error, RuntimeError) and len(str(error)) > 10
    assert pickle.loads(pickle.dumps(error)).code == number


def test_memory_that_runs_out_is_both() -> None:
    error = errors.StoreMemoryError("no memory", store=Path("s"))
    assert isinstance(error, MemoryError) and isinstance(error, loaderx.ZrecordError) and error.code == -1
    assert pickle.loads(pickle.dumps(error)).store == Path("s")


def test_missing_dependency_keeps_what_to_install() -> None:
    error = errors.MissingDependencyError("no x", package="x", extra="demo")
    copy = pickle.loads(pickle.dumps(error))
    assert isinstance(copy, ImportError) and (copy.package, copy.extra, str(copy)) == ("x", "demo", "no x")
