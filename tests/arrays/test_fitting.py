"""`check_fits`: the records of a dataset whose lengths are not what schema.json says."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from loaderx import NotAStoreError, OptionError, SchemaError, Zrecord, write_dataset, write_ragged
from loaderx.arrays.fitting import check_fits
from loaderx.store import table


def test_fixed_records_have_one_length(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.zr"
    write_dataset(path, np.zeros((10, 3), np.int16))
    assert check_fits(path) == ()
    with Zrecord(path) as z:
        z.append_var(bytes(40), [0, 6, 12, 18], [6, 5, 12, 0], "raw")
    monkeypatch.setattr(table, "_BLOCK_ENTRIES", 4)
    misfits = check_fits(path)
    assert [(misfit.record, misfit.chunk) for misfit in misfits] == [(11, 0), (12, 0), (13, 0)]
    assert misfits[0].problem == "it has 5 bytes, and by schema.json a record of int16 (3,) has 6"
    assert misfits[1].byte_offset == misfits[0].byte_offset + 5


def test_ragged_records_have_whole_rows(tmp_path: Path) -> None:
    path = tmp_path / "a.zr"
    write_ragged(path, [np.zeros((rows, 3), np.int16) for rows in (2, 0, 1)])
    assert check_fits(path) == ()
    with Zrecord(path) as z:
        z.append_var(bytes(40), [0, 6, 12], [12, 0, 7], "raw")
    (misfit,) = check_fits(path)
    assert (misfit.record, misfit.problem) == (
        5,
        "it has 7 bytes, and by schema.json a row of int16 (3,) has 6",
    )


def test_records_of_no_bytes_and_no_records(tmp_path: Path) -> None:
    write_dataset(tmp_path / "a.zr", np.zeros((4, 0)))
    write_dataset(tmp_path / "b.zr", np.zeros((0, 4)))
    assert check_fits(tmp_path / "a.zr") == check_fits(tmp_path / "b.zr") == ()


def test_byte_records_may_have_any_length(tmp_path: Path) -> None:
    with Zrecord(tmp_path / "a.zr") as z:
        z.append_var(bytes(10), [0, 3], [3, 7])
    assert check_fits(tmp_path / "a.zr") == ()


def test_what_cannot_be_looked_at(tmp_path: Path) -> None:
    write_dataset(tmp_path / "a.zr", np.zeros((4, 2)))
    with pytest.raises(OptionError):
        check_fits(tmp_path / "a.zr", timeout_s=-1)
    (tmp_path / "a.zr/meta.zr").unlink()
    with pytest.raises(NotAStoreError):
        check_fits(tmp_path / "a.zr")
    (tmp_path / "a.zr/schema.json").write_text("[]")
    with pytest.raises(SchemaError, match=r"schema\.json is wrong"):
        check_fits(tmp_path / "a.zr")
