"""Any sequence of appends, deletes and compactions leaves what a plain list holds, whichever way it is read."""

from __future__ import annotations

import itertools
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import loaderx
from tests import oracle

OVER_1_MIB = bytes(range(256)) * 4096 + b"!"
record = st.one_of(
    st.sampled_from([b"", OVER_1_MIB]),
    st.binary(max_size=40),
    st.integers(0, 3000).map(lambda size: bytes(size)),
    st.integers(1, 400).map(lambda size: bytes(range(10)) * size),
)
steps = st.lists(
    st.one_of(
        st.tuples(
            st.just("append"),
            st.lists(record, max_size=6),
            st.sampled_from([None, "raw", "zstd", "zstd_shuffle"]),
        ),
        st.tuples(st.just("append_fixed"), st.integers(1, 6), st.integers(1, 300)),
        st.tuples(st.just("delete"), st.lists(st.integers(0, 1 << 20), max_size=6), st.booleans()),
        st.tuples(st.just("compact"), st.none(), st.none()),
        st.tuples(st.just("reopen"), st.none(), st.none()),
    ),
    min_size=1,
    max_size=8,
)


def append(store: Any, records: list[bytes], codec: str | None) -> int:
    lens = np.array([len(item) for item in records], dtype=np.uint32)
    offsets = np.concatenate([[0], np.cumsum(lens)[:-1]]).astype(np.uint64)[: len(records)]
    return int(store.append_var(b"".join(records), offsets, lens, codec, item_size=3))


def needs_wide(records: list[bytes], codec: str | None) -> bool:
    return codec == "zstd_shuffle" or OVER_1_MIB in records


def is_refused(store: Any, model: list[bytes], records: list[bytes], codec: str | None) -> bool:
    """Return whether an append needs version 4 of a store that may not become it."""
    may_be_wide = store.upgrade or not model or oracle.OracleStore(store.path).version == oracle.WIDE
    return needs_wide(records, codec) and not may_be_wide


def check(store: Any, model: list[bytes]) -> None:
    """Read everything in every way a Zrecord has."""
    n = len(model)
    assert len(store) == n
    order = np.arange(n)[::-1]
    data, splits = store.gather_packed(order)
    assert [data[a:b].tobytes() for a, b in itertools.pairwise(splits)] == model[::-1]
    assert store.lengths(order).tolist() == [len(item) for item in model[::-1]]
    if not n:
        return
    stride = max(map(len, model)) + 3
    rows = np.full((n, stride), 0xA5, dtype=np.uint8)
    store.gather(np.arange(n), rows, stride)
    assert [row[: len(item)].tobytes() for row, item in zip(rows, model, strict=True)] == model
    starts = np.cumsum([0, *(len(item) + 1 for item in model)])
    apart = np.full(starts[-1], 0xA5, dtype=np.uint8)
    store.gather_var(np.arange(n), apart, starts[:-1].astype(np.uint64))
    assert [apart[a : a + len(item)].tobytes() for a, item in zip(starts[:-1], model, strict=True)] == model
    # nothing was written between the records
    assert (apart[starts[1:] - 1] == 0xA5).all()


@given(codec=st.sampled_from(["raw", "zstd"]), upgrade=st.booleans(), plan=steps)
@settings(max_examples=settings.default.max_examples // 2)
def test_store_holds_what_a_list_holds(codec: str, upgrade: bool, plan: list[Any]) -> None:
    model: list[bytes] = []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "store.zr"
        store = loaderx.Zrecord(path, codec, upgrade=upgrade)
        try:
            for name, what, how in plan:
                if name == "append" and is_refused(store, model, what, how):
                    with pytest.raises((loaderx.RecordTooLargeError, loaderx.OptionError)):
                        append(store, what, how)
                elif name == "append":
                    assert append(store, what, how) == len(model)
                    model += what
                elif name == "append_fixed":
                    part = np.arange(what * how, dtype=np.uint8).reshape(what, how)
                    assert store.append(part, what, how) == len(model)
                    model += [row.tobytes() for row in part]
                elif name == "delete" and model:
                    # positive or negative, repeats included
                    indices = [value % len(model) for value in what]
                    store.delete([index - len(model) if how else index for index in indices])
                    model = oracle.swap_delete(model, indices)
                elif name == "compact":
                    store.compact()
                    assert store.stats()["reclaimable"] == 0
                elif name == "reopen":
                    store.close()
                    store = loaderx.Zrecord(path, codec, upgrade=upgrade)
                check(store, model)
                assert store.stats()["records"] == len(model)
            stats = store.stats()
        finally:
            store.close()
        slow = oracle.OracleStore(path)
        assert slow.records() == model
        had_wide = any(name == "append" and needs_wide(what, how) for name, what, how in plan)
        assert had_wide or slow.version == oracle.VERSION
        faults = slow.faults()  # what needed version 4 may be deleted: the version stays
        assert [fault for fault in faults if not (had_wide and fault.startswith("version 4"))] == []
        assert stats["live_bytes"] == slow.live_bytes()
        for io in ("mmap", "pread"):
            with loaderx.Zrecord(path, mode="r", io=io) as again:
                check(again, model)
