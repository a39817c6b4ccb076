"""loaderx 0.7.3 changes a store between our opens: with our sums, our journal and our mark in its directory.

It knows nothing of those files. Whatever it does, no record it left good may be accused or lost, and nothing of ours
may be carried out over its changes.
"""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import loaderx
from loaderx import Zrecord
from loaderx.store import mark
from tests.interop.driver import Peer073
from tests.oracle import OracleStore, swap_delete
from tests.store.children import Pause, finishes_before, other_process
from tests.store.crashes import TARGETS, carry_out, left_by, warnings_aside
from tests.store.samples import SmallChunks, contents, fill, numbered, read
from tests.store.sums import check_sums

pytestmark = pytest.mark.needs_peer

MARK, JOURNAL, SUMS, LOCK = "mark.zr", "journal.zr", "sums.zr", "lock.zr"


def check_good(path: Path, model: list[bytes], peer: Peer073) -> None:
    """Check that everybody reads the model, and that nobody is accused."""
    assert contents(path) == model
    with Zrecord(path, mode="r", verify=True) as z:
        assert read(z) == model
    report = loaderx.verify(path)
    assert report.ok and report.damaged == () and report.records == len(model), report.damaged
    assert peer.read_store(path) == model


def named(prefix: bytes, n: int) -> list[bytes]:
    return [prefix + b"%d" % number * (1 + number % 4) for number in range(n)]


#: What 0.7.3 does to a store between our opens, and what it makes of the records.
THEIR_CHANGES: dict[str, tuple[list[tuple[Any, ...]], Callable[[list[bytes]], list[bytes]]]] = {
    "append": ([("append", named(b"theirs", 7))], lambda old: [*old, *named(b"theirs", 7)]),
    "append zstd": ([("append", [b"z" * 900] * 3, "zstd")], lambda old: [*old, *[b"z" * 900] * 3]),
    "delete": ([("delete", [2, 5, 6])], lambda old: swap_delete(old, [2, 5, 6])),
    "delete the last": ([("delete", [19])], lambda old: swap_delete(old, [19])),
    "delete the last five": (
        [("delete", [15, 16, 17, 18, 19])],
        lambda old: swap_delete(old, [15, 16, 17, 18, 19]),
    ),
    "delete all": ([("delete", list(range(20)))], lambda old: []),
    "compact": ([("compact",)], lambda old: old),
    "delete and compact": (
        [("delete", [2, 5, 6]), ("compact",)],
        lambda old: swap_delete(old, [2, 5, 6]),
    ),
    "delete and append": (
        [("delete", [0, 19]), ("append", named(b"theirs", 2))],
        lambda old: [*swap_delete(old, [0, 19]), *named(b"theirs", 2)],
    ),
    "delete the last, append": (
        [("delete", [19]), ("append", [b"new in place"])],
        lambda old: [*old[:19], b"new in place"],
    ),
    "delete the last, compact, append": (
        [("delete", [19]), ("compact",), ("append", [b"another size than before"])],
        lambda old: [*old[:19], b"another size than before"],
    ),
    "delete all, compact, append": (
        [("delete", list(range(20))), ("compact",), ("append", named(b"theirs", 9))],
        lambda old: named(b"theirs", 9),
    ),
}


@pytest.mark.parametrize(("steps", "model"), THEIR_CHANGES.values(), ids=THEIR_CHANGES.keys())
@pytest.mark.parametrize("codec", ["raw", "zstd"])
def test_between_our_opens(
    steps: list[tuple[Any, ...]],
    model: Callable[[list[bytes]], list[bytes]],
    codec: Any,
    store_path: Path,
    peer: Peer073,
) -> None:
    with Zrecord(store_path, codec) as z:
        fill(z, numbered(0, 20))
    peer.store(store_path, *steps)
    records = model(numbered(0, 20))
    check_good(store_path, records, peer)
    with Zrecord(store_path, codec, verify=True) as z:
        assert read(z) == records
        fill(z, named(b"ours", 5))
        records = [*records, *named(b"ours", 5)]
        assert read(z) == records
        z.delete([0])
        records = swap_delete(records, [0])
        assert read(z) == records
    check_good(store_path, records, peer)
    with Zrecord(store_path, codec, verify=True) as z:
        z.compact()
        assert read(z) == records
    check_good(store_path, records, peer)
    peer.store(store_path, ("append", [b"and again"]))
    check_good(store_path, [*records, b"and again"], peer)


def test_delete_last_compact_append_of_the_same_size(store_path: Path, peer: Peer073) -> None:
    """Back to the same mark, with another record of the same size in the last one's place.

    Before we write again this is the known rest: the one case in which a good record is called damaged, for nothing in
    the store tells it from damage. It is read all the same, where nobody asks for sums, and it is not lost.
    """
    with Zrecord(store_path, "raw") as z:
        fill(z, [b"record %d" % number for number in range(5)])
    peer.store(store_path, ("delete", [4]), ("compact",), ("append", [b"RECORD 4"], "raw"))
    expected = [*(b"record %d" % number for number in range(4)), b"RECORD 4"]
    assert contents(store_path) == expected
    with Zrecord(store_path, "raw") as z:
        assert read(z) == expected
        fill(z, [b"ours"])
        assert read(z) == [*expected, b"ours"]
    assert [damage.record for damage in loaderx.verify(store_path).damaged] in ([4], [])
    assert peer.read_store(store_path) == [*expected, b"ours"]


def test_delete_last_compact_append_and_more(store_path: Path, peer: Peer073) -> None:
    """A record of the same size in the last one's place, and one behind it: the mark tells, and nobody is accused."""
    with Zrecord(store_path, "raw") as z:
        fill(z, [b"record %d" % number for number in range(5)])
    peer.store(
        store_path,
        ("delete", [3, 4]),
        ("compact",),
        ("append", [b"RECORD 3", b"RECORD 4", b"RECORD 5"], "raw"),
    )
    expected = [*(b"record %d" % number for number in range(3)), b"RECORD 3", b"RECORD 4", b"RECORD 5"]
    check_good(store_path, expected, peer)
    with Zrecord(store_path, "raw") as z:
        assert read(z) == expected
        fill(z, [b"ours"])
    check_good(store_path, [*expected, b"ours"], peer)


@pytest.mark.parametrize("codec", ["raw", "zstd"])
def test_by_turns(codec: Any, store_path: Path, peer: Peer073) -> None:
    """Both change a store in every way, in a random order; we are right about every record all along."""
    rng = np.random.default_rng(11)
    model: list[bytes] = []
    with Zrecord(store_path, codec):
        pass
    for _ in range(40):
        ours = bool(rng.integers(2))
        choice = rng.choice(["append", "append", "delete", "compact", "delete last, append"])
        new = [
            bytes(rng.integers(0, 3, rng.integers(1, 200), dtype=np.uint8)) for _ in range(rng.integers(1, 9))
        ]
        targets = sorted(set(rng.integers(0, max(1, len(model)), 3).tolist())) if model else []
        if choice == "delete last, append":
            targets = list(range(max(0, len(model) - 2), len(model)))
        steps: list[tuple[Any, ...]] = []
        if "delete" in choice and targets:
            steps.append(("delete", targets))
            model = swap_delete(model, targets)
        if "append" in choice:
            steps.append(("append", new, str(rng.choice(["raw", "zstd"]))))
            model = [*model, *new]
        if choice == "compact":
            steps.append(("compact",))
        if ours:
            with Zrecord(store_path, codec, verify=True) as z:
                for name, *arguments in steps:
                    if name == "append":
                        fill(z, *arguments)
                    else:
                        getattr(z, name)(*arguments)
                assert read(z) == model
        elif steps:
            peer.store(store_path, *steps)
        check_good(store_path, model, peer)


def test_their_records_are_unchecked_and_ours_are_checked(store_path: Path, peer: Peer073) -> None:
    peer.store(store_path, ("append", named(b"theirs", 6)))
    assert (loaderx.verify(store_path).checked, loaderx.verify(store_path).unchecked) == (0, 6)
    with Zrecord(store_path, "raw") as z:
        fill(z, named(b"ours", 4))
    check_sums(store_path, unchecked=range(6))
    peer.store(store_path, ("append", named(b"theirs", 2)))
    report = loaderx.verify(store_path)
    assert report.ok and report.records == 12 and report.unchecked >= 8
    with Zrecord(store_path, "raw") as z:
        fill(z, [b"ours"])
    check_sums(store_path, unchecked=[*range(6), 10, 11])


def test_damage_that_they_did_not_do_is_still_found(store_path: Path, peer: Peer073) -> None:
    """Once we have written again, our old records beside theirs are checked as before."""
    with Zrecord(store_path, "raw") as z:
        fill(z, [bytes([number]) * 50_000 for number in range(200)])
    peer.store(store_path, ("append", [b"theirs"]))
    with Zrecord(store_path, "raw") as z:
        fill(z, [b"ours"])
    with (store_path / "0.zr").open("r+b") as file:
        file.seek(50_000 * 3 + 17)
        file.write(b"\xff")
    assert [damage.record for damage in loaderx.verify(store_path).damaged] == [3]


# ---- it meets our files ------------------------------------------------------------------------------------------


def held_session(path: Path, pause: Pause) -> None:
    z = Zrecord(path, "raw")
    fill(z, numbered(0, 10))
    z.sync()
    fill(z, numbered(10, 20))
    pause()


def left_session(path: Path) -> None:
    with other_process(lambda pause: held_session(path, pause)) as other:
        other.kill()
    assert {name.name for name in path.iterdir()} == {"0.zr", "meta.zr", MARK, SUMS, LOCK}


@pytest.mark.parametrize("boot", ["the same boot", "another boot"])
@pytest.mark.parametrize(("steps", "model"), THEIR_CHANGES.values(), ids=THEIR_CHANGES.keys())
def test_a_mark_that_was_left(
    steps: list[tuple[Any, ...]],
    model: Callable[[list[bytes]], list[bytes]],
    boot: str,
    store_path: Path,
    peer: Peer073,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """0.7.3 wrote after our process was killed, so the machine had not stopped: everything is there, and stays."""
    left_session(store_path)
    assert peer.read_store(store_path) == numbered(0, 20)
    peer.store(store_path, *steps)
    records = model(numbered(0, 20))
    assert contents(store_path) == records
    if boot == "another boot":
        monkeypatch.setattr(mark, "boot_id", lambda: b"another boot....")
    check_good(store_path, records, peer)
    with Zrecord(store_path, "raw", verify=True) as z:
        assert read(z) == records and z.recovery is None
        fill(z, named(b"ours", 5))
        assert read(z) == [*records, *named(b"ours", 5)]
    assert not (store_path / MARK).exists()
    check_good(store_path, [*records, *named(b"ours", 5)], peer)


@pytest.mark.parametrize(
    "steps",
    [
        [("compact",), ("append", named(b"theirs", 6)), ("compact",)],
        [("delete", list(range(10))), ("compact",), ("append", named(b"theirs", 6), "raw")],
    ],
    ids=["append and compact", "begin anew"],
)
def test_the_evidence_outlives_a_writer_that_is_killed_on_it(
    steps: list[tuple[Any, ...]], store_path: Path, peer: Peer073
) -> None:
    """Our next writer is killed at each of its operations, then the machine stops: what 0.7.3 wrote was on the disk."""

    def body(pause: Pause) -> None:
        z = Zrecord(store_path, "raw")
        fill(z, numbered(0, 10))
        pause()

    for number in itertools.count(1):
        shutil.rmtree(store_path, ignore_errors=True)
        with other_process(body) as other:
            other.kill()
        peer.store(store_path, *steps)
        records = contents(store_path)

        def append() -> None:
            with Zrecord(store_path, "raw") as z:
                fill(z, [b"ours"] * 2)

        killed = not finishes_before(number, append)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(mark, "boot_id", lambda: b"another boot....")
            for mode in ("r", "a"):
                with Zrecord(store_path, mode=mode, verify=True) as z:  # type: ignore[arg-type]
                    assert read(z) in (records, [*records, *[b"ours"] * 2]), number
        if not killed:
            break
    assert number > 10


def test_a_mark_beside_our_damage_and_their_append(
    store_path: Path, peer: Peer073, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A record of ours that is damaged beyond the base does not take theirs behind it away."""
    left_session(store_path)
    peer.store(store_path, ("append", named(b"theirs", 3)))
    offset = int(OracleStore(store_path).table["offset"][15])
    with (store_path / "0.zr").open("r+b") as file:
        file.seek(offset)
        file.write(b"\xff")
    monkeypatch.setattr(mark, "boot_id", lambda: b"another boot....")
    with warnings_aside(), Zrecord(store_path, "raw") as z:
        assert len(z) == 23 and read(z)[20:] == named(b"theirs", 3)
        fill(z, [b"ours"])
    assert contents(store_path)[20:] == [*named(b"theirs", 3), b"ours"]


def test_they_write_after_our_power_loss(
    store_path: Path, peer: Peer073, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What of ours had reached the disk is a prefix, and they append behind what the table says."""
    left_session(store_path)
    with (store_path / "meta.zr").open("r+b") as meta:
        meta.seek(16 + 16 * 15)
        meta.write(bytes(16 * 5))
    monkeypatch.setattr(mark, "boot_id", lambda: b"another boot....")
    peer.store(store_path, ("append", named(b"theirs", 3)))
    with warnings_aside(), Zrecord(store_path, "raw") as z:
        found = read(z)
        assert found[:15] == numbered(0, 15) and found[-3:] == named(b"theirs", 3)


@pytest.mark.parametrize("kind", ["delete", "compact"])
@pytest.mark.parametrize(
    "steps",
    [
        [("append", named(b"theirs", 3))],
        [("delete", [0, 7])],
        [("append", named(b"theirs", 3)), ("delete", [44])],
        [("compact",)],
        [("delete", [40, 41, 42]), ("append", named(b"theirs", 3), "raw")],
    ],
    ids=["append", "delete", "append and delete", "compact", "delete and append"],
)
def test_a_journal_that_was_left(
    kind: str, steps: list[tuple[Any, ...]], store_path: Path, peer: Peer073
) -> None:
    """Our change had not begun when our process was killed: the store is theirs, as they left it."""
    old = left_by(store_path, kind, "staged")
    assert peer.read_store(store_path) == old
    peer.store(store_path, *steps)
    model = old
    for name, *arguments in steps:
        if name == "append":
            model = [*model, *arguments[0]]
        elif name == "delete":
            model = swap_delete(model, arguments[0])
    assert contents(store_path) == model
    with warnings_aside():
        check_good(store_path, model, peer)
    with warnings_aside(), Zrecord(store_path, "raw", verify=True) as z:
        fill(z, [b"ours"])
        assert read(z) == [*model, b"ours"]
        z.delete([len(z) - 1])
    assert not (store_path / JOURNAL).exists()
    check_good(store_path, model, peer)
    with Zrecord(store_path, "raw", verify=True) as z:
        z.compact()
    check_good(store_path, model, peer)


@pytest.mark.parametrize("kind", ["delete", "compact"])
def test_a_journal_of_a_change_that_is_done(
    kind: str, store_path: Path, peer: Peer073, tmp_path: Path
) -> None:
    """Killed before the journal went: 0.7.3 sees the new state and goes on from there."""
    left_by(store_path, kind, "staged")
    journal = tmp_path / "kept"
    shutil.copy(store_path / JOURNAL, journal)
    with SmallChunks(store_path, "raw"):
        pass  # carries it out
    done = contents(store_path)
    assert not (store_path / JOURNAL).exists()
    for steps in ([("append", named(b"theirs", 3))], [("delete", [0, 7])], [("compact",)]):
        peer.store(store_path, *steps)
        there = contents(store_path)
        shutil.copy(journal, store_path / JOURNAL)
        with warnings_aside(), Zrecord(store_path, mode="r", verify=True) as z:
            assert read(z) == there
        with warnings_aside(), Zrecord(store_path, "raw", verify=True) as z:
            fill(z, [b"ours"])
            z.delete([len(z) - 1])
            assert read(z) == there
        assert not (store_path / JOURNAL).exists()
        assert contents(store_path) == there
        with warnings_aside():
            check_good(store_path, there, peer)
    assert done != []


def test_a_journal_meets_the_same_length_and_tail_by_their_hand(store_path: Path, peer: Peer073) -> None:
    """They delete and append back to our length; an entry of ours that moved tells."""
    old = left_by(store_path, "delete", "staged")
    peer.store(store_path, ("delete", [TARGETS[0]]), ("append", [b"theirs"], "raw"))
    model = [*swap_delete(old, [TARGETS[0]]), b"theirs"]
    with warnings_aside(), Zrecord(store_path, mode="r", verify=True) as z:
        assert read(z) == model
    with warnings_aside(), Zrecord(store_path, "raw", verify=True) as z:
        fill(z, [b"ours"])
        assert read(z) == [*model, b"ours"]
    assert contents(store_path) == [*model, b"ours"]


# ---- it reads and changes what we wrote, with all our files present ----------------------------------------------


def test_it_works_among_all_our_files(store_path: Path, peer: Peer073, tmp_path: Path) -> None:
    """sums.zr, mark.zr, lock.zr, a journal and one set aside: 0.7.3 does not look at them."""
    left_session(store_path)
    left_by(tmp_path / "other.zr", "delete", "staged")
    shutil.copy(tmp_path / "other.zr" / JOURNAL, store_path / JOURNAL)
    shutil.copy(tmp_path / "other.zr" / JOURNAL, store_path / "journal-aside-00000000.zr")
    names = {file.name for file in store_path.iterdir()}
    assert peer.read_store(store_path) == numbered(0, 20)
    peer.store(store_path, ("append", [b"one"]), ("delete", [3]), ("compact",), ("append", [b"two"], "zstd"))
    model = [*swap_delete([*numbered(0, 20), b"one"], [3]), b"two"]
    assert peer.read_store(store_path) == contents(store_path) == model
    assert {file.name for file in store_path.iterdir()} == names
    with warnings_aside(), Zrecord(store_path, "raw", verify=True) as z:
        assert read(z) == model
        fill(z, [b"three"])
    with warnings_aside():
        check_good(store_path, [*model, b"three"], peer)


def test_it_reads_in_the_middle_of_our_session(store_path: Path, peer: Peer073) -> None:
    """The byte of room behind the last record is nothing to it."""
    with Zrecord(store_path, "raw") as z:
        for number in range(5):
            fill(z, [b"%d" % number])
            assert peer.read_store(store_path) == [b"%d" % n for n in range(number + 1)]


def test_it_writes_in_the_middle_of_our_session(store_path: Path, peer: Peer073) -> None:
    """It knows no locks. One after the other both append, and each sees and keeps the other's records."""
    model: list[bytes] = []
    with Zrecord(store_path, "raw", verify=True) as z:
        for number in range(6):
            fill(z, [b"ours %d" % number])
            peer.store(store_path, ("append", [b"theirs %d" % number]))
            model += [b"ours %d" % number, b"theirs %d" % number]
            assert z.refresh() == len(model) and read(z) == model
        if number:
            peer.store(store_path, ("delete", [0]))
            model = swap_delete(model, [0])
        z.refresh()
        fill(z, [b"last"])
        model = [*model, b"last"]
        assert read(z) == model
    check_good(store_path, model, peer)


@pytest.mark.parametrize("codec", ["raw", "zstd"])
def test_it_takes_over_every_state_that_we_close_in(codec: Any, store_path: Path, peer: Peer073) -> None:
    model: list[bytes] = []
    for turn, change in enumerate(itertools.islice(itertools.cycle(["append", "delete", "compact"]), 9)):
        with Zrecord(store_path, codec) as z:
            if change == "append" or turn == 1:
                fill(z, numbered(turn * 10, turn * 10 + 10))
                model = [*model, *numbered(turn * 10, turn * 10 + 10)]
            if change == "delete":
                z.delete([0, len(z) - 1])
                model = swap_delete(model, [0, len(model) - 1])
            if change == "compact":
                z.compact()
        assert OracleStore(store_path).faults() == []
        check_good(store_path, model, peer)
        peer.store(store_path, ("append", [b"theirs %d" % turn]))
        model = [*model, b"theirs %d" % turn]
        check_good(store_path, model, peer)


def test_chunks_rolled_over_by_us_serve_it(store_path: Path, peer: Peer073) -> None:
    with SmallChunks(store_path, "raw") as z:
        fill(z, numbered(0, 200))
        z.delete(np.arange(0, 200, 3))
        z.compact()
    model = swap_delete(numbered(0, 200), range(0, 200, 3))
    check_good(store_path, model, peer)
    peer.store(store_path, ("append", [b"theirs" * 300]))
    check_good(store_path, [*model, b"theirs" * 300], peer)


def test_a_compaction_that_was_cut_off_half_way_is_finished_before_it_comes(
    store_path: Path, peer: Peer073
) -> None:
    """In the documented order: who meets a crash opens the store with us first."""
    old = left_by(store_path, "compact", "half")
    with SmallChunks(store_path, "raw"):
        pass
    assert peer.read_store(store_path) == old
    carry_out(store_path, "compact")
    check_good(store_path, old, peer)
