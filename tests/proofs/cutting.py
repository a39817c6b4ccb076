"""Every operation, every cut: a writer dies at each operation in turn, and the store must have lost nothing.

Killing a process loses nothing of what it has written (`power` is about the machine), so what must be there is exact:
the state of the last call that returned, or that of the call that was running.
"""

from __future__ import annotations

import itertools
import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import loaderx
from tests.oracle import OracleStore
from tests.proofs.door import Operation, Reached, die_at, in_child, in_children, record, torn_bytes
from tests.proofs.scenarios import Scenario, State, read_state
from tests.proofs.sparse import copy_tree, fingerprint

#: Beside a store's records, and whether it has them for certain: what a clean close leaves, and nothing else.
FILES_BESIDE = {"sums.zr", "lock.zr"}


@dataclass(frozen=True)
class Cuts:
    """What was cut, and what was found wrong."""

    operations: int
    torn: int
    faults: list[str]


def cut_everywhere(scenario: Scenario, folder: Path) -> Cuts:
    """Die at each operation of a scenario, and at the half of each write that has halves, and check what is left.

    Parameters
    ----------
    scenario : Scenario
    folder : pathlib.Path
        An empty directory to work in.
    """
    start, root = folder / "start", folder / "root"
    in_child(lambda: scenario.begin(start))
    begun = max((step.state for step in scenario.interrupt(start) if isinstance(step, Reached)), default=0)
    copy_tree(start, root)
    log = [step for step in record(scenario.run, root) if isinstance(step, Operation)]
    dictionaries = {_dictionary(start, scenario), _dictionary(root, scenario)}
    shutil.rmtree(root)
    states = states_from(scenario, start)
    if scenario.adds is not None:
        begun = 0

    def cut(case: tuple[int, bool]) -> None:
        number, torn = case
        place = folder / f"cut-{number}{'-torn' * torn}"
        copy_tree(start, place)
        death = die_at(scenario.run, place, number, torn=torn)
        assert death.killed, f"not killed there: the operations are not the same each time. {death.error}"
        reached = max(begun, death.state)
        _check(scenario, place, states[reached : reached + 2], dictionaries)
        shutil.rmtree(place)

    cases = [
        (number, torn)
        for number, operation in enumerate(log)
        for torn in (False, True)
        if not torn or torn_bytes(operation)
    ]
    faults = []
    for (number, torn), (good, problem) in zip(cases, in_children(cut, cases), strict=True):
        if not good:
            when = "half-way through" if torn else "before"
            faults.append(f"cut {number} of {len(log)}, {when} {log[number]}: {problem}")
    return Cuts(len(log), len(cases) - len(log), faults)


def _check(scenario: Scenario, root: Path, allowed: Sequence[State], dictionaries: set[bytes | None]) -> None:
    """Check a store that a killed writer left: reading, writing, and what is there after a clean close."""
    scenario.arrange(acting=True)
    before = fingerprint(root)
    shown = read_state(scenario, root)
    assert fingerprint(root) == before, "mode 'r' has changed files"
    assert shown in allowed, difference(shown, allowed)
    assert _dictionary(root, scenario) in dictionaries, "dict.zr is neither the old nor the new one"
    after = scenario.finish(scenario, root, shown)
    assert read_state(scenario, root) == after, "what was written after the cut does not read back"
    check_good(root / scenario.store, after)
    check_names(root, scenario, after)


def difference(shown: State, allowed: Sequence[State]) -> str:
    """Say how a state differs from each that was allowed."""
    lines = []
    for state in allowed:
        pairs = enumerate(itertools.zip_longest(shown.records or (), state.records or ()))
        wrong = [str(at) for at, (here, there) in pairs if here != there]
        lines.append(f"{state} (wrong: {', '.join(wrong[:8]) or 'not a record'})")
    return f"shows {shown}, not {' or '.join(lines)}"


def states_from(scenario: Scenario, start: Path) -> tuple[State, ...]:
    """Return what a scenario's act, begun there, leads through: the state at the start, and each that it commits."""
    if scenario.adds is None:
        return scenario.states

    def read() -> State:
        scenario.arrange(acting=True)
        return read_state(scenario, start)

    shown: State = in_child(read)
    assert shown in scenario.states, difference(shown, scenario.states)
    if not scenario.adds:
        return (shown,)
    return shown, replace(shown, records=(*(shown.records or ()), *scenario.adds))


def check_good(path: Path, state: State) -> None:
    """Check a store that was closed by the library's own means, and by those of another program."""
    report = loaderx.verify(path, threads=1)
    assert report.ok and report.recovery is None, f"verify finds {report}"
    assert report.unchecked == 0, f"{report.unchecked} of {report.records} records have lost their sums"
    other = OracleStore(path)
    assert other.records() == list(state.records or ()), "another program reads other records"


def check_names(root: Path, scenario: Scenario, state: State) -> None:
    """Check that a closed store's directory holds what it must, the files of others, and nothing else."""
    store = root / scenario.store
    n_chunks = OracleStore(store).tail_chunk + 1
    files = {"meta.zr", *(f"{chunk}.zr" for chunk in range(n_chunks))}
    files |= {"dict.zr"} if state.has_dictionary else set()
    files |= {"schema.json"} if scenario.kind != "records" else set()
    expected = {os.path.join(scenario.store, name) for name in files} | set(scenario.others)
    found = {str(path.relative_to(root)) for path in root.rglob("*") if not path.is_dir()}
    missing = expected - found
    left = found - expected - {os.path.join(scenario.store, name) for name in FILES_BESIDE}
    folders = {str(path.relative_to(root)) for path in root.rglob("*") if path.is_dir()}
    left |= folders - {str(parent) for name in expected for parent in Path(name).parents}
    assert not missing and not left, (
        f"after a clean close: missing {sorted(missing)}, left over {sorted(left)}"
    )


def _dictionary(root: Path, scenario: Scenario) -> bytes | None:
    path = root / scenario.store / "dict.zr"
    return path.read_bytes() if path.exists() else None
