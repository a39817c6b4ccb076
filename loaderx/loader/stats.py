"""What a loader has done so far, and what its last step took."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LoaderStats:
    """Sums over the steps that a loader has given, times in seconds.

    Attributes
    ----------
    steps : int
        Batches and exceptions given.
    wait_s : float
        How long `next` waited for a batch. Where it is a large part of the run, the loader is too slow: more workers,
        or worker processes for a transform that holds the GIL.
    gather_s, transform_s : float
        What the workers took for drawing and reading, and for the transform; those of several at once add up.
    cold_blocks : int
        Blocks of 512 bytes that were read from a disk, where the system counts them by thread (Linux).
    queue_depth : int
        Batches that are ready now.
    """

    steps: int
    wait_s: float
    gather_s: float
    transform_s: float
    cold_blocks: int
    queue_depth: int


@dataclass(frozen=True, slots=True)
class StepStats:
    """What one step took, times in seconds; see `LoaderStats`.

    Attributes
    ----------
    step : int
    wait_s, gather_s, transform_s : float
    cold_blocks : int
    queue_depth : int
        Batches that were ready behind this one.
    """

    step: int
    wait_s: float
    gather_s: float
    transform_s: float
    cold_blocks: int
    queue_depth: int
