"""Building an index of text files."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from loaderx._core.threads import available_cpus
from loaderx.errors import OptionError
from loaderx.jsonl.index import Index
from loaderx.jsonl.install import building, check_replaceable, install
from loaderx.jsonl.layout import DEFAULT_PATTERN, FACTS, NAMES, FileFacts, Place, find_place, names_from_bytes
from loaderx.jsonl.line_store import is_store
from loaderx.jsonl.scan import Todo, find_lines
from loaderx.jsonl.walk import Found, find_files
from loaderx.jsonl.writing import IndexWriter, add_lines
from loaderx.store.options import check_flag, check_threads
from loaderx.store.progress import Progress, reporting


def build_index(
    base_path: str | os.PathLike[str],
    pattern: str = DEFAULT_PATTERN,
    *,
    threads: int = 0,
    progress: Progress = None,
    index_folder: str | os.PathLike[str] | None = None,
    allow_outside: bool = False,
) -> Index:
    """Index the lines of text files, which stay as they are.

    Parameters
    ----------
    base_path : path
        A folder: the files below it that fit `pattern` are indexed, in natural order (part2 before part10), and the
        index is ``index`` within it. Or a file, which is indexed alone, in ``NAME.index`` beside it.
    pattern : str
        Which files, relative to the folder: names with ``*``, ``?`` and ``[...]``, divided by ``/``; ``**`` stands for
        any folders, also none. Names that begin with a dot fit only a part of the pattern that begins with one.
    threads : int
        How many threads scan; 0: one for each core.
    progress : bool or callable, optional
        None: a bar where standard error is a terminal. Or whether to show one. Or called with (bytes done, bytes in
        all).
    index_folder : path, optional
        Another folder for the index; a relative one begins in the base.
    allow_outside : bool
        Whether symbolic links may lead out of the base.

    Returns
    -------
    Index
        Opened.

    Raises
    ------
    OptionError
        An argument is outside its range; there is no file that fits; a file's name has a line break, or it lies
        outside of the base; what is at the index's place is not an index, or another program's of other files.
    StaleIndexError
        A file was changed while it was indexed (other than by appending: what is appended meanwhile is not indexed).
    ArchiveError
        A file is compressed: its first bytes tell.
    OSError
        A file cannot be read, or the index not be written. An index that was there before is still there.

    Notes
    -----
    A sample is a line with its line end, ``"\\n"`` or ``"\\r\\n"``; the last one may have none. A byte-order mark at a
    file's beginning belongs to none. Lines of nothing but spaces, tabs and carriage returns are no samples.

    The index appears whole or not at all. Several may be built at once, also of the same folder: the last one stays.
    Memory does not grow with the number of samples.
    """
    place = find_place(base_path, index_folder)
    allow_outside = check_flag("allow_outside", allow_outside)
    n_threads = check_threads(threads) or available_cpus()
    found = find_files(place, pattern, allow_outside=allow_outside)
    if not found:
        if is_store(place.base):
            raise OptionError(
                f"{place.base}: a store, and not text files: a store of lines needs no index, JsonlDataset opens it as "
                "it is",
                option="base_path",
                value=base_path,
            )
        raise OptionError(
            f"{place.base}: no file fits {pattern!r}; give the pattern of the files to index",
            option="pattern",
            value=pattern,
        )
    check_replaceable(place.folder)
    _check_of_these(place.folder, found)
    todos = [Todo(i, os.path.join(place.base, file.name), 0, file.size) for i, file in enumerate(found)]
    facts: dict[int, FileFacts] = {}
    with (
        reporting(progress, sum(file.size for file in found)) as report,
        os_errors_named(place),
        building(place.folder) as partial,
    ):
        with IndexWriter(partial) as writer:
            add_lines(writer, find_lines(todos, n_threads), facts, {}, report)
            writer.finish(None if place.single else pattern, [file.name for file in found], facts)
        install(partial, place.folder)
    return Index(place, allow_outside)  # what was indexed just now need not be looked at again


@contextlib.contextmanager
def os_errors_named(place: Place) -> Iterator[None]:
    """Have errors of the system that name no file name the index that was to be written."""
    try:
        yield
    except OSError as error:
        if error.filename is None and error.errno is not None:
            raise OSError(error.errno, error.strerror, os.fspath(place.folder)) from error
        raise


def _check_of_these(folder: Path, found: list[Found]) -> None:
    """Refuse to replace what another program has indexed elsewhere, such as its files of tokens."""
    if (folder / FACTS).exists() or not (folder / NAMES).exists():
        return
    listed = {os.path.normpath(name) for name in names_from_bytes((folder / NAMES).read_bytes())}
    others = sorted(listed - {file.name for file in found})
    if others:
        raise OptionError(
            f"{folder}: not replaced, because it is another program's index of other files, such as {others[0]!r}: "
            "move it away, or give another index_folder",
            option="index_folder",
            value=folder,
        )
