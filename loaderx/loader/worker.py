"""A worker process, as the thread sees it that asks it: started, heard, ended, and seen to where it died."""

from __future__ import annotations

import contextlib
import multiprocessing
import multiprocessing.forkserver
import multiprocessing.process
import multiprocessing.resource_tracker
import os
import pickle
import select
import signal
import socket
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from typing import Any

from loaderx.errors import LoaderError
from loaderx.loader.channel import Channel
from loaderx.loader.remote import Message

#: How long a worker that is told to end may take for it; then, how long one that was sent SIGTERM.
END_S = 0.3
TERMINATE_S = 0.2
#: How long a worker that closed its end of the channel may take to be gone. One that died is gone at once.
DIE_S = 1.0

_CURES = {
    signal.SIGKILL: ": perhaps by the system, because memory ran out",
    signal.SIGSEGV: ": compiled code that it calls crashed",
    signal.SIGBUS: ": compiled code that it calls crashed, or a file was cut that it had mapped",
    signal.SIGABRT: ": compiled code that it calls gave up",
}

# Two that start or look after processes at once would take exit codes from each other.
_processes_lock = threading.Lock()


class Worker:
    """A worker process, as its proxy sees it.

    Parameters
    ----------
    start_method : str
    work : callable
        What the process does, a function of a module. It gets the other end of the channel, a `socket.socket`.
    *arguments
        What `work` gets behind that.

    Raises
    ------
    Exception
        The system starts no more processes, or this one may not have any.
    """

    def __init__(self, start_method: str, work: Callable[..., None], *arguments: Any) -> None:
        context: Any = multiprocessing.get_context(start_method)
        ours, theirs = socket.socketpair()
        self.channel = Channel(ours)
        try:
            with theirs:
                self.process = context.Process(
                    target=work, args=(theirs, *arguments), name="loaderx-worker", daemon=True
                )
                with _processes_lock, _interrupts_blocked(start_method):
                    self.process.start()
        except BaseException:
            self.channel.close()
            raise
        self.pid: int = self.process.pid
        self._end_fd = _open_pidfd(self.pid)
        self._poller = select.poll()
        self._poller.register(self.channel, select.POLLIN)
        self._poller.register(self._sentinel(), select.POLLIN)
        _live[id(self)] = self

    def _sentinel(self) -> int:
        """Return a descriptor that can be read when the process is gone."""
        return int(self.process.sentinel) if self._end_fd is None else self._end_fd

    def hear(self) -> Message:
        """Wait for a message of the worker, which `remote.send` sent; see `receive`."""
        heard: Message = pickle.loads(self.receive())
        return heard

    def receive(self) -> bytes:
        """Wait for a message of the worker, and return it as it was sent.

        Raises
        ------
        EOFError, OSError
            It is gone, or the channel was shut.
        """
        # Not the channel alone: a process that the worker forked may have the other end too.
        ready = [fd for fd, _ in self._poller.poll()]
        if self.channel.fileno() not in ready and self.channel.fileno() not in [
            fd for fd, _ in self._poller.poll(0)
        ]:
            raise EOFError
        message, _ = self.channel.recv()
        return message

    def end(self, patience_s: float) -> int | None:
        """End the process, if need be by force, and return its exit code; None: nobody knows it."""
        self.channel.close()  # which tells the worker
        if not self._is_gone(patience_s):
            self.process.terminate()
            if not self._is_gone(TERMINATE_S):
                self.process.kill()
                self._is_gone(DIE_S)
        # Not closed: multiprocessing, which ends all processes when the interpreter ends, may just be about to join it.
        code = self._exit_code()
        if self._end_fd is not None:
            os.close(self._end_fd)
            self._end_fd = None
        return code

    def _is_gone(self, patience_s: float) -> bool:
        poller = select.poll()
        poller.register(self._sentinel(), select.POLLIN)
        return bool(poller.poll(patience_s * 1000))

    def _exit_code(self) -> int | None:
        deadline = time.monotonic() + END_S
        while True:
            with _processes_lock:
                self.process.join(0.02)
                code: int | None = self.process.exitcode
            # Whoever else looks after this program's children may have been told, and is about to note it.
            if code is not None or time.monotonic() > deadline:
                return code


def check_not_starting() -> None:
    """Raise where this process is a worker process itself, which is importing the main module.

    Raises
    ------
    LoaderError
    """
    if getattr(multiprocessing.current_process(), "_inheriting", False):
        raise LoaderError(
            "this is a worker process, which imports the program's main module to begin, and that module uses worker "
            "processes as it is imported. Guard it: put what the program does into if __name__ == '__main__':"
        )


def _open_pidfd(pid: int) -> int | None:
    try:
        return os.pidfd_open(pid)
    except (AttributeError, OSError):
        return None


@contextlib.contextmanager
def _interrupts_blocked(start_method: str) -> Iterator[None]:
    """Have a process that is started inside leave Ctrl-C alone until it has said that it ignores it.

    A fork server's children inherit what is blocked from the server, which is started here unless somebody else has.
    """
    multiprocessing.resource_tracker.ensure_running()  # or starting it would unblock it again
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        if start_method == "forkserver":
            multiprocessing.forkserver.ensure_running()
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def describe_end(code: int | None) -> str:
    """Return what became of a process of an exit code, as a sentence goes on."""
    if code is None:
        return "ended, nobody knows how"
    if code >= 0:
        return f"ended with exit code {code}"
    with contextlib.suppress(ValueError):
        name = signal.Signals(-code)
        return f"was killed by signal {-code}, {name.name}{_CURES.get(name, '')}"
    return f"was killed by signal {-code}"


def _main_has_file() -> bool:
    """Return whether a worker process can import the main module: not that of a notebook, a prompt or stdin."""
    main = sys.modules.get("__main__")
    return getattr(main, "__spec__", None) is not None or os.path.exists(
        getattr(main, "__file__", None) or ""
    )


def advise_on_main() -> str:
    """Return what to do where a worker process ended while it started."""
    if _main_has_file():
        return "It imports the program's main module anew: put what the program does into if __name__ == '__main__':"
    return (
        "It cannot import the main module of a notebook, a prompt or standard input: run the program from a file, or "
        "use worker_type='thread'"
    )


def say_where_to_define() -> str:
    """Return where a worker process finds functions and classes."""
    if _main_has_file():
        return "define functions and classes in a module, or in the main one above if __name__ == '__main__':"
    return (
        "define functions and classes in a module of their own, for it cannot import the main module of a notebook, a "
        "prompt or standard input; or use worker_type='thread'"
    )


# A child that the program forks has copies of all but the threads: it may not end the workers, nor keep them from
# seeing that their parent is gone.

_live: weakref.WeakValueDictionary[int, Worker] = weakref.WeakValueDictionary()


def _after_fork_in_child() -> None:
    global _processes_lock
    _processes_lock = threading.Lock()
    for worker in [alive for ref in _live.valuerefs() if (alive := ref()) is not None]:
        worker.channel.close_copy()
        # Or multiprocessing would end it when the child ends.
        getattr(multiprocessing.process, "_children", set()).discard(worker.process)


os.register_at_fork(after_in_child=_after_fork_in_child)
