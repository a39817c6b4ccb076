"""The files of tests that import a framework run in a process of their own: test_adapters.py begins it."""

from __future__ import annotations

collect_ignore_glob = ["*_adapter.py", "*_program.py"]
