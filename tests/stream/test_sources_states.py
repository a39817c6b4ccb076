"""States of sources that say what cannot be, and files that are gone: refused before a pass begins."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from loaderx.errors import StateMismatchError
from loaderx.stream import Stream
from tests.stream.source_kit import COMPRESS, json_lines, write_tar, write_texts

N = 20
Make = Callable[[], Stream]


def arrow_table() -> Any:
    import pyarrow

    return pyarrow.table({"n": range(N)})


def of_lines(folder: Path) -> Make:
    paths = write_texts(folder, [json_lines(range(N))] * 3)
    return lambda: Stream.from_jsonl(paths)


def of_tar(folder: Path) -> Make:
    members = [(f"{i}.x", b"%d" % i) for i in range(N)]
    paths = [write_tar(folder / f"part{i}.tar", members) for i in range(3)]
    return lambda: Stream.from_webdataset(paths)


def of_parquet(folder: Path) -> Make:
    import pyarrow.parquet

    paths = [folder / f"part{i}.parquet" for i in range(3)]
    for path in paths:
        pyarrow.parquet.write_table(arrow_table(), path, row_group_size=7)
    return lambda: Stream.from_parquet(paths)


def of_ipc(folder: Path) -> Make:
    import pyarrow

    paths = [folder / f"part{i}.arrow" for i in range(3)]
    for path in paths:
        with pyarrow.ipc.new_file(str(path), arrow_table().schema) as writer:
            writer.write_table(arrow_table())
    return lambda: Stream.from_arrow(paths)


def of_tables(folder: Path) -> Make:
    tables = [arrow_table()] * 3
    return lambda: Stream.from_arrow(tables)


NEEDS = pytest.mark.needs_pyarrow
FILES = [
    of_lines,
    of_tar,
    pytest.param(of_parquet, marks=NEEDS),
    pytest.param(of_ipc, marks=NEEDS),
]
#: Each with values that no reader of its can be at, though they are of the right type.
OTHERS: list[Any] = [
    pytest.param(of_tables, [N + 1], marks=NEEDS),
    (lambda folder: lambda: Stream.from_shards([range(N)] * 3), [N + 1]),
    # The open shard is the second.
    (lambda folder: lambda: Stream.from_dataset(range(3 * N), num_shards=3), [N - 1, 2 * N + 1]),
    (lambda folder: lambda: Stream.from_generator(lambda n: iter(range(N)), [1, 2, 3]), []),
]
BEYOND: list[Any] = [
    # In the middle of a line, and behind the last.
    (of_lines, [1 << 17, 1 << 40]),
    (of_tar, [100, 1 << 40]),
    pytest.param(of_parquet, [N + 1], marks=NEEDS),
    pytest.param(of_ipc, [], marks=NEEDS),
    *OTHERS,
]
WRONG: dict[str, list[Any]] = {
    "begun": [None, "x", -1, 4, 2.0, True, [], 1 << 70, 0, 1],
    "ended": [None, "x", -1, 1 << 53, 0.5],
    "turn": [None, "x", -1, 1, True, 1 << 70],
    "skipped": [None, "x", -1, 1.0, []],
    "skipped_shards": [None, -1, 4, {}],
    "unread": [None, 1, [0, 0], [1], [2], ["x"], [None]],
    "open": [None, 1, [], [None], [[1]], {"a": 1}],
}


def check_refused(make: Make, state: Any, why: str = "the saved state is damaged") -> StateMismatchError:
    resumed = make()
    resumed.load_state_dict(json.loads(json.dumps(state)))
    with pytest.raises(StateMismatchError, match=why) as caught:
        iter(resumed)
    return caught.value


def state_within(make: Make) -> Any:
    """Return a state in the middle of the second shard."""
    iterator = iter(make())
    for _ in range(N + 7):
        next(iterator)
    state = json.loads(json.dumps(iterator.state_dict()))
    iterator.close()
    return state


@pytest.mark.parametrize(("build", "beyond"), BEYOND)
def test_a_position_that_cannot_be(tmp_path: Path, build: Callable[[Path], Make], beyond: list[Any]) -> None:
    make = build(tmp_path)
    state = state_within(make)
    resumed = make()
    resumed.load_state_dict(state)
    assert len(list(resumed)) == 2 * N - 7

    def check(change: Callable[[Any], None]) -> None:
        changed = copy.deepcopy(state)
        change(changed["position"])
        # Where a shard is said to have ended that has not, the sum says so.
        check_refused(make, changed, r"is damaged|a shard that has changed|read from|in the middle of")

    for name, values in WRONG.items():
        for value in values:
            check(lambda position, name=name, value=value: position.update({name: value}))  # type: ignore[misc]
    [shard, measure, inner] = state["position"]["open"][0]
    assert shard == 1
    for other in [None, "x", 0, 2, 3, -1, True, [1]]:
        check(lambda position, other=other: position.update(open=[[other, measure, inner]]))  # type: ignore[misc]
    for other in [None, "x", -1, 0.5, [], {}]:
        check(lambda position, other=other: position.update(open=[[shard, other, inner]]))  # type: ignore[misc]
    wrong = [None, "x", -1, 0.5, True, [], *beyond]
    if isinstance(inner, dict):
        wrong += [{name: value} for name in inner for value in wrong] + [{}, 3]
    for other in wrong:
        check(lambda position, other=other: position.update(open=[[shard, measure, other]]))  # type: ignore[misc]
    check(lambda position: position.update(open=[[shard, measure, inner]] * 2))


@pytest.mark.parametrize(("build", "beyond"), BEYOND)
def test_a_key_that_cannot_be(tmp_path: Path, build: Callable[[Path], Make], beyond: list[Any]) -> None:
    source = build(tmp_path)()
    one = iter(source.shuffle(3, 1))
    next(one)
    state = one.state_dict()
    keys = state["position"]["keys"]
    assert len(keys) == 3
    for i, wrong in [(0, -1), (0, 3), (0, None), (0, "x"), (1, -1), (1, None), (1, "x")]:
        changed = copy.deepcopy(json.loads(json.dumps(state)))
        changed["position"]["keys"][1][i] = wrong
        check_refused(lambda: source.shuffle(3, 1), changed)


@pytest.mark.parametrize("suffix", [suffix for suffix in COMPRESS if suffix])
def test_a_byte_that_a_compressed_file_does_not_have(tmp_path: Path, suffix: str) -> None:
    [path] = write_texts(tmp_path, [json_lines(range(N))], suffix)
    archive = write_tar(tmp_path / "x.tar", [(f"{i}.x", b"1") for i in range(N)])
    archive.write_bytes(COMPRESS[suffix](archive.read_bytes()))
    for make in (lambda: Stream.from_jsonl(path), lambda: Stream.from_webdataset(archive)):
        iterator = iter(make())
        next(iterator)
        state = iterator.state_dict()
        state["position"]["open"][0][2] = 1 << 40
        resumed = iter(make())
        resumed.load_state_dict(state)
        for _ in range(2):
            with pytest.raises(
                StateMismatchError, match=r"is damaged: it goes on at byte \d+ of .*, which has"
            ):
                next(resumed)


@pytest.mark.needs_pyarrow
@pytest.mark.parametrize("kind", ["file", "stream"])
def test_a_row_that_an_arrow_file_does_not_have(tmp_path: Path, kind: str) -> None:
    import pyarrow

    new = pyarrow.ipc.new_stream if kind == "stream" else pyarrow.ipc.new_file
    with new(str(tmp_path / "x.arrow"), arrow_table().schema) as writer:
        writer.write_table(arrow_table())
    iterator = iter(Stream.from_arrow(tmp_path / "x.arrow"))
    next(iterator)
    state = iterator.state_dict()
    state["position"]["open"][0][2] = N + 1
    resumed = iter(Stream.from_arrow(tmp_path / "x.arrow"))
    resumed.load_state_dict(state)
    for _ in range(2):
        with pytest.raises(StateMismatchError, match=rf"goes on at row {N + 1} of .*, which has {N} rows"):
            next(resumed)


def remove(path: Path) -> str:
    path.unlink()
    return "FileNotFoundError"


def replace_by_folder(path: Path) -> str:
    path.unlink()
    path.mkdir()
    return "IsADirectoryError"


@pytest.mark.parametrize("build", FILES)
@pytest.mark.parametrize("change", [remove, replace_by_folder])
@pytest.mark.parametrize("buffer_size", [None, 30])
def test_a_file_that_is_gone(
    tmp_path: Path, build: Callable[[Path], Make], change: Callable[[Path], str], buffer_size: int | None
) -> None:
    make_source = build(tmp_path)
    paths = sorted(tmp_path.iterdir())

    def make() -> Stream:
        return make_source() if buffer_size is None else make_source().shuffle(buffer_size, 1)

    state = state_within(make)
    # One that has ended, and one that is open; of a buffer's, which are read in turns, all are.
    for path in paths[:2]:
        data = path.read_bytes()
        problem = change(path)
        error = check_refused(
            make, state, rf"has read from .*{path.name}, which cannot be .*here \({problem}"
        )
        assert list(error.mismatches) == [str(path)]
        assert problem in error.mismatches[str(path)][1]
        if path.is_dir():
            path.rmdir()
        path.write_bytes(data)
    resumed = make()
    resumed.load_state_dict(state)
    assert len(list(resumed)) == 2 * N - 7


def test_a_file_of_which_a_buffer_holds_items_and_nothing_else_is_asked(tmp_path: Path) -> None:
    """In `concatenate` nothing is left of a stream that has ended but what buffers hold of it."""
    paths = write_texts(tmp_path, [json_lines(range(N)), json_lines(range(N))])

    def make() -> Stream:
        return Stream.concatenate([Stream.from_jsonl([path]) for path in paths]).shuffle(10, 1)

    iterator = iter(make())
    for _ in range(N - 5):
        next(iterator)
    state = iterator.state_dict()
    paths[0].unlink()
    error = check_refused(make, state, r"has read from .*part0.*cannot be read here \(FileNotFoundError")
    assert list(error.mismatches) == [str(paths[0])]


def test_a_state_that_does_not_fit_can_be_asked_again_without_end() -> None:
    """Its error is the same each time, and its traceback does not grow."""
    n = N

    def give() -> Any:
        yield from range(n)

    iterator = iter(Stream.from_generator(give))
    for _ in range(N - 1):
        next(iterator)
    state = iterator.state_dict()
    n = 3
    resumed = iter(Stream.from_generator(give))
    resumed.load_state_dict(state)
    lengths = []
    for _ in range(20):
        with pytest.raises(StateMismatchError, match="gives 3 items here") as caught:
            next(resumed)
        lengths.append(len(caught.traceback))
    assert len(set(lengths[1:])) == 1
