"""Indexing what was added to text files since they were indexed."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from loaderx._core.threads import available_cpus
from loaderx.errors import NotAnIndexError
from loaderx.jsonl.build import os_errors_named
from loaderx.jsonl.fingerprint import look_at
from loaderx.jsonl.index import Index
from loaderx.jsonl.install import building, check_replaceable, install, tidy
from loaderx.jsonl.layout import DEFAULT_PATTERN, FACTS, MARK, ROW_BYTES, FileFacts, find_place
from loaderx.jsonl.scan import Todo, changed, find_lines
from loaderx.jsonl.walk import find_files
from loaderx.jsonl.writing import IndexWriter, add_lines
from loaderx.store.options import check_flag, check_threads
from loaderx.store.progress import Progress, reporting

# Rows of the old index that are copied at once.
_COPIED_ROWS = 1 << 16


def update_index(
    base_path: str | os.PathLike[str],
    *,
    threads: int = 0,
    progress: Progress = None,
    index_folder: str | os.PathLike[str] | None = None,
    allow_outside: bool = False,
) -> Index:
    """Index what was added since text files were indexed: to their ends, and as new files.

    Every sample keeps its index, and new ones go to the end: those of files that have grown, then those of new files,
    which are looked for by the pattern that the index was built with. A last line without an end is read again: if it
    went on, its sample, with its old index, is the whole line now.

    Parameters
    ----------
    base_path : path
        The folder or the file that was indexed.
    threads : int
        How many threads scan; 0: one for each core.
    progress : bool or callable, optional
        As for `build_index`; the bytes are those that were added.
    index_folder : path, optional
        The index, where it is not at its usual place.
    allow_outside : bool
        Whether files may lie outside of the base.

    Returns
    -------
    Index
        Opened. Where nothing was added, and no file's time of change is another, the index is left as it is.

    Raises
    ------
    NotAnIndexError
        There is no index, or it is another program's, which does not say what it has indexed.
    StaleIndexError
        The index is damaged; a file was changed in another way, is shorter or not there: `build_index` it is then.
    OptionError
        An argument is outside its range, or a file lies outside of the base.
    ArchiveError
        A file is compressed: its first bytes tell.
    OSError
        A file cannot be read, or the index not be written. The old index is still there.

    Notes
    -----
    The index appears whole or not at all, as from `build_index`. Its file of places, 24 bytes a sample, is written
    anew; of the text files only what was added is read.
    """
    place = find_place(base_path, index_folder)
    n_threads = check_threads(threads) or available_cpus()
    index = Index(place, check_flag("allow_outside", allow_outside))
    if index.facts is None:
        raise NotAnIndexError(
            f"{place.folder}: another program's index: it has no {FACTS}, and does not say how much of its files it "
            "has; build one anew (build_index)",
            path=place.folder,
        )
    check_replaceable(place.folder)
    names, facts, todos = list(index.names), dict[int, FileFacts](), list[Todo]()
    unfinished: dict[int, int] = {}
    for number, (path, old) in enumerate(zip(index.paths, index.facts.files, strict=True)):
        now = look_at(path, old)
        facts[number] = old._replace(mtime_ns=now.st_mtime_ns)
        if now.st_size > old.size:
            _check_line_begins(index, path, old.indexed_bytes)
            todos.append(Todo(number, path, old.indexed_bytes, now.st_size))
            if old.unfinished_sample is not None:
                unfinished[number] = old.unfinished_sample
    known = set(names)
    for file in find_files(place, index.facts.pattern or DEFAULT_PATTERN, allow_outside=allow_outside):
        if file.name not in known:
            todos.append(Todo(len(names), os.path.join(place.base, file.name), 0, file.size))
            names.append(file.name)
    if not todos and tuple(facts.values()) == index.facts.files:
        with contextlib.suppress(OSError):  # the folder need not be one that can be written to
            tidy(place.folder)
        return index
    with (
        reporting(progress, sum(todo.size - todo.start for todo in todos)) as report,
        os_errors_named(place),
        building(place.folder) as partial,
    ):
        with IndexWriter(partial) as writer:
            _copy_rows(index, writer)
            resumed = add_lines(writer, find_lines(todos, n_threads), facts, unfinished, report)
            for number in unfinished.keys() - resumed:
                raise changed(Path(index.paths[number]), "its last line, which is a sample, is blank now")
            writer.finish(index.facts.pattern, names, facts)
        install(partial, place.folder)
    return Index(place, allow_outside)


def _check_line_begins(index: Index, path: str, at: int) -> None:
    """Refuse to go on within a line: lines would be there twice, or be lost."""
    with open(path, "rb") as file:
        file.seek(max(0, at - len(MARK)))
        before = file.read(min(at, len(MARK)))
    if at and not before.endswith(b"\n") and not (at == len(MARK) and before == MARK):
        raise changed(
            index.folder / FACTS,
            f"it is damaged: it says that a line of {path} begins at byte {at}, where none does",
        )


def _copy_rows(index: Index, writer: IndexWriter) -> None:
    rows = index.locations.data.cast("B") if len(index) else b""
    step = _COPIED_ROWS * ROW_BYTES
    for at in range(0, len(rows), step):
        writer.add(rows[at : at + step])
