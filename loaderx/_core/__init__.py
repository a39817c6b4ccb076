"""The compiled core: bytes and indices only; no dtype, no JSON, no policy."""

# Cython's modules import it while they are initialised, and end the process where that is broken off, by a Ctrl-C say.
# Imported here, before any of them, it is an exception like any other.
import inspect  # noqa: F401
import sys

if sys.byteorder != "little":
    raise ImportError("loaderx reads tables as they lie on disk, little-endian, and this machine is not")
