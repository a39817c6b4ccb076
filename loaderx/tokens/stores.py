"""The stores of a run: opened where the last one stopped, written window by window, finished."""

from __future__ import annotations

import contextlib
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

from loaderx.arrays.schema import Schema, new_schema, write_schema
from loaderx.errors import TokenizeError
from loaderx.store import files
from loaderx.store.options import Codec
from loaderx.store.trim import trim
from loaderx.store.zrecord import Zrecord
from loaderx.tokens.heads import Head
from loaderx.tokens.options import Options
from loaderx.tokens.packing import Records
from loaderx.tokens.sides import POSITIONS, TOKENS
from loaderx.tokens.state import write_manifest
from loaderx.tokens.windows import Commit, State

# Compressing takes a hundredth of what a tokenizer does, whose threads want the cores.
_THREADS = 1


def store_folders(options: Options) -> dict[str, str]:
    """Return the folder of each stream's store: tokens alone are the dataset itself."""
    if not options.side_streams:
        return {TOKENS: "."}
    return {name: f"{name}.zr" for name in options.dtypes}


def _codec(name: str, options: Options) -> Codec:
    """Return the codec of a store. Numbers that count up shrink to a quarter, and are read five times as fast, where
    their bytes are shuffled."""
    return "zstd_shuffle" if name == POSITIONS and options.codec == "zstd" else options.codec


class Stores:
    """One store for each stream, all with the same records. A context manager.

    Parameters
    ----------
    folder : pathlib.Path
        Of the run; made where it is not there.
    options : Options
    state : State
        Behind the last window of which the stores are known to have all records.

    Raises
    ------
    TokenizeError
        Records that were written are not there any more.
    """

    def __init__(self, folder: Path, options: Options, state: State) -> None:
        self._folder = folder
        self._options = options
        self._n_records = state.samples
        self._schemas: dict[str, Schema] = {}
        self._stores: dict[str, Zrecord] = {}
        shape = () if options.as_records else (options.sample_size or 0,)
        try:
            for name, place in store_folders(options).items():
                path = folder / place
                kind: Any = "ragged" if options.as_records else "fixed"
                schema = new_schema(path, kind, options.dtypes[name], shape, _codec(name, options))
                level = None if schema.codec == "raw" else options.level
                self._schemas[name] = schema
                self._stores[name] = Zrecord(path, schema.codec, level=level, threads=_THREADS, upgrade=True)
            for store in self._stores.values():
                if len(store) < state.samples:
                    raise TokenizeError(
                        f"{store.path}: has {len(store)} records, and {state.samples} were written: remove {folder} "
                        "and begin anew",
                        path=store.path,
                    )
                # Where a writer was killed, what it left behind its last record goes, and so do its marks.
                trim(store)
                with store.appending():
                    pass
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Stores:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self.close()
        else:
            with contextlib.suppress(Exception):
                self.close()

    def close(self) -> None:
        """Close the stores; what was written has reached the disk then."""
        for store in self._stores.values():
            store.close()

    def write(self, commit: Commit) -> None:
        """Write the records of a window to every store that does not have them yet; they reach the disk.

        Raises
        ------
        TokenizeError
            A run that was cut off wrote other records behind the same documents.
        StoreFullError, StoreIOError, StoreLockedError
        """
        for name, store in self._stores.items():
            self._write(name, store, commit.records)
        self._n_records = commit.state.samples

    def _write(self, name: str, store: Zrecord, records: Records) -> None:
        n_bytes = self._schemas[name].dtype.itemsize
        values = np.ascontiguousarray(records.values[name])
        there = len(store) - self._n_records
        if there:
            self._check_same(store, values, records, min(there, len(records)), n_bytes)
            if there > len(records):
                raise self._other_records(store)
            if 0 < there < len(records):  # after a power loss
                store.delete(np.arange(self._n_records, len(store)))
                trim(store)
                there = 0
        if there < len(records):
            with store.appending() as append:
                if self._options.as_records:
                    lengths = records.lengths * n_bytes
                    append.add_var(values, np.cumsum(lengths) - lengths, lengths, item_size=n_bytes)
                else:
                    size = (self._options.sample_size or 0) * n_bytes
                    append.add(values, len(records), size, item_size=n_bytes)
            store.sync()

    def _check_same(self, store: Zrecord, values: Any, records: Records, n: int, n_bytes: int) -> None:
        """Raise where the first `n` records are not those that are there."""
        if not n:
            return
        there, splits = store.gather_packed(np.arange(self._n_records, self._n_records + n))
        expected = np.concatenate([np.zeros(1, np.int64), np.cumsum(records.lengths[:n] * n_bytes)])
        if (
            not np.array_equal(splits, expected)
            or bytes(there) != values.view(np.uint8)[: expected[-1]].tobytes()
        ):
            raise self._other_records(store)

    def _other_records(self, store: Zrecord) -> TokenizeError:
        return TokenizeError(
            f"{store.path}: the run that was cut off made other tokens of the documents behind record "
            f"{self._n_records}: the source or the encoder has changed. Remove {self._folder}, and begin anew",
            path=store.path,
        )

    def finish(self, asked: dict[str, Any], state: State, head: Head | None) -> None:
        """Close the stores and say what they hold; what is in the folder is complete then, and has reached the disk."""
        self.close()
        folders = store_folders(self._options)
        for name, place in folders.items():
            write_schema(self._folder / place, self._schemas[name])
            files.sync_directory(self._folder / place)
        write_manifest(self._folder, asked, state, head, folders)
        files.sync_directory(self._folder)
