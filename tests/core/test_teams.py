"""How much work deserves a team of threads: a matter of bytes where they are copied, of time where they cost more."""

from __future__ import annotations

import pytest

from loaderx._core.threads import follow_cost, in_forked_child, plan_team

KIB = 1024


@pytest.mark.parametrize(
    ("work_bytes", "byte_ns", "team"),
    [
        (255 * KIB, 0.0, 1),
        (256 * KIB, 0.0, 2),
        (255 * KIB, 0.06, 1),
        (255 * KIB, 0.125, 1),
        (100 * KIB, 0.25, 1),
        (160 * KIB, 0.25, 2),
        (8 * KIB, 3.0, 1),
        (16 * KIB, 3.0, 3),
        (1 * KIB, 3000.0, 1),
        (1024 * KIB, 0.0, 8),
    ],
)
def test_dear_bytes_deserve_a_team_sooner(work_bytes: int, byte_ns: float, team: int) -> None:
    assert not in_forked_child()
    assert plan_team(8, work_bytes, 256, byte_ns) == team
    assert plan_team(1, work_bytes, 256, byte_ns) == 1
    assert plan_team(8, work_bytes, 1, byte_ns) == 1


def test_a_cheap_call_is_believed_at_once_and_a_dear_one_slowly() -> None:
    assert follow_cost(3.0, [1000], [10_000]) == [0.1]
    rising = follow_cost(0.125, [30_000] * 60, [10_000] * 60)
    assert rising[0] == pytest.approx(0.125 * 9 / 8)
    assert rising == sorted(rising)
    assert rising[-1] == 3.0
    # one interruption of milliseconds changes next to nothing
    assert follow_cost(0.06, [5_000_000, 600], [10_000, 10_000])[1] == 0.06
