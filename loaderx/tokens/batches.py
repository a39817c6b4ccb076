"""Documents on their way to the encoder: batches of texts, and what has to be known of each later on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from loaderx.errors import DocumentError, JsonlError
from loaderx.tokens.sources import Place, Source
from loaderx.tokens.texts import PLAIN, TextError, TextOf, read_text

#: What happens to a record without a text: an error, nothing but being counted, or a call with the error.
OnError: TypeAlias = "Literal['raise', 'skip'] | Callable[[DocumentError | JsonlError], object]"

#: How many were skipped so far, by what was wrong with them.
Skips: TypeAlias = "dict[str, int]"

# Enough for a tokenizer's threads to share, little enough that several batches are no memory to speak of.
_MOST_TEXTS = 512
_MOST_CHARACTERS = 1 << 19


@dataclass(slots=True)
class Batch:
    """Documents that are encoded together.

    Attributes
    ----------
    texts : list of str
        The parts of all of them.
    types : list of str
        Of each part.
    n_parts : list of int
        Parts of each document.
    places : list of Place
        Of each document.
    skips : list of dict
        For each document how many were skipped before it, since the beginning.
    skips_behind, place_behind : dict, Place or None
        At the batch's end.
    """

    texts: list[str] = field(default_factory=list)
    types: list[str] = field(default_factory=list)
    n_parts: list[int] = field(default_factory=list)
    places: list[Place] = field(default_factory=list)
    skips: list[Skips] = field(default_factory=list)
    skips_behind: Skips = field(default_factory=dict)
    place_behind: Place | None = None

    def add(self, texts: list[str], types: list[str], place: Place, skips: Skips) -> None:
        """Take in a document; one of no parts still needs a text, for its EOS."""
        self.texts += texts or [""]
        self.types += types or [PLAIN]
        self.n_parts.append(len(texts) or 1)
        self.places.append(place)
        self.skips.append(skips)
        self.skips_behind, self.place_behind = skips, place

    def ends(self) -> list[bool] | None:
        """Return for each text whether a document ends with it; None: with each."""
        if len(self.texts) == len(self.n_parts):
            return None
        found: list[bool] = []
        for n in self.n_parts:
            found += [False] * (n - 1) + [True]
        return found

    def document_of(self, text: int) -> int:
        """Return the place in the batch of the document that a text belongs to."""
        for document, n in enumerate(self.n_parts):
            if text < n:
                return document
            text -= n
        raise IndexError(text)


def read_batches(
    source: Source,
    after: Place | None,
    skips: Skips,
    text: TextOf,
    on_error: OnError,
    allow_empty: bool,
) -> Iterator[Batch]:
    """Yield the documents of a source behind a place, in batches; how they are batched changes nothing.

    Parameters
    ----------
    source : Source
    after : Place or None
    skips : dict of str to int
        How many were skipped up to there.
    text, allow_empty
        As in `read_text`.
    on_error : {"raise", "skip"} or callable

    Raises
    ------
    DocumentError, JsonlError
        A record has no text, or is no JSON, and `on_error` is "raise"; behind the batch of the documents before it.
    """
    batch, n_characters = Batch(skips_behind=skips, place_behind=after), 0
    for record, place in source.read(after):
        try:
            if isinstance(record, JsonlError):
                raise record
            texts, types = read_text(record, text, allow_empty)
        except (TextError, JsonlError) as error:
            if on_error != "skip":  # to say where it is its lines are counted
                fault = error if isinstance(error, JsonlError) else _as_document_error(source, place, error)
                if on_error == "raise":
                    yield batch  # what comes before it is written
                    raise fault from error.__cause__
                on_error(fault)
            kind = "json" if isinstance(error, JsonlError) else error.kind
            skips = {**skips, kind: skips.get(kind, 0) + 1}
            batch.skips_behind, batch.place_behind = skips, place
            continue
        batch.add(texts, types, place, skips)
        n_characters += sum(map(len, texts))
        if len(batch.texts) >= _MOST_TEXTS or n_characters >= _MOST_CHARACTERS:
            yield batch
            batch, n_characters = Batch(skips_behind=skips, place_behind=place), 0
    yield batch


def _as_document_error(source: Source, place: Place, error: TextError) -> DocumentError:
    return document_error(source, place, error.kind, error.problem)


def document_error(source: Source, place: Place, kind: str, problem: str) -> DocumentError:
    """Return the error for a document, with its number, and its file and line where it has them."""
    file, line_number = source.name(place)
    where = f"document {place.record}"
    if file is not None:
        line = "" if line_number is None else f", line {line_number}"
        where = f"{file}{line} ({where})"
    return DocumentError(
        f"{where}: {problem}",
        document=place.record,
        file=file,
        line_number=line_number,
        kind=kind,
        problem=problem,
    )
