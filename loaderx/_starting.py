"""Ctrl-C while ``python -m loaderx`` is being imported.

``python -m`` imports the package, NumPy with it, before the first line of a command; no ``try`` of ours is around that.
"""

from __future__ import annotations

import os
import signal
import sys
from types import FrameType

#: Exit code for Ctrl-C, as a shell has it: 128 and the number of SIGINT.
INTERRUPTED = 130

_MODULES = ("loaderx", "loaderx.convert")


def is_command() -> bool:
    """Return whether ``python -m`` is looking for a module of ours: until it has found it, argv[0] is "-m"."""
    argv = getattr(sys, "argv", [])
    return argv[:1] == ["-m"] and sys.orig_argv[-len(argv)].removeprefix("-m") in _MODULES


def guard_imports() -> None:
    """Have a Ctrl-C end the process with one line and `INTERRUPTED`, until the command has begun."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _end)


def end_guard() -> None:
    """Have a Ctrl-C be a `KeyboardInterrupt` again: the command has begun, and sees to it."""
    if signal.getsignal(signal.SIGINT) is _end:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _end(_signal_number: int, _frame: FrameType | None) -> None:
    # No exception: an import may turn it into another, or lose it. And there is nothing yet to be cleaned up.
    try:
        os.write(2, b"loaderx: interrupted\n")
    finally:
        os._exit(INTERRUPTED)
