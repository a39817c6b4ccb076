"""When a handle asks for records ahead: the account as numbers, nothing of a clock."""

from __future__ import annotations

from itertools import pairwise

import pytest

from loaderx._core.watch import follow, looks

BATCH = 256
PAGES_A_RECORD = 3  # of 12 KiB


def test_one_cold_batch_switches_on_whatever_was_before() -> None:
    for before in (-8192, -1, 0, 1, 8192):
        assert follow(before, [BATCH], [BATCH * PAGES_A_RECORD])[0] > 0


def test_a_warm_store_is_asked_once() -> None:
    # a handle begins with 1
    assert all(credit <= 0 for credit in follow(1, [BATCH] * 5, [0] * 5))
    assert follow(1, [1], [0])[0] <= 0


def test_it_stays_on_while_anything_is_read() -> None:
    # a batch in which everything but two records was there
    credits = follow(0, [BATCH] * 500, [2 * PAGES_A_RECORD] * 500)
    assert all(credit > 0 for credit in credits)


def test_some_warm_batches_between_cold_ones_change_nothing() -> None:
    pages = ([BATCH * PAGES_A_RECORD] + [0] * 20) * 10
    credits = follow(1, [BATCH] * len(pages), pages)
    assert all(credit > 0 for credit in credits)


def test_a_stray_page_on_a_warm_store_does_not_switch_on() -> None:
    warm = follow(1, [BATCH] * 100, [0] * 100)[-1]
    assert all(credit <= 0 for credit in follow(warm, [BATCH] * 50, [1] + [0] * 49))


def test_it_goes_off_when_the_store_has_become_warm() -> None:
    cold = follow(1, [BATCH] * 100, [BATCH * PAGES_A_RECORD] * 100)[-1]
    credits = follow(cold, [BATCH] * 100, [0] * 100)
    on = sum(credit > 0 for credit in credits)
    assert 10 < on < 64
    assert sorted(credits, reverse=True) == credits
    assert min(credits) == credits[-1] == -max(follow(0, [1], [10**6]))


@pytest.mark.parametrize("pages", [0, 1, 3, 10])
def test_where_both_cost_the_same_it_switches_rarely_if_at_all(pages: int) -> None:
    # every tenth batch reads a little
    reads = ([pages] + [0] * 9) * 200
    credits = follow(1, [BATCH] * len(reads), reads)
    switches = sum((a > 0) != (b > 0) for a, b in pairwise(credits[100:]))
    assert switches <= len(credits) / 20


def test_small_calls_look_now_and_then_and_large_ones_always() -> None:
    seen = looks([1024] * 10_000)
    assert 10 <= sum(seen) <= 50
    assert all(looks([4 << 20] * 10))
    assert sum(looks([1 << 20] * 16)) == 4
    assert looks([]) == []
