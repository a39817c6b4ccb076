"""How this copy of loaderx was built."""

from __future__ import annotations

from loaderx._core import facts, threads


def build_info() -> dict[str, str | int | None]:
    """Return how this copy of loaderx was built, and how many threads a call may use.

    Returns
    -------
    dict
        `zstd_version` (str); `zstd_source` (str: "system", "prefix" or "bundled"); `openmp` (int or None: the date of
        the OpenMP specification, None where the core runs on one thread); `compiler` (str); `threads` (int: the
        cores in the affinity mask, 1 without OpenMP).

    Examples
    --------
    >>> import loaderx
    >>> sorted(loaderx.build_info())
    ['compiler', 'openmp', 'threads', 'zstd_source', 'zstd_version']
    """
    openmp = facts.openmp_version()
    return {
        "zstd_version": facts.zstd_version(),
        "zstd_source": facts.zstd_source(),
        "openmp": openmp,
        "compiler": facts.compiler(),
        "threads": threads.available_cpus() if openmp else 1,
    }
