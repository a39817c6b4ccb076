"""Tests of the record store."""

import pytest

# Before anybody imports them: what they assert is shown as in a test.
pytest.register_assert_rewrite("tests.store.crashes", "tests.store.sums")
