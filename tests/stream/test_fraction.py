"""How much of its source a pass has read."""

from __future__ import annotations

import gzip
import io
import json
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from loaderx.stream import Stream

LINES = b"".join(b'{"a": %d}\n' % i for i in range(30_000))


def text(folder: Path) -> Stream:
    (folder / "a.jsonl").write_bytes(LINES)
    (folder / "b.jsonl").write_bytes(LINES)
    return Stream.from_jsonl(folder / "*.jsonl")


def compressed(folder: Path) -> Stream:
    (folder / "a.jsonl.gz").write_bytes(gzip.compress(LINES * 20))
    return Stream.from_jsonl(folder / "a.jsonl.gz")


def archives(folder: Path) -> Stream:
    for name in ("a.tar", "b.tar"):
        with tarfile.open(folder / name, "w") as archive:
            for i in range(300):
                member = tarfile.TarInfo(f"{i:04}.bin")
                member.size = 10_000
                archive.addfile(member, io.BytesIO(bytes(10_000)))
    return Stream.from_webdataset(folder / "*.tar")


def dataset(folder: Path) -> Stream:
    return Stream.from_dataset(range(10_000), num_shards=3)


def sequences(folder: Path) -> Stream:
    return Stream.from_shards([range(100), [], range(300)])


@pytest.mark.parametrize("make", [text, compressed, archives, dataset, sequences])
@pytest.mark.parametrize(
    "through",
    [
        pytest.param(lambda stream: stream, id="plain"),
        pytest.param(lambda stream: stream.shuffle(50, seed=1), id="shuffled"),
        pytest.param(lambda stream: stream.map(str).batch(3).prefetch(2), id="through_steps"),
        pytest.param(lambda stream: stream.repeat(2), id="repeated"),
        pytest.param(lambda stream: Stream.concatenate([stream, stream]), id="concatenated"),
    ],
)
def test_it_goes_from_0_to_1(
    tmp_path: Path, make: Callable[[Path], Stream], through: Callable[[Stream], Stream]
) -> None:
    passing = iter(through(make(tmp_path)))
    told = [passing.fraction()]
    for n, _ in enumerate(passing):
        if n % 97 == 0:
            told.append(passing.fraction())
    told.append(passing.fraction())
    assert (told[0], told[-1]) == (0.0, 1.0)
    fractions = [each for each in told if each is not None]
    assert len(fractions) == len(told)
    assert all(0 <= each <= 1 for each in fractions)
    assert fractions == sorted(fractions)
    assert len(set(fractions)) > 3


def test_what_was_read_before_counts(tmp_path: Path) -> None:
    for make in (archives, dataset, sequences):  # of text a block is read at once
        folder = tmp_path / make.__name__
        folder.mkdir()
        stream = make(folder)
        passing = iter(stream)
        for _ in range(250):
            next(passing)
        stream.load_state_dict(json.loads(json.dumps(passing.state_dict())))
        assert iter(stream).fraction() == passing.fraction()
        passing.close()


def test_nobody_knows() -> None:
    assert iter(Stream.from_shards([range(3)]).repeat()).fraction() is None
    assert iter(Stream.from_shards([])).fraction() is None


def test_a_part_is_measured_by_itself() -> None:
    passing = iter(Stream.from_shards([range(1000)]).take(10))
    next(passing)
    assert passing.fraction() == 0.1
