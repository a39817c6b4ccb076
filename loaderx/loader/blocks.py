"""The shared memory of a loader's worker processes: made by the parent, filled by the workers, used again."""

from __future__ import annotations

import os
import tempfile
from collections import deque
from itertools import count

from loaderx._core.lease import Lease, SharedBlock

# So many times are blocks taken between two looks at how many were never needed.
_WINDOW = 64
# A block's file is cut when it is twice as long as its batches have been, and this on top.
_SLACK_BYTES = 1 << 20


class Blocks:
    """Blocks for batches. Each is idle, or a worker's, or lent to whoever has the batch.

    A new one is made only where none is idle, so there are never more than there were batches at once; those that
    nobody needed for a while go. They have no name, so nothing of them outlives the processes that have them open.

    Parameters
    ----------
    most : int
        How many are kept for later batches, and have their file open. A block above that goes with its batch.

    Notes
    -----
    Any number of threads may call it at once. It has no lock: a lease may end, and a loader be closed, wherever the
    garbage collector runs.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._idle: deque[SharedBlock] = deque()
        # All that are kept, lent or not.
        self._kept: set[SharedBlock] = set()
        self._is_closed = False
        self._takes = count(1)
        self._least_idle = 0

    @property
    def n_kept(self) -> int:
        """How many blocks are kept, idle or not."""
        return len(self._kept)

    @property
    def n_idle(self) -> int:
        """How many blocks are idle."""
        return len(self._idle)

    def take(self) -> SharedBlock:
        """Return a block for a worker to fill: the one that came back last.

        Raises
        ------
        OSError
            The system makes no more.
        """
        self._drop_unneeded()
        try:
            return self._idle.pop()
        except IndexError:
            block = SharedBlock(_create_file())
        block.is_kept = len(self._kept) < self._most
        if block.is_kept:
            self._kept.add(block)
        if self._is_closed:  # asked behind the change, for `close` may have come between
            self._forget([block])
        return block

    def give_back(self, block: SharedBlock) -> None:
        """Have a block back that was taken, and not lent."""
        if block.is_kept:
            self._idle.append(block)

    def lend(self, block: SharedBlock, n_bytes: int) -> Lease:
        """Return the first bytes of a block that was taken and filled. It comes back by itself.

        Raises
        ------
        MemoryError
            The system maps no more. The block goes.
        """
        try:
            block.reserve(n_bytes)
        except BaseException:
            self._forget([block])
            raise
        block.peak_bytes = max(n_bytes, block.peak_bytes - block.peak_bytes // 8)
        if not block.is_kept:
            block.close_file()
        elif os.fstat(block.fd).st_size > 2 * block.peak_bytes + _SLACK_BYTES:
            os.ftruncate(block.fd, n_bytes)
        return Lease(block, n_bytes, self._idle)

    def close(self) -> None:
        """Let go of every block; one that is lent goes when its batch does."""
        self._is_closed = True
        self._forget(list(self._kept))
        self._idle.clear()

    def forget_lent(self) -> list[SharedBlock]:
        """Never fill the blocks again that are not idle now, and return them: a child to be forked has their memory."""
        idle = set(self._idle)
        lent = [block for block in list(self._kept) if block not in idle]
        self._forget(lent)
        return lent

    def _drop_unneeded(self) -> None:
        self._least_idle = min(self._least_idle, len(self._idle))
        if next(self._takes) % _WINDOW:
            return
        for _ in range(self._least_idle):
            try:
                self._forget([self._idle.popleft()])
            except IndexError:
                break
        self._least_idle = len(self._idle)

    def _forget(self, blocks: list[SharedBlock]) -> None:
        for block in blocks:
            block.is_kept = False
            self._kept.discard(block)


def _create_file() -> int:
    """Return the descriptor of a new file without a name, in memory where the system has such."""
    if hasattr(os, "memfd_create"):
        return os.memfd_create("loaderx")  # not inherited
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())
