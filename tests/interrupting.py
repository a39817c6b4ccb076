"""Something that happens before any chosen line of a part of the package: Ctrl-C, or another thread's doing."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any


class Lines:
    """The lines of the modules of a folder.

    Parameters
    ----------
    folder : Path
    locks : tuple of str
        Statements such as ``with self._lock:``. At the end of such a `with`, before the lock is let go, Python looks
        for no signals: they are passed over.
    """

    def __init__(self, folder: Path, locks: tuple[str, ...]) -> None:
        self._folder = str(folder)
        self._left_out = {
            (str(file), number)
            for file in folder.glob("*.py")
            for number, line in enumerate(file.read_text("utf-8").splitlines(), 1)
            if line.strip() in locks
        }

    @contextlib.contextmanager
    def at(self, number: int, act: Callable[[], object]) -> Iterator[Callable[[], bool]]:
        """Act before the so many-th line that this thread runs of the folder; gives whether it came to that."""
        count = 0

        def trace(frame: FrameType, event: str, arg: object) -> Any:
            nonlocal count
            file = frame.f_code.co_filename
            if not file.startswith(self._folder):
                return None
            if event == "line" and (file, frame.f_lineno) not in self._left_out:
                count += 1
                if count == number:
                    sys.settrace(None)
                    act()
            return trace

        sys.settrace(trace)
        try:
            yield lambda: count >= number
        finally:
            sys.settrace(None)

    def interrupt(self, number: int, call: Callable[[], object]) -> bool:
        """Call something, which Ctrl-C interrupts before the so many-th line; returns whether it came to that."""

        def run() -> Iterator[bool]:
            with self.at(number, interrupt) as came, contextlib.suppress(KeyboardInterrupt):
                call()
            yield came()

        # In a generator: what is raised before the first line of an `except` leaves behind what was being handled, with
        # all that its frames refer to, for as long as the generator lives. Signals do not come there.
        return next(run())


def interrupt() -> None:
    """Be Ctrl-C."""
    raise KeyboardInterrupt


def lines_of(call: Callable[[int], bool]) -> int:
    """Call with 1, 2, ... until the call says that there is no such line; returns how many there were."""
    number = 1
    while call(number):
        number += 1
    return number - 1
