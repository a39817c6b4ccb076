"""Damaged and hostile files: the right data or an error, the same that the oracle comes to, and never a crash.

Each example damages one file of a small store and reads every record of it through both. The damaged stores are
cut short after their last table entry, so that a forged length runs out of the file.
"""

from __future__ import annotations

import dataclasses
import struct
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zstandard
from hypothesis import example, given, settings
from hypothesis import strategies as st

import loaderx
from tests import oracle

N = 9
ITEM = 60


@cache
def samples() -> tuple[list[bytes], bytes]:
    """Return records that a dictionary shrinks, and the dictionary."""
    rng = np.random.default_rng(4)
    base = rng.integers(0, 12, size=300, dtype=np.uint8).tobytes()
    records = [base[start : start + ITEM] for start in rng.integers(0, 240, size=200)]
    return records[:N], oracle.train(records, 1024)


versions = pytest.mark.parametrize("version", [oracle.VERSION, oracle.WIDE])


def make_forge(kind: str, version: int = oracle.VERSION) -> oracle.Forge:
    """Return a right store, all of its version's codecs and two chunks in it; `kind` is 'fixed' or 'ragged'."""
    records, dictionary = samples()
    forge = oracle.Forge(version=version, dictionary=dictionary)
    n_codecs = oracle.LIMITS[version].codec + 1
    for index, record in enumerate(records):
        part = record if kind == "fixed" else record[: 4 * index]
        forge.add(part, index % n_codecs, item_size=2 + index, keep=True, new_chunk=index == 5)
    forge.describe(
        "<i2" if kind == "fixed" else "<i4", [ITEM // 2] if kind == "fixed" else [], ragged=kind != "fixed"
    )
    return forge


@st.composite
def damages(draw: st.DrawFn) -> Any:
    """Draw a function that damages bytes: flips, overwrites, cuts, inserts, or all new."""
    how = draw(st.sampled_from(["flip", "flip", "set", "field", "cut", "grow", "insert", "remove", "new"]))
    where = draw(st.integers(0, 1 << 16))
    value = draw(st.integers(0, (1 << 32) - 1))
    extra = draw(st.binary(min_size=1, max_size=24))

    def damage(content: bytes) -> bytes:
        place = where % (len(content) + 1)
        if how == "flip":
            place = min(place, len(content) - 1)
            return content[:place] + bytes([content[place] ^ (1 << value % 8)]) + content[place + 1 :]
        if how == "set":
            return content[:place] + extra + content[place + len(extra) :]
        if how == "field":
            place -= place % 4
            return content[:place] + struct.pack("<I", value) + content[place + 4 :]
        if how == "cut":
            return content[:place]
        if how == "grow":
            return content + extra
        if how == "insert":
            return content[:place] + extra + content[place:]
        if how == "remove":
            return content[:place] + content[place + len(extra) :]
        return extra

    return damage


def slow_verdicts(path: Path) -> list[oracle.Verdict]:
    """Open with the oracle: one verdict if that fails, else one per record."""
    opened = oracle.oracle_verdict(lambda: oracle.OracleStore(path))
    if opened.error:
        return [opened]
    return [
        oracle.oracle_verdict(lambda index=index: opened.value.record(index))
        for index in range(len(opened.value))
    ]


def fast_verdicts(path: Path, io: str) -> list[oracle.Verdict]:
    """Open with the library and read each record alone, then all at once."""
    opened = oracle.library_verdict(lambda: loaderx.Zrecord(path, mode="r", io=io), loaderx.LoaderxError)
    if opened.error:
        return [opened]
    with opened.value as store:
        alone = [
            oracle.library_verdict(lambda index=index: read_one(store, index), loaderx.LoaderxError)
            for index in range(len(store))
        ]
        whole = oracle.library_verdict(
            lambda: store.gather_packed(np.arange(len(store))), loaderx.LoaderxError
        )
    # a batch ends as its first bad record does, or is all of them
    bad = [verdict for verdict in alone if verdict.error]
    if bad:
        assert (whole.error, whole.code) == (bad[0].error, bad[0].code)
    else:
        assert whole.value[0].tobytes() == b"".join(verdict.value for verdict in alone)
    return alone


def read_one(store: Any, index: int) -> bytes:
    data, splits = store.gather_packed([index])
    assert splits.tolist() == [0, len(data)] == [0, store.lengths([index])[0]]
    return bytes(data.tobytes())


def same_libzstd() -> bool:
    version = ".".join(map(str, zstandard.ZSTD_VERSION))
    return bool(loaderx.build_info()["zstd_version"] == version)


def check_store(path: Path) -> None:
    expected = slow_verdicts(path)
    for io in ("mmap", "pread"):
        verdicts = fast_verdicts(path, io)
        assert len(verdicts) == len(expected)
        for index, (ours, slow) in enumerate(zip(verdicts, expected, strict=True)):
            if slow.depends_on_libzstd and ours.error is None and not same_libzstd():
                # an older libzstd may miss the damage; the length is right all the same
                entry = oracle.OracleStore(path).table[index]
                assert len(ours.value) == entry["logic_length"]
            else:
                assert ours == slow


def write_damaged(forge: oracle.Forge, folder: str, name: str, damage: Any) -> Path:
    path = forge.write(Path(folder) / "store.zr", meta_bytes=None)
    file = path / name
    file.write_bytes(damage(file.read_bytes()))
    return path


@versions
@pytest.mark.parametrize("kind", ["fixed", "ragged"])
def test_undamaged_store_is_read_whole(kind: str, version: int, tmp_path: Path) -> None:
    forge = make_forge(kind, version)
    path = forge.write(tmp_path / "store.zr", meta_bytes=None)
    verdicts = slow_verdicts(path)
    assert len(verdicts) == N
    assert all(verdict.error is None for verdict in verdicts)
    assert set(oracle.OracleStore(path).codecs()) == set(range(oracle.LIMITS[version].codec + 1))
    check_store(path)


@versions
@pytest.mark.parametrize("name", ["meta.zr", "0.zr", "1.zr", "dict.zr"])
@given(damage=damages())
@example(damage=lambda content: b"")
@example(damage=lambda content: bytes(len(content)))
@example(damage=lambda content: b"\xff" * len(content))
def test_damaged_file(name: str, version: int, damage: Any) -> None:
    with tempfile.TemporaryDirectory() as folder:
        check_store(write_damaged(make_forge("ragged", version), folder, name, damage))


@pytest.mark.slow
@versions
@pytest.mark.parametrize("name", ["meta.zr", "0.zr", "1.zr", "dict.zr"])
def test_every_flipped_bit(name: str, version: int, tmp_path: Path) -> None:
    path = make_forge("ragged", version).write(tmp_path / "store.zr", meta_bytes=None)
    content = (path / name).read_bytes()
    assert len(content) > 50
    for bit in range(8 * len(content)):
        flipped = bytearray(content)
        flipped[bit // 8] ^= 1 << bit % 8
        (path / name).write_bytes(flipped)
        check_store(path)


entry_fields = st.sampled_from(["offset", "phys_length", "logic_length", "chunk_id", "codec", "reserved"])
near_limits = st.sampled_from(
    [0, 1, 2, 3, 59, 60, 61, 255, 256, 4095, 4096, 65535, 65536, 1 << 20, (1 << 20) + 1]
)
field_values = st.one_of(near_limits, st.integers(0, 255), st.integers((1 << 32) - 300, (1 << 32) - 1))


@versions
@given(changes=st.lists(st.tuples(st.integers(0, N - 1), entry_fields, field_values), min_size=1, max_size=4))
@example(changes=[(0, "offset", (1 << 32) - 1)])
@example(changes=[(0, "offset", (1 << 32) - 60), (0, "phys_length", 60), (0, "logic_length", 60)])
@example(changes=[(1, "logic_length", (1 << 32) - 1)])
@example(changes=[(1, "phys_length", 0), (1, "logic_length", 0)])
@example(changes=[(3, "reserved", 255)])
@example(changes=[(4, "logic_length", 61), (3, "reserved", 1)])
@example(changes=[(0, "codec", 3), (5, "codec", 5)])
def test_forged_entries(version: int, changes: list[tuple[int, str, int]]) -> None:
    forge = make_forge("fixed", version)
    for index, name, value in changes:
        width = {"chunk_id": 16, "codec": 8, "reserved": 8}.get(name, 32)
        forge.entries[index][name] = value % (1 << width)
    with tempfile.TemporaryDirectory() as folder:
        path = forge.write(Path(folder) / "store.zr", meta_bytes=None)
        check_store(path)
        check_dataset(path)


@cache
def large_forge() -> tuple[oracle.Forge, list[bytes]]:
    """Return a store whose batches are large enough for a team of threads, and its records."""
    records, dictionary = samples()
    forge = oracle.Forge(dictionary=dictionary)
    rng = np.random.default_rng(9)
    many = [records[index % N] * int(size) for index, size in enumerate(rng.integers(0, 30, size=900))]
    for index, record in enumerate(many):
        forge.add(
            record, (oracle.RAW, oracle.ZSTD, oracle.RAW, oracle.ZSTD_DICT)[index % 4], new_chunk=index == 400
        )
    return forge, many


def gather_into(store: Any, batch: Any, stride: int) -> np.ndarray[Any, Any]:
    rows = np.full((len(batch), stride), 0xA5, dtype=np.uint8)
    store.gather(batch, rows, stride)
    return rows


@given(bad=st.sets(st.integers(0, 899), max_size=6), seed=st.integers(0, 1000))
@settings(max_examples=settings.default.max_examples // 4)
def test_a_team_of_threads_reads_and_fails_as_one_thread(bad: set[int], seed: int) -> None:
    forge, records = large_forge()
    batch = np.random.default_rng(seed).permutation(len(records))
    assert sum(map(len, records)) > 512 << 10
    stride = max(map(len, records))
    entries = [dict(entry) for entry in forge.entries]
    for index in bad:
        entries[index]["codec"] = 7
    first_bad = next((int(index) for index in batch if index in bad), None)
    with tempfile.TemporaryDirectory() as folder:
        path = dataclasses.replace(forge, entries=entries).write(Path(folder) / "store.zr", meta_bytes=None)
        for io in ("mmap", "pread"):
            for threads in (1, 2, 5):
                with loaderx.Zrecord(path, mode="r", io=io, threads=threads) as store:
                    reads = [lambda: store.gather_packed(batch), lambda: gather_into(store, batch, stride)]
                    if first_bad is None:
                        assert reads[0]()[0].tobytes() == b"".join(records[index] for index in batch)
                        for row, index in zip(reads[1](), batch, strict=True):
                            assert row[: len(records[index])].tobytes() == records[index]
                        continue
                    for read in reads:
                        with pytest.raises(loaderx.CorruptRecordError) as caught:
                            read()
                        assert caught.value.record == first_bad


@given(
    length=st.one_of(st.integers(0, N + 2), st.sampled_from([1 << 24, (1 << 24) + 1, (1 << 32) - 1])),
    tail_chunk=st.one_of(st.integers(0, 3), st.sampled_from([4095, 4096, 65535])),
    tail_offset=st.integers(0, (1 << 32) - 1),
    version=st.sampled_from([3, 3, 3, 0, 1, 2, 4, 65535]),
    magic=st.sampled_from([b"ZREC", b"ZREC", b"ZREC", b"zrec", b"\0\0\0\0"]),
)
def test_forged_header(length: int, tail_chunk: int, tail_offset: int, version: int, magic: bytes) -> None:
    forge = make_forge("fixed")
    forge.length, forge.tail_chunk, forge.tail_offset = length, tail_chunk, tail_offset
    forge.version, forge.magic = version, magic
    with tempfile.TemporaryDirectory() as folder:
        check_store(forge.write(Path(folder) / "store.zr", meta_bytes=None))


@given(frame=st.binary(max_size=40), logic_length=st.one_of(st.integers(0, 100), near_limits))
@example(frame=b"", logic_length=0)
@example(frame=oracle.compress(b"", oracle.ZSTD), logic_length=0)
@example(frame=oracle.compress(b"ab", oracle.ZSTD) * 2, logic_length=2)
@example(frame=oracle.compress(b"ab", oracle.ZSTD) + b"\0", logic_length=2)
@example(frame=oracle.compress(bytes(1 << 20), oracle.ZSTD), logic_length=1 << 20)
@example(frame=oracle.compress(bytes((1 << 20) + 1), oracle.ZSTD), logic_length=(1 << 20) + 1)
@pytest.mark.parametrize(("version", "codec"), [(3, oracle.ZSTD), (4, oracle.ZSTD), (4, oracle.ZSTD_SHUFFLE)])
def test_forged_frame(version: int, codec: int, frame: bytes, logic_length: int) -> None:
    forge = oracle.Forge(version=version)
    forge.add(b"before")
    forge.add(frame)
    forge.add(b"behind")
    item_size = 3 if codec == oracle.ZSTD_SHUFFLE else 0
    forge.entries[1] |= {"codec": codec, "logic_length": logic_length, "reserved": item_size}
    with tempfile.TemporaryDirectory() as folder:
        check_store(forge.write(Path(folder) / "store.zr", meta_bytes=None))


def check_dataset(path: Path) -> None:
    """The array layer comes to the oracle's verdict, or finds a wrong schema before it looks at a record."""
    slow_read, fast_class = (
        (oracle.read_ragged, loaderx.RaggedDataset)
        if oracle.oracle_verdict(lambda: oracle.read_schema(path).kind).value == "ragged"
        else (oracle.read_dataset, loaderx.Dataset)
    )
    expected = oracle.oracle_verdict(lambda: slow_read(path))

    def read() -> Any:
        with fast_class(path) as dataset:
            assert len(dataset) < 1000
            return [dataset[index] for index in range(len(dataset))]

    got = oracle.library_verdict(read, loaderx.LoaderxError)
    if expected.error:
        if expected.depends_on_libzstd and got.error is None and not same_libzstd():
            return
        assert got.error is not None, f"the oracle says {expected.error}"
        assert got.error in {expected.error, "SchemaError", "CorruptRecordError"}
        if expected.error == "SchemaError":
            assert got.error == "SchemaError"
        return
    assert got.error is None, got
    assert len(got.value) == len(expected.value)
    for ours, theirs in zip(got.value, expected.value, strict=True):
        assert ours.dtype == theirs.dtype
        assert ours.shape == theirs.shape
        assert ours.tobytes() == theirs.tobytes()


json_scalars = st.one_of(
    st.none(), st.booleans(), st.integers(-(2**70), 2**70), st.floats(allow_nan=False), st.text(max_size=6)
)
json_lists = st.lists(json_scalars, max_size=3)
json_values = st.one_of(
    json_scalars,
    json_lists,
    st.lists(json_lists, max_size=2),
    st.dictionaries(st.text(max_size=4), json_scalars | json_lists, max_size=2),
)
dtype_texts = st.one_of(
    st.sampled_from(
        ["<i2", ">i2", "|u1", "<f4", "|V2", "|S2", "<U1", "<M8[ns]", "|b1", "O", "|O", "i2,i2", "V0", "S0", "float",
         "(2,)i2", "<i2 ", "bfloat16", "None", "", "V", "U", "<i3", "i2,O", "T", "=i2", "V9999999999", "a2",
         "|a60", "|c60", "<h2", "|B60", "c8"]
    ),
    st.text(max_size=5),
    st.text(alphabet="<>|=iufcSUVMmOb?0123456789[](),:{}'", max_size=7),
)  # fmt: skip
extents = st.one_of(
    st.integers(-2, 40), st.sampled_from([2**31, 2**62, 2**63, 2**64, 10**30, True, 1.0, "3", None])
)
shapes = st.one_of(st.lists(extents, max_size=4), st.lists(st.just(1), min_size=30, max_size=70), json_values)
schema_changes = st.one_of(
    st.tuples(st.just("dtype"), st.one_of(dtype_texts, json_values)),
    st.tuples(st.just("shape"), shapes),
    st.tuples(st.just("item_shape"), shapes),
    st.tuples(
        st.just("codec"), st.one_of(st.sampled_from(["raw", "zstd", "zstd_dict", "lz4", "RAW"]), json_values)
    ),
    st.tuples(st.just("ragged"), json_values),
    st.tuples(st.just("version"), st.one_of(st.sampled_from([1, 1.0, True, 2, "1"]), json_values)),
    st.tuples(st.just("format"), json_values),
    st.tuples(st.text(max_size=5), json_values),
    st.tuples(
        st.sampled_from(["dtype", "shape", "codec", "version", "format", "item_shape"]), st.just("REMOVE")
    ),
)


@pytest.mark.parametrize("kind", ["fixed", "ragged"])
@given(changes=st.lists(schema_changes, min_size=1, max_size=3))
@example(changes=[("shape", [2**62, 4, 0])])
@example(changes=[("shape", [2**31, 2**31, 2**31])])
@example(changes=[("shape", [2**31, 2**31, 2**31, 0])])
@example(changes=[("item_shape", [2**31, 2**31, 2**31, 0])])
@example(changes=[("item_shape", [0])])
@example(changes=[("shape", [0]), ("dtype", "<i2")])
@example(changes=[("shape", [1] * 64)])
@example(changes=[("version", True)])
def test_forged_schema(kind: str, changes: list[tuple[str, Any]]) -> None:
    forge = make_forge(kind)
    for name, value in changes:
        if value == "REMOVE":
            forge.schema.pop(name, None)
        elif name != "descr":
            forge.schema[name] = value
    with tempfile.TemporaryDirectory() as folder:
        check_dataset(forge.write(Path(folder) / "store.zr", meta_bytes=None))


@pytest.mark.parametrize("kind", ["fixed", "ragged"])
@given(damage=damages())
@example(damage=lambda content: b"")
@example(damage=lambda content: b"null")
@example(damage=lambda content: b"[" * 100_000)
@example(damage=lambda content: b'{"a":' * 100_000)
@example(damage=lambda content: content[:-1])
@example(damage=lambda content: b"\xef\xbb\xbf" + content)
@example(damage=lambda content: content.decode().encode("utf-16"))
@example(damage=lambda content: content.replace(b'"shape"', b'"shape": 1, "shape"'))
@example(damage=lambda content: b"1" * 5000)
def test_damaged_schema(kind: str, damage: Any) -> None:
    with tempfile.TemporaryDirectory() as folder:
        check_dataset(write_damaged(make_forge(kind), folder, "schema.json", damage))


plain_formats = st.sampled_from(
    ["<i2", "|u1", "<f8", "|O", "O", "bfloat16", "float8_e4m3fn", "finfo", "", "|S0"]
)
counts = st.one_of(st.integers(-1, 70), st.sampled_from([2**31, 2**40, 2**63, True, None, "1"]))


def structures(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.fixed_dictionaries(
        {
            "names": st.lists(st.sampled_from(["a", "b", ""]) | json_values, max_size=3),
            "formats": st.lists(inner, max_size=3),
            "offsets": st.lists(counts, max_size=3),
            "itemsize": counts,
        },
        optional={
            "titles": st.lists(st.none() | st.just("t"), max_size=3),
            "aligned": st.booleans() | json_values,
        },
    )


def nested(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    in_an_array = st.tuples(inner, st.lists(extents, max_size=2)).map(list)
    return st.one_of(in_an_array, st.lists(inner, max_size=2), structures(inner))


flat_descrs = plain_formats | json_values
descrs = st.one_of(flat_descrs, nested(flat_descrs), nested(nested(flat_descrs)))


def fields(formats: list[Any], offsets: list[Any], itemsize: Any = ITEM, **more: Any) -> dict[str, Any]:
    names = ["a", "b", "c"][: len(formats)]
    return {"names": names, "formats": formats, "offsets": offsets, "itemsize": itemsize} | more


@given(descr=descrs)
@example(descr=fields([["<i2", [30]]], [0]))
@example(descr=fields(["<i2", "|u1"], [0, 59]))
@example(descr=fields(["<i2", "<i2"], [0, 1]))
@example(descr=fields(["<i2", "<i2"], [58, 59]))
@example(descr=fields(["|O"], [0]))
@example(descr=fields([fields(["|O"], [0])], [0]))
@example(descr=fields([["<i2", [2**31, 2**31]]], [0]))
@example(descr=fields([["<i2", [-1]]], [0]))
@example(descr=fields(["<i2", "<i2"], [0, 2], names=["a", "a"]))
@example(descr=fields(["<i2", "<i2"], [0, 2], titles=["t", "t"]))
@example(descr=fields(["<i2"], [2**31 - 1], 2**31 - 1))
@example(descr=fields(["<i2"], [1], aligned=True))
@example(descr=fields([], []))
@example(descr=["<i2", [30]])
@example(descr=["<i2", [30, 1]])
@example(descr="|O")
def test_forged_descr(descr: Any) -> None:
    forge = make_forge("fixed")
    forge.schema |= {"descr": descr, "dtype": f"|V{ITEM}", "shape": []}
    with tempfile.TemporaryDirectory() as folder:
        path = forge.write(Path(folder) / "store.zr", meta_bytes=None)

        def read() -> Any:
            with loaderx.Dataset(path) as dataset:
                assert not dataset.dtype.hasobject
                got = dataset[:]
                assert got.dtype == dataset.dtype
                assert got.shape == (len(dataset), *dataset.shape)
                return got

        got = oracle.library_verdict(read, loaderx.LoaderxError)
        if got.error:
            assert got.error == "SchemaError"
            assert oracle.oracle_verdict(lambda: oracle.read_schema(path)).error == "SchemaError"
        else:
            assert got.value.tobytes() == b"".join(oracle.OracleStore(path).records())


@pytest.mark.parametrize("dtype", ["|S0", "<U0", "|V0"])
@pytest.mark.parametrize("shape", [[], [30], [2, 3]])
def test_items_without_bytes_are_no_stray_memory(dtype: str, shape: list[int], tmp_path: Path) -> None:
    # NumPy makes arrays of S1 where it is asked for S0: bytes that no record fills
    forge = oracle.Forge()
    for _ in range(3):
        forge.add(b"")
    forge.describe(dtype, shape)
    path = forge.write(tmp_path / "store.zr", meta_bytes=None)
    got = oracle.library_verdict(lambda: loaderx.Dataset(path), loaderx.LoaderxError)
    if got.error:
        assert got.error == "SchemaError"
        return
    with got.value as dataset:
        for value in (dataset[:], dataset[[0, 2]], dataset[1]):
            assert value.dtype == dataset.dtype
            assert value.nbytes == 0


@given(content=st.binary(max_size=200))
def test_random_bytes_for_every_file(content: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "store.zr"
        path.mkdir()
        for name in ("meta.zr", "0.zr", "dict.zr", "schema.json"):
            (path / name).write_bytes(content)
        check_store(path)
        with pytest.raises(loaderx.SchemaError):
            loaderx.Dataset(path)
        assert sorted(file.name for file in path.iterdir()) == ["0.zr", "dict.zr", "meta.zr", "schema.json"]
