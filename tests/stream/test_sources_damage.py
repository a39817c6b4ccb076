"""Files that are cut off, damaged or not there: what is whole is given, the error once, and then what follows."""

from __future__ import annotations

import bz2
import json
import os
import random
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from loaderx.errors import ArchiveError, JsonlError, LoaderxError, StateMismatchError, StreamError
from loaderx.stream import Stream
from tests.resume import first_difference
from tests.stream.source_kit import COMPRESS, json_lines, write_tar, write_texts

Make = Callable[..., Stream]
LINES = [f"{i} {os.urandom(40).hex()}" for i in range(3_000)]


def passing(iterator: Any) -> Iterable[Any]:
    """Yield items, and in their places the errors that are raised for files."""
    while True:
        try:
            yield next(iterator)
        except StopIteration:
            return
        except (ArchiveError, OSError) as error:
            yield type(error).__name__


def check_goes_on(make: Make, whole: list[Any], n_lost: int = 1) -> None:
    """Check a stream of which `n_lost` files cannot be read to their ends, and `whole` the items of all that can.

    The errors are raised once each, or skipped and counted, or given to a function; and a state that is saved before
    any item or error, or behind the last, goes on there.
    """
    found = list(passing(iter(make())))
    errors = [item for item in found if item in ("ArchiveError", "FileNotFoundError")]
    assert len(errors) == n_lost
    assert [item for item in found if item not in errors] == whole
    skipping = iter(make(on_error="skip"))
    assert list(skipping) == whole
    assert skipping.state_dict()["position"]["skipped_shards"] == n_lost
    given: list[Exception] = []
    assert list(make(on_error=given.append)) == whole
    assert [type(error).__name__ for error in given] == errors
    assert all(error.__cause__ is not error for error in given)
    for on_error in ("raise", "skip"):
        for shape in (
            lambda stream: stream,
            lambda stream: stream.shuffle(3, 5, 2),
            lambda stream: stream.shuffle(20, 1, 10),
            lambda stream: stream.batch(2),
        ):
            check_states(lambda shape=shape, on_error=on_error: shape(make(on_error=on_error)))  # type: ignore[misc]


def check_states(make: Make) -> None:
    """Save before items and errors, and at the end; restore each in a fresh stream through JSON; compare the rest."""
    iterator = iter(make())
    states, whole = [], []
    following = iter(passing(iterator))
    while True:
        states.append(json.dumps(iterator.state_dict()))
        try:
            whole.append(next(following))
        except StopIteration:
            break
    picked = (
        range(len(states)) if len(states) < 30 else sorted({*range(0, len(states), 211), len(states) - 1})
    )
    for at in [
        *picked,
        *(i + 1 for i, item in enumerate(whole) if isinstance(item, str) and "Error" in item),
    ]:
        resumed = iter(make())
        resumed.load_state_dict(json.loads(states[at]))
        assert json.dumps(resumed.state_dict()) == states[at]
        place = first_difference(whole[at:], list(passing(resumed)))
        assert place is None, f"state {at}: differs at +{place}"


@pytest.mark.parametrize("suffix", [suffix for suffix in COMPRESS if suffix])
def test_text(tmp_path: Path, suffix: str) -> None:
    paths = write_texts(tmp_path, [json_lines(["a", "b"]), json_lines(LINES), b"", json_lines(["c"])], suffix)
    paths[1].write_bytes(paths[1].read_bytes()[:-200])
    probe = iter(Stream.from_jsonl(paths[1]))
    some: list[str] = []
    with pytest.raises(ArchiveError) as caught:
        some.extend(probe)
    assert some == LINES[: len(some)]
    # Every whole line of what could be decompressed.
    assert len(some) == json_lines(LINES)[: caught.value.whole_bytes].count(b"\n")
    whole = ["a", "b", *some, "c"]
    check_goes_on(lambda **options: Stream.from_jsonl(paths, **options), whole)
    text = ['"a"', '"b"', *map(json.dumps, some), '"c"']
    assert list(Stream.from_text(paths, on_error="skip")) == text


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    paths = write_texts(tmp_path, [json_lines([1, 2]), b"", json_lines([3]), b"", json_lines([4, 5])])
    paths[1] = tmp_path / "gone"
    paths[3] = tmp_path / "gone too"
    check_goes_on(lambda **options: Stream.from_jsonl(paths, **options), [1, 2, 3, 4, 5], 2)
    check_goes_on(lambda **options: Stream.from_jsonl(paths[1:], **options), [3, 4, 5], 2)
    check_goes_on(lambda **options: Stream.from_jsonl(paths[:4], **options), [1, 2, 3], 2)
    check_goes_on(lambda **options: Stream.from_jsonl([paths[1], paths[3]], **options), [], 2)


def test_a_folder_among_files_and_one_of_another_kind(tmp_path: Path) -> None:
    paths = write_texts(tmp_path, [json_lines([1]), b"PK\x03\x04", json_lines([2])])
    with pytest.raises(IsADirectoryError):
        list(Stream.from_jsonl([paths[0], tmp_path]))
    iterator = iter(Stream.from_jsonl([*paths, tmp_path], on_error="skip"))
    assert list(iterator) == [1, 2]
    assert iterator.state_dict()["position"]["skipped_shards"] == 2


def test_names_that_lead_nowhere(tmp_path: Path) -> None:
    """As a file that is not there: no matter how often it was asked for, no other answer would come."""
    [path] = write_texts(tmp_path, [json_lines([1])])
    (tmp_path / "circle").symlink_to("circle")
    (tmp_path / "dead").symlink_to("gone")
    for name in ("circle", "dead", "x" * 300, "part0.jsonl/x"):
        iterator = iter(Stream.from_jsonl([tmp_path / name, path]))
        with pytest.raises(OSError, match=name[:10]):
            next(iterator)
        assert list(iterator) == [1]
        skipping = iter(Stream.from_jsonl([tmp_path / name, path], on_error="skip"))
        assert list(skipping) == [1]
        assert skipping.counts() == [{"step": "source", "skipped_shards": 1}]


def test_counts_say_how_many_files_were_left_out(tmp_path: Path) -> None:
    paths = write_texts(tmp_path, [b"1\nno\n2\n"])
    iterator = iter(Stream.from_jsonl([tmp_path / "gone", paths[0], paths[0]], on_error="skip"))
    assert [next(iterator), next(iterator)] == [1, 2]
    assert iterator.counts() == [{"step": "source", "skipped": 1, "skipped_shards": 1}]
    resumed = iter(Stream.from_jsonl([tmp_path / "gone", paths[0], paths[0]], on_error="skip"))
    resumed.load_state_dict(json.loads(json.dumps(iterator.state_dict())))
    assert [next(resumed), next(resumed)] == [1, 2]
    assert resumed.counts() == [{"step": "source", "skipped": 2, "skipped_shards": 1}]


def test_a_file_that_comes_back_stays_behind_and_one_that_goes_is_refused(tmp_path: Path) -> None:
    paths = write_texts(tmp_path, [json_lines([1]), json_lines([2]), json_lines([3, 4])])
    aside = paths[1].rename(tmp_path / "aside")
    make = lambda: Stream.from_jsonl(paths, on_error="skip")  # noqa: E731
    iterator = iter(make())
    assert [next(iterator), next(iterator)] == [1, 3]
    state = json.dumps(iterator.state_dict())
    aside.rename(paths[1])
    resumed = iter(make())
    resumed.load_state_dict(json.loads(state))
    assert list(resumed) == [4]
    paths[0].unlink()
    with pytest.raises(StateMismatchError, match=r"has read from .*part0.* cannot be read here \(FileNotF"):
        iter(make()).load_state_dict(json.loads(state))
    write_texts(tmp_path, [json_lines([1])])
    paths[2].unlink()
    with pytest.raises(StateMismatchError, match=r"has read from .*part2.* cannot be read here \(FileNotF"):
        iter(make()).load_state_dict(json.loads(state))


def test_what_the_machine_refuses_is_asked_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = write_texts(tmp_path, [json_lines([1]), json_lines([2])])
    iterator = iter(Stream.from_jsonl(paths, on_error="skip"))
    assert next(iterator) == 1
    with monkeypatch.context() as patch:

        def refuse(*args: Any) -> Any:
            raise OSError(24, "Too many open files")

        patch.setattr("loaderx.stream.lines.Text", refuse)
        for _ in range(2):
            with pytest.raises(OSError, match="Too many"):
                next(iterator)
    assert list(iterator) == [2]


def test_a_function_that_raises(tmp_path: Path) -> None:
    paths = write_texts(tmp_path, [json_lines([1]), b"1\nno\n", json_lines([2])])

    def refuse(error: Exception) -> Any:
        raise KeyError(type(error).__name__)

    iterator = iter(Stream.from_jsonl([paths[0], tmp_path / "gone", *paths[1:]], on_error=refuse))
    assert next(iterator) == 1
    with pytest.raises(KeyError, match="FileNotFoundError"):
        next(iterator)
    assert next(iterator) == 1
    with pytest.raises(KeyError, match="JsonlError"):
        next(iterator)
    assert list(iterator) == [2]
    assert iterator.counts() == []


def test_a_function_that_raises_stop_iteration_does_not_end_the_pass(tmp_path: Path) -> None:
    paths = write_texts(tmp_path, [b"1\n{\n2\n3\n"])
    archive = write_tar(tmp_path / "x.tar", [("a.x", b"1"), ("a.x", b"2"), ("b.x", b"3")])

    def stop(error: Exception) -> Any:
        raise StopIteration

    iterator = iter(Stream.from_jsonl(paths, on_error=stop))
    assert next(iterator) == 1
    with pytest.raises(RuntimeError, match="on_error raised StopIteration"):
        next(iterator)
    assert list(iterator) == [2, 3]
    iterator = iter(Stream.from_webdataset(archive, on_error=stop))
    with pytest.raises(RuntimeError, match="on_error raised StopIteration"):
        next(iterator)
    assert list(iterator) == [{"__key__": "b", "x": b"3"}]
    iterator = iter(Stream.from_jsonl([tmp_path / "gone", *paths], on_error=stop))
    with pytest.raises(RuntimeError, match="on_error raised StopIteration"):
        next(iterator)
    assert next(iterator) == 1


def test_an_empty_file_whose_name_says_that_it_is_compressed(tmp_path: Path) -> None:
    for suffix in COMPRESS:
        path = tmp_path / f"x.jsonl{suffix}"
        path.write_bytes(b"")
        if not suffix:
            assert list(Stream.from_jsonl(path)) == []
            continue
        with pytest.raises(
            ArchiveError, match=r"cut off: .* the file is empty, and one of no text would not"
        ):
            list(Stream.from_jsonl(path))
        assert list(Stream.from_jsonl(path, on_error="skip")) == []


class TestTar:
    N = 3_000

    def archive(self, folder: Path) -> tuple[Path, list[dict[str, Any]]]:
        """Write one of samples of 1 KiB each: a header, and some data."""
        samples = [
            {"__key__": f"s{i:05}", "x": f"{random.Random(i).random()}".encode()} for i in range(self.N)
        ]
        return write_tar(folder / "x.tar", [(f"{s['__key__']}.x", s["x"]) for s in samples]), samples

    def check(self, folder: Path, path: Path, whole: list[dict[str, Any]]) -> None:
        other = write_tar(folder / "y.tar", [("y.x", b"1")])
        check_goes_on(
            lambda **options: Stream.from_webdataset([path, other], **options),
            [*whole, {"__key__": "y", "x": b"1"}],
        )

    def test_cut_off_in_the_middle_of_a_member(self, tmp_path: Path) -> None:
        path, samples = self.archive(tmp_path)
        path.write_bytes(path.read_bytes()[: 1_024 * 2_000 + 700])
        self.check(tmp_path, path, samples[:2_000])

    def test_a_short_one(self, tmp_path: Path) -> None:
        path, samples = self.archive(tmp_path)
        path.write_bytes(path.read_bytes()[: 1_024 * 3 + 700])
        self.check(tmp_path, path, samples[:3])

    def test_a_header_that_is_wrong(self, tmp_path: Path) -> None:
        path, samples = self.archive(tmp_path)
        data = bytearray(path.read_bytes())
        data[1_024 * 1_300 + 5] ^= 1
        path.write_bytes(data)
        # Whether the sample before it has another member nobody knows.
        self.check(tmp_path, path, samples[:1_299])

    @pytest.mark.parametrize("suffix", [suffix for suffix in COMPRESS if suffix])
    def test_compressed(self, tmp_path: Path, suffix: str) -> None:
        path, samples = self.archive(tmp_path)
        packed = tmp_path / f"x.tar{suffix}"
        packed.write_bytes(COMPRESS[suffix](path.read_bytes())[: -4_000 if suffix != ".bz2" else -30_000])
        found: list[Any] = []
        with pytest.raises(ArchiveError) as caught:
            found.extend(Stream.from_webdataset(packed))
        assert caught.value.problem == "cut off"
        # All samples behind which another one's header could be read.
        assert len(found) == max(0, (caught.value.whole_bytes - 512) // 1_024)
        self.check(tmp_path, packed, samples[: len(found)])

    def test_a_compressed_one_of_which_only_the_check_is_wrong(self, tmp_path: Path) -> None:
        path, samples = self.archive(tmp_path)
        packed = tmp_path / "x.tar.gz"
        data = bytearray(COMPRESS[".gz"](path.read_bytes() + b"\0" * 3_000_000))
        data[-6] ^= 1
        packed.write_bytes(data)
        self.check(tmp_path, packed, samples)

    def test_a_compressed_one_that_is_damaged_in_the_middle(self, tmp_path: Path) -> None:
        path, samples = self.archive(tmp_path)
        packed = tmp_path / "x.tar.bz2"
        data = path.read_bytes()
        cut = 1_024 * 1_500 + 600
        packed.write_bytes(bz2.compress(data[:cut]) + b"BZh91AY&SY" + os.urandom(3_000))
        self.check(tmp_path, packed, samples[:1_500])


@pytest.mark.needs_pyarrow
class TestArrow:
    def test_parquet(self, tmp_path: Path) -> None:
        import pyarrow
        import pyarrow.parquet

        paths = [tmp_path / f"{i}.parquet" for i in range(3)]
        for i, path in enumerate(paths):
            table = pyarrow.table(
                {"n": range(100 * i, 100 * i + 60), "text": [f"{j:050}" for j in range(60)]}
            )
            pyarrow.parquet.write_table(table, path, row_group_size=20, compression="snappy")
        begin = pyarrow.parquet.ParquetFile(paths[1]).metadata.row_group(1).column(0).dictionary_page_offset
        data = bytearray(paths[1].read_bytes())
        data[begin : begin + 200] = b"\xff" * 200
        paths[1].write_bytes(data)
        numbers = [*range(60), *range(100, 120), *range(200, 260)]
        whole = [{"n": n, "text": f"{n % 100:050}"} for n in numbers]
        check_goes_on(lambda **options: Stream.from_parquet(paths, **options), whole)
        paths[1].write_bytes(data[:-100])
        check_goes_on(lambda **options: Stream.from_parquet(paths, **options), [*whole[:60], *whole[80:]])
        paths[1].write_bytes(b"")
        check_goes_on(lambda **options: Stream.from_parquet(paths, **options), [*whole[:60], *whole[80:]])
        paths[1].unlink()
        check_goes_on(lambda **options: Stream.from_parquet(paths, **options), [*whole[:60], *whole[80:]])

    @pytest.mark.parametrize("kind", ["file", "stream"])
    def test_ipc(self, tmp_path: Path, kind: str) -> None:
        import pyarrow

        paths = [tmp_path / f"{i}.arrow" for i in range(3)]
        for i, path in enumerate(paths):
            table = pyarrow.table({"n": range(100 * i, 100 * i + 60)})
            new = pyarrow.ipc.new_stream if kind == "stream" else pyarrow.ipc.new_file
            with new(str(path), table.schema) as writer:
                for batch in table.to_batches(max_chunksize=20):
                    writer.write_batch(batch)
        n_whole = 40 if kind == "stream" else 0
        paths[1].write_bytes(paths[1].read_bytes()[:-250])
        numbers = [*range(60), *range(100, 100 + n_whole), *range(200, 260)]
        check_goes_on(lambda **options: Stream.from_arrow(paths, **options), [{"n": n} for n in numbers])
        paths[1].unlink()
        numbers = [*range(60), *range(200, 260)]
        check_goes_on(lambda **options: Stream.from_arrow(paths, **options), [{"n": n} for n in numbers])

    @pytest.mark.parametrize("kind", ["parquet", "table", "arrow"])
    def test_rows_of_which_no_object_can_be_made(self, tmp_path: Path, kind: str) -> None:
        import pyarrow
        import pyarrow.parquet

        pieces = [b"a", b"b", b"\xff", b"c", b"\xfe", b"d"]
        text = pyarrow.array(pieces, pyarrow.binary()).view(pyarrow.string())
        table = pyarrow.table({"n": range(6), "text": text})
        source: Any = table
        if kind == "parquet":
            source = tmp_path / "x.parquet"
            pyarrow.parquet.write_table(table, source)
        if kind == "arrow":
            source = tmp_path / "x.arrow"
            with pyarrow.ipc.new_file(str(source), table.schema) as writer:
                writer.write_table(table)

        def make(**options: Any) -> Stream:
            return (Stream.from_parquet if kind == "parquet" else Stream.from_arrow)(source, **options)

        whole = [{"n": n, "text": pieces[n].decode()} for n in (0, 1, 3, 5)]
        iterator = iter(make())
        assert [next(iterator), next(iterator)] == whole[:2]
        with pytest.raises(
            StreamError, match=r"row 2: column 'text' of type string cannot be .*UnicodeDecodeError"
        ) as caught:
            next(iterator)
        assert isinstance(caught.value.__cause__, UnicodeDecodeError)
        state = json.dumps(iterator.state_dict())
        assert next(iterator) == whole[2]
        resumed = iter(make())
        resumed.load_state_dict(json.loads(state))
        assert next(resumed) == whole[2]
        for on_error in ("skip", lambda error: error.where[-1]):
            expected = whole if on_error == "skip" else [*whole[:2], "2", whole[2], "4", whole[3]]
            assert list(make(on_error=on_error)) == expected
            for shape in (lambda stream: stream, lambda stream: stream.shuffle(3)):
                check_states(lambda shape=shape, on_error=on_error: shape(make(on_error=on_error)))  # type: ignore[misc]
        iterator = iter(make(on_error="skip"))
        list(iterator)
        assert iterator.state_dict()["position"]["skipped"] == 2
        # Of the five that a buffer of six holds behind the first item, one at least is bad.
        buffered = iter(make(on_error=lambda error: "bad").shuffle(6))
        next(buffered)
        state = json.dumps(buffered.state_dict())
        refused = iter(make(on_error="skip").shuffle(6))
        with pytest.raises(StreamError, match=r"row .: column .*The state holds what was made of this item"):
            refused.load_state_dict(json.loads(state))

    def test_times_to_the_nanosecond(self) -> None:
        import pyarrow

        table = pyarrow.table({"t": pyarrow.array([1_000, 1_001], pyarrow.timestamp("ns"))})
        iterator = iter(Stream.from_arrow(table))
        assert next(iterator)["t"].microsecond == 1
        if hasattr(table["t"][0].as_py(), "nanosecond"):
            pytest.skip("pandas is installed, whose times have nanoseconds")
        with pytest.raises(
            StreamError, match=r"from_arrow: table 0, row 1: column 't' of type timestamp\[ns\]"
        ):
            next(iterator)


def test_more_blank_lines_than_a_place_has_room_for(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    items = [{"n": i} for i in range(50)]
    path.write_bytes(b"\n" * 131_072 + json_lines(items))
    for shape in (lambda stream: stream.shuffle(10), lambda stream: stream.batch(3)):
        iterator = iter(shape(Stream.from_jsonl(path)))
        next(iterator)
        state = json.dumps(iterator.state_dict())
        resumed = iter(shape(Stream.from_jsonl(path)))
        resumed.load_state_dict(json.loads(state))
        assert list(resumed) == list(iterator)
    path.write_bytes(b"\n" * 131_072 + b"no\n")
    with pytest.raises(JsonlError, match=r"line 131073 \(byte 131072\)"):
        list(Stream.from_jsonl(path))


def test_errors_of_loaderx_are_not_their_own_cause(tmp_path: Path) -> None:
    path = write_tar(tmp_path / "x.tar", [("a.x", b"1"), ("a.x", b"2")])

    def fail() -> Any:
        raise LoaderxError("mine")
        yield

    for stream in (Stream.from_webdataset(path), Stream.from_generator(fail)):
        with pytest.raises(LoaderxError) as caught:
            list(stream)
        assert caught.value.__cause__ is None
