"""One .npz file into a folder of stores: all of its arrays, or none."""

from __future__ import annotations

import contextlib
import dataclasses
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from loaderx import NotAStoreError, SchemaError
from loaderx.arrays.schema import read_schema
from loaderx.commands.conversion import (
    Conversion,
    Settings,
    check_store_or_nothing,
    convert_source,
    settle_codec,
    verify,
)
from loaderx.commands.npz_members import NpzFile, NpzMember
from loaderx.commands.program import CommandError, complain, listed
from loaderx.store import files
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
from loaderx.store.staging import Staging

#: New stores are built in a partial folder whose name has this.
_SCRATCH = ".npz"

#: The folder of finished stores within a partial folder.
_STORES = "stores"


def convert_npz(
    archive: Path,
    folder: Path,
    settings: Settings,
    *,
    only: Sequence[str] = (),
    verified: bool,
    bar: bool = False,
) -> dict[str, Conversion]:
    """Write the arrays of a .npz file into the stores ``NAME.zr`` of a folder.

    The stores of a folder belong together, so they are all new, all appended to or all replaced. New ones are built in
    a partial folder and put in their places at the end. Whatever goes wrong before then, the folder is as it was:
    records appended to its stores are deleted again.

    Parameters
    ----------
    archive : Path
        The .npz file.
    folder : Path
        The folder. It may hold stores with `Settings.append`, those of exactly these arrays, and with
        `Settings.force`, none of other arrays.
    settings : Settings
        How to write.
    only : sequence of str, default ()
        Names of the arrays to write; all by default.
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
    stores = _stores_in(folder, settings)
    with NpzFile(archive, only) as npz:
        members = npz.members
        paths = {name: folder / f"{name}.zr" for name in members}
        for name, member in members.items():
            _check_place(member, paths[name], settings)
        names = [path.name for path in paths.values()]
        _check_same_arrays(archive, folder, names, stores, settings, chosen=bool(only))
        _warn_of_lengths(archive, members)
        write = _append if settings.append and stores else _build
        conversions = write(members, folder, paths, settings, bar=bar)
        if verified:
            for name, member in members.items():
                verify(member, conversions[name], threads=settings.threads, bar=bar)
                member.close()
    return conversions


def _warn_of_lengths(archive: Path, members: Mapping[str, NpzMember]) -> None:
    """Say so where the arrays are of different lengths: their records do not go together."""
    lengths = {name: len(member) for name, member in members.items()}
    if len(set(lengths.values())) > 1:
        told = listed([f"{name} {length:,}" for name, length in lengths.items()])
        complain(
            "loaderx convert",
            f"warning: the arrays of {archive} differ in length ({told}), so the records of their stores do not go "
            "together by their indices",
        )


def _append(
    members: Mapping[str, NpzMember],
    folder: Path,
    paths: Mapping[str, Path],
    settings: Settings,
    *,
    bar: bool,
) -> dict[str, Conversion]:
    """Append every array to its store, or none."""
    conversions: dict[str, Conversion] = {}
    with held(folder, _SCRATCH), appended_together(folder, list(paths.values())):
        for name, member in members.items():
            conversions[name] = convert_source(member, paths[name], settings, bar=bar)
            member.close()
    return conversions


def _build(
    members: Mapping[str, NpzMember],
    folder: Path,
    paths: Mapping[str, Path],
    settings: Settings,
    *,
    bar: bool,
) -> dict[str, Conversion]:
    """Make a new store of every array, and put all in their places."""
    conversions = {}
    built = dataclasses.replace(settings, append=False, force=False)
    with Staging(place_to_build(folder, _SCRATCH)) as staging:
        built_in = staging.path / _STORES
        files.make_directory(built_in)
        for name, member in members.items():
            conversion = convert_source(member, built_in / paths[name].name, built, bar=bar)
            conversions[name] = dataclasses.replace(conversion, path=paths[name])
            member.close()
        with held(folder, _SCRATCH) if folder.is_dir() else contextlib.nullcontext():
            put_in_places(built_in, folder, replace=settings.force)
        files.remove_tree(staging.path)  # with the stores that were replaced
    return conversions


def _stores_in(folder: Path, settings: Settings) -> list[str]:
    """List the stores in the folder, after checking that it is a place for the stores of a .npz file.

    Raises
    ------
    CommandError
        If it is not.
    """
    if not os.path.lexists(folder):
        return []
    if not folder.is_dir() or is_store(folder):
        what = "is a store" if folder.is_dir() else "exists and is not a folder"
        raise CommandError(f"{folder} {what}; a .npz file becomes a folder of stores: choose another path")
    stores = find_stores(folder)
    empty = all(is_leftover(name) for name in os.listdir(folder))
    if not stores and not (empty and (settings.append or settings.force)):
        raise CommandError(f"{folder} exists and holds no loaderx stores; choose another path")
    if not (settings.append or settings.force):
        raise CommandError(f"{folder} exists; --append adds records to its stores, --force replaces them")
    return stores


def _check_same_arrays(
    archive: Path,
    folder: Path,
    expected: Sequence[str],
    stores: Sequence[str],
    settings: Settings,
    *,
    chosen: bool,
) -> None:
    """Check that no store of the folder would fall out of step with the others.

    Raises
    ------
    CommandError
        If, of the stores expected and those that are there, some have no counterpart.
    """
    without_array = [str(folder / name) for name in stores if name not in expected]
    without_store = [name for name in expected if name not in stores] if settings.append and stores else []
    differences = []
    if without_store:
        differences.append(f"{folder} has no store {listed(without_store)}")
    if without_array:
        what = "--only names" if chosen else f"{archive} has"
        differences.append(f"{what} no array for {listed(without_array)}")
    if differences and settings.append:
        raise CommandError(
            f"{' and '.join(differences)}; --append adds to every store of a folder, and only to them, so that they "
            "stay in step"
        )
    if differences:
        raise CommandError(
            f"{' and '.join(differences)}, which --force would leave behind beside the new stores; move away or remove "
            "what is left over, or choose another path"
        )


def _check_place(member: NpzMember, path: Path, settings: Settings) -> None:
    """Check what stands at the place of one array's store before anything is written."""
    check_store_or_nothing(path)
    settle_codec(path, settings)
    if settings.force and path.exists():
        others = foreign_files(path)
        if others:
            raise NotAStoreError(f"{path}: not replaced, because it also holds {others[0]}", store=path)
    if settings.append and is_store(path):
        schema = read_schema(path)
        if (schema.kind, schema.dtype, schema.shape) != ("fixed", member.dtype, member.shape[1:]):
            raise SchemaError(
                f"{path}: holds {schema}, got records of {member.dtype} {member.shape[1:]}", path=path
            )
