"""Who makes the next batch, by what steps took: times are given, so that the decisions are facts."""

import pytest

from loaderx.loader.balance import WINDOW, Balance

MS = 1_000_000
US = 1_000


class Loop:
    """A training loop on a clock of its own: what it works for a step, and what batches take."""

    def __init__(self, *, work: int, by_workers: int, here: int, cold: int = 0) -> None:
        self.work = work
        self.by_workers = by_workers
        self.here = here
        self.cold = cold
        self.balance = Balance(True)
        self.now = 1
        self.n_here = 0

    def run(self, n: int) -> None:
        for _ in range(n):
            self.now += self.work
            was_here = self.balance.is_here
            if was_here:
                wait = make = self.here
                self.n_here += 1
            else:  # steps of workers come at their pace, or at once
                wait = max(self.by_workers - self.work, 10 * US)
                make = 2 * self.by_workers
            self.now += wait
            self.balance.note(was_here, wait, make, self.cold, self.now)


def test_begins_with_workers():
    assert not Balance(True).is_here


def test_who_only_waits_makes_them_itself():
    loop = Loop(work=0, by_workers=250 * US, here=180 * US)
    loop.run(10_000)
    assert loop.n_here > 9_000
    assert loop.balance.is_here


def test_who_has_work_to_do_leaves_them_to_workers():
    loop = Loop(work=5 * MS, by_workers=250 * US, here=180 * US)
    loop.run(10_000)
    assert loop.n_here == 0


@pytest.mark.parametrize("work", [0, 100 * US, 5 * MS])
def test_small_batches_are_not_handed_over(work):
    loop = Loop(work=work, by_workers=40 * US, here=10 * US)
    loop.run(10_000)
    assert loop.n_here > 9_000


def test_workers_that_wait_together_are_faster_than_one():
    loop = Loop(work=0, by_workers=2 * MS, here=30 * MS)  # sixteen of them, each with a connection
    loop.run(100_000)
    assert not loop.balance.is_here
    # what the tries have cost, of all
    assert loop.n_here * (loop.here - loop.by_workers) < 0.01 * loop.now


def test_a_try_that_is_much_slower_ends_early():
    loop = Loop(work=0, by_workers=2 * MS, here=300 * MS)
    loop.run(WINDOW + 2)  # the first step sets the clock
    assert loop.n_here == 1
    assert not loop.balance.is_here


def test_workers_are_asked_again_once_there_is_work():
    loop = Loop(work=0, by_workers=250 * US, here=180 * US)
    loop.run(1_000)
    assert loop.balance.is_here
    loop.work = 5 * MS
    loop.run(3 * WINDOW)
    assert not loop.balance.is_here
    before = loop.n_here
    loop.run(10_000)
    assert loop.n_here == before


def test_workers_are_asked_again_once_batches_grow():
    loop = Loop(work=5 * MS, by_workers=40 * US, here=10 * US)
    loop.run(1_000)
    assert loop.balance.is_here
    loop.here, loop.by_workers = 400 * US, 300 * US
    loop.run(3 * WINDOW)
    assert not loop.balance.is_here


def test_a_team_that_has_lost_its_cores_gives_way():
    loop = Loop(work=0, by_workers=250 * US, here=180 * US)
    loop.run(1_000)
    loop.here = 600 * US  # a neighbour has come
    loop.run(3 * WINDOW)
    assert not loop.balance.is_here


def test_a_disk_is_left_to_workers():
    loop = Loop(work=0, by_workers=250 * US, here=180 * US, cold=1)
    loop.run(1_000)
    assert loop.n_here == 0
    loop.cold = 0
    loop.run(1_000)
    assert loop.balance.is_here
    loop.cold = 1
    loop.run(3 * WINDOW)
    assert not loop.balance.is_here


def test_workers_that_began_slowly_are_measured_again():
    loop = Loop(work=0, by_workers=20 * MS, here=10 * MS)
    loop.run(1_000)
    assert loop.balance.is_here
    loop.by_workers = 1 * MS  # the first ones had a cold start
    loop.run(20_000)
    before, now = loop.n_here, loop.now
    loop.run(100_000)
    assert loop.n_here - before < 2_000
    assert loop.now - now < 1.2 * 100_000 * loop.by_workers


def test_what_a_disk_took_says_nothing_of_workers():
    loop = Loop(work=0, by_workers=20 * MS, here=10 * MS, cold=1)
    loop.run(1_000)
    loop.cold, loop.by_workers, loop.here = 0, 1 * MS, 3 * MS
    loop.run(10_000)
    assert loop.n_here < 1_000


@pytest.mark.parametrize("every", [2, 3, 8])
def test_a_few_steps_that_are_very_slow_count(every):
    loop = Loop(work=0, by_workers=2 * MS, here=1 * MS)
    for n in range(20_000):
        loop.here = (40 if n % every == 0 else 1) * MS
        loop.run(1)
    assert loop.n_here < 2_000


def test_measuring_again_costs_next_to_nothing():
    loop = Loop(work=0, by_workers=250 * US, here=180 * US)
    loop.run(200_000)
    assert loop.n_here > 0.99 * 200_000


def test_some_loaders_leave_everything_to_workers():
    balance = Balance(False)
    for now in range(1, 10_000):
        balance.note(False, 250 * US, 500 * US, 0, now * 250 * US)
    assert not balance.is_here


@pytest.mark.parametrize("pause", [MS, 100 * MS, 3_600_000 * MS])
def test_a_pause_counts_as_one_step(pause):
    loop = Loop(work=0, by_workers=250 * US, here=180 * US)
    loop.run(1_000)
    before = loop.n_here
    for _ in range(100):
        loop.now += pause  # an evaluation, say
        loop.run(100)
    assert loop.n_here == before + 100 * 100


def test_what_went_well_is_tried_again_soon():
    loop = Loop(work=0, by_workers=250 * US, here=180 * US)
    for _ in range(20):
        loop.work = 0
        loop.run(300)
        assert loop.balance.is_here
        loop.work = 5 * MS
        loop.run(300)
        assert not loop.balance.is_here
