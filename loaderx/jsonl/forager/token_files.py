"""Files of token samples and their index, as data-forager 0.2.0 lays them out."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import numpy.typing as npt

from loaderx._core.maps import OpenFile
from loaderx.errors import DocumentError, OptionError
from loaderx.jsonl.forager.columns import TOKENS, Arrays, Columns, LineError
from loaderx.jsonl.install import building, install
from loaderx.jsonl.layout import LOCATIONS, NAMES, find_place, names_to_bytes
from loaderx.jsonl.reading import LineReader
from loaderx.jsonl.splitting import Lines
from loaderx.jsonl.walk import find_files
from loaderx.store import files
from loaderx.store.create import make_directories
from loaderx.store.flock import try_lock
from loaderx.store.progress import reporting
from loaderx.store.staging import partial_path

_SCHEMA = "sample_schema.json"
_INDEX = "index"
_SAMPLES = "tokenized-samples"
_NUMBERS = re.compile("([0-9]+)")
# Lines encoded together.
_BATCH_LINES = 256


@dataclass(frozen=True)
class TokenFiles:
    """What is read and what is written.

    Attributes
    ----------
    base : pathlib.Path
        The folder of the index; paths in it are relative to this.
    sources, outputs : list of pathlib.Path
        For each file of text the file of its samples.
    """

    base: Path
    sources: list[Path]
    outputs: list[Path]

    @classmethod
    def planned(
        cls,
        base: str | os.PathLike[str],
        input_base: str | os.PathLike[str] | None,
        sources: Sequence[str | os.PathLike[str]] | None,
        pattern: str,
        output_folder: str | os.PathLike[str] | None,
        postfix: str,
    ) -> TokenFiles:
        """Find the files to read, and name those to write.

        Raises
        ------
        OptionError
            There are none to read.
        """
        root = Path(os.path.abspath(base))
        if sources is not None:
            paths = [Path(os.path.abspath(source)) for source in sources]
        else:
            assert input_base is not None
            place = find_place(input_base)
            names = [found.name for found in find_files(place, pattern)]
            paths = [place.base / name for name in sorted(names, key=_natural_key)]
        if not paths:
            raise OptionError(
                f"{input_base if sources is None else 'input_file_paths'}: there are no files to read",
                option="input_file_paths",
                value=sources,
            )
        folder = root / _SAMPLES if output_folder is None else Path(os.path.abspath(output_folder))
        outputs: list[Path] = []
        for path in paths:
            output, number = folder / f"{path.stem}-{postfix}.bin", 1
            while output in outputs:  # of the same name in another folder
                number += 1
                output = folder / f"{path.stem}-{number}-{postfix}.bin"
            outputs.append(output)
        return cls(root, paths, outputs)


def _natural_key(name: str) -> list[int | str]:
    """Return the key that sorts paths as data-forager does: as whole texts, numbers in them by value."""
    return [int(piece) if at % 2 else piece for at, piece in enumerate(_NUMBERS.split(name.lower()))]


def write_token_files(plan: TokenFiles, columns: Columns, sample_size: int | None) -> None:
    """Encode the lines of files, and write their samples and the index.

    Parameters
    ----------
    plan : TokenFiles
    columns : Columns
    sample_size : int or None
        Items of each array in a sample; None: each document is a sample of its own length.

    Raises
    ------
    OptionError
        There is an index.
    FileExistsError
        There is a file of samples.
    DocumentError
        A line cannot become a document.
    OSError
    """
    index = plan.base / _INDEX
    if os.path.lexists(index):
        raise OptionError(
            f"{index}: there is an index already: move it away, or give another output_base_path",
            option="output_base_path",
            value=plan.base,
        )
    for output in plan.outputs:
        if os.path.lexists(output):
            raise FileExistsError(
                errno.EEXIST, "there is a file of samples already: move it away", str(output)
            )
    make_directories(plan.base)
    make_directories(plan.outputs[0].parent)
    total_bytes = sum(path.stat().st_size for path in plan.sources)
    with building(index) as folder:
        if len(columns.dtypes) > 1:
            assert sample_size is not None, "arrays beside the tokens are those of samples of one size"
            _write(folder / _SCHEMA, _schema(columns.dtypes, sample_size))
        with _Outputs(plan.outputs, index) as outputs:
            with (
                reporting(None, total_bytes) as report,
                files.opened(files.create(folder / LOCATIONS)) as rows,
            ):
                names = _write_samples(
                    plan, columns, _Packing(columns.dtypes, sample_size), outputs, rows, report
                )
            _write(folder / NAMES, names_to_bytes(names))
            outputs.finish()
            install(folder, index)


def _write_samples(
    plan: TokenFiles,
    columns: Columns,
    packing: _Packing,
    outputs: _Outputs,
    rows: int,
    report: Callable[[int], None],
) -> list[str]:
    """Write all samples and their rows, and return the names of the files that have any."""
    names: list[str] = []
    n_documents = rows_end = 0
    for source, output in zip(plan.sources, plan.outputs, strict=True):
        outputs.begin(output)
        end, is_listed = 0, False
        for _, lines in LineReader([source]):
            for begin in range(0, len(lines.starts), _BATCH_LINES):
                batch = _with_ends(lines, begin, begin + _BATCH_LINES)
                try:
                    arrays, lengths = columns.make(batch)
                except LineError as error:
                    raise _document_error(error, source, lines, begin, n_documents) from error.__cause__
                n_documents += len(batch)
                data, sizes = packing.add(arrays, lengths)
                if not len(sizes):
                    continue
                if not is_listed:  # as data-forager has it: files without a sample are not
                    names.append(os.path.relpath(output, plan.base))
                    is_listed = True
                outputs.write(data, end)
                found = np.empty((len(sizes), 3), "<u8")
                found[:, 0], found[:, 1], found[:, 2] = len(names) - 1, end + np.cumsum(sizes) - sizes, sizes
                files.write_at(rows, found.data.cast("B"), rows_end)
                rows_end += found.nbytes
                end += len(data)
            report(len(lines.data))
    return names


class _Packing:
    """Documents joined and cut into samples; what is left over waits for the next ones.

    Parameters
    ----------
    dtypes : dict of str to numpy.dtype
        Of the arrays, in the order in which they lie in a sample.
    sample_size : int or None
        None: each document is a sample.
    """

    def __init__(self, dtypes: dict[str, np.dtype[Any]], sample_size: int | None) -> None:
        self._sample_size = sample_size
        self._rest: Arrays = {name: np.empty(0, dtype) for name, dtype in dtypes.items()}

    def add(self, arrays: Arrays, lengths: npt.NDArray[np.int64]) -> tuple[memoryview, npt.NDArray[np.int64]]:
        """Return the bytes of the samples that are full now, one behind the other, and of each its bytes."""
        if self._sample_size is None:
            ids = arrays[TOKENS]
            return _bytes_of(ids), lengths * ids.itemsize
        joined = {name: np.concatenate([rest, arrays[name]]) for name, rest in self._rest.items()}
        n = len(joined[TOKENS]) // self._sample_size
        stop = n * self._sample_size
        self._rest = {name: array[stop:].copy() for name, array in joined.items()}
        parts = [array[:stop].view(np.uint8).reshape(n, -1) for array in joined.values()] if n else []
        if not parts:
            return memoryview(b""), np.empty(0, np.int64)
        samples = parts[0] if len(parts) == 1 else np.concatenate(parts, axis=1)
        return _bytes_of(samples), np.full(n, samples.shape[1], np.int64)


class _Outputs:
    """Files of samples, each complete before it has its name. Where the block fails, none is left.

    Parameters
    ----------
    paths : sequence of pathlib.Path
    index : pathlib.Path
        Where there is one, at the end of the block, the files belong to it and stay.
    """

    def __init__(self, paths: Sequence[Path], index: Path) -> None:
        self._index = index
        self._places: list[tuple[Path, Path]] = []  # what each is called so far, and what it will be
        self._named: list[Path] = []
        self._file: OpenFile | None = None
        for path in paths:
            files.sweep_partials(path)

    def __enter__(self) -> _Outputs:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close()
        left = [partial for partial, _ in self._places]
        for path in left if os.path.lexists(self._index) else [*left, *self._named]:
            with contextlib.suppress(OSError):
                files.unlink(path)

    def begin(self, path: Path) -> None:
        """Go on with the next file."""
        self._close()
        partial = partial_path(path.parent, path.name)
        self._file = files.create(partial)
        self._places.append((partial, path))
        try_lock(self._file.fileno())  # held against being swept while it grows

    def write(self, data: memoryview, offset: int) -> None:
        """Write to the file that was begun last."""
        assert self._file is not None
        files.write_at(self._file.fileno(), data, offset)

    def finish(self) -> None:
        """Give all files their names."""
        self._close()
        while self._places:
            partial, path = self._places[-1]
            files.rename(partial, path)
            self._named.append(path)
            self._places.pop()
        for folder in {path.parent for path in self._named}:
            files.sync_directory(folder)

    def _close(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            try:
                files.sync(file.fileno())
            finally:
                file.close()


def _with_ends(lines: Lines, begin: int, end: int) -> list[bytes]:
    """Return some lines as they are in the file, with their ends."""
    found = []
    for start, size in zip(lines.starts[begin:end].tolist(), lines.sizes[begin:end].tolist(), strict=True):
        stop = lines.data.find(b"\n", start + size) + 1
        found.append(lines.data[start : stop or None])
    return found


def _document_error(
    error: LineError, path: Path, lines: Lines, begin: int, n_documents: int
) -> DocumentError:
    line_number = int(lines.numbers[begin + error.line])
    return DocumentError(
        f"{path}, line {line_number} (document {n_documents + error.line}): {error.problem}",
        document=n_documents + error.line,
        file=path,
        line_number=line_number,
        kind=error.kind,
        problem=error.problem,
    )


def _schema(dtypes: dict[str, np.dtype[Any]], sample_size: int) -> bytes:
    """Write what lies where in a sample."""
    arrays = []
    offset = 0
    for name, dtype in dtypes.items():
        arrays.append({"name": name, "dtype": str(dtype), "offset": offset})
        offset += sample_size * dtype.itemsize
    document = {"sample_size": sample_size, "arrays": arrays, "total_bytes_per_sample": offset}
    return json.dumps(document, indent=2).encode()


def _bytes_of(array: npt.NDArray[Any]) -> memoryview:
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).data


def _write(path: Path, data: bytes) -> None:
    with files.opened(files.create(path)) as descriptor:
        files.write_at(descriptor, data, 0)
