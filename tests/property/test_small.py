"""Small records take a way of their own, and so does one record alone: both end as the general way does, errors too.

Records that are not mapped (``io="pread"``) go the general way.
"""

from __future__ import annotations

import dataclasses
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

import loaderx
from tests import oracle

N = 120
SIZES = (1, 2, 3, 4, 8, 16, 33, 64)


@cache
def sound_forge(record_bytes: int) -> oracle.Forge:
    """Return a store in three chunks, most of it raw; its records are of one size, or of any where that is 0."""
    rng = np.random.default_rng(record_bytes)
    forge = oracle.Forge()
    for index in range(N):
        n_bytes = record_bytes or int(rng.choice([0, 4, 40, 400, 9000], p=[0.1, 0.3, 0.3, 0.25, 0.05]))
        codec = oracle.ZSTD if index % 7 == 3 else oracle.RAW
        forge.add(rng.integers(0, 4, n_bytes, np.uint8).tobytes(), codec, new_chunk=index in (50, 90))
    return forge


entry_damages = st.dictionaries(
    st.integers(0, N - 1),
    st.tuples(
        st.sampled_from(["offset", "phys_length", "logic_length", "chunk_id", "codec"]),
        st.one_of(st.integers(0, 5), st.integers(0, 9000), st.just(1 << 20), st.integers(0, (1 << 16) - 1)),
    ),
    max_size=3,
)
batches = st.lists(st.integers(-N, N - 1), max_size=60).map(lambda idxs: np.array(idxs, np.int64))
wrong_batches = st.lists(st.integers(-N - 2, N + 1), max_size=10).map(lambda idxs: np.array(idxs, np.int64))
far_batches = st.lists(st.integers(0, N), max_size=4).map(lambda idxs: np.array([*idxs, 1 << 63], np.uint64))


def outcome(read: Callable[[], Any]) -> Any:
    """Return the bytes that a read gives, or the class, text and attributes of its error."""
    try:
        found = read()
    except loaderx.LoaderxError as error:
        return type(error), str(error), {name: str(value) for name, value in vars(error).items()}
    return [(part.dtype.str, part.shape, part.tobytes()) for part in found]


def reads_of(store: Any, batch: Any, stride: int) -> list[Callable[[], Any]]:
    def gather(exact: bool) -> Any:
        rows = np.full((len(batch), stride), 0xA5, np.uint8)
        store.gather(batch, rows, stride, exact=exact)
        return [rows]

    return [
        lambda: gather(True),
        lambda: gather(False),
        lambda: store.gather_packed(batch),
        lambda: store.gather_padded(batch, None, b"\0\0" if stride % 2 == 0 else b"x"),
        lambda: store.gather_padded(batch, stride, b"\xab"),
    ]


@given(
    record_bytes=st.sampled_from([0, *SIZES]),
    damages=entry_damages,
    batch=st.one_of(batches, batches, wrong_batches, far_batches),
    cut=st.one_of(st.none(), st.none(), st.integers(0, 400)),
    wide=st.booleans(),
)
@settings(max_examples=settings.default.max_examples * 2)
def test_small_records_are_read_as_the_general_way_does(
    record_bytes: int, damages: dict[int, tuple[str, int]], batch: Any, cut: int | None, wide: bool
) -> None:
    forge = sound_forge(record_bytes)
    entries = [dict(entry) for entry in forge.entries]
    for index, (field, value) in damages.items():
        if field != "chunk_id" or value < 1 << 16:
            entries[index][field] = value if field != "codec" else value % 256
    with tempfile.TemporaryDirectory() as folder:
        path = dataclasses.replace(forge, entries=entries).write(Path(folder) / "store.zr", meta_bytes=None)
        chunk = path / "1.zr"
        if cut is not None:
            with chunk.open("r+b") as file:
                file.truncate(min(cut, chunk.stat().st_size))
        stride = record_bytes or (9000 if wide else 400)
        try:
            quick = loaderx.Zrecord(path, mode="r")
        except loaderx.LoaderxError:
            return
        with quick, loaderx.Zrecord(path, mode="r", io="pread") as general:
            for fast, slow in zip(
                reads_of(quick, batch, stride), reads_of(general, batch, stride), strict=True
            ):
                assert outcome(fast) == outcome(slow)


@given(
    record_bytes=st.sampled_from(SIZES),
    damages=entry_damages,
    index=st.one_of(st.integers(-N - 2, N + 1), st.sampled_from([1 << 62, 1 << 63, -(1 << 63) - 1, 1 << 80])),
    kind=st.sampled_from([int, np.int64, np.int16, np.uint64]),
    io=st.sampled_from(["mmap", "pread"]),
    verify=st.booleans(),
)
def test_one_record_is_read_as_a_batch_of_one_is(
    record_bytes: int, damages: dict[int, tuple[str, int]], index: int, kind: Any, io: Any, verify: bool
) -> None:
    forge = dataclasses.replace(sound_forge(record_bytes))
    forge.entries = [dict(entry) for entry in forge.entries]
    for at, (field, value) in damages.items():
        forge.entries[at][field] = value % 256 if field == "codec" else value % (1 << 16)
    try:
        number = kind(index)
    except OverflowError:
        number = index
    if int(number) != index:
        number = index
    shape = [] if record_bytes in (1, 2, 4, 8) else [record_bytes]
    forge.describe({1: "|u1", 2: "<i2", 4: "<f4", 8: "<M8[ns]"}.get(record_bytes, "|u1"), shape)
    with tempfile.TemporaryDirectory() as folder:
        path = forge.write(Path(folder) / "store.zr", meta_bytes=None)
        try:
            dataset = loaderx.Dataset(path, io=io, verify=verify)
        except loaderx.LoaderxError:
            return
        with dataset:
            alone = outcome(lambda: [dataset[number]])
            assert alone == outcome(lambda: [dataset[[number]][0]])
            if isinstance(alone, list):
                record = dataset[number]
                assert type(record) is type(dataset[[number]][0])
                assert not shape or record.flags.writeable
