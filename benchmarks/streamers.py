"""The contenders of the benchmark of streams: who reads lines and archives through the same steps.

Each is used as its own documentation says, and gives what it gives in its usual form.
"""

from __future__ import annotations

import importlib
import json
import os
import tarfile
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from benchmarks.contenders import EXTRA_HINT, LEGACY_HINT, OWN_HINT, Contender, import_or_explain

PEER = "datasets"
BUFFER = 10_000
BATCH = 32
#: What is done with the lines, in each contender's own words.
WAYS = ("plain", "map", "shuffle", "chain", "batch")


def shorten(row: dict[str, Any]) -> dict[str, Any]:
    """Return a row with the beginning of its text."""
    return {"id": row["id"], "text": row["text"][:100]}


def is_kept(row: dict[str, Any]) -> bool:
    """Return whether a row stays: three of four do."""
    return bool(row["id"] % 4)


def list_files(folder: Path, kind: str = "jsonl") -> list[str]:
    """Return the files of a folder in order."""
    return sorted(map(str, folder.glob(f"*.{kind}")))


class OwnStream:
    """This package."""

    def prepare(self) -> str:
        """Import the package and orjson, which it parses with where it is there."""
        self.Stream = import_or_explain("loaderx.stream").Stream
        import_or_explain("orjson")
        return str(import_or_explain("loaderx").__version__)

    def lines(self, folder: Path, way: str) -> Iterable[Any]:
        """Return the rows of a folder's files, or batches of them."""
        stream = self.Stream.from_jsonl(list_files(folder))
        if way == "chain":
            stream = stream.filter(is_kept)
        if way in ("map", "chain"):
            stream = stream.map(shorten)
        if way in ("shuffle", "chain"):
            stream = stream.shuffle(BUFFER, seed=1)
        found: Iterable[Any] = stream.batch(BATCH) if way == "batch" else stream
        return found

    def samples(self, file: Path) -> Iterable[Any]:
        """Return the samples of a tar archive."""
        found: Iterable[Any] = self.Stream.from_webdataset(str(file))
        return found

    def first(self, folder: Path) -> float:
        """Return the milliseconds from the call that names files by a pattern to the first row."""
        start = time.perf_counter()
        next(iter(self.Stream.from_jsonl(f"{folder}/*.jsonl").shuffle(1, seed=1)))
        return (time.perf_counter() - start) * 1e3

    def state(self, folder: Path, size: int, repeats: int) -> float:
        """Return the least microseconds that a state takes, with a shuffle buffer of some size that is full."""
        took = []
        with iter(self.Stream.from_jsonl(list_files(folder)).shuffle(size)) as passing:
            for _ in range(repeats):
                next(passing)
                start = time.perf_counter()
                passing.state_dict()
                took.append(time.perf_counter() - start)
        return min(took) * 1e6

    def numbers(self, file: Path) -> Iterator[Any]:
        """Return a pass over a file of numbers, mapped and shuffled."""
        found: Iterator[Any] = iter(self.Stream.from_jsonl(str(file)).map(abs).shuffle(BUFFER))
        return found


class HuggingFace:
    """Hugging Face's `datasets`, streaming."""

    def prepare(self) -> str:
        """Import the package, which is to ask no server."""
        os.environ["HF_HUB_OFFLINE"] = "1"
        self._package = import_or_explain("datasets")
        self._package.disable_progress_bars()
        return str(self._package.__version__)

    def _load(self, kind: str, files: list[str]) -> Any:
        return self._package.load_dataset(kind, data_files=files, split="train", streaming=True)

    def lines(self, folder: Path, way: str) -> Iterable[Any]:
        """Return the rows of a folder's files, or batches of them."""
        stream = self._load("json", list_files(folder))
        if way == "chain":
            stream = stream.filter(is_kept)
        if way in ("map", "chain"):
            stream = stream.map(shorten)
        if way in ("shuffle", "chain"):
            stream = stream.shuffle(seed=1, buffer_size=BUFFER)
        found: Iterable[Any] = stream.batch(BATCH) if way == "batch" else stream
        return found

    def samples(self, file: Path) -> Iterable[Any]:
        """Return the samples of a tar archive."""
        found: Iterable[Any] = self._load("webdataset", [str(file)])
        return found


class WebDataset:
    """The package webdataset."""

    def prepare(self) -> str:
        """Import the package."""
        self._package = import_or_explain("webdataset")
        return str(importlib.import_module("importlib.metadata").version("webdataset"))

    def samples(self, file: Path) -> Iterable[Any]:
        """Return the samples of a tar archive."""
        found: Iterable[Any] = self._package.WebDataset(str(file), shardshuffle=False)
        return found


class TarSamples:
    """What is wrapped where a package reads no archives: samples by `tarfile`, members by their names as they come."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def __iter__(self) -> Iterator[dict[str, Any]]:
        sample: dict[str, Any] = {}
        with tarfile.open(self._file, "r|") as archive:
            for member in archive:
                key, _, extension = member.name.partition(".")
                if sample and sample["__key__"] != key:
                    yield sample
                    sample = {}
                content = archive.extractfile(member)
                assert content is not None, "all members are files"
                sample["__key__"], sample[extension] = key, content.read()
        if sample:
            yield sample


class TorchDataNodes:
    """torchdata's nodes, which leave the reading to what they wrap."""

    def prepare(self) -> str:
        """Import the package."""
        self._nodes = import_or_explain("torchdata.nodes")
        return str(import_or_explain("torchdata").__version__)

    def samples(self, file: Path) -> Iterable[Any]:
        """Return the samples of a tar archive."""
        found: Iterable[Any] = self._nodes.Loader(self._nodes.IterableWrapper(TarSamples(file)))
        return found


class BareLoop:
    """A loop over the lines of files in Python, with orjson: what a stream of Python objects can reach at best."""

    def prepare(self) -> str:
        """Import orjson."""
        self._orjson = import_or_explain("orjson")
        return str(self._orjson.__version__)

    def lines(self, folder: Path, way: str) -> Iterator[Any]:
        """Return the rows of a folder's files."""
        loads = self._orjson.loads
        for name in list_files(folder):
            with open(name, "rb") as file:
                for line in file:
                    yield loads(line)


def ids_of(items: Iterable[Any]) -> Iterator[int]:
    """Return the numbers of rows, batches of rows, or samples."""
    for item in items:
        found = item["id"] if "id" in item else item["json"]
        found = json.loads(found) if isinstance(found, bytes) else found
        found = found["id"] if isinstance(found, dict) else found
        yield from found if isinstance(found, list) else [found]


def list_streamers() -> dict[str, Contender]:
    """Return all contenders by their names, ours first."""
    every = [
        Contender("loaderx", "loaderx", OwnStream, OWN_HINT),
        Contender("Hugging Face", PEER, HuggingFace, LEGACY_HINT),
        Contender("webdataset", "webdataset", WebDataset, EXTRA_HINT),
        Contender(
            "torchdata nodes",
            "torchdata",
            TorchDataNodes,
            "pip install --target DIR/torchdata torch torchdata==0.11.0, then --peers DIR",
        ),
        Contender("orjson, a loop", "orjson", BareLoop, EXTRA_HINT),
    ]
    return {contender.name: contender for contender in every}
