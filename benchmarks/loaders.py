"""The contenders of the loader's benchmark: each reads from what it is built for, and gives shuffled batches for ever.

Each is used as its own documentation says, with one stream, and with its own defaults where nothing is said.
"""

from __future__ import annotations

import importlib.metadata
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from benchmarks.contenders import (
    LEGACY_FOLDER,
    LEGACY_HINT,
    OWN_HINT,
    Contender,
    LegacyStore,
    LoaderxStore,
    MemmapStore,
    NotInstalledError,
    Records,
    decode_shape,
    encode_shape,
    import_or_explain,
)

CODECS = ("raw", "zstd")
NUM_WORKERS = 4
NUM_SPINS = 145_000
MODERN_FOLDER = "loaderx-2.8.19"
MODERN_HINT = (
    "a virtual environment DIR/loaderx-2.8.19 of Python 3.12 or newer with loaderx==2.8.19; then --peers DIR"
)

NextBatch = Callable[[], Any]


class Loader(Protocol):
    """One contender in the process that measures it."""

    def prepare(self) -> str:
        """Import what is needed and return its version; NotInstalledError when it is not there."""

    def write(self, path: Path, records: NDArray[Any]) -> None:
        """Write what is read from."""

    def start(self, path: Path, batch: int) -> NextBatch:
        """Return what gives one batch after the other."""

    def rows(self, batch: Any) -> list[NDArray[Any]]:
        """Return the records of a batch, one by one."""

    def close(self) -> None:
        """End what `start` began."""


def spin(batch: Any) -> Any:
    """Return the batch after some 5 ms of Python, which hold the GIL."""
    total = 0
    for number in range(NUM_SPINS):
        total += number
    return batch


class OwnLoader:
    """This package: `DataLoader` over one dataset."""

    def __init__(
        self,
        codec: str,
        num_workers: int = NUM_WORKERS,
        transform: Callable[[Any], Any] | None = None,
        worker_type: Literal["thread", "process"] = "thread",
        ragged: bool = False,
    ) -> None:
        self._store = LoaderxStore(codec)
        self._num_workers = num_workers
        self._transform = transform
        self._worker_type = worker_type
        self._ragged = ragged
        self._opened = ExitStack()
        self.prepare = self._store.prepare

    def write(self, path: Path, records: NDArray[Any]) -> None:
        """Write a dataset; a ragged record ends before its zeros."""
        if not self._ragged:
            self._store.write(path, records)
            return
        arrays = [record[: np.count_nonzero(record)] for record in records]
        self._store.package.write_ragged(path, arrays, codec=self._store.codec, progress=False)

    def open(self, path: Path) -> Any:
        """Open the dataset."""
        package = self._store.package
        kind = package.RaggedDataset if self._ragged else package.Dataset
        return self._opened.enter_context(kind(path))

    def start(self, path: Path, batch: int) -> NextBatch:
        """Begin with the defaults: IID."""
        loader = self._opened.enter_context(
            self._store.package.DataLoader(
                {"data": self.open(path)},
                self._num_workers,
                batch,
                **({} if self._transform is None else {"transform": self._transform}),
                worker_type=self._worker_type,
            )
        )
        return partial(next, loader)

    def rows(self, batch: Any) -> list[NDArray[Any]]:
        """Return the records of a batch."""
        data = batch["data"] if isinstance(batch, dict) else batch
        if not self._ragged:
            return list(data)
        values, splits = data
        return np.split(values, splits[1:-1])

    def close(self) -> None:
        """End the workers and close the dataset."""
        self._opened.close()


class OwnGather(OwnLoader):
    """This package without a loader: the sampler's indices, gathered by the thread that asks and its team."""

    def start(self, path: Path, batch: int) -> NextBatch:
        """Begin at step 0."""
        dataset = self.open(path)
        sampler = self._store.package.Sampler(len(dataset), batch, "iid")
        return lambda: dataset.__getitems__(sampler.next())


class LegacyLoader(LegacyStore):
    """loaderx 0.7.3: `DataLoader`."""

    def __init__(self, codec: str) -> None:
        super().__init__(codec)
        self._loader: Any = None

    def start(self, path: Path, batch: int) -> NextBatch:
        """Begin with the defaults."""
        self.open(path)
        streams = {"data": self._opened}
        self._loader = self.package.DataLoader(streams, num_workers=NUM_WORKERS, batch_size=batch)
        return partial(next, self._loader)

    def rows(self, batch: Any) -> list[NDArray[Any]]:
        """Return the records of a batch."""
        return list(batch["data"])

    def close(self) -> None:
        """End the workers, then close the dataset."""
        if self._loader is not None:
            self._loader.close()
            self._loader = None
        super().close()


class ModernLoader:
    """loaderx 2.8.19: `Loader` over a view of a dense store in the processor's memory."""

    def __init__(self, codec: str) -> None:
        self._codec = codec
        self._opened = ExitStack()

    def prepare(self) -> str:
        """Import the package and refuse any other version."""
        self._package = import_or_explain("loaderx")
        version = str(getattr(self._package, "__version__", "of unknown version"))
        if version != "2.8.19":
            raise NotInstalledError(f"the loaderx found here is {version}, not 2.8.19")
        self._zrecord = import_or_explain("loaderx.zrecord")
        self._sampler = import_or_explain("loaderx.sampler")
        return version

    def write(self, path: Path, records: NDArray[Any]) -> None:
        """Write a dense container."""
        with self._zrecord.DenseWriter(
            str(path), records.dtype, records.shape[1:], codec=self._codec
        ) as writer:
            writer.append(records)

    def start(self, path: Path, batch: int) -> NextBatch:
        """Bind the store, and begin."""
        store = self._opened.enter_context(self._zrecord.DenseStore(str(path)))
        view = store.bind(self._opened.enter_context(self._package.Allocator("cpu")))
        sampler = self._sampler.Sampler(len(view), batch, self._sampler.Sampler.Mode.IID, seed=42)
        loader = self._package.Loader({"data": [view]}, sampler, workers=NUM_WORKERS)
        self._opened.callback(loader.close)
        batches = iter(loader)
        return lambda: np.from_dlpack(next(batches)[0]["data"])

    def rows(self, batch: Any) -> list[NDArray[Any]]:
        """Return the records of a batch."""
        return list(batch)

    def close(self) -> None:
        """End the workers and close the store."""
        self._opened.close()


class Samples:
    """A memory-mapped array as a dataset of PyTorch's kind."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._array: Any = None
        self._length = len(np.load(path, mmap_mode="r"))

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, index: int) -> NDArray[Any]:
        if self._array is None:  # in each worker anew
            self._array = np.load(self._path, mmap_mode="r")
        sample: NDArray[Any] = np.array(self._array[index])
        return sample


class TorchLoader(MemmapStore):
    """PyTorch: `DataLoader` over a memory-mapped .npy, shuffled, with persistent workers."""

    def __init__(self, transform: Callable[[Any], Any] | None = None) -> None:
        self._transform = transform
        self._batches: Iterator[Any] | None = None

    def prepare(self) -> str:
        """Import PyTorch."""
        self._torch = import_or_explain("torch")
        self._data = import_or_explain("torch.utils.data")
        return str(self._torch.__version__)

    def start(self, path: Path, batch: int) -> NextBatch:
        """Go through one epoch after the other."""
        loader = self._data.DataLoader(
            Samples(path),
            batch_size=batch,
            shuffle=True,
            num_workers=NUM_WORKERS,
            persistent_workers=True,
            drop_last=True,
            collate_fn=None if self._transform is None else self._collate,
        )

        def forever() -> Iterator[Any]:
            while True:
                yield from loader

        self._batches = forever()
        return partial(next, self._batches)

    def _collate(self, samples: list[Any]) -> Any:
        assert self._transform is not None
        return self._transform(self._data.default_collate(samples))

    def rows(self, batch: Any) -> list[NDArray[Any]]:
        """Return the records of a batch."""
        return list(batch.numpy())

    def close(self) -> None:
        """Let go of the workers."""
        self._batches = None


class GrainLoader:
    """Grain: a shuffled, repeated `MapDataset` over an ArrayRecord file, batched, read by its threads."""

    def __init__(self) -> None:
        self._batches: Any = None

    def prepare(self) -> str:
        """Import Grain and array_record."""
        self._grain = import_or_explain("grain")
        self._records = import_or_explain("array_record.python.array_record_module")
        return importlib.metadata.version("grain")

    def write(self, path: Path, records: Records) -> None:
        """Write each record in a group of its own; their shape goes beside."""
        writer = self._records.ArrayRecordWriter(str(path), "group_size:1")
        for record in records:
            writer.write(record.tobytes())
        writer.close()
        path.with_suffix(".shape").write_bytes(encode_shape(records))

    def start(self, path: Path, batch: int) -> NextBatch:
        """Begin with its default number of reading threads."""
        shape = decode_shape(path.with_suffix(".shape").read_bytes())
        source = self._grain.sources.ArrayRecordDataSource(str(path))
        dataset = self._grain.MapDataset.source(source).seed(42).shuffle().repeat()
        dataset = dataset.map(lambda stored: np.frombuffer(stored, np.uint8).reshape(shape)).batch(batch)
        self._batches = iter(dataset.to_iter_dataset())
        return partial(next, self._batches)

    def rows(self, batch: Any) -> list[NDArray[Any]]:
        """Return the records of a batch."""
        return list(batch)

    def close(self) -> None:
        """Let go of the threads."""
        self._batches = None


class JaxLoader(MemmapStore):
    """jax-dataloader: an array in memory, its own backend, shuffled."""

    def prepare(self) -> str:
        """Import the package."""
        self._package = import_or_explain("jax_dataloader")
        return importlib.metadata.version("jax_dataloader")

    def start(self, path: Path, batch: int) -> NextBatch:
        """Read the array into memory, and go through one epoch after the other."""
        dataset = self._package.ArrayDataset(np.load(path))
        loader = self._package.DataLoader(dataset, "jax", batch_size=batch, shuffle=True, drop_last=True)

        def forever() -> Iterator[Any]:
            while True:
                yield from loader

        return partial(next, forever())

    def rows(self, batch: Any) -> list[NDArray[Any]]:
        """Return the records of a batch."""
        (data,) = batch if isinstance(batch, tuple) else (batch,)
        return list(np.asarray(data))


def list_loaders() -> tuple[Contender, ...]:
    """Return all loaders, ours first."""
    own, legacy, modern = [], [], []
    for codec in CODECS:
        for kind, ragged in (("", False), (" ragged", True)):
            loader, gather = (
                partial(OwnLoader, codec, ragged=ragged),
                partial(OwnGather, codec, ragged=ragged),
            )
            own.append(Contender(f"loaderx {codec}{kind} loader", "loaderx", loader, OWN_HINT))
            own.append(Contender(f"loaderx {codec}{kind} gather", "loaderx", gather, OWN_HINT))
        name = f"loaderx 0.7.3 {codec} loader"
        legacy.append(Contender(name, LEGACY_FOLDER, partial(LegacyLoader, codec), LEGACY_HINT))
        name = f"loaderx 2.8.19 {codec} loader"
        modern.append(Contender(name, MODERN_FOLDER, partial(ModernLoader, codec), MODERN_HINT))
    workers: dict[str, tuple[int, Literal["thread", "process"]]] = {
        "processes": (NUM_WORKERS, "process"),
        "threads": (NUM_WORKERS, "thread"),
        "no workers": (0, "thread"),
    }
    for kind, (num_workers, worker_type) in workers.items():
        make = partial(OwnLoader, "raw", num_workers, spin, worker_type)
        own.append(Contender(f"loaderx loader, {kind}", "loaderx", make, OWN_HINT))
    others = (
        Contender("torch loader", "torch", TorchLoader, hint("torch", "torch")),
        Contender("torch loader, processes", "torch", partial(TorchLoader, spin), hint("torch", "torch")),
        Contender("grain loader", "grain", GrainLoader, hint("grain", "grain array_record")),
        Contender(
            "jax-dataloader", "jax_dataloader", JaxLoader, hint("jax_dataloader", "jax-dataloader jax torch")
        ),
    )
    return (*own, *legacy, *modern, *others)


def hint(folder: str, packages: str) -> str:
    """Return how a peer is had."""
    return f"pip install --target DIR/{folder} {packages}, then --peers DIR"
