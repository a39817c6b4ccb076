"""Packing: cut off of a store's files what no record needs, so that a tool that knows no holes moves its bytes only.

Every step cuts behind the last record of a file, or removes a file in which no record is. So whatever stops it leaves
the same records, and a store between the two sizes, which is as good as either.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from loaderx._core.maps import FileMap
from loaderx.store import files
from loaderx.store.create import is_partial
from loaderx.store.format import (
    LOCK,
    META,
    META_BYTES,
    NARROW,
    OWN_FILES,
    SUMS,
    WIDE,
    chunk_number,
    entry_at,
    is_set_aside,
    is_store_file,
)
from loaderx.store.header import Header
from loaderx.store.session import Session
from loaderx.store.sums import sums_bytes
from loaderx.store.table import table_blocks


@dataclass(frozen=True, slots=True)
class SizeChange:
    """What `pack` or `unpack` did to a store's files.

    Attributes
    ----------
    path : pathlib.Path
    resized : tuple of str
        Names of the files that have another size now.
    removed : tuple of str
        Names of the files that killed writers had left, which are gone.
    set_aside : tuple of str
        Names of journals that could not be carried out and were set aside. They stay, and are counted: no record
        needs them, and whoever does not want to look into them removes them.
    bytes_before, bytes_after : int
        The sizes of the store's files, added up. `lock.zr`, which is empty when nobody holds the store, is left out,
        and so are files that are not a store's.
    allocated_before, allocated_after : int
        The bytes that these files take on the disk.
    """

    path: Path
    resized: tuple[str, ...]
    removed: tuple[str, ...]
    set_aside: tuple[str, ...]
    bytes_before: int
    bytes_after: int
    allocated_before: int
    allocated_after: int

    @property
    def changed(self) -> tuple[str, ...]:
        """Names of all files that were resized or removed."""
        return tuple(sorted(self.resized + self.removed))

    def as_dict(self) -> dict[str, Any]:
        """Return it as plain data for JSON."""
        return {
            name: list(value) if isinstance(value, tuple) else value for name, value in asdict(self).items()
        } | {"path": str(self.path)}


def plan_pack(
    header: Header, ends: npt.NDArray[np.int64], sizes: Mapping[str, int]
) -> tuple[dict[str, int], list[int]]:
    """Return which files are longer than their records need, and which chunks have none.

    Parameters
    ----------
    header : Header
    ends : ndarray of int64
        Of each chunk that there can be, the end of its last record in bytes; -1 where no entry names it.
    sizes : mapping of str to int
        The sizes of the store's files in bytes.

    Returns
    -------
    cuts : dict of str to int
        The new size of each file that is cut. A file that is shorter than it might be stays so.
    unused : list of int
        The chunks behind the tail that no entry names, which a killed writer left.

    Examples
    --------
    >>> ends = np.array([30, 12, -1])
    >>> sizes = {"meta.zr": 4096, "sums.zr": 56, "0.zr": 50, "1.zr": 50, "2.zr": 9}
    >>> plan_pack(Header(1, 20, 3), ends, sizes)
    ({'meta.zr': 64, '0.zr': 30, '1.zr': 20}, [2])
    """
    needed = {META: entry_at(header.length), SUMS: sums_bytes(header.length)}
    unused = []
    for name in sizes:
        chunk = chunk_number(name)
        if chunk is None:
            continue
        if chunk > header.tail_chunk and ends[chunk] < 0:
            unused.append(chunk)
        else:
            tail = header.tail_offset if chunk == header.tail_chunk else 0
            needed[name] = max(int(ends[chunk]), tail)
    cuts = {name: needed[name] for name, size in sizes.items() if name in needed and size > needed[name]}
    return cuts, sorted(unused)


def pack_files(store: Path, session: Session) -> SizeChange:
    """Pack a store. The caller is its writer and holds it alone.

    Parameters
    ----------
    store : pathlib.Path
        Named in errors.
    session : Session

    Raises
    ------
    StoreIOError, CorruptRecordError
    """
    header = session.settle()
    before = _own_files(store)
    opened = session.files
    ends = _record_ends(store, opened.table, header.length)
    with files.errors_named(store, "pack it", "every record is there; pack again once the reason is mended"):
        sizes = {name: info.st_size for name, info in before.items()}
        if opened.sums is None:
            sizes.pop(SUMS, None)
        cuts, unused = plan_pack(header, ends, sizes)
        for name, n_bytes in cuts.items():
            chunk = chunk_number(name)
            if chunk is not None:
                files.set_size(opened.chunk(chunk), n_bytes)
            else:
                descriptor = opened.meta if name == META else opened.sums
                assert descriptor is not None, "sums.zr is planned for where it is open"
                files.set_size(descriptor, n_bytes)
        opened.sync_chunks()
        opened.close_chunks(0)
        opened.sync_rows()
        for chunk in unused:
            opened.remove_chunk(chunk)
        for name in OWN_FILES:
            files.sweep_partials(store / name)
        return _change(store, before, tuple(sorted(cuts)))


def unpack_files(store: Path, session: Session) -> SizeChange:
    """Give a store's files the sizes that other programs need. The caller is its writer and holds it alone.

    Parameters
    ----------
    store : pathlib.Path
        Named in errors.
    session : Session

    Raises
    ------
    StoreIOError
    """
    session.settle()
    before = _own_files(store)
    resized: tuple[str, ...] = ()
    with files.errors_named(store, "unpack it", "every record is there"):
        # The table of a wide store is as long as its records need: no other program maps it.
        if session.version is NARROW and os.fstat(session.files.meta).st_size < META_BYTES:
            files.set_size(session.files.meta, META_BYTES)
            resized = (META,)
        session.files.sync_rows()
        return _change(store, before, resized)


def _record_ends(store: Path, table: FileMap, length: int) -> npt.NDArray[np.int64]:
    """Return of each chunk that there can be the end of its last record, empty ones too; -1 where none names it."""
    ends = np.full(WIDE.max_chunks, -1, np.int64)
    for _, entries in table_blocks(store, table, length):
        np.maximum.at(ends, entries["chunk_id"], entries["offset"].astype(np.int64) + entries["phys_length"])
    return ends


def _own_files(store: Path) -> dict[str, os.stat_result]:
    """Return what the system knows of each file of a store but its lock, those that killed writers left among them."""
    with files.errors_named(store, "look at its files"):
        return {
            name: os.stat(store / name)
            for name in os.listdir(store)
            if name != LOCK and (is_store_file(name) or is_partial(name)) and (store / name).is_file()
        }


def _change(store: Path, before: dict[str, os.stat_result], resized: tuple[str, ...]) -> SizeChange:
    """Return what has become of the files that there were before; that some are gone has reached the disk."""
    after = _own_files(store)
    removed = tuple(sorted(before.keys() - after.keys()))
    if removed:
        files.sync_directory(store)
    return SizeChange(
        store,
        resized,
        removed,
        tuple(sorted(filter(is_set_aside, after))),
        sum(info.st_size for info in before.values()),
        sum(info.st_size for info in after.values()),
        *(512 * sum(info.st_blocks for info in infos.values()) for infos in (before, after)),
    )
