"""Sizes become numbers of rows in place, or stay as they are."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from loaderx._core.rows import to_rows


@given(
    row_bytes=st.one_of(st.sampled_from([1, 2, 3, 4, 8, 12, 1 << 20, 1 << 40]), st.integers(1, 1 << 62)),
    rows=st.lists(st.integers(0, 1000), max_size=20),
    bent=st.one_of(st.none(), st.integers(0, 19)),
)
def test_sizes_are_divided_or_the_first_that_is_no_multiple_is_named(
    row_bytes: int, rows: list[int], bent: int | None
) -> None:
    rows = [row for row in rows if row * row_bytes < 1 << 62]
    sizes = np.array([row * row_bytes for row in rows], np.int64)
    if bent is not None and bent < len(rows):
        sizes[bent:] += 1
    before = sizes.copy()
    broken = np.flatnonzero(before % row_bytes)
    if len(broken):
        assert to_rows(sizes, row_bytes)[0] == broken[0]
        assert sizes.tolist() == before.tolist()
    else:
        expected = before // row_bytes
        assert to_rows(sizes, row_bytes) == (-1, expected.max(initial=0))
        assert sizes.tolist() == expected.tolist()


@pytest.mark.parametrize("row_bytes", [0, -4])
def test_a_row_has_bytes(row_bytes: int) -> None:
    with pytest.raises(ValueError, match="not at least 1"):
        to_rows(np.zeros(3, np.int64), row_bytes)
