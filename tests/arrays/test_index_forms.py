"""Index forms mean what they mean in NumPy along axis 0, and what NumPy refuses is refused."""

from __future__ import annotations

import operator
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import loaderx

N = 10
RECORDS = np.random.default_rng(0).integers(0, 1 << 30, size=(N, 3, 2), dtype=np.int32)
LABELS = np.arange(N, dtype=np.float32) * 1.5
ROWS = [
    np.arange(size * 2, dtype=np.int16).reshape(size, 2) + 100 * size
    for size in (3, 0, 1, 5, 2, 0, 4, 1, 1, 6)
]


class Index:
    """An integer that is no int."""

    def __index__(self) -> int:
        return 4


def read_only(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    array.flags.writeable = False
    return array


MASK = np.arange(N) % 3 == 1

INTEGERS: dict[str, Any] = {
    "first": 0,
    "last": N - 1,
    "minus_one": -1,
    "minus_all": -N,
    "numpy_int": np.int64(3),
    "numpy_uint8": np.uint8(7),
    "numpy_negative": np.int8(-2),
    "index_method": Index(),
    "array_without_axes": np.array(5),
}

BATCHES: dict[str, Any] = {
    "all": slice(None),
    "slice": slice(2, 7),
    "slice_step": slice(1, 9, 3),
    "slice_back": slice(None, None, -1),
    "slice_back_step": slice(8, 1, -3),
    "slice_negative": slice(-4, -1),
    "slice_beyond": slice(5, 500),
    "slice_empty": slice(7, 3),
    "slice_numpy": slice(np.int64(1), np.uint8(6), np.int16(2)),
    "slice_huge": slice(-(10**30), 10**30, 10**29),
    "list": [4, 2, 9],
    "list_repeated": [3, 3, 0, 3],
    "list_negative": [-1, 0, -10, 5],
    "list_of_numpy": [np.int64(2), np.uint8(5)],
    "list_empty": [],
    "range": range(2, 8, 2),
    "array": np.array([8, 0, 8, 1]),
    "array_int8": np.array([-1, 3], dtype=np.int8),
    "array_uint8": np.array([9, 3], dtype=np.uint8),
    "array_uint64": np.array([9, 3], dtype=np.uint64),
    "array_int32": np.array([-10, 3], dtype=np.int32),
    "array_big_endian": np.array([1, -2], dtype=">i4"),
    "array_strided": np.arange(20)[::-1][11::3],
    "array_read_only": read_only(np.array([6, 6, -6])),
    "array_one": np.array([2]),
    "array_empty": np.array([], dtype=np.int64),
    "mask": MASK,
    "mask_list": MASK.tolist(),
    "mask_none": np.zeros(N, dtype=bool),
    "mask_all": np.ones(N, dtype=bool),
    "mask_strided": np.repeat(MASK, 2)[::2],
}

NESTED: dict[str, Any] = {
    "array_2d": np.array([[0, 9, -1], [4, 4, 2]]),
    "array_3d": np.arange(8, dtype=np.uint8).reshape(2, 2, 2),
    "array_f_order": np.asfortranarray([[0, 9, -1], [4, 5, 2]]),
    "list_2d": [[1, 2], [3, 4]],
    "array_2d_empty": np.zeros((0, 3), dtype=np.int64),
    "array_2d_narrow": np.zeros((3, 0), dtype=np.int64),
}

TUPLES = [(0, 1), (2,), (), (-1, 3, 3), (np.int64(4), 1), (0, 1, 2, 3, 4, 5)]

OUTSIDE: dict[str, Any] = {
    "one_past": N,
    "minus_one_past": -N - 1,
    "beyond_int64": 10**30,
    "beyond_int64_down": -(10**30),
    "int64_limit": 2**63 - 1,
    "int64_low_limit": -(2**63),
    "numpy": np.int64(N),
    "array_without_axes": np.array(N),
    "list": [0, N],
    "list_negative": [-N - 1, 0],
    "list_beyond_int64": [0, 10**30],
    "list_beyond_uint64": [2**64],
    "list_uint64": [2**63],
    "array": np.array([0, 1, N]),
    "array_uint64": np.array([N], dtype=np.uint64),
    "array_int64_limit": np.array([2**63 - 1]),
    "array_int64_low_limit": np.array([-(2**63)]),
    "tuple": (0, N),
    "mask_short": np.ones(N - 1, dtype=bool),
    "mask_long": np.ones(N + 1, dtype=bool),
    "mask_empty": np.zeros(0, dtype=bool),
    "mask_list_short": [True, False],
    "mask_2d": np.ones((N, 3), dtype=bool),
}

WRONG_TYPE: dict[str, Any] = {
    "float": 1.5,
    "whole_float": 1.0,
    "numpy_float": np.float32(2),
    "complex": 1j,
    "none": None,
    "ellipsis": ...,
    "str": "a",
    "digits": "1",
    "bytes": b"\x01",
    "true": True,
    "false": False,
    "numpy_true": np.True_,
    "set": {1},
    "dict": {"a": 1},
    "object": object(),
    "list_float": [1.0],
    "list_mixed": [0, 1.5],
    "list_none": [None],
    "list_str": ["a"],
    "list_ellipsis": [...],
    "list_slice": [slice(None)],
    "array_float": np.array([1.0, 2.0]),
    "array_nan": np.array([np.nan]),
    "array_str": np.array(["a"]),
    "array_date": np.array([1], dtype="M8[s]"),
    "array_timedelta": np.array([1], dtype="m8[s]"),
    "array_fields": np.zeros(2, dtype=[("a", "i4")]),
    "tuple_none": (None, 0),
    "tuple_ellipsis": (..., 0),
    "tuple_slice": (slice(None), 0),
    "tuple_float": (0, 1.0),
    "slice_float": slice(0, 1.5),
    "slice_str": slice("a", None),
    "slice_step_float": slice(0, 4, 1.0),
}


@pytest.fixture(scope="module")
def records(tmp_path_factory: pytest.TempPathFactory) -> Any:
    path = tmp_path_factory.mktemp("records") / "store.zr"
    loaderx.write_dataset(path, RECORDS, progress=False)
    with loaderx.Dataset(path) as dataset:
        yield dataset


@pytest.fixture(scope="module")
def labels(tmp_path_factory: pytest.TempPathFactory) -> Any:
    path = tmp_path_factory.mktemp("labels") / "store.zr"
    loaderx.write_dataset(path, LABELS, "raw", progress=False)
    with loaderx.Dataset(path) as dataset:
        yield dataset


@pytest.fixture(scope="module")
def ragged(tmp_path_factory: pytest.TempPathFactory) -> Any:
    path = tmp_path_factory.mktemp("ragged") / "store.zr"
    loaderx.write_ragged(path, ROWS, progress=False)
    with loaderx.RaggedDataset(path) as dataset:
        yield dataset


def assert_equal(got: Any, expected: Any) -> None:
    """Compare type, dtype, shape and bytes."""
    assert type(got) is type(expected)
    assert got.dtype == expected.dtype
    assert got.shape == expected.shape
    assert got.tobytes() == expected.tobytes()


def cases(table: dict[str, Any]) -> Any:
    return pytest.mark.parametrize("index", [pytest.param(value, id=name) for name, value in table.items()])


@cases(INTEGERS | BATCHES | NESTED)
def test_dataset_indexes_as_numpy(index: Any, records: Any, labels: Any) -> None:
    assert_equal(records[index], RECORDS[index])
    assert_equal(labels[index], LABELS[index])


@pytest.mark.parametrize("index", TUPLES)
def test_a_tuple_is_a_list_of_records(index: tuple[int, ...], records: Any, labels: Any, ragged: Any) -> None:
    chosen = np.array(index, dtype=np.int64)
    assert_equal(records[index], RECORDS[chosen])
    assert_equal(labels[index], LABELS[chosen])
    values, splits = ragged[index]
    expected = [ROWS[i] for i in index]
    assert_equal(values, np.concatenate([np.zeros((0, 2), dtype=np.int16), *expected]))
    assert_equal(splits, np.cumsum([0, *map(len, expected)], dtype=np.int64))


#: `__getitems__` is what a framework's sampler calls: it takes sequences and arrays of records.
SEQUENCES = {name: value for name, value in BATCHES.items() if not isinstance(value, slice)}


@cases(SEQUENCES)
def test_getitems_indexes_as_brackets(index: Any, records: Any) -> None:
    assert_equal(records.__getitems__(index), RECORDS[index])


@cases(INTEGERS)
def test_ragged_integer(index: Any, ragged: Any) -> None:
    assert_equal(ragged[index], ROWS[operator.index(index)])


@cases(BATCHES)
def test_ragged_batch(index: Any, ragged: Any) -> None:
    chosen = np.arange(N)[index]
    expected = [ROWS[i] for i in chosen]
    found = [ragged[index]] if isinstance(index, slice) else [ragged[index], ragged.__getitems__(index)]
    for values, splits in found:
        assert_equal(values, np.concatenate([np.zeros((0, 2), dtype=np.int16), *expected]))
        assert_equal(splits, np.cumsum([0, *map(len, expected)], dtype=np.int64))
        assert values.flags.c_contiguous
        assert splits.flags.c_contiguous


@cases(NESTED)
def test_ragged_refuses_index_arrays_with_several_axes(index: Any, ragged: Any) -> None:
    with pytest.raises(loaderx.RecordIndexError):
        ragged[index]


@cases(OUTSIDE)
def test_outside_is_an_index_error(index: Any, records: Any, labels: Any, ragged: Any) -> None:
    for dataset in (records, labels, ragged):
        with pytest.raises(loaderx.RecordIndexError) as caught:
            dataset[index]
        assert isinstance(caught.value, IndexError)
        assert caught.value.code == -3


@pytest.mark.parametrize(
    ("index", "wrong", "position"),
    [(N, N, None), (-11, -11, None), ([3, -11, 12], -11, 1), ([0, 1, 99], 99, 2)],
)
def test_index_error_says_which(
    index: Any, wrong: int, position: int | None, records: Any, ragged: Any
) -> None:
    for dataset in (records, ragged):
        with pytest.raises(loaderx.RecordIndexError, match=f"{wrong}.*{N}") as caught:
            dataset[index]
        assert caught.value.index == wrong
        assert caught.value.length == N
        if position is not None:
            assert caught.value.position == position


@cases(WRONG_TYPE)
def test_wrong_type_is_a_type_error(index: Any, records: Any, labels: Any, ragged: Any) -> None:
    for dataset in (records, labels, ragged):
        with pytest.raises(TypeError):
            dataset[index]


@cases(WRONG_TYPE | OUTSIDE)
def test_getitems_refuses_the_same(index: Any, records: Any, ragged: Any) -> None:
    for dataset in (records, ragged):
        with pytest.raises((TypeError, loaderx.RecordIndexError)):
            dataset.__getitems__(index)


class Tensor:
    """An array of another library, which like theirs is an integer to Python where it has a single item."""

    def __init__(self, items: Any) -> None:
        self._array = np.array(items)

    @property
    def ndim(self) -> int:
        return self._array.ndim

    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray[Any, Any]:
        return self._array

    def __index__(self) -> int:
        return int(self._array.item())

    def item(self) -> Any:
        return self._array.item()

    def __iter__(self) -> Any:
        return (Tensor(item) for item in self._array)

    def __len__(self) -> int:
        return len(self._array)


def _of_torch(items: Any) -> Any:
    import torch

    return torch.tensor(items)


TENSORS = pytest.mark.parametrize(
    "tensor",
    [
        Tensor,
        pytest.param(_of_torch, marks=pytest.mark.needs_torch),
    ],
)


@TENSORS
@pytest.mark.parametrize(
    "items", [[5], [-1], [5, 6], [0] * 20, [True] + [False] * 9, [[4]], [[[1]]], [[1, 2]]]
)
def test_a_tensor_has_the_axes_it_has(tensor: Any, items: Any, records: Any, ragged: Any) -> None:
    """One of a single item is a batch of one, not a record: the last batch of an epoch may be."""
    index = tensor(items)
    assert_equal(records[index], RECORDS[np.array(items)])
    assert_equal(records.__getitems__(index), RECORDS[np.array(items)])
    if index.ndim > 1:
        with pytest.raises(loaderx.RecordIndexError):
            ragged[index]
        return
    expected = [ROWS[i] for i in np.arange(N)[np.array(items)]]
    for values, splits in (ragged[index], ragged.__getitems__(index)):
        assert_equal(values, np.concatenate(expected))
        assert_equal(splits, np.cumsum([0, *map(len, expected)], dtype=np.int64))
    padded, lens = ragged.getitems_padded(index)
    assert padded.shape[0] == len(expected) and lens.tolist() == [len(row) for row in expected]


@TENSORS
def test_a_tensor_without_axes_is_a_record(tensor: Any, records: Any, ragged: Any) -> None:
    assert_equal(records[tensor(5)], RECORDS[5])
    assert_equal(ragged[tensor(-2)], ROWS[-2])
    for dataset in (records, ragged):
        with pytest.raises(TypeError, match="needs a sequence"):
            dataset.__getitems__(tensor(5))


@TENSORS
@pytest.mark.parametrize("items", [True, False, 1.0, 1j, [1.0], [[1.5]]])
def test_a_tensor_of_no_integers_is_refused(tensor: Any, items: Any, records: Any, ragged: Any) -> None:
    for dataset in (records, ragged):
        for read in (dataset.__getitem__, dataset.__getitems__):
            with pytest.raises(TypeError):
                read(tensor(items))


@TENSORS
def test_a_mask_of_one_item_is_a_mask(tensor: Any, tmp_path: Path, records: Any) -> None:
    loaderx.write_dataset(tmp_path / "one", RECORDS[:1], progress=False)
    one = loaderx.Dataset(tmp_path / "one")
    for mask in ([True], [False]):
        assert_equal(one[tensor(mask)], RECORDS[:1][np.array(mask)])
        with pytest.raises(loaderx.RecordIndexError, match="mask"):
            records[tensor(mask)]


def test_array_of_objects_is_refused(records: Any, ragged: Any) -> None:
    # NumPy raises IndexError here
    for dataset in (records, ragged):
        with pytest.raises((TypeError, IndexError)):
            dataset[np.array([1, 2], dtype=object)]


def test_empty_float_array_is_refused_and_empty_list_is_not(records: Any, ragged: Any) -> None:
    for dataset in (records, ragged):
        with pytest.raises((TypeError, IndexError)):
            dataset[np.array([], dtype=np.float64)]
    assert records[[]].shape == (0, 3, 2)


def test_zero_step_is_a_value_error(records: Any, ragged: Any) -> None:
    for dataset in (records, ragged):
        with pytest.raises(ValueError, match="step"):
            dataset[::0]


def test_uint64_that_would_wrap_is_never_another_record(records: Any) -> None:
    with pytest.raises(loaderx.RecordIndexError):
        records[np.array([2**64 - 1], dtype=np.uint64)]


def test_results_are_the_callers_own(records: Any, labels: Any, ragged: Any) -> None:
    for index in (3, slice(2, 5), [3, 3], MASK):
        got = records[index]
        assert got.flags.writeable
        got[...] = -1
        assert_equal(records[index], RECORDS[index])
    values, splits = ragged[[0, 3]]
    values[...] = -1
    splits[...] = -1
    assert_equal(ragged[[0, 3]][0], np.concatenate([ROWS[0], ROWS[3]]))
    one = ragged[0]
    one[...] = -1
    assert_equal(ragged[0], ROWS[0])


def test_iteration_ends(records: Any, ragged: Any) -> None:
    # through __getitem__ and IndexError, as for any sequence
    assert [item.tobytes() for item in records] == [item.tobytes() for item in RECORDS]
    assert [item.tobytes() for item in ragged] == [item.tobytes() for item in ROWS]


# --- __getitems__(..., out=) ---------------------------------------------------------------------------------------


@cases(SEQUENCES)
def test_out_is_filled_and_returned(index: Any, records: Any) -> None:
    expected = RECORDS[index]
    out = np.full_like(expected, -7)
    assert records.__getitems__(index, out=out) is out
    assert_equal(out, expected)


OUT_SHAPE = (4, 3, 2)
WRONG_OUT = {
    "too_few": np.zeros((3, 3, 2), dtype=np.int32),
    "too_many": np.zeros((5, 3, 2), dtype=np.int32),
    "item_shape": np.zeros((4, 2, 3), dtype=np.int32),
    "flat": np.zeros(24, dtype=np.int32),
    "dtype": np.zeros(OUT_SHAPE, dtype=np.uint32),
    "byte_order": np.zeros(OUT_SHAPE, dtype=">i4"),
    "itemsize": np.zeros(OUT_SHAPE, dtype=np.int64),
    "strided": np.zeros((8, 3, 2), dtype=np.int32)[::2],
    "f_order": np.zeros(OUT_SHAPE, dtype=np.int32, order="F"),
    "reversed": np.zeros(OUT_SHAPE, dtype=np.int32)[::-1],
    "read_only": read_only(np.zeros(OUT_SHAPE, dtype=np.int32)),
    "broadcast": np.broadcast_to(np.zeros((1, 3, 2), dtype=np.int32), OUT_SHAPE),
}


@pytest.mark.parametrize("name", WRONG_OUT)
def test_wrong_out_is_refused_untouched(name: str, records: Any) -> None:
    out = WRONG_OUT[name]
    before = out.tobytes()
    with pytest.raises((loaderx.DestinationError, loaderx.SchemaError)) as caught:
        records.__getitems__([0, 1, 2, 3], out=out)
    assert isinstance(caught.value, ValueError)
    assert out.tobytes() == before


def test_out_that_is_no_array_is_refused(records: Any) -> None:
    with pytest.raises((TypeError, loaderx.DestinationError)):
        records.__getitems__([0], out=[0])


def test_out_is_untouched_by_a_bad_index(records: Any) -> None:
    out = np.full((2, 3, 2), 5, dtype=np.int32)
    with pytest.raises(loaderx.RecordIndexError):
        records.__getitems__([N, 0], out=out)


# --- Zrecord: the same rule for negative indices -------------------------------------------------------------------


def test_zrecord_wraps_negative_indices(store_path: Path) -> None:
    with loaderx.Zrecord(store_path, "raw") as store:
        store.append_var(b"abbcccdddd", np.array([0, 1, 3, 6]), np.array([1, 2, 3, 4]))
        assert store.lengths([-1, 0, -4]).tolist() == [4, 1, 1]
        data, splits = store.gather_packed([-1, 1])
        assert data.tobytes() == b"ddddbb"
        assert splits.tolist() == [0, 4, 6]
        for index in (4, -5):
            for read in (store.lengths, store.gather_packed, store.delete):
                with pytest.raises(loaderx.RecordIndexError):
                    read([index])
        assert len(store) == 4
        store.delete([-1, 3])
        assert len(store) == 3
        store.delete([-3])
        assert store.gather_packed([0, 1])[0].tobytes() == b"cccbb"


OF_JAX = """
import sys
import jax.numpy as jnp
import numpy as np
from loaderx import Dataset, write_dataset

array = np.arange(20) * 3
write_dataset(sys.argv[1], array, progress=False)
with Dataset(sys.argv[1]) as dataset:
    for items in ([5], [-1], [5, 6], [0] * 20, [True] + [False] * 19, [[4]], [[[1]]], [[1, 2]]):
        expected = array[np.array(items)]
        for found in (dataset[jnp.asarray(items)], dataset.__getitems__(jnp.asarray(items))):
            assert found.shape == expected.shape and (found == expected).all(), items
    assert dataset[jnp.asarray(5)] == 15 and dataset[jnp.asarray(5)].shape == ()
print("done")
"""


@pytest.mark.needs_jax
def test_arrays_of_jax_have_the_axes_they_have(tmp_path: Path) -> None:
    """In a process of its own: JAX in this one would warn of every fork that another test makes."""
    command = [sys.executable, "-c", OF_JAX, str(tmp_path / "a.zr")]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr
