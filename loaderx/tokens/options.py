"""What `tokenize` was asked to do, checked; and as JSON, so that a later run can tell whether it is asked the same."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from loaderx.errors import OptionError
from loaderx.store.format import WIDE
from loaderx.store.options import Codec, check_choice, check_count, check_flag, check_level
from loaderx.tokens.encoders import Encoder, function_name
from loaderx.tokens.ids import choose_dtype
from loaderx.tokens.sides import SIDE_DTYPES, SIDE_PADS, TOKENS
from loaderx.tokens.texts import TextOf

_CODECS = ("raw", "zstd", "zstd_shuffle")
_BEST_FIT_WINDOW = 8192
#: Tokens after which a window ends whatever else is asked for: they are in memory.
WINDOW_TOKENS = 1 << 22
_MOST_IDS = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Options:
    """The options that decide what is written.

    Attributes
    ----------
    vocab_size : int or None
        One more than the largest id that may come, where it is known.
    as_records : bool
        Records differ in length: the stores are ragged.
    window : int or None
        Documents written at once; None: as many as have `WINDOW_TOKENS` tokens.
    side_streams : tuple of str
        In the order of `SIDE_DTYPES`.
    """

    encode: str
    text: TextOf
    eos_id: int | None
    sample_size: int | None
    dtype: np.dtype[Any]
    packing: Literal["stream", "best_fit"]
    last: Literal["drop", "pad", "keep"]
    pad_id: int
    window: int | None
    side_streams: tuple[str, ...]
    masked_types: tuple[str, ...]
    mask_eos: bool
    allow_empty: bool
    codec: Codec
    level: int | None
    vocab_size: int | None

    @property
    def as_records(self) -> bool:
        """Whether records differ in length."""
        return self.sample_size is None or self.last == "keep"

    @property
    def appended_eos(self) -> int | None:
        """What is put behind each document: nothing where a document is a record."""
        return None if self.sample_size is None else self.eos_id

    @property
    def dtypes(self) -> dict[str, np.dtype[Any]]:
        """What each store holds."""
        return {TOKENS: self.dtype, **{name: SIDE_DTYPES[name] for name in self.side_streams}}

    @property
    def pads(self) -> dict[str, int]:
        """What each store's samples are padded with."""
        return {TOKENS: self.pad_id, **{name: SIDE_PADS[name] for name in self.side_streams}}

    def as_json(self) -> dict[str, Any]:
        """Return them as JSON."""
        # The vocabulary's size decides about nothing that is written but the dtype.
        found = {name: getattr(self, name) for name in self.__slots__ if name != "vocab_size"}
        found["dtype"] = self.dtype.str
        found["text"] = self.text if isinstance(self.text, str) else f"{function_name(self.text)}()"
        found["side_streams"] = list(self.side_streams)
        found["masked_types"] = list(self.masked_types)
        return found


def check_options(
    encoder: Encoder,
    *,
    eos_id: int | None,
    sample_size: int | None,
    dtype: Any,
    vocab_size: int | None,
    text: TextOf,
    packing: str,
    last: str | None,
    pad_id: int | None,
    window: int | None,
    side_streams: Iterable[str],
    masked_types: Iterable[str],
    mask_eos: bool,
    allow_empty: bool,
    codec: str,
    level: int | None,
) -> Options:
    """Return the options of a run, or raise `OptionError` for one that is outside its range or fits no other."""
    if sample_size is not None:
        sample_size = check_count("sample_size", sample_size, least=1)
    eos_id = _check_id("eos_id", eos_id)
    if eos_id is None and sample_size is not None:
        raise OptionError(
            "eos_id is None: samples of a fixed size need an id that stands between documents",
            option="eos_id",
            value=None,
        )
    pad_id = _check_id("pad_id", pad_id)
    if vocab_size is not None:
        vocab_size = check_count("vocab_size", vocab_size, least=1)
    elif encoder.vocab_size is not None:
        vocab_size = encoder.vocab_size
    for option, value in (("eos_id", eos_id), ("pad_id", pad_id)):
        if vocab_size is not None and value is not None and value >= vocab_size:
            raise OptionError(
                f"{option} is {value}, and the vocabulary's ids are 0 to {vocab_size - 1}: give one of them, or, where "
                "the model has more, their number as vocab_size",
                option=option,
                value=value,
            )
    if not isinstance(text, str) and not callable(text):
        raise OptionError(
            f"text is {text!r}: give a key, or a function from a record to its text",
            option="text",
            value=text,
        )
    check_choice("packing", packing, ("stream", "best_fit"))
    what_is_last = _check_last(last, packing, sample_size)
    if pad_id is not None and what_is_last != "pad":
        raise OptionError(
            f'pad_id is {pad_id}, and nothing is filled up: it is for last="pad", which is the default of '
            'packing="best_fit" alone',
            option="pad_id",
            value=pad_id,
        )
    chosen = choose_dtype(dtype, vocab_size, [("eos_id", eos_id), ("pad_id", pad_id)])
    streams = _check_side_streams(side_streams)
    _check_size(sample_size, [chosen, *(SIDE_DTYPES[name] for name in streams)])
    return Options(
        encode=encoder.identity(),
        text=text,
        eos_id=eos_id,
        sample_size=sample_size,
        dtype=chosen,
        packing=packing,  # type: ignore[arg-type]
        last=what_is_last,
        pad_id=pad_id if pad_id is not None else eos_id or 0,
        window=_check_window(window, packing, sample_size),
        side_streams=streams,
        masked_types=_check_types(masked_types),
        mask_eos=check_flag("mask_eos", mask_eos),
        allow_empty=check_flag("allow_empty", allow_empty),
        codec=check_choice("codec", codec, _CODECS),
        level=check_level(level, codec),  # type: ignore[arg-type]
        vocab_size=vocab_size,
    )


def _check_size(sample_size: int | None, dtypes: list[np.dtype[Any]]) -> None:
    most = WIDE.max_record_bytes // max(dtype.itemsize for dtype in dtypes)
    if sample_size is not None and sample_size > most:
        raise OptionError(
            f"sample_size is {sample_size}, and a sample is a record, which has room for {most} tokens of its dtypes: "
            "choose a smaller one",
            option="sample_size",
            value=sample_size,
        )


def _check_id(option: str, value: Any) -> int | None:
    return None if value is None else check_count(option, value, most=_MOST_IDS)


def _check_last(last: str | None, packing: str, sample_size: int | None) -> Any:
    if sample_size is None:
        if packing != "stream" or last is not None:
            option, value = ("packing", packing) if packing != "stream" else ("last", last)
            raise OptionError(
                f"{option} is {value!r}, and sample_size=None packs nothing: every document is a record",
                option=option,
                value=value,
            )
        return "keep"
    if last is None:
        return "drop" if packing == "stream" else "pad"
    check_choice("last", last, ("drop", "pad", "keep"))
    if packing == "best_fit" and last == "drop":
        raise OptionError(
            'last is "drop", and with packing="best_fit" any sample may be partly filled: choose "pad", or "keep", '
            "which makes a ragged dataset",
            option="last",
            value=last,
        )
    return last


def _check_window(window: int | None, packing: str, sample_size: int | None) -> int | None:
    if window is not None:
        return check_count("window", window, least=1)
    return _BEST_FIT_WINDOW if packing == "best_fit" and sample_size is not None else None


def _check_side_streams(names: Iterable[str]) -> tuple[str, ...]:
    given = [names] if isinstance(names, str) else list(names)
    for name in given:
        check_choice("side_streams", name, tuple(SIDE_DTYPES))
    return tuple(name for name in SIDE_DTYPES if name in given)


def _check_types(types: Iterable[str]) -> tuple[str, ...]:
    given = [types] if isinstance(types, str) else list(types)
    if not all(isinstance(name, str) for name in given):
        raise OptionError(
            f"masked_types is {types!r}: give the types of parts, as strings",
            option="masked_types",
            value=types,
        )
    return tuple(sorted(set(given)))
