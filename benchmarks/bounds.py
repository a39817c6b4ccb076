"""The bounds as contenders: bounds.c, compiled when a benchmark starts and called through ctypes."""

from __future__ import annotations

import ctypes
import shlex
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.contenders import Gather, NotInstalledError, Records

SOURCE = Path(__file__).with_name("bounds.c")
HINT = "a C compiler, OpenMP and libzstd with its header and pkg-config file"
ZSTD_LEVEL = 3
NUM_THREADS = 2
PAGE_BYTES = 4096


def compile_bounds(library: Path) -> None:
    """Compile bounds.c to a shared library.

    Raises
    ------
    NotInstalledError
        Compiler, OpenMP or libzstd is missing; the message holds the command's last line.
    """
    flags = shlex.split(run_tool(["pkg-config", "--cflags", "--libs", "libzstd"]))
    run_tool(["cc", "-O3", "-fopenmp", "-shared", "-fPIC", "-o", str(library), str(SOURCE), *flags])


def run_tool(command: list[str]) -> str:
    """Run a program and return what it printed.

    Raises
    ------
    NotInstalledError
        It is not there, or failed; the message holds its last line.
    """
    try:
        finished = subprocess.run(command, capture_output=True, text=True, check=True)
    except FileNotFoundError:
        raise NotInstalledError(f"no {command[0]}") from None
    except subprocess.CalledProcessError as error:
        last_line = (str(error.stderr).strip().splitlines() or ["no message"])[-1]
        raise NotInstalledError(f"{command[0]}: {last_line}") from None
    return finished.stdout


def _address(array: NDArray[np.uint8] | NDArray[np.int64]) -> ctypes.c_void_p:
    return ctypes.c_void_p(array.ctypes.data)


class Bound:
    """A bound without its gather: the library, the buffer that all gathers reuse, and 2 threads."""

    def __init__(self, library: Path) -> None:
        self._path = library

    def prepare(self) -> str:
        """Load the library, make a context a thread, and return libzstd's version."""
        if not self._path.exists():
            raise NotInstalledError("bounds.c was not compiled")
        self._library = ctypes.CDLL(str(self._path))
        self._library.bounds_zstd_version.restype = ctypes.c_char_p
        for name in ("bounds_decompress", "bounds_compress", "bounds_build_frames"):
            getattr(self._library, name).restype = ctypes.c_int64
        if self._library.bounds_prepare(NUM_THREADS):
            raise NotInstalledError("no memory for the contexts of libzstd")
        return f"libzstd {self._library.bounds_zstd_version().decode()}"

    def write(self, path: Path, records: Records) -> None:
        """Save the array that `open` loads; not a bound of writing."""
        with path.open("wb") as file:
            np.save(file, records)

    def open(self, path: Path) -> Gather:
        """Load the array into memory."""
        records: Records = np.load(path)
        return self.bind(records, int(np.prod(records.shape[1:])))

    def bind(self, records: Records, record_bytes: int) -> Gather:
        """Return the gather from the array."""
        raise NotImplementedError

    def reuse(self, records: Records) -> Callable[[int], Records]:
        """Return a function from a batch's length to one buffer that is always the same and never newly mapped.

        It begins half a page off where the array begins: a copy whose target lies a few bytes behind its source, modulo
        a page, is slower by a tenth, and records of whole pages would all be copied so.
        """
        buffers: dict[int, Records] = {}
        wanted = (records.ctypes.data + PAGE_BYTES // 2) % PAGE_BYTES

        def buffer_for(length: int) -> Records:
            if length not in buffers:
                shape = (length, *records.shape[1:])
                num_bytes = int(np.prod(shape))
                memory: Records = np.zeros(num_bytes + PAGE_BYTES, np.uint8)
                start = (wanted - memory.ctypes.data) % PAGE_BYTES
                buffers[length] = memory[start : start + num_bytes].reshape(shape)
            return buffers[length]

        return buffer_for

    def close(self) -> None:
        """Nothing is held here: the array goes with the gather."""


class MemcpyBound(Bound):
    """The same copies from an array in memory to a reused buffer, 2 threads, static schedule."""

    def bind(self, records: Records, record_bytes: int) -> Gather:
        """Return the gather from the array."""
        copy, array, buffer_for = self._library.bounds_copy, _address(records), self.reuse(records)

        def gather(idxs: NDArray[np.int64]) -> Records:
            batch = buffer_for(len(idxs))
            length, size = ctypes.c_int64(len(idxs)), ctypes.c_int64(record_bytes)
            copy(array, _address(idxs), length, size, _address(batch), NUM_THREADS)
            return batch

        gather.__dict__["keeps"] = records  # the address alone does not keep the array
        return gather


class ZstdBound(Bound):
    """Frames made beforehand by libzstd, decompressed by it to a reused buffer, 2 threads, one context each."""

    def bind(self, records: Records, record_bytes: int) -> Gather:
        """Compress the array to frames in memory and return the gather from them."""
        num_records, size = len(records), ctypes.c_int64(record_bytes)
        frames: NDArray[np.uint8] = np.empty(records.nbytes + num_records * 64 + 4096, np.uint8)
        offsets: NDArray[np.int64] = np.zeros(num_records + 1, np.int64)
        build, decompress = self._library.bounds_build_frames, self._library.bounds_decompress
        capacity, count = ctypes.c_int64(frames.nbytes), ctypes.c_int64(num_records)
        if (
            build(_address(records), count, size, ZSTD_LEVEL, _address(frames), capacity, _address(offsets))
            < 0
        ):
            raise RuntimeError("libzstd could not compress the records")
        frames_ptr, offsets_ptr, buffer_for = _address(frames), _address(offsets), self.reuse(records)

        def gather(idxs: NDArray[np.int64]) -> Records:
            batch = buffer_for(len(idxs))
            length = ctypes.c_int64(len(idxs))
            if decompress(
                frames_ptr, offsets_ptr, _address(idxs), length, size, _address(batch), NUM_THREADS
            ):
                raise RuntimeError("libzstd could not decompress its own frames")
            return batch

        gather.__dict__["keeps"] = (frames, offsets)  # the addresses alone do not keep the arrays
        return gather


class CompressBound(Bound):
    """libzstd compressing the same records one by one at level 3 on 2 threads; nothing is written or kept."""

    def write(self, path: Path, records: Records) -> None:
        """Compress all records."""
        size = ctypes.c_int64(int(np.prod(records.shape[1:])))
        count = ctypes.c_int64(len(records))
        if self._library.bounds_compress(_address(records), count, size, ZSTD_LEVEL, NUM_THREADS) < 0:
            raise RuntimeError("libzstd could not compress the records")

    def open(self, path: Path) -> Gather:
        """There is nothing to gather from."""
        raise NotImplementedError
