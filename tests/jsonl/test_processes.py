"""One dataset in many threads, in forked children, in processes that get it pickled, and behind a DataLoader."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from loaderx import ClosedError, DataLoader, JsonlError, LoaderError, OptionError, Sampler
from loaderx.jsonl import ByteRangeDataset, JsonlDataset, TextLinesDataset, build_index
from tests.jsonl import reading_kit
from tests.jsonl.kit import write_corpus, write_files, write_line_store
from tests.store.children import in_child

N = 2000

# Which is what is tested.
pytestmark = pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Any]]:
    base = tmp_path_factory.mktemp("corpus")
    objects = write_corpus(base, N)
    build_index(base)
    return base, objects


@pytest.fixture(scope="module", params=["files", "store"])
def source(request: pytest.FixtureRequest, corpus: tuple[Path, list[Any]]) -> tuple[Path, list[Any]]:
    base, objects = corpus
    if request.param == "files":
        return corpus
    with JsonlDataset(base) as dataset:
        path = base.parent / "lines.zr"
        if not path.exists():
            write_line_store(path, dataset.raw_batch(slice(None)))
    return path, objects


@pytest.fixture(params=["mmap", "pread"])
def io(request: pytest.FixtureRequest) -> Any:
    return request.param


def test_threads(source: tuple[Path, list[Any]], io: Any) -> None:
    path, objects = source
    wrong: list[Any] = []
    with JsonlDataset(path, io=io) as dataset:

        def work(seed: int) -> None:
            rng = np.random.default_rng(seed)
            for _ in range(30):
                idxs = rng.integers(-N, N, 100)
                if (
                    dataset.__getitems__(idxs) != [objects[i] for i in idxs]
                    or dataset[idxs[0]] != objects[idxs[0]]
                ):
                    wrong.append(seed)

        threads = [threading.Thread(target=work, args=(seed,)) for seed in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert wrong == []


def test_closing_beside_readers(corpus: tuple[Path, list[Any]], io: Any) -> None:
    path, objects = corpus
    for _ in range(10):
        dataset = JsonlDataset(path, io=io)
        outcomes: list[Any] = []

        def work(dataset: JsonlDataset = dataset, outcomes: list[Any] = outcomes) -> None:
            try:
                while True:
                    outcomes.append(dataset[:200] == objects[:200] and dataset[7] == objects[7])
            except ClosedError:
                outcomes.append("closed")

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        dataset.close()
        for thread in threads:
            thread.join()
        assert outcomes.count("closed") == 4 and set(outcomes) <= {True, "closed"}


def test_a_forked_child_reads_after_its_parent_has(source: tuple[Path, list[Any]], io: Any) -> None:
    """GNU OpenMP's threads are not there after a fork."""
    path, objects = source
    many = np.tile(np.arange(N), 3)
    with JsonlDataset(path, io=io, threads=2) as dataset:
        assert dataset.__getitems__(many) == objects * 3  # work for a team
        child = in_child(lambda: (dataset.__getitems__(many), dataset[5], list(dataset)))
        assert child == (objects * 3, objects[5], objects)
        assert dataset.__getitems__(many) == objects * 3
    # and where the first to read is the child
    with JsonlDataset(path, io=io, threads=2) as dataset:
        assert in_child(lambda: dataset[:]) == objects
        assert dataset[:] == objects


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_other_processes(source: tuple[Path, list[Any]], io: Any, method: str) -> None:
    path, objects = source
    context = multiprocessing.get_context(method)
    with JsonlDataset(path, io=io, threads=2) as dataset:
        assert dataset[:] == objects
        with context.Pool(2) as pool:
            jobs = [pool.apply_async(reading_kit.read, (dataset, [i, -1, 3])) for i in range(4)]
            for i, job in enumerate(jobs):
                pid, batch, one, length = job.get(timeout=60)
                assert pid != os.getpid()
                assert (batch, one, length) == ([objects[i], objects[-1], objects[3]], objects[i], N)
            pool.close()
            pool.join()


def test_pickling_is_by_path_and_options(
    corpus: tuple[Path, list[Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, _ = corpus
    monkeypatch.chdir(path.parent)
    dataset = JsonlDataset(
        path.name, parse=reading_kit.length_of_n, on_error=reading_kit.placeholder, threads=1
    )
    data = pickle.dumps(dataset)
    assert len(data) < 1000
    monkeypatch.chdir(tmp_path)
    again = pickle.loads(data)
    assert (
        type(again) is JsonlDataset and again.path == path and again[3] == dataset[3] == len(dataset.raw(3))
    )
    text = pickle.loads(pickle.dumps(TextLinesDataset(path, encoding="utf-8", io="pread", on_error="skip")))
    assert type(text) is TextLinesDataset and "skip" in str(text._options) and text[0].startswith("{")
    ranges = pickle.loads(pickle.dumps(ByteRangeDataset(path, parse=reading_kit.length_of_n)))
    assert ranges[0] == len(ByteRangeDataset(path)[0])
    closed = JsonlDataset(path)
    closed.close()
    with pytest.raises(ClosedError):
        pickle.dumps(closed)


# ---- behind a loader -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("num_workers", "worker_type"), [(0, "thread"), (3, "thread"), (2, "process")])
def test_a_loader_reads_lines_beside_labels(
    source: tuple[Path, list[Any]], num_workers: int, worker_type: Any
) -> None:
    path, objects = source
    labels = np.arange(N) * 10
    sampler = Sampler(N, 64, "cyclic", 7)
    with (
        JsonlDataset(path) as dataset,
        DataLoader(
            {"text": dataset, "label": labels},
            num_workers,
            64,
            mode="cyclic",
            seed=7,
            worker_type=worker_type,
        ) as loader,
    ):
        for step in range(40):
            batch, idxs = next(loader), sampler.indices(step)
            assert batch["text"] == [objects[i] for i in idxs.tolist()]
            assert np.array_equal(batch["label"], labels[idxs.astype(np.int64)])


def test_a_transform_in_processes(corpus: tuple[Path, list[Any]]) -> None:
    path, _ = corpus
    streams = {"text": JsonlDataset(path), "label": np.arange(N)}
    with DataLoader(streams, 2, 32, transform=reading_kit.numbers, worker_type="process") as loader:
        for _ in range(5):
            batch = next(loader)
            assert np.array_equal(batch["n"], batch["label"])


def test_bad_lines_behind_a_loader(tmp_path: Path) -> None:
    """A batch without them is usable by itself; beside other streams a function keeps the places."""
    lines = [b'{"n": %d}' % n if n % 5 else b"{oops" for n in range(100)]
    (tmp_path / "a.jsonl").write_bytes(b"\n".join(lines))
    build_index(tmp_path)
    skipping = JsonlDataset(tmp_path, on_error="skip")
    with DataLoader({"text": skipping}, 2, 10, mode="sequential") as loader:
        batches = [next(loader)["text"] for _ in range(10)]
    assert [[sample["n"] for sample in batch] for batch in batches] == [
        [n for n in range(first, first + 10) if n % 5] for first in range(0, 100, 10)
    ]
    assert skipping.num_skipped >= 20
    for worker_type in ("thread", "process"):
        streams = {"text": JsonlDataset(tmp_path, on_error=reading_kit.placeholder), "label": np.arange(100)}
        with DataLoader(
            streams,
            2,
            10,
            mode="sequential",
            transform=reading_kit.numbers,
            worker_type=worker_type,  # type: ignore[arg-type]
        ) as loader:
            for _ in range(10):
                batch = next(loader)
                assert np.array_equal(batch["n"], np.where(batch["label"] % 5, batch["label"], -1))


@pytest.mark.parametrize("path", ["corpus", "lines.zr"])
def test_skipping_beside_another_stream_is_refused(tmp_path: Path, path: str) -> None:
    """Lines and labels that are not of the same record would be wrong without a word."""
    write_files(tmp_path / "corpus", {"a.jsonl": b"1\n{oops\n3\n"})
    write_line_store(tmp_path / "lines.zr", [b"1", b"{oops", b"3"])
    skipping = JsonlDataset(tmp_path / path, on_error="skip")
    with pytest.raises(OptionError, match=r"streams\['text'\] leaves out .*function as on_error"):
        DataLoader({"label": np.arange(3), "text": skipping}, batch_size=2)
    with pytest.raises(OptionError, match=r"streams\['text'\] leaves out"):
        DataLoader({"label": np.arange(3), "text": pickle.loads(pickle.dumps(skipping))}, batch_size=2)
    with DataLoader({"text": skipping}, 0, 3, mode="sequential") as loader:
        assert next(loader) == {"text": [1, 3]}


@pytest.mark.parametrize("worker_type", ["thread", "process"])
def test_a_list_that_is_too_short_is_not_paired(tmp_path: Path, worker_type: Any) -> None:
    """A stream of the user's that reads a dataset which leaves out lines is not known for that."""
    write_files(tmp_path, {"a.jsonl": b"1\n2\n{oops\n4\n"})
    texts = reading_kit.Wrapped(JsonlDataset(tmp_path, on_error="skip"))
    with DataLoader(
        {"text": texts, "label": np.arange(4)}, 1, 2, mode="sequential", worker_type=worker_type
    ) as loader:
        assert next(loader)["text"] == [1, 2]
        with pytest.raises(LoaderError, match="list of 1 for 2 indices") as caught:
            next(loader)
        assert caught.value.step == 1 and "in stream 'text'" in getattr(caught.value, "__notes__", [])
    with DataLoader({"text": texts}, 0, 2, mode="sequential") as loader:
        assert [next(loader)["text"] for _ in range(2)] == [[1, 2], [4]]


def test_a_bad_line_is_raised_by_next(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes(b"1\n2\n{oops\n4\n")
    build_index(tmp_path)
    for worker_type in ("thread", "process"):
        streams = {"text": JsonlDataset(tmp_path)}
        with DataLoader(
            streams,
            1,
            2,
            mode="sequential",
            worker_type=worker_type,  # type: ignore[arg-type]
        ) as loader:
            assert next(loader)["text"] == [1, 2]
            with pytest.raises(JsonlError) as caught:
                next(loader)
            assert (caught.value.line_number, caught.value.byte_offset) == (3, 4)
            assert "in stream 'text'" in getattr(caught.value, "__notes__", [])
