"""What a state holds and cannot be made anew, for a function raises now: an error that says so, and nothing is lost."""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from loaderx.errors import StateMismatchError, StreamError
from loaderx.stream import Stream
from tests.stream.pipelines import ITEMS, numbers, pairs

HELD = ". The state holds what was made of this item, and cannot be loaded without"


class Switch:
    """Functions that raise, or give less, from when they are told to on."""

    def __init__(self) -> None:
        self.is_broken = False
        self.gives_less = False

    def item(self, x: Any, *_: Any) -> Any:
        if self.is_broken:
            raise ValueError(f"broken at {x}")
        return x

    def batch(self, xs: Any, *_: Any) -> Any:
        return [self.item(x) for x in xs] * (0 if self.gives_less else 1)

    def parts(self, x: Any) -> Iterator[Any]:
        for i in range(1 if self.gives_less else 3):
            yield self.item(x), i

    def row(self, x: Any) -> Any:
        return x if self.is_broken else {"a": x}

    def shard(self, xs: list[int]) -> Iterator[int]:
        for x in xs:
            yield self.item(x)


class Numbers:
    """Items by index, through a switch."""

    def __init__(self, switch: Switch, items: list[int]) -> None:
        self.switch = switch
        self.items = items

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, i: int) -> Any:
        return self.switch.item(self.items[i])


#: Streams that call a function, and what their errors say that has raised.
CALLERS: dict[str, Callable[[Switch, Any], Stream]] = {
    "map": lambda do, on: numbers().map(do.item, on_error=on),
    "map with_index": lambda do, on: numbers().map(do.item, with_index=True, on_error=on),
    "map with_rng": lambda do, on: numbers().map(do.item, with_rng=True, on_error=on),
    "map workers": lambda do, on: numbers().map(do.item, num_workers=2, on_error=on),
    "map with_index workers": lambda do, on: numbers().map(
        do.item, with_index=True, num_workers=2, on_error=on
    ),
    "map batched": lambda do, on: numbers().map(do.batch, batched=True, batch_size=3, on_error=on),
    "map batched workers": lambda do, on: numbers().map(
        do.batch, batched=True, batch_size=3, with_rng=True, num_workers=2, on_error=on
    ),
    "flat_map": lambda do, on: numbers().flat_map(do.parts, on_error=on),
    "select": lambda do, on: numbers().map(do.row).select("a"),
    "source": lambda do, on: Stream.from_shards(
        [Numbers(do, ITEMS[:5]), Numbers(do, ITEMS[5:])]  # type: ignore[list-item]
    ),
    "source of a dataset": lambda do, on: Stream.from_dataset(Numbers(do, ITEMS), num_shards=2),
    "source in any order": lambda do, on: Stream.from_dataset(Numbers(do, ITEMS)).shuffle(None),
}

#: What holds items, or what they were made of.
HOLDERS: dict[str, Callable[[Stream], Stream]] = {
    "shuffle": lambda stream: stream.shuffle(4),
    "workers": lambda stream: stream.map(as_it_is, num_workers=2),
    "prefetch": lambda stream: stream.prefetch(3),
    "flat_map": lambda stream: stream.flat_map(thrice),
    "map batched": lambda stream: stream.map(as_it_is, batched=True, batch_size=4),
    "rebatch": lambda stream: stream.batch(3).rebatch(2),
    "concatenate": lambda stream: Stream.concatenate([stream, stream]).shuffle(4),
    "interleave": lambda stream: Stream.interleave([stream, numbers()]).shuffle(4),
    "zip": lambda stream: Stream.zip([numbers(), stream]).shuffle(4),
    "repeat": lambda stream: stream.repeat(2).shuffle(4),
    "batch": lambda stream: stream.batch(2).shuffle(2),
    "two": lambda stream: stream.shuffle(3).prefetch(2).map(as_it_is, num_workers=1),
}


def as_it_is(x: Any) -> Any:
    return x


def thrice(x: Any) -> list[Any]:
    return [x, x, x]


def messages_of_a_run(stream: Stream) -> set[str]:
    """Return what a stream raises, from its beginning to its end."""
    found = set()
    with iter(stream) as passing:
        for _ in range(200):
            try:
                next(passing)
            except StreamError as error:
                found.add(str(error))
            except StopIteration:
                break
    return found


@pytest.mark.parametrize("on_error", ["raise", "skip"])
@pytest.mark.parametrize("holder", HOLDERS)
@pytest.mark.parametrize("caller", CALLERS)
def test_what_raises_while_a_state_loads_is_the_error_of_next(
    caller: str, holder: str, on_error: str
) -> None:
    do = Switch()
    stream = HOLDERS[holder](CALLERS[caller](do, on_error))
    with iter(stream) as passing, iter(HOLDERS[holder](CALLERS[caller](do, on_error))) as other:
        for _ in range(2):
            next(passing)
        state = json.loads(json.dumps(passing.state_dict()))
        rest = list(passing)
        next(other)
        before = other.state_dict()
        do.is_broken = True
        with pytest.raises(StreamError) as caught:
            other.load_state_dict(state)
        error = caught.value
        assert str(error).endswith(HELD)
        assert error.__notes__ == ["while a saved state was loaded"]
        if caller != "select":
            assert isinstance(error.__cause__, ValueError) and "broken at" in str(error.__cause__)
            assert error.function is not None and error.function in ("[i]", *str(error).split())
        assert error.node == caller.split()[0]
        if error.where is not None:
            assert error.where in str(error)
        loud = HOLDERS[holder](CALLERS[caller](do, "raise"))
        assert str(error).removesuffix(HELD) in messages_of_a_run(loud)
        # A pass that begins there says the same, and the state stays to be begun at.
        stream.load_state_dict(state)
        for _ in range(2):
            with pytest.raises(StreamError) as again:
                iter(stream)
            assert str(again.value) == str(error)
        do.is_broken = False
        if "prefetch" not in holder and holder != "two":  # whose thread goes on
            assert other.state_dict() == before
        assert list(iter(stream)) == rest
        other.load_state_dict(state)
        assert list(other) == rest


@pytest.mark.parametrize("caller", ["flat_map", "map batched", "map batched workers"])
@pytest.mark.parametrize("holder", ["shuffle", "none"])
def test_a_function_that_gives_less_than_before(caller: str, holder: str) -> None:
    do = Switch()
    stream = CALLERS[caller](do, "skip")
    stream = stream.shuffle(4) if holder == "shuffle" else stream
    with iter(stream) as passing:
        for _ in range(2):
            next(passing)
        stream.load_state_dict(passing.state_dict())
    do.gives_less = True
    with pytest.raises(
        StateMismatchError, match=r"Switch\.\w+ gives \d items here, and gave item \d when"
    ) as caught:
        iter(stream)
    assert list(caught.value.mismatches) in (["Switch.parts"], ["Switch.batch"])
    do.gives_less = False
    assert len(list(stream)) == (39 if caller == "flat_map" else 13) - 2


def test_a_generator_that_raises_while_it_is_replayed() -> None:
    def fail(xs: list[int]) -> Iterator[int]:
        for x in xs:
            if do.is_broken and x == 3:
                raise ValueError("three")
            yield x

    do = Switch()
    stream = Stream.from_generator(fail, [[1, 2, 3, 4, 5, 6]]).shuffle(4)
    passing = iter(stream)
    next(passing)
    stream.load_state_dict(passing.state_dict())
    do.is_broken = True
    message = r"from_generator: .*fail raised ValueError: three \(for the item of .*shard 0, item 2\)"
    with pytest.raises(StreamError, match=f"{message}{HELD}") as caught:
        iter(stream)
    assert isinstance(caught.value.__cause__, ValueError)


def test_a_dataset_that_leaves_out_what_it_gave(tmp_path: Path) -> None:
    from loaderx.jsonl import JsonlDataset, build_index

    path = tmp_path / "a.jsonl"
    path.write_text("".join(f"{n}\n" for n in range(10)))
    build_index(path)
    stream = Stream.from_dataset(JsonlDataset(path, on_error="skip", parse=lambda line: int(line))).shuffle(4)
    passing = iter(stream)
    next(passing)
    state = passing.state_dict()

    def refuse(line: bytes) -> int:
        raise ValueError(line)

    other = iter(Stream.from_dataset(JsonlDataset(path, on_error="skip", parse=refuse)).shuffle(4))
    with pytest.raises(StateMismatchError, match=r"index \d, which the dataset leaves out here"):
        other.load_state_dict(state)


@pytest.mark.parametrize("on_error", ["raise", "skip"])
def test_samples_of_an_archive_that_are_not_decoded_any_more(on_error: Any, tmp_path: Path) -> None:
    do = Switch()
    path = tmp_path / "a.tar"
    with tarfile.open(path, "w") as archive:
        for n in range(6):
            info = tarfile.TarInfo(f"{n}.txt")
            info.size = 1
            archive.addfile(info, io.BytesIO(b"%d" % n))
    stream = Stream.from_webdataset(path, decode=do.item, on_error=on_error).shuffle(3)
    passing = iter(stream)
    given = [next(passing)["__key__"]]
    stream.load_state_dict(passing.state_dict())
    do.is_broken = True
    message = (
        r"from_webdataset: Switch.item raised ValueError: broken at .* \(for the item of .*a\.tar, byte \d+"
    )
    with pytest.raises(StreamError, match=f"{message}.*{HELD}") as caught:
        iter(stream)
    assert isinstance(caught.value.__cause__, ValueError)
    do.is_broken = False
    given += [each["__key__"] for each in stream]
    assert sorted(given) == list("012345")


def test_lines_that_do_not_parse_any_more_keep_the_cause(tmp_path: Path) -> None:
    do = Switch()
    path = tmp_path / "a.jsonl"
    path.write_text("".join(f"{n}\n" for n in range(6)))
    stream = Stream.from_jsonl(path, parse=do.item, on_error="skip").shuffle(3)
    passing = iter(stream)
    next(passing)
    stream.load_state_dict(passing.state_dict())
    do.is_broken = True
    with pytest.raises(StateMismatchError, match="does not parse, and is to be skipped here") as caught:
        iter(stream)
    assert isinstance(caught.value.__cause__, ValueError)


def test_calls_under_way_that_raise_come_in_their_turn() -> None:
    """What workers had not given yet is no part of what was given: it raises, or is left out, where it would have."""
    do = Switch()
    for on_error in ("raise", "skip"):
        do.is_broken = False
        stream = CALLERS["map workers"](do, on_error)
        with iter(stream) as passing:
            assert [next(passing), next(passing)] == ITEMS[:2]
            state = passing.state_dict()
        do.is_broken = True
        stream.load_state_dict(state)
        with iter(stream) as passing:
            if on_error == "skip":
                assert list(passing) == []
                assert passing.counts() == [{"step": "map", "skipped": len(ITEMS) - 2}]
            else:
                with pytest.raises(StreamError, match="broken at 2 ") as caught:
                    next(passing)
                assert not str(caught.value).endswith(HELD)


def test_pairs_of_a_state_are_made_by_the_same_function() -> None:
    stream = numbers().flat_map(pairs).shuffle(3)
    passing = iter(stream)
    given = [next(passing) for _ in range(3)]
    stream.load_state_dict(passing.state_dict())
    assert sorted(given + list(stream)) == sorted(numbers().flat_map(pairs))
