"""Drawing indices, call by call, as a loader does it.

- **Contenders.** `Sampler.next`, and `indices` with `out=`, beside ``Generator.integers`` of NumPy's `default_rng` with
  ``dtype=uint64``, and the samplers of loaderx 0.7.3 and 2.8.19. All but `out=` and 2.8.19, which lends one array again
  and again, return a fresh array each time.
- **Lengths.** 1,000,000; 1,048,577, just above a power of two; 4,294,967,297, beyond 32 bits. Cyclic draws are compared
  at full batches, the remainder dropped.
- **Kernels.** Batches of 8,192 with each kernel that works here.
- **Turns.** Each contender in a process of its own, in turn, each for the same time; the number of a turn is the median
  over chunks of calls of about a millisecond. As in the benchmark of checksums a turn is taken again where other
  programs ran meanwhile, and a ratio is taken within a round; its median over the rounds is given.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Self

from benchmarks.environment import describe_environment
from benchmarks.options import add_peers_argument, add_result_arguments, are_too_few, report
from benchmarks.results import Result, Table
from benchmarks.turns import Size, measure_rows

WORKER = Path(__file__).with_name("sampler_worker.py")
OWN, OUT, NUMPY = "loaderx", "loaderx, out=", "default_rng"
WORST = "loaderx, length 1,048,577"
OLDER, NEWER = "loaderx 0.7.3", "loaderx 2.8.19"
HOW = {OWN: "", WORST: "", OUT: "out", NUMPY: "default_rng", OLDER: "0.7.3", NEWER: "2.8.19"}
HINTS = {
    OLDER: "python -m tests.peers DIR, then --peers DIR",
    NEWER: "python3.12 -m venv DIR/loaderx-2.8.19, pip install loaderx==2.8.19 in it, then --peers DIR",
}
LENGTH, WORST_LENGTH, FAR_LENGTH = 10**6, 2**20 + 1, 2**32 + 1
BATCHES = (256, 1024, 8192)
LARGE = BATCHES[-1]
DEFAULT = Size(num_rounds=11, turn_s=0.1)
QUICK = Size(num_rounds=2, turn_s=0.002, redo=False)


class PeerMissingError(Exception):
    """A contender that is not there; the message says why."""


class SamplerProcess:
    """A contender's process. It waits on a pipe, using no processor, while others are measured.

    Raises
    ------
    PeerMissingError
    """

    def __init__(self, name: str, peers: Path | None) -> None:
        self._how = HOW[name]
        python, environment = sys.executable, dict(os.environ)
        if name in HINTS:
            folder = peers / name.replace(" ", "-") if peers else None
            if folder is None or not folder.is_dir():
                raise PeerMissingError("no folder of it")
            if (folder / "bin" / "python").exists():
                python = str(folder / "bin" / "python")
                environment.pop("PYTHONPATH", None)
            else:
                environment["PYTHONPATH"] = str(folder.absolute())
        else:
            paths = [str(WORKER.parents[1]), environment.get("PYTHONPATH", "")]
            environment["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
        self._process = subprocess.Popen(
            [python, "-P", str(WORKER)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
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

    def ask(self, command: str, **values: Any) -> Any:
        """Send a command and wait for its answer."""
        assert self._process.stdin is not None and self._process.stdout is not None
        print(json.dumps({"do": command, "how": self._how, **values}), file=self._process.stdin, flush=True)
        line = self._process.stdout.readline()
        if not line:
            raise PeerMissingError(f"its process ended with status {self._process.wait(10)}")
        answer = json.loads(line)
        if "missing" in answer:
            raise PeerMissingError(answer["missing"])
        return answer["ok"]

    def measure_us(self, seconds: float, length: int, batch: int, mode: str, kernel: str | None) -> float:
        """Take one turn: microseconds a call."""
        values = {"length": length, "batch": batch, "mode": mode, "kernel": kernel, "seconds": seconds}
        return float(self.ask("measure", **values))

    def close(self) -> None:
        """End the process; its status says nothing."""
        self._process.communicate()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@dataclass(frozen=True)
class Kind:
    """A table: its title, what is drawn, and by whom."""

    title: str
    length: int
    batch: int
    mode: str
    names: tuple[str, ...]


KINDS = {
    f"iid_{batch}": Kind(
        f"IID, {batch:,} of {LENGTH:,}", LENGTH, batch, "iid", (OWN, OUT, NUMPY, OLDER, NEWER)
    )
    for batch in BATCHES
} | {
    "iid_far": Kind(f"IID, {LARGE:,} of {FAR_LENGTH:,}", FAR_LENGTH, LARGE, "iid", (OWN, OUT, NUMPY)),
    "cyclic": Kind(
        f"Cyclic, {LARGE:,} of {LENGTH:,}", LENGTH, LARGE, "cyclic", (OWN, OUT, WORST, OLDER, NEWER)
    ),
    "cyclic_256": Kind(f"Cyclic, 256 of {LENGTH:,}", LENGTH, 256, "cyclic", (OWN, OUT, WORST, OLDER, NEWER)),
    "cyclic_far": Kind(f"Cyclic, {LARGE:,} of {FAR_LENGTH:,}", FAR_LENGTH, LARGE, "cyclic", (OWN, OUT)),
}  # fmt: skip


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    add_result_arguments(parser, DEFAULT.num_rounds)
    add_peers_argument(parser)
    parser.add_argument("--quick", action="store_true", help="shows that everything runs, measures nothing")


def run(options: argparse.Namespace) -> int:
    """Run the benchmark, print its tables, and write its result; 2 when an option is wrong."""
    if not options.quick and are_too_few(options.rounds):
        return 2
    size = QUICK if options.quick else Size(num_rounds=options.rounds, turn_s=DEFAULT.turn_s)
    report(options, measure(size, options.peers))
    return 0


def measure(size: Size, peers: Path | None) -> Result:
    """Measure everything."""
    environment = describe_environment()
    missing: dict[str, str] = {}
    running: dict[str, SamplerProcess] = {}
    tables: dict[str, Table] = {}
    with ExitStack() as opened:
        for name in HOW:
            try:
                running[name] = opened.enter_context(SamplerProcess(name, peers))
            except PeerMissingError as error:
                missing[name] = f"not measured ({error}); {HINTS.get(name, 'build this package')}"
        pids = [process.pid for process in running.values()]
        environment |= {name: running[name].version for name in HINTS if name in running}
        for key, kind in KINDS.items():
            calls = {
                name: partial(
                    running[name].measure_us,
                    size.turn_s,
                    WORST_LENGTH if name == WORST else kind.length,
                    kind.batch,
                    kind.mode,
                    None,
                )
                for name in kind.names
                if name in running
            }
            tables[key] = measure_rows(size, kind.title, "us", calls, pids)
        kernels = running[OWN].ask("kernels")
        for key, length, mode in (
            ("iid", LENGTH, "iid"),
            ("cyclic", LENGTH, "cyclic"),
            ("far", FAR_LENGTH, "cyclic"),
        ):
            calls = {
                name: partial(running[OWN].measure_us, size.turn_s, length, LARGE, mode, name)
                for name in kernels
            }
            title = f"{'IID' if mode == 'iid' else 'Cyclic'}, {LARGE:,} of {length:,}, by kernel"
            tables[f"kernels_{key}"] = measure_rows(size, title, "us", calls, pids)
    environment["kernels, the best first"] = ", ".join(kernels)
    return {
        "benchmark": "sampler",
        "settings": {"rounds": size.num_rounds, "seconds a turn": size.turn_s},
        "environment": environment,
        "tables": tables,
        "missing": missing,
    }
