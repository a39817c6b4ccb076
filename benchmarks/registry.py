"""Every contender by its name."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from benchmarks import bounds, contenders, loaders
from benchmarks.contenders import (
    BEFORE_FOLDER,
    BEFORE_HINT,
    EXTRA_HINT,
    LEGACY_FOLDER,
    LEGACY_HINT,
    OWN_HINT,
    Contender,
    LegacyStore,
    LoaderxStore,
    OneByOne,
    RaggedStore,
)


def list_ragged(name: str, *, padded: bool) -> tuple[Contender, ...]:
    """Return the contenders of ragged batches."""
    ours, alone, legacy = LoaderxStore("raw"), LoaderxStore("raw", 1), LegacyStore("raw")
    return (
        Contender(f"loaderx {name}", "loaderx", partial(RaggedStore, ours, padded), OWN_HINT),
        Contender(f"loaderx {name}, 1 thread", "loaderx", partial(RaggedStore, alone, padded), OWN_HINT),
        Contender(f"loaderx 0.7.3 {name}", LEGACY_FOLDER, partial(RaggedStore, legacy, padded), LEGACY_HINT),
    )


def list_contenders(bounds_library: Path) -> dict[str, Contender]:
    """Return all contenders, ours first; the bounds load `bounds_library`."""
    every = (
        Contender("loaderx raw", "loaderx", partial(contenders.LoaderxStore, "raw"), OWN_HINT),
        Contender("loaderx zstd", "loaderx", partial(contenders.LoaderxStore, "zstd"), OWN_HINT),
        Contender("loaderx raw, 1 thread", "loaderx", partial(contenders.LoaderxStore, "raw", 1), OWN_HINT),
        Contender("loaderx zstd, 1 thread", "loaderx", partial(contenders.LoaderxStore, "zstd", 1), OWN_HINT),
        Contender("loaderx before raw", BEFORE_FOLDER, partial(contenders.LoaderxStore, "raw"), BEFORE_HINT),
        Contender(
            "loaderx before zstd", BEFORE_FOLDER, partial(contenders.LoaderxStore, "zstd"), BEFORE_HINT
        ),
        Contender(
            "loaderx raw, pread", "loaderx", partial(contenders.LoaderxStore, "raw", 0, "pread"), OWN_HINT
        ),
        Contender("loaderx 0.7.3 raw", LEGACY_FOLDER, partial(contenders.LegacyStore, "raw"), LEGACY_HINT),
        Contender("loaderx 0.7.3 zstd", LEGACY_FOLDER, partial(contenders.LegacyStore, "zstd"), LEGACY_HINT),
        Contender("npy memmap", "numpy", contenders.MemmapStore, "pip install numpy"),
        Contender("lmdb", "lmdb", contenders.LmdbStore, EXTRA_HINT),
        Contender("h5py", "h5py", contenders.Hdf5Store, EXTRA_HINT),
        Contender("arrayrecord", "array_record", contenders.ArrayRecordStore, EXTRA_HINT),
        Contender("loaderx one", "loaderx", partial(OneByOne, LoaderxStore("raw")), OWN_HINT),
        Contender("loaderx 0.7.3 one", LEGACY_FOLDER, partial(OneByOne, LegacyStore("raw")), LEGACY_HINT),
        Contender(
            "npy memmap one", "numpy", partial(OneByOne, contenders.MemmapStore()), "pip install numpy"
        ),
        *list_ragged("packed", padded=False),
        *list_ragged("padded", padded=True),
        Contender("memcpy bound", "bounds.c", partial(bounds.MemcpyBound, bounds_library), bounds.HINT),
        Contender("libzstd bound", "bounds.c", partial(bounds.ZstdBound, bounds_library), bounds.HINT),
        Contender("libzstd alone", "bounds.c", partial(bounds.CompressBound, bounds_library), bounds.HINT),
        *loaders.list_loaders(),
    )
    return {contender.name: contender for contender in every}
