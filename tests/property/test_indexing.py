"""Any index gives what NumPy gives, or is refused as NumPy refuses it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import loaderx

N = 17
RECORDS = np.random.default_rng(1).integers(0, 1 << 30, size=(N, 3), dtype=np.int32)
LABELS = np.random.default_rng(2).integers(0, 1 << 30, size=N, dtype=np.int64)
SIZES = (3, 0, 1, 7, 2, 0, 0, 4, 1, 1, 9, 2, 3, 0, 5, 1, 2)
ROWS = [np.arange(size, dtype=np.int16) + 100 * number for number, size in enumerate(SIZES)]


@dataclass(frozen=True)
class Stores:
    """The stores that all examples read."""

    records: Any
    labels: Any
    ragged: Any


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stores]:
    folder = tmp_path_factory.mktemp("indexing")
    loaderx.write_dataset(folder / "records", RECORDS, progress=False)
    loaderx.write_dataset(folder / "labels", LABELS, "raw", progress=False)
    loaderx.write_ragged(folder / "ragged", ROWS, progress=False)
    with (
        loaderx.Dataset(folder / "records") as records,
        loaderx.Dataset(folder / "labels") as labels,
        loaderx.RaggedDataset(folder / "ragged") as ragged,
    ):
        yield Stores(records, labels, ragged)


near = st.integers(-N - 2, N + 1)
inside = st.integers(-N, N - 1)
numbers = st.one_of(near, st.sampled_from([2**31, 2**63 - 1, -(2**63), 2**63, 2**64, -(2**64), 10**40]))
bounds = st.one_of(st.none(), st.integers(-2 * N, 2 * N), st.sampled_from([2**63, -(2**64)]))
slices = st.builds(
    slice, bounds, bounds, st.one_of(st.none(), st.integers(-N, N), st.sampled_from([2**63, -(2**63)]))
)
index_dtypes = hnp.integer_dtypes(endianness="?") | hnp.unsigned_integer_dtypes(endianness="?")


@st.composite
def index_arrays(draw: st.DrawFn, max_dims: int = 3) -> Any:
    """Draw an integer array of any width and layout; some of its values may lie outside."""
    dtype = draw(index_dtypes)
    values = draw(st.sampled_from([inside, near]))
    low = 0 if dtype.kind == "u" else np.iinfo(dtype).min
    shape = draw(hnp.array_shapes(min_dims=1, max_dims=max_dims, min_side=0, max_side=5))
    array = draw(hnp.arrays(dtype, shape, elements=values.filter(lambda value: value >= low)))
    return draw(st.sampled_from([array, array[::-1], array[::2], np.asfortranarray(array), array.T]))


masks = hnp.arrays(bool, st.one_of(st.just(N), st.integers(0, N + 2)))


def numpy_answer(array: Any, index: Any) -> Any:
    """Return what NumPy gives along axis 0, or the exception that refuses it."""
    as_array = np.asarray(index) if isinstance(index, list | np.ndarray) else None
    if as_array is not None and as_array.dtype == bool and as_array.shape != (N,):
        return IndexError(
            "NumPy lets a mask of no items pass for any length; here a mask has one for each record"
        )
    try:
        return array[index]
    except (IndexError, TypeError, ValueError) as error:
        return error
    except OverflowError as error:  # what NumPy says of one integer above 63 bits
        return IndexError(str(error))


def refusal(error: Exception) -> type[Exception]:
    """Return the class that we raise where NumPy raised `error`; no index drawn here has a wrong type."""
    return loaderx.RecordIndexError if isinstance(error, IndexError) else type(error)


def check(dataset: Any, array: Any, index: Any) -> None:
    """The dataset answers as the array does."""
    expected = numpy_answer(array, index)
    if isinstance(expected, Exception):
        with pytest.raises(refusal(expected)):
            dataset[index]
        return
    got = dataset[index]
    assert type(got) is type(expected)
    assert got.dtype == expected.dtype
    assert got.shape == expected.shape
    assert got.tobytes() == expected.tobytes()


def check_ragged(dataset: Any, index: Any) -> None:
    """The ragged dataset answers as a one-dimensional array of its records would."""
    chosen = numpy_answer(np.arange(N), index)
    if isinstance(chosen, Exception):
        with pytest.raises(refusal(chosen)):
            dataset[index]
    elif np.ndim(chosen) == 0:
        assert dataset[index].tolist() == ROWS[chosen].tolist()
    elif np.ndim(chosen) > 1:
        with pytest.raises(loaderx.RecordIndexError):
            dataset[index]
    else:
        values, splits = dataset[index]
        expected = [ROWS[i] for i in chosen]
        assert values.dtype == np.int16
        assert values.tolist() == [value for row in expected for value in row]
        assert splits.dtype == np.int64
        assert splits.tolist() == np.cumsum([0, *map(len, expected)]).tolist()


any_index = st.one_of(
    numbers,
    near.map(np.int8),
    slices,
    st.lists(near, max_size=8),
    st.lists(inside, max_size=8),
    st.lists(numbers, max_size=4),
    index_arrays(),
    masks,
    masks.map(lambda mask: mask.tolist()).filter(len),
    st.lists(st.lists(inside, min_size=2, max_size=2), min_size=1, max_size=3),
)


@given(index=any_index)
@example(index=np.array([2**63 - 1]))
@example(index=slice(None, None, -1))
@example(index=[True] * N)
@example(index=[False])
@example(index=np.zeros((2, 0), dtype=np.uint8))
def test_dataset(index: Any, stores: Stores) -> None:
    check(stores.records, RECORDS, index)
    check(stores.labels, LABELS, index)


@given(index=any_index)
@example(index=[True] * N)
def test_ragged(index: Any, stores: Stores) -> None:
    check_ragged(stores.ragged, index)


@given(index=st.lists(inside, max_size=40).map(tuple))
def test_tuple_is_a_list(index: tuple[int, ...], stores: Stores) -> None:
    chosen = np.array(index, dtype=np.int64)
    assert stores.records[index].tobytes() == RECORDS[chosen].tobytes()
    assert stores.records[index].shape == (len(index), 3)


@given(index=st.one_of(st.lists(inside, max_size=8), index_arrays(max_dims=1), masks))
def test_out(index: Any, stores: Stores) -> None:
    expected = numpy_answer(RECORDS, index)
    if isinstance(expected, Exception):
        with pytest.raises(refusal(expected)):
            stores.records.__getitems__(index, out=np.zeros((*np.shape(index), 3), dtype=np.int32))
        return
    out = np.full(expected.shape, -1, dtype=np.int32)
    assert stores.records.__getitems__(index, out=out) is out
    assert out.tobytes() == expected.tobytes()


@given(
    index=st.lists(inside, max_size=12),
    extra=st.integers(0, 4),
    value=st.integers(-(2**15), 2**15 - 1),
    given_length=st.booleans(),
)
def test_padding(index: list[int], extra: int, value: int, given_length: bool, stores: Stores) -> None:
    rows = [ROWS[i].tolist() for i in index]
    longest = max(map(len, rows), default=0)
    max_len = longest + extra if given_length else None
    width = longest if max_len is None else max_len
    expected = [row + [value] * (width - len(row)) for row in rows]
    fused, lengths = stores.ragged.getitems_padded(index, max_len, value)
    apart, lengths_apart = loaderx.pad(*stores.ragged[index], max_len, value)
    for padded in (fused, apart):
        assert padded.dtype == np.int16
        assert padded.shape == (len(index), width)
        assert padded.tolist() == expected
    assert lengths.tolist() == lengths_apart.tolist() == [len(row) for row in rows]
    if longest:
        first = next(number for number, row in enumerate(rows) if len(row) == longest)
        with pytest.raises(ValueError, match=rf"record ({index[first] % N}|{index[first]}) "):
            stores.ragged.getitems_padded(index, longest - 1, value)
