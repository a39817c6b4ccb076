"""A session of ours is killed, another program changes the store, the machine may start anew: nobody loses anything.

The other program, loaderx 0.7.3 or what acts as it would, knows nothing of our mark, sums and journal. What it saw and
what it changed is what must be there: none of its records cut off as if they had been lost with the power, none called
damaged, none changed by a journal of ours that is older.
"""

from __future__ import annotations

import random
import shutil
import struct
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

import pytest

import loaderx
from loaderx import Zrecord
from tests.oracle import OracleStore, swap_delete
from tests.proofs.cutting import difference
from tests.proofs.door import Operation, die_at, in_child, in_children, record
from tests.proofs.foreign import Foreign
from tests.proofs.report import ForeignRow, Report
from tests.proofs.scenarios import (
    Scenario,
    State,
    append_one,
    make_records,
    read_records,
    read_state,
    scenarios,
)
from tests.proofs.sparse import copy_tree, fingerprint

#: What the other program does: "append" some, "delete" that many from somewhere, "pop" the last, "clear", "compact".
Step = tuple[str, int]

TURNS: dict[str, tuple[Step, ...]] = {
    "nothing": (),
    "append": (("append", 3),),
    "delete": (("delete", 2),),
    "delete the last": (("pop", 1),),
    "compact": (("compact", 0),),
    "delete the last, append": (("pop", 1), ("append", 1)),
    "delete, compact, append": (("delete", 1), ("compact", 0), ("append", 2)),
    "delete the last, compact, append": (("pop", 1), ("compact", 0), ("append", 1)),
    "delete the last, compact, append many": (("pop", 2), ("compact", 0), ("append", 4)),
    "delete all, compact, append": (("clear", 0), ("compact", 0), ("append", 5)),
    "append, delete the last": (("append", 2), ("pop", 2)),
    "append many, delete the last": (("append", 3), ("pop", 1)),
    "append, compact": (("append", 1), ("compact", 0)),
}

THEIRS = make_records(7, 40, 1, 120)
#: As long as each of a scenario's own: then a record of theirs can take the very place of one of ours.
THEIRS_EQUAL = make_records(8, 40, 96, 96)


class Writer(Protocol):
    """What both other programs can do."""

    def append(self, records: Sequence[bytes]) -> None: ...
    def delete(self, indices: Sequence[int]) -> None: ...
    def compact(self) -> None: ...


class Peer:
    """loaderx 0.7.3 itself."""

    def __init__(self, driver: Any, path: Path) -> None:
        self._driver, self._path = driver, path

    def append(self, records: Sequence[bytes]) -> None:
        self._driver.store(self._path, ("append", list(records)), codec="raw")

    def delete(self, indices: Sequence[int]) -> None:
        self._driver.store(self._path, ("delete", list(indices)), codec="raw")

    def compact(self) -> None:
        self._driver.store(self._path, ("compact",), codec="raw")


#: A record as the other program saw it, and as it should be: half-moved by a compaction of ours, the two may differ.
Seen = tuple[bytes, bytes]


def take_turn(
    writer: Writer, steps: Sequence[Step], held: list[Seen], theirs: Sequence[bytes], rng: random.Random
) -> list[Seen]:
    """Have the other program take its steps, and return what the store holds then as far as it knows."""
    for name, n in steps:
        if name == "append":
            new = rng.sample(theirs, n)
            writer.append(new)
            held = [*held, *zip(new, new, strict=True)]
        elif name == "compact":
            writer.compact()
        else:
            n = min(n, len(held))
            every = list(range(len(held)))
            indices = {"pop": every[len(held) - n :], "clear": every, "delete": rng.sample(every, n)}[name]
            if indices:
                writer.delete(indices)
            held = swap_delete(held, indices)
    return held


@dataclass(frozen=True)
class Killed:
    """A store as a killed session left it."""

    scenario: Scenario
    number: int
    operation: Operation
    root: Path
    held: list[Seen]


@dataclass(frozen=True)
class Case:
    """A store that another program has had since.

    `changed` where it did change it. `same_mark` where length and tail are then what our sums were made for: it took
    records away, and put others of the very same size in their place. What it wrote cannot be told from damage to what
    was there; it reads well, but is not asked for sums.
    """

    what: str
    scenario: Scenario
    root: Path
    held: list[Seen]
    changed: bool
    same_mark: bool


def killed_sessions(scenario: Scenario, folder: Path) -> Iterator[Killed]:
    """Iterate over the stores that a scenario leaves, killed at each operation in turn."""
    scenario = replace(scenario, boot_ids=("boot 1", "boot 1"))
    start, root = folder / "start", folder / "killed"
    in_child(lambda: scenario.begin(start))
    copy_tree(start, root)
    log = [step for step in record(scenario.run, root) if isinstance(step, Operation)]
    shutil.rmtree(root)
    for number, operation in enumerate(log):
        copy_tree(start, root)
        assert die_at(scenario.run, root, number).killed
        seen = OracleStore(root / scenario.store).records()
        compacts = len(set(scenario.states)) == 1
        whole = scenario.states[0].records if compacts else seen
        yield Killed(scenario, number, operation, root, list(zip(seen, whole or (), strict=True)))
        shutil.rmtree(root)


def check_everywhere(
    names: Sequence[str],
    folder: Path,
    make_writer: Callable[[Path], Writer],
    check: Callable[[Case], None],
    turns: dict[str, tuple[Step, ...]],
    every: int,
) -> tuple[int, list[str]]:
    """Take every turn after every cut of some scenarios, with and without a new start of the machine.

    Where `every` is more than 1, each cut has that part of the turns only, the next one others.
    """
    cases: list[Case] = []
    by_name = {scenario.name: scenario for scenario in scenarios("ci")}
    for name in names:
        theirs = THEIRS_EQUAL if "equal" in name else THEIRS
        for killed in killed_sessions(by_name[name], folder):
            for at, (turn, steps) in enumerate(turns.items()):
                if (at - killed.number) % every:
                    continue
                root = folder / f"{killed.number}-{at}"
                copy_tree(killed.root, root)
                writer = make_writer(root / killed.scenario.store)
                held = take_turn(writer, steps, killed.held, theirs, random.Random(turn))
                changed = fingerprint(root) != fingerprint(killed.root)
                same_mark = changed and _has_mark_of_sums(root / killed.scenario.store)
                for boot in ("boot 1", "boot 2"):
                    what = f"{name}, killed before operation {killed.number} ({killed.operation}); then: {turn}; {boot}"
                    scenario = replace(killed.scenario, boot_ids=(boot, boot))
                    cases.append(Case(what, scenario, root, held, changed, same_mark))

    def look(case: Case) -> None:
        place = case.root.with_name(f"{case.root.name} {case.scenario.boot_ids}")
        copy_tree(case.root, place)
        check(replace(case, root=place))
        shutil.rmtree(place)

    outcomes = zip(cases, in_children(look, cases), strict=True)
    return len(cases), [f"{case.what}: {problem}" for case, (good, problem) in outcomes if not good]


def _has_mark_of_sums(path: Path) -> bool:
    """Return whether a store's length and tail are those that its sums were made for."""
    _, _, _, chunk, length, offset, _ = struct.unpack("<4sHHIQQI", (path / "sums.zr").read_bytes()[:32])
    store = OracleStore(path)
    return (store.tail_chunk, store.tail_offset, len(store)) == (chunk, offset, length)


def check_mark(case: Case) -> None:
    """Check that a store holds exactly what the other program saw, and that nothing is said against it."""
    scenario, root = case.scenario, case.root
    scenario.arrange(acting=True)
    state = State(tuple(seen for seen, _ in case.held))
    before = fingerprint(root)
    shown = read_state(scenario, root)
    assert fingerprint(root) == before, "mode 'r' has changed files"
    assert shown == state, f"mode 'r' {difference(shown, [state])}"
    if not case.same_mark:
        _check_unaccused(root / scenario.store, state)
    after = append_one(scenario, root, state)
    assert read_state(scenario, root) == after, "what was appended then does not read back"
    if not case.same_mark:
        _check_unaccused(root / scenario.store, after)
    assert OracleStore(root / scenario.store).records() == list(after.records or ())


def _check_unaccused(path: Path, state: State) -> None:
    with Zrecord(path, mode="r", threads=1, verify=True) as store:
        assert read_records(store) == state.records
    report = loaderx.verify(path, threads=1)
    assert report.ok, f"verify finds {report}"


def check_journal(case: Case) -> None:
    """Check that a journal is not carried out over what another program has changed since.

    Carried out beside that, it may give back what the other program saw half-moved.
    """
    scenario, root = case.scenario, case.root
    scenario.arrange(acting=True)
    with warnings.catch_warnings(record=True):
        warnings.simplefilter("always")
        shown = read_state(scenario, root)
        if case.changed:
            seen = State(tuple(seen for seen, _ in case.held))
            records = shown.records or ()
            assert len(records) == len(case.held), f"mode 'r' {difference(shown, [seen])}"
            for record, (as_seen, whole) in zip(records, case.held, strict=True):
                assert record in (as_seen, whole), f"mode 'r' {difference(shown, [seen])}"
        else:
            assert shown in scenario.states, f"mode 'r' {difference(shown, scenario.states)}"
        after = append_one(scenario, root, shown)
    assert read_state(scenario, root) == after, "what was appended then does not read back"
    left = {path.name for path in (root / scenario.store).iterdir()} & {"journal.zr", "mark.zr"}
    assert not left, f"left after a clean close: {left}"
    assert OracleStore(root / scenario.store).records() == list(after.records or ())
    if case.same_mark:
        return
    # A compaction that is left half-way has written over records: those are damaged. A delete has left a record twice.
    good = {record for state in scenario.states for record in state.records or ()} | {*THEIRS, *THEIRS_EQUAL}
    for damage in loaderx.verify(root / scenario.store, threads=1).damaged:
        accused = (after.records or ())[damage.record]
        assert accused not in good or "shares bytes" in damage.problem, f"a good record is accused: {damage}"


def _random_turns(seed: int, n: int) -> dict[str, tuple[Step, ...]]:
    rng = random.Random(seed)
    known = [
        ("append", 1),
        ("append", 3),
        ("delete", 1),
        ("delete", 2),
        ("pop", 1),
        ("pop", 3),
        ("compact", 0),
    ]
    return {f"random {at}": tuple(rng.choices(known, k=rng.randint(3, 8))) for at in range(n)}


#: In size "ci" each cut has a quarter of the turns.
EVERY = {"ci": 4, "full": 1}

SESSIONS = [
    "several appends in a session",
    "append over the end of chunks",
    "sync after each append",
    "append equal records",
]
CHANGES = [
    "delete one",
    "delete several",
    "delete the last and others",
    "compact in several blocks",
    "compact across chunks at once",
    "compact equal records",
]


def _report(report: Report, name: str, n: int, faults: list[str]) -> None:
    report.foreign.append(ForeignRow(name, n, len(faults)))
    assert not faults, f"{len(faults)} of {n} went wrong; the first:\n" + "\n\n".join(faults[:5])


@pytest.mark.parametrize("name", SESSIONS)
def test_after_a_killed_session(
    name: str, size: str, tmp_path: Path, proof_report: Report, proof_seed: int
) -> None:
    turns = TURNS | _random_turns(proof_seed, 2 if size == "ci" else 12)
    chunk_bytes = next(s.chunk_bytes for s in scenarios("ci") if s.name == name) or 1 << 32
    n, faults = check_everywhere(
        [name], tmp_path, lambda path: Foreign(path, chunk_bytes), check_mark, turns, EVERY[size]
    )
    _report(proof_report, name, n, faults)


@pytest.mark.parametrize("name", CHANGES)
def test_after_a_killed_change(
    name: str, size: str, tmp_path: Path, proof_report: Report, proof_seed: int
) -> None:
    turns = TURNS | _random_turns(proof_seed, 2 if size == "ci" else 12)
    chunk_bytes = next(s.chunk_bytes for s in scenarios("ci") if s.name == name) or 1 << 32
    n, faults = check_everywhere(
        [name], tmp_path, lambda path: Foreign(path, chunk_bytes), check_journal, turns, EVERY[size]
    )
    _report(proof_report, name, n, faults)


@pytest.mark.needs_peer
@pytest.mark.parametrize(("name", "check"), [(SESSIONS[0], check_mark), (CHANGES[0], check_journal)])
def test_after_the_peer(
    name: str, check: Any, size: str, tmp_path: Path, proof_report: Report, peer: Any
) -> None:
    few = ["append", "delete", "delete the last, compact, append", "append, compact"]
    turns = TURNS if size == "full" else {turn: TURNS[turn] for turn in few}
    n, faults = check_everywhere([name], tmp_path, lambda path: Peer(peer, path), check, turns, EVERY[size])
    _report(proof_report, f"{name}; the peer itself", n, faults)
