"""The first step of every command: what a Ctrl-C meets before the modules of the commands are there.

It imports nothing but what the interpreter has loaded anyway, so that nothing slow runs outside of its guard.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

from loaderx._starting import INTERRUPTED, end_guard


def start(prefix: str, action: Callable[[], int]) -> int:
    """Run `action`, which imports what it needs; turn a Ctrl-C into one line on stderr and exit code 130.

    Once `loaderx.commands.program` is imported, its `guard` handles this and everything else.

    Parameters
    ----------
    prefix : str
        Start of the line, such as ``loaderx convert``.
    action : callable
        Does the work and returns an exit code.

    Returns
    -------
    int
        The exit code.
    """
    try:
        end_guard()
        return action()
    except KeyboardInterrupt:
        print(f"{prefix}: interrupted", file=sys.stderr, flush=True)
        return INTERRUPTED
