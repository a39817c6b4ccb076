"""The compiled core: bytes and indices only; no dtype, no JSON, no policy."""
