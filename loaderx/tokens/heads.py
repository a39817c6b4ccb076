"""The first documents of a run, by whose texts and ids a later one knows its source and its encoder again.

A function is known by its name, and a sequence by its length; neither says what it does or holds.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from loaderx._core.checksum import hash64
from loaderx.errors import JsonlError, StateMismatchError
from loaderx.tokens.batches import Batch
from loaderx.tokens.encoders import EncodeError, Encoder, encode_texts
from loaderx.tokens.options import Options
from loaderx.tokens.sources import Source
from loaderx.tokens.texts import TextError, read_text

_MOST_DOCUMENTS = 64
_MOST_CHARACTERS = 1 << 16


@dataclass(frozen=True, slots=True)
class Head:
    """The first documents that were taken in.

    Attributes
    ----------
    documents : int
        How many they are.
    texts, ids : str
        Hashes of their parts, and of the ids of these.
    """

    documents: int
    texts: str
    ids: str

    def as_json(self) -> dict[str, Any]:
        """Return it as JSON."""
        return {"documents": self.documents, "texts": self.texts, "ids": self.ids}

    @classmethod
    def from_json(cls, document: Any) -> Head | None:
        """Return the one that `as_json` has given; None: there was none yet. A `ValueError`: it is something else."""
        if document is None:
            return None
        kinds = {"documents": int, "texts": str, "ids": str}
        if not isinstance(document, dict) or {name: type(value) for name, value in document.items()} != kinds:
            raise ValueError(f"first_documents is {document!r}")
        return cls(**document)


class HeadTaker:
    """Keeps the first documents of a run until they are written.

    Parameters
    ----------
    head : Head or None
        What is known already: nothing more is taken.
    """

    def __init__(self, head: Head | None) -> None:
        self._head = head
        self._first: tuple[Batch, npt.NDArray[Any], npt.NDArray[np.int64]] | None = None

    def take(self, batch: Batch, ids: npt.NDArray[Any], lengths: npt.NDArray[np.int64]) -> None:
        """Look at a batch; only the first one with documents matters, and a few of these."""
        if self._head is not None or self._first is not None or not batch.n_parts:
            return
        n_documents, n_texts, n_characters = 0, 0, 0
        for n in batch.n_parts[:_MOST_DOCUMENTS]:
            n_characters += sum(map(len, batch.texts[n_texts : n_texts + n]))
            if n_documents and n_characters > _MOST_CHARACTERS:
                break
            n_documents, n_texts = n_documents + 1, n_texts + n
        few = Batch(batch.texts[:n_texts], batch.types[:n_texts], batch.n_parts[:n_documents])
        lengths = lengths[:n_texts].copy()
        self._first = few, ids[: int(lengths.sum())].copy(), lengths

    def of(self, n_documents: int) -> Head | None:
        """Return the head of a run of which so many documents are written; None: of none of them."""
        if self._head is None and self._first is not None and n_documents:
            self._head = _make(*self._first, n_documents)
            self._first = None
        return self._head


def check_head(
    head: Head | None, source: Source, encoder: Encoder, options: Options, where: Path, advice: str
) -> None:
    """Raise where a source or an encoder gives something else for the documents that another run began with.

    Parameters
    ----------
    head : Head or None
        The other run's; None: it has written nothing.
    source, encoder, options
        Of this run. The source gives its first records again when it is read.
    where : pathlib.Path
        What the other wrote.
    advice : str
        What to do.

    Raises
    ------
    StateMismatchError
    """
    if head is None:
        return
    batch = Batch()
    for record, place in source.peek():
        if isinstance(record, JsonlError):
            continue
        try:
            batch.add(*read_text(record, options.text, options.allow_empty), place, {})
        except TextError:
            continue
        if len(batch.n_parts) == head.documents:
            break
    try:
        found = encode_texts(encoder, batch.texts, batch.ends(), options.appended_eos, options.dtype)
    except EncodeError as error:
        here = Head(len(batch.n_parts), _hash_texts(batch), error.problem)
    else:
        here = _make(batch, *found, head.documents)
    for name, what in (("texts", "has other texts"), ("ids", "gives other ids")):
        mine, others = getattr(here, name), getattr(head, name)
        if mine != others or here.documents != head.documents:
            who = "the source (or text)" if name == "texts" else "encode"
            raise StateMismatchError(
                f"{where}: of another run: for its first {head.documents} documents {who} {what} now: {name} was "
                f"{others}, and is {mine}. {advice}",
                mismatches={f"first_documents.{name}": (others, mine)},
            )


def _make(batch: Batch, ids: npt.NDArray[Any], lengths: npt.NDArray[np.int64], n_documents: int) -> Head:
    """Return the head of the first documents of a batch."""
    n_texts = sum(batch.n_parts[:n_documents])
    few = Batch(batch.texts[:n_texts], batch.types[:n_texts], batch.n_parts[:n_documents])
    lengths = lengths[:n_texts].astype("<i8")
    tokens = ids[: int(lengths.sum())]
    return Head(len(few.n_parts), _hash_texts(few), _hex(lengths.tobytes() + tokens.tobytes()))


def _hash_texts(batch: Batch) -> str:
    return _hex(json.dumps([batch.texts, batch.types, batch.n_parts]).encode())


def _hex(data: bytes) -> str:
    return f"{hash64(data):016x}"
