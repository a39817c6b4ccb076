"""Whether the records of a dataset are what its schema.json says, as far as their lengths tell."""

from __future__ import annotations

import os

import numpy as np
import numpy.typing as npt

from loaderx.arrays.schema import Schema, read_schema
from loaderx.store.format import SCHEMA
from loaderx.store.options import check_path, check_seconds
from loaderx.store.snapshot import open_store
from loaderx.store.table import table_blocks
from loaderx.store.verify import Damage


def check_fits(path: str | os.PathLike[str], *, timeout_s: float = 10.0) -> tuple[Damage, ...]:
    """Find the records of a dataset whose lengths do not fit its schema.json.

    Parameters
    ----------
    path : str or os.PathLike
    timeout_s : float
        How long to wait for a delete or a compaction in another process.

    Returns
    -------
    tuple of Damage
        In order of their indices; none of a store without a schema.json, whose records may have any length.

    Raises
    ------
    SchemaError, MissingDependencyError
        There is a schema.json that is wrong, or that cannot be read here.
    NotAStoreError, FormatVersionError, StoreLockedError, StoreIOError, OptionError, CorruptRecordError

    Notes
    -----
    Reads the table alone: that a record's bytes are as many as its entry says is for `verify`.

    Examples
    --------
    >>> path = tmp_path / "pairs.zr"
    >>> write_dataset(path, np.zeros((2, 2), np.uint8))
    2
    >>> with Zrecord(path) as z:
    ...     z.append(b"one", 1, 3)
    2
    >>> from loaderx.arrays.fitting import check_fits
    >>> [(misfit.record, misfit.problem) for misfit in check_fits(path)]
    [(2, 'it has 3 bytes, and by schema.json a record of uint8 (2,) has 2')]
    """
    store = check_path(path)
    if not os.path.lexists(store / SCHEMA):
        return ()
    schema = read_schema(store)
    snapshot, _ = open_store(store, check_seconds("timeout_s", timeout_s), mapped=True, verify=False)
    found = []
    for first, entries in table_blocks(store, snapshot.table, snapshot.length):
        lengths = entries["logic_length"].astype(np.int64)
        for at in np.flatnonzero(~_fits(schema, lengths)).tolist():
            entry = entries[at]
            problem = f"it has {lengths[at]} bytes, and by {SCHEMA} {_rule(schema)}"
            found.append(Damage(first + at, int(entry["chunk_id"]), int(entry["offset"]), problem))
    return tuple(found)


def _fits(schema: Schema, lengths: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
    if schema.kind == "ragged":
        return np.equal(lengths % schema.item_bytes, 0)
    return np.equal(lengths, schema.item_bytes)


def _rule(schema: Schema) -> str:
    if schema.kind == "ragged":
        return f"a row of {schema.dtype} {schema.shape} has {schema.item_bytes}"
    return f"a record of {schema.dtype} {schema.shape} has {schema.item_bytes}"
