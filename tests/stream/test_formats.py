"""Items in the types of a framework."""

from __future__ import annotations

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


def formatted(kind: Format) -> Any:
    return next(iter(Stream.from_shards([[ITEM]]).with_format(kind)))


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
