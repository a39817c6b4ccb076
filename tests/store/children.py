"""Running a function in a forked child, where it may lose its rights or its life, and learning what it returned.

`in_child` runs one to its end, `finishes_before` up to one of its operations on files, `other_process` beside the test.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import pickle
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from loaderx import Zrecord
from loaderx.store import files
from tests.store.samples import fill

Pause = Callable[..., None]


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


def finishes_before(number: int, call: Callable[[], Any]) -> bool:
    """Run a call in a child that is killed at its operation `number` on files; return whether it ended before."""
    pid = os.fork()
    if pid == 0:
        seen = itertools.count(1)

        def observe(*_: object) -> None:
            if next(seen) == number:
                os.kill(os.getpid(), signal.SIGKILL)

        try:
            files.observe = observe
            call()
        except BaseException:
            os._exit(1)
        os._exit(0)
    _, status = os.waitpid(pid, 0)
    if os.WIFSIGNALED(status):
        assert os.WTERMSIG(status) == signal.SIGKILL
        return False
    assert os.WEXITSTATUS(status) == 0, "the call failed in the child"
    return True


class OtherProcess:
    """A forked child that runs ``body(pause)``, from one call of `pause` to the next each time it is told to.

    Parameters
    ----------
    body : callable
        Runs in the child. What it gives to `pause`, returns or raises comes out of `wait`.
    """

    def __init__(self, body: Callable[[Pause], Any]) -> None:
        from_child, child_out = os.pipe()
        child_in, self._to_child = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            signal.alarm(120)  # whatever happens to the parent
            os.close(self._to_child)

            def pause(value: Any = None) -> None:
                self._send(child_out, (True, value))
                os.read(child_in, 1)

            try:
                outcome = (True, body(pause))
            except BaseException as error:
                outcome = (False, error)
            self._send(child_out, outcome)
            os._exit(0)
        os.close(child_out)
        os.close(child_in)
        self._answers = os.fdopen(from_child, "rb")
        self._status: int | None = None

    @staticmethod
    def _send(descriptor: int, outcome: tuple[bool, Any]) -> None:
        data = pickle.dumps(outcome)
        while data:
            data = data[os.write(descriptor, data) :]

    def wait(self) -> Any:
        """Return what the child paused with or returned, once it has; raise what it raised."""
        good, value = pickle.load(self._answers)
        if not good:
            raise value
        return value

    def tell(self) -> None:
        """Let the child go on, without waiting for it."""
        os.write(self._to_child, b"x")

    def go(self) -> Any:
        """Let the child go on to its next pause or its end."""
        self.tell()
        return self.wait()

    def kill(self) -> None:
        """End the child with SIGKILL, unless it has ended."""
        if self._status is None:
            os.kill(self.pid, signal.SIGKILL)
            _, self._status = os.waitpid(self.pid, 0)

    def close(self) -> None:
        self.kill()
        self._answers.close()
        os.close(self._to_child)


@contextlib.contextmanager
def other_process(body: Callable[[Pause], Any]) -> Iterator[OtherProcess]:
    """Run a body in a forked child up to its first pause; at the end of the block the child is killed."""
    other = OtherProcess(body)
    try:
        other.wait()
        yield other
    finally:
        other.close()


def hold(path: Path, pause: Pause, *, mode: Any = "a") -> None:
    """Open a store, become its writer where `mode` is "a", and hold it."""
    z = Zrecord(path, "raw", mode=mode)
    if mode == "a":
        fill(z, [b"held"])
    pause(os.getpid())
    z.close()
    pause("closed")
