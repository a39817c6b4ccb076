"""Run stages, as many beside each other as may be, log what they do, count their cases, print the table at the end."""

from __future__ import annotations

import os
import queue
import shlex
import signal
import subprocess
import threading
import time
import traceback
import xml.etree.ElementTree as ElementTree
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

# The longest command of a green run takes some two thirds of this; one that hangs must not take the whole run's time.
COMMAND_TIMEOUT_S = 1500

# Most of a stage waits for one core. A third beside two would have tests wait that measure how long they wait.
MOST_AT_ONCE = min(2, len(os.sched_getaffinity(0)))

# The processes that stages have started and that have not ended, for whoever stops the run.
_running: set[subprocess.Popen[str]] = set()
_running_lock = threading.Lock()
_stopping = threading.Event()


class StageError(Exception):
    """A stage cannot go on."""


@dataclass
class Stage:
    """A named step.

    `needs` are stages that have to have come to their end before it; of the stages that use the same `place` only one
    runs at a time.
    """

    name: str
    run: Callable[[Log], None]
    needs: tuple[str, ...] = ()
    place: str = ""


@dataclass
class Log:
    """What a stage did: its cases, and lines for the table."""

    passed: int = 0
    failed: int = 0
    seconds: float = 0.0
    broken_off: bool = False
    notes: list[str] = field(default_factory=list)

    def check(self, what: str, good: bool, detail: str = "") -> None:
        """Count one case and say how it went."""
        say(f"{'ok  ' if good else 'FAIL'} {what}{': ' + detail if detail else ''}")
        if good:
            self.passed += 1
        else:
            self.failed += 1

    def command(
        self, what: str, command: list[str], *, env: Mapping[str, str], cwd: Path | None = None
    ) -> None:
        """Run a command that is a case of its own; the stage goes on whether it fails or not."""
        code, _ = execute(command, env=env, cwd=cwd)
        self.check(what, code == 0, f"exit code {code}" if code else "")

    def pytest(self, command: list[str], report: Path, *, env: Mapping[str, str], cwd: Path) -> str:
        """Run a command that ends in pytest, count the cases in its JUnit report, return its output."""
        code, output = execute(command, env={**env, "PYTEST_ADDOPTS": f"--junitxml={report}"}, cwd=cwd)
        if not report.is_file():
            raise StageError(f"pytest wrote no report (exit code {code}): {shlex.join(command)}")
        cases, parts = count_cases(report)
        self.passed += cases["passed"]
        self.failed += cases["failed"]
        self.notes += [f"{part}: {count} cases" for part, count in sorted(parts.items())]
        if cases["skipped"]:
            self.notes.append(f"skipped: {cases['skipped']}")
        if code and not cases["failed"]:
            raise StageError(f"pytest ended with exit code {code}")
        if not cases["passed"]:
            raise StageError("pytest ran no test")
        return output


def count_cases(report: Path) -> tuple[Counter[str], Counter[str]]:
    """Return how many cases passed, failed and were skipped, and how many ran in each folder of tests."""
    cases: Counter[str] = Counter()
    parts: Counter[str] = Counter()
    for case in ElementTree.parse(report).iter("testcase"):
        kinds = {child.tag for child in case}
        outcome = "failed" if kinds & {"failure", "error"} else "skipped" if "skipped" in kinds else "passed"
        cases[outcome] += 1
        if outcome != "skipped":
            words = case.get("classname", "").split(".")
            parts["/".join(words[:2]) if words[0] == "tests" else "doctests"] += 1
    return cases, parts


def say(text: str) -> None:
    """Print what the stage that this thread runs has to say, its name before each line: others speak meanwhile."""
    name = threading.current_thread().name
    print("".join(f"{name} | {line}\n" for line in text.splitlines()), end="", flush=True)


def execute(
    command: list[str], *, env: Mapping[str, str] | None = None, cwd: Path | None = None, quiet: bool = False
) -> tuple[int, str]:
    """Run a command without standard input, show what it prints as it comes; return exit code and output."""
    say(f"+ {shlex.join(command)}")
    lines = []
    with _running_lock:
        if _stopping.is_set():
            raise StageError("the run was stopped")
        process = subprocess.Popen(
            command,
            env=None if env is None else dict(env),
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
        )
        _running.add(process)

    def stop() -> None:
        say(f"stopped: it took longer than {COMMAND_TIMEOUT_S} s: {shlex.join(command)}")
        _kill(process)

    timer = threading.Timer(COMMAND_TIMEOUT_S, stop)
    timer.name, timer.daemon = threading.current_thread().name, True
    timer.start()
    with process:
        try:
            assert process.stdout is not None
            for line in process.stdout:
                lines.append(line)
                if not quiet:
                    say(line)
            code = process.wait()
        finally:
            timer.cancel()
            _kill(process)
            with _running_lock:
                _running.discard(process)
    output = "".join(lines)
    if quiet and code:
        say(output)
    return code, output


def _kill(process: subprocess.Popen[str]) -> None:
    """End a process and those that it has started, unless it has ended and been waited for."""
    with _running_lock:
        if process in _running and process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)


def must(
    command: list[str], *, env: Mapping[str, str] | None = None, cwd: Path | None = None, quiet: bool = False
) -> str:
    """Run a command without which the stage makes no sense; return its output."""
    code, output = execute(command, env=env, cwd=cwd, quiet=quiet)
    if code:
        raise StageError(f"exit code {code}: {shlex.join(command)}")
    return output


def run_stages(stages: Iterable[Stage], chosen: set[str]) -> int:
    """Run the stages, print the table and the closing line; return the exit code."""
    listed = list(stages)
    wanted = set(chosen) or {stage.name for stage in listed}
    for stage in reversed(listed):  # a stage needs earlier ones only
        if stage.name in wanted:
            wanted |= set(stage.needs)
    if unknown := wanted - {stage.name for stage in listed}:
        print(f"unknown stages: {', '.join(sorted(unknown))}; there are {', '.join(s.name for s in listed)}")
        return 2
    begun = time.monotonic()
    logs = run_beside([stage for stage in listed if stage.name in wanted])
    print_table(logs, time.monotonic() - begun)
    passed, failed = sum(log.passed for log in logs.values()), sum(log.failed for log in logs.values())
    print(f"{passed} passed, {failed} failed", flush=True)
    return 1 if failed or not passed else 0


def run_beside(stages: Sequence[Stage]) -> dict[str, Log]:
    """Run stages, each in a thread of its name, the first first that may; return their logs in the same order."""
    ended: queue.SimpleQueue[Stage] = queue.SimpleQueue()
    logs: dict[str, Log] = {}
    waiting = list(stages)
    running: dict[str, Stage] = {}
    threads: list[threading.Thread] = []

    def run(stage: Stage) -> None:
        try:
            run_stage(stage, logs)
        finally:
            ended.put(stage)

    def may_start(stage: Stage) -> bool:
        left = {other.name for other in waiting} | running.keys()
        places = {other.place for other in running.values()} - {""}
        return left.isdisjoint(stage.needs) and stage.place not in places

    try:
        while waiting or running:
            while len(running) < MOST_AT_ONCE and (stage := next(filter(may_start, waiting), None)):
                waiting.remove(stage)
                running[stage.name] = stage
                logs[stage.name] = Log()
                threads.append(threading.Thread(target=run, args=(stage,), name=stage.name, daemon=True))
                threads[-1].start()
            del running[ended.get().name]
    finally:
        _stopping.set()
        for process in list(_running):
            _kill(process)
        for thread in threads:
            thread.join(10)
    return {stage.name: logs[stage.name] for stage in stages}


def run_stage(stage: Stage, logs: Mapping[str, Log]) -> None:
    """Run one stage and fill its log; whatever stops it counts as one failed case."""
    say("===== begins =====")
    log = logs[stage.name]
    begun = time.monotonic()
    try:
        if broken := [name for name in stage.needs if logs[name].broken_off]:
            raise StageError(f"not run, because this broke off: {', '.join(broken)}")
        stage.run(log)
    except Exception as error:
        if not isinstance(error, (StageError, OSError)):
            say(traceback.format_exc())
        log.broken_off = True
        log.check(stage.name, False, str(error))
        log.notes.append(str(error))
    log.seconds = time.monotonic() - begun
    say(f"===== ends: {log.passed} passed, {log.failed} failed, {log.seconds:.0f} s =====")


def print_table(logs: Mapping[str, Log], seconds: float) -> None:
    """Print one row a stage: seconds, cases, failures, notes."""
    width = max(map(len, logs), default=5)
    print(f"\n{'stage':<{width}} {'seconds':>8} {'passed':>7} {'failed':>7}")
    for name, log in logs.items():
        print(f"{name:<{width}} {log.seconds:>8.1f} {log.passed:>7} {log.failed:>7}")
        for note in log.notes:
            print(f"{'':<{width}}   {note}")
    print(f"{'total':<{width}} {seconds:>8.1f}")
