"""Batches: what they are made of, functions of them, other sizes, rows of one length."""

from __future__ import annotations

from collections import OrderedDict, UserDict, defaultdict, deque
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from loaderx.errors import OptionError, StreamError
from loaderx.stream import Stream
from tests.resume import check_stream_resumes, same
from tests.stream.pipelines import ITEMS, as_row, numbers, rows


def odd_ones_and_the_first(batch: list[int]) -> list[int]:
    return [x for x in batch if x % 2] + batch[:1]


def odd_columns(batch: dict[str, list[Any]]) -> dict[str, list[Any]]:
    return {"a": [x for x in batch["a"] if x % 2]}


ARRAYS = [[np.arange(3), np.arange(0), np.arange(1)], [np.arange(5)]]

CASES: dict[str, tuple[Callable[[], Stream], list[Any]]] = {
    "batch": (lambda: numbers().batch(5), [ITEMS[:5], ITEMS[5:10], ITEMS[10:]]),
    "batch drop_last": (lambda: numbers().batch(5, drop_last=True), [ITEMS[:5], ITEMS[5:10]]),
    "batch of dicts": (
        lambda: rows().take(3).batch(2),
        [{"a": [0, 1], "b": [[], [1]]}, {"a": [2], "b": [[2, 2]]}],
    ),
    "batch of other dicts": (
        lambda: Stream.from_shards([[{"x": 1}, {"y": 2, "x": 3}, {}, {"z": 4}, {"z": 5}]]).batch(2),
        [{"x": [1, 3], "y": [None, 2]}, {"z": [None, 4]}, {"z": [5]}],
    ),
    "batch of dicts without a name": (
        lambda: Stream.from_shards([[{}, {}, {}, {"x": 1}]]).batch(2),
        [[{}, {}], {"x": [None, 1]}],
    ),
    "map of batches of dicts without a name": (
        lambda: Stream.from_shards([[{}, {}, {}]]).map(lambda batch: batch, batched=True, batch_size=2),
        [{}, {}, {}],
    ),
    "rebatch of dicts without a name": (
        lambda: Stream.from_shards([[{}, {}, {}]]).batch(1).rebatch(2),
        [[{}, {}], [{}]],
    ),
    "map of batches": (
        lambda: numbers().map(odd_ones_and_the_first, batched=True, batch_size=4),
        [1, 3, 0, 11, 4, 13, 15, 13, 20],
    ),
    "map of no items": (lambda: numbers().map(lambda batch: [], batched=True, batch_size=4), []),
    "map of batches of dicts": (
        lambda: rows().map(odd_columns, batched=True, batch_size=4),
        [{"a": x} for x in ITEMS if x % 2],
    ),
    "map of batches, drop_last": (
        lambda: numbers().map(list, batched=True, batch_size=5, drop_last=True),
        ITEMS[:10],
    ),
    "map of batches with_index": (
        lambda: numbers().map(
            lambda batch, i: list(zip(i, batch, strict=True)), batched=True, batch_size=4, with_index=True
        ),
        list(enumerate(ITEMS)),
    ),
    "map of batches with_rng": (
        lambda: numbers().map(
            lambda batch, rng: [(len(batch), int(rng.integers(100)))],
            batched=True,
            batch_size=5,
            with_rng=True,
        ),
        [(5, 40), (5, 69), (3, 85)],
    ),
    "shuffled items of batches": (
        lambda: numbers().map(odd_ones_and_the_first, batched=True, batch_size=4).shuffle(6),
        [3, 11, 15, 1, 20, 11, 13, 13, 16],
    ),
    "batches of batches": (
        lambda: (
            numbers()
            .map(odd_ones_and_the_first, batched=True, batch_size=4)
            .shuffle(6)
            .map(odd_ones_and_the_first, batched=True, batch_size=3)
            .shuffle(4)
            .batch(2)
        ),
        [[15, 11], [1, 3], [13, 11], [13, 3], [13, 1]],
    ),
    "rebatch": (lambda: numbers().batch(3).rebatch(5), [ITEMS[:5], ITEMS[5:10], ITEMS[10:]]),
    "rebatch smaller": (
        lambda: numbers().batch(5).rebatch(2, drop_last=True),
        [ITEMS[i : i + 2] for i in range(0, 12, 2)],
    ),
    "rebatch dicts": (
        lambda: rows().batch(2).take(3).select("a").rebatch(4),
        [{"a": ITEMS[:4]}, {"a": ITEMS[4:6]}],
    ),
    "rebatch arrays": (
        lambda: Stream.from_shards([[np.arange(3), np.arange(0), np.arange(4)]]).rebatch(5),
        [np.array([0, 1, 2, 0, 1]), np.array([2, 3])],
    ),
    "pad": (
        lambda: rows().take(3).batch(3).pad(lengths="_length"),
        [{"a": [0, 1, 2], "b": np.array([[0, 0], [1, 0], [2, 2]]), "b_length": np.array([0, 1, 2])}],
    ),
    "pad to a length": (
        lambda: rows().take(2).batch(3).pad("b", length=3, value=-1),
        [{"a": [0, 1], "b": np.array([[-1, -1, -1], [1, -1, -1]])}],
    ),
    "pad lists": (
        lambda: Stream.from_shards(ARRAYS).batch(3).pad(),
        [np.array([[0, 1, 2], [0, 0, 0], [0, 0, 0]]), np.array([[0, 1, 2, 3, 4]])],
    ),
    "pad empty rows": (lambda: Stream.from_shards([[[], []]]).batch(2).pad(), [np.zeros((2, 0), np.int64)]),
}


@pytest.mark.parametrize("name", CASES)
def test_it_gives_what_it_should_and_resumes_everywhere(name: str) -> None:
    make, expected = CASES[name]
    assert same(check_stream_resumes(make), expected)


@pytest.mark.parametrize("name", CASES)
def test_it_resumes_below_others_and_in_another_epoch(name: str) -> None:
    def make() -> Stream:
        stream = CASES[name][0]().shuffle(3).batch(2).take(30).repeat(2)
        stream.set_epoch(5)
        return stream

    check_stream_resumes(make)


def test_what_a_batch_is_made_of_is_saved_once() -> None:
    stream = Stream.from_shards([range(200)]).map(list, batched=True, batch_size=50).shuffle(100)
    passing = iter(stream)
    next(passing)
    keys = passing.state_dict()["position"]["keys"]
    assert len(keys["keys"]) == 100 and len(keys["shared"]) == 3


class FrameLike:
    """What is iterated as a pandas.DataFrame is."""

    columns = ("a", "b")
    shape = (3, 2)

    def __iter__(self) -> Any:
        return iter(self.columns)


def as_other_mapping(x: int) -> Any:
    """Return even numbers as `UserDict`, and others as dicts of another kind."""
    return (UserDict if x % 2 == 0 else OrderedDict)(as_row(x))


def others() -> Stream:
    return numbers().map(as_other_mapping)


OTHERS: dict[str, tuple[Callable[[Stream], Stream], list[Any]]] = {
    "batch": (
        lambda stream: stream.take(3).batch(2),
        [{"a": [0, 1], "b": [[], [1]]}, {"a": [2], "b": [[2, 2]]}],
    ),
    "batch beside dicts": (
        lambda stream: stream.map(lambda item: item if item["a"] % 3 else dict(item)).select("a").batch(20),
        [{"a": ITEMS}],
    ),
    "map of batches": (
        lambda stream: stream.map(lambda batch: UserDict(a=batch["a"]), batched=True, batch_size=4),
        [{"a": x} for x in ITEMS],
    ),
    "select": (lambda stream: stream.select(["b", "a"]).take(2), [{"b": [], "a": 0}, {"b": [1], "a": 1}]),
    "drop": (lambda stream: stream.drop("b").take(2), [{"a": 0}, {"a": 1}]),
    "rename": (lambda stream: stream.rename({"a": "c"}).take(2), [{"c": 0, "b": []}, {"c": 1, "b": [1]}]),
    "rebatch": (
        lambda stream: stream.map(lambda row: UserDict(x=[row["a"]] * 2)).take(2).rebatch(3),
        [{"x": [0, 0, 1]}, {"x": [1]}],
    ),
    "pad": (
        lambda stream: stream.take(2).batch(2).map(UserDict).pad("b"),
        [{"a": [0, 1], "b": np.array([[0], [1]])}],
    ),
    "with_format": (
        lambda stream: stream.take(2).with_format("numpy"),
        [{"a": np.int64(0), "b": np.array([])}, {"a": np.int64(1), "b": np.array([1])}],
    ),
}


@pytest.mark.parametrize("name", OTHERS)
def test_mappings_that_are_no_dicts_are_taken_for_such(name: str) -> None:
    step, expected = OTHERS[name]
    assert same(check_stream_resumes(lambda: step(others())), expected)


def test_what_is_no_mapping_is_not_put_together_with_dicts() -> None:
    items: list[Any]
    for items in ([{0: 1}, ["a"]], [{0: 1}, "a"], [["a"], {0: 1}], [{}, []], [{"a": 1}, None]):
        assert same(list(Stream.from_shards([items]).batch(2)), [items])
    for step in (
        lambda stream: stream.select("a"), lambda stream: stream.drop("a"), lambda stream: stream.rename({"a": "b"})
    ):  # fmt: skip
        for wrong in ([("a", 1)], None, "a"):
            with pytest.raises(StreamError, match="and has to be a dict"):
                next(iter(step(Stream.from_shards([[wrong]]))))
        with pytest.raises(StreamError, match=r"'a' not in the item, which has 'x'"):
            next(iter(step(Stream.from_shards([[UserDict(x=1)]]))))


def test_a_dict_that_makes_up_its_values_stays_as_it_is() -> None:
    item: Any = defaultdict(list, x=1)
    assert list(Stream.from_shards([[item, {"y": 2}]]).batch(2)) == [{"x": [1, None], "y": [None, 2]}]
    with pytest.raises(StreamError, match="'y' not in the item, which has 'x'"):
        next(iter(Stream.from_shards([[item]]).select("y")))
    assert dict(item) == {"x": 1}


def test_flat_map_takes_apart_nothing_but_items() -> None:
    one = Stream.from_shards([[3]])
    for wrong, message in (
        (
            lambda x: {"a": [1, 2]},
            r"returned a dict, which would come as its names: give a list of items.*batched=True",
        ),
        (lambda x: UserDict(a=[1]), "returned a UserDict, which would come as its names"),
        (lambda x: FrameLike(), "returned a FrameLike, which would come as its names"),
        (lambda x: "abc", "returned 'abc', which would come letter by letter"),
        (lambda x: b"abc", "returned b'abc', which would come letter by letter"),
        (lambda x: None, "returned None: give a list of items"),
        (lambda x: 3, "returned 3: give a list of items"),
    ):
        with pytest.raises(StreamError, match=message):
            next(iter(one.flat_map(wrong)))
        assert list(one.flat_map(wrong, on_error="skip")) == []
    for right in (lambda x: deque([x]), lambda x: iter([x]), lambda x: np.array([x])):
        assert list(one.flat_map(right)) == [3]
    assert list(one.flat_map(lambda x: [{"a": [1, 2]}])) == [{"a": [1, 2]}]


def test_what_a_function_of_batches_may_return() -> None:
    arrays = rows().map(lambda batch: {"a": np.array(batch["a"]) * 2}, batched=True, batch_size=4)
    assert [item["a"] for item in arrays] == [2 * x for x in ITEMS]
    for wrong, message in (
        (lambda batch: {"a": [1], "b": [1, 2]}, "of one length, and have {'a': 1, 'b': 2}"),
        (lambda batch: None, "returned None: give a dict of lists, or a list of items"),
        (lambda batch: 3, "returned 3: give a dict of lists"),
        (lambda batch: "text", "returned 'text', which would come letter by letter"),
        (lambda batch: b"bytes", "returned b'bytes', which would come letter by letter"),
        (lambda batch: {"b": batch["a"], "a": 1}, "'a' is 1, and has to be a list or an array"),
        (lambda batch: {"a": "text"}, "'a' is 'text', and has to be a list or an array"),
        (lambda batch: {"a": "text" * 100}, "'a' is a str, and has to be a list or an array"),
        (lambda batch: {"a": {"x": 1}}, "'a' is {'x': 1}, and has to be a list or an array"),
        (lambda batch: {"a": {1}}, r"'a' is \{1\}, and has to be a list or an array"),
        (lambda batch: {"a": (x for x in batch["a"])}, "'a' is a generator, and has"),
        (lambda batch: {"a": np.array(3)}, r"'a' is array\(3\)"),
        (lambda batch: FrameLike(), "returned a FrameLike, which would come as its names"),
    ):
        with pytest.raises(StreamError, match=message):
            next(iter(rows().map(wrong, batched=True)))


def test_pad_says_which_row_is_too_long() -> None:
    with pytest.raises(StreamError, match="position 2 of the batch has 2 rows, over max_len=1"):
        next(iter(rows().batch(3).pad(length=1)))
    with pytest.raises(StreamError, match="'z' not in the batch"):
        next(iter(rows().batch(3).pad("z")))


def test_pad_and_rebatch_never_round_whole_numbers() -> None:
    signed, unsigned = np.array([-1, 5]), np.array([2**63], np.uint64)
    fits, positive = np.array([2**62], np.uint64), np.array([7])
    single, large = np.array([0.5]), np.array([2**53 + 1])

    def padded(*rows: Any) -> Any:
        return next(iter(Stream.from_shards([[list(rows)]]).pad()))

    def rebatched(*batches: Any) -> Any:
        return next(iter(Stream.from_shards([[{"x": each} for each in batches]]).rebatch(10)))["x"]

    assert same(padded([1], [2, 2**63]), np.array([[1, 0], [2, 2**63]], np.uint64))
    assert same(padded(unsigned, positive), np.array([[2**63], [7]], np.uint64))
    assert same(padded(fits, signed), np.array([[2**62, 0], [-1, 5]]))
    assert same(padded([7], unsigned), np.array([[7], [2**63]], np.uint64))
    assert same(padded(single, positive), np.array([[0.5], [7]]))
    assert same(rebatched(unsigned, positive), np.array([2**63, 7], np.uint64))
    assert same(rebatched(fits, signed), np.array([2**62, -1, 5]))
    assert same(rebatched(np.array([0.5], np.float32), single), np.array([0.5, 0.5]))
    for first, second in ((unsigned, signed), (single, large), (np.array(["a"]), positive)):
        with pytest.raises(
            StreamError, match=f"no dtype holds the values of {min(str(first.dtype), str(second.dtype))}"
        ):
            padded(first, second)
        with pytest.raises(StreamError, match="rebatch: 'x': no dtype holds the values of"):
            rebatched(first, second)
    for wrong in ([[-1], [2**63]], [[2**53 + 1], [0.5]], [["a"], [1]], [["a\0"], ["b"]], [[b"a\0"], [b"b"]]):
        with pytest.raises(StreamError, match="the batch: no dtype holds its values as they are"):
            padded(*wrong)
    assert same(padded(["a"], ["b", "c"]), np.array([["a", ""], ["b", "c"]]))
    assert same(padded([b"a"], [b"b", b"c"]), np.array([[b"a", b""], [b"b", b"c"]]))


def test_masks_are_kept_or_refused() -> None:
    masked = np.ma.array([1, 2], mask=[False, True])
    joined = next(iter(Stream.from_shards([[masked, np.array([3])]]).rebatch(3)))
    assert joined.tolist() == [1, None, 3]
    for rows_of in ([masked, masked], [[1], masked]):
        with pytest.raises(StreamError, match="has masked arrays, whose masks would be lost"):
            next(iter(Stream.from_shards([[rows_of]]).pad()))


def test_pad_takes_one_value_and_says_what_is_no_row() -> None:
    for value in ({"a": 0}, [0], {0}, np.zeros(1)):
        with pytest.raises(OptionError, match="give one value to fill with"):
            rows().batch(2).pad(value=value)
    for value in (np.int64(1), np.array(1), True):
        assert next(iter(rows().batch(2).pad("b", value=value)))["b"].tolist() == [[1], [1]]
    with pytest.raises(StreamError, match="row 1 of 'b' is a NoneType, and has to be a list or an array"):
        next(iter(Stream.from_shards([[{"b": [[1], None]}]]).pad()))


def test_rebatch_says_that_batches_do_not_go_together() -> None:
    shards: list[list[Any]] = [[{"a": [1]}, {"b": [1]}]]
    with pytest.raises(StreamError, match=r"the same names: one has \['a'\], and one \['b'\]"):
        next(iter(Stream.from_shards(shards).rebatch(2)))
    with pytest.raises(StreamError, match=r"of one length, and have \{'a': 1, 'b': 2\}"):
        next(iter(Stream.from_shards([[{"a": [1], "b": [1, 2]}]]).rebatch(2)))
    with pytest.raises(StreamError, match="'a' is 'text', and has to be a list or an array"):
        next(iter(Stream.from_shards([[{"a": "text"}]]).rebatch(2)))
    with pytest.raises(StreamError, match="a dict without names"):
        next(iter(Stream.from_shards([[{}]]).rebatch(2)))
