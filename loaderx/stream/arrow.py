"""Arrow IPC files and streams, and tables in memory, as shards, an item a row; batches are read one after the other."""

from __future__ import annotations

import bisect
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from pathlib import Path
from typing import Any, NoReturn

from loaderx.errors import ArchiveError, OptionError
from loaderx.stream.arrow_rows import import_pyarrow, is_of_machine, rows_at_once
from loaderx.stream.bad_rows import OnError
from loaderx.stream.files import Files
from loaderx.stream.node import Item
from loaderx.stream.paths import list_files
from loaderx.stream.positions import check_number, refuse_beyond
from loaderx.stream.record_batches import BatchReader, RowMaker
from loaderx.stream.shards import Shards

_FILE_MAGIC = b"ARROW1"


def choose_arrow(sources: Any, on_error: OnError = "raise") -> Shards:
    """Return the shards of paths, or of tables.

    Raises
    ------
    OptionError
        They are neither, or both.
    """
    pyarrow = import_pyarrow()
    kinds = (pyarrow.Table, pyarrow.RecordBatch)
    if isinstance(sources, kinds):
        return ArrowTables([sources], on_error)
    listed = sources
    if isinstance(sources, Iterable) and not isinstance(sources, str | bytes | os.PathLike | Mapping | Set):
        listed = list(sources)
        if listed and all(isinstance(source, kinds) for source in listed):
            return ArrowTables(listed, on_error)
    if not isinstance(listed, list) or not any(isinstance(source, kinds) for source in listed):
        return ArrowFiles(list_files(listed, "sources", "*.arrow"), on_error)
    raise OptionError(
        "sources has neither paths alone nor tables alone: give the ones or the others",
        option="sources",
        value=sources,
    )


class ArrowFiles(Files):
    """The rows of Arrow IPC files or streams, as dicts; a place is a row's number in its file.

    Parameters
    ----------
    paths : sequence of str
    on_error : "raise", "skip" or callable
    """

    called = "from_arrow"
    unit = "row"

    def open(self, shard: int, state: int | None = None) -> _ArrowReader:
        at = 0 if state is None else check_number("a row", state)
        return _ArrowReader(self._rows(shard), _IpcFile(self._paths[shard]), shard, at)

    def _rows(self, shard: int) -> RowMaker:
        return RowMaker(self.called, self._paths[shard], self._on_error)

    def rebuild(self, shard: int, places: Sequence[int]) -> list[Item]:
        file = _IpcFile(self._paths[shard])
        try:
            return _rows_at(file.batches(), places, self._rows(shard))
        finally:
            file.close()

    def refuse_random(self) -> NoReturn:
        _refuse_random()


class ArrowTables(Shards):
    """The rows of tables in memory, as dicts; a place is a row's number in its table.

    Parameters
    ----------
    tables : sequence of pyarrow.Table or pyarrow.RecordBatch
    on_error : "raise", "skip" or callable
    """

    unit = "row"

    def __init__(self, tables: Sequence[Any], on_error: OnError = "raise") -> None:
        self._tables = list(tables)
        self._on_error: OnError = on_error

    def __len__(self) -> int:
        return len(self._tables)

    def describe(self) -> dict[str, Any]:
        rows = sum(table.num_rows for table in self._tables)
        return {"from": "from_arrow", "shards": len(self), "items": rows}

    def measure(self, shard: int) -> int:
        rows: int = self._tables[shard].num_rows
        return rows

    def name(self, shard: int) -> str:
        return f"from_arrow: table {shard}"

    def open(self, shard: int, state: int | None = None) -> _ArrowReader:
        table = self._tables[shard]
        at = 0 if state is None else check_number("a row", state, 0, table.num_rows)
        return _ArrowReader(self._rows(shard), _InMemory(table), shard, at)

    def _rows(self, shard: int) -> RowMaker:
        return RowMaker("from_arrow", self.name(shard), self._on_error)

    def rebuild(self, shard: int, places: Sequence[int]) -> list[Item]:
        return _rows_at(_InMemory(self._tables[shard]).batches(), places, self._rows(shard))

    def refuse_random(self) -> NoReturn:
        _refuse_random()


def _refuse_random() -> NoReturn:
    raise OptionError(
        "buffer_size is None, and rows of Arrow files and tables are read batch by batch: convert them first "
        "(python -m loaderx.convert) and make the stream by from_dataset, or give a buffer_size",
        option="buffer_size",
        value=None,
    )


class _InMemory:
    def __init__(self, table: Any) -> None:
        self._table = table

    def batches(self) -> Iterator[Any]:
        """Yield the record batches."""
        to_batches = getattr(self._table, "to_batches", None)
        return iter([self._table] if to_batches is None else to_batches())

    def fraction(self, row: int) -> float:
        """Return how much has been read, where a row is the next."""
        n_rows: int = self._table.num_rows
        return row / max(1, n_rows)

    def close(self) -> None:
        """Do nothing."""


class _IpcFile:
    """An IPC file or stream that is mapped into memory."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._arrow = import_pyarrow()
        # Of a file, which knows how many batches it has: how much of them has been read.
        self._fraction = 0.0
        with open(path, "rb", buffering=0) as file:
            self._is_file = file.read(len(_FILE_MAGIC)) == _FILE_MAGIC
        try:
            self._map = self._arrow.memory_map(path)
        except (self._arrow.ArrowException, OSError, ValueError) as error:
            self._refuse(error)

    def batches(self) -> Iterator[Any]:
        """Yield the record batches; they are mapped, not read, unless they are compressed."""
        try:
            if self._is_file:
                file = self._arrow.ipc.open_file(self._map)
                for i in range(file.num_record_batches):
                    yield file.get_batch(i)
                    self._fraction = (i + 1) / file.num_record_batches
            else:
                self._map.seek(0)
                yield from self._arrow.ipc.open_stream(self._map)
        except (self._arrow.ArrowException, OSError) as error:
            self._refuse(error)

    def fraction(self, row: int) -> float:
        """Return how much has been read, about."""
        if self._is_file:
            return self._fraction
        fraction: float = self._map.tell() / max(1, self._map.size())
        return fraction

    def _refuse(self, error: Exception) -> NoReturn:
        if is_of_machine(error):
            raise error  # the machine's, which says nothing about what is in the file
        raise ArchiveError(
            f"{self._path}: cannot be read as an Arrow IPC file or stream: {error}",
            file=Path(self._path),
            problem="damaged",
            whole_bytes=0,
        ) from error

    def close(self) -> None:
        self._map.close()


def _rows_at(batches: Iterator[Any], places: Sequence[int], rows_of: RowMaker) -> list[Item]:
    rows: list[Item] = []
    begin = 0
    for batch in batches:
        end = begin + batch.num_rows
        n = bisect.bisect_left(places, end, len(rows))
        if n > len(rows):
            rows += rows_of.remake(batch, begin, places[len(rows) : n])
        if len(rows) == len(places):
            return rows
        begin = end
    rows_of.refuse(places[len(rows)], f"has {begin} rows")


class _ArrowReader(BatchReader):
    def __init__(self, rows: RowMaker, source: _InMemory | _IpcFile, shard: int, at: int) -> None:
        self._source = source
        self._name = rows.name
        super().__init__(rows, shard, self._cut, at)

    def _cut(self, first: int) -> Iterator[tuple[int, Any]]:
        """Yield parts of the batches from a row on, each with the number of its first row."""
        begin = 0
        for batch in self._source.batches():
            end = begin + batch.num_rows
            size = rows_at_once(batch.num_rows, batch.nbytes)
            for at in range(max(begin, first), end, size):
                yield at, batch.slice(at - begin, size)
            begin = end
        if begin < first:
            refuse_beyond(self._name, f"row {first}", f"{begin} rows")

    def fraction(self) -> float:
        return self._source.fraction(self.get_state())

    def close(self) -> None:
        self._source.close()
