"""`loaderx.torch` with PyTorch. Run by test_adapters.py, in a process of its own."""

from __future__ import annotations

import gc
import json
import pickle
from collections import OrderedDict
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader as TorchDataLoader
from torch.utils.data import Subset, default_collate

from loaderx import (
    DataLoader,
    Dataset,
    OptionError,
    RaggedDataset,
    RecordIndexError,
    trim_pool,
    write_dataset,
    write_ragged,
)
from loaderx._core.buffers import idle_bytes
from loaderx.errors import ClosedError, LoaderError, SchemaError, StateMismatchError
from loaderx.tokens import TokensDataset, tokenize
from loaderx.torch import (
    Samples,
    as_iterable_dataset,
    as_map_dataset,
    collate,
    loading,
    mapping,
    pinned,
    pinning,
    prefetch_to_device,
    to_tensors,
)
from tests.docs.test_docs import ROOT, run_examples
from tests.loader.kit import ArrayStream, CountingStream, fail_on_sevens

PLAIN = [
    "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "float32", "float64",
    "complex64", "complex128",
]  # fmt: skip
NAMED = ["bfloat16", "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu"]


def shares(tensor: Any, array: Any) -> bool:
    """Return whether a tensor's and an array's elements are the same memory."""
    return bool(tensor.data_ptr() == array.__array_interface__["data"][0])


def make_loader(num_workers: int = 0, mode: str = "sequential", **options: Any) -> DataLoader:
    return DataLoader({"x": ArrayStream(np.arange(60))}, num_workers, 5, mode=mode, **options)


def firsts(batches: Any, n: int) -> list[int]:
    """Return the first number of each of the next batches."""
    return [int(next(batches)["x"][0]) for _ in range(n)]


# ---- to_tensors --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", PLAIN)
def test_arrays_of_every_plain_type_share_their_memory(name: str) -> None:
    array = np.random.default_rng(0).integers(0, 2, (4, 6)).astype(name)
    for view in (array, array[1:, ::2], array.T, array[0], array[:0], array[2, 3:4].reshape(())):
        tensor = to_tensors(view, widen=False)
        assert tensor.dtype == getattr(torch, name) and tensor.shape == view.shape
        assert shares(tensor, view) or view.size == 0
        assert tensor.tolist() == view.tolist()
    to_tensors(array, widen=False)[0, 0] = True
    assert array[0, 0]


@pytest.mark.parametrize("name", ["longlong", "ulonglong"])
def test_types_that_are_equal_to_others(name: str) -> None:
    array = np.arange(6).astype(name).reshape(2, 3)
    for view in (array, array.T, array[:, 1:]):
        tensor = to_tensors(view, widen=False)
        assert tensor.dtype == (torch.int64 if name == "longlong" else torch.uint64)
        assert tensor.tolist() == view.tolist() and shares(tensor, view)
        assert to_tensors(view).dtype == torch.int64 and to_tensors(view).tolist() == view.tolist()


def test_a_masked_array_is_an_error_that_names_its_place() -> None:
    for masked in (np.ma.masked_equal([1.0, 2.0], 2), np.ma.masked_equal([1, 2], 3), np.ma.masked):
        with pytest.raises(
            OptionError, match=r"^batch\['a'\]\[1\] is a masked array.*array\.filled\(\)"
        ) as caught:
            to_tensors({"a": [0, masked]})
        assert caught.value.option == "batch"


@pytest.mark.parametrize("name", NAMED)
def test_types_of_ml_dtypes_become_pytorchs(name: str) -> None:
    array = np.array([0.5, 1, 2, 4]).astype(getattr(ml_dtypes, name))
    tensor = to_tensors({"x": array})["x"]
    assert tensor.dtype == getattr(torch, name) and shares(tensor, array)
    assert tensor.to(torch.float32).tolist() == [0.5, 1, 2, 4]


@pytest.mark.parametrize(
    ("name", "wide"), [("uint16", torch.int32), ("uint32", torch.int64), ("uint64", torch.int64)]
)
def test_unsigned_integers_are_widened_so_that_they_index(name: str, wide: Any) -> None:
    most = min(np.iinfo(name).max, 2**63 - 1)
    array = np.array([[0, 1, most], [most - 1, 7, 2]], name)
    tensor = to_tensors(array)
    assert tensor.dtype == wide and tensor.tolist() == array.tolist()
    assert to_tensors(array[:, ::-2]).tolist() == array[:, ::-2].tolist()
    assert to_tensors(array[0, 1]).tolist() == 1 and to_tensors(array[:0]).shape == (0, 3)
    few = to_tensors(np.array([3, 1], name))
    assert torch.nn.Embedding(4, 2)(few).shape == (2, 2)
    assert torch.arange(10, 14)[few].tolist() == [13, 11]
    assert to_tensors(array, widen=False).dtype == getattr(torch, name)


def test_uint64_above_int64_is_an_error_that_names_its_place() -> None:
    array = np.array([1, 2**63], np.uint64)
    with pytest.raises(
        OptionError, match=r"batch\['a'\]\[1\] holds 9223372036854775808, which is above int64"
    ):
        to_tensors({"a": (0, array)})
    assert to_tensors(array, widen=False).dtype == torch.uint64
    assert shares(to_tensors(array[:1]), array)  # no copy where all of them fit


@pytest.mark.parametrize(
    ("dtype", "cure"),
    [
        (">f4", r"array\.astype\('<f4'\)"),
        (">u2", r"array\.astype\('<u2'\)"),
        ("M8[s]", r"array\.view\(np\.int64\)"),
        ("m8[ns]", r"array\.view\(np\.int64\)"),
        ("longdouble", r"array\.astype\(np\.float64\)"),
        ("clongdouble", r"complex128"),
        ("S3", "makes numbers of it"),
        ("U3", "makes numbers of it"),
        ("V3", "makes numbers of it"),
        ("O", "makes numbers of it"),
        ([("a", "i4"), ("b", "f4")], "an entry of each field"),
    ],
)
def test_a_type_that_pytorch_has_not_is_an_error_that_names_the_stream(dtype: Any, cure: str) -> None:
    batch = {"good": np.zeros(2), "bad": np.zeros(2, dtype)}
    with pytest.raises(
        OptionError, match=r"^batch\['bad'\] is an array of .*PyTorch has no type for: .*" + cure
    ) as caught:
        to_tensors(batch)
    assert caught.value.value == np.dtype(dtype)


def test_what_no_tensor_can_share_is_copied() -> None:
    base = np.arange(12.0).reshape(3, 4)
    constant = base.copy()
    constant.flags.writeable = False
    fields = np.zeros(4, [("a", "i1"), ("b", "f4")])
    fields["b"] = [1, 2, 3, 4]
    named = np.arange(4).astype(ml_dtypes.bfloat16)
    for array in (
        constant,
        base[::-1],
        base[:, ::-1],
        fields["b"],
        np.broadcast_to(base, (2, 3, 4)),
        named[::-1],
    ):
        tensor = to_tensors(array)
        assert tensor.tolist() == array.astype(np.float64).tolist() and not shares(tensor, array)
    tensor = to_tensors(constant)
    tensor[:] = -1
    assert constant[0, 1] == 1


class Pair(NamedTuple):
    left: Any
    right: Any


def test_any_nesting_is_kept() -> None:
    array, tensor = np.arange(3), torch.zeros(2)
    batch = OrderedDict(a=[array, "text", None], b=(1, Pair(array, {"c": tensor})), d=np.float32(2.5), e=b"x")
    found = to_tensors(batch)
    assert type(found) is dict and list(found) == list("abde")
    assert type(found["a"]) is list and shares(found["a"][0], array) and found["a"][1:] == ["text", None]
    assert type(found["b"]) is tuple and found["b"][0] == 1 and found["e"] == b"x"
    assert type(found["b"][1]) is Pair and shares(found["b"][1].left, array)
    assert found["b"][1].right["c"] is tensor
    assert found["d"].dtype == torch.float32 and found["d"].item() == 2.5
    assert batch["a"][0] is array


def test_a_device_is_where_everything_goes() -> None:
    batch = {"x": np.zeros((2, 3), np.uint16), "y": torch.ones(2), "z": 5}
    found = to_tensors(batch, device="meta", non_blocking=True)
    assert found["x"].device.type == found["y"].device.type == "meta" and found["z"] == 5
    assert found["x"].dtype == torch.int32 and found["x"].shape == (2, 3)
    array = np.zeros(3)
    assert shares(to_tensors(array, device="cpu"), array)


# ---- memory ------------------------------------------------------------------------------------------------------


@pytest.fixture
def images(tmp_path: Path) -> Iterator[Dataset]:
    """Return a dataset of 64 records of 16 KiB, each full of its number."""
    write_dataset(tmp_path / "i.zr", np.arange(64, dtype=np.uint32)[:, None] + np.zeros((1, 4096), np.uint32))
    gc.collect()
    trim_pool()
    with Dataset(tmp_path / "i.zr") as ds:
        yield ds
    trim_pool()


@pytest.mark.parametrize("widen", [False, True])
def test_memory_comes_back_when_the_last_tensor_dies(images: Dataset, widen: bool) -> None:
    batch = to_tensors({"x": images[:]}, widen=widen)
    if widen:
        gc.collect()
        trim_pool()  # what was widened is not needed any more
    part = batch["x"][5:7].view(-1)
    del batch
    gc.collect()
    assert idle_bytes() == 0
    for _ in range(6):
        others = [to_tensors(images[::-1], widen=widen) for _ in range(3)]
        for other in others:
            other.view(torch.int64 if widen else torch.int32)[:] = -1
        del others, other
    assert part.tolist() == [5] * 4096 + [6] * 4096
    trim_pool()
    del part
    gc.collect()
    assert idle_bytes() > 0


def test_batches_of_a_loader_that_are_held_stay_as_they_are(images: Dataset) -> None:
    held: list[Any] = []
    with DataLoader({"x": images}, 3, 32, mode="iid", transform=to_tensors) as loader:
        for step in range(60):
            x = next(loader)["x"]
            assert torch.equal(x.amin(1), x.amax(1))
            held.append((x, x[:, 0].tolist()))
            if step % 2:
                held.pop(0)[0].fill_(-7)
            assert all(x[:, -1].tolist() == numbers for x, numbers in held[-8:])
            del x


# ---- pinned ------------------------------------------------------------------------------------------------------


@pytest.mark.skipif(torch.accelerator.is_available(), reason="there is pinned memory here")
def test_without_an_accelerator_pinned_says_so(images: Dataset) -> None:
    with pytest.raises(OptionError, match=r"there is no pinned memory here: .* Leave pinned") as caught:
        pinned(images)
    assert caught.value.option == "dataset"


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Have memory of PyTorch's that is not pinned stand in for what is; return the tensors as they are made."""
    tensors: list[Any] = []

    def empty(n_bytes: int) -> Any:
        tensors.append(torch.empty(n_bytes, dtype=torch.uint8))
        return tensors[-1]

    monkeypatch.setattr(pinning, "_empty_pinned", empty)
    return tensors


def test_batches_are_read_straight_into_pytorchs_memory(images: Dataset, made: list[Any]) -> None:
    stream = pinned(images)
    assert len(stream) == 64 and stream.dataset is images
    with DataLoader({"x": stream}, 0, 8, mode="sequential") as loader:
        del made[:]
        batch = next(loader)["x"]
    (owner,) = made
    assert batch.dtype == np.uint32 and batch[:, 0].tolist() == list(range(8))
    for array in (batch, batch[2:, ::3], batch[3], batch[1:2, 5:5]):
        tensor = to_tensors(array, widen=False)
        # The storage itself, not another one over the same bytes: PyTorch knows by it that memory is in use.
        assert tensor.untyped_storage()._cdata == owner.untyped_storage()._cdata
        assert tensor.tolist() == array.tolist() and tensor.stride() == tuple(s // 4 for s in array.strides)
    assert to_tensors(batch).dtype == torch.int64  # widened: a copy
    backwards = to_tensors(batch[::-1], widen=False)
    assert backwards[:, 0].tolist() == list(range(8))[::-1]
    assert backwards.untyped_storage()._cdata != owner.untyped_storage()._cdata


@pytest.mark.parametrize("name", ["float16", "bool", "complex128", "bfloat16", "float8_e5m2"])
def test_pinned_batches_of_other_types(name: str, tmp_path: Path, made: list[Any]) -> None:
    dtype = np.dtype(getattr(ml_dtypes, name, name))
    array = np.arange(12).reshape(4, 3).astype(dtype)
    write_dataset(tmp_path / "x.zr", array)
    batch = pinned(Dataset(tmp_path / "x.zr")).__getitems__(np.array([2, 0, 3]))
    assert batch.dtype == dtype and np.array_equal(batch, array[[2, 0, 3]])
    tensor = to_tensors(batch[1:])
    assert tensor.dtype == getattr(torch, name)
    assert tensor.untyped_storage()._cdata == made[-1].untyped_storage()._cdata
    assert np.array_equal(tensor.to(torch.complex128).numpy(), array[[0, 3]].astype(complex))


def test_what_cannot_be_pinned_is_refused(images: Dataset, tmp_path: Path, made: list[Any]) -> None:
    write_ragged(tmp_path / "r.zr", [[1, 2], [3]], dtype="int32")
    write_dataset(tmp_path / "d.zr", np.zeros(3, "M8[s]"))
    with pytest.raises(OptionError, match=r"pinned\(\) is for a Dataset, not a RaggedDataset"):
        pinned(RaggedDataset(tmp_path / "r.zr"))  # type: ignore[arg-type]
    with pytest.raises(OptionError, match=r"d\.zr is an array of datetime64"):
        pinned(Dataset(tmp_path / "d.zr"))
    with pytest.raises(TypeError, match="does not pickle"):
        pickle.dumps(pinned(images))
    pinned(images).prefetch([1, 2])


# ---- prefetch_to_device, as_iterable_dataset -----------------------------------------------------------------------


@pytest.mark.parametrize("num_workers", [0, 2])
def test_batches_ahead_are_not_counted(num_workers: int) -> None:
    with make_loader(num_workers, "cyclic") as loader, make_loader(0, "cyclic") as other:
        batches = prefetch_to_device(loader, "cpu", 3)
        for _ in range(5):
            next(batches)
        state = json.loads(json.dumps(batches.state_dict()))
        assert state["step"] == batches.step == 5 and loader.step == 8
        other.load_state_dict(state)
        expected = firsts(other, 4)
        assert firsts(batches, 4) == expected
        batches.load_state_dict(state)
        assert firsts(batches, 4) == expected
        with pytest.raises(StateMismatchError):
            batches.load_state_dict(state | {"seed": 1})


def test_batches_go_to_the_device_and_are_widened() -> None:
    loader = DataLoader({"x": ArrayStream(np.arange(9, dtype=np.uint16))}, 0, 3, mode="sequential")
    batch = next(prefetch_to_device(loader, torch.device("meta")))["x"]
    assert (batch.device.type, batch.dtype) == ("meta", torch.int32)
    assert next(prefetch_to_device(loader, "cpu", widen=False))["x"].dtype == torch.uint16


@pytest.mark.parametrize(
    ("device", "words"),
    [
        ("nowhere", "device is 'nowhere', .* nowhere"),
        (None, "device is None, on which PyTorch makes no tensor here: device"),
        pytest.param(
            "cuda",
            "device is 'cuda', on which PyTorch makes no tensor here: Torch not compiled with CUDA enabled$",
            marks=pytest.mark.skipif(torch.backends.cuda.is_built(), reason="PyTorch is built with CUDA"),
        ),
        ("cuda:77", "device is 'cuda:77'"),
        (torch.device("ipu"), "device is device.type='ipu'."),
    ],
)
def test_a_device_that_is_not_there_is_an_error_at_once(device: Any, words: str) -> None:
    loader = make_loader()
    with pytest.raises(OptionError, match=words) as caught:
        prefetch_to_device(loader, device)
    assert caught.value.option == "device" and caught.value.value == device and "\n" not in str(caught.value)
    assert caught.value.__cause__ is not None and loader.step == 0


def test_a_with_block_closes_the_loader() -> None:
    loader = make_loader(2)
    with prefetch_to_device(loader, "cpu") as batches:
        batch = next(batches)
    assert batch["x"].tolist() == [0, 1, 2, 3, 4]
    with pytest.raises(ClosedError):
        next(loader)


def test_passes_end_at_multiples_of_steps() -> None:
    loader = make_loader()
    dataset = as_iterable_dataset(loader, steps=4)
    torchs = TorchDataLoader(dataset, batch_size=None)
    assert len(torchs) == len(dataset) == 4
    for first in (0, 20, 40, 0):
        batches = list(torchs)
        assert [int(batch["x"][0]) for batch in batches] == [(first + 5 * i) % 60 for i in range(4)]
    for _ in zip(range(3), dataset, strict=False):  # left early, at a step of its own
        pass
    state = dataset.state_dict()
    assert state["step"] == loader.step
    rest = [int(batch["x"][0]) for batch in dataset]
    assert loader.step % 4 == 0
    dataset.load_state_dict(state)
    assert [int(batch["x"][0]) for batch in torchs] == rest


def test_resuming_in_the_middle_of_a_pass() -> None:
    dataset = as_iterable_dataset(make_loader(2, "iid"), steps=10)
    batches = iter(TorchDataLoader(dataset, batch_size=None))
    firsts(batches, 3)
    state = dataset.state_dict()
    expected = firsts(batches, 7)
    assert next(batches, None) is None
    other = as_iterable_dataset(prefetch_to_device(make_loader(0, "iid"), "cpu"), steps=10)
    other.load_state_dict(state)
    assert [int(batch["x"][0]) for batch in other] == expected


class InterruptedOnce(ArrayStream):
    """Ctrl-C comes once while the record of a number is read."""

    def __init__(self, n: int, number: int) -> None:
        super().__init__(np.arange(n))
        self.number = number

    def __getitems__(self, idxs: Any) -> Any:
        if self.number in idxs:
            self.number = -1
            raise KeyboardInterrupt
        return super().__getitems__(idxs)


@pytest.mark.parametrize("number", [0, 11, 24, 25])
def test_a_pass_is_whole_after_an_interrupt(number: int) -> None:
    dataset = as_iterable_dataset(
        DataLoader({"x": InterruptedOnce(60, number)}, 0, 5, mode="sequential"), steps=5
    )
    interrupts, passes = 0, []
    for _ in range(2):
        seen: list[int] = []
        batches = iter(dataset)
        while True:
            try:
                seen += [int(batch["x"][0]) for batch in [next(batches)]]
            except KeyboardInterrupt:
                interrupts += 1
            except StopIteration:
                break
        passes.append(seen)
    assert passes == [[0, 5, 10, 15, 20], [25, 30, 35, 40, 45]] and interrupts == 1


@pytest.mark.parametrize("num_workers", [0, 2])
def test_an_interrupt_after_the_loader_has_given_a_batch_loses_none(
    num_workers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(batch: Any, **options: Any) -> Any:
        monkeypatch.undo()
        raise KeyboardInterrupt

    with make_loader(num_workers) as loader:
        batches = iter(as_iterable_dataset(loader, steps=4))
        assert firsts(batches, 2) == [0, 5]
        monkeypatch.setattr(loading, "to_tensors", interrupted)
        with pytest.raises(KeyboardInterrupt):
            next(batches)
        assert loader.step == 2
        assert [int(batch["x"][0]) for batch in batches] == [10, 15]


@pytest.mark.parametrize("size", [None, 2])
@pytest.mark.parametrize("n_before", [0, 1, 3])
@pytest.mark.parametrize("step", [0, 1, 4, 5, 6, 8, 10])
def test_a_pass_ends_at_a_multiple_wherever_the_loader_is_moved(
    step: int, n_before: int, size: int | None
) -> None:
    loader: Any = make_loader()
    state = loader.state_dict() | {"step": step}
    dataset = as_iterable_dataset(
        loader if size is None else prefetch_to_device(loader, "cpu", size), steps=5
    )
    batches = iter(dataset)
    firsts(batches, n_before)
    dataset.load_state_dict(state)
    # The end of this very pass ends it; from elsewhere it goes on to the next multiple.
    end = 5 if step <= 5 else 10 if step < 10 else 15
    assert [int(batch["x"][0]) for batch in batches] == [5 * i % 60 for i in range(step, end)]
    assert dataset.state_dict()["step"] == end
    dataset.load_state_dict(state)
    assert next(batches, None) is None  # what is over stays so
    first = [int(batch["x"][0]) for batch in dataset]
    assert first == [5 * i % 60 for i in range(step, step - step % 5 + 5)]


def test_seek_during_a_pass() -> None:
    loader = make_loader()
    batches = iter(as_iterable_dataset(loader, steps=4))
    assert firsts(batches, 3) == [0, 5, 10]
    loader.seek(1)
    assert [int(batch["x"][0]) for batch in batches] == [5, 10, 15] and loader.step == 4


def test_a_dataset_is_true_and_says_what_it_is() -> None:
    loader = make_loader()
    endless, passes = as_iterable_dataset(loader), as_iterable_dataset(loader, steps=3)
    assert bool(endless) is True and bool(passes) is True and (endless or None) is endless
    assert repr(endless) == f"<LoaderDataset of {loader!r}, without end>"
    assert repr(passes) == f"<LoaderDataset of {loader!r}, in passes of 3 steps>"


def test_without_steps_there_is_no_end_and_no_length() -> None:
    dataset = as_iterable_dataset(make_loader())
    assert firsts(iter(dataset), 30) == [5 * i % 60 for i in range(30)]
    with pytest.raises(TypeError, match="no length"):
        len(dataset)
    with pytest.raises(TypeError, match="no length"):
        next(iter(TorchDataLoader(make_loader())))  # type: ignore[arg-type]
    for steps in (0, -1, 1.5):
        with pytest.raises(OptionError, match="steps"):
            as_iterable_dataset(make_loader(), steps=steps)  # type: ignore[arg-type]
    with pytest.raises(OptionError, match="no __next__"):
        as_iterable_dataset([1, 2])  # type: ignore[arg-type]


def test_an_exception_passes_and_the_next_call_goes_on() -> None:
    dataset = as_iterable_dataset(make_loader(2, transform=fail_on_sevens), steps=8)
    seen: list[Any] = []
    batches = iter(TorchDataLoader(dataset, batch_size=None))
    while True:
        try:
            seen.append(int(next(batches)["x"][0]))
        except KeyError as error:
            seen.append(error.args[0])
        except StopIteration:
            break
    assert seen == ["seven at 0", 5, 10, 15, 20, 25, 30, "seven at 35"]


@pytest.mark.parametrize("start_method", ["fork", "spawn"])
def test_in_a_worker_of_pytorchs_it_says_what_to_do(start_method: str) -> None:
    dataset = as_iterable_dataset(make_loader(2))
    firsts(iter(dataset), 1)
    torchs = TorchDataLoader(dataset, batch_size=None, num_workers=1, multiprocessing_context=start_method)
    with pytest.raises(LoaderError, match="num_workers=0"):
        next(iter(torchs))


# ---- as_map_dataset ------------------------------------------------------------------------------------------------


def test_samples_and_batches(images: Dataset, tmp_path: Path) -> None:
    write_dataset(tmp_path / "y.zr", np.arange(64, dtype=np.uint16) * 1000)
    dataset = as_map_dataset({"x": images, "y": Dataset(tmp_path / "y.zr")})
    assert len(dataset) == 64
    sample = dataset[3]
    assert (
        sample["x"].tolist() == [3] * 4096 and sample["y"].dtype == torch.int32 and int(sample["y"]) == 3000
    )
    samples = dataset.__getitems__([5, 5, 1])
    assert isinstance(samples, list) and isinstance(samples, Samples) and len(samples) == 3
    assert [int(sample["y"]) for sample in samples] == [5000, 5000, 1000]
    together, stacked = collate(samples), default_collate(samples)
    assert together is samples.batch
    assert list(together) == list(stacked) == ["x", "y"]
    for name in together:
        assert torch.equal(together[name], stacked[name]) and together[name].dtype == stacked[name].dtype
        assert samples[1][name].untyped_storage()._cdata == together[name].untyped_storage()._cdata
    assert collate([{"a": 1}, {"a": 2}])["a"].tolist() == [1, 2]  # of another dataset
    with pytest.raises(RecordIndexError):
        dataset[64]


def test_a_batch_is_one_read() -> None:
    stream = CountingStream(100)
    loader = TorchDataLoader(as_map_dataset(stream), batch_size=10, shuffle=True)
    batches = list(loader)
    assert stream.n_reads == 10
    assert sorted(torch.cat(batches).tolist()) == list(range(100))
    part = Subset(as_map_dataset(stream), [7, 3, 5, 1])
    assert [batch.tolist() for batch in TorchDataLoader(part, batch_size=2, collate_fn=collate)] == [
        [7, 3],
        [5, 1],
    ]
    assert stream.n_reads == 12


def test_a_worker_reads_with_one_thread(images: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    limits: list[int] = []
    monkeypatch.setattr(mapping, "limit_this_thread", limits.append)
    dataset = as_map_dataset(images)
    assert dataset.__getitems__([]).batch.shape == (0, 4096) and limits == []
    monkeypatch.setattr(mapping, "get_worker_info", lambda: object())
    assert dataset[3][0].item() == 3 and limits == [1]


def test_records_of_different_lengths(tmp_path: Path) -> None:
    write_ragged(tmp_path / "r.zr", [np.arange(2 * n).reshape(n, 2) for n in (3, 0, 5)], dtype="int16")
    dataset = as_map_dataset(RaggedDataset(tmp_path / "r.zr"))
    samples = dataset.__getitems__([2, 1, 0])
    assert [sample.shape for sample in samples] == [(5, 2), (0, 2), (3, 2)]
    assert samples[2].tolist() == [[0, 1], [2, 3], [4, 5]]
    values, row_splits = collate(samples)
    assert values.shape == (8, 2) and row_splits.tolist() == [0, 5, 5, 8]
    assert dataset[1].shape == (0, 2)
    padded = torch.nn.utils.rnn.pad_sequence(list(samples), batch_first=True)
    assert padded.shape == (3, 5, 2)


@pytest.mark.parametrize("side_streams", [[], ["positions", "document_ids"]])
@pytest.mark.parametrize(
    "options", [{"sample_size": None}, {"sample_size": 4, "last": "keep"}, {"sample_size": 4}]
)
def test_samples_of_tokens(tmp_path: Path, options: dict[str, Any], side_streams: list[str]) -> None:
    # 7 tokens with EOS behind each document, 6 without: so many as a batch has row splits, if it is the wrong one.
    tokenize(["aa", "bbb", "c"], tmp_path / "t", encode, eos_id=0, side_streams=side_streams, **options)
    tokens = TokensDataset(tmp_path / "t")
    dataset = as_map_dataset(tokens)
    for order in ([0, 1], [1, 0, 1], [0], [], list(range(len(tokens)))):
        samples = dataset.__getitems__(order)
        assert len(samples) == len(order)
        for number, sample in zip(order, samples, strict=True):
            assert same(sample, tokens[number])
        assert same(collate(samples) if order else samples.batch, tokens.__getitems__(order))
    beside = as_map_dataset({"x": tokens, "n": ArrayStream(np.arange(len(tokens)))})
    assert same(beside[1]["x"], tokens[1]) and beside[1]["n"].item() == 1
    # PyTorch's own loader: batches of one length with its own collate, others with a function of the user's.
    if tokens.sample_size is not None:
        (batch,) = TorchDataLoader(dataset, batch_size=len(tokens))
        assert same(batch, tokens[:])
        (tensor,) = [batch["tokens"]] if side_streams else [batch]
        assert torch.nn.Embedding(256, 2)(tensor).shape == (len(tokens), 4, 2)


def encode(text: str) -> list[int]:
    return list(text.encode())


def same(found: Any, expected: Any) -> bool:
    """Return whether tensors are arrays, in dicts and tuples of any kind."""
    if isinstance(expected, dict):
        return list(found) == list(expected) and all(same(found[name], expected[name]) for name in expected)
    if isinstance(expected, tuple):
        return len(found) == len(expected) and all(map(same, found, expected))
    return (
        isinstance(found, torch.Tensor)
        and found.shape == expected.shape
        and found.tolist() == expected.tolist()
    )


class Nested:
    """A stream whose batches are nested."""

    def __len__(self) -> int:
        return 10

    def __getitems__(self, idxs: Any) -> Any:
        return {"a": (idxs * 2, idxs[:, None] + np.zeros((1, 2), np.int64)), "names": [f"n{i}" for i in idxs]}


def test_nested_batches_are_taken_apart() -> None:
    samples = as_map_dataset(Nested()).__getitems__([4, 2])
    assert [(int(s["a"][0]), s["a"][1].tolist(), s["names"]) for s in samples] == [
        (8, [4, 4], "n4"),
        (4, [2, 2], "n2"),
    ]


@pytest.mark.parametrize("index", [slice(1, 3), [1, 2], np.arange(2), "x", None, 1.5, True, {}])
def test_a_sample_has_a_whole_number(index: Any) -> None:
    dataset = as_map_dataset(ArrayStream(np.arange(9) * 3))
    kind = type(index).__name__
    with pytest.raises(
        TypeError, match=rf"^the index of a sample is a whole number, not a {kind}: several samples"
    ):
        dataset[index]
    for good in (2, np.int16(2), np.array(2), torch.tensor(2), np.uint64(2)):
        assert dataset[good].tolist() == 6


def test_collate_of_one_sample_says_what_to_do() -> None:
    for streams in (ArrayStream(np.arange(9)), {"x": ArrayStream(np.arange(9))}):
        dataset = as_map_dataset(streams)  # type: ignore[arg-type]
        with pytest.raises(
            TypeError, match=r"collate is given a (dict|Tensor), which is one sample.*batch_size"
        ):
            next(iter(TorchDataLoader(dataset, batch_size=None, collate_fn=collate)))


def test_repr_of_a_map_dataset(images: Dataset) -> None:
    y = ArrayStream(np.arange(64))
    assert (
        repr(as_map_dataset({"x": images, "y": y}))
        == "<MapDataset of {x: Dataset, y: ArrayStream}: 64 samples>"
    )
    assert repr(as_map_dataset(images)) == "<MapDataset of Dataset: 64 samples>"


@pytest.mark.parametrize("dtype", [torch.int64, torch.float16, torch.bool, torch.uint16])
def test_a_tensor_is_written_as_a_dataset(dtype: Any, tmp_path: Path) -> None:
    tensor = torch.arange(12).reshape(4, 3).to(dtype)
    assert write_dataset(tmp_path / "x.zr", tensor) == 4  # type: ignore[arg-type]
    with Dataset(tmp_path / "x.zr") as ds:
        assert ds.dtype == tensor.numpy().dtype and np.array_equal(ds[:], tensor.numpy())


@pytest.mark.parametrize(
    "tensor",
    [torch.ones(2, requires_grad=True), torch.ones(2, dtype=torch.bfloat16), torch.ones(2, device="meta")],
)
def test_a_tensor_that_numpy_cannot_have_is_a_schema_error(tensor: Any, tmp_path: Path) -> None:
    with pytest.raises(
        SchemaError, match=r"x\.zr: NumPy makes no array of a Tensor of torch\..*\.cpu\(\)\.numpy\(\)"
    ):
        write_dataset(tmp_path / "x.zr", tensor)
    assert not (tmp_path / "x.zr").exists()


def test_it_pickles_by_the_streams_paths(images: Dataset) -> None:
    dataset = pickle.loads(pickle.dumps(as_map_dataset({"x": images}, widen=False)))
    assert dataset[9]["x"].dtype == torch.uint32 and dataset[9]["x"][0].item() == 9


def test_what_is_no_stream_is_refused(images: Dataset) -> None:
    with pytest.raises(OptionError, match="differ in length"):
        as_map_dataset({"x": images, "y": ArrayStream(np.arange(3))})
    with pytest.raises(OptionError, match="no __len__ and no __getitems__"):
        as_map_dataset(3)  # type: ignore[arg-type]
    with pytest.raises(OptionError, match="widen"):
        as_map_dataset(images, widen=1)  # type: ignore[arg-type]


def test_examples_of_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run_examples(ROOT / "docs" / "torch.md")
