"""What the tests of the record store share as fixtures."""

from __future__ import annotations

import pytest

from loaderx.store import compact as compaction


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have compactions go in many blocks."""
    monkeypatch.setattr(compaction, "_BLOCK_BYTES", 900)
    monkeypatch.setattr(compaction, "_LEAST_BLOCK_BYTES", 900)
