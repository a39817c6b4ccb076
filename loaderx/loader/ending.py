"""The end of loaders: of each by itself, and of all when the interpreter ends."""

from __future__ import annotations

import atexit
import time
from collections.abc import Collection
from typing import Protocol

from loaderx.loader.threads import PATIENCE_S, Task


class Stoppable(Protocol):
    """What has threads that are to be ended, such as `ThreadWorkers`."""

    def stop(self) -> None:
        """Have them end. Never waits, and may be called again."""

    def join(self, deadline: float) -> None:
        """Wait for them until a time of `time.monotonic`."""


class Ending:
    """What ends a loader, and knows nothing of it.

    Parameters
    ----------
    pending : collection of Task
        The loader's own.

    Attributes
    ----------
    is_begun : bool
        The loader is closed.
    workers : Stoppable or None
        Set by the loader, once it has some.
    """

    def __init__(self, pending: Collection[Task]) -> None:
        self._pending = pending
        self._workers: Stoppable | None = None
        self.is_begun = False

    @property
    def workers(self) -> Stoppable | None:
        """The loader's workers, which are ended when the interpreter ends, too."""
        return self._workers

    @workers.setter
    def workers(self, workers: Stoppable) -> None:
        _unended.add(self)
        self._workers = workers

    def begin(self) -> None:
        """Drop what is pending, wake who waits for it, and have the workers end. Never waits."""
        self.is_begun = True
        for task in list(self._pending):
            task.drop()
            task.ring()
        if self._workers is not None:
            self._workers.stop()

    def end(self) -> None:
        """Begin, and wait for the workers for a moment. Where Ctrl-C cuts it short, another call ends what is left."""
        self.begin()
        self.wait(time.monotonic() + PATIENCE_S)

    def wait(self, deadline: float) -> None:
        """Wait for the workers."""
        if self._workers is not None:
            self._workers.join(deadline)
        _unended.discard(self)


_unended: set[Ending] = set()


@atexit.register
def _end_all() -> None:
    """End every loader that was left open. They all have the time of one."""
    endings = list(_unended)
    for ending in endings:
        ending.begin()
    deadline = time.monotonic() + PATIENCE_S
    for ending in endings:
        ending.wait(deadline)
