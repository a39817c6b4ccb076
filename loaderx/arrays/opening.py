"""What every dataset does alike: open its store, count, pickle, close."""

from __future__ import annotations

import os
from collections.abc import Iterator
from types import TracebackType
from typing import Any, ClassVar, Literal, Self

import numpy as np

from loaderx.arrays.schema import Schema, read_schema
from loaderx.errors import ClosedError, SchemaError
from loaderx.store.buffers import Indices
from loaderx.store.indexing import resolve, resolve_batch
from loaderx.store.options import check_max_batch_bytes, check_path
from loaderx.store.recovery import Recovery
from loaderx.store.zrecord import Zrecord


class OpenDataset:
    """A dataset opened for reading; its classes say what a record is, and have `__init__`.

    Attributes
    ----------
    path : pathlib.Path
    dtype : numpy.dtype
    codec : str
    """

    _kind: ClassVar[Literal["fixed", "ragged"]]
    # The kind that is not this class's, and the class to open it with.
    _other: ClassVar[tuple[str, str]]

    def _open(self, path: str | os.PathLike[str], max_batch_bytes: int | None, **options: Any) -> None:
        """Open the store; `options` are those of `Zrecord`."""
        self.path = check_path(path)
        self._max_batch_bytes = check_max_batch_bytes(max_batch_bytes)
        while True:
            self._schema = schema = read_schema(self.path)
            if schema.kind != self._kind:
                description, name = self._other
                raise SchemaError(f"{self.path}: {description}: open it with {name}", path=self.path)
            self._store = Zrecord(self.path, mode="r", **options)
            if read_schema(self.path) == schema:
                break
            self._store.close()  # another dataset has taken this one's place meanwhile
        self.dtype = schema.dtype
        self.codec = schema.codec
        self._item_bytes = schema.item_bytes
        self._take_shape(schema)

    def _take_shape(self, schema: Schema) -> None:
        raise NotImplementedError

    def _records(self) -> str:
        """Return what the dataset is, for its repr."""
        raise NotImplementedError

    def __repr__(self) -> str:
        try:
            state = f"{len(self)} {self._records()}"
        except ClosedError:
            state = "closed"
        return f"<{type(self).__name__} {str(self.path)!r}: {state}>"

    def __getitem__(self, idx: Any) -> Any:
        raise NotImplementedError

    def _resolve_batch(self, idxs: Any) -> tuple[Indices, tuple[int, ...]]:
        """Return the records a batch's index means, and the axes they come in (see `resolve`)."""
        if type(idxs) is np.ndarray and idxs.ndim == 1 and idxs.dtype.kind != "b":
            return (
                idxs,
                idxs.shape,
            )  # what samplers give goes straight through, and is checked where it is read
        return resolve_batch(self.path, idxs, len(self._store))

    def __reduce__(self) -> tuple[Any, ...]:
        return _reopen, (type(self), self._store, self._max_batch_bytes)

    def __len__(self) -> int:
        return len(self._store)

    def __iter__(self) -> Iterator[Any]:
        for index in range(len(self)):
            yield self[index]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def recovery(self) -> Recovery | None:
        """What was done about a crash when the dataset was opened (`Zrecord.recovery`); None where nothing was."""
        return self._store.recovery

    def prefetch(self, idxs: Any) -> None:
        """Have the system begin to read records that will be wanted soon, such as the next batch's.

        Parameters
        ----------
        idxs : int, slice, sequence of int, ndarray of int or bool
            As in an index.

        Raises
        ------
        RecordIndexError
            Nothing was asked for.
        ClosedError, TypeError

        Notes
        -----
        As `Zrecord.prefetch`: returns without waiting for the records, and changes no result.
        """
        self._store.prefetch(resolve(self.path, idxs, len(self._store))[0])

    def refresh(self) -> int:
        """See what was appended since the dataset was opened or last refreshed, and return the number of records.

        Raises
        ------
        SchemaError
            Another dataset has taken this one's place, with other records. This one goes on with what it had, or is
            closed where that was found out too late.
        ClosedError, CorruptRecordError, StoreIOError, StoreLockedError

        Notes
        -----
        Reads that run are not disturbed. A record is there whole or not at all. Another dataset of the same records
        that was written over this one (``overwrite=True``) is the one that is read from then on.
        """
        self._check_schema()
        n_records = self._store.refresh()
        try:
            self._check_schema()
        except SchemaError:
            self.close()
            raise
        return n_records

    def _check_schema(self) -> None:
        schema = read_schema(self.path)
        if (schema.kind, schema.dtype, schema.shape) != (self._schema.kind, self.dtype, self._schema.shape):
            raise SchemaError(
                f"{self.path}: another dataset has taken this one's place: it has {schema}, and this one has "
                f"{self._schema}: open it anew",
                path=self.path,
            )

    def close(self) -> None:
        """Let go of the store. Reads that run finish; every later one raises `ClosedError`."""
        self._store.close()


def _reopen(cls: type[Any], store: Zrecord, max_batch_bytes: int) -> Any:
    return cls(
        store.path,
        threads=store.threads,
        max_batch_bytes=max_batch_bytes,
        io=store.io,
        timeout_s=store.timeout_s,
        verify=store.verify,
    )
