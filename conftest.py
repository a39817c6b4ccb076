"""What the examples in docstrings may use without saying where it comes from."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import loaderx

# They import packages that may not be there; tests/frameworks runs their examples.
collect_ignore = ["loaderx/torch", "loaderx/jax.py"]


@pytest.fixture(autouse=True)
def _names_for_examples(doctest_namespace: dict[str, object], tmp_path: Path) -> None:
    doctest_namespace.update({name: getattr(loaderx, name) for name in loaderx.__all__})
    doctest_namespace.update(np=np, Path=Path, tmp_path=tmp_path)
