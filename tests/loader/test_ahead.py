"""`Ahead`: batches made ready before their turn, in order, with a position that counts only what was returned."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from loaderx import ClosedError, DataLoader, OptionError
from loaderx.errors import StateMismatchError
from loaderx.loader.ahead import Ahead
from tests.loader.kit import ArrayStream, fail_on_sevens
from tests.resume import check_resume_everywhere


class Counter:
    """An iterator with a state: 0, 1, 2, ... up to an end."""

    def __init__(self, end: int = 10**9) -> None:
        self.end = end
        self.step = 0

    def __next__(self) -> int:
        if self.step == self.end:
            raise StopIteration
        self.step += 1
        return self.step - 1

    def state_dict(self) -> dict[str, Any]:
        return {"step": self.step}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.step = state["step"]


def identity(batch: Any) -> Any:
    return batch


def make_loader(num_workers: int = 0, mode: str = "cyclic", **options: Any) -> DataLoader:
    streams = {"x": ArrayStream(np.arange(50)), "y": ArrayStream(np.arange(50.0)[:, None])}
    return DataLoader(streams, num_workers, 6, mode=mode, **options)


@pytest.mark.parametrize("size", [0, 1, 2, 5])
def test_so_many_are_made_ready_beyond_the_one_returned(size: int) -> None:
    source, prepared = Counter(), []

    def prepare(batch: int) -> str:
        prepared.append(batch)
        return f"batch {batch}"

    ahead = Ahead(source, size, prepare)
    assert prepared == [] and ahead.step == 0
    for step in range(20):
        assert next(ahead) == f"batch {step}"
        assert prepared == list(range(step + size + 1))
        assert ahead.step == step + 1 and ahead.state_dict() == {"step": step + 1}
        assert source.step == step + size + 1


@pytest.mark.parametrize("n", [0, 1, 2, 3, 7])
@pytest.mark.parametrize("size", [0, 2, 4])
def test_an_end_comes_after_the_last_batch(n: int, size: int) -> None:
    ahead = Ahead(Counter(n), size, identity)
    assert list(ahead) == list(range(n))
    assert next(ahead, None) is None and ahead.step == n
    ahead.load_state_dict({"step": max(n - 2, 0)})
    assert list(ahead) == list(range(max(n - 2, 0), n))


@pytest.mark.parametrize("num_workers", [0, 2])
@pytest.mark.parametrize("mode", ["sequential", "iid", "cyclic"])
@pytest.mark.parametrize("size", [0, 3])
def test_resumes_everywhere(num_workers: int, mode: str, size: int) -> None:
    def make() -> Any:
        return Ahead(make_loader(num_workers, mode), size, identity)

    check_resume_everywhere(make, 12, tail=5)
    check_resume_everywhere(make, 12, tail=5, make_other=lambda: make_loader(0, mode))


def test_a_state_that_is_refused_changes_nothing() -> None:
    ahead = Ahead(make_loader(mode="sequential"), 2, identity)
    next(ahead)
    with pytest.raises(StateMismatchError):
        ahead.load_state_dict(ahead.state_dict() | {"seed": 7})
    assert ahead.step == 1
    assert next(ahead)["x"].tolist() == [6, 7, 8, 9, 10, 11]


@pytest.mark.parametrize("num_workers", [0, 2])
def test_an_exception_comes_in_its_turn_and_the_next_call_goes_on(num_workers: int) -> None:
    ahead = Ahead(make_loader(num_workers, "sequential", transform=fail_on_sevens), 3, identity)
    seen: list[int] = []
    with pytest.raises(KeyError, match="seven at 0"):
        next(ahead)
    for step in range(1, 7):
        assert ahead.step == step
        seen.append(int(next(ahead)["x"][0]))
    assert seen == [6, 12, 18, 24, 30, 36]
    with pytest.raises(KeyError, match="seven at 42"):
        next(ahead)
    assert ahead.step == 8 and next(ahead)["x"][0] == 48
    ahead.close()


def test_what_cannot_be_made_ready_is_raised_in_its_turn_too() -> None:
    def prepare(batch: int) -> int:
        if batch == 2:
            raise ValueError("two")
        return batch

    ahead = Ahead(Counter(5), 3, prepare)
    assert [next(ahead), next(ahead)] == [0, 1]
    with pytest.raises(ValueError, match="two"):
        next(ahead)
    assert ahead.state_dict() == {"step": 3}
    assert list(ahead) == [3, 4]


def test_no_batch_is_lost_to_an_interrupt() -> None:
    interrupted = []

    def prepare(batch: int) -> int:
        if batch in (3, 5) and batch not in interrupted:
            interrupted.append(batch)
            raise KeyboardInterrupt
        return batch

    ahead = Ahead(Counter(), 2, prepare)
    seen: list[int] = []
    while len(seen) < 10:
        assert ahead.step == len(seen)
        try:
            seen.append(next(ahead))
        except KeyboardInterrupt:
            continue
    assert seen == list(range(10)) and interrupted == [3, 5]


def test_close_closes_the_loader() -> None:
    ahead = Ahead(make_loader(2), 2, identity)
    next(ahead)
    ahead.close()
    with pytest.raises(ClosedError):
        next(ahead)
    Ahead(Counter(), 1, identity).close()  # one that has nothing to close


def test_a_with_block_closes_the_loader_too() -> None:
    loader = make_loader(2)
    with pytest.raises(KeyError), Ahead(loader, 2, identity) as ahead:
        batch = next(ahead)
        raise KeyError
    assert len(batch["x"]) == 6 and ahead.step == 3
    for closed in (ahead, loader):
        with pytest.raises(ClosedError):
            next(closed)


def test_repr_says_where_it_is_and_of_what() -> None:
    loader = make_loader()
    ahead = Ahead(loader, 2, identity)
    assert repr(ahead) == f"<Ahead at step 0, 0 batches ready, of {loader!r}>"
    next(ahead)
    assert repr(ahead) == f"<Ahead at step 1, 2 batches ready, of {loader!r}>"
    ahead.close()
    assert repr(ahead) == f"<Ahead at step 3, 0 batches ready, of {loader!r}>"


@pytest.mark.parametrize("size", [-1, 1.5, "2", None, True])
def test_a_size_that_is_none_is_refused(size: Any) -> None:
    with pytest.raises(OptionError, match="size"):
        Ahead(Counter(), size, identity)


def test_what_has_no_state_is_refused() -> None:
    with pytest.raises(
        OptionError, match="list_iterator, which has no state_dict, load_state_dict"
    ) as caught:
        Ahead(iter([1]), 1, identity)  # type: ignore[arg-type]
    assert caught.value.option == "loader"
