"""Work in a forked child, whose end is waited for."""

from __future__ import annotations

import os
import signal
import time
import traceback
from collections.abc import Callable

import pytest

_MOST_S = 20


def in_child(work: Callable[[], object]) -> int:
    """Fork, and return the exit code of a child that does the work: 0, or 1 where it raised."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            work()
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    deadline = time.monotonic() + _MOST_S
    while time.monotonic() < deadline:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.005)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    pytest.fail("the child hangs")
