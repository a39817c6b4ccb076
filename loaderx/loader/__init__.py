"""The sampler and the endless loader."""
