"""Ragged records: packed batches, padded batches, empty records, trailing shapes, and `pad` alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import loaderx
from tests import oracle

Array = np.ndarray[Any, Any]

SIZES = (3, 0, 1, 5, 2, 0, 4, 1, 0)
CODECS = ("raw", "zstd", "zstd_dict")


def make_rows(
    item_shape: tuple[int, ...] = (), dtype: str = "<i4", sizes: tuple[int, ...] = SIZES
) -> list[Array]:
    """Return one array of rows per size, no two alike."""
    return [
        np.arange(size * int(np.prod(item_shape)), dtype=dtype).reshape(size, *item_shape) + 10 * number
        for number, size in enumerate(sizes)
    ]


def pad_slowly(
    rows: list[Array], max_len: int | None, value: Any, item_shape: tuple[int, ...], dtype: Any
) -> Array:
    """Pad with a plain loop."""
    length = max([len(row) for row in rows], default=0) if max_len is None else max_len
    padded = np.empty((len(rows), length, *item_shape), dtype=dtype)
    for number, row in enumerate(rows):
        for place in range(length):
            padded[number, place] = row[place] if place < len(row) else value
    return padded


def assert_equal(got: Any, expected: Array) -> None:
    assert isinstance(got, np.ndarray)
    assert got.dtype == expected.dtype
    assert got.shape == expected.shape
    assert got.tobytes() == expected.tobytes()


def write(path: Path, rows: Any, **options: Any) -> int:
    return int(loaderx.write_ragged(path, rows, progress=False, **options))


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("item_shape", [(), (3,), (2, 3), (1, 1)])
def test_batches(item_shape: tuple[int, ...], codec: str, store_path: Path) -> None:
    rows = make_rows(item_shape, sizes=SIZES * 12)
    assert write(store_path, rows, codec=codec) == len(rows)
    batch = [7, 3, 3, 1, 0, -1, 40]
    chosen = [rows[index] for index in batch]
    with loaderx.RaggedDataset(store_path) as dataset:
        assert (len(dataset), dataset.dtype, dataset.item_shape) == (len(rows), np.dtype("<i4"), item_shape)
        assert dataset.codec == codec
        values, splits = dataset.__getitems__(batch)
        assert_equal(values, np.concatenate(chosen))
        assert_equal(splits, np.cumsum([0, *map(len, chosen)], dtype=np.int64))
        assert values.flags.c_contiguous
        padded, lengths = dataset.getitems_padded(batch)
        assert_equal(padded, pad_slowly(chosen, None, 0, item_shape, "<i4"))
        assert_equal(lengths, np.array([len(row) for row in chosen], dtype=np.int64))
        for index, row in enumerate(rows):
            assert_equal(dataset[index], row)
    for got, row in zip(oracle.read_ragged(store_path), rows, strict=True):
        assert_equal(got, row)
    assert oracle.OracleStore(store_path).faults() == []


@pytest.mark.parametrize("value", [0, -1, 7, np.int32(5)])
@pytest.mark.parametrize("max_len", [None, 5, 6, 40])
@pytest.mark.parametrize("item_shape", [(), (2,)])
def test_padding(item_shape: tuple[int, ...], max_len: int | None, value: Any, store_path: Path) -> None:
    rows = make_rows(item_shape)
    write(store_path, rows)
    batch = [3, 1, 0, 8, 3]
    chosen = [rows[index] for index in batch]
    expected = pad_slowly(chosen, max_len, value, item_shape, "<i4")
    with loaderx.RaggedDataset(store_path) as dataset:
        padded, lengths = dataset.getitems_padded(batch, max_len, value)
        assert_equal(padded, expected)
        assert_equal(lengths, np.array([len(row) for row in chosen], dtype=np.int64))
        again, lengths_again = dataset.getitems_padded(batch, max_len=max_len, pad_value=value)
        assert_equal(again, expected)
        split = dataset[batch]
    by_pad, lengths_by_pad = loaderx.pad(*split, max_len, value)
    assert_equal(by_pad, expected)
    assert_equal(lengths_by_pad, lengths)
    assert_equal(lengths_again, lengths)
    again, _ = loaderx.pad(*split, max_len=max_len, pad_value=value)
    assert_equal(again, expected)


@pytest.mark.parametrize(
    ("dtype", "value"),
    [
        ("<f4", np.nan), ("<f8", -0.0), ("?", True), (">i4", 258), ("<c8", 1 + 2j), ("S3", b"pad"), ("<U2", "é"),
        ("<M8[s]", np.datetime64("NaT", "s")), ("u1", 255), ("<f2", 1.5), (">f8", 1e300),
    ],
)  # fmt: skip
def test_pad_value_in_the_dtype(dtype: str, value: Any, store_path: Path) -> None:
    rows = [np.ones(size, dtype="u1").astype(dtype) for size in (2, 0, 3)]
    write(store_path, rows)
    expected = pad_slowly(rows, 4, value, (), np.dtype(dtype))
    with loaderx.RaggedDataset(store_path) as dataset:
        padded, _ = dataset.getitems_padded([0, 1, 2], 4, value)
        split = dataset[:]
    assert_equal(padded, expected)
    assert_equal(loaderx.pad(*split, 4, value)[0], expected)


def test_pad_fields(store_path: Path) -> None:
    dtype = np.dtype([("a", "<i4"), ("b", ">f4")])
    rows = [np.array([(1, 2.5)], dtype=dtype), np.array([], dtype=dtype)]
    write(store_path, rows)
    with loaderx.RaggedDataset(store_path) as dataset:
        padded, _ = dataset.getitems_padded([0, 1])
        assert padded.tolist() == [[(1, 2.5)], [(0, 0.0)]]
        padded, _ = dataset.getitems_padded([0, 1], 2, np.array((7, 8.5), dtype=dtype))
    assert padded.tolist() == [[(1, 2.5), (7, 8.5)], [(7, 8.5), (7, 8.5)]]


@pytest.mark.parametrize("value", [300, -1, "a"])
def test_pad_value_that_does_not_fit_is_refused(value: Any, store_path: Path) -> None:
    write(store_path, [np.ones(2, dtype=np.uint8), np.ones(1, dtype=np.uint8)])
    with loaderx.RaggedDataset(store_path) as dataset:
        with pytest.raises((ValueError, OverflowError, TypeError)):
            dataset.getitems_padded([0, 1], None, value)
        with pytest.raises((ValueError, OverflowError, TypeError)):
            loaderx.pad(*dataset[:], None, value)


def test_too_small_max_len_names_the_record(store_path: Path) -> None:
    write(store_path, make_rows())
    with loaderx.RaggedDataset(store_path) as dataset:
        # records 6 (4 rows) and 3 (5 rows) are over; 6 comes first in the batch
        with pytest.raises(ValueError, match=r"record 6\b.*\b4\b") as caught:
            dataset.getitems_padded([0, 6, 3], max_len=3)
        assert isinstance(caught.value, loaderx.LoaderxError)
        with pytest.raises(ValueError, match=r"record (3|-6)\b.*\b5\b"):
            dataset.getitems_padded([-6], max_len=4)
        with pytest.raises(ValueError, match=r"record 0\b"):
            dataset.getitems_padded([1, 0], max_len=0)
        padded, lengths = dataset.getitems_padded([1, 5], max_len=0)
        assert padded.shape == (2, 0)
        assert lengths.tolist() == [0, 0]
        values, splits = dataset[[0, 6, 3]]
    with pytest.raises(ValueError, match=r"\b1\b.*\b4\b"):
        loaderx.pad(values, splits, max_len=3)


@pytest.mark.parametrize("max_len", [-1, 1.5, "3"])
def test_max_len_that_is_no_length_is_refused(max_len: Any, store_path: Path) -> None:
    write(store_path, [np.zeros(0, dtype=np.int32)])
    with loaderx.RaggedDataset(store_path) as dataset:
        with pytest.raises((ValueError, TypeError)):
            dataset.getitems_padded([0], max_len)
        with pytest.raises((ValueError, TypeError)):
            loaderx.pad(*dataset[[0]], max_len)


def test_empty_batches(store_path: Path) -> None:
    write(store_path, make_rows((2,)))
    with loaderx.RaggedDataset(store_path) as dataset:
        values, splits = dataset[[]]
        assert (values.shape, values.dtype) == ((0, 2), np.dtype("<i4"))
        assert splits.tolist() == [0]
        padded, lengths = dataset.getitems_padded([])
        assert padded.shape == (0, 0, 2)
        assert lengths.shape == (0,)
        assert dataset.getitems_padded([], max_len=4)[0].shape == (0, 4, 2)
        values, splits = dataset[[1, 5, 8]]
        assert values.shape == (0, 2)
        assert splits.tolist() == [0, 0, 0, 0]
        assert dataset.getitems_padded([1, 5])[0].shape == (2, 0, 2)


@pytest.mark.parametrize(
    ("splits", "expected"),
    [
        ([0, 2, 2, 6], [[0, 1, 0, 0], [0, 0, 0, 0], [2, 3, 4, 5]]),
        ([0, 6], [[0, 1, 2, 3, 4, 5]]),
        ([0], np.zeros((0, 0))),
    ],
)
@pytest.mark.parametrize("dtype", [np.int64, np.int32, np.uint8])
def test_pad_takes_integer_splits(splits: list[int], expected: Any, dtype: Any) -> None:
    values = np.arange(splits[-1])
    padded, lengths = loaderx.pad(values, np.array(splits, dtype=dtype))
    assert_equal(padded, np.array(expected, dtype=np.int64))
    assert_equal(lengths, np.diff(splits).astype(np.int64))
    assert_equal(loaderx.pad(values, splits)[0], padded)


def test_pad_takes_any_layout_of_values() -> None:
    values = np.arange(24).reshape(12, 2)[::2, ::-1]
    padded, _ = loaderx.pad(values, np.array([0, 2, 6]))
    assert_equal(padded, pad_slowly([values[:2], values[2:]], None, 0, (2,), np.int64))


@pytest.mark.parametrize(
    "splits",
    [
        pytest.param([], id="none"),
        pytest.param([0, 9], id="beyond"),
        pytest.param([0, 4, 2, 6], id="falling"),
        pytest.param([-1, 3], id="negative"),
        pytest.param([[0, 6]], id="two_axes"),
        pytest.param([0.0, 6.0], id="floats"),
        pytest.param([0, 4, -(2**62), 6], id="far_negative"),
        pytest.param([0, 2**62, 6], id="far_beyond"),
    ],
)
def test_pad_refuses_splits_that_are_none(splits: Any) -> None:
    with pytest.raises((ValueError, TypeError, IndexError)):
        loaderx.pad(np.arange(6), np.array(splits))


# --- writing -------------------------------------------------------------------------------------------------------


def test_any_iterable_is_read_once_in_order(store_path: Path) -> None:
    rows = make_rows((2,))
    asked: list[int] = []

    def produce() -> Iterator[Array]:
        for number, row in enumerate(rows):
            asked.append(number)
            yield row

    assert write(store_path, produce(), chunk_bytes=16) == len(rows)
    assert asked == list(range(len(rows)))
    for got, row in zip(oracle.read_ragged(store_path), rows, strict=True):
        assert_equal(got, row)


def test_first_array_sets_dtype_and_item_shape(new_path: Callable[[], Path]) -> None:
    for first, item_shape in ((np.zeros(3, ">u2"), ()), (np.zeros((2, 4, 1), "<f2"), (4, 1))):
        path = new_path()
        write(path, [first, first[:1]])
        schema = oracle.read_schema(path)
        assert (schema.kind, schema.dtype, schema.shape) == ("ragged", first.dtype, item_shape)


def test_lists_are_arrays(store_path: Path) -> None:
    assert write(store_path, [[1, 2], [3], []], dtype="<i2") == 3
    assert [row.tolist() for row in oracle.read_ragged(store_path)] == [[1, 2], [3], []]
    assert oracle.read_schema(store_path).dtype == np.dtype("<i2")


def test_given_dtype_converts(store_path: Path) -> None:
    write(store_path, [np.array([1, 2], dtype=np.int32), np.array([3], dtype=np.uint8)], dtype=">f4")
    first, second = oracle.read_ragged(store_path)
    assert_equal(first, np.array([1, 2], dtype=">f4"))
    assert_equal(second, np.array([3], dtype=">f4"))


def test_values_are_never_cut_to_the_first_dtype(store_path: Path) -> None:
    with pytest.raises((ValueError, TypeError)):
        write(store_path, [np.array([1, 2], dtype=np.int32), np.array([1.5])])
    assert list(store_path.parent.iterdir()) == []


@pytest.mark.parametrize(
    ("rows", "options"),
    [
        pytest.param([np.zeros((2, 3)), np.zeros(2)], {}, id="fewer_axes"),
        pytest.param([np.zeros((2, 3)), np.zeros((2, 4))], {}, id="other_extent"),
        pytest.param([np.zeros(2), np.zeros((2, 3))], {}, id="more_axes"),
        pytest.param([np.zeros(6)], {"item_shape": (3,)}, id="given_shape"),
        pytest.param([np.zeros((6, 3))], {"item_shape": ()}, id="given_no_shape"),
        pytest.param([], {}, id="nothing_to_infer_from"),
    ],
)
def test_rows_that_do_not_fit_are_refused(
    rows: list[Array], options: dict[str, Any], store_path: Path
) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        write(store_path, rows, **options)
    assert list(store_path.parent.iterdir()) == []


@pytest.mark.parametrize("item_shape", [(0,), (3, 0)])
def test_rows_without_bytes_are_refused(item_shape: tuple[int, ...], store_path: Path) -> None:
    # a record's number of rows is its bytes divided by a row's: there would be no way to tell it
    with pytest.raises(loaderx.SchemaError):
        write(store_path, [np.zeros((2, *item_shape))])
    assert list(store_path.parent.iterdir()) == []


def test_append_needs_the_same_rows(store_path: Path) -> None:
    rows = make_rows((2,))
    write(store_path, rows)
    for other in (np.zeros((1, 3), "<i4"), np.zeros(1, "<i4"), np.array([[1.5, 2.5]])):
        with pytest.raises(ValueError, match=r"\w"):
            write(store_path, [rows[0], other])
        assert len(oracle.OracleStore(store_path)) == len(rows)
    with pytest.raises(loaderx.SchemaError):
        loaderx.write_dataset(store_path, np.zeros((1, 2), "<i4"), progress=False)
    assert write(store_path, rows[:4]) == 4
    for got, row in zip(oracle.read_ragged(store_path), rows + rows[:4], strict=True):
        assert_equal(got, row)


def test_failure_half_way_leaves_nothing(store_path: Path) -> None:
    def fail() -> Iterator[Array]:
        yield from make_rows()
        raise RuntimeError("the source broke")

    with pytest.raises(RuntimeError, match="the source broke"):
        write(store_path, fail(), chunk_bytes=8)
    assert list(store_path.parent.iterdir()) == []
    rows = make_rows()
    write(store_path, rows)
    with pytest.raises(RuntimeError, match="the source broke"):
        write(store_path, fail(), chunk_bytes=8)
    assert oracle.OracleStore(store_path).faults() == []
    assert oracle.OracleStore(store_path).records() == [row.tobytes() for row in rows]
    assert write(store_path, rows[:2]) == 2
    assert oracle.OracleStore(store_path).records() == [row.tobytes() for row in rows + rows[:2]]


def test_record_that_is_no_whole_number_of_rows_is_damage(store_path: Path) -> None:
    forge = oracle.Forge()
    forge.add(b"12345678")
    forge.add(b"1234567")
    forge.describe("<i4", [], ragged=True)
    forge.write(store_path)
    with loaderx.RaggedDataset(store_path) as dataset:
        assert dataset[0].tobytes() == b"12345678"
        for read in (lambda: dataset[1], lambda: dataset[[0, 1]], lambda: dataset.getitems_padded([0, 1])):
            with pytest.raises(loaderx.CorruptRecordError) as caught:
                read()
            assert caught.value.record == 1


def test_kinds_are_not_mixed_up(new_path: Callable[[], Path]) -> None:
    fixed, ragged = new_path(), new_path()
    loaderx.write_dataset(fixed, np.zeros((2, 3)), progress=False)
    write(ragged, [np.zeros(3)])
    with pytest.raises(loaderx.SchemaError, match="RaggedDataset"):
        loaderx.Dataset(ragged)
    with pytest.raises(loaderx.SchemaError, match=r"\bDataset\b"):
        loaderx.RaggedDataset(fixed)


def test_padded_batch_over_the_limit_is_refused_before_it_is_allocated(store_path: Path) -> None:
    rows = make_rows()
    write(store_path, rows)
    with loaderx.RaggedDataset(store_path, max_batch_bytes=64) as dataset:
        assert dataset[[0, 3]][0].nbytes == 32
        with pytest.raises(loaderx.LoaderxError, match="max_batch_bytes"):
            dataset[[0, 3, 6, 6, 6]]
        # one row of real data, but 2**40 of padding
        with pytest.raises(loaderx.LoaderxError, match="max_batch_bytes"):
            dataset.getitems_padded([2], max_len=1 << 40)
