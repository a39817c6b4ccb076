"""Packing and unpacking a store by its path."""

from __future__ import annotations

import os

from loaderx.store.format import META
from loaderx.store.locks import missing
from loaderx.store.options import check_path
from loaderx.store.pack import SizeChange
from loaderx.store.zrecord import Zrecord


def pack(path: str | os.PathLike[str], *, timeout_s: float = 10.0) -> SizeChange:
    """Cut off of a store's files what no record needs, so that copying, syncing or uploading it moves its bytes only.

    `meta.zr` is otherwise 256 MiB long, and chunk files that loaderx 0.7.3 made are 4 GiB, nearly all of it holes,
    which many tools write out. A packed store reads as before, here and in loaderx 0.7.3, and takes appends here: they
    give `meta.zr` its full size again. loaderx 0.7.3 must not append to it: `unpack` it first.

    Parameters
    ----------
    path : str or os.PathLike
    timeout_s : float
        How long to wait for others who have the store.

    Returns
    -------
    SizeChange
        What was changed, and the bytes before and after.

    Raises
    ------
    NotAStoreError, FormatVersionError, CorruptRecordError, StoreLockedError, StoreIOError, OptionError
        Every record is there.

    Notes
    -----
    Nobody else may have the store open meanwhile. Everything has reached the disk when it returns. Packing a packed
    store changes nothing. What killed writers left is removed. Reads the whole table: 16 bytes a record, 4 MiB of them
    in memory at a time.

    Examples
    --------
    >>> write_dataset(tmp_path / "waves.zr", np.zeros((100, 8)), "raw")
    100
    >>> change = pack(tmp_path / "waves.zr")
    >>> change.resized, change.bytes_before > 1 << 28
    (('meta.zr',), True)
    >>> (tmp_path / "waves.zr" / "meta.zr").stat().st_size
    1616
    >>> pack(tmp_path / "waves.zr").changed
    ()
    """
    with _open(path, timeout_s) as store:
        return store.pack()


def unpack(path: str | os.PathLike[str], *, timeout_s: float = 10.0) -> SizeChange:
    """Give a packed store, or a copy of one, the sizes with which loaderx 0.7.3 may append to it.

    That is the full size of `meta.zr`, sparse. A store of format version 4, which loaderx 0.7.3 cannot read, has no
    such size, and nothing is changed.

    Parameters
    ----------
    path : str or os.PathLike
    timeout_s : float
        How long to wait for others who have the store.

    Returns
    -------
    SizeChange

    Raises
    ------
    NotAStoreError, FormatVersionError, CorruptRecordError, StoreLockedError, StoreIOError, OptionError
        Every record is there.

    Notes
    -----
    Nobody else may have the store open meanwhile. Not needed for anything that is done here: an append to a packed
    store does the same.

    Examples
    --------
    >>> write_dataset(tmp_path / "waves.zr", np.zeros((100, 8)))
    100
    >>> pack(tmp_path / "waves.zr").changed, unpack(tmp_path / "waves.zr").changed
    (('meta.zr',), ('meta.zr',))
    >>> (tmp_path / "waves.zr" / "meta.zr").stat().st_size
    268435472
    """
    with _open(path, timeout_s) as store:
        return store.unpack()


def _open(path: str | os.PathLike[str], timeout_s: float) -> Zrecord:
    """Open a store that is there for changing; never create one."""
    store = check_path(path)
    if not os.path.lexists(store / META):
        raise missing(store)
    return Zrecord(store, io="pread", threads=1, timeout_s=timeout_s)
