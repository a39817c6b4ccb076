"""Every contender by its name."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from benchmarks import bounds, contenders
from benchmarks.contenders import EXTRA_HINT, LEGACY_FOLDER, LEGACY_HINT, OWN_HINT, Contender


def list_contenders(bounds_library: Path) -> dict[str, Contender]:
    """Return all contenders, ours first; the bounds load `bounds_library`."""
    every = (
        Contender("loaderx raw", partial(contenders.LoaderxStore, "raw"), OWN_HINT),
        Contender("loaderx zstd", partial(contenders.LoaderxStore, "zstd"), OWN_HINT),
        Contender("loaderx raw, 1 thread", partial(contenders.LoaderxStore, "raw", 1), OWN_HINT),
        Contender("loaderx zstd, 1 thread", partial(contenders.LoaderxStore, "zstd", 1), OWN_HINT),
        Contender("loaderx 0.7.3 raw", partial(contenders.LegacyStore, "raw"), LEGACY_HINT, LEGACY_FOLDER),
        Contender("loaderx 0.7.3 zstd", partial(contenders.LegacyStore, "zstd"), LEGACY_HINT, LEGACY_FOLDER),
        Contender("npy memmap", contenders.MemmapStore, ""),
        Contender("lmdb", contenders.LmdbStore, EXTRA_HINT, "lmdb"),
        Contender("h5py", contenders.Hdf5Store, EXTRA_HINT, "h5py"),
        Contender("arrayrecord", contenders.ArrayRecordStore, EXTRA_HINT, "array_record"),
        Contender("memcpy bound", partial(bounds.MemcpyBound, bounds_library), bounds.HINT),
        Contender("libzstd bound", partial(bounds.ZstdBound, bounds_library), bounds.HINT),
        Contender("libzstd alone", partial(bounds.CompressBound, bounds_library), bounds.HINT),
    )
    return {contender.name: contender for contender in every}
