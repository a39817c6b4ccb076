"""Stores of one folder that belong together: all are changed, or none."""

from __future__ import annotations

import contextlib
import errno
import functools
import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from loaderx.errors import LoaderxError, NotAStoreError, StoreLockedError, ZrecordError
from loaderx.store import files
from loaderx.store.flock import lock_within
from loaderx.store.format import META
from loaderx.store.locks import hold_for_writing
from loaderx.store.session import is_writer_here
from loaderx.store.staging import sweep
from loaderx.store.zrecord import Zrecord

#: What a writer that died left behind: the partial folder it built in, or the store it was about to replace.
_LEFTOVER = re.compile(r"\..*\.(partial|replaced)-[0-9]+-[0-9a-f]+")
#: A file name may have 255 bytes; the rest is for what is put around it while a store is written.
_NAME_BYTES = 200
# How long the writer of a store that is to be replaced is waited for.
_TIMEOUT_S = 10.0
# How many records the stores had before some are appended to all of them.
_JOURNAL = ".appending.json"
_MOST_JOURNAL_BYTES = 1 << 20


def is_store(path: Path) -> bool:
    """Tell whether a store stands at a path."""
    # A file: the folder of a .npz file's stores may hold a store named meta.zr, which is a folder.
    return (path / META).is_file()


def is_leftover(name: str) -> bool:
    """Tell whether a name is that of what a writer left behind when it was killed.

    >>> is_leftover(".images.zr.partial-4242-0f1e2d3c"), is_leftover("images.zr")
    (True, False)
    """
    return _LEFTOVER.fullmatch(name) is not None


def find_stores(folder: Path) -> list[str]:
    """List the names of the stores in a folder, sorted; not those of stores that were never finished."""
    return sorted(entry.name for entry in folder.iterdir() if not is_leftover(entry.name) and is_store(entry))


def is_store_name(name: str) -> bool:
    """Return whether a store ``NAME.zr`` can be made of a name: it is one plain part of a path."""
    try:
        n_bytes = len(os.fsencode(name))
    except UnicodeEncodeError:
        return False
    return (
        name not in ("", ".", "..") and n_bytes <= _NAME_BYTES and not any(sign in name for sign in "/\\\0")
    )


@contextlib.contextmanager
def held(folder: Path, scratch: str) -> Iterator[None]:
    """Be the one who changes stores of a folder together; what killed ones left behind is seen to first.

    Parameters
    ----------
    folder : pathlib.Path
    scratch : str
        What partial folders within it are named after.

    Raises
    ------
    StoreLockedError
        There is another one.
    """
    with files.errors_named(folder, "open it for writing"):
        directory = files.open_to_read(folder, os.O_DIRECTORY)
    with files.opened(directory):
        with files.errors_named(folder, "lock it"):
            is_free = lock_within(directory.fileno(), _TIMEOUT_S)
        if not is_free:
            raise StoreLockedError(
                f"{folder}: another writer is at its stores, and was waited for for {_TIMEOUT_S:g} seconds: try again "
                "when it has ended",
                store=folder,
            )
        sweep(folder, scratch)
        _take_back_killed(folder)
        yield


@contextlib.contextmanager
def appended_together(
    folder: Path,
    stores: Sequence[Path],
    committed: Callable[[], Iterable[tuple[Path, range]]] | None = None,
) -> Iterator[None]:
    """Have what the block appends to several stores be there as a whole or not at all: while the folder is `held`.

    Where the process is killed between two commits, the next one who holds the folder takes the first back.

    Parameters
    ----------
    folder : pathlib.Path
    stores : sequence of pathlib.Path
        In it.
    committed : callable, optional
        Returns the stores that hold new records by now, and their indices. None of a store is deleted where another
        writer has appended behind them. None: all that they have grown by, which one who appends to a single store
        meanwhile, and does not hold the folder, is not told apart from.
    """
    lengths: dict[Path, int] = {}
    try:
        lengths = _lengths(stores)
        _write_journal(folder, lengths)
        yield
        # Within: where this fails, the caller is told of a failure, and nothing may stay.
        _remove_journal(folder)
    except BaseException as error:
        new = _grown(lengths).items() if committed is None else committed()
        kept = [path for path, records in new if not _take_back(path, records)]
        if kept:
            raise ZrecordError(
                f"{error}; and what was appended to {', '.join(map(str, kept))} could not be deleted again; the next "
                "append to the folder tries it anew",
                store=kept[0],
            ) from error
        with contextlib.suppress(LoaderxError):
            _remove_journal(folder)
        raise


def _lengths(stores: Iterable[Path]) -> dict[Path, int]:
    lengths = {}
    for path in stores:
        with Zrecord(path, mode="r") as store:
            lengths[path] = len(store)
    return lengths


def _grown(lengths: Mapping[Path, int]) -> dict[Path, range]:
    """Return the indices of the records that stores have behind so many."""
    return {path: range(lengths[path], n) for path, n in _lengths(lengths).items()}


def _write_journal(folder: Path, lengths: Mapping[Path, int]) -> None:
    records = {path.name: n for path, n in lengths.items()}
    with files.errors_named(folder, "note how many records its stores have"):
        files.write_new(folder / _JOURNAL, json.dumps({"records": records}).encode())
        files.sync_directory(folder)


def _remove_journal(folder: Path) -> None:
    with files.errors_named(folder, f"remove {_JOURNAL}"):
        with contextlib.suppress(FileNotFoundError):
            files.unlink(folder / _JOURNAL)
        files.sync_directory(folder)


def _take_back_killed(folder: Path) -> None:
    """Take back what an append to some stores of a folder has committed that was killed before the others had it.

    Where all of them have it, it is whole.
    """
    data = files.read_beginning(folder / _JOURNAL, _MOST_JOURNAL_BYTES)
    if data is None:
        return
    try:
        lengths = {str(name): int(n) for name, n in json.loads(data)["records"].items()}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ZrecordError(
            f"{folder}: {_JOURNAL}, which says how many records its stores had, is damaged ({error}): see that they "
            "have as many each, and remove it",
            store=folder,
        ) from error
    new = _grown({folder / name: n for name, n in lengths.items() if is_store(folder / name)})
    if len({len(records) for records in new.values()}) > 1:
        for path, records in new.items():
            if not _take_back(path, records):
                raise ZrecordError(
                    f"{path}: what a writer that was killed had appended could not be deleted again",
                    store=path,
                )
    _remove_journal(folder)


def _take_back(path: Path, records: range) -> bool:
    """Delete the last records of a store; False where that fails, or they are not the last."""
    if not records:
        return True
    try:
        with Zrecord(path) as store:
            is_dense = not store.stats()["reclaimable"]
            if len(store) != records.stop:
                return False
            store.delete(records)
            if is_dense:
                store.compact()  # nothing has to move: it only cuts off what was appended
    except LoaderxError:
        return False
    return True


def place_to_build(folder: Path, scratch: str) -> Path:
    """Return what a partial folder of stores, which are for a folder, is to be named after (`Staging`).

    Beside it, so that it takes its place as a whole, but where that cannot be: within it.
    """
    if os.path.lexists(folder) and (os.path.ismount(folder) or _others(folder)):
        return folder / scratch
    return folder.with_name(folder.name + scratch)


def _others(folder: Path) -> list[str]:
    """Return what is in a folder besides stores, and what dead writers left."""
    stores = {*find_stores(folder)}
    return [name for name in os.listdir(folder) if name not in stores and not is_leftover(name)]


def put_in_places(staged: Path, folder: Path, *, replace: bool) -> None:
    """Make a folder of stores the new folder; or, where that holds other files too, move them into it.

    On failure all are moved back.

    Parameters
    ----------
    staged : pathlib.Path
    folder : pathlib.Path
    replace : bool
        Take the places of the stores that are there, in exchange; a writer of one is waited for.

    Raises
    ------
    NotAStoreError
        There are such stores by now, and they are not to be replaced.
    StoreLockedError
    """
    files.sync_directory(staged)
    is_beside = folder not in staged.parents
    if is_beside and not (replace and folder.exists() and find_stores(folder)):
        try:
            files.rename(staged, folder)
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):
                raise
            raise _taken(folder) from error
        files.sync_directory(folder.parent)
        return
    if is_store(folder) or (not replace and find_stores(folder)):
        raise _taken(folder)
    if is_beside:
        with contextlib.ExitStack() as holds:
            for name in find_stores(folder):
                # What a writer of the old store were to commit from here on would be lost with it.
                is_ours = functools.partial(is_writer_here, folder / name)
                holds.enter_context(contextlib.closing(hold_for_writing(folder / name, _TIMEOUT_S, is_ours)))
            _exchange(staged, folder)
        files.sync_directory(folder.parent)
        return
    plan = [(source, folder / source.name, os.stat(source).st_ino) for source in sorted(staged.iterdir())]
    try:
        for source, target, _ in plan:
            if not target.exists():
                files.rename(source, target)
            elif replace:
                hold = hold_for_writing(target, _TIMEOUT_S, functools.partial(is_writer_here, target))
                with contextlib.closing(hold):
                    _exchange(source, target)
            else:
                raise _taken(folder)
        files.sync_directory(folder)
    except BaseException:
        for source, target, inode in plan:
            # By what stands there, not by a count: a signal may come between a move and its being counted.
            if target.exists() and os.stat(target).st_ino == inode:
                if source.exists():
                    _exchange(source, target)
                else:
                    files.rename(target, source)
        raise


def _taken(folder: Path) -> NotAStoreError:
    return NotAStoreError(
        f"{folder}: another writer has put stores there meanwhile: append to them, or choose another path",
        store=folder,
    )


def _exchange(source: Path, target: Path) -> None:
    if files.exchange(source, target):
        return
    aside = source.with_name(f"{source.name}.replaced")
    files.rename(target, aside)
    try:
        files.rename(source, target)
    except BaseException:
        files.rename(aside, target)
        raise
    files.rename(aside, source)
