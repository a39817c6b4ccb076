"""Values that do not fit the dtype they are to have: refused, never changed in silence."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import loaderx
from loaderx import OptionError, RaggedDataset, SchemaError, write_ragged

REFUSED: dict[str, tuple[list[Any], Any]] = {
    "list of int64 over uint16": ([[np.int64(70000), np.int64(3)]], "uint16"),
    "negative into unsigned": ([[np.int64(-1)]], "uint16"),
    "-1 into uint64": ([[-1]], "uint64"),
    "2**63 into int64": ([[2**63]], "int64"),
    "list after a narrower array": ([np.array([1], "u1"), [np.int64(300)]], None),
    "array after a narrower array": ([np.array([1], "u1"), np.array([300])], None),
    "longer text": ([["x", "y"], ["abcd"]], None),
    "longer text than asked for": ([["hello"]], "U2"),
    "longer bytes": ([[b"x"], [b"yz"]], None),
    "number among bools": ([[True], [5]], None),
    "number as bool": ([[5]], bool),
    "text as a time": ([["2020-01-01T05:00"]], "M8[D]"),
    "hours into days": ([np.array(["2020-01-01T05"], "M8[h]")], "M8[D]"),
    "tuple with a fraction as fields": ([[(1.7, 2.5)]], [("a", "i4"), ("b", "f4")]),
    "text as numbers": ([["1", "2"]], "i4"),
    "None as a float": ([[None]], "f4"),
    "whole number a float does not have": ([np.array([1.5]), np.array([2**53 + 1])], None),
    "whole number a short float does not have": ([np.array([2**24 + 1], "i4")], "f4"),
    "listed whole number a float does not have": ([[1.5], [2**53 + 1]], None),
    "overflow of a float": ([np.array([1e300])], "f4"),
    "overflow of a whole number": ([np.array([70000])], "f2"),
    "array that would be rounded unasked": ([np.array([0.5], "f4"), np.array([0.1])], None),
    "complex as real": ([np.array([1j])], "f8"),
    "float as a whole number": ([np.array([1.0])], "i8"),
    "objects": ([np.array([1, "a"], object)], None),
}

TAKEN: dict[str, tuple[list[Any], Any, Any]] = {
    "small ints": ([[1, 2], [3]], "uint8", np.array([1, 2, 3], "u1")),
    "list of int64": ([[np.int64(65535)], []], "uint16", np.array([65535], "u2")),
    "unsigned into signed": ([np.array([7], "u8")], "i4", np.array([7], "i4")),
    "rounding asked for": ([np.array([0.1])], "f4", np.array([0.1], "f4")),
    "listed floats after a short one": ([np.array([0.5], "f4"), [0.1]], None, np.array([0.5, 0.1], "f4")),
    "not a number": ([np.array([np.nan, np.inf])], "f4", np.array([np.nan, np.inf], "f4")),
    "real as complex": ([np.array([1.5])], "c16", np.array([1.5 + 0j])),
    "bool as number": ([np.array([True])], "i4", np.array([1], "i4")),
    "shorter text": ([["abcd"], ["x"]], None, np.array(["abcd", "x"])),
    "days into hours": (
        [np.array(["2020-01-01", "NaT"], "M8[D]")],
        "M8[h]",
        np.array(["2020-01-01", "NaT"], "M8[h]"),
    ),
    "byte order": ([np.array([1, 2], ">i4")], "<i4", np.array([1, 2], "<i4")),
    "an empty list": ([[1.5], []], "f4", np.array([1.5], "f4")),
}


@pytest.mark.parametrize("name", REFUSED)
def test_values_that_would_change_are_refused(name: str, tmp_path: Path) -> None:
    arrays, dtype = REFUSED[name]
    with pytest.raises(SchemaError, match=f"array {len(arrays) - 1}|array 0|objects"):
        write_ragged(tmp_path / "r.zr", arrays, dtype)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", TAKEN)
def test_values_that_stay_themselves_are_taken(name: str, tmp_path: Path) -> None:
    arrays, dtype, expected = TAKEN[name]
    write_ragged(tmp_path / "r.zr", arrays, dtype)
    values, _ = RaggedDataset(tmp_path / "r.zr")[:]
    assert values.dtype == expected.dtype
    assert values.tobytes() == expected.tobytes()


def test_an_existing_dataset_gives_lists_its_dtype(tmp_path: Path) -> None:
    write_ragged(tmp_path / "r.zr", [[7, 8], [9]], dtype="uint16")
    assert write_ragged(tmp_path / "r.zr", [[3, 4]]) == 1
    assert RaggedDataset(tmp_path / "r.zr")[2].tolist() == [3, 4]
    with pytest.raises(SchemaError, match="array 1"):
        write_ragged(tmp_path / "r.zr", [[3], [70000]])
    assert len(RaggedDataset(tmp_path / "r.zr")) == 3


@pytest.mark.parametrize(
    ("dtype", "pad_value"),
    [("f4", 1j), ("f4", 1e300), ("M8[D]", np.datetime64("2020-01-01T05")), ("i4", 1e10), ("i4", float("nan")),
     ("u1", -1), ("u1", 256), ("S2", b"abc"), ("U2", 5), ("?", 2), ("i4", [0]), ("i4", "0")],
)  # fmt: skip
def test_pad_values_that_are_none_of_the_dtype(dtype: str, pad_value: Any, tmp_path: Path) -> None:
    write_ragged(tmp_path / "r.zr", [np.zeros(1, dtype), np.zeros(2, dtype)])
    with pytest.raises(OptionError, match="is no value of dtype"):
        RaggedDataset(tmp_path / "r.zr").getitems_padded([0, 1], pad_value=pad_value)
    with pytest.raises(OptionError, match="is no value of dtype"):
        loaderx.pad(np.zeros(1, dtype), [0, 1], 2, pad_value)


@pytest.mark.parametrize(
    "dtype", ["i4", "f4", "?", "S3", "U3", "M8[s]", "m8[s]", "c8", [("a", "i4"), ("b", "U2")]]
)
def test_zero_pads_with_the_zero_of_every_dtype(dtype: Any, tmp_path: Path) -> None:
    rows = [np.ones(1, dtype), np.ones(3, dtype)]
    write_ragged(tmp_path / "r.zr", rows)
    rds = RaggedDataset(tmp_path / "r.zr")
    padded, _ = rds.getitems_padded([0, 1])
    assert padded[0, 1:].tobytes() == np.zeros(2, dtype).tobytes()
    assert padded.tobytes() == loaderx.pad(*rds[[0, 1]])[0].tobytes()


def test_a_tuple_pads_a_structure(tmp_path: Path) -> None:
    dtype = np.dtype([("a", "i4"), ("b", "f4")])
    write_ragged(tmp_path / "r.zr", [np.zeros(1, dtype), np.zeros(2, dtype)])
    padded, _ = RaggedDataset(tmp_path / "r.zr").getitems_padded([0, 1], pad_value=(7, 0.5))
    assert padded[0, 1].tolist() == (7, 0.5)
