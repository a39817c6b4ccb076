"""What every dataset does alike: open its store, count, pickle, close."""

from __future__ import annotations

import os
from collections.abc import Iterator
from types import TracebackType
from typing import Any, ClassVar, Literal, Self

from loaderx.arrays.indexing import resolve
from loaderx.arrays.schema import Schema, read_schema
from loaderx.errors import SchemaError
from loaderx.store.options import check_max_batch_bytes, check_path
from loaderx.store.recovery import Recovery
from loaderx.store.zrecord import Zrecord


class OpenDataset:
    """A dataset opened for reading; its classes say what a record is.

    Parameters
    ----------
    path : str or os.PathLike
    threads : int
    max_batch_bytes : int, optional
    io : {"mmap", "pread"}
    timeout_s : float
    verify : bool

    Attributes
    ----------
    path : pathlib.Path
    dtype : numpy.dtype
    codec : str
    """

    _kind: ClassVar[Literal["fixed", "ragged"]]
    # The kind that is not this class's, and the class to open it with.
    _other: ClassVar[tuple[str, str]]

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        threads: int = 0,
        max_batch_bytes: int | None = None,
        io: Literal["mmap", "pread"] = "mmap",
        timeout_s: float = 10.0,
        verify: bool = False,
    ) -> None:
        self.path = check_path(path)
        schema = read_schema(self.path)
        if schema.kind != self._kind:
            description, name = self._other
            raise SchemaError(f"{self.path}: {description}: open it with {name}", path=self.path)
        self.dtype = schema.dtype
        self.codec = schema.codec
        self._item_bytes = schema.item_bytes
        self._max_batch_bytes = check_max_batch_bytes(max_batch_bytes)
        self._take_shape(schema)
        self._store = Zrecord(path, mode="r", threads=threads, io=io, timeout_s=timeout_s, verify=verify)

    def _take_shape(self, schema: Schema) -> None:
        raise NotImplementedError

    def __getitem__(self, idx: Any) -> Any:
        raise NotImplementedError

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
        ClosedError, CorruptRecordError, StoreIOError, StoreLockedError

        Notes
        -----
        Reads that run are not disturbed. A record is there whole or not at all.
        """
        return self._store.refresh()

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
