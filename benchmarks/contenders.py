"""The contenders of the store's benchmark, each behind the same three calls: write, open for gathers, close.

A gather is one call that takes int64 indices and returns the records in a fresh array. Each contender is used as its
own documentation says for random reads, with one record of the data as its record, and without syncing to the disk.
"""

from __future__ import annotations

import importlib
import importlib.metadata
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

Records = NDArray[np.uint8]
Gather = Callable[[NDArray[np.int64]], Any]
One = Callable[[int], Any]

OWN_HINT = 'build this package: pip install -e ".[bench]"'
EXTRA_HINT = 'pip install -e ".[bench]"'
LEGACY_FOLDER = "loaderx-0.7.3"
BEFORE_FOLDER = "loaderx-before"
BEFORE_HINT = (
    "pip install --target DIR/loaderx-before a wheel of the commit to compare with, then --peers DIR"
)
LEGACY_HINT = "python -m tests.peers DIR, then --peers DIR"


SHAPE_KEY = b"shape"  # behind every 4-byte key: an index below 2^24 begins with a zero byte


class NotInstalledError(Exception):
    """The contender's package, or a tool it needs, is not there; the message says why."""


class Store(Protocol):
    """One contender in the process that measures it."""

    def prepare(self) -> str:
        """Import what is needed and return its version; NotInstalledError when it is not there."""

    def write(self, path: Path, records: Records) -> None:
        """Write a new store under a name that is not taken: from nothing to closed."""

    def open(self, path: Path) -> Gather:
        """Open for gathers; only one is open at a time."""

    def close(self) -> None:
        """Close what `open` opened."""


@dataclass(frozen=True)
class Contender:
    """A name, its package, how to make the store, and how to install the package.

    Where the folder of peers has a folder named as the package, the contender's path starts with that.
    """

    name: str
    package: str
    make: Callable[[], Store]
    hint: str


def import_or_explain(module: str) -> Any:
    """Import a module, or raise NotInstalledError; the reason names no path, for it may end on the page."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise NotInstalledError(f"no module {error.name}") from error
    except ImportError as error:
        raise NotInstalledError(f"{module} cannot be imported") from error


def encode_shape(records: Records) -> bytes:
    """Return one record's shape as text, for the peers that store bytes only."""
    return " ".join(map(str, records.shape[1:])).encode()


def decode_shape(text: bytes) -> tuple[int, ...]:
    """Return the shape that `encode_shape` wrote."""
    return tuple(map(int, text.split()))


class LoaderxStore:
    """This package: `write_dataset`, and ``Dataset.__getitems__``."""

    def __init__(self, codec: str, threads: int = 0, io: str = "mmap") -> None:
        self.codec = codec
        self.threads = threads
        self.io = io
        self.prefetch: Callable[[NDArray[np.int64]], None] | None = None
        self._opened = ExitStack()

    def prepare(self) -> str:
        """Import the package and refuse 0.7.3 under its name."""
        self.package = import_or_explain("loaderx")
        missing = {"Dataset", "write_dataset", "build_info"} - set(dir(self.package))
        if missing:
            raise NotInstalledError(f"the loaderx found here has no {', '.join(sorted(missing))}")
        return str(self.package.__version__)

    def write(self, path: Path, records: Records) -> None:
        """Write a store with the codec of this contender."""
        self.package.write_dataset(path, records, codec=self.codec, threads=self.threads, progress=False)

    def open(self, path: Path) -> Gather:
        """Open the array on the store."""
        dataset = self._opened.enter_context(self.package.Dataset(path, threads=self.threads, io=self.io))
        gather: Gather = dataset.__getitems__
        self.one: One = dataset.__getitem__
        self.prefetch = getattr(dataset, "prefetch", None)  # an earlier commit has none
        return gather

    def close(self) -> None:
        """Close the array."""
        self.prefetch = None
        self._opened.close()


class LegacyStore:
    """loaderx 0.7.3: `write_dataset`, and ``Dataset.__getitems__``."""

    def __init__(self, codec: str) -> None:
        self.codec = codec
        self._opened: Any = None

    def prepare(self) -> str:
        """Import the package and refuse any other version."""
        self.package = import_or_explain("loaderx")
        version = str(getattr(self.package, "__version__", "of unknown version"))
        if version != "0.7.3":
            raise NotInstalledError(f"the loaderx found here is {version}, not 0.7.3")
        return version

    def write(self, path: Path, records: Records) -> None:
        """Write a store with the codec of this contender."""
        self.package.write_dataset(str(path), records, codec=self.codec)

    def open(self, path: Path) -> Gather:
        """Open the array on the store."""
        self._opened = self.package.Dataset(str(path))
        gather: Gather = self._opened.__getitems__
        self.one: One = self._opened.__getitem__
        return gather

    def close(self) -> None:
        """Close the array: this version can crash at exit when it was left open."""
        if self._opened is not None:
            self._opened.close()
            self._opened = None


class MemmapStore:
    """`numpy.save`, and an index on the array that ``numpy.load(mmap_mode="r")`` gives."""

    def prepare(self) -> str:
        """Return NumPy's version."""
        return np.__version__

    def write(self, path: Path, records: Records) -> None:
        """Save the array."""
        with path.open("wb") as file:
            np.save(file, records)

    def open(self, path: Path) -> Gather:
        """Map the array."""
        array = np.load(path, mmap_mode="r")
        self.one: One = lambda index: array[index].copy()
        return lambda idxs: array[idxs]

    def close(self) -> None:
        """Nothing is held here: the mapping goes with the array."""


class OneByOne:
    """A contender's records by one integer each: ``dataset[i]``, or a copy of ``array[i]``."""

    def __init__(self, store: LoaderxStore | LegacyStore | MemmapStore) -> None:
        self._store = store
        self.prepare, self.write, self.close = store.prepare, store.write, store.close

    def open(self, path: Path) -> Gather:
        """Open for batches, and take their records one after the other."""
        self._store.open(path)
        one = self._store.one
        return lambda idxs: [one(index) for index in idxs.tolist()]


class RaggedStore:
    """`write_ragged`, and ``RaggedDataset.__getitems__`` or ``getitems_padded``; a record ends before its zeros."""

    def __init__(self, store: LoaderxStore | LegacyStore, padded: bool) -> None:
        self._store = store
        self._padded = padded
        self._opened: Any = None
        self.prepare = store.prepare

    def write(self, path: Path, records: NDArray[Any]) -> None:
        """Write each record without the zeros at its end."""
        arrays = [record[: np.count_nonzero(record)] for record in records]
        self._store.package.write_ragged(str(path), arrays, codec=self._store.codec)

    def open(self, path: Path) -> Gather:
        """Open the ragged dataset."""
        threads = {"threads": self._store.threads} if isinstance(self._store, LoaderxStore) else {}
        self._opened = self._store.package.RaggedDataset(str(path), **threads)
        gather: Gather = self._opened.getitems_padded if self._padded else self._opened.__getitems__
        return gather

    def restore(self, result: Any, shape: tuple[int, ...]) -> NDArray[Any]:
        """Return a batch with the zeros behind its records again."""
        values, sizes = result
        full = np.zeros(shape, values.dtype)
        if self._padded:
            full[:, : values.shape[1]] = values
        else:
            full[np.arange(shape[1]) < np.diff(sizes)[:, None]] = values
        return full

    def close(self) -> None:
        """Close the dataset."""
        if self._opened is not None:
            self._opened.close()
            self._opened = None


class LmdbStore:
    """lmdb: one key a record, 4 bytes big-endian; reads copy each value from one read transaction a batch."""

    def __init__(self) -> None:
        self._env: Any = None

    def prepare(self) -> str:
        """Import lmdb."""
        self._package = import_or_explain("lmdb")
        return str(self._package.__version__)

    def write(self, path: Path, records: Records) -> None:
        """Put all records in one transaction, in the order of keys."""
        map_bytes = 4 * records.nbytes + (16 << 20)
        opened = self._package.open(str(path), map_size=map_bytes, sync=False, metasync=False)
        with opened as env, env.begin(write=True) as transaction:
            for index, record in enumerate(records):
                transaction.put(index.to_bytes(4, "big"), record.data.cast("B"), append=True)
            transaction.put(SHAPE_KEY, encode_shape(records), append=True)

    def open(self, path: Path) -> Gather:
        """Open read-only, without locks or read-ahead."""
        self._env = env = self._package.open(str(path), readonly=True, lock=False, readahead=False)
        with env.begin() as transaction:
            shape = decode_shape(transaction.get(SHAPE_KEY))
        record_bytes = int(np.prod(shape))

        def gather(idxs: NDArray[np.int64]) -> Records:
            batch: Records = np.empty((len(idxs), record_bytes), np.uint8)
            with env.begin(buffers=True) as transaction:
                for place, index in enumerate(idxs.tolist()):
                    batch[place] = np.frombuffer(transaction.get(index.to_bytes(4, "big")), np.uint8)
            return batch.reshape(len(idxs), *shape)

        return gather

    def close(self) -> None:
        """Close the environment."""
        if self._env is not None:
            self._env.close()
            self._env = None


class Hdf5Store:
    """h5py: one contiguous dataset; a batch is one fancy index on the sorted distinct indices, then put in order."""

    def __init__(self) -> None:
        self._file: Any = None

    def prepare(self) -> str:
        """Import h5py."""
        self._package = import_or_explain("h5py")
        return str(self._package.__version__)

    def write(self, path: Path, records: Records) -> None:
        """Create the dataset from the array."""
        with self._package.File(path, "w") as file:
            file.create_dataset("records", data=records)

    def open(self, path: Path) -> Gather:
        """Open read-only; h5py wants increasing distinct indices."""
        self._file = self._package.File(path, "r")
        dataset = self._file["records"]

        def gather(idxs: NDArray[np.int64]) -> Any:
            distinct, places = np.unique(idxs, return_inverse=True)
            return dataset[distinct][places]

        return gather

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()
            self._file = None


class ArrayRecordStore:
    """array_record: groups of one record, its default compression (zstd level 3), no read-ahead, all its threads."""

    def __init__(self) -> None:
        self._reader: Any = None

    def prepare(self) -> str:
        """Import array_record; its version is only in the metadata."""
        self._package = import_or_explain("array_record.python.array_record_module")
        return importlib.metadata.version("array_record")

    def write(self, path: Path, records: Records) -> None:
        """Write each record, and the shape as the last one."""
        writer = self._package.ArrayRecordWriter(str(path), "group_size:1")
        for record in records:
            writer.write(record.tobytes())
        writer.write(encode_shape(records))
        writer.close()

    def open(self, path: Path) -> Gather:
        """Open the reader."""
        self._reader = reader = self._package.ArrayRecordReader(str(path), "readahead_buffer_size:0")
        shape = decode_shape(reader.read([reader.num_records() - 1])[0])

        def gather(idxs: NDArray[np.int64]) -> Records:
            return np.frombuffer(b"".join(reader.read(idxs.tolist())), np.uint8).reshape(len(idxs), *shape)

        return gather

    def close(self) -> None:
        """Close the reader."""
        if self._reader is not None:
            self._reader.close()
            self._reader = None
