"""Running a function in a forked child, where it may lose its rights or its life, and learning what it returned."""

from __future__ import annotations

import os
import pickle
import signal
from collections.abc import Callable
from typing import Any


def in_child(call: Callable[[], Any], *, uid: int | None = None, timeout_s: int = 30) -> Any:
    """Return what `call` returns, or raise what it raises, in a forked child; `uid` is the user it runs as.

    A child that hangs is killed by its own alarm, and is an error here.
    """
    read_end, write_end = os.pipe()
    pid = os.fork()
    if pid == 0:
        signal.alarm(timeout_s)
        try:
            if uid is not None:
                os.setresgid(uid, uid, uid)
                os.setresuid(uid, uid, uid)
            outcome: tuple[bool, Any] = (True, call())
        except BaseException as error:
            outcome = (False, error)
        try:
            data = pickle.dumps(outcome)
        except Exception:  # not every exception can be sent
            data = pickle.dumps((False, RuntimeError(repr(outcome[1]))))
        with os.fdopen(write_end, "wb") as stream:
            stream.write(data)
        os._exit(0)
    os.close(write_end)
    with os.fdopen(read_end, "rb") as stream:
        data = stream.read()
    _, status = os.waitpid(pid, 0)
    if os.WIFSIGNALED(status):
        raise RuntimeError(f"the child died of signal {os.WTERMSIG(status)}")
    returned, value = pickle.loads(data)
    if not returned:
        raise value
    return value
