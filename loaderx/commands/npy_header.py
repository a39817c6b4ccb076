"""The header of a .npy file: what it says, checked before anything is allocated or mapped."""

from __future__ import annotations

import ast
import math
import tokenize
from collections.abc import Sequence
from dataclasses import dataclass
from typing import IO, Any

import numpy as np

from loaderx.commands.program import CommandError

NPY_MAGIC = b"\x93NUMPY"

#: NumPy's own limit is 10,000 for files that are not trusted; a few hundred named fields need more.
_MAX_HEADER_BYTES = 1 << 18

#: What the header's parser raises for bytes that are no header; MemoryError for deeply nested brackets.
_PARSER_ERRORS = (
    ValueError,
    TypeError,
    KeyError,
    SyntaxError,
    EOFError,
    OverflowError,
    RecursionError,
    MemoryError,
    tokenize.TokenError,
)


@dataclass(frozen=True)
class NpyHeader:
    """What the header of a .npy file says.

    Attributes
    ----------
    dtype : numpy.dtype
        Never one that holds Python objects.
    shape : tuple of int
        Never negative.
    fortran_order : bool
        Whether the first axis varies fastest in the file.
    data_offset : int
        Where the data starts, in bytes from the start of the file.
    """

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    fortran_order: bool
    data_offset: int

    @property
    def data_bytes(self) -> int:
        """Bytes of the array."""
        return math.prod(self.shape) * self.dtype.itemsize


def read_npy_header(file: IO[bytes], name: str, file_bytes: int) -> NpyHeader:
    """Read the header at the start of an open .npy file and check it.

    Parameters
    ----------
    file : binary file
        At its start; left at the first byte of the data.
    name : str
        The file's name, for errors.
    file_bytes : int
        Size of the whole file.

    Returns
    -------
    NpyHeader

    Raises
    ------
    CommandError
        If it is not a .npy file, is cut short, or holds Python objects.
    """
    try:
        dtype, shape, fortran_order, data_offset = _parse(file)
    except _PARSER_ERRORS as error:
        raise CommandError(f"{name} is not a .npy file that can be read: {error}") from error
    if dtype.hasobject:
        raise CommandError(f"{name} holds Python objects (dtype {dtype}); a store takes plain data only")
    if any(length < 0 for length in shape):
        raise CommandError(f"{name} is not a .npy file that can be read: its header says shape {shape}")
    header = NpyHeader(dtype, shape, fortran_order, data_offset)
    if data_offset + header.data_bytes > file_bytes:
        raise CommandError(
            f"{name} is cut short: its header says {header.data_bytes} bytes of data (shape {shape}, dtype {dtype}), "
            f"got {file_bytes - data_offset}"
        )
    return header


def check_same_items(headers: Sequence[tuple[str, NpyHeader]]) -> None:
    """Check that arrays can be joined along axis 0: same dtype, same shape of an item.

    Parameters
    ----------
    headers : sequence of (str, NpyHeader)
        Name and header of every file; the first sets what the others must be.

    Raises
    ------
    CommandError
        Names the first file that differs, with what it has and what was expected.
    """
    first_name, first = headers[0]
    for name, header in headers:
        if not header.shape:
            raise CommandError(
                f"{name} holds a single value (shape ()); it has no axis 0 to take records from"
            )
        if header.dtype != first.dtype:
            raise CommandError(f"{name} has dtype {header.dtype}, expected {first.dtype} as in {first_name}")
        if header.shape[1:] != first.shape[1:]:
            raise CommandError(
                f"{name} has items of shape {header.shape[1:]}, expected {first.shape[1:]} as in {first_name}"
            )


def _parse(file: IO[bytes]) -> tuple[np.dtype[Any], tuple[int, ...], bool, int]:
    version = np.lib.format.read_magic(file)
    if version == (1, 0):
        shape, fortran_order, dtype = np.lib.format.read_array_header_1_0(
            file, max_header_size=_MAX_HEADER_BYTES
        )
        return dtype, shape, fortran_order, file.tell()
    if version == (2, 0):
        shape, fortran_order, dtype = np.lib.format.read_array_header_2_0(
            file, max_header_size=_MAX_HEADER_BYTES
        )
        return dtype, shape, fortran_order, file.tell()
    if version != (3, 0):
        raise ValueError(f"its format version is {version}, expected (1, 0), (2, 0) or (3, 0)")
    return _parse_version_3(file)


def _parse_version_3(file: IO[bytes]) -> tuple[np.dtype[Any], tuple[int, ...], bool, int]:
    """Read a header of version 3 (names in UTF-8), for which NumPy has no public function."""
    header_bytes = int.from_bytes(_read_exactly(file, 4), "little")
    if header_bytes > _MAX_HEADER_BYTES:
        raise ValueError(f"its header is {header_bytes} bytes long, at most {_MAX_HEADER_BYTES} are read")
    fields = ast.literal_eval(_read_exactly(file, header_bytes).decode("utf-8"))
    if not isinstance(fields, dict) or fields.keys() != {"descr", "fortran_order", "shape"}:
        raise ValueError("its header is not a dictionary of descr, fortran_order and shape")
    shape, fortran_order = fields["shape"], fields["fortran_order"]
    if not isinstance(shape, tuple) or not all(type(length) is int for length in shape):
        raise ValueError(f"its header says shape {shape!r}")
    if not isinstance(fortran_order, bool):
        raise ValueError(f"its header says fortran_order {fortran_order!r}")
    return np.lib.format.descr_to_dtype(fields["descr"]), shape, fortran_order, file.tell()


def _read_exactly(file: IO[bytes], num_bytes: int) -> bytes:
    data = file.read(num_bytes)
    if len(data) != num_bytes:
        raise EOFError("its header is cut short")
    return data
