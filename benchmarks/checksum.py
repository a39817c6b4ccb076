"""What a checksum of every record costs: in cache, and in a gather that compares it.

- **Kernels.** The checksum, XXH3-64, has one for each instruction set; the processor's best is chosen at run time. Here
  each that works is measured. The baseline is what every processor of its kind has: SSE2 on x86-64.
- **In cache.** One core, 21 records of 12 KiB that lie in its second-level cache, over and over: copied with their
  checksum in one pass, copied by memcpy, and the checksum alone. Once all into one buffer, as for a reader that uses
  one record at a time, and once each to its own place: there memcpy itself is bound by the cache, which has to bring
  in and take back every line of the destination too. `checksum.c` is compiled with `cc -O3` when the benchmark starts
  and includes the source of the kernels that the package is built from.
- **Gather.** 20,000 records of 12 KiB, the data of the store's benchmark, stored as they are, page cache warm:
  `__getitems__` on 256 fresh random indices with a fresh result, all cores, without and with `verify=True`. Indices are
  drawn and results dropped outside the clock.
- **Turns.** All rows of a table are measured in turn, each for the same time, and each round begins with the next one.
  A ratio is taken within a round; its median over the rounds is given. A turn during which other programs used more
  than a tenth of a core is measured again, at most five times.
"""

from __future__ import annotations

import argparse
import ctypes
import time
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.bounds import run_tool
from benchmarks.contenders import NotInstalledError
from benchmarks.data import make_records
from benchmarks.environment import describe_environment
from benchmarks.options import add_folder_arguments, add_result_arguments, run_in_folder
from benchmarks.results import Result, Table
from benchmarks.turns import QUICK, Size, measure_rows

SOURCE = Path(__file__).with_name("checksum.c")
HEADERS = Path(__file__).parents[1] / "loaderx" / "_core"
BASELINES = ("sse2", "portable")
RECORDS_IN_CACHE = 21
ROUNDS_A_CALL = 50
PAGE_BYTES = 4096
NOT_VERIFIED = "not verified"
BEST = "the best kernel"
BASELINE = "the baseline kernel"


class Memory:
    """Records in cache and room for them, and the functions of checksum.c on them.

    Raises
    ------
    NotInstalledError
        There is no C compiler.
    """

    def __init__(self, library: Path, size: Size) -> None:
        run_tool(["cc", "-O3", "-shared", "-fPIC", f"-I{HEADERS}", "-o", str(library), str(SOURCE)])
        self._library = ctypes.CDLL(str(library))
        self._library.checksum_kernel.restype = ctypes.c_char_p
        self._library.checksum_run.restype = ctypes.c_uint64
        self._size = size
        num_bytes = RECORDS_IN_CACHE * size.record_bytes
        self._source, self._target = self._pages(num_bytes), self._pages(num_bytes)
        self._source[:] = np.random.default_rng(0).integers(0, 256, num_bytes, dtype=np.uint8)
        self.kernels: dict[str, int] = {}
        for number in range(self._library.checksum_kernels()):
            name = self._library.checksum_kernel(ctypes.c_int64(number))
            if name is not None:
                self.kernels[name.decode()] = number

    @staticmethod
    def _pages(num_bytes: int) -> NDArray[np.uint8]:
        """Return memory that begins with a page, as a batch does."""
        memory: NDArray[np.uint8] = np.zeros(num_bytes + PAGE_BYTES, np.uint8)
        start = -memory.ctypes.data % PAGE_BYTES
        return memory[start : start + num_bytes]

    def rate(self, kernel: str | None, copies: bool, dst_step: int) -> float:
        """Take one turn: GiB/s."""
        run = partial(
            self._library.checksum_run,
            ctypes.c_int64(-1 if kernel is None else self.kernels[kernel]),
            ctypes.c_void_p(self._target.ctypes.data if copies else None),
            ctypes.c_int64(dst_step),
            ctypes.c_void_p(self._source.ctypes.data),
            ctypes.c_int64(self._size.record_bytes),
            ctypes.c_int64(RECORDS_IN_CACHE),
        )
        num_rounds, start = 0, time.perf_counter()
        while (seconds := time.perf_counter() - start) < self._size.turn_s:
            run(ctypes.c_int64(ROUNDS_A_CALL))
            num_rounds += ROUNDS_A_CALL
        return num_rounds * len(self._source) / seconds / 2**30

    def table(self, title: str, dst_step: int, alone: bool) -> Table:
        """Measure copies with every kernel and without one, and where wanted the checksums alone."""
        best, *others = self.kernels
        rows: dict[str, Callable[[], float]] = {BEST: partial(self.rate, best, True, dst_step)}
        rows["memcpy, no checksum"] = partial(self.rate, None, True, dst_step)
        for name in others:
            rows[name] = partial(self.rate, name, True, dst_step)
        for name in self.kernels if alone else ():
            rows[f"{name}, no copy"] = partial(self.rate, name, False, dst_step)
        return measure_rows(self._size, title, "GiB/s", rows)


def measure_gathers(size: Size, folder: Path) -> Table:
    """Measure gathers from one store, not verified and verified with each kernel."""
    from loaderx import Dataset, write_dataset
    from loaderx._core import checksum

    records = make_records(size.num_records, (size.record_bytes,))
    path = folder / "records.zr"
    write_dataset(path, records, codec="raw")
    best = checksum.kernels()[0]
    baseline = next(name for name in BASELINES if name in checksum.kernels())
    rng = np.random.default_rng(1)
    with ExitStack() as opened:
        plain = opened.enter_context(Dataset(path))
        verified = opened.enter_context(Dataset(path, verify=True))
        opened.callback(checksum.use_kernel, None)
        for dataset in (plain, verified):
            for idxs in np.array_split(rng.permutation(len(records)), max(1, len(records) // size.batch)):
                if not np.array_equal(dataset.__getitems__(idxs), records[idxs]):
                    raise ValueError("a gather gave other bytes than were written")

        def mean_us(dataset: Any, kernel: str | None) -> float:
            checksum.use_kernel(kernel)
            gather, clock, took = dataset.__getitems__, time.perf_counter_ns, list[int]()
            for _ in range(3):
                gather(rng.integers(0, len(records), size.batch))
            deadline = clock() + int(size.turn_s * 1e9)
            while not took or clock() < deadline:
                idxs = rng.integers(0, len(records), size.batch)
                start = clock()
                result = gather(idxs)
                took.append(clock() - start)
                del result
            return sum(took) / len(took) / 1e3

        rows: dict[str, Callable[[], float]] = {
            NOT_VERIFIED: partial(mean_us, plain, None),
            BEST: partial(mean_us, verified, best),
            BASELINE: partial(mean_us, verified, baseline),
        }
        others = [name for name in checksum.kernels() if name not in (best, baseline)]
        rows |= {name: partial(mean_us, verified, name) for name in others}
        return measure_rows(size, "Gather, verified and not", "us", rows)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    add_result_arguments(parser, Size.num_rounds)
    add_folder_arguments(parser, "for the store to gather from")


def run(options: argparse.Namespace) -> int:
    """Run the benchmark, print its tables, and write its result; 2 when an option is wrong."""
    size = QUICK if options.quick else Size(num_rounds=options.rounds)
    return run_in_folder(options, partial(measure, size))


def measure(size: Size, folder: Path) -> Result:
    """Measure everything in `folder`, which is left full."""
    environment = describe_environment()
    tables: dict[str, Table] = {}
    missing: dict[str, str] = {}
    try:
        memory = Memory(folder / "checksum.so", size)
        tables["cache_one"] = memory.table("In cache, all into one buffer", 0, True)
        tables["cache_each"] = memory.table("In cache, each to its own place", size.record_bytes, False)
        environment["kernels, the best first"] = ", ".join(memory.kernels)
    except NotInstalledError as error:
        missing["in cache"] = f"not measured ({error}); a C compiler"
    tables["gather"] = measure_gathers(size, folder)
    return {
        "benchmark": "checksum",
        "settings": {
            "records": size.num_records,
            "bytes a record": size.record_bytes,
            "records in cache": RECORDS_IN_CACHE,
            "batch": size.batch,
            "rounds": size.num_rounds,
            "seconds a turn": size.turn_s,
        },
        "environment": environment,
        "tables": tables,
        "missing": missing,
    }
