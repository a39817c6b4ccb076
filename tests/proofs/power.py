"""Power loss: after each operation, whatever the disk may hold then must open to a right prefix.

`disk` says what it may hold. The machine starts again (another boot id), and the store must hold all that the last
`sync`, `close`, `delete` or `compact` that returned has covered, and of what came after it a beginning, in order: never
a wrong byte. Of everything that may have reached the disk or not, all combinations are tried where they are few; where
they are many, some that are known to be nasty, and a sample.
"""

from __future__ import annotations

import itertools
import math
import random
import shutil
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from tests.proofs.cutting import check_good, difference, states_from
from tests.proofs.disk import Disk, File, NameChange, Tree, Unsynced, tree_hash, write_tree
from tests.proofs.door import Log, Operation, Reached, in_child, in_children, record
from tests.proofs.scenarios import Scenario, State, read_state, set_boot_id
from tests.proofs.sparse import copy_tree, fingerprint


@dataclass(frozen=True)
class Effort:
    """How many combinations of one moment are tried: all up to `exhaustive`, else the nasty ones and `samples`."""

    exhaustive: int
    samples: int


EFFORTS = {"ci": Effort(exhaustive=24, samples=4), "full": Effort(exhaustive=128, samples=30)}


@dataclass(frozen=True)
class Losses:
    """What was tried, and what was found wrong."""

    operations: int
    crashes: int
    sampled: int
    different: int
    faults: list[str]


@dataclass(frozen=True)
class Crash:
    """A moment, what the disk holds, and the states that it may show: of one of these lists, or between two of it."""

    number: int
    last: str
    lost: str
    key: str
    allowed: list[Sequence[State]]


def lose_power_everywhere(scenario: Scenario, folder: Path, effort: Effort, seed: int) -> Losses:
    """Lose the power after each operation of a scenario, and check what may be left.

    Parameters
    ----------
    scenario : Scenario
    folder : pathlib.Path
        An empty directory to work in.
    effort : Effort
    seed : int
    """
    if scenario.boot_ids is None:
        scenario = replace(scenario, boot_ids=("boot 1", "boot 1"))
    start, root = folder / "start", folder / "root"
    in_child(lambda: scenario.begin(start))
    copy_tree(start, root)
    before = scenario.interrupt(root)
    if scenario.interrupted is not None and scenario.interrupted.damage is not None:
        # The power was lost once already: what there is has survived it.
        before = []
        shutil.rmtree(start)
        copy_tree(root, start)
    states = states_from(scenario, root)
    log = [*before, *record(scenario.run, root)]
    shutil.rmtree(root)
    first = sum(isinstance(step, Operation) for step in before)
    trees: dict[str, Tree] = {}
    sampled = 0
    crashes: list[Crash] = []
    for at, number, last, disk in moments(start, log):
        if number < first:
            continue  # the interrupted act has a scenario of its own
        if scenario.adds is None:
            allowed = [between(states, log[: at + 1])]
        else:
            allowed = [between(states, log[len(before) : at + 1])]
            if at + 1 < len(log):  # nothing that has returned says what of the interrupted act is durable
                allowed.append(between(scenario.states, before))
        unsynced = disk.unsynced()
        few = math.prod(len(operations) + 1 for _, _, operations in unsynced) <= effort.exhaustive
        sampled += 0 if few else effort.samples
        rng = random.Random(f"{seed} {scenario.name} {number}")
        for counts in every(unsynced) if few else nasty(unsynced, disk, rng, effort.samples):
            tree = disk.after(unsynced, counts)
            key = tree_hash(tree)
            trees.setdefault(key, tree)
            lost = describe(unsynced, counts)
            crashes.append(Crash(number, last, lost, key, allowed))
    outcomes = dict(
        zip(
            trees,
            in_children(lambda key: _open(scenario, trees[key], folder / key), list(trees)),
            strict=True,
        )
    )
    faults = []
    failed: set[str] = set()
    for crash in crashes:
        opened, shown = outcomes[crash.key]
        problem = judge(crash, shown) if opened else shown
        if problem is not None and crash.key not in failed:
            failed.add(crash.key)
            faults.append(f"after operation {crash.number}, {crash.last}: lost {crash.lost}: {problem}")
    n_operations = sum(isinstance(step, Operation) for step in log) - first
    return Losses(n_operations, len(crashes), sampled, len(trees), faults)


def moments(start: Path, log: Log) -> Iterator[tuple[int, int, str, Disk]]:
    """Iterate over the moments right before each operation but the first, and at the end.

    Yields
    ------
    at : int
        The log's last step by then.
    number : int
        The last operation's.
    last : str
        What it was.
    disk : Disk
    """
    disk = Disk(start)
    number, last = -1, "the start"
    for at, step in enumerate(log):
        if isinstance(step, Operation):
            disk.apply(step)
            number, last = number + 1, str(step)
        if at + 1 == len(log) or isinstance(log[at + 1], Operation):
            yield at, number, last, disk


def between(states: Sequence[State], log: Log) -> Sequence[State]:
    """Return the states from the one that is durable after a log to the one that was being made."""
    steps = [step for step in log if isinstance(step, Reached)]
    durable = max((step.state for step in steps if step.durable), default=0)
    reached = max((step.state for step in steps), default=0)
    return states[durable : reached + 2]


def every(unsynced: Sequence[Unsynced]) -> Iterator[tuple[int, ...]]:
    """Iterate over all combinations: how many of its operations each unsynced thing has reached the disk with."""
    return itertools.product(*(range(len(operations) + 1) for _, _, operations in unsynced))


def nasty(unsynced: Sequence[Unsynced], disk: Disk, rng: random.Random, samples: int) -> set[tuple[int, ...]]:
    """Return combinations that a store is likely to fall over, and some at random."""
    full = [len(operations) for _, _, operations in unsynced]
    kinds = [kind for kind, _, _ in unsynced]
    files = [_file_of(what) for _, what, _ in unsynced]
    numbers = sorted({operation for _, _, operations in unsynced for operation in operations})
    header = [kind == "sector" and isinstance(what, tuple) and what[1] == 0 for kind, what, _ in unsynced]

    def where(keep: Sequence[bool]) -> tuple[int, ...]:
        return tuple(n if kept else 0 for n, kept in zip(full, keep, strict=True))

    found = {where([False] * len(full)), where([True] * len(full))}
    found.add(where([numbers[-1] in operations for _, _, operations in unsynced]))  # only the last one
    found.add(where([operations != (numbers[0],) for _, _, operations in unsynced]))  # all but the first
    for kind in ("name", "size", "sector"):
        found.add(where([other == kind for other in kinds]))
        found.add(where([other != kind for other in kinds]))
    for node in {id(file): file for file in files if file is not None}.values():
        own = [file is node for file in files]
        names = [kind == "name" for kind in kinds]
        found.add(where([not mine for mine in own]))
        found.add(where(own))
        found.add(where([mine or name for mine, name in zip(own, names, strict=True)]))
        # The first sector alone holds the header.
        first = [mine and head for mine, head in zip(own, header, strict=True)]
        found.add(where(first))
        found.add(where([head or name for head, name in zip(first, names, strict=True)]))
        found.add(where([not head for head in first]))
    for at, kind in enumerate(kinds):
        if kind == "name":
            found.add(where([other != at for other in range(len(full))]))
            found.add(where([other == at for other in range(len(full))]))
    for _ in range(samples):
        likely = rng.choice((0.1, 0.5, 0.9))
        found.add(tuple(n if rng.random() < likely else rng.randint(0, n) for n in full))
    return found


def _file_of(what: object) -> File | None:
    node = what[0] if isinstance(what, tuple) else what
    return node if isinstance(node, File) else None


def describe(unsynced: Sequence[Unsynced], counts: Sequence[int]) -> str:
    """Say which operations have not reached the disk, and where in part."""
    lost, partly = set(), set()
    for (_, what, operations), n in zip(unsynced, counts, strict=True):
        lost.update(operations[n:])
        partly.update(operations[:n])
        if isinstance(what, NameChange):
            partly.discard(what.operation)
    names = [f"{number}{' in part' * (number in partly)}" for number in sorted(lost)]
    return f"operations {', '.join(names)}" if names else "nothing"


def _open(scenario: Scenario, tree: Tree, root: Path) -> State:
    """Read what a disk holds after the machine was started anew, go on with it, and return what it showed."""
    scenario.arrange(acting=True)
    set_boot_id("boot 9")
    write_tree(tree, root)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        before = fingerprint(root)
        shown = read_state(scenario, root)
        assert fingerprint(root) == before, "mode 'r' has changed files"
        after = scenario.finish(scenario, root, shown)
    assert read_state(scenario, root) == after, "what was written after the power loss does not read back"
    check_good(root / scenario.store, after)
    left = {path.name for path in (root / scenario.store).iterdir()} & {"mark.zr", "journal.zr"}
    assert not left, f"left after a clean close: {', '.join(sorted(left))}"
    shutil.rmtree(root)
    return shown


def judge(crash: Crash, shown: State) -> str | None:
    """Return what is wrong with a state that a store shows after a power loss, or None."""
    if any(_is_among(shown, states) for states in crash.allowed):
        return None
    return difference(shown, [state for states in crash.allowed for state in states])


def _is_among(shown: State, states: Sequence[State]) -> bool:
    """Return whether a state is one of these, or on the way from one to the next, which holds more records."""
    if shown in states:
        return True
    for old, new in itertools.pairwise(states):
        if shown.records is None or old.records is None or new.records is None:
            continue
        n = len(shown.records)
        grows = new.records[: len(old.records)] == old.records
        if grows and len(old.records) <= n <= len(new.records) and shown.records == new.records[:n]:
            return True
    return False
