"""Parquet and Arrow as sources."""

from __future__ import annotations

import datetime
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from loaderx.errors import ArchiveError, MissingDependencyError, OptionError, StateMismatchError
from loaderx.stream.arrow_rows import is_of_machine
from loaderx.stream.stream import Stream
from tests.resume import same
from tests.stream.source_kit import check_resume, check_source


def test_without_pyarrow_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    for make in (Stream.from_parquet, Stream.from_arrow):
        with pytest.raises(
            MissingDependencyError, match=r"pip install pyarrow, or loaderx\[arrow\]"
        ) as caught:
            make([])
        assert (caught.value.package, caught.value.extra) == ("pyarrow", "arrow")


def rows(n: int, first: int = 0) -> list[dict[str, Any]]:
    return [
        {
            "n": i,
            "x": i / 3,
            "text": None if i % 5 == 4 else f"ü{i}",
            "maybe": None if i % 2 else i,
            "list": list(range(i % 3)),
            "inner": {"a": i, "b": None},
            "day": datetime.date(2020, 1, 1 + i % 28),
            "flag": i % 2 == 0,
            "blob": b"\xff" * (i % 4),
        }
        for i in range(first, first + n)
    ]


@pytest.fixture
def tables() -> list[Any]:
    """Return three tables, of which the second is empty."""
    pyarrow = pytest.importorskip("pyarrow")
    first = pyarrow.Table.from_pylist(rows(7))
    return [first, first.slice(0, 0), pyarrow.Table.from_pylist(rows(5, 7), schema=first.schema)]


def write_parquet(folder: Path, tables: list[Any], group: int = 3) -> list[Path]:
    import pyarrow.parquet

    paths = []
    for i, table in enumerate(tables):
        paths.append(folder / f"{i}.parquet")
        pyarrow.parquet.write_table(table, paths[-1], row_group_size=group)
    return paths


def write_ipc(folder: Path, tables: list[Any], kind: str) -> list[Path]:
    import pyarrow

    paths = []
    for i, table in enumerate(tables):
        paths.append(folder / f"{i}.arrow")
        compression = "zstd" if kind == "compressed" else None
        options = pyarrow.ipc.IpcWriteOptions(compression=compression)
        new = pyarrow.ipc.new_stream if kind == "stream" else pyarrow.ipc.new_file
        with new(str(paths[-1]), table.schema, options=options) as writer:
            for batch in table.to_batches(max_chunksize=3):
                writer.write_batch(batch)
    return paths


@pytest.mark.needs_pyarrow
class TestParquet:
    def test_rows_are_read_and_resumed(self, tmp_path: Path, tables: list[Any]) -> None:
        paths = write_parquet(tmp_path, tables)
        check_source(lambda: Stream.from_parquet(paths), rows(12))

    def test_some_columns(self, tmp_path: Path, tables: list[Any]) -> None:
        paths = write_parquet(tmp_path, tables)
        expected = [{"text": row["text"], "n": row["n"]} for row in rows(12)]
        found = list(Stream.from_parquet(paths, columns=["text", "n"]))
        assert [dict(sorted(row.items())) for row in found] == [dict(sorted(row.items())) for row in expected]
        assert list(Stream.from_parquet(paths, columns=[])) == [{}] * 12
        with pytest.raises(OptionError, match=r"columns has \['nope'\], and .*0\.parquet has"):
            list(Stream.from_parquet(paths, columns=["nope"]))
        with pytest.raises(OptionError, match="columns is 'n': give a list"):
            Stream.from_parquet(paths, columns="n")
        state = iter(Stream.from_parquet(paths, columns=["n"])).state_dict()
        with pytest.raises(StateMismatchError, match="columns"):
            iter(Stream.from_parquet(paths)).load_state_dict(state)

    def test_row_groups_of_many_rows_come_some_at_a_time(self, tmp_path: Path) -> None:
        import pyarrow

        [path] = write_parquet(tmp_path, [pyarrow.table({"n": range(5_000)})], group=4_000)
        iterator = iter(Stream.from_parquet(path))
        for i in range(5_000):
            if i % 499 == 0:
                resumed = iter(Stream.from_parquet(path))
                resumed.load_state_dict(json.loads(json.dumps(iterator.state_dict())))
                assert [row["n"] for row in resumed] == list(range(i, 5_000))
            assert next(iterator) == {"n": i}
        iterator = iter(Stream.from_parquet(path).shuffle(1_000))
        for _ in range(2_500):
            next(iterator)
        resumed = iter(Stream.from_parquet(path).shuffle(1_000))
        resumed.load_state_dict(json.loads(json.dumps(iterator.state_dict())))
        assert list(resumed) == list(iterator)

    def test_to_make_a_row_anew_takes_its_row_group_alone(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        import pyarrow
        import pyarrow.parquet

        from loaderx.stream.parquet import ParquetFiles

        [path] = write_parquet(tmp_path, [pyarrow.table({"n": range(100)})], group=10)
        read = []
        real = pyarrow.parquet.ParquetFile.iter_batches

        def spy(self: Any, size: int, row_groups: list[int], columns: Any) -> Any:
            read.extend(row_groups)
            return real(self, size, row_groups=row_groups, columns=columns)

        monkeypatch.setattr(pyarrow.parquet.ParquetFile, "iter_batches", spy)
        assert ParquetFiles([str(path)]).rebuild(0, [25, 29, 70]) == [{"n": 25}, {"n": 29}, {"n": 70}]
        assert read == [2, 7]
        with pytest.raises(StateMismatchError, match=r"holds row 100 of .*, which has 100 rows here"):
            ParquetFiles([str(path)]).rebuild(0, [5, 100])

    def test_damage_is_named(self, tmp_path: Path, tables: list[Any]) -> None:
        paths = write_parquet(tmp_path, tables)
        paths[0].write_bytes(b"")
        with pytest.raises(ArchiveError, match=r"0\.parquet: cannot be read as Parquet"):
            list(Stream.from_parquet(paths))
        data = bytearray(paths[2].read_bytes())
        data[4:200] = b"\xff" * 196
        paths[2].write_bytes(data)
        with pytest.raises(ArchiveError, match=r"2\.parquet: cannot be read as Parquet"):
            list(Stream.from_parquet(paths[2]))

    def test_random_order_is_refused(self, tmp_path: Path, tables: list[Any]) -> None:
        with pytest.raises(OptionError, match="without its whole row group"):
            Stream.from_parquet(write_parquet(tmp_path, tables)).shuffle(None)


@pytest.mark.needs_pyarrow
class TestArrow:
    @pytest.mark.parametrize("kind", ["file", "stream", "compressed"])
    def test_files(self, tmp_path: Path, tables: list[Any], kind: str) -> None:
        paths = write_ipc(tmp_path, tables, kind)
        check_source(lambda: Stream.from_arrow(paths), rows(12))
        check_source(lambda: Stream.from_arrow(tmp_path / "*.arrow"), rows(12))

    def test_tables(self, tables: list[Any]) -> None:
        check_source(lambda: Stream.from_arrow(tables), rows(12))
        check_source(lambda: Stream.from_arrow(tables[0]), rows(7))
        check_source(lambda: Stream.from_arrow(tables[0].to_batches()[0]), rows(7))
        with pytest.raises(OptionError, match="neither paths alone nor tables alone"):
            Stream.from_arrow([tables[0], "a.arrow"])

    def test_large_batches_come_some_rows_at_a_time(self) -> None:
        import pyarrow

        table = pyarrow.table({"n": range(5_000)})
        iterator = iter(Stream.from_arrow(table))
        for i in range(5_000):
            if i % 499 == 0:
                resumed = iter(Stream.from_arrow(table))
                resumed.load_state_dict(json.loads(json.dumps(iterator.state_dict())))
                assert [row["n"] for row in resumed] == list(range(i, 5_000))
            assert next(iterator) == {"n": i}

    def test_what_is_not_there_any_more(self, tmp_path: Path, tables: list[Any]) -> None:
        from loaderx.stream.arrow import ArrowFiles, ArrowTables

        paths = list(map(str, write_ipc(tmp_path, tables, "file")))
        assert ArrowFiles(paths).rebuild(0, [0, 2, 6]) == [rows(7)[i] for i in (0, 2, 6)]
        for shards in (ArrowFiles(paths), ArrowTables(tables)):
            with pytest.raises(StateMismatchError, match=r"holds row 7 of .*, which has 7 rows here"):
                shards.rebuild(0, [1, 7])

    def test_damage_is_named(self, tmp_path: Path, tables: list[Any]) -> None:
        for kind in ("file", "stream"):
            path = write_ipc(tmp_path, tables[:1], kind)[0]
            path.write_bytes(path.read_bytes()[:700])
            with pytest.raises(
                ArchiveError, match=r"0\.arrow: cannot be read as an Arrow IPC file or stream"
            ):
                list(Stream.from_arrow(path))

    def test_random_order_is_refused(self, tables: list[Any]) -> None:
        with pytest.raises(OptionError, match="read batch by batch"):
            Stream.from_arrow(tables).shuffle(None)


@pytest.mark.needs_pyarrow
def test_every_type_gives_what_pyarrow_gives() -> None:
    import pyarrow as pa

    from loaderx.stream.arrow_rows import make_rows

    day = datetime.datetime(2020, 2, 3, 4, 5, 6, 7)
    columns: dict[str, Any] = {
        **{
            str(kind): pa.array([1, 0, 2], kind)
            for kind in (pa.int8(), pa.uint64(), pa.float32(), pa.float64())
        },
        **{f"{kind}?": pa.array([1, None, 2], kind) for kind in (pa.int64(), pa.float64(), pa.uint8())},
        "half": pa.array([1.5, None, 0.0], pa.float64()).cast(pa.float32()).cast(pa.float16()),
        "nan": pa.array([float("inf"), 0.1, -0.0]),
        "bool": pa.array([True, False, True]),
        "bool?": pa.array([True, None, False]),
        "null": pa.nulls(3),
        "large": pa.array(["a", None, "ü"], pa.large_string()),
        "binary": pa.array([b"a", None, b""], pa.binary()),
        "fixed": pa.array([b"ab", None, b"cd"], pa.binary(2)),
        "dictionary": pa.array(["x", None, "x"]).dictionary_encode(),
        "time": pa.array([day, None, day], pa.timestamp("us", "UTC")),
        "list": pa.array([[1, None], None, []]),
        "map": pa.array([[("a", 1)], None, []], pa.map_(pa.string(), pa.int8())),
        "decimal": pa.array([1, None, 2], pa.decimal128(5, 2)),
    }
    batch = pa.record_batch(columns)
    check: Callable[[Any, Any], bool] = same
    for part in (batch, batch.slice(1), batch.slice(1, 1), batch.slice(3)):
        assert check(make_rows(part), part.to_pylist())
    assert check_resume(lambda: Stream.from_arrow(batch)) == batch.to_pylist()


@pytest.mark.parametrize(
    ("error", "is_machines"),
    [
        (MemoryError("malloc of size 6510615555426881024 failed"), False),
        (MemoryError("malloc of size 65536 failed"), True),
        (MemoryError(), True),
        (OSError(5, "Input/output error"), True),
        (OSError("Expected to be able to read 24 bytes"), False),
        (ValueError("bad"), False),
    ],
)
def test_memory_that_no_machine_has_is_asked_for_by_a_damaged_file(
    error: Exception, is_machines: bool
) -> None:
    assert is_of_machine(error) == is_machines
