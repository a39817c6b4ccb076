"""One .npz file into a folder of stores: all of its arrays, or none."""

from __future__ import annotations

import contextlib
import dataclasses
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from loaderx import LoaderxError, NotAStoreError, SchemaError, Zrecord
from loaderx.arrays.schema import read_schema
from loaderx.commands.conversion import (
    Conversion,
    Settings,
    check_destination,
    check_store_or_nothing,
    convert_source,
    verify,
)
from loaderx.commands.npz_members import NpzFile, NpzMember
from loaderx.commands.program import CommandError
from loaderx.store import files
from loaderx.store.create import foreign_files
from loaderx.store.format import META
from loaderx.store.staging import Staging

#: New stores for a folder that exists are built in a partial folder within it, named after this.
_SCRATCH = ".npz"

#: The folder of finished stores within a partial folder.
_STORES = "stores"


def convert_npz(
    archive: Path, folder: Path, settings: Settings, *, verified: bool, bar: bool = False
) -> dict[str, Conversion]:
    """Write every array of a .npz file into the store ``NAME.zr`` of a folder.

    All new stores are built in a partial folder and put in their places at the end. Whatever goes wrong before then,
    the folder is as it was: records appended to its stores are deleted again.

    Parameters
    ----------
    archive : Path
        The .npz file.
    folder : Path
        The folder; it may exist with `Settings.append` (arrays without a store get one) and with `Settings.force`
        (stores of other names stay).
    settings : Settings
        How to write.
    verified : bool
        Whether to read everything back and compare.
    bar : bool, default False
        Whether to show progress, where stderr is a terminal.

    Returns
    -------
    dict of str to Conversion
        By array name, in the order of the file.

    Raises
    ------
    CommandError
        For what the arrays are called or hold, and for what stands in the way of their stores.
    MismatchError
        As `loaderx.commands.conversion.verify` raises it.
    LoaderxError
    """
    check_destination(folder, settings)
    _check_folder(folder)
    with NpzFile(archive) as npz:
        members = npz.members
        paths = {name: folder / f"{name}.zr" for name in members}
        for name, member in members.items():
            _check_place(member, paths[name], settings)
        appended = [name for name in members if settings.append and (paths[name] / META).exists()]
        built = dataclasses.replace(settings, append=False, force=False)
        conversions: dict[str, Conversion] = {}
        # A locked partial folder beside the new folder, or within the one that exists.
        with Staging(folder / _SCRATCH if os.path.lexists(folder) else folder) as staging:
            built_in = staging.path / _STORES
            files.make_directory(built_in)
            with _taken_back_on_failure([paths[name] for name in appended]):
                for name, member in members.items():
                    if name in appended:
                        conversions[name] = convert_source(member, paths[name], settings, bar=bar)
                    else:
                        conversion = convert_source(member, built_in / f"{name}.zr", built, bar=bar)
                        conversions[name] = dataclasses.replace(conversion, path=paths[name])
                    member.close()
                _put_in_places(built_in, folder)
            files.remove_tree(staging.path)  # with the stores that were replaced
        if verified:
            for name, member in members.items():
                verify(member, conversions[name], threads=settings.threads, bar=bar)
                member.close()
    return conversions


def _check_folder(folder: Path) -> None:
    if os.path.lexists(folder) and not folder.is_dir():
        raise CommandError(f"{folder} is not a folder; a .npz file becomes a folder of stores")
    if (folder / META).is_file():  # an array may be called "meta", and its store is a folder of this name
        raise CommandError(f"{folder} is a store; a .npz file becomes a folder of stores")


def _check_place(member: NpzMember, path: Path, settings: Settings) -> None:
    """Check what stands at the place of one array's store before anything is written."""
    check_store_or_nothing(path)
    if settings.force and path.exists():
        others = foreign_files(path)
        if others:
            raise NotAStoreError(f"{path}: not replaced, because it also holds {others[0]}", store=path)
    if settings.append and (path / META).exists():
        schema = read_schema(path)
        if (schema.kind, schema.dtype, schema.shape) != ("fixed", member.dtype, member.shape[1:]):
            raise SchemaError(
                f"{path}: holds {schema}, got records of {member.dtype} {member.shape[1:]}", path=path
            )


@contextlib.contextmanager
def _taken_back_on_failure(paths: list[Path]) -> Iterator[None]:
    """Delete what the block appended to these stores when it fails."""
    before = []
    for path in paths:
        with Zrecord(path, mode="r") as store:
            before.append((path, store.stats()))
    try:
        yield
    except BaseException as error:
        kept = [path for path, stats in before if not _take_back(path, stats)]
        if kept:
            raise CommandError(
                f"{error}; and what was appended to {', '.join(map(str, kept))} could not be deleted again"
            ) from error
        raise


def _take_back(path: Path, stats: dict[str, Any]) -> bool:
    """Delete the records behind those that `stats` counted; False where that fails."""
    try:
        with Zrecord(path) as store:
            if len(store) > stats["records"]:
                store.delete(range(stats["records"], len(store)))
                if not stats["reclaimable"]:
                    store.compact()  # nothing has to move: it only cuts off what was appended
    except LoaderxError:
        return False
    return True


def _put_in_places(staged: Path, folder: Path) -> None:
    """Make a folder of stores the new folder; or, where there is one, move them into it.

    They take the places of the stores that are there, in exchange. On failure all are moved back.
    """
    files.sync_directory(staged)
    if not folder.exists():
        files.rename(staged, folder)
        files.sync_directory(folder.parent)
        return
    plan = [(source, folder / source.name, os.stat(source).st_ino) for source in sorted(staged.iterdir())]
    try:
        for source, target, _ in plan:
            if target.exists():
                _exchange(source, target)
            else:
                files.rename(source, target)
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
