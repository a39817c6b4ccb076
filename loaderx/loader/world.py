"""Which of the processes that train together this one is."""

from __future__ import annotations

import sys

from loaderx._env import read_rank_and_world
from loaderx.errors import OptionError


def rank_and_world() -> tuple[int, int]:
    """Return the number of this process among those that train together, and how many they are.

    Returns
    -------
    rank : int
        From 0 to ``world_size - 1``.
    world_size : int
        1 where nothing says that there are others.

    Raises
    ------
    OptionError
        A launcher's variable is missing beside the other of its pair, is no number, or contradicts it (`option` is its
        name); or PyTorch and JAX tell different things.

    Notes
    -----
    The first of these that knows: ``torch.distributed``, where its process group is initialised; JAX, where
    ``jax.distributed.initialize`` was called; the variables ``RANK`` and ``WORLD_SIZE`` (torchrun),
    ``OMPI_COMM_WORLD_RANK`` and ``_SIZE`` (Open MPI), ``PMI_RANK`` and ``PMI_SIZE`` (MPICH, Intel MPI),
    ``SLURM_PROCID`` and ``SLURM_NTASKS`` (srun). Neither package is imported for it, and JAX is not made to look for
    devices unless it was initialised. In a batch script of Slurm that starts one process without srun, the variables
    are there too: give ``rank=0, world_size=1`` yourself.

    Examples
    --------
    >>> from loaderx.loader import rank_and_world
    >>> write_dataset(tmp_path / "x.zr", np.arange(100))
    100
    >>> rank, world_size = rank_and_world()
    >>> loader = DataLoader({"x": Dataset(tmp_path / "x.zr")}, batch_size=8, rank=rank, world_size=world_size)
    """
    found = {name: told for name, ask in _FRAMEWORKS.items() if (told := ask()) is not None}
    if len(set(found.values())) > 1:
        sides = ", ".join(f"{name} says {rank} of {world}" for name, (rank, world) in found.items())
        raise OptionError(
            f"it is not clear which process this is: {sides}. Give rank and world_size yourself",
            option="rank",
            value=found,
        )
    for told in found.values():
        return told
    return read_rank_and_world() or (0, 1)


def _ask_torch() -> tuple[int, int] | None:
    distributed = sys.modules.get("torch.distributed")
    if distributed is None or not (distributed.is_available() and distributed.is_initialized()):
        return None
    return int(distributed.get_rank()), int(distributed.get_world_size())


def _ask_jax() -> tuple[int, int] | None:
    jax = sys.modules.get("jax")
    # `process_index` starts JAX's backend: only where a run of several processes was begun, which is about to do so.
    if jax is None or not jax.distributed.is_initialized():
        return None
    return int(jax.process_index()), int(jax.process_count())


_FRAMEWORKS = {"torch.distributed": _ask_torch, "JAX": _ask_jax}
