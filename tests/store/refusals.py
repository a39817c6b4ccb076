"""Refusing operations of the one door, as a full or failing disk does."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator

import pytest

from loaderx.store import files


@contextlib.contextmanager
def refusing(
    operation: str, *, after: int = 0, once: bool = False, number: int = errno.ENOSPC
) -> Iterator[list[str]]:
    """Refuse operations of a kind once `after` of them have happened: one, or all that follow.

    Gives the list of all operations seen.
    """
    seen: list[str] = []
    counts = {operation: 0}

    def observe(name: str, *details: object) -> None:
        seen.append(name)
        if name == operation:
            counts[name] += 1
            if counts[name] == after + 1 or (counts[name] > after and not once):
                raise OSError(number, os.strerror(number))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(files, "observe", observe)
        yield seen
