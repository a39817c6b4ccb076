"""Samples of archives, their members decoded by their extensions."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import numpy as np

from loaderx.errors import OptionError
from loaderx.stream.node import Item
from loaderx.stream.tar_samples import Sample

Decode: TypeAlias = Callable[[Sample], Item]


class MemberError(Exception):
    """What a function raised for a member of a sample."""

    def __init__(self, member: str, error: Exception) -> None:
        super().__init__(member, error)
        self.member = member
        self.error = error


class DecodeMembers:
    """Decodes the members of samples by their extensions.

    Parameters
    ----------
    functions : mapping of str to callable, optional
        ``functions[extension](bytes)``, a dot before the extension or not; other members stay bytes. None: ``txt`` and
        ``text`` to str, ``json`` to what it says, ``cls``, ``cls2``, ``index``, ``inx``, ``id`` to int, ``npy`` to an
        array.
    """

    def __init__(self, functions: Mapping[str, Callable[[bytes], Any]] | None = None) -> None:
        chosen = _DECODERS if functions is None else functions
        # Extensions of samples are in lower case.
        self._functions = {extension.removeprefix(".").lower(): chosen[extension] for extension in chosen}
        self.__qualname__ = f"decode({', '.join(sorted(self._functions))})"

    def __call__(self, sample: Sample) -> Sample:
        """Return the sample with its members decoded: one of extension ``a.json`` as ``json``.

        Raises
        ------
        MemberError
        """
        functions = self._functions
        for extension, data in sample.items():
            function = functions.get(extension) or functions.get(extension.rpartition(".")[2])
            if function is not None and extension != "__key__":
                try:
                    sample[extension] = function(data)
                except Exception as error:
                    raise MemberError(extension, error) from error
        return sample


def _load_array(data: bytes) -> Any:
    return np.load(io.BytesIO(data), allow_pickle=False)


_DECODERS: dict[str, Callable[[bytes], Any]] = {
    **dict.fromkeys(("txt", "text"), bytes.decode),
    "json": json.loads,
    **dict.fromkeys(("cls", "cls2", "index", "inx", "id"), int),
    "npy": _load_array,
}


def choose_sample_decoder(decode: Any) -> Decode | None:
    """Return what decodes a sample.

    Raises
    ------
    OptionError
    """
    if decode is None or decode is False:
        return None
    if decode is True:
        return DecodeMembers()
    if isinstance(decode, Mapping):
        for extension, function in decode.items():
            if not isinstance(extension, str) or not extension.strip(".") or not callable(function):
                raise OptionError(
                    f"decode has {function!r} for {extension!r}: give functions of bytes by extension, such as "
                    "{'jpg': decode_image}",
                    option="decode",
                    value=decode,
                )
        return DecodeMembers(decode)
    if callable(decode):
        chosen: Decode = decode
        return chosen
    raise OptionError(
        f"decode is {decode!r}: give a function of a sample, a dict of functions by extension, True for the usual "
        "ones, or None to have bytes",
        option="decode",
        value=decode,
    )
