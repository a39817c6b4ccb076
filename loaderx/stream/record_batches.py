"""Reading shards whose items are the rows of Arrow record batches, some rows at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NoReturn

from loaderx.errors import StateMismatchError, StreamError
from loaderx.stream.arrow_rows import import_pyarrow, make_rows
from loaderx.stream.bad_rows import OnError, judge
from loaderx.stream.calling import HELD
from loaderx.stream.node import Item, Key
from loaderx.stream.shards import BlockReader, Pull

#: Gives record batches from a row on, each with the number of its first row.
Batches = Callable[[int], Iterator[tuple[int, Any]]]


class RowMaker:
    """Makes Python objects of rows, and says what is wrong with those of which none can be made.

    Parameters
    ----------
    called : str
        The method of `Stream` that reads them.
    name : str
        What errors call the shard.
    on_error : "raise", "skip" or callable
    """

    def __init__(self, called: str, name: str, on_error: OnError) -> None:
        self._called = called
        self.name = name
        self._on_error: OnError = on_error

    def judge(self, error: Exception, row: Any, place: int, is_held: bool = False) -> Item:
        """Return what takes the place of a row (a batch of one), or raise: always for one that a state holds."""
        on_error: OnError = "raise" if is_held and self._on_error == "skip" else self._on_error
        return judge(on_error, error, lambda error: self._explain(error, row, place, is_held))

    def _explain(self, error: Exception, row: Any, place: int, is_held: bool) -> StreamError:
        where = f"{self.name}, row {place}"
        column = next((field for i, field in enumerate(row.schema) if _is_bad(row.column(i))), None)
        what = "it" if column is None else f"column {column.name!r} of type {column.type}"
        return StreamError(
            f"{where}: {what} cannot be made into a Python object: {type(error).__name__}: {error}. Give the column "
            f"another type, leave it out, or pass over such rows with on_error='skip'{HELD if is_held else ''}",
            node=self._called,
            function=None,
            where=where,
        )

    def remake(self, batch: Any, begin: int, places: Sequence[int]) -> list[Item]:
        """Return the items of some rows of a batch, of which the first is row `begin`, that were given before.

        Raises
        ------
        StreamError
            Of one no object can be made, and it is not replaced here.
        """
        wanted = [place - begin for place in places]
        try:
            return list(make_rows(batch.take(import_pyarrow().array(wanted, "int64"))))
        except Exception:
            items: list[Item] = []
            for i, place in zip(wanted, places, strict=True):
                row = batch.slice(i, 1)
                item: Item
                try:
                    item = make_rows(row)[0]
                except Exception as error:
                    item = self.judge(error, row, place, is_held=True)
                items.append(item)
            return items

    def refuse(self, place: int, problem: str) -> NoReturn:
        """Raise, for a state holds a row that is none here."""
        raise StateMismatchError(
            f"the saved state holds row {place} of {self.name}, which {problem} here: put it back as it was, or begin "
            "anew",
            mismatches={self.name: (f"row {place}", problem)},
        )


class BatchReader(BlockReader):
    """The rows of a shard from one on.

    Parameters
    ----------
    rows : RowMaker
    shard : int
    batches : callable
    at : int
        The row.
    """

    def __init__(self, rows: RowMaker, shard: int, batches: Batches, at: int) -> None:
        super().__init__(shard)
        self._rows = rows
        self._open = batches
        self._batches = batches(at)
        # The block that was read last, its first row, and where the next block begins.
        self._batch: Any = None
        self._begin = self._at = at

    def block(self) -> Pull:
        try:
            begin, batch = next(self._batches)
        except StopIteration:
            raise
        except BaseException:
            self._batches = self._open(self._at)
            raise
        n = batch.num_rows
        self._begin, self._at, self._batch = begin, begin + n, batch
        try:
            rows: Any = make_rows(batch)
        except Exception:  # one by one, to find out for which
            rows = map(self._row, range(n))
        return self._pull(range(begin, self._at), rows)

    def _row(self, i: int) -> Item:
        return make_rows(self._batch.slice(i, 1))[0]

    def judge(self, error: Exception) -> tuple[Key, Item] | None:
        place = self._places[self._n_given - 1]
        row = self._batch.slice(place - self._begin, 1)
        return self._replace(place, lambda: self._rows.judge(error, row, place))

    def get_state(self) -> int:
        return self._at - self._n_left


def _is_bad(column: Any) -> bool:
    try:
        column.to_pylist()
    except Exception:
        return True
    return False
