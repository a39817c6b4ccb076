"""Tensors that share a batch's memory keep it: PyTorch, JAX and DLPack between them.

Each framework runs in one process of its own, which tries everything and prints what it saw: after a fork, or beside
tests that fork, JAX warns.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from loaderx import write_dataset

# Of each case is seen: whether what was made of the batch lies where the batch did; whether that, alone, kept the block
# from becoming idle; whether its bytes were still right after others had been written wherever the pool allows; and
# whether its block came back when that was dropped too.
PROGRAM = """
import gc, json, sys
import numpy as np
from loaderx import Dataset, trim_pool
from loaderx._core.buffers import idle_bytes

CASES

ds = Dataset(sys.argv[1])
expected = np.asarray(ds[:])[:, 3:5].copy()
seen = {}
for name, make in cases.items():
    trim_pool()
    batch = ds[:]
    place = batch.ctypes.data
    made = make(batch)
    del batch
    gc.collect()
    kept = idle_bytes() == 0  # also as long as work that was only begun reads from it
    for _ in range(8):  # each of them overwrites what it can get
        others = [ds[::-1] for _ in range(3)]
        for other in others:
            other[:] = -1
        del others, other
    shares = pointer(made) == place
    right = np.array_equal(values(made)[:, 3:5], expected)
    trim_pool()
    del made
    gc.collect()
    seen[name] = {"shares": shares, "kept": kept, "right": right, "given_back": idle_bytes() > 0}
print(json.dumps(seen))
"""

TORCH = """
import torch
cases = {
    "torch.from_numpy": torch.from_numpy,
    "torch.as_tensor": torch.as_tensor,
    "torch.from_dlpack": torch.from_dlpack,
    "a view of a tensor": lambda batch: torch.from_numpy(batch).view(-1).view(len(batch), -1),
    "a slice of a tensor": lambda batch: torch.from_numpy(batch)[:, :7],
    "storage": lambda batch: torch.from_numpy(batch).untyped_storage(),
    "numpy of a tensor": lambda batch: torch.from_numpy(batch).numpy(),
    "numpy by DLPack of a tensor": lambda batch: np.from_dlpack(torch.from_numpy(batch)),
    "torch by DLPack of numpy by DLPack": lambda batch: torch.from_dlpack(np.from_dlpack(batch)),
    "a parameter": lambda batch: torch.nn.Parameter(torch.from_numpy(batch)),
    "a copy": torch.tensor,
}
def pointer(made):
    return made.ctypes.data if isinstance(made, np.ndarray) else made.data_ptr()
def values(made):
    if isinstance(made, torch.UntypedStorage):
        return torch.tensor([]).set_(made).reshape(64, -1).numpy()
    return made if isinstance(made, np.ndarray) else made.detach().numpy()
"""

JAX = """
import warnings
import jax, jax.numpy as jnp
warnings.simplefilter("ignore")  # memory that could not be reused
cases = {
    "jax.device_put": jax.device_put,
    "jax.device_put, may_alias": lambda batch: jax.device_put(batch, may_alias=True),
    "jax.dlpack.from_dlpack": jax.dlpack.from_dlpack,
    "numpy of device_put": lambda batch: np.asarray(jax.device_put(batch)),
    "numpy by DLPack of device_put": lambda batch: np.from_dlpack(jax.device_put(batch)),
    "jnp.asarray": jnp.asarray,
    "jnp.array": jnp.array,
    "jnp.frombuffer": lambda batch: jnp.frombuffer(batch, np.float32).reshape(batch.shape),
    "device_put of a slice": lambda batch: jax.device_put(batch[:, :7]),
    "a computation": lambda batch: jax.jit(lambda x: x * 1)(batch),
    "a computation that may reuse its argument": lambda batch: jax.jit(lambda x: x * 1, donate_argnums=0)(batch),
    "the same of device_put": lambda batch: jax.jit(lambda x: x * 1, donate_argnums=0)(jax.device_put(batch)),
    "a computation that is only begun": lambda batch: jax.jit(lambda x: x + 0 * (x @ x.T @ x))(batch),
    "a tree": lambda batch: jax.tree.map(jnp.asarray, {"a": [batch]})["a"][0],
}
def pointer(made):
    return made.ctypes.data if isinstance(made, np.ndarray) else made.unsafe_buffer_pointer()
def values(made):
    return np.asarray(made)
"""

ALWAYS_SHARES = {
    "torch": [
        "torch.from_numpy", "torch.as_tensor", "torch.from_dlpack", "a view of a tensor", "a slice of a tensor",
        "storage", "numpy of a tensor", "numpy by DLPack of a tensor", "torch by DLPack of numpy by DLPack",
        "a parameter",
    ],
    "jax": [
        "jax.device_put", "jax.device_put, may_alias", "jax.dlpack.from_dlpack", "numpy of device_put",
        "numpy by DLPack of device_put",
    ],
}  # fmt: skip


@pytest.mark.parametrize(
    "name",
    [
        pytest.param("torch", marks=pytest.mark.needs_torch),
        pytest.param("jax", marks=pytest.mark.needs_jax),
    ],
)
def test_what_shares_a_batchs_memory_keeps_it(name: str, tmp_path: Path) -> None:
    path = tmp_path / "s.zr"
    write_dataset(path, np.random.default_rng(0).random((64, 16384), np.float32), "raw")
    program = PROGRAM.replace("CASES", {"torch": TORCH, "jax": JAX}[name])
    done = subprocess.run(
        [sys.executable, "-c", program, str(path)],
        env=os.environ | {"JAX_PLATFORMS": "cpu"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout)
    for case, facts in seen.items():
        assert facts["right"], (case, facts)
        assert not facts["shares"] or (facts["kept"] and facts["given_back"]), (case, facts)
    assert {case for case, facts in seen.items() if facts["shares"]} >= set(ALWAYS_SHARES[name])
