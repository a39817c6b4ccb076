"""What a measurement ran on, as far as it helps to judge the numbers: no host names, no paths."""

from __future__ import annotations

import importlib
import os
import platform
from pathlib import Path

import numpy as np


def describe_environment() -> dict[str, str | int | float]:
    """Return processor, cores, memory, system, compiler of the package, versions, and the load before the start."""
    described: dict[str, str | int | float] = {
        "cpu": _read_field(Path("/proc/cpuinfo"), "model name") or platform.machine(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1,
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "system": f"{platform.system()} {platform.release()}",
        "libc": " ".join(platform.libc_ver()),
        "python": platform.python_version(),
        "numpy": np.__version__,
        "load_before": round(os.getloadavg()[0], 2),
    }
    try:
        package = importlib.import_module("loaderx")
        described["loaderx"] = str(package.__version__)
        for key, value in package.build_info().items():
            described[f"loaderx {key}"] = value if isinstance(value, int | float) else str(value)
    except (ImportError, AttributeError):
        described["loaderx"] = "not installed"
    return described


def _read_field(path: Path, name: str) -> str | None:
    """Return the value of the first line `name : value`, or None."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except OSError:
        return None
    for line in lines:
        field, _, value = line.partition(":")
        if field.strip() == name:
            return " ".join(value.split())
    return None
