"""Locks of the system on open files. They belong to the open file, not to the process, and die with its last holder."""

from __future__ import annotations

import errno
import fcntl
import time
import warnings

from loaderx.errors import StoreWarning

_WITHOUT_LOCKS = (errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS, errno.EINVAL)

# The longest pause between two looks at a lock that another holds.
_POLL_S = 0.05

_warned = False


def try_lock(descriptor: int, *, shared: bool = False, wait: bool = False) -> bool:
    """Lock an open file or directory; False where another open file holds it and `wait` is False.

    On a file system without locks the answer is True, after one warning a process.
    """
    kind = (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | (0 if wait else fcntl.LOCK_NB)
    try:
        fcntl.flock(descriptor, kind)
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno not in _WITHOUT_LOCKS:
            raise
        _warn_without_locks()
    return True


def lock_within(descriptor: int, timeout_s: float, *, shared: bool = False) -> bool:
    """Lock an open file, waiting up to `timeout_s` seconds for whoever holds it; False where it did not come free."""
    deadline = time.monotonic() + timeout_s
    pause_s = 0.0005
    while not try_lock(descriptor, shared=shared):
        left_s = deadline - time.monotonic()
        if left_s <= 0:
            return False
        time.sleep(min(pause_s, left_s))
        pause_s = min(2 * pause_s, _POLL_S)
    return True


def _warn_without_locks() -> None:
    global _warned
    if _warned:
        return
    _warned = True
    warnings.warn(
        "this file system has no locks (flock): nothing holds two writers of one store apart here, so see to it that "
        "there is one at a time, and no reader during delete and compact",
        StoreWarning,
        stacklevel=3,
    )
