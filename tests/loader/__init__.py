"""The sampler and the loader."""
