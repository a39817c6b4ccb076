"""Refusing operations of the one door, as a full or failing disk does."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator

import pytest

from loaderx.store import files


@contextlib.contextmanager
def refusing(operation: str, *, after: int = 0, number: int = errno.ENOSPC) -> Iterator[list[str]]:
    """Refuse every operation of a kind once it has happened `after` times; gives the list of all operations seen."""
    seen: list[str] = []
    counts = {operation: 0}

    def observe(name: str, *details: object) -> None:
        seen.append(name)
        if name == operation:
            counts[name] += 1
            if counts[name] > after:
                raise OSError(number, os.strerror(number))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(files, "observe", observe)
        yield seen
