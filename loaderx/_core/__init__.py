"""The compiled core: bytes and indices only; no dtype, no JSON, no policy."""

import sys

if sys.byteorder != "little":
    raise ImportError("loaderx reads tables as they lie on disk, little-endian, and this machine is not")
