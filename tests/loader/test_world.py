"""`rank_and_world`: from PyTorch, JAX or the launchers' variables. (Real groups: tests/frameworks.)"""

from __future__ import annotations

import pickle
import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from loaderx import OptionError
from loaderx.loader import rank_and_world

PAIRS = [
    ("RANK", "WORLD_SIZE"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("PMI_RANK", "PMI_SIZE"),
    ("SLURM_PROCID", "SLURM_NTASKS"),
]


@pytest.fixture(autouse=True)
def _nothing_set(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (name for pair in PAIRS for name in pair):
        monkeypatch.delenv(name, raising=False)
    for name in ("torch.distributed", "jax"):
        monkeypatch.delitem(sys.modules, name, raising=False)


def fake_torch(
    rank: int = 0, world_size: int = 1, *, available: bool = True, initialized: bool = True
) -> Any:
    return SimpleNamespace(
        is_available=lambda: available,
        is_initialized=lambda: initialized,
        get_rank=lambda: rank,
        get_world_size=lambda: world_size,
    )


def fake_jax(rank: int = 0, world_size: int = 1, *, initialized: bool = True) -> Any:
    def backend(value: int) -> int:
        assert initialized, "the backend was started"
        return value

    return SimpleNamespace(
        distributed=SimpleNamespace(is_initialized=lambda: initialized),
        process_index=lambda: backend(rank),
        process_count=lambda: backend(world_size),
    )


def test_one_process_where_nothing_says_otherwise() -> None:
    assert rank_and_world() == (0, 1)


@pytest.mark.parametrize("pair", PAIRS, ids=lambda pair: pair[0])
def test_variables_of_a_launcher(pair: tuple[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    for rank, world_size in ((0, 1), (0, 2), (3, 4), (1023, 1024), (0, 2**31 - 1)):
        monkeypatch.setenv(pair[0], str(rank))
        monkeypatch.setenv(pair[1], f" {world_size} ")
        assert rank_and_world() == (rank, world_size)
    for name in pair:
        monkeypatch.setenv(name, "")
    assert rank_and_world() == (0, 1)


def test_the_innermost_launcher_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    for place, pair in reversed(list(enumerate(PAIRS))):
        monkeypatch.setenv(pair[0], str(place))
        monkeypatch.setenv(pair[1], "10")
        assert rank_and_world() == (place, 10)


@pytest.mark.parametrize("pair", PAIRS, ids=lambda pair: pair[0])
@pytest.mark.parametrize("missing", [0, 1])
def test_half_a_pair_is_an_error(
    pair: tuple[str, str], missing: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(pair[1 - missing], "1")
    with pytest.raises(
        OptionError, match=f"{pair[1 - missing]} is '1', and {pair[missing]} is not set"
    ) as caught:
        rank_and_world()
    assert caught.value.option == pair[missing] and caught.value.value is None


@pytest.mark.parametrize("pair", PAIRS, ids=lambda pair: pair[0])
@pytest.mark.parametrize("wrong", [0, 1])
@pytest.mark.parametrize("text", ["one", "-1", "1.0", "+1", "0x1", "1_0", "٣", "9" * 30, str(2**31)])
def test_what_is_no_number_is_an_error(
    pair: tuple[str, str], wrong: int, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(pair[1 - wrong], "1")
    monkeypatch.setenv(pair[wrong], text)
    with pytest.raises(OptionError, match=pair[wrong]) as caught:
        rank_and_world()
    assert (caught.value.option, caught.value.value) == (pair[wrong], text)
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)


@pytest.mark.parametrize(("rank", "world_size"), [("1", "1"), ("7", "4"), ("0", "0")])
def test_a_rank_beyond_the_world_is_an_error(
    rank: str, world_size: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RANK", rank)
    monkeypatch.setenv("WORLD_SIZE", world_size)
    with pytest.raises(OptionError, match=f"RANK={rank} and WORLD_SIZE={world_size} contradict") as caught:
        rank_and_world()
    assert caught.value.option == "RANK"


@pytest.mark.parametrize(
    ("name", "module"), [("torch.distributed", fake_torch(2, 5)), ("jax", fake_jax(2, 5))]
)
def test_a_framework_that_is_initialised_comes_before_the_variables(
    name: str, module: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RANK", "7")
    monkeypatch.setenv("WORLD_SIZE", "8")
    monkeypatch.setitem(sys.modules, name, module)
    assert rank_and_world() == (2, 5)


@pytest.mark.parametrize(
    ("name", "module"),
    [
        ("torch.distributed", fake_torch(2, 5, initialized=False)),
        ("torch.distributed", fake_torch(2, 5, available=False)),
        ("jax", fake_jax(2, 5, initialized=False)),
    ],
)
def test_a_framework_that_is_only_imported_says_nothing(
    name: str, module: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, name, module)
    assert rank_and_world() == (0, 1)
    monkeypatch.setenv("RANK", "7")
    monkeypatch.setenv("WORLD_SIZE", "8")
    assert rank_and_world() == (7, 8)


def test_frameworks_that_disagree_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch.distributed", fake_torch(1, 4))
    monkeypatch.setitem(sys.modules, "jax", fake_jax(1, 4))
    assert rank_and_world() == (1, 4)
    monkeypatch.setitem(sys.modules, "jax", fake_jax(1, 2))
    with pytest.raises(OptionError, match=r"torch.distributed says 1 of 4, JAX says 1 of 2"):
        rank_and_world()


def test_no_framework_is_imported_for_it() -> None:
    program = (
        "import sys\nfrom loaderx.loader import rank_and_world\nrank_and_world()\n"
        "print(sorted({'torch', 'jax'} & sys.modules.keys()))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
