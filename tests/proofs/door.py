"""The operations that pass the one door: recorded, and cut off.

Both happen in a forked child, so that the process of the tests holds no store, no lock, and lives.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import signal
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from loaderx.store import files

#: Names of operations that make a file or a directory, or change its name.
NAME_OPERATIONS = ("create", "mkdir", "rename", "exchange", "unlink", "rmdir")
#: All that `files.observe` is told of. Another name is an operation that the models here know nothing of.
OPERATIONS = ("write", "truncate", "fsync", *NAME_OPERATIONS)


@dataclass(frozen=True)
class Operation:
    """One operation, as it was announced."""

    kind: str
    path: str  # below the root, where it is then
    data: bytes = b""  # to write
    offset: int = 0  # of a write; of a truncate: the new size
    target: str = ""  # of a rename and an exchange

    def __str__(self) -> str:
        what = {"write": f" {len(self.data)} bytes at {self.offset}", "truncate": f" to {self.offset}"}
        return f"{self.kind} {self.path}{what.get(self.kind, '')}{' to ' * bool(self.target)}{self.target}"


@dataclass(frozen=True)
class Reached:
    """A call has returned: the store has come to state number `state`, for the process or for the disk."""

    state: int
    durable: bool


Log = list[Operation | Reached]


@dataclass(frozen=True)
class Death:
    """How a child ended that was to die: what it had done and reported, whether its kill ended it, and if not, why."""

    log: Log
    killed: bool
    error: str

    @property
    def state(self) -> int:
        """The last state whose call had returned."""
        return max((step.state for step in self.log if isinstance(step, Reached)), default=0)


#: Called by a scenario as ``reached(state)`` when a call has returned, ``reached(state, durable=True)`` when what it
#: returned for is on the disk too.
Report = Callable[..., None]
Act = Callable[[Path, Report], None]


class Watch:
    """What is given to `files.observe`: makes an `Operation` of what it is told, and hands it on with its number."""

    def __init__(self, root: Path, call: Callable[[int, Operation, Any], None]) -> None:
        self._root = os.path.realpath(root)
        self._call = call
        self._number = 0

    def __call__(self, kind: str, subject: int | Path, *details: Any) -> None:
        assert kind in OPERATIONS, f"an operation that the proofs do not know: {kind}"
        path = os.readlink(f"/proc/self/fd/{subject}") if isinstance(subject, int) else os.fspath(subject)
        operation = Operation(kind, self._below_root(path))
        if kind == "write":
            operation = Operation(kind, operation.path, bytes(memoryview(details[0]).cast("B")), details[1])
        elif kind == "truncate":
            operation = Operation(kind, operation.path, offset=details[0])
        elif kind in ("rename", "exchange"):
            operation = Operation(kind, operation.path, target=self._below_root(os.fspath(details[0])))
        self._call(self._number, operation, subject)
        self._number += 1

    def _below_root(self, path: str) -> str:
        parent, name = os.path.split(os.path.abspath(path))
        relative = os.path.relpath(os.path.join(os.path.realpath(parent), name), self._root)
        assert not relative.startswith(".."), f"changed outside the scenario's directory: {path}"
        return relative


def in_child(call: Callable[[], Any], timeout_s: int = 60) -> Any:
    """Return what a function returns in a forked child; an error there is an `AssertionError` here.

    No file is made to reach the disk: nobody pulls the plug, and it takes long.
    """
    read_end, write_end = os.pipe()
    pid = os.fork()
    if pid == 0:
        _begin_child(timeout_s)
        try:
            outcome: tuple[bool, Any] = (True, call())
        except AssertionError as error:
            outcome = (False, str(error) or traceback.format_exc())
        except BaseException:
            outcome = (False, traceback.format_exc())
        with os.fdopen(write_end, "wb") as stream:
            pickle.dump(outcome, stream)
        os._exit(0)
    os.close(write_end)
    with os.fdopen(read_end, "rb") as stream:
        data = stream.read()
    _, status = os.waitpid(pid, 0)
    assert status == 0 and data, f"the child ended with status {status}"
    returned, value = pickle.loads(data)
    assert returned, value
    return value


def in_children(call: Callable[[Any], Any], items: Sequence[Any]) -> list[tuple[bool, Any]]:
    """Call a function for each item, in as many forked children as there are cores, and return what came of each.

    Returns
    -------
    list of (bool, Any)
        Whether the call returned, and what; else what went wrong.
    """
    n_children = min(len(os.sched_getaffinity(0)), len(items))
    pipes = []
    for which in range(n_children):
        read_end, write_end = os.pipe()
        pid = os.fork()
        if pid == 0:
            for item in items[which::n_children]:
                _begin_child(120)
                try:
                    outcome: tuple[bool, Any] = (True, call(item))
                except AssertionError as error:
                    outcome = (False, str(error) or traceback.format_exc())
                except BaseException:
                    outcome = (False, traceback.format_exc())
                with os.fdopen(os.dup(write_end), "wb") as stream:
                    pickle.dump(outcome, stream)
            os._exit(0)
        os.close(write_end)
        pipes.append((pid, read_end))
    outcomes: list[tuple[bool, Any]] = [(False, "not tried: the child before died")] * len(items)
    for which, (pid, read_end) in enumerate(pipes):
        found = _read_pickles(read_end)
        _, status = os.waitpid(pid, 0)
        if status:
            found.append((False, f"the child died: status {status}"))
        for at, outcome in enumerate(found):
            outcomes[which + at * n_children] = outcome
    return outcomes


def _read_pickles(read_end: int) -> list[Any]:
    found = []
    with os.fdopen(read_end, "rb") as stream, contextlib.suppress(EOFError):
        while True:
            found.append(pickle.load(stream))
    return found


def _begin_child(timeout_s: int) -> None:
    signal.alarm(timeout_s)  # one that hangs dies, and is an error
    os.fsync = lambda _descriptor: None  # type: ignore[assignment,misc]


def record(act: Act, root: Path) -> Log:
    """Run an act to its end in a child and return its operations and reports, in order."""

    def run() -> Log:
        log: Log = []
        files.observe = Watch(root, lambda _number, operation, _subject: log.append(operation))
        act(root, lambda state, durable=False: log.append(Reached(state, durable)))
        return log

    log: Log = in_child(run)
    return log


def indivisible_bytes(path: str, offset: int) -> int:
    """Return how many bytes at an offset in a file, aligned, are written all or not at all.

    A signal is served, and a write that it ends is torn, at the end of a page; a disk writes whole sectors. So what is
    aligned to its own size, which divides both, is never half-written: the header's fields of 2 and 4 bytes, a table
    entry of 16, a sum of 8, the header of the sums of 32. Everything else may be cut off at any byte.
    """
    name = os.path.basename(path)
    if name == "sums.zr":
        return 32 if offset < 32 else 8
    return 16 if name == "meta.zr" else 1


def torn_bytes(operation: Operation) -> int:
    """Return how many bytes of a write have happened when it is torn half-way; 0 for what cannot be torn."""
    if operation.kind != "write" or len(operation.data) <= 4:
        return 0
    unit = indivisible_bytes(operation.path, operation.offset)
    return max(0, (operation.offset + len(operation.data) // 2) // unit * unit - operation.offset)


def die_at(act: Act, root: Path, number: int, *, torn: bool = False) -> Death:
    """Run an act in a child that kills itself when an operation is announced, or when half of it is written."""
    read_end, write_end = os.pipe()
    pid = os.fork()
    if pid == 0:
        _begin_child(60)

        def send(step: Operation | Reached | str) -> None:
            os.write(write_end, pickle.dumps(step))

        def at_operation(at: int, operation: Operation, subject: Any) -> None:
            if at == number:
                if torn:
                    n_bytes = torn_bytes(operation)
                    os.pwrite(subject, operation.data[:n_bytes], operation.offset)
                os.kill(os.getpid(), signal.SIGKILL)
            send(operation)

        try:
            files.observe = Watch(root, at_operation)
            act(root, lambda state, durable=False: send(Reached(state, durable)))
        except BaseException:
            send(traceback.format_exc())
        os._exit(1)
    os.close(write_end)
    steps = _read_pickles(read_end)
    _, status = os.waitpid(pid, 0)
    killed = os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL
    errors = [step for step in steps if isinstance(step, str)]
    return Death([step for step in steps if not isinstance(step, str)], killed, "".join(errors))
