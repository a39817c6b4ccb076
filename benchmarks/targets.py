"""What the benchmarks are to reach: the only list of targets. Each is one number of one result table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from benchmarks.pairing import Summary, pair_ratios, summarize
from benchmarks.results import Result


@dataclass(frozen=True)
class Target:
    """A row of a table, divided round by round by another where `denominator` is given, against a limit."""

    benchmark: str
    label: str
    table: str
    numerator: str
    denominator: str | None
    sense: Literal["at least", "at most"]
    limit: float
    unit: str = "x"

    def is_met(self, value: float) -> bool:
        """Say whether a measured value reaches the limit."""
        return value >= self.limit if self.sense == "at least" else value <= self.limit


TARGETS = (
    Target(
        "store",
        "raw gather over loaderx 0.7.3",
        "gather_raw",
        "loaderx raw",
        "loaderx 0.7.3 raw",
        "at least",
        2.2,
    ),
    Target("store", "raw gather over npy memmap", "gather_raw", "loaderx raw", "npy memmap", "at least", 1.4),
    Target(
        "store",
        "raw gather over the memcpy bound",
        "gather_raw",
        "loaderx raw",
        "memcpy bound",
        "at least",
        0.9,
    ),
    Target(
        "store",
        "zstd gather over loaderx 0.7.3",
        "gather_zstd",
        "loaderx zstd",
        "loaderx 0.7.3 zstd",
        "at least",
        1.3,
    ),
    Target(
        "store",
        "zstd gather over the libzstd bound",
        "gather_zstd",
        "loaderx zstd",
        "libzstd bound",
        "at least",
        0.85,
    ),
    Target(
        "store",
        "raw gather beside a busy process: mean time over one thread's",
        "busy_raw",
        "loaderx raw",
        "loaderx raw, 1 thread",
        "at most",
        1.2,
    ),
    Target(
        "store",
        "zstd write over libzstd compressing alone",
        "write_zstd",
        "loaderx zstd",
        "libzstd alone",
        "at least",
        0.85,
    ),
    Target(
        "store",
        "raw write over loaderx 0.7.3",
        "write_raw",
        "loaderx raw",
        "loaderx 0.7.3 raw",
        "at least",
        1.1,
    ),
    Target(
        "checksum",
        "records in cache, copied with their checksum into one buffer, the best kernel",
        "cache_one",
        "the best kernel",
        None,
        "at least",
        40.0,
        "GiB/s",
    ),
    Target(
        "checksum",
        "records in cache, copied with their checksum to their own places, the best kernel over memcpy",
        "cache_each",
        "the best kernel",
        "memcpy, no checksum",
        "at least",
        0.85,
    ),
    Target(
        "checksum",
        "verified gather, the best kernel: mean time over one that is not verified",
        "gather",
        "the best kernel",
        "not verified",
        "at most",
        1.3,
    ),
    Target(
        "checksum",
        "verified gather, the baseline kernel: mean time over one that is not verified",
        "gather",
        "the baseline kernel",
        "not verified",
        "at most",
        1.6,
    ),
    Target(
        "shuffle",
        "float32 waves: how much smaller, shuffled, level 3",
        "waves_stored",
        "raw",
        "zstd_shuffle",
        "at least",
        1.5,
    ),
    Target(
        "shuffle",
        "int32 tokens: how much smaller, shuffled, level 3",
        "tokens_stored",
        "raw",
        "zstd_shuffle",
        "at least",
        3.7,
    ),
    Target(
        "shuffle",
        "float32 waves: shuffled gather over libzstd on the same bytes",
        "waves_gather",
        "zstd_shuffle",
        "libzstd bound",
        "at least",
        0.85,
    ),
    Target(
        "shuffle",
        "int32 tokens: shuffled gather over libzstd on the same bytes",
        "tokens_gather",
        "zstd_shuffle",
        "libzstd bound",
        "at least",
        0.85,
    ),
    Target(
        "shuffle",
        "float32 waves: shuffling and compressing over libzstd on the same bytes",
        "waves_compress",
        "zstd_shuffle",
        "libzstd alone",
        "at least",
        0.85,
    ),
    Target(
        "shuffle",
        "int32 tokens: shuffling and compressing over libzstd on the same bytes",
        "tokens_compress",
        "zstd_shuffle",
        "libzstd alone",
        "at least",
        0.85,
    ),
    Target(
        "shuffle",
        "items of 4 bytes in cache, unshuffled, the best kernel",
        "cache",
        "the best kernel",
        None,
        "at least",
        20.0,
        "GiB/s",
    ),
    Target(
        "recycle",
        "raw gather of 37 MiB, four batches held: over the same into np.empty",
        "held",
        "loaderx",
        "np.empty",
        "at least",
        2.0,
    ),
    Target(
        "recycle",
        "memory after a burst of 40 such batches over that before it",
        "burst",
        "after the burst",
        "before the burst",
        "at most",
        1.1,
    ),
    Target(
        "small",
        "one record of 1 KiB over a copy of npy memmap's: time",
        "one",
        "loaderx one",
        "npy memmap one",
        "at most",
        1.5,
    ),
    Target(
        "small",
        "one record of 1 KiB over loaderx 0.7.3",
        "one",
        "loaderx 0.7.3 one",
        "loaderx one",
        "at least",
        20.0,
    ),
    Target(
        "small",
        "256 labels of 8 bytes over loaderx 0.7.3",
        "labels",
        "loaderx 0.7.3 raw",
        "loaderx raw",
        "at least",
        25.0,
    ),
    Target(
        "small",
        "256 records of 1 KiB over npy memmap",
        "small",
        "npy memmap",
        "loaderx raw",
        "at least",
        1.2,
    ),
    Target(
        "small",
        "256 token sequences, packed, over loaderx 0.7.3",
        "packed",
        "loaderx 0.7.3 packed",
        "loaderx packed",
        "at least",
        10.0,
    ),
    Target(
        "small",
        "256 token sequences, padded, over loaderx 0.7.3",
        "padded",
        "loaderx 0.7.3 padded",
        "loaderx padded",
        "at least",
        8.0,
    ),
    Target(
        "safety",
        "raw gather over the commit before",
        "gather_raw",
        "loaderx raw",
        "loaderx before raw",
        "at least",
        0.97,
    ),
    Target(
        "safety",
        "raw append of a batch: time over the commit before",
        "append_raw",
        "loaderx raw",
        "loaderx before raw",
        "at most",
        1.03,
    ),
    Target(
        "safety",
        "zstd gather over the commit before",
        "gather_zstd",
        "loaderx zstd",
        "loaderx before zstd",
        "at least",
        0.97,
    ),
    Target(
        "safety",
        "zstd append of a batch: time over the commit before",
        "append_zstd",
        "loaderx zstd",
        "loaderx before zstd",
        "at most",
        1.03,
    ),
    Target(
        "safety",
        "raw append of one record of 1 KiB: time over the commit before",
        "append_one",
        "loaderx raw",
        "loaderx before raw",
        "at most",
        1.03,
    ),
    Target(
        "cold",
        "random records from a disk over loaderx 0.7.3",
        "random",
        "loaderx raw",
        "loaderx 0.7.3 raw",
        "at least",
        2.0,
    ),
    Target(
        "cold",
        "random records from a disk over npy memmap",
        "random",
        "loaderx raw",
        "npy memmap",
        "at least",
        3.5,
    ),
    Target(
        "cold",
        "a pass over a disk in order, over reading the file",
        "sequential",
        "loaderx raw",
        "read of the file",
        "at least",
        0.75,
    ),
    Target(
        "cold",
        "raw gather from memory: time over the commit that never asks ahead",
        "warm",
        "loaderx raw",
        "loaderx before raw",
        "at most",
        1.03,
    ),
    *(
        Target(
            "sampler",
            f"IID, {batch:,} of 1,000,000: `default_rng` over loaderx{how}",
            f"iid_{batch}",
            "default_rng",
            f"loaderx{how}",
            "at least",
            limit,
        )
        for batch in (256, 1024, 8192)
        for how, limit in (("", 8.0), (", out=", 10.0))
    ),
    Target(
        "sampler",
        "IID, 8,192 of 4,294,967,297: `default_rng` over loaderx",
        "iid_far",
        "default_rng",
        "loaderx",
        "at least",
        2.0,
    ),
    Target(
        "sampler",
        "cyclic, 8,192 of 1,000,000: loaderx 2.8.19 over loaderx",
        "cyclic",
        "loaderx 2.8.19",
        "loaderx",
        "at least",
        10.0,
    ),
    Target("import", "`import loaderx` on top of NumPy", "import", "loaderx", None, "at most", 100.0, "ms"),
)


def evaluate(target: Target, results: Mapping[str, Result]) -> Summary | None:
    """Return the target's number over the rounds, or None where the results do not hold it."""
    result = results.get(target.benchmark)
    table = result["tables"].get(target.table) if result else None
    if table is None:
        return None
    values = table["rows"].get(target.numerator)
    if target.denominator is not None:
        divisors = table["rows"].get(target.denominator)
        values = pair_ratios(values, divisors) if values and divisors else None
    return summarize(values) if values else None
