"""Records on disk for training and serving: stored as NumPy arrays, read in any order by every core.

`write_dataset` and `write_ragged` turn arrays into datasets, `Dataset` and `RaggedDataset` read them, and `Zrecord` is
the store of plain byte records beneath. `verify` looks at every record of a store, `pack` cuts its files to the
bytes they hold. `Sampler` says which records come next. `loaderx.errors` lists every exception.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from loaderx._starting import guard_imports, is_command

if is_command():
    guard_imports()  # before all that takes its time

from loaderx._core.build_info import build_info
from loaderx._version import __version__
from loaderx.arrays.choosing import CodecChoice, CodecTrial, choose_codec
from loaderx.arrays.dataset import Dataset
from loaderx.arrays.padding import pad
from loaderx.arrays.ragged import RaggedDataset
from loaderx.arrays.write import write_dataset, write_ragged
from loaderx.errors import (
    ArchiveError,
    ClosedError,
    CorruptRecordError,
    DestinationError,
    DictionaryError,
    DocumentError,
    FormatVersionError,
    LoaderError,
    LoaderxError,
    MissingDependencyError,
    NotAnIndexError,
    NotAStoreError,
    OptionError,
    RecordIndexError,
    RecordTooLargeError,
    SchemaError,
    StaleIndexError,
    StaleIndexWarning,
    StateMismatchError,
    StoreFullError,
    StoreIOError,
    StoreLockedError,
    StoreMemoryError,
    StoreWarning,
    StreamError,
    TokenizeError,
    ZrecordError,
)
from loaderx.store.buffers import trim_pool
from loaderx.store.packing import pack, unpack
from loaderx.store.verify import verify
from loaderx.store.zrecord import Zrecord

if TYPE_CHECKING:
    from loaderx.loader.dataloader import DataLoader
    from loaderx.loader.sampler import Sampler

__all__ = [
    "ArchiveError",
    "ClosedError",
    "CodecChoice",
    "CodecTrial",
    "CorruptRecordError",
    "DataLoader",
    "Dataset",
    "DestinationError",
    "DictionaryError",
    "DocumentError",
    "FormatVersionError",
    "LoaderError",
    "LoaderxError",
    "MissingDependencyError",
    "NotAStoreError",
    "NotAnIndexError",
    "OptionError",
    "RaggedDataset",
    "RecordIndexError",
    "RecordTooLargeError",
    "Sampler",
    "SchemaError",
    "StaleIndexError",
    "StaleIndexWarning",
    "StateMismatchError",
    "StoreFullError",
    "StoreIOError",
    "StoreLockedError",
    "StoreMemoryError",
    "StoreWarning",
    "StreamError",
    "TokenizeError",
    "Zrecord",
    "ZrecordError",
    "__version__",
    "build_info",
    "choose_codec",
    "pack",
    "pad",
    "trim_pool",
    "unpack",
    "verify",
    "write_dataset",
    "write_ragged",
]


def __getattr__(name: str) -> Any:
    # What stands above the datasets is imported when it is first asked for.
    found: type
    if name == "DataLoader":
        from loaderx.loader.dataloader import DataLoader

        found = DataLoader
    elif name == "Sampler":
        from loaderx.loader.sampler import Sampler

        found = Sampler
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
