"""Putting a store's tail behind its records, so that a writer that goes on leaves no gap."""

from __future__ import annotations

from loaderx.store.zrecord import Zrecord


def trim(store: Zrecord) -> None:
    """Let go of what a killed writer left behind the last of a store's records.

    The next record lies where it would if nobody had been killed. Reads the whole table: 16 bytes a record.

    Parameters
    ----------
    store : Zrecord
        Becomes the store's writer.

    Raises
    ------
    StoreLockedError, StoreIOError, ClosedError, OptionError
        Every record is there.

    Notes
    -----
    Waits for running gathers, as `Zrecord.delete`. Everything has reached the disk when it returns.
    """
    with store._changing() as session, store._alone():
        session.trim()
