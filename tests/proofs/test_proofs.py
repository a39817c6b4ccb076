"""The proofs themselves: what the model of a disk says, and that planted faults are found."""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from loaderx.store import files
from tests.proofs.cutting import cut_everywhere
from tests.proofs.disk import Disk, Tree
from tests.proofs.door import Act, Operation, Report
from tests.proofs.power import EFFORTS, every, lose_power_everywhere
from tests.proofs.report import CutRow, as_markdown, format_summary
from tests.proofs.report import Report as Counts
from tests.proofs.scenarios import FIXED, STORE, Scenario, append, hold, opened, scenarios, states


def disks(root: Path, *operations: Operation) -> list[Tree]:
    """Return all that a disk may hold after some operations."""
    disk = Disk(root)
    for operation in operations:
        disk.apply(operation)
    unsynced = disk.unsynced()
    return [disk.after(unsynced, counts) for counts in every(unsynced)]


def content(tree: Tree, name: str) -> bytes | None:
    """Return what a file holds, or None where it is not there."""
    if name not in tree:
        return None
    held = tree[name]
    assert held is not None
    n_bytes, sectors = held
    whole = b"".join(sectors.get(number, bytes(512)) for number in range(-(-n_bytes // 512)))
    return whole[:n_bytes]


def contents(name: str, trees: list[Tree]) -> set[bytes | None]:
    return {content(tree, name) for tree in trees}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Return a directory with a file of 600 bytes."""
    (tmp_path / "f").write_bytes(b"a" * 600)
    return tmp_path


def test_what_is_synced_is_there(root: Path) -> None:
    write, sync = Operation("write", "f", b"b" * 600, 0), Operation("fsync", "f")
    assert contents("f", disks(root, write, sync)) == {b"b" * 600}


def test_sectors_reach_the_disk_one_by_one(root: Path) -> None:
    found = contents("f", disks(root, Operation("write", "f", b"b" * 600, 0)))
    assert found == {first * 512 + second * 88 for first in (b"a", b"b") for second in (b"a", b"b")}


def test_a_sector_has_one_of_its_versions(root: Path) -> None:
    writes = [Operation("write", "f", letter, at) for letter, at in ((b"b", 0), (b"c", 1))]
    assert {held[:2] for held in contents("f", disks(root, *writes)) if held} == {b"aa", b"ba", b"bc"}


def test_size_and_bytes_go_their_own_ways(root: Path) -> None:
    found = contents("f", disks(root, Operation("write", "f", b"b" * 512, 1024)))
    long = b"a" * 600 + bytes(424)
    assert found == {b"a" * 600, long + bytes(512), long + b"b" * 512}


def test_a_truncation_takes_bytes_with_the_size(root: Path) -> None:
    cut, back = Operation("truncate", "f", offset=10), Operation("truncate", "f", offset=600)
    found = contents("f", disks(root, cut, back))
    assert found == {b"a" * 600, b"a" * 10, b"a" * 10 + bytes(590)}


def test_names_reach_the_disk_with_their_directory_only(root: Path) -> None:
    made = [Operation("create", "g"), Operation("write", "g", b"g", 0), Operation("fsync", "g")]
    assert contents("g", disks(root, *made)) == {None, b"g"}
    assert contents("g", disks(root, *made, Operation("fsync", "."))) == {b"g"}


def test_a_rename_is_atomic_and_may_overtake(root: Path) -> None:
    made = [Operation("create", "g"), Operation("write", "g", b"g", 0), Operation("fsync", "g")]
    found = disks(root, *made, Operation("rename", "g", target="f"))
    both = {(content(tree, "f"), content(tree, "g")) for tree in found}
    assert both == {(b"a" * 600, None), (b"a" * 600, b"g"), (b"g", None)}


def test_an_exchange_is_atomic(root: Path) -> None:
    (root / "g").write_bytes(b"g")
    found = disks(root, Operation("exchange", "f", target="g"))
    assert {(content(tree, "f"), content(tree, "g")) for tree in found} == {
        (b"a" * 600, b"g"),
        (b"g", b"a" * 600),
    }


def test_a_file_without_a_name_is_still_written_to(root: Path) -> None:
    steps = [Operation("unlink", "f"), Operation("write", "f (deleted)", b"b", 0)]
    assert contents("f", disks(root, *steps)) == {None, b"a" * 600, b"b" + b"a" * 599}


def test_a_directory_that_was_moved_takes_its_files_along(root: Path) -> None:
    steps = [
        Operation("mkdir", "d"),
        Operation("create", "d/g"),
        Operation("fsync", "d"),
        Operation("rename", "d", target="e"),
        Operation("fsync", "."),
    ]
    (tree,) = disks(root, *steps)
    assert set(tree) == {"e", "e/g", "f"}


# ---- Planted faults ----------------------------------------------------------------------------------------------


def planted(act: Act) -> Scenario:
    """Return an append that is done in another way."""
    return Scenario("planted", hold(FIXED[:2], "raw"), act, states(FIXED[:2], FIXED[:3]))


def append_with(change: Callable[[], None]) -> Act:
    """Return an append of one record, after a change of the library (which the child takes with it)."""

    def act(root: Path, reached: Report) -> None:
        change()
        with opened(root, "raw") as store:
            append(store, FIXED[2:3])
            reached(1)
        reached(1, durable=True)

    return act


def length_first() -> None:
    """Have the number of records written before the records."""
    write_at = files.write_at
    late: list[tuple[int, bytes, int]] = []

    def write(descriptor: int, data: files.Bytes, offset: int) -> None:
        name = os.path.basename(os.readlink(f"/proc/self/fd/{descriptor}"))
        if name == "0.zr":
            late.append((descriptor, bytes(data), offset))
            return
        write_at(descriptor, data, offset)
        if name == "meta.zr" and (offset, bytes(data)) == (12, struct.pack("<I", 3)):
            for given in late:
                write_at(*given)

    files.write_at = write


def no_sync() -> None:
    """Have no file reach the disk before it must."""
    files.sync = lambda _descriptor: None


def test_a_length_before_the_records_is_found(tmp_path: Path) -> None:
    cuts = cut_everywhere(planted(append_with(length_first)), tmp_path)
    assert any("shows 3 records, not 2 records" in fault or "damaged" in fault for fault in cuts.faults)


def test_missing_syncs_are_found(tmp_path: Path) -> None:
    losses = lose_power_everywhere(planted(append_with(no_sync)), tmp_path, EFFORTS["ci"], 0)
    assert losses.faults


def test_a_delete_without_a_journal_is_found(tmp_path: Path) -> None:
    several = next(scenario for scenario in scenarios("ci") if scenario.name == "delete several")

    write_at = files.write_at

    def write(descriptor: int, data: files.Bytes, offset: int) -> None:
        if os.path.basename(os.readlink(f"/proc/self/fd/{descriptor}")) != "journal.zr":
            write_at(descriptor, data, offset)

    def act(root: Path, reached: Report) -> None:
        files.write_at = write
        several.act(root, reached)

    assert cut_everywhere(replace(several, act=act), tmp_path).faults


def test_a_version_behind_the_length_is_found(tmp_path: Path) -> None:
    upgrade = next(scenario for scenario in scenarios("ci") if scenario.name == "upgrade, shuffled")

    write_at = files.write_at
    late: list[tuple[int, bytes, int]] = []

    def write(descriptor: int, data: files.Bytes, offset: int) -> None:
        if offset == 4 and len(data) == 2:
            late.append((descriptor, bytes(data), offset))
            return
        write_at(descriptor, data, offset)
        while late and offset == 12:
            write_at(*late.pop())

    def act(root: Path, reached: Report) -> None:
        files.write_at = write
        upgrade.act(root, reached)

    assert any("codec 3" in fault for fault in cut_everywhere(replace(upgrade, act=act), tmp_path).faults)


def test_what_is_left_behind_is_found(tmp_path: Path) -> None:
    def act(root: Path, reached: Report) -> None:
        with opened(root, "raw") as store:
            files.create(root / STORE / "left.zr").close()
            append(store, FIXED[2:3])
            reached(1)
        reached(1, durable=True)

    cuts = cut_everywhere(planted(act), tmp_path)
    assert any("left over ['store.zr/left.zr']" in fault for fault in cuts.faults)


def test_a_report_is_printed_and_made_into_tables() -> None:
    counts = Counts(cuts=[CutRow("append", 1200, 1200, 3, 0), CutRow("delete", 1, 1, 0, 0)], seed=5)
    ((title, lines),) = format_summary(counts)
    assert title == "Every operation, every cut"
    assert lines[1].split() == ["append", "1,200", "1,200", "3", "0"]
    assert lines[-1].split()[-4:] == ["1,201", "1,201", "3", "0"]
    assert "| append | 1,200 | 1,200 | 3 | 0 |" in as_markdown(json.loads(counts.as_json("ci")))
