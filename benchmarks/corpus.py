"""Text for the benchmark of JSONL: files of made documents, the same for the same seed, and of real ones."""

from __future__ import annotations

import itertools
import json
import re
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

NUM_FILES = 4
# a line has 807 bytes on average, as 308 MiB of 400,000 lines do
MEAN_CHARACTERS = 784
LEAST_CHARACTERS, MOST_CHARACTERS = 40, 20_000
NUM_WORDS, NUM_ACCENTED, NUM_POOL_WORDS = 8_000, 200, 600_000
WORD_EXPONENT = 1.05

ENCODER = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))

MANUAL = Path("/usr/share/perl")
MANUAL_HINT = "apt-get install perl-doc, or apt-get download it, dpkg -x it to DIR, and --text DIR"


def make_words(rng: np.random.Generator) -> list[str]:
    """Return words of one to four syllables; the rarest have accents."""
    heads = [
        "b",
        "c",
        "d",
        "f",
        "g",
        "h",
        "l",
        "m",
        "n",
        "p",
        "r",
        "s",
        "t",
        "v",
        "w",
        "st",
        "tr",
        "pl",
        "ch",
        "",
    ]
    hearts = ["a", "e", "i", "o", "u", "ea", "ou", "a", "e", "i", "o"]
    tails = ["", "", "", "n", "r", "s", "t", "l", "ng", "st"]
    lengths = rng.integers(1, 5, 2 * NUM_WORDS)
    parts = [rng.integers(0, len(each), (2 * NUM_WORDS, 4)).tolist() for each in (heads, hearts, tails)]
    made = (
        "".join(
            heads[head] + hearts[heart] + tails[tail]
            for head, heart, tail in zip(*(part[k][:length] for part in parts), strict=True)
        )
        for k, length in enumerate(lengths.tolist())
    )
    words = list(dict.fromkeys(made))[:NUM_WORDS]
    return words[:-NUM_ACCENTED] + [word.replace("e", "é") for word in words[-NUM_ACCENTED:]]


def make_pool(rng: np.random.Generator) -> str:
    """Return one long text: sentences of words of very different frequencies, in paragraphs."""
    words = make_words(rng)
    shares = 1 / np.arange(1, len(words) + 1) ** WORD_EXPONENT
    drawn = rng.choice(len(words), NUM_POOL_WORDS, p=shares / shares.sum()).tolist()
    pieces, start = list[str](), 0
    # most as plain text has them; one in forty needs an escape in JSON
    ends = (". ",) * 34 + ("? ",) * 3 + ("; ",) * 2 + (".\n\n",)
    lengths, kinds = rng.integers(4, 25, NUM_POOL_WORDS // 4), rng.integers(0, len(ends), NUM_POOL_WORDS // 4)
    for length, kind in zip(lengths.tolist(), kinds.tolist(), strict=True):
        sentence = [words[number] for number in drawn[start : start + length]]
        if not sentence:
            break
        pieces.append(" ".join(sentence).capitalize() + ends[kind])
        start += length
    return "".join(pieces)


def make_lines(num_lines: int, seed: int = 0) -> Iterator[bytes]:
    """Yield lines of JSON, each with its line end: documents with a number and a text.

    A line has 807 bytes on average; texts are pieces of one long text, of very different lengths (log-normal). One line
    in six has an escape, one in sixteen a character that is not ASCII.

    Parameters
    ----------
    num_lines : int
    seed : int
    """
    rng = np.random.default_rng(seed)
    pool = make_pool(rng)
    sizes = rng.lognormal(0, 0.8, num_lines)
    sizes = np.clip(sizes / np.exp(0.32) * MEAN_CHARACTERS, LEAST_CHARACTERS, MOST_CHARACTERS).astype(int)
    starts = rng.integers(0, len(pool) - MOST_CHARACTERS, num_lines)
    for number, (start, size) in enumerate(zip(starts.tolist(), sizes.tolist(), strict=True)):
        yield encode_line({"id": number, "text": pool[start : start + size]}) + b"\n"


def write_corpus(folder: Path, num_lines: int) -> NDArray[np.uint32]:
    """Write the made lines to files of as many lines each, and return what `checksum_of` gives for each line."""
    sums = np.empty(num_lines, np.uint32)
    lines = make_lines(num_lines)
    bounds = np.linspace(0, num_lines, NUM_FILES + 1).astype(int).tolist()
    for number, (start, stop) in enumerate(itertools.pairwise(bounds)):
        with (folder / f"part-{number}.jsonl").open("wb") as file:
            for index in range(start, stop):
                line = next(lines)
                sums[index] = checksum_of(line[:-1])
                file.write(line)
    return sums


def write_manual(pages: Sequence[Path], file: Path) -> NDArray[np.uint32]:
    """Write the sections of Perl's manual as lines of JSON, and return what `checksum_of` gives for each line.

    Parameters
    ----------
    pages : sequence of Path
        Files of POD. A section is a heading and what stands below it, down to the next one.
    file : Path
    """
    sums = list[int]()
    with file.open("wb") as lines:
        for page in pages:
            text = page.read_bytes().decode("utf-8", "replace")
            for section in re.split(r"^(?==head)", text, flags=re.MULTILINE):
                if section := section.strip():
                    line = encode_line({"page": page.stem, "text": section})
                    sums.append(checksum_of(line))
                    lines.write(line + b"\n")
    return np.array(sums, np.uint32)


def encode_line(document: object) -> bytes:
    """Return the line of a document, without its end; what it says gives the same line again."""
    return ENCODER.encode(document).encode()


def checksum_of(sample: object) -> int:
    """Return a checksum of a line without its end, or of the document that it says."""
    return zlib.crc32(sample if isinstance(sample, bytes) else encode_line(sample))


def find_manual(folder: Path | None) -> list[Path]:
    """Return the pages of Perl's manual in a folder, or where the package perl-doc puts them; none without it."""
    pages = sorted((folder or MANUAL).glob("**/pod/perl*.pod"))
    return pages if any(page.name == "perlfunc.pod" for page in pages) else []
