"""What turns texts into ids: tokenizers that take batches, and plain functions. None of their packages is imported."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from loaderx.errors import OptionError
from loaderx.tokens.ids import IdsError, join_ids, own_ids


class Encoder(Protocol):
    """Encodes texts, each by itself: what else is in a batch changes nothing.

    Attributes
    ----------
    vocab_size : int or None
        One more than the largest id, where it is known.
    has_threads : bool
        Whether it encodes a batch with threads of its own, without the GIL.
    """

    vocab_size: int | None
    has_threads: bool

    def identity(self) -> str:
        """Return what tells it from others, as far as that can be known."""

    def encode(self, texts: Sequence[str]) -> list[Any]:
        """Return the ids of each text."""


class EncodeError(Exception):
    """A text that could not be encoded, in a form that pickles.

    Parameters
    ----------
    text : int
        Its place in the batch.
    problem : str

    Attributes
    ----------
    batch : Batch or None
        The batch, once the error is back where batches are known.
    """

    batch: Any = None

    def __init__(self, text: int, problem: str) -> None:
        super().__init__(text, problem)
        self.text = text
        self.problem = problem


class PlainEncoder:
    """A function from one text to its ids.

    Parameters
    ----------
    function : callable
    """

    vocab_size: int | None = None
    has_threads = False

    def __init__(self, function: Callable[[str], Any]) -> None:
        self._function = function

    def identity(self) -> str:
        """Return the function's name."""
        return function_name(self._function)

    def encode(self, texts: Sequence[str]) -> list[Any]:
        """Call the function for each text, and copy what it returns: it may use the same list or array again."""
        return [own_ids(self._function(text)) for text in texts]


class BatchEncoder:
    """A tokenizer of Hugging Face's `tokenizers`.

    Parameters
    ----------
    tokenizer : tokenizers.Tokenizer
    add_special_tokens : bool
    """

    has_threads = True

    def __init__(self, tokenizer: Any, add_special_tokens: bool) -> None:
        self._tokenizer = tokenizer
        self._add_special_tokens = add_special_tokens
        for setting in ("padding", "truncation"):
            if getattr(tokenizer, setting, None) is not None:
                raise OptionError(
                    f"the tokenizer has {setting} on, which changes documents: call tokenizer.no_{setting}() first",
                    option="encode",
                    value=tokenizer,
                )
        self.vocab_size: int | None = _vocab_size(tokenizer, tokenizer.get_vocab_size())

    def identity(self) -> str:
        """Return a hash of the tokenizer as it would be saved."""
        added = "with special tokens" if self._add_special_tokens else "without special tokens"
        try:
            saved = self._tokenizer.to_str()
        except Exception:  # parts written in Python cannot be saved
            saved = repr(_in_order(self._tokenizer.get_vocab()))
        return f"tokenizer {_digest(saved)} {added}"

    def encode(self, texts: Sequence[str]) -> list[Any]:
        """Encode the batch with the tokenizer's threads."""
        # The fast one leaves out where in the text each token lies, which nobody asks for.
        run = getattr(self._tokenizer, "encode_batch_fast", None) or self._tokenizer.encode_batch
        return [found.ids for found in run(texts, add_special_tokens=self._add_special_tokens)]


class TransformersEncoder:
    """A tokenizer of Hugging Face's `transformers`.

    Parameters
    ----------
    tokenizer : transformers.PreTrainedTokenizerBase
    add_special_tokens : bool
    """

    def __init__(self, tokenizer: Any, add_special_tokens: bool) -> None:
        self._tokenizer = tokenizer
        self._add_special_tokens = add_special_tokens
        self.vocab_size: int | None = _vocab_size(tokenizer, len(tokenizer))
        self.has_threads = bool(getattr(tokenizer, "is_fast", False))

    def identity(self) -> str:
        """Return a hash of its vocabulary, and its class."""
        added = "with special tokens" if self._add_special_tokens else "without special tokens"
        return f"{type(self._tokenizer).__name__} {_digest(repr(_in_order(self._tokenizer.get_vocab())))} {added}"

    def encode(self, texts: Sequence[str]) -> list[Any]:
        """Encode the batch; neither padded nor cut."""
        found = self._tokenizer(
            list(texts),
            add_special_tokens=self._add_special_tokens,
            padding=False,
            truncation=False,
            return_attention_mask=False,
            return_token_type_ids=False,
            verbose=False,
        )
        return list(found["input_ids"])


def as_encoder(encode: Any, add_special_tokens: bool) -> Encoder:
    """Return the encoder for what a user gave.

    Raises
    ------
    OptionError
        It can encode nothing, or would pad or cut what it encodes.
    """
    if callable(getattr(encode, "encode_batch", None)) and callable(getattr(encode, "get_vocab_size", None)):
        return BatchEncoder(encode, add_special_tokens)
    if callable(getattr(encode, "convert_ids_to_tokens", None)) and callable(encode):
        return TransformersEncoder(encode, add_special_tokens)
    if callable(encode):
        if add_special_tokens:
            raise OptionError(
                "add_special_tokens is for tokenizers, and encode is a function: let it add them",
                option="add_special_tokens",
                value=add_special_tokens,
            )
        return PlainEncoder(encode)
    raise OptionError(
        f"encode is a {type(encode).__name__}: give a tokenizer of Hugging Face's, or a function from text to ids",
        option="encode",
        value=encode,
    )


def encode_texts(
    encoder: Encoder,
    texts: Sequence[str],
    ends: Sequence[bool] | None,
    eos_id: int | None,
    dtype: np.dtype[Any],
) -> tuple[npt.NDArray[Any], npt.NDArray[np.int64]]:
    """Return the ids of some texts (`join_ids`).

    Raises
    ------
    EncodeError
        For the first text at fault: encoding it failed, or its ids do not fit.
    """
    if not texts:
        return np.empty(0, dtype), np.empty(0, np.int64)
    try:
        encoded = encoder.encode(texts)
    except Exception as error:
        raise EncodeError(*_find_fault(encoder, texts, error)) from error
    if len(encoded) != len(texts):
        raise EncodeError(0, f"encode returned {len(encoded)} lists of ids for {len(texts)} texts")
    try:
        return join_ids(encoded, ends, eos_id, dtype)
    except IdsError as error:
        raise EncodeError(error.text, error.problem) from None


def _find_fault(encoder: Encoder, texts: Sequence[str], error: Exception) -> tuple[int, str]:
    """Return the first text that cannot be encoded, and why; the first of the batch where each alone can."""
    for place, text in enumerate(texts):
        try:
            encoder.encode([text])
        except Exception as found:
            return place, _told(found)
    return 0, _told(error)


def _told(error: Exception) -> str:
    return f"encode raised {type(error).__name__}: {error}"


def function_name(function: Any) -> str:
    """Return a function's module and name, of anything else that can be called its class's."""
    named = function if hasattr(function, "__qualname__") else type(function)
    return f"{named.__module__}.{named.__qualname__}"


def _vocab_size(tokenizer: Any, counted: int) -> int:
    """Return one more than the largest id: a vocabulary with holes has larger ids than it has tokens."""
    return max(counted, 1 + max(tokenizer.get_vocab().values(), default=-1))


def _in_order(vocabulary: dict[str, int]) -> list[tuple[str, int]]:
    return sorted(vocabulary.items(), key=lambda item: (item[1], item[0]))


def _digest(text: str) -> str:
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
