"""Reading files in blocks: in a process that was forked in the midst of it, and behind an error of the machine."""

from __future__ import annotations

import errno
import importlib
import importlib.util
import io
import itertools
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from loaderx.errors import StreamError
from loaderx.stream import Stream
from tests.resume import first_difference
from tests.store.children import in_child
from tests.stream.source_kit import COMPRESS, json_lines, write_tar, write_texts

N = 4_000
# Where a state is saved.
AT = 1_000
ITEMS = [f"{i} {os.urandom(60).hex()}" for i in range(N)]


def write_archive(path: Path, suffix: str) -> Path:
    write_tar(path, [(f"{i}.x", item.encode()) for i, item in enumerate(ITEMS)])
    path.write_bytes(COMPRESS[suffix](path.read_bytes()))
    return path


def make_lines(folder: Path, suffix: str) -> Callable[[], Stream]:
    [path] = write_texts(folder, [json_lines(ITEMS)], suffix)
    return lambda: Stream.from_jsonl(path)


def make_samples(folder: Path, suffix: str) -> Callable[[], Stream]:
    path = write_archive(folder / f"x.tar{suffix}", suffix)
    return lambda: Stream.from_webdataset(path).map(lambda sample: sample["x"].decode())


def make_parquet(folder: Path, suffix: str) -> Callable[[], Stream]:
    import pyarrow
    import pyarrow.parquet

    table = pyarrow.table({"text": ITEMS})
    pyarrow.parquet.write_table(table, folder / "x.parquet", row_group_size=2_500)
    return lambda: Stream.from_parquet(folder / "x.parquet").map(lambda row: row["text"])


def make_ipc(folder: Path, suffix: str) -> Callable[[], Stream]:
    import pyarrow

    table = pyarrow.table({"text": ITEMS})
    new = pyarrow.ipc.new_stream if suffix == "stream" else pyarrow.ipc.new_file
    with new(str(folder / "x.arrow"), table.schema) as writer:
        for batch in table.to_batches(max_chunksize=1_500):
            writer.write_batch(batch)
    return lambda: Stream.from_arrow(folder / "x.arrow").map(lambda row: row["text"])


KINDS = [
    *[pytest.param(make_lines, suffix, id=f"jsonl{suffix}") for suffix in COMPRESS],
    *[pytest.param(make_samples, suffix, id=f"tar{suffix}") for suffix in COMPRESS],
    pytest.param(make_parquet, "", id="parquet", marks=pytest.mark.needs_pyarrow),
    *[
        pytest.param(make_ipc, kind, id=f"arrow-{kind}", marks=pytest.mark.needs_pyarrow)
        for kind in ("file", "stream")
    ],
]


@pytest.mark.parametrize(("make", "suffix"), KINDS)
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")  # there are threads of pyarrow's
@pytest.mark.filterwarnings(
    "ignore:os.fork.. was called:RuntimeWarning"
)  # and of JAX, where that is imported
def test_an_iterator_goes_on_in_both_processes(
    tmp_path: Path, make: Callable[[Path, str], Callable[[], Stream]], suffix: str
) -> None:
    iterator = iter(make(tmp_path, suffix)())
    begun = [next(iterator) for _ in range(10)]
    assert first_difference([*begun, *in_child(lambda: list(iterator))], ITEMS) is None
    begun += [next(iterator) for _ in range(2_500)]
    # One that goes on, after the parent has, from where it was; and one that lets go of it.
    assert first_difference([*begun, *in_child(lambda: list(iterator))], ITEMS) is None
    in_child(iterator.close)
    assert first_difference([*begun, *iterator], ITEMS) is None


class FailsOnce:
    """Calls of functions are counted; that of one number raises before it does anything, the first time."""

    def __init__(self) -> None:
        self.n_calls = 0
        self.failing = -1

    def check(self) -> None:
        self.n_calls += 1
        if self.n_calls == self.failing:
            raise OSError(errno.EIO, "Input/output error")

    def wrap(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **options: Any) -> Any:
            self.check()
            return function(*args, **options)

        return call

    def wrap_iteration(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Have each step of what a function iterates over count as a call."""

        def iterate(*args: Any, **options: Any) -> Any:
            for each in function(*args, **options):
                self.check()
                yield each

        return iterate


class FailingFile(io.BufferedReader):
    fails: FailsOnce

    def read(self, size: int | None = -1, /) -> bytes:
        self.fails.check()
        return super().read(size)


@pytest.fixture
def fails(monkeypatch: pytest.MonkeyPatch) -> FailsOnce:
    """Wherever a block of a file is read."""
    fails = FailsOnce()

    def open_failing(path: Path, mode: str) -> FailingFile:
        file = FailingFile(open(path, mode, buffering=0))  # type: ignore[arg-type]  # noqa: SIM115
        file.fails = fails
        return file

    monkeypatch.setattr("os.pread", fails.wrap(os.pread))
    monkeypatch.setattr("loaderx.stream.text.open", fails.wrap(open), raising=False)
    monkeypatch.setattr("loaderx.jsonl.archives.open", open_failing, raising=False)
    monkeypatch.setattr(
        "loaderx.stream.arrow._IpcFile.batches",
        fails.wrap_iteration(importlib.import_module("loaderx.stream.arrow")._IpcFile.batches),
    )
    if importlib.util.find_spec("pyarrow") is not None:
        parquet = importlib.import_module("pyarrow.parquet")
        wrapped = fails.wrap_iteration(parquet.ParquetFile.iter_batches)
        monkeypatch.setattr(parquet.ParquetFile, "iter_batches", wrapped)
    return fails


@pytest.mark.parametrize(("make", "suffix"), KINDS)
def test_behind_an_error_of_the_machine_nothing_is_missing(
    tmp_path: Path,
    make: Callable[[Path, str], Callable[[], Stream]],
    suffix: str,
    fails: FailsOnce,
) -> None:
    build = make(tmp_path, suffix)
    begun = iter(build())
    for _ in range(AT):
        next(begun)
    state = json.dumps(begun.state_dict())
    begun.close()

    def run(failing: int) -> tuple[int, int]:
        """Go on with that read failing; return how many errors came, and how many reads there were."""
        resumed = build()
        resumed.load_state_dict(json.loads(state))
        iterator = iter(resumed)
        fails.n_calls, fails.failing = 0, failing
        found: list[Any] = []
        n_errors = 0
        while True:
            try:
                found.extend(iterator)
                break
            except OSError as error:
                assert error.errno == errno.EIO
                n_errors += 1
                # A state that is saved there goes on there, too.
                saved = json.dumps(iterator.state_dict())
                elsewhere = iter(build())
                elsewhere.load_state_dict(json.loads(saved))
                assert first_difference(list(elsewhere), ITEMS[AT + len(found) :]) is None
        assert first_difference(found, ITEMS[AT:]) is None
        return n_errors, fails.n_calls

    n_errors, n_reads = run(-1)
    assert (n_errors, n_reads > 0) == (0, True)
    for failing in {1, n_reads // 2, n_reads} - {0}:
        assert run(failing)[0] == 1, failing


@pytest.mark.parametrize("suffix", COMPRESS)
def test_the_place_of_each_bad_line(tmp_path: Path, suffix: str, fails: FailsOnce) -> None:
    """Thousands of bad lines, of which each says where it is: from any beginning, and without reading all for each."""
    mark = b"\xef\xbb\xbf"
    lines = [b"%d" % i if i % 3 else b"no %d" % i + b"!" * (i % 50) for i in range(12_000)]
    lines[5:8] = [b"", b" \r", b"no 7\r"]
    text = mark + b"\n".join(lines)
    begins = [0, *itertools.accumulate(len(line) + 1 for line in lines)]
    expected: list[Any] = [
        (i + 1, begins[i] + (len(mark) if i else 0)) if line.startswith(b"no") else int(line)
        for i, line in enumerate(lines)
        if line.strip()
    ]
    [path] = write_texts(tmp_path, [text], suffix)

    def make() -> Stream:
        return Stream.from_jsonl(path, on_error=lambda error: (error.line_number, error.byte_offset))

    list(Stream.from_jsonl(path, on_error="skip"))
    n_reads = fails.n_calls
    iterator = iter(make())
    found, states = [], []
    for item in iterator:
        found.append(item)
        if len(found) % 3_001 == 0:
            states.append((len(found), json.dumps(iterator.state_dict())))
    assert first_difference(found, expected) is None
    assert fails.n_calls == 2 * n_reads
    for at, state in states:
        resumed = iter(make())
        resumed.load_state_dict(json.loads(state))
        fails.n_calls = 0
        assert first_difference(list(resumed), expected[at:]) is None
        # Once for the lines before it, and once for those behind.
        assert fails.n_calls <= 2 * n_reads + 2
    held = iter(make().shuffle(5_000, 1))
    begun = [next(held) for _ in range(2_000)]
    shuffled = json.dumps(held.state_dict())
    resumed = iter(make().shuffle(5_000, 1))
    fails.n_calls = 0
    resumed.load_state_dict(json.loads(shuffled))
    assert sorted([*begun, *resumed], key=repr) == sorted(expected, key=repr)
    assert fails.n_calls <= 4 * n_reads


@pytest.mark.parametrize("suffix", COMPRESS)
def test_the_place_of_an_item_of_the_block_that_is_being_read(
    tmp_path: Path, suffix: str, fails: FailsOnce
) -> None:
    [path] = write_texts(tmp_path, [b"\xef\xbb\xbf" + b"".join(b"%d\n" % i for i in range(9_000))], suffix)
    passing = iter(Stream.from_jsonl(path).map(lambda n: 1 // (n % 2)))
    begins = [0, *itertools.accumulate(len(b"%d\n" % i) for i in range(9_000))]
    before = None
    for i in range(0, 9_000, 2):
        with pytest.raises(StreamError) as caught:
            next(passing)
        assert caught.value.where == f"{path}, byte {begins[i] + (3 if i else 0)}"
        before = before or fails.n_calls
        assert next(passing) == 1
    assert fails.n_calls <= before + 1
