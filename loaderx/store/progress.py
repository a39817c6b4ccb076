"""Telling a person or a program how far a long write is."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from typing import Protocol, TypeAlias

import numpy as np

from loaderx.errors import OptionError

#: None: a bar where standard error is a terminal. Or whether to show one. Or called with (bytes done, bytes in all).
Progress: TypeAlias = "bool | Callable[[int, int | None], object] | None"


class Report(Protocol):
    """Is told the bytes of each part that is done."""

    def __call__(self, part_bytes: int, fraction: float | None = None, /) -> None:
        """Take note of a part; `fraction` is how much is done, where the bytes in all are not known beforehand."""


@contextlib.contextmanager
def reporting(progress: Progress, total_bytes: int | None) -> Iterator[Report]:
    """Give a function to be told the bytes of each part that is done.

    Parameters
    ----------
    progress : bool or callable, optional
    total_bytes : int or None
        Bytes in all, where it is known.

    Raises
    ------
    OptionError
        `progress` is neither.
    """
    if not callable(progress) and not isinstance(progress, bool | np.bool_ | None):
        raise OptionError(
            f"progress is {progress!r}: give True, False, None or a function",
            option="progress",
            value=progress,
        )
    if callable(progress):
        done = 0

        def call(part_bytes: int, fraction: float | None = None, /) -> None:
            nonlocal done
            done += part_bytes
            progress(done, total_bytes if total_bytes is not None else _estimate(done, fraction))

        yield call
    elif progress or (progress is None and sys.stderr is not None and sys.stderr.isatty()):
        from tqdm import tqdm

        with tqdm(total=total_bytes, unit="B", unit_scale=True, unit_divisor=1024, leave=False) as bar:

            def show(part_bytes: int, fraction: float | None = None, /) -> None:
                if total_bytes is None:
                    bar.total = _estimate(bar.n + part_bytes, fraction)
                bar.update(part_bytes)

            yield show
    else:
        yield lambda part_bytes, fraction=None: None


def _estimate(done: int, fraction: float | None) -> int | None:
    """Return about how many bytes there will be in all."""
    return round(done / fraction) if done and fraction else None
