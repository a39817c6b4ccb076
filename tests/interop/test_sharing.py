"""Stores that both libraries write to, and what each adds that the other does not know."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import loaderx
from tests import oracle
from tests.interop.driver import Peer073, PeerDied, PeerError

pytestmark = pytest.mark.needs_peer


def ours_read(path: Path) -> list[bytes]:
    with loaderx.Zrecord(path, mode="r") as store:
        data, splits = store.gather_packed(np.arange(len(store)))
        return [data[a:b].tobytes() for a, b in itertools.pairwise(splits)]


@pytest.mark.parametrize("codec", ["raw", "zstd", "zstd_dict"])
@pytest.mark.parametrize("first", ["we", "they"])
def test_appended_in_turn(codec: str, first: str, store_path: Path, peer: Peer073) -> None:
    rng = np.random.default_rng(5)
    base = rng.integers(0, 30, size=400, dtype=np.uint8)
    written = np.zeros((0, 120), dtype=np.uint8)
    for turn in range(6):
        part = np.stack([base[i : i + 120] for i in rng.integers(0, 280, size=40)])
        part[:, turn] = np.arange(40)
        if (turn % 2 == 0) == (first == "we"):
            assert loaderx.write_dataset(store_path, part, codec, progress=False) == 40
        else:
            assert peer.write_dataset(store_path, part, codec) == 40
        written = np.concatenate([written, part])
        records = [row.tobytes() for row in written]
        assert oracle.OracleStore(store_path).records() == records
        assert oracle.OracleStore(store_path).faults() == []
        assert ours_read(store_path) == records
        assert peer.read_store(store_path) == records
    assert oracle.read_schema(store_path).codec == codec


def test_bytes_appended_through_zrecord_in_turn(store_path: Path, peer: Peer073) -> None:
    records = [bytes([turn]) * (turn * 37 + 1) for turn in range(12)]
    for turn in range(0, 12, 2):
        lens = np.array([len(records[turn])], dtype=np.uint32)
        with loaderx.Zrecord(store_path) as store:
            first = store.append_var(
                np.frombuffer(records[turn], dtype=np.uint8), np.zeros(1, np.uint64), lens
            )
        assert first == turn
        assert (
            peer.store(store_path, ("append", [records[turn + 1]], "zstd" if turn % 4 else "raw"))[0]
            == turn + 1
        )
    assert (
        ours_read(store_path)
        == peer.read_store(store_path)
        == oracle.OracleStore(store_path).records()
        == records
    )


def test_dictionary_that_we_train_serves_the_peer(store_path: Path, peer: Peer073) -> None:
    rng = np.random.default_rng(6)
    base = rng.integers(0, 30, size=400, dtype=np.uint8)
    samples = np.stack([base[i : i + 120] for i in rng.integers(0, 280, size=200)])
    with loaderx.Zrecord(store_path, "zstd_dict") as store:
        dictionary_bytes = store.train_dict(samples, np.full(200, 120), 2048)
        assert store.has_dict()
    assert (store_path / "dict.zr").stat().st_size == dictionary_bytes
    records = [row.tobytes() for row in samples[:9]]
    assert peer.store(
        store_path, ("has_dict",), ("append_fixed", records, "zstd_dict"), codec="zstd_dict"
    ) == [True, 0]
    assert set(oracle.OracleStore(store_path).codecs()) == {oracle.ZSTD_DICT}
    assert ours_read(store_path) == peer.read_store(store_path) == records


def test_dictionary_that_the_peer_trains_serves_us(store_path: Path, peer: Peer073) -> None:
    rng = np.random.default_rng(6)
    base = rng.integers(0, 30, size=400, dtype=np.uint8)
    samples = np.stack([base[i : i + 120] for i in rng.integers(0, 280, size=200)])
    peer.store(store_path, ("train_dict", [row.tobytes() for row in samples], 2048), codec="zstd_dict")
    with loaderx.Zrecord(store_path, "zstd_dict") as store:
        assert store.has_dict()
        assert store.append(samples[:9], 9, 120) == 0
    assert set(oracle.OracleStore(store_path).codecs()) == {oracle.ZSTD_DICT}
    assert ours_read(store_path) == peer.read_store(store_path) == [row.tobytes() for row in samples[:9]]


DTYPES_OF_BOTH = [
    "|b1", "|i1", "<u2", "<i4", "<i8", "<f2", "<f4", "<f8", "<c8", "<c16",
    "<M8[ns]", "<m8[s]", ">i4", ">f8", "|S5", "<U3", "|V6",
]  # fmt: skip


@pytest.mark.parametrize("text", DTYPES_OF_BOTH)
def test_dtype_that_both_can_say(text: str, store_path: Path, peer: Peer073) -> None:
    dtype = np.dtype(text)
    if dtype.kind == "U":
        array = np.tile(np.array(["a", "é", "xyz", ""], dtype=dtype), (10, 1))
    else:
        largest = 1 if dtype.kind == "b" else 100
        raw = np.random.default_rng(8).integers(0, largest, size=(10, 4 * dtype.itemsize), endpoint=True)
        array = raw.astype(np.uint8).view(dtype)
    loaderx.write_dataset(store_path, array, progress=False)
    assert json.loads((store_path / "schema.json").read_text())["dtype"] == text
    theirs = peer.index("Dataset", store_path, slice(None))[0]
    assert theirs.dtype == dtype
    assert theirs.dtype.str == text
    assert theirs.shape == (10, 4)
    assert theirs.tobytes() == array.tobytes()


def test_dtypes_that_only_we_can_say_are_bytes_to_the_peer(
    new_path: Callable[[], Path], peer: Peer073
) -> None:
    fields = np.array(
        [(1, 2.5, [3, 4]), (5, 6.5, [7, 8])], dtype=[("a", "<i4"), ("b", ">f8"), ("c", "<u2", (2,))]
    )
    brain = np.arange(6).astype(ml_dtypes.bfloat16).reshape(3, 2)
    for array in (fields, brain):
        path = new_path()
        loaderx.write_dataset(path, array, progress=False)
        assert "descr" in json.loads((path / "schema.json").read_text())
        theirs = peer.index("Dataset", path, slice(None))[0]
        assert theirs.tobytes() == array.tobytes()
        assert len(theirs) == len(array)
        with loaderx.Dataset(path) as dataset:
            assert dataset.dtype == array.dtype
            assert dataset[:].tobytes() == array.tobytes()


def test_schema_keys_unknown_to_either(store_path: Path, peer: Peer073) -> None:
    array = np.arange(12, dtype=np.int16).reshape(6, 2)
    loaderx.write_dataset(store_path, array, progress=False)
    schema_path = store_path / "schema.json"
    schema_path.write_text(
        json.dumps(json.loads(schema_path.read_text()) | {"later": {"x": [1, None]}, "a": "b"})
    )
    more = array + 100
    assert peer.write_dataset(store_path, more, "zstd") == 6
    assert loaderx.write_dataset(store_path, more + 100, progress=False) == 6
    expected = np.concatenate([array, more, more + 100])
    with loaderx.Dataset(store_path) as dataset:
        assert dataset[:].tobytes() == expected.tobytes()
    assert peer.index("Dataset", store_path, slice(None))[0].tobytes() == expected.tobytes()
    assert json.loads(schema_path.read_text())["later"] == {"x": [1, None]}


def test_reserved_byte_and_short_chunks_are_read_by_both(store_path: Path, peer: Peer073) -> None:
    forge = oracle.Forge()
    records = [b"one", b"two" * 50, b"", b"four"]
    for index, record in enumerate(records):
        forge.add(record, oracle.ZSTD, new_chunk=index == 2)
    forge.entries[0]["reserved"] = 7
    forge.write(store_path)
    assert ours_read(store_path) == peer.read_store(store_path) == records
    # both then write into chunk files shorter than the 4 GiB that 0.7.3 gives them
    peer.store(store_path, ("append", [b"theirs" * 30]))
    with loaderx.Zrecord(store_path) as store:
        store.append(np.frombuffer(b"ours" * 30, dtype=np.uint8), 1, 120)
    records += [b"theirs" * 30, b"ours" * 30]
    assert ours_read(store_path) == peer.read_store(store_path) == records


def test_peer_refuses_what_we_refuse(store_path: Path, peer: Peer073) -> None:
    forge = oracle.Forge()
    forge.add(b"one")
    forge.add(b"two")
    forge.entries[1]["codec"] = 3
    forge.write(store_path)
    with pytest.raises(PeerError) as theirs:
        peer.store(store_path, ("read", [1]))
    with loaderx.Zrecord(store_path, mode="r") as store, pytest.raises(loaderx.ZrecordError) as ours:
        store.gather_packed([1])
    assert ours.value.code == theirs.value.code == -7
    assert peer.store(store_path, ("read", [0]))[0] == [b"one"]


@pytest.mark.parametrize(
    ("steps", "code"),
    [
        pytest.param([("read", [2])], -3, id="index"),
        pytest.param([("delete", [2])], -3, id="delete"),
        # of a store that holds records; one that holds none, or may be upgraded, becomes version 4 here
        pytest.param([("append", [b"x" * ((1 << 20) + 1)])], -4, id="too_large"),
    ],
)
def test_codes_are_those_of_the_peer(steps: list[Any], code: int, store_path: Path, peer: Peer073) -> None:
    oracle_forge = oracle.Forge()
    oracle_forge.add(b"one")
    oracle_forge.add(b"two")
    oracle_forge.write(store_path)
    with pytest.raises(PeerError) as theirs:
        peer.store(store_path, *steps)
    assert theirs.value.code == code
    name, argument = steps[0]
    with loaderx.Zrecord(store_path) as store, pytest.raises(loaderx.ZrecordError) as ours:
        if name == "append":
            store.append(argument[0], 1, len(argument[0]))
        else:
            (store.gather_packed if name == "read" else store.delete)(argument)
    assert ours.value.code == code


def test_driver_tells_a_crash_from_an_error(store_path: Path, peer: Peer073) -> None:
    with pytest.raises(PeerError, match="ValueError: unknown codec"):
        peer.store(store_path, ("count",), codec="lz4")
    peer.ask("hello")
    assert peer._process is not None
    peer._process.kill()
    with pytest.raises(PeerDied):
        peer.ask("hello")
    assert peer.ask("hello")[0] == "0.7.3"
