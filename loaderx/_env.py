"""The environment variables that loaderx reads while it runs. Nothing else reads any (setup.py has its own)."""

from __future__ import annotations

import os

from loaderx.errors import OptionError

POOL_BYTES = "LOADERX_POOL_BYTES"
_DEFAULT_POOL_BYTES = 256 << 20
_MOST_BYTES = 2**62

#: What launchers tell a process: its number, and of how many. The first pair that is set counts: torchrun and
#: mpirun may themselves run inside a job of Slurm, whose numbers are then those of their hosts.
_RANK_VARIABLES = (
    ("RANK", "WORLD_SIZE"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("PMI_RANK", "PMI_SIZE"),
    ("SLURM_PROCID", "SLURM_NTASKS"),
)
_MOST_PROCESSES = 2**31 - 1


def read_pool_bytes() -> int:
    """Return the most bytes of batch memory that may lie idle, 0 for none: `LOADERX_POOL_BYTES`, or 256 MiB.

    Raises
    ------
    OptionError
        The variable is no whole number, or out of range.
    """
    text = os.environ.get(POOL_BYTES, "").strip()
    if not text:
        return _DEFAULT_POOL_BYTES
    if not (text.isascii() and text.isdigit() and len(text) < 20 and int(text) <= _MOST_BYTES):
        raise OptionError(
            f"the environment variable {POOL_BYTES} is {text!r}: give a whole number of bytes from 0, which turns the "
            f"pool of batch memory off, to {_MOST_BYTES}, or unset it for {_DEFAULT_POOL_BYTES}",
            option=POOL_BYTES,
            value=text,
        )
    return int(text)


def read_rank_and_world() -> tuple[int, int] | None:
    """Return the number of this process and how many there are, as a launcher set them; None: none did.

    Raises
    ------
    OptionError
        One of a pair of variables is missing, is no number, or contradicts the other.
    """
    for of_rank, of_world in _RANK_VARIABLES:
        texts = {name: os.environ.get(name, "").strip() for name in (of_rank, of_world)}
        if not any(texts.values()):
            continue
        for name, text in texts.items():
            if not text:
                other = of_world if name == of_rank else of_rank
                raise OptionError(
                    f"the environment variable {other} is {texts[other]!r}, and {name} is not set: set both, as a "
                    "launcher does, or unset both, or give rank and world_size yourself",
                    option=name,
                    value=None,
                )
            if not (text.isascii() and text.isdigit() and int(text[:20]) <= _MOST_PROCESSES):
                raise OptionError(
                    f"the environment variable {name} is {text!r}: a whole number from 0 to {_MOST_PROCESSES} belongs "
                    "there",
                    option=name,
                    value=text,
                )
        rank, world_size = int(texts[of_rank]), int(texts[of_world])
        if rank >= world_size:
            raise OptionError(
                f"the environment variables {of_rank}={rank} and {of_world}={world_size} contradict each other: ranks "
                f"are from 0 to {of_world} - 1",
                option=of_rank,
                value=rank,
            )
        return rank, world_size
    return None
