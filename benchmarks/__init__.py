"""Measurements of loaderx beside its peers and beside the hardware's bounds: ``python -m benchmarks --help``."""
