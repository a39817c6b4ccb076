"""The progress bar of a command."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

from loaderx.commands import program

#: Called with (bytes done, total bytes or None); False for no bar. What `loaderx.write_dataset` takes.
Tick = Callable[[int, int | None], None]


def silent(_done_bytes: int, _total_bytes: int | None) -> None:
    """Show nothing."""


@contextmanager
def byte_bar(title: str, total_bytes: int, *, shown: bool) -> Iterator[Tick]:
    """Show a bar on stderr while the block runs, if `shown` and stderr is a terminal.

    Parameters
    ----------
    title : str
        What is going on, in front of the bar.
    total_bytes : int
        Bytes at the end of the work.
    shown : bool
        False for no bar at all.

    Yields
    ------
    callable
        To be called with (bytes done, total or None).
    """
    with growing_bar(title, total_bytes, shown=shown) as tick:
        yield lambda done_bytes, _total_bytes: tick(done_bytes, total_bytes)


@contextmanager
def growing_bar(title: str, total_bytes: int | None, *, shown: bool) -> Iterator[Tick]:
    """Show a bar whose end is known, about, only while the work goes on: else as `byte_bar`.

    Parameters
    ----------
    title : str
        What is going on, in front of the bar.
    total_bytes : int, optional
        Bytes at the end of the work, as far as that is known.
    shown : bool
        False for no bar at all.

    Yields
    ------
    callable
        To be called with (bytes done, total or None).
    """
    if not (shown and sys.stderr.isatty()):
        yield silent
        return
    from tqdm import tqdm

    with tqdm(
        total=total_bytes,
        desc=program.shown(title),
        unit="iB",
        unit_scale=True,
        unit_divisor=1024,
        leave=False,
        file=sys.stderr,
    ) as bar:

        def tick(done_bytes: int, total_bytes: int | None) -> None:
            if bar.total != total_bytes:
                bar.total = total_bytes
            bar.update(done_bytes - bar.n)

        yield tick


@contextmanager
def late_bar(title: str, *, shown: bool) -> Iterator[Callable[[int, int], None]]:
    """Show a bar from the first report of progress on, which says how many bytes there are.

    Parameters
    ----------
    title : str
        What is going on, in front of the bar.
    shown : bool
        False for no bar at all.

    Yields
    ------
    callable
        To be called with (bytes done, total).
    """
    with ExitStack() as opened:
        tick: Tick | None = None

        def progress(done_bytes: int, total_bytes: int) -> None:
            nonlocal tick
            if tick is None:
                tick = opened.enter_context(byte_bar(title, total_bytes, shown=shown))
            tick(done_bytes, total_bytes)

        yield progress
