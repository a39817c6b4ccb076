"""One sampler in a process of its own: a script that needs NumPy and the package it measures, nothing else.

Each line of standard input is a JSON object, and each answer a line: ``{"ok": ...}`` or ``{"missing": reason}``.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

CHUNK_S = 1e-3
MODES = {"iid": 1, "cyclic": 2}


def import_sampler(version: str) -> Any:
    """Return the class of a version, "" for this package; ImportError where the package found is another."""
    import loaderx

    found = getattr(loaderx, "__version__", "of unknown version")
    if version and found != version:
        raise ImportError(f"the loaderx found here is {found}, not {version}")
    if version == "0.7.3":
        from loaderx._sampler import Sampler  # this version does not name it

        return Sampler
    if hasattr(loaderx, "Sampler"):
        return loaderx.Sampler
    from loaderx.sampler import Sampler as Legacy

    return Legacy


def make_call(how: str, length: int, batch: int, mode: str, kernel: str | None) -> Callable[[], Any]:
    """Return the call that draws one batch; `how`: default_rng, out, or a version's `next`."""
    import numpy as np

    if how == "default_rng":
        rng = np.random.default_rng(0)
        return lambda: rng.integers(0, length, size=batch, dtype=np.uint64)
    if how not in ("", "out"):
        draw: Callable[[], Any] = import_sampler(how)(length, batch, MODES[mode], 42).next
        return draw
    from loaderx import Sampler
    from loaderx._core.draw import use_kernel

    use_kernel(kernel)
    sampler = Sampler(length, batch, mode)
    if how == "":
        return sampler.next
    out, step = np.empty(batch, np.uint64), 0

    def draw_out() -> Any:
        nonlocal step
        step += 1
        return sampler.indices(step, out)

    return draw_out


def measure_us(call: Callable[[], Any], seconds: float) -> float:
    """Return the median over chunks of calls: microseconds a call. Each result is dropped by the next."""
    clock, calls = time.perf_counter, 1
    while True:
        start = clock()
        for _ in range(calls):
            call()
        if (took := clock() - start) >= CHUNK_S / 4:
            break
        calls *= 2
    calls = max(1, int(calls * CHUNK_S / took))
    chunks = list[float]()
    deadline = clock() + seconds
    while not chunks or clock() < deadline:
        start = clock()
        for _ in range(calls):
            call()
        chunks.append((clock() - start) / calls * 1e6)
    return statistics.median(chunks)


def obey(command: dict[str, Any]) -> Any:
    """Do one command."""
    if command["do"] == "prepare":
        import numpy as np

        if command["how"] == "default_rng":
            return np.__version__
        package = import_sampler(command["how"] if command["how"] != "out" else "")
        return str(getattr(sys.modules["loaderx"], "__version__", package.__module__))
    if command["do"] == "kernels":
        from loaderx._core.draw import kernels

        return list(kernels())
    keys = ("how", "length", "batch", "mode", "kernel")
    return measure_us(make_call(*(command[key] for key in keys)), command["seconds"])


if __name__ == "__main__":
    for line in sys.stdin:
        try:
            answer = {"ok": obey(json.loads(line))}
        except ImportError as error:
            answer = {"missing": str(error).split(" (")[0]}  # no path: it may end on the page
        print(json.dumps(answer), flush=True)
