"""Parquet files as shards, an item a row; row groups are read one after the other, some rows at a time."""

from __future__ import annotations

import bisect
from collections.abc import Iterator, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any, NoReturn

from loaderx.errors import ArchiveError, OptionError
from loaderx.stream.arrow_rows import import_pyarrow, is_of_machine, rows_at_once
from loaderx.stream.bad_rows import OnError
from loaderx.stream.files import Files
from loaderx.stream.node import Item
from loaderx.stream.positions import check_number
from loaderx.stream.record_batches import BatchReader, RowMaker


def check_names(option: str, names: Any) -> list[str] | None:
    """Return names of columns, or None, or raise `OptionError`."""
    if names is None:
        return None
    if isinstance(names, str) or not all(isinstance(name, str) for name in names):
        raise OptionError(f"{option} is {names!r}: give a list of names", option=option, value=names)
    return list(names)


class ParquetFiles(Files):
    """The rows of Parquet files, as dicts; a place is a row's number in its file.

    Parameters
    ----------
    paths : sequence of str
    columns : sequence of str or None
        None: all.
    on_error : "raise", "skip" or callable
    """

    called = "from_parquet"
    unit = "row"

    def __init__(
        self, paths: Sequence[str], columns: Sequence[str] | None = None, on_error: OnError = "raise"
    ) -> None:
        super().__init__(paths, on_error)
        self._columns = None if columns is None else list(columns)

    def describe(self) -> dict[str, Any]:
        return super().describe() | ({} if self._columns is None else {"columns": self._columns})

    def open(self, shard: int, state: int | None = None) -> _ParquetReader:
        file = _Parquet(self._paths[shard], self._columns)
        try:
            at = 0 if state is None else check_number("a row", state, 0, file.begins[-1])
        except ValueError:
            file.close()
            raise
        return _ParquetReader(self._rows(shard), file, shard, at)

    def _rows(self, shard: int) -> RowMaker:
        return RowMaker(self.called, self._paths[shard], self._on_error)

    def rebuild(self, shard: int, places: Sequence[int]) -> list[Item]:
        file = _Parquet(self._paths[shard], self._columns)
        try:
            return file.rows_at(places, self._rows(shard))
        finally:
            file.close()

    def refuse_random(self) -> NoReturn:
        raise OptionError(
            "buffer_size is None, and a row of a Parquet file cannot be read without its whole row group: convert the "
            "files first (python -m loaderx.convert) and make the stream by from_dataset, or give a buffer_size",
            option="buffer_size",
            value=None,
        )


class _Parquet:
    """A Parquet file that is open, whose row groups know where they begin."""

    def __init__(self, path: str, columns: list[str] | None) -> None:
        self._path = path
        self._arrow = import_pyarrow()
        module = import_pyarrow("pyarrow.parquet")
        try:
            self._file = module.ParquetFile(path)
        except (self._arrow.ArrowException, OSError) as error:
            self._refuse(error)
        self._columns = columns
        if columns is not None and (absent := set(columns) - set(self._file.schema_arrow.names)):
            raise OptionError(
                f"columns has {sorted(absent)}, and {path} has {self._file.schema_arrow.names}",
                option="columns",
                value=columns,
            )
        metadata = self._file.metadata
        self._groups = [metadata.row_group(i) for i in range(metadata.num_row_groups)]
        self.begins = list(accumulate((group.num_rows for group in self._groups), initial=0))

    def _refuse(self, error: Exception) -> NoReturn:
        if is_of_machine(error):
            raise error  # the machine's, which says nothing about what is in the file
        raise ArchiveError(
            f"{self._path}: cannot be read as Parquet: {error}",
            file=Path(self._path),
            problem="damaged",
            whole_bytes=0,
        ) from error

    def batches(self, at: int) -> Iterator[tuple[int, Any]]:
        """Yield record batches from a row on, each with the number of its first row."""
        first = bisect.bisect_right(self.begins, at) - 1
        for i in range(first, len(self._groups)):
            begin = self.begins[i]
            group = self._groups[i]
            size = rows_at_once(group.num_rows, group.total_byte_size)
            try:
                for batch in self._file.iter_batches(size, row_groups=[i], columns=self._columns):
                    end = begin + batch.num_rows
                    if end > at:
                        yield (begin, batch) if begin >= at else (at, batch.slice(at - begin))
                    begin = end
            except (self._arrow.ArrowException, OSError) as error:
                self._refuse(error)

    def rows_at(self, places: Sequence[int], rows_of: RowMaker) -> list[Item]:
        """Return some rows, which are in order; of the row groups that they are in no more is read than has to be."""
        rows: list[Item] = []
        while len(rows) < len(places):
            at = places[len(rows)]
            group = bisect.bisect_right(self.begins, at)
            if group >= len(self.begins):
                rows_of.refuse(at, f"has {self.begins[-1]} rows")
            end = self.begins[group]
            for begin, batch in self.batches(at):
                n = bisect.bisect_left(places, min(begin + batch.num_rows, end), len(rows))
                if n > len(rows):
                    rows += rows_of.remake(batch, begin, places[len(rows) : n])
                if n == len(places) or places[n] >= end:
                    break
        return rows

    def close(self) -> None:
        self._file.close()


class _ParquetReader(BatchReader):
    def __init__(self, rows: RowMaker, file: _Parquet, shard: int, at: int) -> None:
        super().__init__(rows, shard, file.batches, at)
        self._file = file

    def fraction(self) -> float:
        n_rows: int = self._file.begins[-1]
        return self.get_state() / max(1, n_rows)

    def close(self) -> None:
        self._file.close()
