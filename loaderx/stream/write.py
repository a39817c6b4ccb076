"""A pass over a stream into stores: one, or a folder with one for each name."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from loaderx.arrays.writer import add_records
from loaderx.errors import RecordTooLargeError, SchemaError
from loaderx.store.append import Append
from loaderx.store.progress import Progress, Report, reporting
from loaderx.stream.iterator import StreamIterator
from loaderx.stream.layout import Layout, choose_layout, read_layout
from loaderx.stream.node import Item, Key
from loaderx.stream.places import HeadRecords, Places, Settings
from loaderx.stream.records import Kind, Unfit

# So many first items say what all become, or fewer large ones.
_TELLING_ITEMS = 1024
_REPORTED_S = 0.1
# What is within further lists and dicts than this is not looked at.
_DEPTH = 8


@dataclass(frozen=True)
class WrittenStream:
    """What `Stream.write` did.

    Attributes
    ----------
    path : pathlib.Path
        The store, or the folder of stores.
    kind : {"array", "ragged", "lines", "columns"}
    stores : dict of str to pathlib.Path
        With kind "columns", the store of each name; otherwise empty.
    first : int
        Index of the first new record; in each of the stores.
    records : int
        New records, one for each item; in each of the stores.
    record_bytes : int
        Their bytes before they were compressed, in all stores.
    counts : list of dict
        What the steps have counted, such as bad rows that were left out (`StreamIterator.counts`).
    """

    path: Path
    kind: Kind
    stores: dict[str, Path]
    first: int
    records: int
    record_bytes: int
    counts: list[dict[str, Any]]


def write_items(
    passing: StreamIterator, target: Path, settings: Settings, progress: Progress
) -> WrittenStream:
    """Write all that a pass gives, from where it is (`Stream.write`)."""
    there = None if settings.overwrite else read_layout(target)
    if there is not None and settings.kind not in (None, there.kind):
        raise SchemaError(
            f"{target}: there are records of kind {there.kind!r}, and kind is {settings.kind!r}: leave it out, or "
            "choose another path",
            path=target,
        )
    with reporting(progress, None) as report:
        head = [] if there is not None else _take_head(passing, settings.chunk_bytes, report)
        layout = there or choose_layout(target, [item for _, item in head], settings.kind)
        waiting = _Waiting(target, layout, passing, report)
        for key, item in head:
            waiting.take(key, item)
        head.clear()
        is_all = waiting.fill(settings.chunk_bytes)
        places = Places(target, layout, waiting.samples(is_all), settings)
        with places.opened() as appends:
            waiting.flush(appends)
            while not is_all:
                is_all = waiting.fill(settings.chunk_bytes)
                waiting.flush(appends)
    return WrittenStream(
        path=target,
        kind=layout.kind,
        stores=places.stores if layout.kind == "columns" else {},
        first=appends[0].first,
        records=waiting.n_items,
        record_bytes=waiting.n_flushed,
        counts=passing.counts(),
    )


def _take_head(passing: StreamIterator, most_bytes: int, report: Report) -> list[tuple[Key, Item]]:
    head: list[tuple[Key, Item]] = []
    n_bytes = 0
    reported_at = time.monotonic()
    while len(head) < _TELLING_ITEMS and n_bytes < most_bytes:
        try:
            head.append(passing.pull())
        except StopIteration:
            break
        n_bytes += _about_bytes(head[-1][1])
        if (now := time.monotonic()) - reported_at > _REPORTED_S:
            report(0)  # that it goes on
            reported_at = now
    return head


def _about_bytes(item: Item, depth: int = _DEPTH) -> int:
    """Return about how many bytes an item takes; what has none to speak of counts nothing."""
    if isinstance(item, str | bytes | bytearray):
        return len(item)
    if depth == 0:
        return 0
    if isinstance(item, Mapping | list | tuple):
        values = item.values() if isinstance(item, Mapping) else item
        return 8 * len(item) + sum(_about_bytes(value, depth - 1) for value in values)
    try:
        n_bytes = item.nbytes
    except Exception:  # there is none, or another library's array has none of its own
        return 0
    return n_bytes if isinstance(n_bytes, int) else 0


class _Waiting:
    """Records that wait to be added to stores together.

    Attributes
    ----------
    n_items : int
        How many items were taken.
    n_flushed : int
        Bytes of the records that have been added.
    """

    def __init__(self, target: Path, layout: Layout, passing: StreamIterator, report: Report) -> None:
        self._target = target
        self._layout = layout
        self._passing = passing
        self._report = report
        self._reported_at = 0.0
        self._n_unreported = 0
        self._columns = list(layout.columns.values())
        self._empty()
        self.n_items = self.n_flushed = 0

    def _empty(self) -> None:
        self._buffers = [bytearray() for _ in self._columns]
        self._lens: list[list[int]] = [[] for _ in self._columns]
        self._n_bytes = 0

    def fill(self, n_bytes: int) -> bool:
        """Take items until their records have so many bytes; return whether there are no more."""
        while self._n_bytes < n_bytes:
            try:
                key, item = self._passing.pull()
            except StopIteration:
                return True
            self.take(key, item)
        return False

    def _tell(self, now: float) -> None:
        self._report(self._n_unreported, self._passing.fraction())
        self._reported_at, self._n_unreported = now, 0

    def take(self, key: Key, item: Item) -> None:
        """Let the records of an item wait."""
        try:
            records = self._layout.records(item)
        except Unfit as unfit:
            raise SchemaError(
                f"{self._target}: item {self.n_items} {unfit} (the item of {self._passing.locate(key)})",
                path=self._target,
            ) from unfit.__cause__
        for buffer, lens, record in zip(self._buffers, self._lens, records, strict=True):
            buffer += record
            lens.append(len(record))
            self._n_bytes += len(record)
            self._n_unreported += len(record)
        self.n_items += 1
        # By time: items may be large, or take long.
        if (now := time.monotonic()) - self._reported_at > _REPORTED_S:
            self._tell(now)

    def samples(self, is_all: bool) -> list[HeadRecords]:
        """Return what waits, for each store to learn from."""
        return [
            HeadRecords(buffer, lens, is_all, column.item_bytes)
            for buffer, lens, column in zip(self._buffers, self._lens, self._columns, strict=True)
        ]

    def flush(self, appends: Sequence[Append]) -> None:
        """Add what waits."""
        for append, buffer, lens, column in zip(
            appends, self._buffers, self._lens, self._columns, strict=True
        ):
            try:
                add_records(append, buffer, lens, column.item_bytes)
            except RecordTooLargeError as error:
                number = self.n_items - len(lens) + (error.position or 0)
                error.message = f"item {number} of the stream: {error.message}"
                error.args = (error.message,)
                raise
        self.n_flushed += self._n_bytes
        self._empty()
        self._tell(time.monotonic())
