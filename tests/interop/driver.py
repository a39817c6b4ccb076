"""Drive loaderx 0.7.3 in a subprocess.

The subprocess sees only the peer's folder (``python -S`` with ``PYTHONPATH``), never the loaderx under test. It
lives for many requests, since starting one costs more than most of them.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tests.interop.wire import decode, encode

PEER_PROCESS = Path(__file__).with_name("peer_process.py")


class PeerError(Exception):
    """0.7.3 raised; `name`, `message` and `code` are its exception's."""

    def __init__(self, name: str, message: str, code: int | None) -> None:
        super().__init__(f"{name}: {message} (code {code})")
        self.name, self.message, self.code = name, message, code


class PeerDied(Exception):
    """0.7.3's process ended before it answered."""


class Peer073:
    """loaderx 0.7.3, at arm's length.

    Parameters
    ----------
    folder
        Where ``python -m tests.peers`` put it.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._process: subprocess.Popen[str] | None = None
        self._stderr: Any = None

    def _start(self) -> subprocess.Popen[str]:
        environment = {
            name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "LOADERX_"))
        }
        environment["PYTHONPATH"] = str(self.folder)
        if self._stderr is not None:
            self._stderr.close()
        self._stderr = tempfile.TemporaryFile("w+")  # noqa: SIM115 - open as long as the process
        self._process = subprocess.Popen(
            [sys.executable, "-S", str(PEER_PROCESS)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._stderr,
            env=environment,
            text=True,
        )
        version, where = self.ask("hello")
        if version != "0.7.3" or not Path(where).is_relative_to(self.folder):
            raise PeerDied(f"asked for loaderx 0.7.3 in {self.folder}, got {version} in {where}")
        return self._process

    def ask(self, command: str, **arguments: Any) -> Any:
        """Send one request and return its answer.

        Raises
        ------
        PeerError
            0.7.3 raised an exception.
        PeerDied
            0.7.3's process crashed; the next request starts another.
        """
        process = self._process or self._start()
        assert process.stdin is not None and process.stdout is not None
        line = ""
        with contextlib.suppress(BrokenPipeError):
            process.stdin.write(json.dumps([command, encode(arguments)]) + "\n")
            process.stdin.flush()
            line = process.stdout.readline()
        if not line:
            code = self._reap(process)
            self._stderr.seek(0)
            raise PeerDied(f"ended with {code} during {command!r}: {self._stderr.read()[-2000:]}")
        answer = json.loads(line)
        if "error" in answer:
            raise PeerError(*answer["error"])
        return decode(answer["value"])

    def _reap(self, process: subprocess.Popen[str]) -> int:
        assert process.stdin is not None and process.stdout is not None
        self._process = None
        with contextlib.suppress(BrokenPipeError):
            process.stdin.close()
        code = process.wait(timeout=60)
        process.stdout.close()
        return code

    def close(self) -> None:
        """End the process; how it ends says nothing, every store was closed before."""
        if self._process is not None:
            self._reap(self._process)
        if self._stderr is not None:
            self._stderr.close()
            self._stderr = None

    # the operations the tests use

    def store(self, path: Path, *steps: Sequence[Any], codec: str = "zstd") -> list[Any]:
        """Open a Zrecord, run the steps (name, arguments...) and return what each gave."""
        result: list[Any] = self.ask(
            "store", path=str(path), codec=codec, steps=[list(step) for step in steps]
        )
        return result

    def read_store(self, path: Path) -> list[bytes]:
        """Return every record through gather_var."""
        records: list[bytes] = self.store(path, ("read",))[0]
        return records

    def index(self, kind: str, path: Path, *indices: Any) -> list[Any]:
        """Open a Dataset or RaggedDataset and return what each index gives."""
        found: list[Any] = self.ask("array", kind=kind, path=str(path), indices=list(indices))["found"]
        return found

    def padded(
        self, path: Path, indices: Sequence[int], max_len: int | None = None
    ) -> list[np.ndarray[Any, Any]]:
        """Return RaggedDataset.getitems_padded."""
        arrays: list[np.ndarray[Any, Any]] = self.ask(
            "padded", path=str(path), indices=list(indices), max_len=max_len
        )
        return arrays

    def write_dataset(self, path: Path, array: np.ndarray[Any, Any], codec: str) -> int:
        """Call write_dataset."""
        return int(self.ask("write_dataset", path=str(path), array=array, codec=codec))

    def write_ragged(self, path: Path, arrays: Sequence[np.ndarray[Any, Any]], codec: str) -> int:
        """Call write_ragged."""
        return int(self.ask("write_ragged", path=str(path), arrays=list(arrays), codec=codec))
