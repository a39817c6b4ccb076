"""A store that is moved away, removed or replaced by another while it is open."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import loaderx
from loaderx import Dataset, StoreIOError, Zrecord
from loaderx.store import files, reader, snapshot, staging
from tests.store.samples import SmallChunks, contents, fill

ROWS = np.arange(4000, dtype=np.int64).reshape(40, 100)


def records(letter: bytes, n: int) -> list[bytes]:
    return [letter * 200] * n


CHANGES: dict[str, Callable[[Zrecord], Any]] = {
    "append": lambda z: fill(z, records(b"c", 30)),
    "delete": lambda z: z.delete([0]),
    "compact": lambda z: z.compact(),
    "train_dict": lambda z: z.train_dict(np.arange(100_000) % 251, [100] * 1000, 2000),
    "sync": lambda z: z.sync(),
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("then", ["another", "nothing"])
def test_a_writer_changes_no_store_by_halves(change: str, then: str, tmp_path: Path) -> None:
    path, moved = tmp_path / "s.zr", tmp_path / "moved.zr"
    z = SmallChunks(path, "raw")
    fill(z, records(b"a", 20))
    z.delete([0, 1, 2])
    fill(z, records(b"b", 1))
    os.rename(path, moved)
    if then == "another":
        with SmallChunks(path, "raw") as new:
            fill(new, records(b"n", 30))
    with pytest.raises(StoreIOError, match=r"moved away, removed or replaced.*open the store"):
        CHANGES[change](z)
    with pytest.raises(StoreIOError, match="moved away"):
        z.close()
    if then == "another":
        assert contents(path) == records(b"n", 30) and loaderx.verify(path).ok
    else:
        assert not path.exists()
    assert contents(moved) == [*records(b"a", 17), *records(b"b", 1)] and loaderx.verify(moved).ok
    with SmallChunks(moved, "raw") as again:
        fill(again, records(b"d", 1))


def replaced_during(
    monkeypatch: pytest.MonkeyPatch, module: Any, name: str, replace: Callable[[], None]
) -> None:
    """Have `replace` called once, in front of a function of a module."""
    real, done = getattr(module, name), list[bool]()

    def replaces(*arguments: Any, **options: Any) -> Any:
        if not done:
            done.append(True)
            replace()
        return real(*arguments, **options)

    monkeypatch.setattr(module, name, replaces)


@pytest.mark.parametrize("n", [10, 40])
def test_refresh_mixes_no_two_stores(n: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "d.zr"
    loaderx.write_dataset(path, ROWS, "raw", progress=False)
    new = (ROWS + 1)[:n]
    with Dataset(path) as ds:
        replaced_during(
            monkeypatch,
            reader,
            "renew_snapshot",
            lambda: loaderx.write_dataset(path, new, "raw", overwrite=True, progress=False),
        )
        assert ds.refresh() == n
        assert np.array_equal(ds[:], new)


def test_an_open_that_meets_two_stores_begins_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first has more chunks than the second: looking for them there would accuse a good store."""
    path, other = tmp_path / "s.zr", tmp_path / "other.zr"
    for store, letter, n in ((path, b"a", 40), (other, b"b", 3)):
        with SmallChunks(store, "raw") as z:
            fill(z, records(letter, n))

    def replace() -> None:
        shutil.rmtree(path)
        os.rename(other, path)

    replaced_during(monkeypatch, snapshot, "_open_chunks", replace)
    with SmallChunks(path, mode="r") as z:
        assert bytes(z.gather_packed(np.arange(len(z)))[0]) == b"b" * 600


def test_another_builder_does_not_sweep_the_replaced_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has a partial store's name while it is removed, and whoever removes it is alive."""
    path = tmp_path / "d.zr"
    loaderx.write_dataset(path, ROWS, progress=False)
    swept: list[Path] = []

    def observe(operation: str, where: Any, *details: Any) -> None:
        if (
            operation == "unlink"
            and not swept
            and isinstance(where, Path)
            and ".partial-" in where.parent.name
        ):
            swept.append(where)
            staging.sweep(tmp_path, "d.zr")

    monkeypatch.setattr(files, "observe", observe)
    assert loaderx.write_dataset(path, ROWS[:7], overwrite=True, progress=False) == 7
    assert swept and os.listdir(tmp_path) == ["d.zr"]
    assert np.array_equal(Dataset(path)[:], ROWS[:7])


@pytest.mark.parametrize("then", ["nothing", "another file"])
@pytest.mark.parametrize("change", ["append", "delete", "compact"])
def test_sums_that_are_removed_under_a_writer(then: str, change: str, tmp_path: Path) -> None:
    """The records are read and changed as before; they have no sums."""
    path = tmp_path / "s.zr"
    with SmallChunks(path, "raw") as z:
        fill(z, records(b"a", 20))
        z.delete([3])
        (path / "sums.zr").unlink()
        if then == "another file":
            (path / "sums.zr").write_bytes(b"something else")
        CHANGES[change](z)
        z.delete([0])
    left = len(contents(path))
    assert left == {"append": 48, "delete": 17, "compact": 18}[change]
    report = loaderx.verify(path)
    assert report.ok and report.checked + report.unchecked == left
    with SmallChunks(path, "raw") as z:
        fill(z, records(b"b", 5))
    report = loaderx.verify(path)
    assert report.ok and report.checked >= 5


@pytest.mark.parametrize("change", ["append", "delete", "compact", "train_dict", "sync"])
def test_another_current_directory(change: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A relative path means what it meant when the store was opened."""
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    with SmallChunks("s.zr", "raw") as z:
        assert z.path == tmp_path / "s.zr"
        fill(z, records(b"a", 20))
        z.delete([3])
        monkeypatch.chdir(tmp_path / "elsewhere")
        CHANGES[change](z)
        with pytest.raises(loaderx.RecordIndexError) as caught:
            z.gather_packed([1000])
        assert caught.value.store == tmp_path / "s.zr"
    assert len(contents(tmp_path / "s.zr")) == {"append": 49, "delete": 18}.get(change, 19)
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_a_dataset_of_other_records_takes_its_place(tmp_path: Path) -> None:
    """`refresh` refuses it, and the dataset goes on with what it had; one of the same records is gone over to."""
    path = tmp_path / "d.zr"
    loaderx.write_dataset(path, ROWS)
    with Dataset(path) as ds:
        loaderx.write_dataset(path, ROWS[::-1], overwrite=True)
        assert ds.refresh() == len(ROWS)
        np.testing.assert_array_equal(ds[:], ROWS[::-1])
        for other in (ROWS.astype(np.float64), ROWS.astype(">i8"), ROWS.reshape(40, 50, 2)):
            loaderx.write_dataset(path, other, overwrite=True)
            with pytest.raises(loaderx.SchemaError, match="open it anew"):
                ds.refresh()
            np.testing.assert_array_equal(ds[:], ROWS[::-1])
        loaderx.write_ragged(path, [ROWS[0], ROWS[1, :3]], overwrite=True)
        with pytest.raises(loaderx.SchemaError, match="ragged"):
            ds.refresh()
        np.testing.assert_array_equal(ds[:], ROWS[::-1])


@pytest.mark.parametrize("when", ["open", "refresh"])
def test_a_dataset_is_replaced_while_it_is_looked_at(
    when: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "d.zr"
    loaderx.write_dataset(path, ROWS)
    ds = Dataset(path)
    before = reader.Reader._open if when == "open" else reader.Reader._renew

    def replaced_first(handle: Any, *arguments: Any, **options: Any) -> None:
        monkeypatch.undo()
        loaderx.write_dataset(path, ROWS.astype(np.float64), overwrite=True)
        before(handle, *arguments, **options)

    monkeypatch.setattr(reader.Reader, before.__name__, replaced_first)
    if when == "open":
        with Dataset(path) as opened:
            assert opened.dtype == np.float64
            np.testing.assert_array_equal(opened[:], ROWS)
    else:
        with pytest.raises(loaderx.SchemaError, match="open it anew"):
            ds.refresh()
        with pytest.raises(loaderx.ClosedError):
            ds[0]
    ds.close()
