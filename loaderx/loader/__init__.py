"""The endless loader, its sampler, and which part of the data is this process's."""

from loaderx.loader.dataloader import DataLoader
from loaderx.loader.sampler import Sampler
from loaderx.loader.world import rank_and_world

__all__ = ["DataLoader", "Sampler", "rank_and_world"]
