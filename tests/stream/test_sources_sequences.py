"""Sequences, datasets, iterables and generators as sources, and the shuffle of all their items."""

from __future__ import annotations

import json
import pickle
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import loaderx
from loaderx.errors import ClosedError, OptionError, StateMismatchError, StreamError
from loaderx.jsonl import JsonlDataset, build_index
from loaderx.stream.sequences import Ranges, Sequences
from loaderx.stream.shards import MISSING
from loaderx.stream.stream import Stream
from loaderx.tokens import TokensDataset, tokenize
from tests.resume import check_stream_resumes, same
from tests.stream.source_kit import check_resume, check_source, json_lines
from tests.stream.workers_kit import ten

SHARDS: list[Sequence[Any]] = [[1, {"a": 2}], [], (3,), ["a", "b"], range(5, 9), np.arange(2)]
EXPECTED = [1, {"a": 2}, 3, "a", "b", 5, 6, 7, 8, np.int64(0), np.int64(1)]


class Plain:
    """A dataset with len and [i] alone, which counts what it is asked for."""

    def __init__(self, n: int) -> None:
        self.n = n
        self.asked: list[int] = []

    def __len__(self) -> int:
        return self.n

    def __getitem__(self, index: int) -> str:
        if not 0 <= index < self.n:
            raise IndexError(index)
        self.asked.append(index)
        return f"item {index}"


class Batched(Plain):
    """One that gives several at once, as datasets for PyTorch do."""

    def __getitems__(self, indices: list[int]) -> list[str]:
        assert type(indices) is list and all(type(index) is int for index in indices)
        return [self[index] for index in indices]


class Failing(Batched):
    """One whose item 5 cannot be read."""

    def __getitem__(self, index: int) -> str:
        if index == 5:
            raise KeyError("five")
        return super().__getitem__(index)


def test_shards_of_every_kind() -> None:
    check_source(lambda: Stream.from_shards(SHARDS), EXPECTED)


@pytest.mark.parametrize("shards", [[], [[]], [[], [], []]])
def test_nothing(shards: list[list[int]]) -> None:
    check_source(lambda: Stream.from_shards(shards), [])
    assert check_resume(lambda: Stream.from_shards(shards).shuffle(None)) == []


@pytest.mark.parametrize("kind", [Plain, Batched])
@pytest.mark.parametrize("num_shards", [None, 1, 3, 20])
def test_datasets(kind: type[Plain], num_shards: int | None) -> None:
    dataset = kind(11)
    check_source(
        lambda: Stream.from_dataset(dataset, num_shards=num_shards), [f"item {i}" for i in range(11)]
    )


def test_an_empty_dataset() -> None:
    check_source(lambda: Stream.from_dataset(Plain(0)), [])
    assert check_resume(lambda: Stream.from_dataset(Plain(0), num_shards=4).shuffle(None)) == []


def test_large_datasets_have_several_shards() -> None:
    assert [len(Ranges(range(n))) for n in (0, 1, 4096, 8192, 10**7)] == [1, 1, 1, 2, 64]
    shards = Ranges(range(10_007), 7)
    assert [key for key in shards.keys_at(range(10_007)) if not 0 <= key[0] < 7] == []
    for shard in range(7):
        reader = shards.open(shard)
        places = []
        while True:
            try:
                pull = reader.block()
            except StopIteration:
                break
            places += _drain(pull)
        assert places == shards.keys_at([place for _, place in places])
        assert len(places) in (1429, 1430)


def _drain(pull: Callable[[], Any]) -> list[Any]:
    keys = []
    while True:
        try:
            keys.append(pull()[0])
        except StopIteration:
            return keys


def open_datasets(folder: Path) -> Iterator[tuple[Any, int]]:
    """Yield one dataset of each kind of loaderx's, and its number of samples."""
    rng = np.random.default_rng(0)
    loaderx.write_dataset(folder / "rows", rng.random((21, 2, 3), np.float32), progress=False)
    loaderx.write_dataset(folder / "labels", np.arange(9, dtype=np.int16), progress=False)
    loaderx.write_ragged(folder / "ragged", [rng.random((n, 2)) for n in (0, 3, 1, 2)], progress=False)
    (folder / "text").mkdir()
    (folder / "text" / "a.jsonl").write_bytes(json_lines({"n": i} for i in range(13)))
    build_index(folder / "text")
    documents = ["ab", "cde", "fgh", "ijklmn"]
    tokenize(documents, folder / "tokens", lambda text: list(text.encode()), eos_id=0, sample_size=3)
    tokenize(
        documents,
        folder / "sided",
        lambda text: list(text.encode()),
        eos_id=0,
        sample_size=3,
        side_streams=["positions"],
    )
    yield loaderx.Dataset(folder / "rows"), 21
    yield loaderx.Dataset(folder / "labels"), 9
    yield loaderx.RaggedDataset(folder / "ragged"), 4
    yield JsonlDataset(folder / "text"), 13
    tokens, sided = TokensDataset(folder / "tokens"), TokensDataset(folder / "sided")
    yield tokens, len(tokens)
    yield sided, len(sided)


def test_datasets_of_loaderx_give_what_their_items_are(tmp_path: Path) -> None:
    for dataset, n in open_datasets(tmp_path):
        expected = [dataset[i] for i in range(n)]
        check_source(lambda: Stream.from_dataset(dataset, num_shards=2), expected)  # noqa: B023
        shuffled = check_resume(lambda: Stream.from_dataset(dataset).shuffle(None, 3))  # noqa: B023
        assert sorted(map(repr, shuffled)) == sorted(map(repr, expected))
        for sample in shuffled:
            if isinstance(sample, np.ndarray):
                assert sample.base is None  # else one sample would keep a whole batch
        shards = pickle.loads(pickle.dumps(Ranges(dataset, 2)))
        assert same(shards.fetch(range(n)), expected)
        dataset.close()


def test_bad_lines_of_a_dataset_are_left_out_and_counted(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes(b"1\nnope\n3\n" * 5 + b"nope\n")
    build_index(tmp_path)
    with JsonlDataset(tmp_path, on_error="skip") as dataset:
        check_source(lambda: Stream.from_dataset(dataset, num_shards=2), [1, 3] * 5)
        assert sorted(check_resume(lambda: Stream.from_dataset(dataset).shuffle(None))) == [1] * 5 + [3] * 5
        assert Ranges(dataset).fetch([1, 0]) == [MISSING, 1]
        for stream in (Stream.from_dataset(dataset), Stream.from_dataset(dataset).shuffle(None)):
            iterator = iter(stream)
            counts = []
            for _ in iterator:
                counts.append(iterator.state_dict()["position"]["skipped"])
                resumed = iter(stream)
                resumed.load_state_dict(json.loads(json.dumps(iterator.state_dict())))
                list(resumed)
                assert resumed.state_dict()["position"]["skipped"] == 6
            assert counts == sorted(counts)
            assert iterator.state_dict()["position"]["skipped"] == 6


@pytest.mark.parametrize("kind", [Failing, type("Alone", (Failing,), {"__getitems__": None})])
def test_a_sample_that_cannot_be_read(kind: type[Failing]) -> None:
    iterator = iter(Stream.from_dataset(kind(9)))
    assert [next(iterator) for _ in range(5)] == [f"item {i}" for i in range(5)]
    with pytest.raises(StreamError, match=r"index 5: could not be read: KeyError: 'five'") as caught:
        next(iterator)
    assert isinstance(caught.value.__cause__, KeyError)
    state = json.dumps(iterator.state_dict())
    assert list(iterator) == ["item 6", "item 7", "item 8"]
    resumed = iter(Stream.from_dataset(kind(9)))
    resumed.load_state_dict(json.loads(state))
    assert list(resumed) == ["item 6", "item 7", "item 8"]
    found = []
    iterator = iter(Stream.from_dataset(kind(9)).shuffle(None))
    with pytest.raises(StreamError, match="index 5: could"):
        found.extend(iterator)
    assert len(found) + len(list(iterator)) == 8


def test_a_shard_whose_item_cannot_be_read() -> None:
    iterator = iter(Stream.from_shards([Failing(7)]))
    found = []
    with pytest.raises(StreamError, match=r"shard 0, index 5: could not be read: KeyError"):
        found.extend(iterator)
    assert list(iterator) == ["item 6"]

    class Stopping(Plain):
        def __getitem__(self, index: int) -> str:
            if index == 1:
                raise StopIteration
            return super().__getitem__(index)

    iterator = iter(Stream.from_shards([Stopping(3)]))
    assert next(iterator) == "item 0"
    with pytest.raises(StreamError, match=r"index 1: .*StopIteration"):
        next(iterator)
    assert list(iterator) == ["item 2"]


def test_errors_of_loaderx_pass_as_they_are(tmp_path: Path) -> None:
    loaderx.write_dataset(tmp_path / "rows", np.zeros((5, 2)), progress=False)
    dataset = loaderx.Dataset(tmp_path / "rows")
    iterator = iter(Stream.from_dataset(dataset))
    next(iterator)
    dataset.close()
    with pytest.raises(ClosedError):
        list(iterator)


def test_a_dataset_of_another_length_is_refused() -> None:
    state = iter(Stream.from_dataset(Plain(5))).state_dict()
    with pytest.raises(StateMismatchError) as caught:
        iter(Stream.from_dataset(Plain(6))).load_state_dict(state)
    assert "items of from_dataset was 5, and is 6 here" in str(caught.value)


def test_a_dataset_that_grew_meanwhile_is_refused() -> None:
    dataset = Plain(5)
    stream = Stream.from_dataset(dataset)
    iterator = iter(stream)
    next(iterator)
    state = iterator.state_dict()
    dataset.n = 6
    with pytest.raises(StateMismatchError, match="it measured 5, and measures 6 here"):
        iter(stream).load_state_dict(state)


def test_what_is_no_sequence_is_refused() -> None:
    with pytest.raises(OptionError, match="sequences has a set, which has no len"):
        Stream.from_shards([{1, 2}])  # type: ignore[list-item]
    with pytest.raises(OptionError, match="dataset has a generator"):
        Stream.from_dataset(i for i in range(3))
    with pytest.raises(OptionError, match="num_shards is 0"):
        Stream.from_dataset([1], num_shards=0)


def test_what_is_longer_than_len_can_say_is_refused() -> None:
    endless = range(2**63)
    for option, make in [
        ("dataset", lambda: Stream.from_dataset(endless)),
        ("sequences", lambda: Stream.from_shards([[1], endless])),
        ("iterable", lambda: Stream.from_iterable(endless)),
    ]:
        with pytest.raises(
            OptionError, match=rf"{option} has a range of more items than len\(\) can say, {sys.maxsize}"
        ):
            make()
    assert list(Stream.from_dataset(range(2**63 - 1)).take(2)) == [0, 1]


def test_text_is_no_sequence_of_items() -> None:
    """It is a path that was meant, or stands where a list was: letters are not what anybody wants."""
    makers: list[Callable[[], Stream]] = [
        lambda: Stream.from_dataset("store.zr"),
        lambda: Stream.from_dataset(b"abc"),
        lambda: Stream.from_shards("abc"),
        lambda: Stream.from_shards(["a.jsonl", "b.jsonl"]),
        lambda: Stream.from_iterable("abc"),
        lambda: Stream.from_generator(lambda shard: [shard], "abc"),
    ]
    for make in makers:
        with pytest.raises(OptionError, match="whose items would be its letters"):
            make()
    assert list(Stream.from_shards([list("ab")])) == ["a", "b"]


def test_what_has_another_order_in_each_process_is_refused() -> None:
    makers: list[Callable[[], Stream]] = [
        lambda: Stream.from_iterable({"a", "b"}),
        lambda: Stream.from_iterable(frozenset("ab")),
        lambda: Stream.from_shards({(1,), (2,)}),  # type: ignore[arg-type]
        lambda: Stream.from_generator(lambda shard: [shard], {"a", "b"}),  # type: ignore[arg-type]
    ]
    for make in makers:
        with pytest.raises(OptionError, match="whose order is another one in each process"):
            make()
    assert list(Stream.from_iterable({"a": 1, "b": 2}.keys())) == ["a", "b"]


def test_what_is_no_list_of_shards_and_what_is_read_by_key() -> None:
    for make in (Stream.from_shards, lambda shards: Stream.from_generator(lambda shard: [shard], shards)):
        with pytest.raises(OptionError, match="is 3: give a list, of an item for each shard"):
            make(3)
    with pytest.raises(
        OptionError, match=r"dataset has a dict of 'train', 'test', whose \[i\] are no numbers"
    ):
        Stream.from_dataset({"train": [1], "test": [2]})


def test_there_are_no_more_shards_than_samples() -> None:
    for n in (2**62, 3, 2):
        stream = Stream.from_dataset(range(2), num_shards=n)
        assert (list(stream), stream.num_shards) == ([0, 1], 2)
    assert Stream.from_dataset([], num_shards=2**62).num_shards == 1


def test_batches_that_are_too_short_are_an_error() -> None:
    class Short(Plain):
        def __getitems__(self, indices: list[int]) -> list[str]:
            return []

    with pytest.raises(IndexError, match="returned 0 samples for 2 indices"):
        Ranges(Short(3)).fetch([0, 1])


class TestShuffleOfAll:
    def test_the_order_is_this_for_ever(self) -> None:
        assert list(Stream.from_shards([range(5), [], range(5, 12)]).shuffle(None, 7)) == ORDER_7
        assert list(Stream.from_dataset(range(12), num_shards=3).shuffle(None, 7)) == ORDER_7

    def test_each_item_once_and_another_order_each_epoch_and_pass(self) -> None:
        stream = Stream.from_dataset(range(1_000)).shuffle(None, 1)
        first = list(stream)
        assert Counter(first) == Counter(range(1_000)) and first != list(range(1_000))
        assert list(stream) == first
        stream.set_epoch(1)
        second = list(stream)
        assert Counter(second) == Counter(range(1_000)) and second != first
        passes = list(Stream.from_dataset(range(1_000)).shuffle(None, 1).repeat(2))
        assert (
            passes[:1_000] == first and Counter(passes[1_000:]) == Counter(first) and passes[1_000:] != first
        )

    def test_resume_everywhere_and_below_other_steps(self) -> None:
        def make(seed: int) -> Stream:
            return Stream.from_shards([range(5), [], range(5, 11)]).shuffle(None, seed)

        for seed in range(3):
            assert sorted(check_resume(lambda: make(seed))) == list(range(11))  # noqa: B023
            check_resume(lambda: make(seed).repeat(2).batch(3))  # noqa: B023
            check_resume(lambda: make(seed).shuffle(4))  # noqa: B023
            check_resume(lambda: make(seed).skip(2).shuffle(4).take(5))  # noqa: B023

    def test_the_state_does_not_grow(self) -> None:
        sizes = set()
        for n in (1_000, 1_000_000):
            iterator = iter(Stream.from_dataset(range(n)).shuffle(None))
            for _ in range(500):
                next(iterator)
            sizes.add(len(json.dumps(iterator.state_dict()["position"]).replace(str(n), "n")))
        assert len(sizes) == 1

    def test_it_goes_below_steps_that_take_each_item_for_itself(self) -> None:
        source = Stream.from_dataset(range(50))
        expected = [-i for i in source.shuffle(None, 2) if i % 3]
        assert list(source.filter(lambda i: i % 3).map(lambda i: -i).shuffle(None, 2)) == expected

    def test_it_goes_below_workers_and_threads(self) -> None:
        """Their items keep the order that they get, so it is the same which of the two is first."""
        source = Stream.from_dataset(range(30))
        expected = [10 * i for i in source.shuffle(None, 2) if i % 3]
        steps: dict[str, Callable[[Stream], Stream]] = {
            "workers": lambda stream: stream.filter(lambda i: i % 3).map(ten, num_workers=2),
            "prefetch": lambda stream: stream.filter(lambda i: i % 3).prefetch(3).map(ten),
            "both": lambda stream: stream.map(ten, num_workers=3).prefetch(2).filter(lambda i: i % 30),
        }
        for name, step in steps.items():
            made = check_stream_resumes(lambda: step(source).shuffle(None, 2), runs_ahead=True)  # noqa: B023
            assert made == list(step(source.shuffle(None, 2))) == expected, name

    @pytest.mark.parametrize(
        "make",
        [
            lambda stream: stream.take(5),
            lambda stream: stream.skip(5),
            lambda stream: stream.step(2),
            lambda stream: stream.batch(2),
            lambda stream: stream.repeat(2),
            lambda stream: stream.shuffle(3),
            lambda stream: stream.map(lambda item, n: n, with_index=True),
            lambda stream: stream.shuffle(None),
            lambda stream: Stream.from_generator(lambda: range(5)),
            lambda stream: Stream.from_iterable({1: 2}),
        ],
    )
    def test_it_is_refused_elsewhere(self, make: Callable[[Stream], Stream]) -> None:
        with pytest.raises(OptionError, match="buffer_size is None"):
            make(Stream.from_dataset(range(9))).shuffle(None)

    def test_errors_name_the_index_in_the_dataset(self) -> None:
        def refuse(item: str) -> str:
            raise ValueError(item)

        stream = Stream.from_dataset(Plain(40)).shuffle(None).map(refuse)
        with pytest.raises(StreamError) as caught:
            next(iter(stream))
        assert caught.value.where == f"Plain, index {str(caught.value.__cause__).split()[-1]}"


ORDER_7 = [2, 3, 11, 7, 1, 4, 10, 0, 5, 8, 6, 9]


class TestReplays:
    @staticmethod
    def count(begin: int) -> Iterator[int]:
        yield from range(begin, begin + 3)

    def test_generators(self) -> None:
        check_source(
            lambda: Stream.from_generator(self.count, [0, 10, 20]), [0, 1, 2, 10, 11, 12, 20, 21, 22]
        )
        check_source(lambda: Stream.from_generator(lambda: iter("abc")), ["a", "b", "c"])
        check_source(lambda: Stream.from_generator(lambda n: range(n), [0, 2, 0]), [0, 1])
        check_source(lambda: Stream.from_generator(self.count, []), [])

    def test_the_state_says_that_it_replays(self) -> None:
        iterator = iter(Stream.from_generator(self.count, [0]))
        next(iterator)
        state = iterator.state_dict()
        assert state["pipeline"][1]["resumes"] == "by replay"
        assert state["position"]["open"][0][2] == {"replay": 1}

    def test_what_it_raises_is_raised_once(self) -> None:
        def fail(n: int) -> Iterator[int]:
            yield n
            raise KeyError("no more")

        iterator = iter(Stream.from_generator(fail, [4, 5]))
        assert next(iterator) == 4
        with pytest.raises(
            StreamError, match=r"from_generator: .*fail raised KeyError: .*shard 0, item 1"
        ) as caught:
            next(iterator)
        assert isinstance(caught.value.__cause__, KeyError)
        state = json.dumps(iterator.state_dict())
        assert next(iterator) == 5
        resumed = iter(Stream.from_generator(fail, [4, 5]))
        resumed.load_state_dict(json.loads(state))
        assert next(resumed) == 5

    def test_stop_iteration_of_what_makes_the_items_is_an_error(self) -> None:
        def after_the_head(rows: list[int]) -> Iterator[int]:
            items = iter(rows)
            next(items)  # of an empty one it raises StopIteration
            return items

        iterator = iter(Stream.from_generator(after_the_head, [[0, 1, 2], [], [0, 3]]))
        assert [next(iterator), next(iterator)] == [1, 2]
        with pytest.raises(
            StreamError, match=r"after_the_head raised RuntimeError: StopIteration .*shard 1, item 0"
        ):
            next(iterator)
        assert list(iterator) == [3]

        class Empty:
            def __iter__(self) -> Iterator[int]:
                raise StopIteration

        with pytest.raises(StreamError, match="Empty raised RuntimeError: StopIteration"):
            list(Stream.from_iterable(Empty()))
        rows = [[0, 1, 2, 3]]
        stream = Stream.from_generator(lambda: after_the_head(rows[0])).shuffle(2)
        iterator = iter(stream)
        next(iterator)
        state = iterator.state_dict()
        rows[0] = []
        with pytest.raises(StreamError, match="RuntimeError: StopIteration was raised"):
            iter(stream).load_state_dict(state)

    def test_other_shards_and_other_items_are_refused(self) -> None:
        state = iter(Stream.from_generator(self.count, [0, 1])).state_dict()
        with pytest.raises(StateMismatchError):
            iter(Stream.from_generator(self.count, [0, 2])).load_state_dict(state)
        items = list(range(5))
        stream = Stream.from_generator(lambda: items)
        iterator = iter(stream)
        for _ in range(4):
            next(iterator)
        state = iterator.state_dict()
        del items[2:]
        resumed = iter(stream)
        resumed.load_state_dict(state)
        with pytest.raises(StateMismatchError, match="gives 2 items here, and gave item 3"):
            next(resumed)
        shuffled = Stream.from_generator(lambda: items).shuffle(3)
        items[:] = range(5)
        iterator = iter(shuffled)
        next(iterator)
        state = iterator.state_dict()
        del items[1:]
        with pytest.raises(StateMismatchError, match="gives 1 items here"):
            iter(shuffled).load_state_dict(state)

    def test_iterables(self) -> None:
        check_source(lambda: Stream.from_iterable([3, 1]), [3, 1])
        check_source(lambda: Stream.from_iterable({"a": 1, "b": 2}), ["a", "b"])
        assert list(Stream.from_iterable([3, 1, 2]).shuffle(None)) != []
        with pytest.raises(OptionError, match="iterable is 'generator', which can be gone through once only"):
            Stream.from_iterable(i for i in range(3))
        with pytest.raises(OptionError, match="iterable is 5: give what can be iterated"):
            Stream.from_iterable(5)  # type: ignore[arg-type]
        with pytest.raises(OptionError, match="function is \\[1\\]: give a function"):
            Stream.from_generator([1])  # type: ignore[arg-type]

    def test_a_generator_that_is_left_is_closed(self) -> None:
        closed = []

        def source() -> Iterator[int]:
            try:
                yield from range(5)
            finally:
                closed.append(True)

        iterator = iter(Stream.from_generator(source))
        next(iterator)
        iterator.close()
        assert closed == [True]


def test_blocks_grow_and_the_first_item_needs_no_other() -> None:
    dataset = Batched(5_000)
    iterator = iter(Stream.from_dataset(dataset))
    next(iterator)
    assert dataset.asked == [0]
    for _ in range(4_000):
        next(iterator)
    assert len(dataset.asked) < 4_001 + 257


def test_sequences_have_numbers_across_shards() -> None:
    shards = Sequences([[1, 2], [], [3]])
    assert shards.keys_at([0, 1, 2]) == [(0, 0), (0, 1), (2, 0)]
    assert shards.fetch([2, 0]) == [3, 1]
