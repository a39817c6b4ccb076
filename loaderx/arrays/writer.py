"""Putting records into a dataset: a new one, which appears complete, or behind those of one that is there."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np

from loaderx.arrays.choosing import (
    DEFAULT_CODEC,
    LEARNT_BYTES,
    SAMPLED_FOR_EACH_BYTE,
    CodecChoice,
    check_dict_size,
    choose,
    dictionary_bytes,
)
from loaderx.arrays.sampling import Samples
from loaderx.arrays.schema import Schema, read_schema, write_schema
from loaderx.errors import OptionError, SchemaError, ZrecordError
from loaderx.store import files
from loaderx.store.append import Append
from loaderx.store.format import CODECS, DICTIONARY, DICTIONARY_CODECS, META, SCHEMA, UNSHUFFLED
from loaderx.store.options import Codec, CodecOrAuto, check_choice, check_flag, check_level, check_threads
from loaderx.store.staging import Staging, take_back_moves
from loaderx.store.zrecord import StagedZrecord, Zrecord


class DatasetWriter:
    """Puts records into a new dataset, or behind those of an existing one."""

    def __init__(
        self,
        target: Path,
        schema: Schema,
        codec: CodecOrAuto | None,
        level: int | None,
        threads: int,
        dict_size: int | None,
        overwrite: bool,
        upgrade: bool,
    ) -> None:
        self._target = target
        self._schema = schema
        self._codec = codec
        self._level = check_level(level, codec)
        self._threads = check_threads(threads)
        self._overwrite = check_flag("overwrite", overwrite)
        self._upgrade = check_flag("upgrade", upgrade)
        self._process = os.getpid()
        self._dict_size = check_dict_size(dict_size)

    @contextlib.contextmanager
    def writing(self, samples: Samples) -> Iterator[Append]:
        """Give what takes records; all that were added are there at the end of the ``with`` block, or none.

        Parameters
        ----------
        samples : Samples
            Of what will be added.
        """
        if not self._overwrite and dataset_exists(self._target):
            there = read_schema(self._target)
            _check_same(self._target, there, self._schema)
            if self._codec in (None, "auto"):
                self._schema = replace(self._schema, codec=there.codec)
            if self._codec is None:
                self._check_level_of_dataset()
            if self._codec == "auto" and self._is_empty():
                self._choose(samples)
            with self._schema_says(there), self._filling(Zrecord, self._target, samples) as append:
                yield append
            return
        with Staging(self._target, replace=self._overwrite) as staging:
            if self._codec == "auto":
                self._choose(samples)
            with self._filling(StagedZrecord, staging.path, samples) as append:
                yield append
            write_schema(staging.path, self._schema)
            staging.install()

    def _check_level_of_dataset(self) -> None:
        if self._level is not None and self._schema.codec == "raw":
            raise OptionError(
                f"{self._target}: level is {self._level}, and the dataset's codec, 'raw', compresses nothing: leave it "
                "out, or choose another codec",
                option="level",
                value=self._level,
            )

    def _choose(self, samples: Samples) -> None:
        import logging

        choice = choose(samples, self._level, self._dict_size)
        logging.getLogger(__name__).info("%s: codec %s: %s", self._target, choice.codec, choice.reason)
        if choice.candidates:
            self._schema = replace(self._schema, codec=choice.codec)

    def _is_empty(self) -> bool:
        with Zrecord(self._target, mode="r") as store:
            return len(store) == 0

    @contextlib.contextmanager
    def _schema_says(self, there: Schema) -> Iterator[None]:
        """Have the schema name the codec that was chosen for the first records of an empty dataset.

        Before they are written, so that no records are there under another name; where they are not, as it was.
        """
        if self._codec != "auto" or self._schema.codec == there.codec:
            yield
            return
        try:
            write_schema(self._target, replace(there, codec=self._schema.codec))
            yield
        except BaseException:
            if os.getpid() == self._process:
                with contextlib.suppress(OSError, ZrecordError):
                    if self._is_empty():
                        write_schema(self._target, there)
            raise

    @contextlib.contextmanager
    def _filling(self, kind: type[Zrecord], path: Path, samples: Samples) -> Iterator[Append]:
        codec = self._schema.codec
        level = None if codec == "raw" else self._level  # "auto" may have found that it is best
        with kind(path, codec, level=level, threads=self._threads, upgrade=self._upgrade) as store:
            trains = codec in DICTIONARY_CODECS and not store.has_dict()
            try:
                if trains:
                    self._train(store, samples)
                with store.appending() as append:
                    yield append
            except BaseException:
                if trains and os.getpid() == self._process:
                    _forget_dictionary(path)
                raise

    def _train(self, store: Zrecord, samples: Samples) -> None:
        size = dictionary_bytes(samples.total_bytes(), self._dict_size)
        chosen = samples.take(max(size * SAMPLED_FOR_EACH_BYTE, LEARNT_BYTES))
        store.train_dict(
            b"".join(chosen),
            [sample.nbytes for sample in chosen],
            size,
            item_size=samples.item_bytes if self._schema.codec in UNSHUFFLED else None,
        )


def _forget_dictionary(path: Path) -> None:
    """Remove a dictionary that was just trained, unless records need it: the failure may have come after the commit."""
    with contextlib.suppress(OSError, ZrecordError):
        with Zrecord(path, mode="r") as store:
            needed = any(name in store.stats()["codecs"] for name in DICTIONARY_CODECS)
        if not needed:
            files.unlink(path / DICTIONARY)


def dataset_exists(target: Path) -> bool:
    with files.errors_named(target, "look for a dataset there"):
        take_back_moves(Path(os.path.realpath(target)))
        has_schema, has_store = (target / SCHEMA).exists(), (target / META).exists()
    if has_schema != has_store:
        there, missing = (SCHEMA, META) if has_schema else (META, SCHEMA)
        raise SchemaError(
            f"{target}: has {there} but no {missing}, so it is no dataset to append to. "
            + (
                "Append to a store of plain bytes with Zrecord, or choose"
                if has_store
                else "Remove the file, or choose"
            )
            + " another path",
            path=target,
        )
    return has_schema


def _check_same(target: Path, there: Schema, here: Schema) -> None:
    if (there.kind, there.dtype, there.shape) != (here.kind, here.dtype, here.shape):
        may_be_one = (there.kind, there.dtype, there.shape[1:]) == (here.kind, here.dtype, here.shape)
        one = (
            "; axis 0 counts the records, so one record is array[None]" if may_be_one and there.shape else ""
        )
        raise SchemaError(f"{target}: holds {there}, and cannot take {here}{one}", path=target)


def check_codec_or_auto(codec: CodecOrAuto | None) -> Codec:
    """Return a codec's name, for None and "auto" the default, or raise `OptionError`."""
    if codec is None:
        return DEFAULT_CODEC
    if isinstance(codec, CodecChoice):
        raise OptionError(
            f"codec is a CodecChoice: give its codec, {codec.codec!r}", option="codec", value=codec
        )
    checked: CodecOrAuto = check_choice("codec", codec, (*CODECS, "auto"))
    return DEFAULT_CODEC if checked == "auto" else checked


def add_records(append: Append, buffer: bytearray, lens: list[int], item_bytes: int) -> int:
    """Add records that stand one behind the other, of these sizes in bytes, and return how many bytes they have."""
    sizes = np.array(lens, dtype=np.int64)
    append.add_var(buffer, np.cumsum(sizes) - sizes, sizes, item_size=item_bytes)
    return len(buffer)
