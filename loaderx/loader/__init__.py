"""Endless, resumable sequences of batches: which records come next, and the loader that brings them."""

from loaderx.loader.world import rank_and_world

__all__ = ["rank_and_world"]
