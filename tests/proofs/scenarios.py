"""What is done to a store, and what it must hold before, between and after: the proofs' cases, each once.

A scenario's store lies below a directory of the scenario's own. `prepare` makes the start, `act` does the work and
reports each call that has returned; the states are plain lists of bytes, computed here without the library.
"""

from __future__ import annotations

import io
import itertools
import os
import shutil
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

import numpy as np

from loaderx import Dataset, RaggedDataset, Zrecord, write_dataset, write_ragged
from loaderx.errors import NotAStoreError, StoreWarning
from tests.oracle import ENTRY, ENTRY_BYTES, HEADER_BYTES, swap_delete
from tests.proofs.door import Act, Log, Operation, Reached, Report, die_at, record
from tests.proofs.sparse import copy_tree

STORE = "store.zr"

#: The records of a store in order; None where there is no store.
Records = tuple[bytes, ...] | None


@dataclass(frozen=True)
class State:
    """What a store holds."""

    records: Records
    has_dictionary: bool = False

    def __str__(self) -> str:
        if self.records is None:
            return "no store"
        return f"{len(self.records)} records{' and a dictionary' * self.has_dictionary}"


@dataclass(frozen=True)
class Scenario:
    """A case of the proofs.

    Attributes
    ----------
    name : str
    group : str
        Scenarios of one group are one row of a report; empty: its own.
    prepare : callable
        Makes the start in an empty directory, and closes what it opens.
    interrupted : Interrupted or None
        What is begun then, by a process that dies of it.
    act : callable
        What is recorded and cut off.
    states : tuple of State
        The start, then what each call commits, in order.
    store : str
        Its path below the directory.
    kind : {"records", "fixed", "ragged"}
        What the store is read as.
    finish : callable
        Goes on with a store that was read in a state, as a user would, closes it and returns its state then.
    chunk_bytes, block_bytes, append_bytes : int or None
        A chunk's limit, the stored bytes that a compaction moves at a time, and the bytes that an append compresses at
        a time, where they are not the library's.
    boot_ids : tuple of str or None
        Boot ids of the machine when it prepares and when it acts; None: as it is.
    others : dict
        Files of other programs that stay as they are, by their names below the directory.
    adds : tuple of bytes or None
        Where the act goes on from whatever an interrupted one has left: what it appends to that, maybe nothing. What is
        shown at the start, one of `states`, is then shown for ever after.
    warns : bool
        Whether opening may give a `StoreWarning`, because records were lost with the machine's power.
    """

    name: str
    prepare: Callable[[Path], None]
    act: Act
    states: tuple[State, ...]
    group: str = ""
    interrupted: Interrupted | None = None
    store: str = STORE
    kind: Literal["records", "fixed", "ragged"] = "records"
    finish: Callable[[Scenario, Path, State], State] = field(default=lambda *given: append_one(*given))
    chunk_bytes: int | None = None
    block_bytes: int | None = None
    append_bytes: int | None = None
    boot_ids: tuple[str, str] | None = None
    others: dict[str, bytes] = field(default_factory=dict)
    adds: tuple[bytes, ...] | None = None
    warns: bool = False

    def arrange(self, *, acting: bool) -> None:
        """Set this process up for the scenario. For a child only: nothing is set back."""
        if self.chunk_bytes is not None:
            Zrecord._chunk_bytes = self.chunk_bytes
        if self.block_bytes is not None:
            from loaderx.store import compact

            assert compact._BLOCK_BYTES
            compact._BLOCK_BYTES = self.block_bytes
        if self.append_bytes is not None:
            from loaderx.store import append

            assert append._BLOCK_BYTES
            append._BLOCK_BYTES = self.append_bytes
        if self.warns:
            warnings.simplefilter("ignore", StoreWarning)
        if self.boot_ids is not None:
            set_boot_id(self.boot_ids[acting])

    def run(self, root: Path, reached: Report) -> None:
        """Set this process up, and act. For a child only."""
        self.arrange(acting=True)
        self.act(root, reached)

    def begin(self, root: Path) -> None:
        """Make the start in a new directory, up to what is interrupted. For a child only."""
        self.arrange(acting=False)
        root.mkdir()
        for name, content in self.others.items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_bytes(content)
        self.prepare(root)

    def interrupt(self, root: Path) -> Log:
        """Do what is interrupted, and return its log."""
        if self.interrupted is None:
            return []

        def act(root: Path, reached: Report) -> None:
            self.arrange(acting=False)
            interrupted.act(root, reached)

        interrupted = self.interrupted
        trial = root.with_name(f"{root.name}-trial")
        copy_tree(root, trial)
        number = interrupted.choose(record(act, trial))
        shutil.rmtree(trial)
        death = die_at(act, root, number)
        assert death.killed, death.error
        if interrupted.damage is not None:
            interrupted.damage(root)
        return death.log


@dataclass(frozen=True)
class Interrupted:
    """An act that a process dies of: at which operation of its log, and what becomes of the files then."""

    act: Act
    choose: Callable[[Log], int]
    damage: Callable[[Path], None] | None = None


def set_boot_id(boot_id: str) -> None:
    """Have the machine started anew, as far as this process sees."""
    from loaderx.store import mark

    mark.boot_id = lambda: boot_id.encode().ljust(16)[:16]  # type: ignore[assignment]


# ---- Reading -----------------------------------------------------------------------------------------------------


def read_records(store: Zrecord) -> tuple[bytes, ...]:
    """Return all records of an open store."""
    data, splits = store.gather_packed(np.arange(len(store)))
    return tuple(data[first:end].tobytes() for first, end in itertools.pairwise(splits))


def read_state(scenario: Scenario, root: Path) -> State:
    """Return what a scenario's store holds, opened for reading as what it is."""
    path = root / scenario.store
    if scenario.kind == "records":
        try:
            with Zrecord(path, mode="r", threads=1) as store:
                return State(read_records(store), store.has_dict())
        except NotAStoreError:
            return State(None)
    if not (path / "schema.json").exists():  # until it is there, nobody takes the directory for a dataset
        return State(None)
    with Zrecord(path, mode="r", threads=1) as store:
        state = State(read_records(store), store.has_dict())
    if scenario.kind == "fixed":
        with Dataset(path, threads=1) as dataset:
            assert (dataset.dtype, dataset.shape) == (ROWS.dtype, ROWS.shape[1:])
            assert tuple(row.tobytes() for row in dataset) == state.records
    else:
        with RaggedDataset(path, threads=1) as ragged:
            assert tuple(rows.tobytes() for rows in ragged) == state.records
    return state


# ---- Going on ----------------------------------------------------------------------------------------------------


def append_one(scenario: Scenario, root: Path, state: State) -> State:
    """Append a record to a store of records."""
    record = b"goes on" * 9
    with Zrecord(root / scenario.store, "raw", threads=1) as store:
        assert read_records(store) == (state.records or ()), "mode 'a' shows other records than mode 'r'"
        assert store.append(record, 1, len(record)) == len(state.records or ())
    return replace(state, records=(*(state.records or ()), record))


def write_again(scenario: Scenario, root: Path, state: State) -> State:
    """Write a dataset that is not there yet, and append to one that is."""
    if state.records is None:
        scenario.act(root, lambda *_given, **_options: None)
        return scenario.states[-1]
    if scenario.kind == "fixed":
        write_dataset(root / scenario.store, ROWS[:2], "raw", threads=1, progress=False)
        return replace(state, records=(*state.records, *as_records(ROWS[:2])))
    write_ragged(root / scenario.store, [ROWS[:3]], codec="raw", threads=1, progress=False)
    return replace(state, records=(*state.records, ROWS[:3].tobytes()))


def replace_again(scenario: Scenario, root: Path, state: State) -> State:
    """Write a dataset over what is there."""
    scenario.act(root, lambda *_given, **_options: None)
    return scenario.states[-1]


# ---- Data --------------------------------------------------------------------------------------------------------

#: The array of the datasets: a record for each row.
ROWS = np.random.default_rng(1).integers(0, 5, (12, 40), dtype=np.uint16)


def as_records(rows: np.ndarray) -> tuple[bytes, ...]:
    """Return an array's records."""
    return tuple(row.tobytes() for row in rows)


def make_records(seed: int, n: int, least: int, most: int) -> tuple[bytes, ...]:
    """Return records of random lengths, each of other bytes; half of them shrink when they are compressed."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(least, most + 1, n)
    kinds = rng.choice([4, 256], n)
    return tuple(
        rng.integers(0, kind, size, np.uint8).tobytes() for size, kind in zip(sizes, kinds, strict=True)
    )


def words(seed: int, n: int) -> tuple[bytes, ...]:
    """Return records that a dictionary helps: some words in other orders."""
    rng = np.random.default_rng(seed)
    known = [b"chunk", b"record", b"table", b"offset", b"length", b"journal", b"header", b"mark"]
    return tuple(b" ".join(known[at] for at in rng.integers(0, len(known), 12)) for _ in range(n))


def append(store: Zrecord, records: Sequence[bytes], codec: str | None = None) -> None:
    """Append records of any lengths in one call."""
    sizes = np.array([len(record) for record in records], np.int64)
    store.append_var(b"".join(records), np.cumsum(sizes) - sizes, sizes, codec)


@contextmanager
def opened(root: Path, codec: str = "zstd", name: str = STORE) -> Iterator[Zrecord]:
    """Open a scenario's store for writing."""
    with Zrecord(root / name, codec, threads=1) as store:
        yield store


def states(*records: Sequence[bytes] | None, has_dictionary: bool = False) -> tuple[State, ...]:
    """Return states that differ in their records."""
    return tuple(
        State(None if held is None else tuple(held), has_dictionary and held is not None) for held in records
    )


# ---- The scenarios -----------------------------------------------------------------------------------------------


def scenarios(size: str) -> list[Scenario]:
    """Return all of them; in size "full" with more records, parts and points."""
    factor = 1 if size == "ci" else 4
    return [
        *creating(),
        *appending(factor),
        *syncing(factor),
        *deleting(factor),
        *compacting(factor),
        *packing(factor),
        *training(),
        *converting(),
        *widening(factor),
        *recovering(size),
    ]


def nothing(root: Path) -> None:
    """Start with an empty directory."""


def creating() -> list[Scenario]:
    def act(root: Path, reached: Report) -> None:
        with opened(root):
            reached(1)
        reached(1, durable=True)

    def act_below(root: Path, reached: Report) -> None:
        with opened(root, name=f"new/folders/{STORE}") as store:
            reached(1)
            append(store, RECORDS[:3])
            reached(2)
            store.sync()
            reached(2, durable=True)

    return [
        Scenario("create a store", nothing, act, states(None, ())),
        Scenario(
            "create a store below new folders, append, sync",
            nothing,
            act_below,
            states(None, (), RECORDS[:3]),
            store=f"new/folders/{STORE}",
        ),
    ]


RECORDS = make_records(0, 24, 0, 150)
FIXED = make_records(3, 24, 96, 96)
LARGE = make_records(4, 24, 600, 900)
WORDS = words(5, 24)
SAMPLES = words(6, 4000)


def hold(records: Sequence[bytes], codec: str = "zstd") -> Callable[[Path], None]:
    """Start with a store of these records, in two appends."""

    def prepare(root: Path) -> None:
        with opened(root, codec) as store:
            append(store, records[: len(records) // 2])
            append(store, records[len(records) // 2 :])

    return prepare


def appending(factor: int) -> list[Scenario]:
    old, new = RECORDS[:6], RECORDS[6 : 6 + 4 * factor]
    more = [RECORDS[at : at + 3] for at in range(6, 12 + 3 * factor, 3)]

    def append_fixed(root: Path, reached: Report) -> None:
        records = FIXED[: 4 * factor]
        with opened(root) as store:
            store.append(b"".join(records), len(records), 96)
            reached(1)
        reached(1, durable=True)

    def append_ragged(root: Path, reached: Report) -> None:
        with opened(root) as store:
            append(store, new)
            reached(1)
        reached(1, durable=True)

    def prepare_dictionary(root: Path) -> None:
        with opened(root, "zstd_dict") as store:
            store.train_dict(b"".join(SAMPLES), [len(sample) for sample in SAMPLES], 1024)
            append(store, WORDS[:4])

    def append_dictionary(root: Path, reached: Report) -> None:
        with opened(root, "zstd_dict") as store:
            append(store, WORDS[4 : 4 + 4 * factor])
            reached(1)
        reached(1, durable=True)

    def append_large(root: Path, reached: Report) -> None:
        with opened(root, "raw") as store:
            append(store, LARGE[3 : 12 + 2 * factor])
            reached(1)
        reached(1, durable=True)

    def append_parts(root: Path, reached: Report) -> None:
        with opened(root) as store:
            with store.appending() as parts:
                for records in more:
                    sizes = np.array([len(record) for record in records])
                    parts.add_var(b"".join(records), np.cumsum(sizes) - sizes, sizes)
                parts.add(b"".join(FIXED[:2]), 2, 96, "raw")
            reached(1)
        reached(1, durable=True)

    def append_often(root: Path, reached: Report) -> None:
        with opened(root, "raw") as store:
            for number, records in enumerate(more, 1):
                append(store, records, "zstd" if number % 2 else "raw")
                reached(number)
        reached(len(more), durable=True)

    def fail_once(root: Path, reached: Report) -> None:
        with opened(root, "raw") as store:
            append(store, more[0])
            reached(1)
            try:
                with store.appending() as parts:
                    parts.add(b"".join(FIXED[:2]), 2, 96)
                    raise InterruptedError
            except InterruptedError:
                pass
            append(store, more[1])
            reached(2)
        reached(2, durable=True)

    equal = [FIXED[at : at + 2] for at in range(4, 10, 2)]

    def append_equal(root: Path, reached: Report) -> None:
        with opened(root, "raw") as store:
            for number, records in enumerate(equal, 1):
                append(store, records)
                reached(number)
        reached(len(equal), durable=True)

    often = list(itertools.accumulate(more, lambda held, records: held + records, initial=old))
    return [
        Scenario(
            "append, fixed", hold(FIXED[:2]), append_fixed, states(FIXED[:2], FIXED[:2] + FIXED[: 4 * factor])
        ),
        Scenario("append, ragged", hold(old), append_ragged, states(old, old + new)),
        Scenario(
            "append with the dictionary",
            prepare_dictionary,
            append_dictionary,
            states(WORDS[:4], WORDS[: 8 + 4 * (factor - 1)], has_dictionary=True),
        ),
        Scenario(
            "append over the end of chunks",
            hold(LARGE[:3], "raw"),
            append_large,
            states(LARGE[:3], LARGE[: 12 + 2 * factor]),
            chunk_bytes=4096,
        ),
        Scenario(
            "append in several blocks", hold(old), append_ragged, states(old, old + new), append_bytes=120
        ),
        Scenario("append in parts", hold(old), append_parts, states(old, old + sum(more, ()) + FIXED[:2])),
        Scenario("several appends in a session", hold(old), append_often, states(*often)),
        Scenario(
            "append equal records",
            hold(FIXED[:4], "raw"),
            append_equal,
            states(*(FIXED[:at] for at in (4, 6, 8, 10))),
        ),
        Scenario("an append given up between two", hold(old), fail_once, states(*often[:3])),
    ]


def syncing(factor: int) -> list[Scenario]:
    old = RECORDS[:4]
    parts = [RECORDS[at : at + 2] for at in range(4, 10 + 2 * factor, 2)]
    after = list(itertools.accumulate(parts, lambda held, records: held + records, initial=old))

    def sync_each(root: Path, reached: Report) -> None:
        with opened(root) as store:
            for number, records in enumerate(parts, 1):
                append(store, records)
                reached(number)
                if number != len(parts):
                    store.sync()
                    reached(number, durable=True)
        reached(len(parts), durable=True)

    def sync_only(root: Path, reached: Report) -> None:
        with opened(root) as store:
            store.sync()
            reached(0, durable=True)

    def two_sessions(root: Path, reached: Report) -> None:
        for number, records in enumerate(parts[:2], 1):
            with opened(root) as store:
                append(store, records)
                reached(number)
            reached(number, durable=True)

    return [
        Scenario("sync after each append", hold(old), sync_each, states(*after)),
        Scenario("sync without a change", hold(old), sync_only, states(old)),
        Scenario("two sessions, each closed", hold(old), two_sessions, states(*after[:3])),
    ]


def deleting(factor: int) -> list[Scenario]:
    held = RECORDS[: 8 + 4 * (factor - 1)]
    made = []

    def case(name: str, *turns: list[int]) -> None:
        after = list(itertools.accumulate(turns, swap_delete, initial=list(held)))

        def act(root: Path, reached: Report) -> None:
            with opened(root) as store:
                for number, targets in enumerate(turns, 1):
                    store.delete(targets)
                    reached(number, durable=True)

        made.append(Scenario(name, hold(held), act, states(*after)))

    case("delete one", [1])
    case("delete several", [1, 4, len(held) - 2])
    case("delete the last", [len(held) - 1])
    case("delete the last and others", [0, 2, len(held) - 1])
    case("delete all", list(range(len(held))))
    case("delete twice", [0, 1], [0])

    more = RECORDS[8:11]

    def between_appends(root: Path, reached: Report) -> None:
        with opened(root) as store:
            append(store, more)
            reached(1)
            store.delete([0, len(held) + 1])
            reached(2, durable=True)
            append(store, more)
            reached(3)
        reached(3, durable=True)

    deleted = swap_delete([*held, *more], [0, len(held) + 1])
    made.append(
        Scenario(
            "delete between appends",
            hold(held),
            between_appends,
            states(held, held + more, deleted, [*deleted, *more]),
        )
    )
    return made


def compacting(factor: int) -> list[Scenario]:
    made = []

    def case(
        name: str,
        records: Sequence[bytes],
        deleted: Sequence[int],
        *,
        chunk_bytes: int | None = None,
        block_bytes: int | None = None,
        more: Sequence[bytes] = (),
    ) -> None:
        held = tuple(swap_delete(list(records), deleted))

        def prepare(root: Path) -> None:
            with opened(root, "raw") as store:
                append(store, records[: len(records) // 2])
                append(store, records[len(records) // 2 :])
                if deleted:
                    store.delete(deleted)

        def act(root: Path, reached: Report) -> None:
            with opened(root, "raw") as store:
                if more:
                    append(store, more)
                    reached(1)
                store.compact()
                reached(2 if more else 1, durable=True)

        after = held + tuple(more)
        made.append(
            Scenario(
                name,
                prepare,
                act,
                states(held, after, after) if more else states(held, held),
                chunk_bytes=chunk_bytes,
                block_bytes=block_bytes,
            )
        )

    large = LARGE[: 14 + 2 * factor]
    case("compact in several blocks", RECORDS[: 14 + 2 * factor], [1, 2, 6, 9], block_bytes=400)
    case("compact over the end of chunks", large, [0, 3, 4, 10], chunk_bytes=4096, block_bytes=2500)
    case("compact across chunks at once", large, [0, 1, 2, 3, 4, 5], chunk_bytes=4096)
    case("compact equal records", FIXED[:10], [1, 6], block_bytes=300)
    case("compact what lies right already", RECORDS[:8], [])
    case("compact behind a deleted last record", RECORDS[:8], [7])
    case("compact from places that overlap", [b"", b"a" * 5, *LARGE[:4]], [1])
    case("compact an empty store", RECORDS[:6], list(range(6)))
    case("append, then compact", RECORDS[:8], [0, 3], block_bytes=400, more=RECORDS[8:12])
    return made


def packing(factor: int) -> list[Scenario]:
    """Pack and unpack stores of files that are longer than they need be, beside what killed writers left."""
    made = []

    def case(
        name: str,
        records: Sequence[bytes],
        act: Act,
        after: Sequence[Sequence[bytes]],
        *,
        deleted: Sequence[int] = (),
        packed: bool = False,
        chunk_bytes: int | None = None,
    ) -> None:
        held = tuple(swap_delete(list(records), deleted))

        def prepare(root: Path) -> None:
            hold(records, "raw")(root)
            with opened(root, "raw") as store:
                store.delete(deleted)
                if packed:
                    store.pack()
                    return
            for path in (root / STORE).glob("[0-9].zr"):
                os.truncate(path, 1 << 20)
            for name in ("9.zr", ".meta.zr.partial-1-ab"):
                (root / STORE / name).write_bytes(b"left" * 300)

        made.append(Scenario(name, prepare, act, states(held, *after), chunk_bytes=chunk_bytes))

    def pack(root: Path, reached: Report) -> None:
        with opened(root, "raw") as store:
            store.pack()
            reached(1, durable=True)

    def unpack(root: Path, reached: Report) -> None:
        with opened(root, "raw") as store:
            store.unpack()
            reached(1, durable=True)

    def append_between(root: Path, reached: Report) -> None:
        with opened(root, "raw") as store:
            append(store, more)
            reached(1)
            store.pack()
            reached(1, durable=True)
            append(store, more)
            reached(2)
            store.pack()
            reached(2, durable=True)
        with opened(root, "raw") as store:
            append(store, more)
            reached(3)
        reached(3, durable=True)

    held, large = RECORDS[:8], LARGE[: 12 + 2 * factor]
    more = RECORDS[8 : 10 + factor]
    thinned = swap_delete(list(large), [0, 3, len(large) - 1])
    appended = [held + more * n for n in range(1, 4)]
    case("pack", held, pack, [held])
    case(
        "pack, chunks and deleted records",
        large,
        pack,
        [thinned],
        deleted=[0, 3, len(large) - 1],
        chunk_bytes=4096,
    )
    case("pack an empty store", held, pack, [()], deleted=range(8))
    case("pack a packed store", held, pack, [held], packed=True)
    case("append, pack, append", held, append_between, appended)
    case("unpack", held, unpack, [held], packed=True)
    return made


def training() -> list[Scenario]:
    sizes = [len(sample) for sample in SAMPLES]
    plain = (State(RECORDS[:3]), State(RECORDS[:3], True))

    def train(root: Path, reached: Report) -> None:
        with opened(root) as store:
            store.train_dict(b"".join(SAMPLES), sizes, 1024)
            reached(1, durable=True)

    def prepare_trained(root: Path) -> None:
        hold(RECORDS[:3])(root)
        with opened(root) as store:
            half = len(SAMPLES) // 2
            store.train_dict(b"".join(SAMPLES[:half]), sizes[:half], 1024)

    def train_and_append(root: Path, reached: Report) -> None:
        with opened(root, "zstd_dict") as store:
            store.train_dict(b"".join(SAMPLES), sizes, 1024)
            reached(1, durable=True)
            append(store, WORDS[:3])
            reached(2)
        reached(2, durable=True)

    def append_train_append(root: Path, reached: Report) -> None:
        with opened(root, "zstd_dict") as store:
            append(store, RECORDS[3:4], "raw")
            reached(1)
            store.train_dict(b"".join(SAMPLES), sizes, 1024)
            reached(2)
            append(store, WORDS[:3])
            reached(3)
        reached(3, durable=True)

    return [
        Scenario("train a dictionary", hold(RECORDS[:3]), train, plain),
        Scenario("train another dictionary", prepare_trained, train, (plain[1], plain[1])),
        Scenario(
            "train a dictionary, append with it",
            hold(RECORDS[:3]),
            train_and_append,
            (*plain, State(RECORDS[:3] + WORDS[:3], True)),
        ),
        Scenario(
            "train another dictionary, append with it",
            prepare_trained,
            append_train_append,
            (plain[1], *(State(RECORDS[:4] + words, True) for words in ((), (), WORDS[:3]))),
        ),
    ]


def converting() -> list[Scenario]:
    ragged = [ROWS[:2], ROWS[2:2], ROWS[3:9]]
    old, new = as_records(ROWS[:5]), as_records(ROWS)
    rows = tuple(array.tobytes() for array in ragged)
    many = np.concatenate([ROWS] * 40)

    def write(root: Path, reached: Report) -> None:
        write_dataset(root / STORE, ROWS, threads=1, progress=False)
        reached(1, durable=True)

    def write_over(root: Path, reached: Report) -> None:
        write_dataset(root / STORE, ROWS, threads=1, progress=False, overwrite=True)
        reached(1, durable=True)

    def write_behind(root: Path, reached: Report) -> None:
        write_dataset(root / STORE, ROWS[5:], chunk_bytes=240, threads=1, progress=False)
        reached(1, durable=True)

    def write_with_dictionary(root: Path, reached: Report) -> None:
        write_dataset(root / STORE, many, "zstd_dict", level=3, threads=1, progress=False)
        reached(1, durable=True)

    def write_arrays(root: Path, reached: Report) -> None:
        write_ragged(root / STORE, ragged, threads=1, progress=False)
        reached(1, durable=True)

    def write_arrays_over(root: Path, reached: Report) -> None:
        write_ragged(root / STORE, ragged, threads=1, progress=False, overwrite=True)
        reached(1, durable=True)

    def convert(*options: str) -> Act:
        def act(root: Path, reached: Report) -> None:
            from loaderx.convert import main

            code = main(["--quiet", "--threads=1", *options, str(root / "in.npy"), str(root / STORE)])
            assert code == 0, f"convert ended with {code}"
            reached(1, durable=True)

        return act

    def hold_old(root: Path) -> None:
        write_dataset(root / STORE, ROWS[:5], "raw", threads=1, progress=False)

    def hold_old_arrays(root: Path) -> None:
        write_ragged(root / STORE, [ROWS[:1], ROWS[4:]], codec="raw", threads=1, progress=False)

    def write_below(root: Path, reached: Report) -> None:
        write_dataset(root / below, ROWS, threads=1, progress=False)
        reached(1, durable=True)

    below = f"new/folders/{STORE}"
    old_arrays = (ROWS[:1].tobytes(), ROWS[4:].tobytes())
    array = io.BytesIO()
    np.save(array, ROWS)
    tail = io.BytesIO()
    np.save(tail, ROWS[5:])
    beside = {f"{STORE}/notes.txt": b"of somebody else", f"{STORE}/sub/more.bin": bytes(700)}
    fixed = {"kind": "fixed", "finish": write_again}
    return [
        Scenario("write_dataset, new", nothing, write, states(None, new), **fixed),
        Scenario(
            "write_dataset below new folders", nothing, write_below, states(None, new), store=below, **fixed
        ),
        Scenario(
            "write_dataset, dictionary",
            nothing,
            write_with_dictionary,
            states(None, as_records(many), has_dictionary=True),
            **fixed,
        ),
        Scenario(
            "write_dataset, overwrite",
            hold_old,
            write_over,
            states(old, new),
            kind="fixed",
            finish=replace_again,
        ),
        Scenario(
            "write_dataset beside other files",
            nothing,
            write,
            states(None, new),
            others=beside,
            **fixed,
        ),
        Scenario("write_dataset, append", hold_old, write_behind, states(old, new), **fixed),
        Scenario(
            "write_ragged, new", nothing, write_arrays, states(None, rows), kind="ragged", finish=write_again
        ),
        Scenario(
            "write_ragged, overwrite",
            hold_old_arrays,
            write_arrays_over,
            states(old_arrays, rows),
            kind="ragged",
            finish=replace_again,
        ),
        Scenario(
            "write_ragged, append",
            hold_old_arrays,
            write_arrays,
            states(old_arrays, old_arrays + rows),
            kind="ragged",
            finish=write_again,
        ),
        Scenario(
            "convert, new",
            nothing,
            convert(),
            states(None, new),
            others={"in.npy": array.getvalue()},
            **fixed,
        ),
        Scenario(
            "convert --force",
            hold_old,
            convert("--force"),
            states(old, new),
            others={"in.npy": array.getvalue()},
            kind="fixed",
            finish=replace_again,
        ),
        Scenario(
            "convert --append",
            hold_old,
            convert("--append"),
            states(old, new),
            others={"in.npy": tail.getvalue()},
            **fixed,
        ),
    ]


#: Items of 4 bytes, which shrink when they are shuffled, in records that end in a part of one.
NUMBERS = tuple(
    np.arange(start, start + 30, dtype="<u4").tobytes() + b"end"[: start % 4] for start in range(24)
)
#: More than version 3 takes, and next to nothing once it is compressed.
OVER_1_MIB = bytes((1 << 20) + 1)


def widening(factor: int) -> list[Scenario]:
    """Stores that become version 4, or are, and records that are stored shuffled."""
    old, new = RECORDS[:4], NUMBERS[: 4 * factor]
    more = NUMBERS[4 * factor : 6 * factor]
    wide = (OVER_1_MIB, *NUMBERS[:6])

    @contextmanager
    def upgrading(root: Path, codec: str = "zstd_shuffle") -> Iterator[Zrecord]:
        with Zrecord(root / STORE, codec, threads=1, upgrade=True) as store:
            yield store

    def append_numbers(store: Zrecord, records: Sequence[bytes]) -> None:
        sizes = np.array([len(record) for record in records], np.int64)
        store.append_var(b"".join(records), np.cumsum(sizes) - sizes, sizes, item_size=4)

    def hold_wide(root: Path) -> None:
        with opened(root) as store:
            append(store, wide[:1])
        with opened(root, "zstd_shuffle") as store:
            append_numbers(store, wide[1:])

    def prepare_dictionary(root: Path) -> None:
        with opened(root, "zstd_shuffle_dict") as store:
            store.train_dict(b"".join(NUMBERS * 40), [len(n) for n in NUMBERS * 40], 1024, item_size=4)
            append(store, old, "zstd")

    def upgrade(root: Path, reached: Report) -> None:
        with upgrading(root) as store:
            append_numbers(store, new)
            reached(1)
            append_numbers(store, more)
            reached(2)
        reached(2, durable=True)

    def upgrade_with_dictionary(root: Path, reached: Report) -> None:
        with upgrading(root, "zstd_shuffle_dict") as store:
            append_numbers(store, new)
            reached(1)
        reached(1, durable=True)

    def upgrade_later(root: Path, reached: Report) -> None:
        with upgrading(root, "zstd") as store:
            append(store, RECORDS[4:7])
            reached(1)
            append(store, (OVER_1_MIB, RECORDS[7]))
            reached(2)
            store.sync()
            reached(2, durable=True)

    def give_up_once(root: Path, reached: Report) -> None:
        with upgrading(root) as store:
            try:
                with store.appending() as parts:
                    parts.add(new[0], 1, len(new[0]), item_size=4)
                    raise InterruptedError
            except InterruptedError:
                pass
            append_numbers(store, new)
            reached(1)
        reached(1, durable=True)

    def append_wide(root: Path, reached: Report) -> None:
        with opened(root, "zstd_shuffle") as store:
            append_numbers(store, more)
            reached(1)
        reached(1, durable=True)

    def delete(root: Path, reached: Report) -> None:
        with opened(root) as store:
            store.delete([0, 3])
            reached(1, durable=True)

    def compact(root: Path, reached: Report) -> None:
        with opened(root) as store:
            store.compact()
            reached(1, durable=True)

    def hold_gaps(root: Path) -> None:
        hold_wide(root)
        with opened(root) as store:
            store.delete([0, 3])

    def hold_narrow(root: Path) -> None:
        write_dataset(root / STORE, numbers[:3], "raw", threads=1, progress=False)

    def write_over(root: Path, reached: Report) -> None:
        write_dataset(root / STORE, numbers, "zstd_shuffle", threads=1, progress=False, overwrite=True)
        reached(1, durable=True)

    numbers = np.arange(12 * 40, dtype=np.uint16).reshape(12, 40)
    gaps = swap_delete(list(wide), [0, 3])
    return [
        Scenario("upgrade, shuffled", hold(old), upgrade, states(old, old + new, old + new + more)),
        Scenario(
            "upgrade, shuffled with the dictionary",
            prepare_dictionary,
            upgrade_with_dictionary,
            states(old, old + new, has_dictionary=True),
        ),
        Scenario(
            "upgrade by a large record, sync",
            hold(old),
            upgrade_later,
            states(old, RECORDS[:7], (*RECORDS[:7], OVER_1_MIB, RECORDS[7])),
        ),
        Scenario("upgrade after one given up", hold(old), give_up_once, states(old, old + new)),
        Scenario("become version 4 unasked", hold(()), append_wide, states((), more)),
        Scenario("version 4: append", hold_wide, append_wide, states(wide, wide + more)),
        Scenario("version 4: delete", hold_wide, delete, states(wide, gaps)),
        Scenario("version 4: compact", hold_gaps, compact, states(gaps, gaps), block_bytes=120),
        Scenario(
            "version 4: write_dataset, overwrite",
            hold_narrow,
            write_over,
            states(as_records(numbers[:3]), as_records(numbers)),
            kind="fixed",
            finish=replace_again,
        ),
    ]


def in_the_journal(part: float) -> Callable[[Log], int]:
    """Choose an operation between the first journal's being on the disk (0) and the last one's removal (1)."""

    def choose(log: Log) -> int:
        kinds = [(step.kind, os.path.basename(step.path)) for step in log if isinstance(step, Operation)]
        first = kinds.index(("fsync", "journal.zr")) + 1
        last = len(kinds) - 1 - kinds[::-1].index(("unlink", "journal.zr"))
        return first + round(part * (last - first))

    return choose


def at_part(part: float) -> Callable[[Log], int]:
    """Choose an operation between the first (0) and the last (1)."""
    return lambda log: round(part * (sum(isinstance(step, Operation) for step in log) - 1))


def when_reached(state: int, operations_before: int = 0) -> Callable[[Log], int]:
    """Choose the first operation after a state is reached, or one some operations before that."""

    def choose(log: Log) -> int:
        at = next(at for at, step in enumerate(log) if isinstance(step, Reached) and step.state == state)
        return sum(isinstance(step, Operation) for step in log[:at]) - operations_before

    return choose


def recovering(size: str) -> list[Scenario]:
    """Go on after a writer that died: every cut of every recovery is a case like any other."""
    made = []
    known = {scenario.name: scenario for scenario in (*deleting(1), *compacting(1), *appending(1))}

    def open_and_close(root: Path, reached: Report) -> None:
        with opened(root):
            pass

    def go_on(state: int) -> Act:
        def act(root: Path, reached: Report) -> None:
            with opened(root, "raw") as store:
                append(store, FIXED[:3])
                reached(state)
            reached(state, durable=True)

        return act

    def recover(base: Scenario, what: str, choose: Callable[[Log], int]) -> None:
        interrupted = Interrupted(base.act, choose)
        group = f"recover: {base.name}"
        name = f"{group}, {what}"
        made.append(
            replace(base, name=name, group=group, interrupted=interrupted, act=open_and_close, adds=())
        )

    def append_after(base: Scenario, what: str, choose: Callable[[Log], int]) -> None:
        interrupted = Interrupted(base.act, choose)
        group = f"killed, then append: {base.name}"
        name = f"{group}, {what}"
        made.append(
            replace(base, name=name, group=group, interrupted=interrupted, act=go_on(1), adds=FIXED[:3])
        )

    for name in ("delete several", "compact in several blocks", "compact over the end of chunks"):
        for part in (0, 0.5, 1):
            recover(known[name], f"{part:.0%} done", in_the_journal(part))
    if size == "full":
        for base in known.values():
            for at in range(25):
                append_after(base, f"{at} of 24", at_part(at / 24))

    often = known["several appends in a session"]
    n_appends = len(often.states) - 1
    held = often.states[-1].records
    before = often.states[-2].records
    new = FIXED[:3]
    assert held is not None and before is not None

    def sync_and_go_on(root: Path, reached: Report) -> None:
        with opened(root, "raw") as store:
            store.sync()
            reached(n_appends, durable=True)
            append(store, new)
            reached(n_appends + 1)

    def compact_then(root: Path, reached: Report) -> None:
        with opened(root) as store:
            store.compact()
            reached(n_appends, durable=True)

    whole, cut_off = when_reached(n_appends), when_reached(n_appends, 1)
    for name, choose, act, states_then in (
        ("append after a killed session", whole, go_on(n_appends + 1), [*often.states, State(held + new)]),
        (
            "append after a killed append",
            cut_off,
            go_on(n_appends),
            [*often.states[:-1], State(before + new)],
        ),
        ("sync after a killed session", whole, sync_and_go_on, [*often.states, State(held + new)]),
        ("compact after a killed session", whole, compact_then, [*often.states]),
    ):
        made.append(
            replace(
                often,
                name=name,
                interrupted=Interrupted(often.act, choose),
                act=act,
                states=tuple(states_then),
            )
        )

    def lose(
        kept: tuple[bytes, ...], name: str, damage: Callable[[Path], None], choose: Callable[[Log], int]
    ) -> None:
        made.append(
            replace(
                often,
                name=f"recover: {name}",
                interrupted=Interrupted(often.act, choose, damage),
                act=open_and_close,
                states=(State(kept),),
                boot_ids=("boot 1", "boot 2"),
                adds=(),
                warns=True,
            )
        )

    def entry_of(root: Path, index: int) -> np.void:
        with (root / STORE / "meta.zr").open("rb") as stream:
            return np.frombuffer(
                os.pread(stream.fileno(), ENTRY_BYTES, HEADER_BYTES + index * ENTRY_BYTES), ENTRY
            )[0]

    def zero_stored(root: Path) -> None:
        entry = entry_of(root, len(held) - 2)
        with (root / STORE / "0.zr").open("r+b") as stream:
            os.pwrite(stream.fileno(), bytes(int(entry["phys_length"])), int(entry["offset"]))

    def zero_entries(root: Path) -> None:
        with (root / STORE / "meta.zr").open("r+b") as stream:
            os.pwrite(stream.fileno(), bytes(3 * ENTRY_BYTES), HEADER_BYTES + (len(held) - 3) * ENTRY_BYTES)

    def cut_chunk(root: Path) -> None:
        os.truncate(root / STORE / "0.zr", int(entry_of(root, len(held) - 4)["offset"]) + 3)

    lose(held, "nothing lost", lambda root: None, whole)
    lose(held[:-2], "a record's bytes lost", zero_stored, whole)
    lose(held[:-3], "entries lost", zero_entries, whole)
    lose(held[:-4], "the end of a chunk lost", cut_chunk, whole)
    return made
