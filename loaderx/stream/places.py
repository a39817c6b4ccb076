"""Where the records of a stream go: one store, or a folder of stores that belong together."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from loaderx.arrays.sampling import HeadSamples
from loaderx.arrays.schema import new_schema
from loaderx.arrays.writer import DatasetWriter, check_codec_or_auto
from loaderx.errors import LoaderxError, NotAStoreError, SchemaError, ZrecordError
from loaderx.jsonl.line_writer import LineCodec, LineWriter
from loaderx.store import files
from loaderx.store.append import Append
from loaderx.store.create import foreign_files
from loaderx.store.folders import (
    appended_together,
    find_stores,
    held,
    is_leftover,
    is_store,
    place_to_build,
    put_in_places,
)
from loaderx.store.options import CodecOrAuto
from loaderx.store.staging import Staging
from loaderx.store.zrecord import Zrecord
from loaderx.stream.layout import Layout, store_name
from loaderx.stream.records import ArrayColumn, Column, Kind, LineColumn, RaggedColumn

# New stores are built in a partial folder whose name has this.
_SCRATCH = ".columns"
_STORES = "stores"


@dataclass(frozen=True)
class Settings:
    """How to write; as `Stream.write` takes them."""

    kind: Kind | None
    codec: CodecOrAuto | None
    chunk_bytes: int
    dict_size: int | None
    level: int | None
    threads: int
    overwrite: bool
    upgrade: bool


class HeadRecords(HeadSamples):
    """The records that wait for a store before it is made: what it learns from.

    Parameters
    ----------
    buffer : bytearray
        They lie in it one behind the other. It must not change its size before `clear`.
    lens : sequence of int
        Bytes of each.
    is_all : bool
        Whether there will be no others.
    item_bytes : int
    """

    def __init__(self, buffer: bytearray, lens: Sequence[int], is_all: bool, item_bytes: int) -> None:
        self._views: list[memoryview] = []
        view, begin = memoryview(buffer), 0
        for n_bytes in lens:
            self._views.append(view[begin : begin + n_bytes])
            begin += n_bytes
        super().__init__(self._views, is_all, item_bytes)

    def sample(self, n_bytes: int) -> tuple[list[bytes], bool]:
        """Return about so many bytes of lines, and whether these are all lines there are."""
        taken = [bytes(record) for record in self.take(n_bytes)]
        return taken, self.total_bytes() is not None and len(taken) == len(self._views)

    def clear(self) -> None:
        """Forget all of them."""
        self._views.clear()


class Places:
    """The stores that records go to.

    Parameters
    ----------
    target : pathlib.Path
    layout : Layout
    samples : sequence of HeadRecords
        Of each column.
    settings : Settings

    Attributes
    ----------
    stores : dict of str to pathlib.Path
        Of columns.
    """

    def __init__(
        self,
        target: Path,
        layout: Layout,
        samples: Sequence[HeadRecords],
        settings: Settings,
    ) -> None:
        self._target = target
        self._columns = layout.columns
        self._samples = samples
        self._settings = settings
        self._codec = check_codec_or_auto(settings.codec)
        self.stores = {name: target / store_name(name) for name in layout.columns if name is not None}

    @contextlib.contextmanager
    def opened(self) -> Iterator[list[Append]]:
        """Give what takes the records, in the order of the columns; all are there at the end, or none."""
        with self._opened_folder() if self.stores else self._opened_store() as appends:
            # What was sampled is of no more use, and is to leave memory.
            for samples in self._samples:
                samples.clear()
            yield appends

    @contextlib.contextmanager
    def _opened_store(self) -> Iterator[list[Append]]:
        inside = find_stores(self._target) if self._target.is_dir() else []
        if inside and not is_store(self._target):
            raise NotAStoreError(
                f"{self._target}: is a folder of stores, such as {inside[0]}, and the items make one store: choose "
                "another path, or kind 'columns'",
                store=self._target,
            )
        column = self._columns[None]
        with self._writing(self._target, column, self._samples[0], self._settings.overwrite) as append:
            yield [append]

    @contextlib.contextmanager
    def _opened_folder(self) -> Iterator[list[Append]]:
        if self._check_folder():
            opened: list[Append] = []

            def committed() -> list[tuple[Path, range]]:
                pairs = zip(self.stores.values(), opened, strict=False)
                return [(path, append.committed) for path, append in pairs if append.committed is not None]

            with held(self._target, _SCRATCH):
                self._check_lengths()
                with (
                    appended_together(self._target, list(self.stores.values()), committed),
                    self._opened(self._target, opened),
                ):
                    yield opened
            return
        with Staging(place_to_build(self._target, _SCRATCH)) as staging:
            built_in = staging.path / _STORES
            files.make_directory(built_in)
            appends: list[Append] = []
            with _named(built_in, self._target), self._opened(built_in, appends):
                yield appends
            with held(self._target, _SCRATCH) if self._target.is_dir() else contextlib.nullcontext():
                put_in_places(built_in, self._target, replace=self._settings.overwrite)
            files.remove_tree(staging.path)  # with the stores that were replaced

    @contextlib.contextmanager
    def _opened(self, folder: Path, appends: list[Append]) -> Iterator[None]:
        with contextlib.ExitStack() as stack:
            for (name, path), samples in zip(self.stores.items(), self._samples, strict=True):
                writing = self._writing(folder / path.name, self._columns[name], samples, False)
                appends.append(stack.enter_context(writing))
            yield

    def _writing(
        self, path: Path, column: Column, samples: HeadRecords, overwrite: bool
    ) -> contextlib.AbstractContextManager[Append]:
        chosen = self._settings
        rest = chosen.level, chosen.threads, chosen.dict_size, overwrite, chosen.upgrade
        if isinstance(column, LineColumn):
            return LineWriter(path, self._line_codec(), *rest).writing(samples)
        assert isinstance(column, ArrayColumn | RaggedColumn), "there are no other columns"
        kind, shape = (
            ("fixed", column.shape) if isinstance(column, ArrayColumn) else ("ragged", column.item_shape)
        )
        schema = new_schema(path, cast(Any, kind), column.dtype, shape, self._codec)
        return DatasetWriter(path, schema, chosen.codec, *rest).writing(samples)

    def _line_codec(self) -> LineCodec | None:
        """Return the codec for lines: they have no numbers to shuffle, and choose for themselves."""
        codec = self._settings.codec
        if codec == "auto" or (self.stores and codec not in ("raw", "zstd")):
            return None
        return cast("LineCodec | None", codec)

    def _check_folder(self) -> bool:
        """Return whether the stores are there already, to be appended to.

        Raises
        ------
        NotAStoreError
            Something else is there.
        """
        target = self._target
        if not os.path.lexists(target):
            return False
        if not target.is_dir() or is_store(target):
            what = "is a store" if target.is_dir() else "exists and is not a folder"
            raise NotAStoreError(
                f"{target}: {what}, and columns need a folder: choose another path", store=target
            )
        stores = find_stores(target)
        if not stores:
            others = [name for name in os.listdir(target) if not is_leftover(name)]
            if others:
                raise NotAStoreError(
                    f"{target}: it holds other files than stores, such as {others[0]!r}: choose another path",
                    store=target,
                )
            return False
        if not self._settings.overwrite:
            return True
        names = {path.name for path in self.stores.values()}
        for name in stores:
            if name not in names:
                raise NotAStoreError(
                    f"{target}: it holds {name}, of which the items have nothing, and which would be left behind "
                    "beside the new stores: remove it, or choose another path",
                    store=target,
                )
            if others := foreign_files(target / name):
                raise NotAStoreError(
                    f"{target / name}: not replaced, for it also holds {others[0]!r}", store=target / name
                )
        return False

    def _check_lengths(self) -> None:
        """Raise where the records of the stores that are there do not go together."""
        lengths = {}
        for path in self.stores.values():
            with Zrecord(path, mode="r") as store:
                lengths[path.name] = len(store)
        if len(set(lengths.values())) > 1:
            raise SchemaError(
                f"{self._target}: its stores differ in length ({lengths}), so that new records would not go together: "
                "delete the records that the others do not have, or choose another path",
                path=self._target,
            )


@contextlib.contextmanager
def _named(built_in: Path, folder: Path) -> Iterator[None]:
    """Have errors about a store that is being built speak of its place: the user knows no other."""
    try:
        yield
    except LoaderxError as error:
        error.message = error.message.replace(str(built_in), str(folder))
        error.args = (error.message,)
        if isinstance(error, ZrecordError) and error.store is not None:
            error.store = folder / Path(error.store).name
        raise
