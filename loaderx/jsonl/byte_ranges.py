"""Any ranges of bytes of files as samples: indexed, read, parsed, and what is done about those that do not parse."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar, Literal, NoReturn, Self, SupportsIndex, TypeAlias

import numpy as np

from loaderx._core.ranges import Tally
from loaderx.errors import ClosedError, JsonlError, OptionError, RecordIndexError
from loaderx.jsonl.line_store import StoreSource, is_store
from loaderx.jsonl.parser import Parse
from loaderx.jsonl.range_source import RangeSource
from loaderx.jsonl.source import Source
from loaderx.store.buffers import Indices, as_indices
from loaderx.store.indexing import resolve, resolve_batch
from loaderx.store.options import check_choice, check_flag, check_path, check_threads

Io: TypeAlias = Literal["mmap", "pread"]
#: What is done about a sample that does not parse.
OnError: TypeAlias = Literal["raise", "skip"] | Callable[[JsonlError], Any]

# What a pass reads at once.
_PASS_SAMPLES = 1024
_PASS_BYTES = 1 << 20

_LEFT_OUT = object()


class ByteRangeDataset:
    """Samples that are ranges of bytes of files, as an index lists them, and what a function makes of each.

    The files are not copied: a sample is looked up in the index, which is mapped, read where it is, and parsed. Nothing
    is kept in memory for each sample.

    Parameters
    ----------
    base_path : str or os.PathLike
        The folder whose files were indexed, or the one file that was.
    parse : callable, optional
        Given the bytes of a sample, returns what the dataset is to give for it; None: the bytes.
    on_error : {"raise", "skip"} or callable
        What is done about a sample whose `parse` raises. "raise": a `JsonlError` says where it is. "skip": it is left
        out of batches, slices and passes, which are shorter then; ``dataset[i]`` is None. A function is given the
        `JsonlError`, and what it returns takes the sample's place; it may raise, too.
    io : {"mmap", "pread"}
        How files are read: mapped into memory, or with read calls, which are slower and survive a file that is cut off
        or a disk that fails during the read with an error instead of a signal.
    index_folder : str or os.PathLike, optional
        Where the index is; None: where `build_index` puts it.
    allow_outside : bool
        Read files that the index lists by absolute paths, or outside of the base.
    threads : int
        The most threads one call uses; 0: every core in the affinity mask.

    Attributes
    ----------
    path : pathlib.Path
        `base_path`, absolute.
    num_skipped : int
        How often a sample that does not parse was met and passed over, or given to the function `on_error`, by this
        object.
    leaves_out : bool
        Whether `on_error` is "skip".

    Raises
    ------
    NotAnIndexError
        There is no index.
    StaleIndexError
        Files are not what was indexed.
    StoreIOError, OptionError

    Notes
    -----
    Safe in any number of threads, which then call `parse` and `on_error` at the same time. A forked child may use it,
    with one thread a call. Pickles by its path and options, and opens the index anew where it is unpickled.

    Files are opened when a sample of them is first read, and kept open: a quarter of the files that the process may
    open, and 256 at most.
    """

    # Whether samples are lines, and given without their ends.
    _are_lines: ClassVar[bool] = False

    def __init__(
        self,
        base_path: str | os.PathLike[str],
        *,
        parse: Parse | None = None,
        on_error: OnError = "raise",
        io: Io = "mmap",
        index_folder: str | os.PathLike[str] | None = None,
        allow_outside: bool = False,
        threads: int = 0,
    ) -> None:
        if parse is not None and not callable(parse):
            raise OptionError(
                f"parse is {parse!r}: give a function of bytes, or None", option="parse", value=parse
            )
        # bytes() of bytes is the same object.
        self._open(
            base_path, bytes if parse is None else parse, on_error, io, index_folder, allow_outside, threads
        )
        self._options["parse"] = parse

    def _open(
        self,
        base_path: str | os.PathLike[str],
        parse: Parse,
        on_error: OnError,
        io: Io,
        index_folder: str | os.PathLike[str] | None,
        allow_outside: bool,
        threads: int,
    ) -> None:
        self.path = check_path(base_path)
        self._parse = parse
        if not callable(on_error) and on_error not in ("raise", "skip"):
            raise OptionError(
                f"on_error is {on_error!r}: give 'raise', 'skip', or a function of a JsonlError",
                option="on_error",
                value=on_error,
            )
        check_choice("io", io, ("mmap", "pread"))
        check_flag("allow_outside", allow_outside)
        check_threads(threads)
        self._on_error: OnError = on_error
        self._skipped = Tally()
        # What the dataset is opened with anew; a class adds what is its own.
        self._options: dict[str, Any] = {
            "on_error": on_error,
            "io": io,
            "index_folder": index_folder,
            "allow_outside": allow_outside,
            "threads": threads,
        }
        self._source: Source | None
        if self._are_lines and is_store(self.path):
            if index_folder is not None:
                raise OptionError(
                    f"{self.path}: a store of lines, which has no index: leave index_folder out",
                    option="index_folder",
                    value=index_folder,
                )
            self._source = StoreSource(self.path, io, threads)
        else:
            self._source = RangeSource(self.path, index_folder, allow_outside, io, threads, self._are_lines)
        self._one = self._source.one

    @property
    def leaves_out(self) -> bool:
        """Whether batches lack the samples that do not parse, so that the dataset cannot be read beside another."""
        return self._on_error == "skip"

    @property
    def num_skipped(self) -> int:
        """How often a sample that does not parse was met and passed over; each time counts."""
        return self._skipped.value

    def __repr__(self) -> str:
        state = "closed" if self._source is None else f"{self._source.length} samples"
        return f"<{type(self).__name__} {str(self.path)!r}: {state}>"

    def __len__(self) -> int:
        return self._current().length

    def __getitem__(self, idx: Any) -> Any:
        """Return one sample, parsed; or a list of them.

        Parameters
        ----------
        idx : int, slice, sequence of int, ndarray of int or bool
            As NumPy has it along the first axis; a mask has one item for each sample.

        Raises
        ------
        JsonlError
            A sample does not parse, and `on_error` is "raise".
        RecordIndexError
            No such sample, a mask of another length, or indices of several axes (it is an `IndexError`).
        TypeError
            Not an index.
        StaleIndexError, StoreIOError, ClosedError
        """
        if type(idx) is int or type(idx) is np.int64:
            try:
                raw = self._one(idx)
            except OverflowError:
                pass  # an index beyond 64 bits, which is named below
            else:
                if type(raw) is bytes:
                    return self._parsed_one(idx, raw)
                raise self._current().error(raw, alone=True)
        source = self._current()
        indices, shape = resolve(self.path, idx, source.length)
        if shape is None:
            return self._parsed_one(int(indices[0]), source.many(indices)[0])
        return self._parsed(indices, source.many(self._one_axis(indices, shape)))

    def __getitems__(self, idxs: Any) -> list[Any]:
        """Return some samples, parsed, in the order asked for; they are read in the order of the files.

        Parameters
        ----------
        idxs : sequence of int, or one-dimensional ndarray of int or bool

        Returns
        -------
        list
            With ``on_error="skip"`` without those that do not parse.

        Raises
        ------
        JsonlError, RecordIndexError, StaleIndexError, StoreIOError, ClosedError, TypeError
            About the lowest position that could not be read, or else that does not parse.
        """
        indices = self._indices(idxs)
        return self._parsed(indices, self._current().many(indices))

    def raw(self, index: Any) -> bytes:
        """Return the bytes of one sample; of a line without its end.

        Raises
        ------
        TypeError
            Not a whole number.
        RecordIndexError, StaleIndexError, StoreIOError, ClosedError
        """
        source = self._current()
        indices, shape = resolve(self.path, index, source.length)
        if shape is not None:
            raise TypeError(f"raw gives one sample, not those of {index!r}: raw_batch gives several")
        return source.many(indices)[0]

    def raw_batch(self, idxs: Any) -> list[bytes]:
        """Return the bytes of some samples, in the order asked for; of lines without their ends.

        Parameters
        ----------
        idxs : slice, sequence of int, or one-dimensional ndarray of int or bool

        Raises
        ------
        RecordIndexError, StaleIndexError, StoreIOError, ClosedError, TypeError
            About the lowest position that is wrong.
        """
        return self._current().many(self._indices(idxs))

    def where(self, index: int) -> tuple[Path | None, int | None]:
        """Return where a sample is, to name it in an error.

        Parameters
        ----------
        index : int
            From 0.

        Returns
        -------
        file : pathlib.Path or None
            The file that it is in; of a store of lines the store; None: the index does not say.
        line_number : int or None
            From 1; the file is read up to the line for it. None: it is in a store of lines, or is no line, or the file
            could not be read.

        Raises
        ------
        ClosedError
        """
        return self._current().where(index)

    def __iter__(self) -> Iterator[Any]:
        """Yield all samples in order, without those that `on_error` passes over."""
        at = 0
        while at < len(self):
            source = self._current()
            end = source.stretch(at, _PASS_SAMPLES, _PASS_BYTES)
            for index, raw in enumerate(source.many(np.arange(at, end)), at):
                try:
                    sample = self._parse(raw)
                except Exception as error:
                    sample = self._judge(index, raw, error)
                if sample is not _LEFT_OUT:
                    yield sample
            at = end

    def prefetch(self, idxs: Any) -> None:
        """Have the system begin to read samples that will be wanted soon, such as the next batch's.

        Returns without waiting for the samples, and changes no result.

        Parameters
        ----------
        idxs : slice, sequence of int, or one-dimensional ndarray of int or bool

        Raises
        ------
        RecordIndexError, StaleIndexError, StoreIOError, ClosedError, TypeError
        """
        self._current().prefetch(self._indices(idxs))

    def close(self) -> None:
        """Let go of the files. Calls that run finish; every later one raises `ClosedError`. Closing twice is fine."""
        source, self._source = self._source, None
        self._one = functools.partial(_refuse, self.path)
        if source is not None:
            source.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __reduce__(self) -> tuple[Any, ...]:
        self._current()
        return _reopen, (type(self), self.path, self._options)

    def _current(self) -> Source:
        source = self._source
        if source is None:
            _refuse(self.path)
        return source

    def _indices(self, idxs: Any) -> Indices:
        if type(idxs) is np.ndarray and idxs.ndim == 1 and idxs.dtype.kind != "b":
            return as_indices(self.path, idxs)  # what samplers give
        return self._one_axis(*resolve_batch(self.path, idxs, len(self)))

    def _one_axis(self, indices: Indices, shape: tuple[int, ...]) -> Indices:
        if len(shape) != 1:
            raise RecordIndexError(
                f"{self.path}: samples come in a list, so indices have one axis, not {len(shape)}",
                store=self.path,
            )
        return indices

    def _parsed_one(self, index: SupportsIndex, raw: bytes) -> Any:
        try:
            return self._parse(raw)
        except Exception as error:
            sample = self._judge(int(index), raw, error)
            return None if sample is _LEFT_OUT else sample

    def _parsed(self, indices: Indices, raws: list[bytes]) -> list[Any]:
        samples: list[Any] = []
        n_left_out = 0
        rest = iter(raws)
        while True:
            error: Exception
            try:
                # Items that come before an exception stay in the list, and the iterator goes on behind it.
                samples.extend(map(self._parse, rest))
                at = len(samples) + n_left_out
                if at == len(raws):
                    return samples
                error = RuntimeError("parse raised StopIteration")  # which ends a map
            except Exception as caught:
                at = len(samples) + n_left_out
                error = caught
            sample = self._judge(int(indices[at]), raws[at], error)
            if sample is _LEFT_OUT:
                n_left_out += 1
            else:
                samples.append(sample)

    def _judge(self, index: int, raw: bytes, error: Exception) -> Any:
        """Return what takes the place of a sample that does not parse, or `_LEFT_OUT`, or raise."""
        if isinstance(error, MemoryError):
            raise error
        if self._on_error == "skip":
            self._skipped.add()
            return _LEFT_OUT
        source = self._current()
        found = source.parse_error(index + source.length if index < 0 else index, raw, error)
        if callable(self._on_error):
            # Whoever keeps the error would keep the whole batch with its traceback.
            found.__cause__ = error.with_traceback(None)
            self._skipped.add()
            return self._on_error(found)
        raise found from error


def _refuse(path: Path, *_: Any) -> NoReturn:
    raise ClosedError(f"{path}: the dataset was closed: open it again", store=path)


def _reopen(cls: type[ByteRangeDataset], path: Path, options: dict[str, Any]) -> ByteRangeDataset:
    return cls(path, **options)
