"""The loader: order, options, state, ranks. (What goes wrong in it: test_loader_faults.py.)"""

from __future__ import annotations

import gc
import json
import os
import pickle
import signal
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from loaderx import (
    DataLoader,
    Dataset,
    OptionError,
    RaggedDataset,
    Sampler,
    StateMismatchError,
    write_dataset,
    write_ragged,
)
from loaderx._core.threads import available_cpus
from loaderx.loader.fetch import identity, step_rng
from tests.loader.kit import ArrayStream, CountingStream, Gate, jittered
from tests.resume import check_resume_everywhere, same

N = 103
WORKERS = (0, 1, 4, 16)
MODES = list(Sampler.Mode)


@pytest.fixture
def streams(tmp_path: Path) -> Iterator[dict[str, Any]]:
    """A fixed and a ragged dataset, and an array, of one length."""
    write_dataset(tmp_path / "image.zr", np.arange(N * 6).reshape(N, 2, 3))
    write_ragged(tmp_path / "text.zr", [np.arange(i % 5) + i for i in range(N)])
    with Dataset(tmp_path / "image.zr") as image, RaggedDataset(tmp_path / "text.zr") as text:
        yield {"x": ArrayStream(np.arange(N)), "image": image, "text": text}


def expected(streams: dict[str, Any], step: int, **options: Any) -> dict[str, Any]:
    """Return a batch as the sampler and the streams give it, without a loader."""
    idxs = Sampler(N, **options).indices(step)
    return {name: stream.__getitems__(idxs) for name, stream in streams.items()}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("num_workers", WORKERS)
def test_batches_come_in_order_whoever_makes_them(
    streams: dict[str, Any], mode: Sampler.Mode, num_workers: int
) -> None:
    with DataLoader(
        streams, num_workers, 16, 4, mode, 7, lambda batch: jittered(batch) if num_workers else batch
    ) as loader:
        for step in range(30):
            assert loader.step == step
            assert same(next(loader), expected(streams, step, batch_size=16, mode=mode, seed=7))


def test_the_call_of_0_7_3_works_unchanged(streams: dict[str, Any]) -> None:
    positional = DataLoader(streams, 2, 8, 3, 2, 5, lambda batch: batch["x"] + 1)
    named = DataLoader(
        streams,
        num_workers=2,
        batch_size=8,
        prefetch_size=3,
        mode=2,
        seed=5,
        transform=lambda batch: batch["x"] + 1,
    )
    with positional, named:
        for step in range(5):
            want = expected(streams, step, batch_size=8, mode=2, seed=5)["x"] + 1
            assert same(next(positional), want)
            assert same(next(named), want)
        assert iter(named) is named
        with pytest.raises(TypeError, match="without end"):
            len(named)


def test_defaults_are_those_of_0_7_3(streams: dict[str, Any]) -> None:
    with DataLoader(streams) as loader:
        assert (loader.num_workers, loader.batch_size, loader.prefetch_size) == (4, 256, 4)
        assert (loader.sampler.mode, loader.sampler.seed) == (Sampler.Mode.IID, 42)
        assert len(next(loader)["x"]) == 256


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("num_workers", WORKERS)
def test_resumes_from_every_step(streams: dict[str, Any], mode: Sampler.Mode, num_workers: int) -> None:
    def make(workers: int) -> Callable[[], DataLoader]:
        return lambda: DataLoader(streams, workers, 16, 2, mode, 3, transform_rng=True, transform=augment)

    # 16 of 103: cycles end within the run, and one of several workers goes on where another number stopped.
    check_resume_everywhere(make(2), 14, tail=8, make_other=make(num_workers))


def augment(batch: dict[str, Any], rng: np.random.Generator) -> dict[str, Any]:
    return {**batch, "noise": rng.standard_normal(3)}


def test_the_state_is_small_json_of_a_fixed_shape(streams: dict[str, Any]) -> None:
    with DataLoader(streams, 2, 16, mode="cyclic", seed=9) as loader:
        next(loader)
        state = loader.state_dict()
    assert json.loads(json.dumps(state)) == state
    assert state == {
        "version": 1,
        "step": 1,
        "seed": 9,
        "mode": "cyclic",
        "global_batch": 16,
        "drop_remainder": True,
        "lengths": {"x": N, "image": N, "text": N},
    }


@pytest.mark.parametrize(
    ("field", "saved", "options"),
    [
        ("seed", 1, {"seed": 2}),
        ("mode", "iid", {"mode": "sequential"}),
        ("global_batch", 8, {"batch_size": 9}),
        ("drop_remainder", True, {"drop_remainder": False}),
        ("lengths", {"x": N}, {"streams": {"x": ArrayStream(np.arange(N + 1))}}),
        ("lengths", {"x": N}, {"streams": {"y": ArrayStream(np.arange(N))}}),
    ],
)
def test_a_state_of_another_order_is_refused_with_both_sides(
    field: str, saved: object, options: dict[str, Any]
) -> None:
    common: dict[str, Any] = {
        "streams": {"x": ArrayStream(np.arange(N))},
        "num_workers": 0,
        "batch_size": 8,
        "seed": 1,
    }
    with closing(DataLoader(**common)) as loader:
        state = loader.state_dict()
    with closing(DataLoader(**{**common, **options})) as other:
        next(other)
        with pytest.raises(StateMismatchError) as caught:
            other.load_state_dict(state)
        assert caught.value.mismatches == {field: (saved, other.state_dict()[field])}
        assert field in str(caught.value)
        assert repr(saved) in str(caught.value)
        assert other.step == 1


@pytest.mark.parametrize(
    ("damage", "field"),
    [
        ({"step": -1}, "step"),
        ({"step": "3"}, "step"),
        ({"step": True}, "step"),
        ({"version": 2}, "version"),
        ({"more": 1}, "more"),
        ({"seed": None}, "seed"),
        ({"seed": 42.0}, "seed"),
        ({"step": ...}, "step"),
        ({"mode": ...}, "mode"),
    ],
)
def test_what_is_no_state_is_refused(damage: dict[str, Any], field: str) -> None:
    with closing(DataLoader({"x": ArrayStream(np.arange(N))}, 0, 8)) as loader:
        state = {**loader.state_dict(), **damage}
        state = {name: value for name, value in state.items() if value is not ...}
        with pytest.raises(StateMismatchError) as caught:
            loader.load_state_dict(state)
        assert set(caught.value.mismatches) == {field}
        for other in (None, 3, [], "state"):
            with pytest.raises(StateMismatchError, match="state_dict"):
                loader.load_state_dict(other)  # type: ignore[arg-type]


@pytest.mark.parametrize("num_workers", WORKERS)
def test_seek_goes_anywhere(streams: dict[str, Any], num_workers: int) -> None:
    with DataLoader(streams, num_workers, 16) as loader:
        for step in (0, 5, 2, 2, 10**12, 0):
            loader.seek(step)
            assert loader.step == step
            for later in range(step, step + 3):
                assert same(next(loader), expected(streams, later, batch_size=16, mode=1))
        for wrong in (-1, 1.0, "1", True, 2**63):
            with pytest.raises(OptionError):
                loader.seek(wrong)  # type: ignore[arg-type]
        assert loader.step == 3


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("drop_remainder", [True, False])
def test_ranks_share_out_the_global_batch(mode: Sampler.Mode, drop_remainder: bool) -> None:
    streams = {"x": ArrayStream(np.arange(N))}
    common: dict[str, Any] = {"mode": mode, "drop_remainder": drop_remainder}
    loaders = [DataLoader(streams, 1, 4, rank=rank, world_size=3, **common) for rank in range(3)]
    with closing(DataLoader(streams, 0, 12, **common)) as alone:
        for _ in range(40):
            parts = [next(loader)["x"] for loader in loaders]
            assert {len(part) for part in parts} == {4}
            assert same(np.concatenate(parts), next(alone)["x"])
        # The same global batch by other hosts.
        state = loaders[1].state_dict()
        assert state == alone.state_dict()
        for rank in range(2):
            with closing(DataLoader(streams, 2, 6, rank=rank, world_size=2, **common)) as other:
                other.load_state_dict(state)
                alone.load_state_dict(state)
                for _ in range(12):
                    assert same(next(other)["x"], next(alone)["x"][6 * rank : 6 * rank + 6])
    for loader in loaders:
        loader.close()


def test_a_length_below_the_global_batch_with_several_ranks_is_an_error() -> None:
    streams = {"x": ArrayStream(np.arange(10))}
    with closing(DataLoader(streams, 0, 11, mode="cyclic")) as loader:
        assert sorted(next(loader)["x"]) == list(range(10))
    with pytest.raises(OptionError, match="10"):
        DataLoader(streams, 0, 6, mode="cyclic", rank=1, world_size=2)


def test_the_transform_gets_its_own_random_numbers() -> None:
    streams = {"x": ArrayStream(np.arange(N))}
    seen = set()
    for seed in (1, 2, 2**64 - 1):
        for rank in range(2):
            with closing(
                DataLoader(
                    streams,
                    3,
                    8,
                    seed=seed,
                    rank=rank,
                    world_size=2,
                    transform=lambda batch, rng: int(rng.integers(2**63)),
                    transform_rng=True,
                )
            ) as loader:
                for step in range(10):
                    drawn = next(loader)
                    assert drawn == int(step_rng(seed, step, rank).integers(2**63))
                    seen.add(drawn)
    assert len(seen) == 60


def test_random_numbers_of_a_step_never_change() -> None:
    assert step_rng(42, 0, 0).integers(1000, size=4).tolist() == [302, 820, 362, 189]
    assert step_rng(42, 7, 1).integers(1000, size=4).tolist() == [832, 0, 639, 972]


def test_no_more_batches_exist_than_promised() -> None:
    """Every batch that is made is counted until it dies; the user holds one at a time."""
    alive: weakref.WeakSet[Any] = weakref.WeakSet()
    most = 0
    lock = threading.Lock()

    class Counted:
        def __init__(self, batch: Any) -> None:
            nonlocal most
            self.batch = batch
            with lock:
                alive.add(self)
                most = max(most, len(alive))

    for num_workers, prefetch_size in ((1, 0), (2, 1), (3, 5)):
        most = 0
        with DataLoader({"x": CountingStream(N)}, num_workers, 4, prefetch_size, transform=Counted) as loader:
            for step in range(40):
                held = next(loader)
                if step % 10 == 9:
                    time.sleep(0.05)  # workers make all they may
                if step % 10 == 5:
                    loader.seek(100 * step)
                del held
        gc.collect()
        # One more: the user holds it until the next one is there.
        assert 1 <= most <= num_workers + prefetch_size + 1
        assert not alive


def test_workers_make_all_they_may_and_no_more() -> None:
    stream = CountingStream(N)
    with DataLoader({"x": stream}, 2, 4, 3) as loader:
        next(loader)
        deadline = time.monotonic() + 10
        while loader.stats().queue_depth < 5 and time.monotonic() < deadline:
            time.sleep(0.001)
        assert loader.stats().queue_depth == 5
        time.sleep(0.05)
        assert stream.n_reads == 6


def test_at_most_as_many_gathers_as_cores_run_at_once() -> None:
    stream = CountingStream(N, pause_s=0.003)
    with DataLoader({"x": stream}, 4 * available_cpus(), 4, 8) as loader:
        for _ in range(40):
            next(loader)
    assert 1 <= stream.most_at_once <= available_cpus()


def test_a_cold_stream_is_asked_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    """The batch that a worker makes next is asked for before this one is read, as long as reads find a disk."""
    blocks = iter(range(0, 10**6, 8))
    monkeypatch.setattr("loaderx.loader.fetch.blocks_read", lambda: next(blocks))
    stream = CountingStream(N)
    with DataLoader({"x": stream}, 0, 4) as loader:
        for _ in range(3):
            next(loader)
        assert stream.asked == [loader.sampler.indices(step).tolist() for step in (1, 2, 3)]
        monkeypatch.setattr("loaderx.loader.fetch.blocks_read", lambda: 0)
        next(loader)
        next(loader)
        assert len(stream.asked) == 4
        assert loader.stats().cold_blocks == 3 * 8


def test_stats_add_up(streams: dict[str, Any]) -> None:
    steps = []
    with DataLoader(
        streams, 2, 8, 2, transform=lambda batch: time.sleep(0.004), on_step=steps.append
    ) as loader:
        assert loader.stats().steps == 0
        for _ in range(5):
            next(loader)
        stats = loader.stats()
    assert stats.steps == 5
    assert [step.step for step in steps] == list(range(5))
    assert stats.transform_s == pytest.approx(sum(step.transform_s for step in steps))
    assert stats.wait_s == pytest.approx(sum(step.wait_s for step in steps))
    assert stats.gather_s == pytest.approx(sum(step.gather_s for step in steps))
    assert stats.transform_s >= 5 * 0.004
    assert stats.gather_s > 0
    assert steps[0].wait_s >= 0.004


@pytest.mark.parametrize(
    ("arguments", "option"),
    [
        ({"streams": {}}, "streams"),
        ({"streams": ArrayStream(np.arange(3))}, "streams"),
        ({"streams": None}, "streams"),
        ({"streams": {"x": [1, 2, 3]}}, "streams"),
        ({"streams": {"x": np.array(3)}}, "streams"),
        ({"streams": {1: ArrayStream(np.arange(3))}}, "streams"),
        ({"prefetch_size": 10**9}, "prefetch_size"),
        ({"streams": {"x": ArrayStream(np.arange(3)), "y": ArrayStream(np.arange(4))}}, "streams"),
        ({"streams": {"x": ArrayStream(np.arange(0))}}, "streams"),
        ({"num_workers": -1}, "num_workers"),
        ({"num_workers": 1.5}, "num_workers"),
        ({"prefetch_size": -1}, "prefetch_size"),
        ({"batch_size": 0}, "batch_size"),
        ({"mode": 3}, "mode"),
        ({"mode": "shuffled"}, "mode"),
        ({"seed": "x"}, "seed"),
        ({"transform": 3}, "transform"),
        ({"worker_type": "fiber"}, "worker_type"),
        ({"start_method": "fork"}, "start_method"),
        ({"transform_rng": "yes"}, "transform_rng"),
        ({"transform_rng": True}, "transform_rng"),
        ({"transform_rng": True, "transform": None}, "transform_rng"),
        ({"drop_remainder": 1}, "drop_remainder"),
        ({"on_step": 3}, "on_step"),
        ({"rank": 2, "world_size": 2}, "rank"),
        ({"world_size": 0}, "world_size"),
    ],
)
def test_wrong_arguments_are_named(arguments: dict[str, Any], option: str) -> None:
    with pytest.raises(OptionError) as caught:
        DataLoader(**{"streams": {"x": ArrayStream(np.arange(N))}, **arguments})
    assert caught.value.option == option
    assert option.split("_")[0] in str(caught.value)


def test_streams_that_differ_are_all_named() -> None:
    with pytest.raises(OptionError, match=r"'a' has 3, 'b' has 4"):
        DataLoader({"a": ArrayStream(np.arange(3)), "b": ArrayStream(np.arange(4))})
    with pytest.raises(OptionError, match=r"such as \{'data': ArrayStream"):
        DataLoader(ArrayStream(np.arange(3)))  # type: ignore[arg-type]


def test_a_loader_pickles_with_its_step(streams: dict[str, Any]) -> None:
    with DataLoader(
        streams, 2, 8, 1, "cyclic", 5, rank=1, world_size=2, drop_remainder=False, transform=identity
    ) as loader:
        for _ in range(3):
            next(loader)
        with pickle.loads(pickle.dumps(loader)) as copy:
            assert copy.state_dict() == loader.state_dict()
            assert repr(copy) == repr(loader)
            for _ in range(4):
                assert same(next(copy), next(loader))


def test_threads_that_share_a_loader_get_each_batch_once() -> None:
    with DataLoader({"x": ArrayStream(np.arange(4000))}, 2, 4, mode="sequential") as loader:
        got: list[int] = []

        def take() -> None:
            for _ in range(200):
                got.append(int(next(loader)["x"][0]))

        threads = [threading.Thread(target=take) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert loader.step == 800
        assert sorted(got) == [4 * step % 4000 for step in range(800)]


def test_a_loader_that_nothing_refers_to_ends_its_workers(streams: dict[str, Any]) -> None:
    before = set(threading.enumerate())
    loader = DataLoader(streams, 3, 8)
    next(loader)
    assert len(set(threading.enumerate()) - before) == 3
    del loader
    gc.collect()
    assert set(threading.enumerate()) <= before


def test_a_batch_of_views_dies_with_the_user(streams: dict[str, Any]) -> None:
    """Workers and tasks keep nothing of a batch that was given."""
    with DataLoader({"x": CountingStream(N)}, 2, 8, 2) as loader:
        kept = [weakref.ref(next(loader)["x"]) for _ in range(10)]
        gc.collect()
        assert [ref() is None for ref in kept] == [True] * 10


def test_gate_is_entered_by_every_worker() -> None:
    gate = Gate()
    with DataLoader({"x": CountingStream(N)}, 3, 8, transform=gate) as loader:
        waiter = threading.Thread(target=next, args=(loader,))
        waiter.start()
        for _ in range(3):
            assert gate.entered.acquire(timeout=10)
        gate.opened.set()
        waiter.join()
        assert loader.step == 1


def test_an_array_is_a_stream() -> None:
    labels = np.arange(N) * 2
    with DataLoader({"x": ArrayStream(np.arange(N)), "label": labels}, 2, 8) as loader:
        for _ in range(5):
            batch = next(loader)
            assert np.array_equal(batch["label"], 2 * batch["x"])


def test_a_stream_cannot_change_what_the_others_get() -> None:
    class Sorting(ArrayStream):
        def __getitems__(self, idxs: Any) -> Any:
            idxs.sort()
            return super().__getitems__(idxs)

    with (
        DataLoader({"a": Sorting(np.arange(N)), "b": np.arange(N)}, 0, 8) as loader,
        pytest.raises(ValueError, match="read-only"),
    ):
        next(loader)


def test_a_loader_is_true(streams: dict[str, Any]) -> None:
    with DataLoader(streams) as loader:
        assert loader
        assert (loader or None) is loader


def test_a_class_of_ones_own_pickles_as_itself() -> None:
    with OwnLoader({"x": np.arange(N)}, 0, 8) as loader:
        next(loader)
        copy = pickle.loads(pickle.dumps(loader))
        assert type(copy) is OwnLoader
        assert copy.step == 1


class OwnLoader(DataLoader):
    """A loader of one's own."""


@pytest.mark.parametrize("num_workers", [0, 2])
def test_the_last_step_is_an_error_that_does_not_count(num_workers: int) -> None:
    with DataLoader({"x": np.arange(N)}, num_workers, 2**20, mode="sequential") as loader:
        last = 2**63 // 2**20 - 1
        loader.seek(last)
        next(loader)
        for _ in range(3):
            with pytest.raises(OptionError, match="no step"):
                next(loader)
            assert loader.step == last + 1
        loader.load_state_dict(loader.state_dict())
        assert loader.step == last + 1
        with pytest.raises(OptionError):
            loader.seek(last + 2)


def test_another_step_may_be_sought_by_the_thread_that_waits() -> None:
    gate = Gate()

    def jump(*_: Any) -> None:
        loader.seek(7)
        gate.opened.set()

    before = signal.signal(signal.SIGUSR1, jump)
    try:
        with DataLoader({"x": np.arange(N)}, 2, 1, 2, "sequential", transform=gate) as loader:
            timer = threading.Timer(0.0, gate_entered_then_kill, [gate])
            timer.start()
            assert [int(next(loader)["x"][0]) for _ in range(3)] == [7, 8, 9]
            timer.join()
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_a_handler_may_take_batches_while_next_waits() -> None:
    gate, taken = Gate(), []

    def take(*_: Any) -> None:
        gate.opened.set()
        taken.append(int(next(loader)["x"][0]))

    before = signal.signal(signal.SIGUSR1, take)
    try:
        with DataLoader({"x": np.arange(N)}, 2, 1, 2, "sequential", transform=gate) as loader:
            timer = threading.Timer(0.0, gate_entered_then_kill, [gate])
            timer.start()
            for _ in range(5):
                taken.append(int(next(loader)["x"][0]))
            timer.join()
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert sorted(taken) == list(range(6))


@pytest.mark.parametrize("what", ["next", "seek"])
def test_a_handler_may_use_a_loader_that_reads_by_itself(what: str) -> None:
    taken: list[int] = []

    def use(*_: Any) -> None:
        if what == "next":
            taken.append(int(next(loader)["x"][0]))
        else:
            loader.seek(50)

    class Interrupted(ArrayStream):
        def __getitems__(self, idxs: npt.NDArray[np.uint64]) -> npt.NDArray[Any]:
            if idxs[0] == 3 and not interrupted:
                interrupted.append(True)
                signal.raise_signal(signal.SIGUSR1)
            return super().__getitems__(idxs)

    interrupted: list[bool] = []
    before = signal.signal(signal.SIGUSR1, use)
    try:
        with DataLoader({"x": Interrupted(np.arange(N))}, 0, 1, mode="sequential") as loader:
            for _ in range(6):
                taken.append(int(next(loader)["x"][0]))
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert taken == ([0, 1, 2, 3, 4, 5, 6] if what == "next" else [0, 1, 2, 50, 51, 52])


@pytest.mark.parametrize("kind", ["dataset", "array", "own", "derived"])
def test_only_known_streams_are_read_by_the_thread_that_asks(streams: dict[str, Any], kind: str) -> None:
    class Derived(Dataset):
        pass

    with Derived(streams["image"].path) as derived:
        found = {"dataset": streams["image"], "array": np.arange(N), "own": streams["x"], "derived": derived}
        with DataLoader({"x": found[kind]}, 2) as loader:
            assert loader._balance._can_be_here == (kind in ("dataset", "array"))
        with DataLoader({"x": found[kind], "y": streams["x"]}, 2) as loader:
            assert not loader._balance._can_be_here


def gate_entered_then_kill(gate: Gate) -> None:
    """Send this process a signal once a worker is inside, so that somebody waits or is about to."""
    gate.entered.acquire()
    os.kill(os.getpid(), signal.SIGUSR1)


class Turns:
    """In place of a Balance: the thread that asks makes every batch of `most` steps, workers those of as many more."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.n = 0

    @property
    def is_here(self) -> bool:
        return self.n // self.most % 2 == 1

    def note(self, *_: Any) -> None:
        self.n += 1

    def restart(self, now: int) -> None:
        pass


@pytest.mark.parametrize("num_workers", [1, 4])
@pytest.mark.parametrize("most", [1, 3, 10, 25])
def test_who_makes_a_batch_changes_nothing(num_workers: int, most: int) -> None:
    plain = {"x": ArrayStream(np.arange(N)), "y": ArrayStream(np.arange(N) * 2)}
    threads: set[str] = set()

    class Noted(ArrayStream):
        def __getitems__(self, idxs: npt.NDArray[np.uint64]) -> npt.NDArray[Any]:
            threads.add(threading.current_thread().name)
            if idxs[0] % 13 == 0:
                raise KeyError(int(idxs[0]))
            return super().__getitems__(idxs)

    noted = {name: Noted(stream.array) for name, stream in plain.items()}
    kinds = set()
    with DataLoader(noted, num_workers, 16, 2) as loader:
        loader._balance = Turns(most)  # type: ignore[assignment]
        for step in (*range(100), *range(1000, 1010)):
            if step == 1000:
                loader.seek(step)
            assert loader.step == step
            wanted = expected(plain, step, batch_size=16, mode=1)
            fails = Sampler(N, 16, 1).indices(step)[0] % 13 == 0
            kinds.add(bool(fails))
            if fails:
                with pytest.raises(KeyError, match=str(wanted["x"][0])):
                    next(loader)
            else:
                assert same(next(loader), wanted)
            assert len(loader._pending) <= num_workers + loader.prefetch_size
    assert kinds == {True, False}
    here = threading.current_thread().name
    assert threads - {here}
    # Where batches wait that were made ahead, their turn comes first: a shorter one is over by then.
    assert here in threads or most < 10


def test_a_transform_is_left_to_workers() -> None:
    names: set[str] = set()

    def note(batch: Any) -> Any:
        names.add(threading.current_thread().name)
        return batch

    with DataLoader({"x": np.arange(N)}, 2, 1, transform=note) as loader:
        for _ in range(300):
            next(loader)
    assert threading.current_thread().name not in names


@pytest.mark.parametrize("num_workers", [0, 2])
def test_on_step_may_use_the_loader(num_workers: int) -> None:
    def jump(stats: Any) -> None:
        if stats.step == 3:
            loader.load_state_dict({**loader.state_dict(), "step": 10})

    with DataLoader({"x": np.arange(N)}, num_workers, 1, 2, "sequential", on_step=jump) as loader:
        assert [int(next(loader)["x"][0]) for _ in range(6)] == [0, 1, 2, 3, 10, 11]


def test_a_loader_whose_stream_has_grown_does_not_unpickle(tmp_path: Path) -> None:
    write_dataset(tmp_path / "x.zr", np.arange(10))
    with Dataset(tmp_path / "x.zr") as ds, DataLoader({"x": ds}, 0, 4) as loader:
        pickled = pickle.dumps(loader)
    write_dataset(tmp_path / "x.zr", np.arange(5))
    with pytest.raises(StateMismatchError) as caught:
        pickle.loads(pickled)
    assert caught.value.mismatches == {"lengths": ({"x": 10}, {"x": 15})}
