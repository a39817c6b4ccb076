"""What is written that is no plain array: datasets, names of files, mappings, one record; and options that are none."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from loaderx import Dataset, OptionError, RaggedDataset, SchemaError, Zrecord, write_dataset, write_ragged

ROWS = np.random.default_rng(0).integers(0, 9, (500, 4, 10), dtype="<i2")


@pytest.mark.parametrize("chunk_bytes", [1, 1000, 1 << 20])
def test_a_dataset_is_written_in_slices(chunk_bytes: int, tmp_path: Path) -> None:
    write_dataset(tmp_path / "a.zr", ROWS)
    with Dataset(tmp_path / "a.zr", max_batch_bytes=max(chunk_bytes, 80)) as source:
        assert write_dataset(tmp_path / "b.zr", source, "raw", chunk_bytes) == 500
        assert write_dataset(tmp_path / "a.zr", source, chunk_bytes=chunk_bytes) == 500, "onto itself"
    with Dataset(tmp_path / "b.zr") as copy:
        assert np.array_equal(copy[:], ROWS) and copy.dtype == ROWS.dtype
    assert np.array_equal(Dataset(tmp_path / "a.zr")[:], np.concatenate([ROWS, ROWS]))


def test_datasets_of_scalars_of_nothing_and_with_a_dictionary(tmp_path: Path) -> None:
    for name, array in {"scalars": np.arange(7.0), "empty": ROWS[:0]}.items():
        write_dataset(tmp_path / name, array)
        assert write_dataset(tmp_path / f"{name}-copy", Dataset(tmp_path / name)) == len(array)
        assert np.array_equal(Dataset(tmp_path / f"{name}-copy")[:], array)
    write_dataset(tmp_path / "a.zr", ROWS)
    assert write_dataset(tmp_path / "d.zr", Dataset(tmp_path / "a.zr"), "zstd_dict", level=3) == 500
    assert np.array_equal(Dataset(tmp_path / "d.zr")[:], ROWS)


def test_datasets_of_the_other_kind(tmp_path: Path) -> None:
    write_ragged(tmp_path / "r.zr", [[1, 2], [3]])
    with pytest.raises(SchemaError, match="write_ragged takes it"):
        write_dataset(tmp_path / "x.zr", RaggedDataset(tmp_path / "r.zr"))
    write_dataset(tmp_path / "a.zr", ROWS)
    assert write_ragged(tmp_path / "y.zr", Dataset(tmp_path / "a.zr")) == 500
    assert np.array_equal(RaggedDataset(tmp_path / "y.zr")[3], ROWS[3])


def test_names_are_not_stored_for_the_arrays_they_stand_for(tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", images=ROWS, labels=ROWS[:, 0, 0])
    with np.load(tmp_path / "x.npz") as npz:
        for write in (write_dataset, write_ragged):
            for data in (npz, dict(npz)):
                with pytest.raises(SchemaError, match=r"take one of them, \['images'\]; .* convert"):
                    write(tmp_path / "x.zr", data)
            with pytest.raises(SchemaError, match="holds arrays by name"):
                write(tmp_path / "x.zr", {})
    for write in (write_dataset, write_ragged):
        for name in (tmp_path / "x.npy", "x.npy"):
            with pytest.raises(SchemaError, match=r"x.npy' is no array: np\.load\(name, .* convert"):
                write(tmp_path / "x.zr", name)  # type: ignore[arg-type]
    assert not (tmp_path / "x.zr").exists()


def test_one_record_in_place_of_a_batch(tmp_path: Path) -> None:
    write_dataset(tmp_path / "a.zr", ROWS)
    with pytest.raises(SchemaError, match=r"axis 0 counts the records, so one record is array\[None\]"):
        write_dataset(tmp_path / "a.zr", ROWS[0])
    for other in (ROWS[:, :, None], ROWS.astype("i4")[0]):
        with pytest.raises(SchemaError) as caught:
            write_dataset(tmp_path / "a.zr", other)
        assert "axis 0" not in str(caught.value)
    assert write_dataset(tmp_path / "a.zr", ROWS[0][None]) == 1


class Tensor:
    """An array of another library, whose dtype NumPy does not know."""

    dtype = "other.int16"
    shape = ROWS.shape

    def __init__(self, error: Exception | None = None) -> None:
        self.error = error

    def __getitem__(self, key: Any) -> Any:
        raise AssertionError("slices of it are tensors too")

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        if self.error is not None:
            raise self.error
        return ROWS


def test_a_tensor_is_converted(tmp_path: Path) -> None:
    assert write_dataset(tmp_path / "x.zr", Tensor()) == 500  # type: ignore[arg-type]
    with Dataset(tmp_path / "x.zr") as ds:
        assert ds.dtype == ROWS.dtype and np.array_equal(ds[:], ROWS)


@pytest.mark.parametrize("error", [TypeError("it is far away"), RuntimeError("it is far away")])
def test_a_tensor_that_cannot_be_converted_says_what_to_do(error: Exception, tmp_path: Path) -> None:
    words = r"x\.zr: NumPy makes no array of a Tensor of other\.int16 \(it is far away\): .* tensor\.detach"
    with pytest.raises(SchemaError, match=words) as caught:
        write_dataset(tmp_path / "x.zr", Tensor(error))  # type: ignore[arg-type]
    assert caught.value.path == tmp_path / "x.zr" and not (tmp_path / "x.zr").exists()


WRITES: dict[str, Callable[..., int]] = {"write_dataset": write_dataset, "write_ragged": write_ragged}


@pytest.mark.parametrize("name", WRITES)
@pytest.mark.parametrize(
    ("option", "value"),
    [("overwrite", "no"), ("overwrite", 1), ("progress", "no"), ("progress", 1), ("level", 3)],
)
def test_options_that_are_none(name: str, option: str, value: Any, tmp_path: Path) -> None:
    with pytest.raises(OptionError) as caught:
        WRITES[name](tmp_path / "x.zr", ROWS, codec="raw", **{option: value})
    assert (caught.value.option, caught.value.value) == (option, value)
    assert not (tmp_path / "x.zr").exists()


def test_flags_may_be_numpys(tmp_path: Path) -> None:
    flag = np.arange(2) > 0
    assert write_dataset(tmp_path / "x.zr", ROWS, overwrite=flag[0], progress=flag[0]) == 500
    assert Dataset(tmp_path / "x.zr", verify=flag[1])._store.verify is True


@pytest.mark.parametrize("cls", [Dataset, RaggedDataset])
def test_a_wrong_argument_names_the_class(cls: type[Any], tmp_path: Path) -> None:
    with pytest.raises(
        TypeError, match=rf"^{cls.__name__}\.__init__\(\) got an unexpected keyword argument 'mode'"
    ):
        cls(tmp_path / "x.zr", mode="r")
    with pytest.raises(OptionError, match="verify is 'no': give True or False"):
        (write_dataset if cls is Dataset else write_ragged)(tmp_path / "x.zr", ROWS)
        cls(tmp_path / "x.zr", verify="no")


def test_repr_says_the_path_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_dataset("d.zr", ROWS)
    write_ragged("r.zr", ROWS)
    with Dataset("d.zr") as ds, RaggedDataset("r.zr") as rds:
        assert repr(ds) == f"<Dataset '{tmp_path}/d.zr': 500 records of int16 (4, 10)>"
        assert repr(rds) == f"<RaggedDataset '{tmp_path}/r.zr': 500 records, rows of int16 (10,)>"
    assert repr(ds) == f"<Dataset '{tmp_path}/d.zr': closed>"


def test_a_record_that_does_not_fit(tmp_path: Path) -> None:
    write_dataset(tmp_path / "d.zr", ROWS)
    with Zrecord(tmp_path / "d.zr") as z:
        z.append(b"abc", 1, 3)
    with pytest.raises(
        Exception, match=r"3 bytes where 80 are expected.* appended so.*schema\.json.*table entry"
    ):
        Dataset(tmp_path / "d.zr")[-1]


def test_an_empty_ragged_dataset_knows_what_it_is_of(tmp_path: Path) -> None:
    write_ragged(tmp_path / "a.zr", [], ">f4", (3, 2))
    with RaggedDataset(tmp_path / "a.zr") as empty:
        assert write_ragged(tmp_path / "b.zr", empty) == 0
        assert write_ragged(tmp_path / "c.zr", empty, "f8", codec="auto") == 0
    with RaggedDataset(tmp_path / "b.zr") as copy:
        assert (copy.dtype, copy.item_shape) == (np.dtype(">f4"), (3, 2))
    with RaggedDataset(tmp_path / "c.zr") as copy:
        assert (copy.dtype, copy.item_shape) == (np.dtype("f8"), (3, 2))
