from __future__ import annotations

import enum

import numpy as np

from loaderx.errors import OptionError
from loaderx.store.options import check_count, check_flag


class Sampler:
    class Mode(enum.IntEnum):
        SEQUENTIAL = 0
        IID = 1
        CYCLIC = 2

    def __init__(self, length, batch_size, mode=1, seed=42, *, drop_remainder=True, rank=0, world_size=1):
        self.length = check_count("length", length, least=1)
        self.batch_size = check_count("batch_size", batch_size, least=1)
        try:
            self.mode = Sampler.Mode[mode.upper()] if isinstance(mode, str) else Sampler.Mode(mode)
        except (KeyError, ValueError):
            raise OptionError(f"mode is {mode}", option="mode", value=mode) from None
        self.seed = check_count("seed", seed, most=2**64 - 1)
        self.drop_remainder = check_flag("drop_remainder", drop_remainder)
        self.world_size = check_count("world_size", world_size, least=1)
        self.rank = check_count("rank", rank, most=self.world_size - 1)
        self.step = 0
        if world_size > 1 and length < batch_size * world_size:
            raise OptionError(f"length {length} below", option="batch_size", value=batch_size)

    def __repr__(self):
        return f"Sampler({self.length}, {self.batch_size})"

    def seek(self, step):
        self.step = check_count("step", step)

    def indices(self, step, out=None):
        B = self.batch_size * self.world_size
        n = self.length
        if self.mode == 1:
            r = np.random.Generator(
                np.random.Philox(
                    key=np.array([self.seed, 1], np.uint64), counter=np.array([0, 0, step, 0], np.uint64)
                )
            )
            g = r.integers(0, n, B, dtype=np.uint64)
        elif self.mode == 0:
            g = ((step * B + np.arange(B)) % n).astype(np.uint64)
        elif self.drop_remainder:
            spc = max(n // B, 1)
            c = step // spc
            q = (step % spc) * B
            g = np.random.default_rng([self.seed, c]).permutation(n)[q : q + B].astype(np.uint64)
        else:
            p = step * B + np.arange(B)
            g = np.array(
                [np.random.default_rng([self.seed, int(x) // n]).permutation(n)[int(x) % n] for x in p],
                np.uint64,
            )
        return g[self.rank * self.batch_size : (self.rank + 1) * self.batch_size]
