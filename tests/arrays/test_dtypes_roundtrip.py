"""Every dtype that NumPy saves without pickle comes back: values, fields, byte order, and every layout of the input."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import loaderx
from tests import oracle
from tests.property.samples import Array, behind_one_another, filled, without_gaps

DTYPES = {
    text: np.dtype(text)
    for text in (
        "?", "i1", "u1", "<i2", ">i2", "<u4", ">u4", "<i8", ">u8", "<f2", ">f2", "<f4", ">f4", "<f8", ">f8",
        "<c8", ">c8", "<c16", ">c16", "g", "G", "S1", "S7", "<U1", "<U4", ">U4", "V1", "V13",
        "<M8[ns]", ">M8[ns]", "<M8[D]", "<M8[25s]", "<M8", "<m8[us]", ">m8[h]", "<m8",
    )
} | {
    "fields": np.dtype([("a", "<i4"), ("b", ">f8"), ("c", "S3")]),
    "fields_of_arrays": np.dtype([("m", "<f4", (2, 3)), ("k", "u1", (4,))]),
    "nested_fields": np.dtype([("p", [("x", ">i2"), ("q", [("y", "<c8")])]), ("z", "<M8[ms]")]),
    "aligned_fields": np.dtype([("a", "u1"), ("b", "<f8"), ("c", "<i2")], align=True),
    "gaps_between_fields": np.dtype(
        {"names": ["a", "b"], "formats": ["<i2", "<i4"], "offsets": [2, 9], "itemsize": 16}
    ),
    "titled_fields": np.dtype([(("a title", "a"), "<i4"), ("b", "<f4")]),
    "unicode_names": np.dtype([("größe", "<i4"), ("名", "<f4")]),
    "one_field": np.dtype([("a", "<i4")]),
    "array_of_fields": np.dtype([("v", [("x", "<f4"), ("y", "<f4")], (3,))]),
}  # fmt: skip

ML_DTYPES = (
    "bfloat16",
    "float8_e4m3fn",
    "float8_e5m2",
    "float8_e4m3b11fnuz",
    "float8_e4m3fnuz",
    "float8_e5m2fnuz",
)


def assert_identical(got: Any, expected: Any) -> None:
    """Compare dtype (fields and byte order), shape and bytes."""
    assert type(got) is type(expected)
    assert got.dtype == expected.dtype
    assert repr(got.dtype) == repr(expected.dtype)
    assert got.shape == expected.shape
    assert without_gaps(got) == without_gaps(expected)


@pytest.mark.parametrize("codec", ["raw", "zstd"])
@pytest.mark.parametrize("name", DTYPES)
def test_dtype(name: str, codec: str, store_path: Path) -> None:
    dtype = DTYPES[name]
    array = filled(dtype, (7, 2, 3))
    assert loaderx.write_dataset(store_path, array, codec, progress=False) == 7
    with loaderx.Dataset(store_path) as dataset:
        assert dataset.dtype == dtype
        assert dataset.shape == (2, 3)
        assert dataset.codec == codec
        assert len(dataset) == 7
        assert_identical(dataset[:], array)
        assert_identical(dataset[4], array[4])
        assert_identical(dataset[[6, 0, 6]], array[[6, 0, 6]])
    assert_identical(oracle.read_dataset(store_path), array)
    assert oracle.OracleStore(store_path).faults() == []


@pytest.mark.parametrize("name", DTYPES)
def test_dtype_of_scalar_records(name: str, store_path: Path) -> None:
    array = filled(DTYPES[name], (9,))
    loaderx.write_dataset(store_path, array, progress=False)
    with loaderx.Dataset(store_path) as dataset:
        assert dataset.shape == ()
        assert_identical(dataset[:], array)
        assert_identical(dataset[-1], array[-1])
    assert_identical(oracle.read_dataset(store_path), array)


@pytest.mark.parametrize("name", DTYPES)
def test_dtype_in_ragged_records(name: str, store_path: Path) -> None:
    dtype = DTYPES[name]
    rows = [filled(dtype, (size, 2), seed=size) for size in (3, 0, 1, 5)]
    assert loaderx.write_ragged(store_path, rows, progress=False) == 4
    with loaderx.RaggedDataset(store_path) as dataset:
        assert dataset.dtype == dtype
        assert dataset.item_shape == (2,)
        for index, row in enumerate(rows):
            assert_identical(dataset[index], row)
        values, splits = dataset[[3, 0]]
        assert_identical(values, behind_one_another([rows[3], rows[0]]))
        assert splits.tolist() == [0, 5, 8]
    for got, row in zip(oracle.read_ragged(store_path), rows, strict=True):
        assert_identical(got, row)


def test_dtypes_that_the_plain_key_can_say_are_said_there(new_path: Callable[[], Path]) -> None:
    plain = [dtype for dtype in DTYPES.values() if dtype.names is None]
    assert len(plain) > 30
    for dtype in plain:
        path = new_path()
        loaderx.write_dataset(path, filled(dtype, (2,)), progress=False)
        schema = json.loads((path / "schema.json").read_text())
        assert schema == {
            "format": "loaderx-zrecord",
            "version": 1,
            "dtype": dtype.str,
            "shape": [],
            "codec": "zstd",
        }


@pytest.mark.needs_ml_dtypes
@pytest.mark.parametrize("name", ML_DTYPES)
def test_ml_dtype(name: str, new_path: Callable[[], Path]) -> None:
    import ml_dtypes

    dtype = np.dtype(getattr(ml_dtypes, name))
    path = new_path()
    array = filled(dtype, (5, 3))
    loaderx.write_dataset(path, array, progress=False)
    with loaderx.Dataset(path) as dataset:
        assert dataset.dtype == dtype
        assert_identical(dataset[:], array)
        assert (dataset[2] == array[2]).all()
    assert_identical(oracle.read_dataset(path), array)
    path = new_path()
    loaderx.write_ragged(path, [array[0], array[0, :0], array[1]], progress=False)
    with loaderx.RaggedDataset(path) as ragged:
        assert ragged.dtype == dtype
        padded, lengths = ragged.getitems_padded([1, 2])
        assert lengths.tolist() == [0, 3]
        assert_identical(padded, np.stack([np.zeros(3, dtype=dtype), array[1]]))


@pytest.mark.needs_ml_dtypes
def test_ml_dtype_inside_fields_keeps_its_name_or_is_refused(store_path: Path) -> None:
    import ml_dtypes

    dtype = np.dtype([("a", ml_dtypes.bfloat16), ("b", "<i4")])
    array = np.zeros(3, dtype=dtype)
    array["a"] = [1, 2.5, -3]
    try:
        loaderx.write_dataset(store_path, array, progress=False)
    except loaderx.SchemaError:
        assert not store_path.exists()
        return
    with loaderx.Dataset(store_path) as dataset:
        assert dataset.dtype == dtype
        assert dataset.dtype["a"] == dtype["a"]
        assert_identical(dataset[:], array)


@pytest.mark.needs_ml_dtypes
def test_opening_an_ml_dtype_without_the_package_names_it(
    store_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import ml_dtypes

    loaderx.write_dataset(store_path, np.zeros(3, dtype=ml_dtypes.bfloat16), progress=False)
    monkeypatch.setitem(sys.modules, "ml_dtypes", None)
    with pytest.raises(loaderx.MissingDependencyError, match="ml_dtypes") as caught:
        loaderx.Dataset(store_path)
    assert caught.value.package == "ml_dtypes"


OBJECT_DTYPES = {
    "object": np.dtype("O"),
    "field": np.dtype([("a", "<i4"), ("b", "O")]),
    "nested": np.dtype([("a", [("b", [("c", "O")])])]),
    "array_field": np.dtype([("a", "O", (2,))]),
}


@pytest.mark.parametrize("name", OBJECT_DTYPES)
def test_objects_are_refused_on_writing(name: str, store_path: Path) -> None:
    array = np.zeros(3, dtype=OBJECT_DTYPES[name])
    with pytest.raises(loaderx.SchemaError, match="object"):
        loaderx.write_dataset(store_path, array, progress=False)
    with pytest.raises(loaderx.SchemaError, match="object"):
        loaderx.write_ragged(store_path, [array], progress=False)
    assert list(store_path.parent.iterdir()) == []


def fields_of(format_: Any, itemsize: int) -> dict[str, Any]:
    """Return the description of a dtype with one field."""
    return {"names": ["a"], "formats": [format_], "offsets": [0], "itemsize": itemsize}


@pytest.mark.parametrize(
    ("dtype", "more"),
    [
        ("|O", {}),
        ("O", {}),
        ("|V8", {"descr": "|O"}),
        ("|V8", {"descr": fields_of("|O", 8)}),
        ("|V8", {"descr": fields_of(fields_of("|O", 8), 8)}),
        ("|V16", {"descr": fields_of(["|O", [2]], 16)}),
        ("O,i4", {}),
        ("object", {}),
    ],
)
@pytest.mark.parametrize("ragged", [False, True])
def test_objects_are_refused_on_opening(
    dtype: str, more: dict[str, Any], ragged: bool, store_path: Path
) -> None:
    forge = oracle.Forge()
    forge.add(b"\x08" * 8)
    forge.describe(dtype, [], ragged=ragged, **more)
    forge.write(store_path)
    with pytest.raises(loaderx.SchemaError):
        (loaderx.RaggedDataset if ragged else loaderx.Dataset)(store_path)


def test_dtype_that_numpy_saves_only_with_pickle_is_refused(store_path: Path) -> None:
    with pytest.raises(loaderx.SchemaError):
        loaderx.write_dataset(
            store_path, np.array(["a", "bb"], dtype=np.dtypes.StringDType()), progress=False
        )
    assert list(store_path.parent.iterdir()) == []


SHAPES = [(), (0,), (3, 0), (0, 3), (1,), (5,), (2, 3), (1, 1, 1, 1), (2, 1, 3, 2)]


@pytest.mark.parametrize("records", [0, 1, 6])
@pytest.mark.parametrize("shape", SHAPES)
def test_item_shape(shape: tuple[int, ...], records: int, store_path: Path) -> None:
    array = filled(np.dtype("<i4"), (records, *shape))
    assert loaderx.write_dataset(store_path, array, progress=False) == records
    with loaderx.Dataset(store_path) as dataset:
        assert dataset.shape == shape
        assert len(dataset) == records
        assert_identical(dataset[:], array)
        assert_identical(dataset[[]], array[[]])
        if records:
            assert_identical(dataset[[0, -1]], array[[0, -1]])
            assert_identical(dataset[records - 1], array[records - 1])
    assert_identical(oracle.read_dataset(store_path), array)


BASE = filled(np.dtype("<i4"), (12, 4, 6))
LAYOUTS: dict[str, Array] = {
    "c_order": BASE,
    "f_order": np.asfortranarray(BASE),
    "transposed": BASE.T,
    "axes_swapped": BASE.swapaxes(0, 1),
    "strided_records": BASE[1::3],
    "strided_items": BASE[:, ::2, 1::2],
    "reversed_records": BASE[::-1],
    "reversed_items": BASE[:, ::-1, ::-2],
    "broadcast_records": np.broadcast_to(BASE[3], (9, 4, 6)),
    "broadcast_items": np.broadcast_to(BASE[:, :1, :], (12, 4, 6)),
    "broadcast_scalar": np.broadcast_to(np.int32(7), (5, 2)),
    "unaligned": np.frombuffer(b"\0" + BASE.tobytes(), dtype="<i4", offset=1).reshape(BASE.shape),
    "read_only": np.frombuffer(BASE.tobytes(), dtype="<i4").reshape(BASE.shape),
    "field_view": np.zeros(8, dtype=[("a", "u1"), ("b", "<i4")])["b"],
    "windows": np.lib.stride_tricks.sliding_window_view(np.arange(20, dtype="<i4"), 5),
}


@pytest.mark.parametrize("chunk_bytes", [1, 100, 64 << 20])
@pytest.mark.parametrize("codec", ["raw", "zstd"])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_layout(layout: str, codec: str, chunk_bytes: int, store_path: Path) -> None:
    array = LAYOUTS[layout]
    before = array.tobytes()
    assert loaderx.write_dataset(store_path, array, codec, chunk_bytes, progress=False) == len(array)
    assert array.tobytes() == before
    with loaderx.Dataset(store_path) as dataset:
        got = dataset[:]
        assert got.flags.c_contiguous
        assert_identical(got, np.ascontiguousarray(array))
    assert_identical(oracle.read_dataset(store_path), np.ascontiguousarray(array))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_layout_of_ragged_records(layout: str, store_path: Path) -> None:
    array = LAYOUTS[layout]
    rows = [array[:3], array[::-1][:2], array[:0]]
    loaderx.write_ragged(store_path, rows, progress=False)
    with loaderx.RaggedDataset(store_path) as dataset:
        for index, row in enumerate(rows):
            assert_identical(dataset[index], np.ascontiguousarray(row))


def test_f_ordered_fields(store_path: Path) -> None:
    array = np.asfortranarray(filled(DTYPES["nested_fields"], (4, 3, 2)))
    loaderx.write_dataset(store_path, array[:, ::-1], progress=False)
    with loaderx.Dataset(store_path) as dataset:
        assert_identical(dataset[:], np.ascontiguousarray(array[:, ::-1]))


def test_memmap_and_list(new_path: Callable[[], Path], tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", BASE)
    path = new_path()
    assert loaderx.write_dataset(path, np.load(tmp_path / "a.npy", mmap_mode="r"), progress=False) == 12
    with loaderx.Dataset(path) as dataset:
        assert_identical(dataset[:], BASE)
    path = new_path()
    assert loaderx.write_dataset(path, [[1, 2], [3, 4], [5, 6]], progress=False) == 3
    with loaderx.Dataset(path) as dataset:
        assert_identical(dataset[:], np.array([[1, 2], [3, 4], [5, 6]]))


class SlicesOnly:
    """What write_dataset asks of a source: dtype, shape, and slices along axis 0."""

    def __init__(self, array: Array) -> None:
        self._array = array
        self.dtype, self.shape = array.dtype, array.shape
        self.largest = 0

    def __getitem__(self, index: slice) -> Array:
        assert isinstance(index, slice)
        part = self._array[index]
        self.largest = max(self.largest, len(part))
        return part

    def __array__(self, *_: object, **__: object) -> Array:
        raise AssertionError("the whole source was asked for at once")


def test_source_that_only_slices(store_path: Path) -> None:
    source = SlicesOnly(BASE)
    loaderx.write_dataset(store_path, source, chunk_bytes=3 * BASE[0].nbytes, progress=False)
    assert 0 < source.largest <= 3
    with loaderx.Dataset(store_path) as dataset:
        assert_identical(dataset[:], BASE)


@pytest.mark.parametrize("array", [np.array(3), np.float32(1.5), 7])
def test_no_axis_to_cut_along_is_refused(array: Any, store_path: Path) -> None:
    with pytest.raises(ValueError, match=r"axis|axes|0-d|dimension"):
        loaderx.write_dataset(store_path, array, progress=False)
    assert list(store_path.parent.iterdir()) == []


@pytest.mark.parametrize(
    "other",
    [
        pytest.param(BASE.astype("<i8"), id="dtype"),
        pytest.param(BASE.astype(">i4"), id="byte_order"),
        pytest.param(BASE[:, :3], id="shape"),
        pytest.param(BASE.reshape(12, 24), id="axes"),
        pytest.param(BASE.view([("a", "<i4")]), id="fields"),
    ],
)
def test_append_of_another_kind_is_refused(other: Array, store_path: Path) -> None:
    loaderx.write_dataset(store_path, BASE, progress=False)
    with pytest.raises(loaderx.SchemaError):
        loaderx.write_dataset(store_path, other, progress=False)
    with pytest.raises(loaderx.SchemaError):
        loaderx.write_ragged(store_path, [BASE[0]], progress=False)
    assert_identical(oracle.read_dataset(store_path), BASE)
    assert oracle.OracleStore(store_path).faults() == []
    assert loaderx.write_dataset(store_path, BASE[:2], progress=False) == 2
    assert_identical(oracle.read_dataset(store_path), np.concatenate([BASE, BASE[:2]]))
