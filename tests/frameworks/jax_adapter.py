"""`loaderx.jax` with JAX, on the CPU in the place of four devices. Run by test_adapters.py, in a process of its own."""

from __future__ import annotations

import gc
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import ml_dtypes
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding, PartitionSpec, SingleDeviceSharding

from loaderx import DataLoader, Dataset, OptionError, RaggedDataset, trim_pool, write_dataset, write_ragged
from loaderx._core.buffers import idle_bytes
from loaderx.errors import ClosedError, StateMismatchError
from loaderx.jax import prefetch_to_device
from tests.docs.test_docs import ROOT, run_examples
from tests.loader.kit import ArrayStream, fail_on_sevens


@pytest.fixture
def images(tmp_path: Path) -> Iterator[Dataset]:
    """Return a dataset of 64 records of 16 KiB, each full of its number."""
    write_dataset(
        tmp_path / "i.zr", np.arange(64, dtype=np.float32)[:, None] + np.zeros((1, 4096), np.float32)
    )
    gc.collect()
    trim_pool()
    with Dataset(tmp_path / "i.zr") as ds:
        yield ds
    trim_pool()


def over_devices(*axes: str | None) -> NamedSharding:
    """Return a sharding over the four devices along an array's first axis, or as `axes` say."""
    mesh = Mesh(np.array(jax.devices()), ("batch",))
    return NamedSharding(mesh, PartitionSpec(*(axes or ("batch",))))


def loader_of(**arrays: Any) -> DataLoader:
    """Return a loader of some arrays, whose first batch is the first four rows."""
    return DataLoader({name: ArrayStream(array) for name, array in arrays.items()}, 0, 4, mode="sequential")


def churn(images: Dataset) -> None:
    """Write over all memory that the pool hands out."""
    for _ in range(8):
        others = [images[::-1] for _ in range(3)]
        for other in others:
            other[:] = -1


def test_batches_are_the_loaders(tmp_path: Path, images: Dataset) -> None:
    write_ragged(tmp_path / "r.zr", [np.arange(n % 5) for n in range(64)], dtype="uint16")
    streams = {"x": images, "r": RaggedDataset(tmp_path / "r.zr")}
    with DataLoader(streams, 2, 8, mode="iid") as loader, DataLoader(streams, 0, 8, mode="iid") as other:
        batches = prefetch_to_device(loader)
        for _ in range(10):
            found, expected = next(batches), next(other)
            assert set(found) == {"x", "r"} and type(found["r"]) is tuple
            assert isinstance(found["x"], jax.Array) and found["x"].dtype == np.float32
            assert np.array_equal(found["x"], expected["x"])
            assert found["r"][0].dtype == np.uint16
            assert all(np.array_equal(a, b) for a, b in zip(found["r"], expected["r"], strict=True))


def test_arrays_share_the_batch_and_keep_it(images: Dataset) -> None:
    places: list[int] = []

    def note(batch: dict[str, Any]) -> dict[str, Any]:
        places.append(batch["x"].ctypes.data)
        return batch

    with DataLoader({"x": images}, 0, 64, mode="sequential", transform=note) as loader:
        batches = prefetch_to_device(loader, 2)
        array = next(batches)["x"]
        assert array.unsafe_buffer_pointer() == places[0]
        del batches
    gc.collect()
    trim_pool()
    churn(images)
    assert np.array_equal(np.asarray(array)[:, 7], np.arange(64))
    part = jax.jit(lambda x: x[3:5] * 1)(array)
    trim_pool()
    del array
    gc.collect()
    assert idle_bytes() > 0
    churn(images)
    assert np.asarray(part)[:, 0].tolist() == [3, 4]


@pytest.mark.parametrize("sharded", [False, True])
def test_held_arrays_stay_as_they_are_while_the_pool_is_churned(images: Dataset, sharded: bool) -> None:
    held: list[tuple[Any, Any]] = []
    with (
        DataLoader({"x": images}, 3, 32, mode="iid") as loader,
        DataLoader({"x": images}, 0, 32, mode="iid") as other,
    ):
        batches = prefetch_to_device(loader, 3, over_devices() if sharded else None)
        for step in range(40):
            held.append((next(batches)["x"], next(other)["x"][:, 0].tolist()))
            if len(held) > 6:
                del held[step % 5]
            churn(images) if step % 10 == 9 else None
            for array, numbers in held:
                seen = np.asarray(array)
                assert seen[:, 0].tolist() == seen[:, -1].tolist() == numbers


@pytest.mark.parametrize("size", [0, 1, 4])
def test_batches_ahead_are_not_counted(size: int) -> None:
    x = np.arange(60)
    with loader_of(x=x) as loader, loader_of(x=x) as other:
        batches = prefetch_to_device(loader, size)
        for step in range(5):
            assert batches.step == step
            next(batches)
        state = json.loads(json.dumps(batches.state_dict()))
        assert state["step"] == 5 and loader.step == 5 + size
        other.load_state_dict(state)
        expected = [next(other)["x"].tolist() for _ in range(4)]
        assert [next(batches)["x"].tolist() for _ in range(4)] == expected
        batches.load_state_dict(state)
        assert [next(batches)["x"].tolist() for _ in range(4)] == expected
        with pytest.raises(StateMismatchError):
            batches.load_state_dict(state | {"seed": 1})


def test_exceptions_come_in_their_turn() -> None:
    stream = ArrayStream(np.arange(50))
    loader = DataLoader({"x": stream}, 2, 5, mode="sequential", transform=fail_on_sevens)
    batches, seen = prefetch_to_device(loader, 3), []
    for _ in range(9):
        try:
            seen.append(int(next(batches)["x"][0]))
        except KeyError as error:
            seen.append(error.args[0])
    assert seen == ["seven at 0", 5, 10, 15, 20, 25, 30, "seven at 35", 40]
    loader.close()


def test_a_batch_is_spread_over_devices() -> None:
    x, y = np.arange(32.0, dtype=np.float32).reshape(8, 4), np.arange(8, dtype=np.int32)
    batch = next(prefetch_to_device(loader_of(x=x, y=y), 2, over_devices()))
    for name, array in (("x", x), ("y", y)):
        assert batch[name].sharding.is_equivalent_to(over_devices(), array.ndim)
        assert np.array_equal(batch[name], array[:4])
        assert len(batch[name].addressable_shards) == 4
        for shard in batch[name].addressable_shards:
            assert np.array_equal(shard.data, array[:4][shard.index])


def test_each_stream_may_have_a_place_of_its_own() -> None:
    x = np.arange(32.0, dtype=np.float32).reshape(8, 4)
    last = jax.devices()[-1]
    sharding = {"x": over_devices(None, "batch"), "y": last, "z": SingleDeviceSharding(jax.devices()[1])}
    loader = loader_of(x=x, y=x, z=x)
    batch = next(prefetch_to_device(loader, 1, sharding))
    assert {shard.data.shape for shard in batch["x"].addressable_shards} == {(4, 1)}
    assert batch["y"].devices() == {last} and batch["z"].devices() == {jax.devices()[1]}
    assert all(np.array_equal(array, x[:4]) for array in batch.values())
    assert next(prefetch_to_device(loader, 1, last))["x"].devices() == {last}


@pytest.mark.parametrize("sharding", [None, "devices"])
@pytest.mark.parametrize(
    "dtype", [">f4", "M8[s]", "m8[ns]", "longdouble", "S3", "U3", [("a", "i4"), ("b", "f4")]]
)
def test_a_type_that_jax_has_not_is_an_error_that_names_the_stream(dtype: Any, sharding: Any) -> None:
    loader = loader_of(good=np.zeros(8, np.float32), bad=np.zeros(8, dtype))
    batches = prefetch_to_device(loader, 1, over_devices() if sharding else None)
    with pytest.raises(OptionError, match=r"^batch\['bad'\] cannot be an array of JAX: .*") as caught:
        next(batches)
    assert caught.value.value == np.dtype(dtype)


def test_text_is_an_error_that_names_its_place() -> None:
    loader = DataLoader(
        {"x": ArrayStream(np.arange(8))}, 0, 4, transform=lambda batch: {"a": [batch["x"], "text"]}
    )
    with pytest.raises(OptionError, match=r"^batch\['a'\]\[1\] cannot be"):
        next(prefetch_to_device(loader))


def test_a_masked_array_is_an_error_that_names_its_place() -> None:
    masked = np.ma.masked_equal(np.arange(8, dtype=np.float32), 2)
    for sharding in (None, over_devices()):
        batches = prefetch_to_device(DataLoader({"x": masked}, 0, 4, mode="sequential"), 0, sharding)
        with pytest.raises(
            OptionError, match=r"^batch\['x'\] is a masked array.*array\.filled\(\)"
        ) as caught:
            next(batches)
        assert caught.value.option == "batch"


def test_a_with_block_closes_the_loader() -> None:
    loader = loader_of(x=np.arange(8, dtype=np.int32))
    with prefetch_to_device(loader) as batches:
        batch = next(batches)
    assert batch["x"].tolist() == [0, 1, 2, 3]
    with pytest.raises(ClosedError):
        next(loader)


@pytest.mark.parametrize("name", ["bfloat16", "float8_e4m3fn", "float8_e5m2"])
def test_types_of_ml_dtypes_stay(name: str) -> None:
    x = np.arange(8).astype(getattr(ml_dtypes, name))
    array = next(prefetch_to_device(loader_of(x=x)))["x"]
    assert array.dtype == x.dtype and np.asarray(array).tolist() == x[:4].tolist()


@pytest.mark.parametrize(
    ("dtype", "value"), [("int64", 2**31), ("int64", -(2**31) - 1), ("uint64", 2**32), ("uint64", 2**64 - 1)]
)
def test_integers_that_would_be_cut_are_an_error(dtype: str, value: int) -> None:
    x = np.array([0, 1, value, 2], dtype)
    with pytest.raises(OptionError, match=rf"batch\['x'\] holds {value}, and JAX has u?int32 only"):
        next(prefetch_to_device(loader_of(x=x)))
    with jax.enable_x64(True):
        array = next(prefetch_to_device(loader_of(x=x)))["x"]
    assert array.dtype == dtype and np.array_equal(array, x)


def test_types_of_64_bits_become_32() -> None:
    most = np.array([2**31 - 1, -(2**31), 0, 1])
    batch = next(
        prefetch_to_device(
            loader_of(
                i=most,
                u=np.full(4, 2**32 - 1, np.uint64),
                f=np.full(4, 0.1),
                c=np.full(4, 1j),
                none=np.ones((4, 0), int),
            )
        )
    )
    assert {name: str(array.dtype) for name, array in batch.items()} == {
        "i": "int32", "u": "uint32", "f": "float32", "c": "complex64", "none": "int32"
    }  # fmt: skip
    assert batch["i"].tolist() == most.tolist() and batch["u"].tolist() == [2**32 - 1] * 4
    assert np.array_equal(batch["f"], np.full(4, 0.1, np.float32))


def test_wrong_arguments() -> None:
    with pytest.raises(OptionError, match="size"):
        prefetch_to_device(loader_of(x=np.arange(8)), -1)
    with pytest.raises(OptionError, match="has no __next__"):
        prefetch_to_device([1, 2])  # type: ignore[arg-type]


def test_examples_of_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run_examples(ROOT / "docs" / "jax.md")
