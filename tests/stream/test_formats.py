"""Items in the types of a framework."""

from __future__ import annotations

from collections import OrderedDict, UserDict
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from loaderx.errors import OptionError, StreamError
from loaderx.stream import Stream
from loaderx.stream.formats import Format, to_numpy, to_python
from tests.resume import check_stream_resumes, same
from tests.stream.pipelines import rows

ITEM = {
    "i": 3,
    "f": 0.5,
    "s": "text",
    "flags": [True, False],
    "grid": [[1, 2], [3, 4]],
    "ragged": [[1], [2, 3]],
    "words": ["a", "bc"],
    "mixed": [1, "a"],
    "none": None,
    "array": np.arange(3, dtype=np.uint16),
    "inner": {"x": [1.5]},
    "big": 2**70,
    "rows": [np.arange(2, dtype=np.int8), np.arange(2, dtype=np.int8)],
}


def formatted(kind: Format, item: Any = ITEM) -> Any:
    return next(iter(Stream.from_shards([[item]]).with_format(kind)))


def test_numpy() -> None:
    expected = {
        "i": np.int64(3),
        "f": np.float64(0.5),
        "s": "text",
        "flags": np.array([True, False]),
        "grid": np.array([[1, 2], [3, 4]]),
        "ragged": [np.array([1]), np.array([2, 3])],
        "words": np.array(["a", "bc"]),
        "mixed": [np.int64(1), "a"],
        "none": None,
        "array": np.arange(3, dtype=np.uint16),
        "inner": {"x": np.array([1.5])},
        "big": 2**70,
        "rows": np.array([[0, 1], [0, 1]], np.int8),
    }
    assert same(formatted("numpy"), expected)


def test_python_undoes_numpy() -> None:
    plain = {**ITEM, "array": [0, 1, 2], "rows": [[0, 1], [0, 1]]}
    assert same(to_python(to_numpy(ITEM)), plain)
    assert same(formatted("python"), plain)


def test_irregular_lists_stay_lists() -> None:
    assert same(to_numpy([]), np.array([]))
    for value in ([1, None], [[1, 2], "ab"], [[1], ["a"]], [{"a": 1}], [2**70]):
        assert type(to_numpy(value)) is list, value
    assert same(to_numpy([[["a"], ["b"]]]), np.array([[["a"], ["b"]]]))


def test_whole_numbers_are_never_rounded() -> None:
    large = 2**53 + 1
    for value, expected in (
        ([1, 2**63], np.array([1, 2**63], np.uint64)),
        ([[1, 2], [3, 2**63]], np.array([[1, 2], [3, 2**63]], np.uint64)),
        ([-1, 2**63], [np.int64(-1), np.uint64(2**63)]),
        ([[-1], [2**63]], [np.array([-1]), np.array([2**63], np.uint64)]),
        ([np.int64(1), np.uint64(2**63)], np.array([1, 2**63], np.uint64)),
        ([np.int64(-1), np.uint64(7)], np.array([-1, 7])),
        ([np.int64(-1), np.uint64(2**63)], [np.int64(-1), np.uint64(2**63)]),
        ([-1, np.uint64(2**63)], [np.int64(-1), np.uint64(2**63)]),
        ([np.array([-1]), np.array([2**63], np.uint64)], [np.array([-1]), np.array([2**63], np.uint64)]),
        ([large, 0.5], [np.int64(large), np.float64(0.5)]),
        ([large, 1j], [np.int64(large), np.complex128(1j)]),
        ([2**1030, 0.5], [2**1030, np.float64(0.5)]),
        ([2**53, 0.5], np.array([2**53, 0.5])),
        ([[large], [0.5]], [np.array([large]), np.array([0.5])]),
        ([np.float32(0.5), np.int32(2**24 + 1)], np.array([0.5, 2**24 + 1])),
        ([np.int16(3), np.float16(0.5)], np.array([3, 0.5], np.float32)),
        ([True, 2], np.array([1, 2])),
        (2**63, np.uint64(2**63)),
        (2**64, 2**64),
    ):
        assert same(to_numpy(value), expected), value


def test_text_and_bytes_are_never_cut() -> None:
    def objects(*values: Any) -> Any:
        found = np.empty(len(values), object)
        found[:] = values
        return found

    for value in (["a\0", "b"], [b"a\0", b"bc"], [b"a"]):
        found = to_numpy(value)
        assert found.dtype == object and found.tolist() == value
    assert to_numpy([[b"a\0"], [b"b"]]).tolist() == [[b"a\0"], [b"b"]]
    assert to_numpy(b"a\0") == b"a\0"
    batch = next(iter(Stream.from_shards([[{"b": b"abc\0\0"}, {"b": b""}]]).batch(2).with_format("numpy")))
    assert batch["b"].tolist() == [b"abc\0\0", b""]
    arrays = [np.array(["a"]), np.array([1])]
    assert same(to_numpy(arrays), arrays)  # NumPy would make text of the number


def test_masks_are_kept() -> None:
    masked = np.ma.array([1, 2], mask=[False, True])
    assert to_numpy(masked) is masked
    assert all(each is masked for each in to_numpy([masked, masked]))


MAPPINGS: list[Callable[[dict[str, Any]], Any]] = [UserDict, OrderedDict]


@pytest.mark.parametrize("make", MAPPINGS)
def test_other_mappings_are_as_good_as_dicts(make: Callable[[dict[str, Any]], Any]) -> None:
    item = make({"x": [1, 2], "inner": make({"y": 0.5})})
    assert same(to_numpy(item), {"x": np.array([1, 2]), "inner": {"y": np.float64(0.5)}})
    assert same(to_python(to_numpy(item)), {"x": [1, 2], "inner": {"y": 0.5}})
    assert same(to_python(item), {"x": [1, 2], "inner": {"y": 0.5}})
    assert same(to_numpy([item]), [{"x": np.array([1, 2]), "inner": {"y": np.float64(0.5)}}])


def test_it_resumes_and_batches_are_formatted_too() -> None:
    items = check_stream_resumes(lambda: rows().batch(3).pad().shuffle(2).with_format("numpy").shuffle(2))
    assert sorted(len(item["a"]) for item in items) == [1, 3, 3, 3, 3]
    assert all(item["b"].shape[0] == len(item["a"]) for item in items)


def test_what_takes_arrays_of_numpy_comes_before_other_formats() -> None:
    batches = rows().batch(2)
    for kind in ("torch", "jax", "arrow"):
        with pytest.raises(OptionError, match=f"of format '{kind}' here: put with_format behind pad"):
            batches.with_format(kind).skip(1).pad()
        with pytest.raises(OptionError, match="put with_format behind rebatch"):
            batches.with_format(kind).rebatch(3)
    for other in ("numpy", "python"):
        assert len(list(batches.with_format(other).rebatch(3))) == 5
    with pytest.raises(OptionError, match="choose one of python, numpy"):
        batches.with_format("pandas")  # type: ignore[arg-type]


@pytest.mark.needs_torch
def test_torch() -> None:
    import torch

    item = formatted("torch")
    assert item["i"].dtype == torch.int64 and item["i"].shape == ()
    assert item["f"].dtype == torch.float32 and item["inner"]["x"].dtype == torch.float32
    assert item["grid"].tolist() == [[1, 2], [3, 4]] and item["flags"].dtype == torch.bool
    assert [each.tolist() for each in item["ragged"]] == [[1], [2, 3]]
    assert (
        item["words"] == ["a", "bc"] and item["s"] == "text" and item["none"] is None and item["big"] == 2**70
    )
    assert item["array"].dtype == torch.int32 and item["rows"].dtype == torch.int8
    doubles = next(iter(Stream.from_shards([[np.ones(2)[::-1]]]).with_format("torch")))
    assert doubles.dtype == torch.float64
    frozen = np.arange(3)
    frozen.flags.writeable = False
    assert next(iter(Stream.from_shards([[frozen]]).with_format("torch"))).tolist() == [0, 1, 2]


@pytest.mark.needs_torch
def test_torch_never_wraps_whole_numbers() -> None:
    import torch

    assert formatted("torch", {"a": 2**63 - 1})["a"].item() == 2**63 - 1
    assert formatted("torch", {"a": 2**63}) == {"a": 2**63}
    assert formatted("torch", {"a": [1, 2**63]}) == {"a": [torch.tensor(1), 2**63]}
    small = formatted("torch", {"a": np.array([1, 2**63 - 1], np.uint64)})["a"]
    assert small.dtype == torch.int64 and small.tolist() == [1, 2**63 - 1]
    large = np.array([1, 2**63], np.uint64)
    for value in (large, large[1], list(large), [large, large]):
        with pytest.raises(StreamError, match="'b': 'a': 9223372036854775808 of uint64 is beyond int64"):
            formatted("torch", {"b": {"a": value}})


@pytest.mark.needs_torch
def test_torch_has_one_rule_for_floats() -> None:
    import torch

    pythons: list[Any] = [0.5, [0.5], [1, 0.5], [[0.5], [1.5]], []]
    numpys: list[Any] = [
        np.float64(0.5), np.array([0.5]), [np.float64(0.5)], [0.5, np.float64(0.5)], [[0.5], np.array([0.5])]
    ]  # fmt: skip
    for value in pythons:
        assert formatted("torch", value).dtype == torch.float32, value
        batch = next(iter(Stream.from_shards([[value, value]]).batch(2).with_format("torch")))
        assert batch.dtype == torch.float32, value
    for value in numpys:
        assert formatted("torch", value).dtype == torch.float64, value
        batch = next(iter(Stream.from_shards([[value, value]]).batch(2).with_format("torch")))
        assert batch.dtype == torch.float64, value
    assert formatted("torch", [np.float32(0.5), np.float32(1)]).dtype == torch.float32
    assert formatted("torch", 1j).dtype == formatted("torch", [1j]).dtype == torch.complex64
    # What pad makes are NumPy's arrays.
    padded = Stream.from_shards([[[[0.5], [0.5, 1.5]]]]).pad().with_format("torch")
    assert next(iter(padded)).dtype == torch.float64


@pytest.mark.needs_torch
def test_tensors_are_nobody_elses_memory() -> None:
    source = np.arange(6.0).reshape(2, 3)
    for make in (
        lambda: Stream.from_dataset(source),
        lambda: Stream.from_shards([[{"x": source}]]).map(lambda item: item["x"]),
        lambda: Stream.from_shards([[source]]).batch(1),
    ):
        for tensor in make().with_format("torch"):
            tensor += 100
        assert source.tolist() == [[0, 1, 2], [3, 4, 5]]


@pytest.mark.needs_torch
def test_torch_takes_other_mappings_and_refuses_masks() -> None:
    import torch

    item = formatted("torch", UserDict({"x": [1, 2], "inner": UserDict({"y": True})}))
    assert type(item) is dict and item["x"].tolist() == [1, 2] and item["inner"]["y"].dtype == torch.bool
    with pytest.raises(StreamError, match="'x': a masked array, whose mask would be lost"):
        formatted("torch", {"x": np.ma.array([1, 2], mask=[False, True])})
    assert formatted("torch", {"x": ["a\0"], "b": [b"a\0"]}) == {"x": ["a\0"], "b": [b"a\0"]}


@pytest.mark.needs_jax
def test_jax_never_wraps_whole_numbers() -> None:
    import jax

    for value, told in (
        (2**31, r"2147483648 of int64 is beyond int32"),
        ([1, -(2**40)], r"-1099511627776 of int64 is beyond int32"),
        (np.array([2**32], np.uint64), r"4294967296 of uint64 is beyond uint32"),
        ([1, 2**63], r"9223372036854775808 of uint64 is beyond uint32"),
    ):
        with pytest.raises(StreamError, match=f"'a': {told}"):
            formatted("jax", {"a": value})
    found = formatted("jax", UserDict({"a": [2**31 - 1], "b": b"a\0"}))
    assert found["a"].tolist() == [2**31 - 1] and found["b"] == b"a\0" and isinstance(found["a"], jax.Array)


@pytest.mark.needs_jax
def test_jax() -> None:
    import jax

    item = formatted("jax")
    assert isinstance(item["grid"], jax.Array) and item["grid"].tolist() == [[1, 2], [3, 4]]
    assert isinstance(item["i"], jax.Array) and item["words"] == ["a", "bc"]
    assert [each.tolist() for each in item["ragged"]] == [[1], [2, 3]]


def test_arrow_says_what_to_install_where_it_is_absent(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    from loaderx.errors import MissingDependencyError

    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(MissingDependencyError, match=r"loaderx\[arrow\]") as caught:
        iter(rows().with_format("arrow"))
    assert (caught.value.package, caught.value.extra) == ("pyarrow", "arrow")


@pytest.mark.needs_pyarrow
def test_arrow() -> None:
    import pyarrow

    row = next(iter(rows().skip(1).with_format("arrow")))
    assert isinstance(row, pyarrow.Table) and row.to_pylist() == [{"a": 1, "b": [1]}]
    batch = next(iter(rows().batch(3).skip(0).with_format("arrow")))
    assert batch.to_pydict() == {"a": [0, 1, 2], "b": [[], [1], [2, 2]]}
    padded = next(iter(rows().batch(2).pad().with_format("arrow")))
    assert padded.to_pydict() == {"a": [0, 1], "b": [[0], [1]]}
    with pytest.raises(StreamError, match="has to be a dict"):
        next(iter(Stream.from_shards([[1]]).with_format("arrow")))
    with pytest.raises(StreamError, match="'a' is 'abc', and has to be a list or an array"):
        next(iter(rows().batch(2).map(lambda batch: {"a": "abc"}).with_format("arrow")))


@pytest.mark.needs_pyarrow
def test_arrow_keeps_the_dtypes_of_arrays() -> None:
    import pyarrow

    item = {
        "grid": np.zeros((2, 3), np.float16),
        "row": np.arange(2, dtype=np.float32),
        "number": np.uint64(2**63),
        "time": np.datetime64("2020-01-01T00:00:00.123456789"),
        "b": b"a\0",
    }
    row = formatted("arrow", UserDict(item))
    types = {
        "grid": pyarrow.list_(pyarrow.list_(pyarrow.float16())),
        "row": pyarrow.list_(pyarrow.float32()),
        "number": pyarrow.uint64(),
        "time": pyarrow.timestamp("ns"),
        "b": pyarrow.binary(),
    }
    batch = next(iter(Stream.from_shards([[item, item]]).batch(2).with_format("arrow")))
    assert row.schema.types == batch.schema.types == list(types.values()) and row.schema.names == list(types)
    assert row["grid"].to_pylist() == [[[0, 0, 0], [0, 0, 0]]] and row["b"].to_pylist() == [b"a\0"]
    assert row["number"].to_pylist() == [2**63] and batch.num_rows == 2
    ragged: list[Any] = [{"x": np.arange(n, dtype=np.int8)} for n in range(3)]
    column = next(iter(Stream.from_shards([ragged]).batch(3).with_format("arrow")))["x"]
    assert column.type == pyarrow.list_(pyarrow.int8()) and column.to_pylist() == [[], [0], [0, 1]]
    stacked = next(iter(Stream.from_shards([[{"x": np.zeros((2, 0, 3), np.int8)}]]).with_format("arrow")))
    assert stacked["x"].to_pylist() == [[[], []]]


@pytest.mark.needs_pyarrow
def test_columns_of_arrow_keep_their_values_and_not_their_types() -> None:
    import datetime
    import decimal

    import pyarrow

    columns = {
        "f": pyarrow.array([0.1], pyarrow.float32()),
        "h": pyarrow.array([np.float16(0.1)]),
        "i": pyarrow.array([1], pyarrow.int8()),
        "d": pyarrow.array([decimal.Decimal("1.50")], pyarrow.decimal128(20, 2)),
        "t": pyarrow.array([datetime.datetime(2020, 1, 1)], pyarrow.timestamp("s")),
    }
    stream = Stream.from_arrow(pyarrow.table(columns))
    again = next(iter(stream.batch(1).with_format("arrow")))
    assert again.to_pydict() == pyarrow.table(columns).to_pydict()
    assert again.schema.types == [
        pyarrow.float64(), pyarrow.float64(), pyarrow.int64(), pyarrow.decimal128(3, 2), pyarrow.timestamp("us")
    ]  # fmt: skip
    arrays = next(iter(stream.batch(1).with_format("numpy")))
    assert [arrays[name].dtype for name in "fhi"] == [np.float64, np.float64, np.int64]
    assert arrays["f"].tolist() == [float(np.float32(0.1))] and arrays["h"].tolist() == [
        float(np.float16(0.1))
    ]
    assert (arrays["d"], arrays["t"]) == ([decimal.Decimal("1.50")], [datetime.datetime(2020, 1, 1)])


@pytest.mark.needs_pyarrow
def test_tables_of_arrow_become_what_they_were() -> None:
    import pyarrow

    table = pyarrow.table({"i": [2**53 + 1, None], "s": ["a", "b"]})
    found = to_numpy(table)
    assert list(found) == ["i", "s"] and found["s"].tolist() == ["a", "b"]
    assert same(found["i"], [np.int64(2**53 + 1), None])  # NumPy would have floats
    assert to_python(table) == [{"i": 2**53 + 1, "s": "a"}, {"i": None, "s": "b"}]
