"""The other end of worker.py: a contender as an object, measured in a process of its own."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from benchmarks.contenders import Contender, NotInstalledError
from benchmarks.neighbour import list_family

ANSWER_LIMIT_S = 300.0
WORKER = Path(__file__).with_name("worker.py")


class WorkerError(Exception):
    """The process of a contender failed at a command or died."""


class ContenderProcess:
    """A running contender. The process waits on a pipe while others are measured.

    One that works ahead by itself is put to sleep meanwhile: `pause`, `running`.

    Parameters
    ----------
    contender : Contender
    bounds_library : Path
        What bounds.c was compiled to.
    peers : Path or None
        A folder with a folder of packages a peer, or a virtual environment where it needs another Python.
    worker : Path
        The script that it runs.

    Raises
    ------
    NotInstalledError
        The contender's package is not there.
    """

    def __init__(
        self, contender: Contender, bounds_library: Path, peers: Path | None, worker: Path = WORKER
    ) -> None:
        self.name = contender.name
        environment = dict(os.environ)
        folder = peers / contender.package if peers else None
        python = folder / "bin" / "python" if folder else None
        if python and python.exists():
            environment.pop("PYTHONPATH", None)
        elif folder and folder.is_dir():
            paths = [str(folder.absolute()), environment.get("PYTHONPATH", "")]
            environment["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
        # -P: the script's own folder, with its module names, does not come first on the path
        interpreter = str(python.absolute()) if python and python.exists() else sys.executable
        command = [interpreter, "-P", str(worker), contender.name, str(bounds_library)]
        # In a group of its own: should this process die, the system ends the groups it leaves that sleep.
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
            process_group=0,
        )
        try:
            self.version = str(self.ask("prepare"))
        except BaseException:
            self.close()
            raise

    @property
    def pid(self) -> int:
        """The process's id."""
        return self._process.pid

    def pause(self) -> None:
        """Put the process and its children to sleep, wherever they are."""
        self._send(signal.SIGSTOP)

    @contextmanager
    def running(self) -> Iterator[None]:
        """Wake a process that sleeps, and put it to sleep again at the end."""
        self._send(signal.SIGCONT)
        try:
            yield
        finally:
            self.pause()

    def _send(self, number: signal.Signals) -> None:
        for pid in list_family(self.pid):
            with contextlib.suppress(ProcessLookupError):  # it has ended meanwhile
                os.kill(pid, number)

    def ask(self, command: str, **values: str | int | float) -> Any:
        """Send a command and wait for its answer; a process that gives none within ANSWER_LIMIT_S is killed.

        Raises
        ------
        NotInstalledError, WorkerError
        """
        if self._process.stdin is None or self._process.stdout is None:
            raise WorkerError(f"{self.name}: no pipe")
        limit = threading.Timer(ANSWER_LIMIT_S, self._process.kill)
        limit.start()
        try:
            self._process.stdin.write(json.dumps({"do": command, **values}) + "\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline()
        except BrokenPipeError:
            line = ""
        finally:
            limit.cancel()
        if not line:
            raise WorkerError(f"{self.name}: the process ended at {command!r}, status {self._process.wait()}")
        answer = json.loads(line)
        if "missing" in answer:
            raise NotInstalledError(answer["missing"])
        if "error" in answer:
            raise WorkerError(f"{self.name}: {command}: {answer['error']}")
        return answer["ok"]

    def close(self) -> None:
        """End the process; its status says nothing (0.7.3 can crash at exit)."""
        self._send(signal.SIGCONT)
        if self._process.stdin:
            self._process.stdin.close()
        try:
            self._process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        if self._process.stdout:
            self._process.stdout.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
