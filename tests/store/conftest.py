"""What the tests of the record store share as fixtures."""

from __future__ import annotations

import os

import pytest

from loaderx.store import compact as compaction


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have compactions go in many blocks."""
    monkeypatch.setattr(compaction, "_BLOCK_BYTES", 900)
    monkeypatch.setattr(compaction, "_LEAST_BLOCK_BYTES", 900)


@pytest.fixture
def nothing_is_made_durable(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no file reach the disk, for tests that make thousands of stores and kill processes at most.

    Syncs are seen and refused all the same: they are announced before.
    """
    monkeypatch.setattr(os, "fsync", lambda _: None)
