"""From lines to the arrays of their documents: tokens, and what belongs to each token."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from loaderx.jsonl.forager.parts import AuxDataGenerator
from loaderx.tokens.encoders import EncodeError, Encoder, encode_texts

TOKENS = "tokens"

#: By its name, each array of some documents one behind the other.
Arrays = dict[str, npt.NDArray[Any]]


class LineError(Exception):
    """A line that cannot become a document.

    Parameters
    ----------
    line : int
        Its place in the batch.
    kind : str
        As in `DocumentError`.
    problem : str
    """

    def __init__(self, line: int, kind: str, problem: str) -> None:
        super().__init__(line, kind, problem)
        self.line = line
        self.kind = kind
        self.problem = problem


class Columns(Protocol):
    """What makes arrays of lines.

    Attributes
    ----------
    dtypes : dict of str to numpy.dtype
        Of the arrays in the order in which they lie in a sample; tokens first.
    """

    dtypes: dict[str, np.dtype[Any]]

    def make(self, lines: Sequence[bytes]) -> tuple[Arrays, npt.NDArray[np.int64]]:
        """Return the arrays of some lines' documents, and how many items each document has.

        Raises
        ------
        LineError
        """


class TokenColumn:
    """Tokens alone, of one text a line.

    Parameters
    ----------
    encoder : Encoder
    dtype : numpy.dtype
    eos_id : int or None
        What stands behind each document; None: nothing does.
    text_of : callable, optional
        From a line to its text; None: the value of its "text".
    """

    def __init__(
        self,
        encoder: Encoder,
        dtype: np.dtype[Any],
        eos_id: int | None,
        text_of: Callable[[bytes], str] | None,
    ) -> None:
        self.dtypes = {TOKENS: dtype}
        self._encoder = encoder
        self._eos_id = eos_id
        self._text_of = text_of or _text_of_json

    def make(self, lines: Sequence[bytes]) -> tuple[Arrays, npt.NDArray[np.int64]]:
        """Return the tokens (`Columns`)."""
        texts = [_called(self._text_of, place, line) for place, line in enumerate(lines)]
        for place, text in enumerate(texts):
            if not isinstance(text, str):
                raise LineError(place, "not_text", f"its text is a {type(text).__name__}, not a string")
        try:
            ids, lengths = encode_texts(self._encoder, texts, None, self._eos_id, self.dtypes[TOKENS])
        except EncodeError as error:
            raise LineError(error.text, "encode", error.problem) from error.__cause__
        return {TOKENS: ids}, lengths


class AuxColumns:
    """Tokens of documents in parts, and arrays beside them by the types of the parts.

    Parameters
    ----------
    encoder : Encoder
    dtype : numpy.dtype
    eos_id : int
    parts_of : callable
        From a line to its parts.
    generators : mapping of str to AuxDataGenerator
    """

    def __init__(
        self,
        encoder: Encoder,
        dtype: np.dtype[Any],
        eos_id: int,
        parts_of: Callable[[bytes], Sequence[Any]],
        generators: Mapping[str, AuxDataGenerator],
    ) -> None:
        self._encoder = encoder
        self._eos = np.array([eos_id], dtype)
        self._parts_of = parts_of
        self._generators = {name: generators[name] for name in sorted(generators)}
        self.dtypes = {TOKENS: dtype} | {
            name: np.dtype(found.dtype) for name, found in self._generators.items()
        }

    def make(self, lines: Sequence[bytes]) -> tuple[Arrays, npt.NDArray[np.int64]]:
        """Return the tokens and the arrays beside them (`Columns`)."""
        pieces: dict[str, list[npt.NDArray[Any]]] = {
            name: [np.empty(0, dtype)] for name, dtype in self.dtypes.items()
        }
        lengths = np.zeros(len(lines), np.int64)
        for place, line in enumerate(lines):
            parts = _called(self._parts_of, place, line)
            try:
                ids, part_lengths = encode_texts(
                    self._encoder, [part.text for part in parts], None, None, self.dtypes[TOKENS]
                )
            except EncodeError as error:
                raise LineError(place, "encode", f"part {error.text}: {error.problem}") from error.__cause__
            pieces[TOKENS] += [ids, self._eos]
            lengths[place] = len(ids) + 1
            stops = np.cumsum(part_lengths)
            for part, n, stop in zip(parts, part_lengths.tolist(), stops.tolist(), strict=True):
                part_ids = ids[stop - n : stop].tolist()
                for name, generator in self._generators.items():
                    values = generator.generate(part_type=part.type, num_tokens=n, part_tokens=part_ids)
                    pieces[name].append(self._fitting(place, name, values, n))
            for name, generator in self._generators.items():
                pieces[name].append(self._fitting(place, name, [generator.generate_for_eos()], 1))
        return {name: np.concatenate(found) for name, found in pieces.items()}, lengths

    def _fitting(self, place: int, name: str, values: Any, n: int) -> npt.NDArray[Any]:
        """Return the values of an array, which are as many as there are tokens and fit its dtype."""
        try:
            array = np.array(values, self.dtypes[name])
        except (TypeError, ValueError, OverflowError) as error:
            raise LineError(
                place, "parts", f"{name}: its values do not fit {self.dtypes[name]} ({error})"
            ) from error
        if array.shape != (n,):
            raise LineError(place, "parts", f"{name}: its values are {array.shape}, and there are {n} tokens")
        return array


def _text_of_json(line: bytes) -> Any:
    return json.loads(line)["text"]


def _called(function: Callable[[bytes], Any], place: int, line: bytes) -> Any:
    try:
        return function(line)
    except Exception as error:
        told = f"it has no key {error}" if isinstance(error, KeyError) else f"{type(error).__name__}: {error}"
        raise LineError(place, "missing" if isinstance(error, KeyError) else "not_text", told) from error
