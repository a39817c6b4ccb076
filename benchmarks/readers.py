"""The contenders of the benchmark of JSONL: who indexes files, reads their lines, or makes tokens of them.

Each is used as its own documentation says. Indices are made what each takes before the clock starts.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import json
import logging
import os
import shutil
import subprocess
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from benchmarks.contenders import (
    EXTRA_HINT,
    LEGACY_HINT,
    OWN_HINT,
    Contender,
    NotInstalledError,
    import_or_explain,
)

Parser = Literal["json", "orjson"]

FORAGER_FOLDER = "data-forager"
TEXTS_A_BATCH = 1_000
VOCAB_SIZE = 8_192
SAMPLE_SIZE = 1_024
EOS = "<eos>"


class OwnReader:
    """This package: `build_index`, then `JsonlDataset` over the files or over a store of their lines."""

    def __init__(self, parser: Parser) -> None:
        self._parser = parser
        self.dataset: Any = None

    def prepare(self) -> str:
        """Import the package, and the parser."""
        self._package = import_or_explain("loaderx.jsonl")
        import_or_explain(self._parser)
        return str(import_or_explain("loaderx").__version__)

    def forget_index(self, base: Path) -> None:
        """Remove the index."""
        shutil.rmtree(base / "index", ignore_errors=True)

    def index(self, base: Path) -> None:
        """Index the files of a folder."""
        self._package.build_index(base, progress=False)

    def convert(self, file: Path, store: Path) -> None:
        """Make a store of the lines of a file, as the command does."""
        convert = import_or_explain("loaderx.convert")
        if status := convert.main([str(file), str(store), "--lines", "--quiet"]):
            raise ValueError(f"convert --lines gave the status {status}")

    def open(self, base: Path) -> int:
        """Open the dataset; its length."""
        self.dataset = self._package.JsonlDataset(base, parse=self._parser)
        return len(self.dataset)

    def indices(self, idxs: NDArray[np.int64], how: str) -> Any:
        """Return the array, or Python's integers for single lines."""
        return idxs.tolist() if how == "one" else idxs

    def raw(self, idxs: Any) -> list[bytes]:
        """Return a batch of lines as they are."""
        lines: list[bytes] = self.dataset.raw_batch(idxs)
        return lines

    def one(self, idxs: Any) -> list[Any]:
        """Return lines parsed, one call each."""
        dataset = self.dataset
        return [dataset[index] for index in idxs]

    def batch(self, idxs: Any) -> list[Any]:
        """Return a batch of lines parsed."""
        found: list[Any] = self.dataset.__getitems__(idxs)
        return found

    def prefetch(self, idxs: Any) -> None:
        """Ask for lines to come."""
        self.dataset.prefetch(idxs)

    def close(self) -> None:
        """Close the dataset."""
        if self.dataset is not None:
            self.dataset.close()
            self.dataset = None


class ParserAlone(OwnReader):
    """A parser, of lines that are in memory already."""

    def __init__(self, parser: Parser) -> None:
        super().__init__(parser)
        self._loads: Callable[[bytes], Any] = json.loads

    def prepare(self) -> str:
        """Import the package and the parser; the parser's version."""
        super().prepare()
        parser = import_or_explain(self._parser)
        self._loads = parser.loads
        return str(parser.__version__)

    def indices(self, idxs: NDArray[np.int64], how: str) -> Any:
        """Return the lines themselves, to be parsed in a batch."""
        return self.raw(idxs) if how == "batch" else super().indices(idxs, how)

    def batch(self, idxs: Any) -> list[Any]:
        """Parse lines."""
        loads = self._loads
        return [loads(line) for line in idxs]


class ForagerReader:
    """data-forager: its indexer, its `JsonlDataset`, and for bytes a dataset that leaves them as they are."""

    def __init__(self) -> None:
        self._parsed: Any = None
        self._bytes: Any = None

    def prepare(self) -> str:
        """Import the package, which would tell of every file it opens."""
        logging.disable(logging.DEBUG)
        self._indexer = import_or_explain("data_forager.indexers.jsonl_indexer")
        common = import_or_explain("data_forager.datasets.common")
        self._json = import_or_explain("data_forager.datasets.jsonl").JsonlDataset

        class BytesDataset(common.Dataset):  # type: ignore[misc, name-defined]
            def _process_sample(self, sample_bytes: bytes) -> bytes:
                return sample_bytes

        self._raw = BytesDataset
        return importlib.metadata.version("data-forager")

    def forget_index(self, base: Path) -> None:
        """Remove the index, which is not replaced."""
        shutil.rmtree(base / "index", ignore_errors=True)

    def index(self, base: Path) -> None:
        """Index the files of a folder; what is said meanwhile goes nowhere."""
        with open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere):
            self._indexer.create_default_jsonl_indexer(str(base))()

    def open(self, base: Path) -> int:
        """Open both datasets; their length."""
        self._parsed = self._json.create_from_index_on_filesystem(str(base))
        self._bytes = self._raw(self._parsed._sample_index)  # the index once, as a user of one of them has it
        for dataset in (self._parsed, self._bytes):
            dataset.initialize()
        return len(self._parsed)

    def indices(self, idxs: NDArray[np.int64], how: str) -> Any:
        """Return Python's integers, the only ones that are taken."""
        return idxs.tolist()

    def raw(self, idxs: Any) -> list[bytes]:
        """Return lines as bytes; with their ends."""
        dataset = self._bytes
        return [dataset[index] for index in idxs]

    def one(self, idxs: Any) -> list[Any]:
        """Return lines parsed, one call each: there are no others."""
        dataset = self._parsed
        return [dataset[index] for index in idxs]

    batch = one

    def close(self) -> None:
        """Let go of the datasets, which close their files."""
        self._parsed = self._bytes = None


class WordCount:
    """``wc -l``: a look at every byte of the files, and nothing kept."""

    def prepare(self) -> str:
        """Ask for the version."""
        try:
            said = subprocess.run(["wc", "--version"], capture_output=True, text=True, check=True).stdout
        except (OSError, subprocess.CalledProcessError):
            raise NotInstalledError("no wc of GNU's") from None
        return said.split("\n", 1)[0].rpartition(" ")[2]

    def forget_index(self, base: Path) -> None:
        """Nothing is left behind."""

    def index(self, base: Path) -> None:
        """Count the lines of each file."""
        files = sorted(map(str, base.glob("*.jsonl")))
        subprocess.run(["wc", "-l", *files], stdout=subprocess.DEVNULL, check=True)

    def close(self) -> None:
        """Nothing is open."""


class TokenizerAlone:
    """A tokenizer of `tokenizers`: texts that are in memory, in batches, with its own threads, to lists of ids."""

    def prepare(self) -> str:
        """Import tokenizers."""
        self._tokenizers = import_or_explain("tokenizers")
        return str(self._tokenizers.__version__)

    def train(self, file: Path, tokenizer: Path) -> None:
        """Train byte-pair encoding on the texts of a file, and save it."""
        package = self._tokenizers
        trained = package.Tokenizer(package.models.BPE())
        trained.pre_tokenizer = package.pre_tokenizers.ByteLevel(add_prefix_space=False)
        trainer = package.trainers.BpeTrainer(
            vocab_size=VOCAB_SIZE,
            special_tokens=[EOS],
            initial_alphabet=package.pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        )
        trained.train_from_iterator(read_texts(file), trainer)
        trained.save(str(tokenizer))

    def load(self, file: Path, tokenizer: Path) -> None:
        """Have the tokenizer and all texts in memory."""
        self._file = file
        self._tokenizer = self._tokenizers.Tokenizer.from_file(str(tokenizer))
        self._texts = read_texts(file)

    def encode(self, dest: Path) -> int:
        """Encode all texts; the number of tokens, an EOS for each text counted."""
        encode, count = self._tokenizer.encode_batch_fast, len(self._texts)
        for start in range(0, len(self._texts), TEXTS_A_BATCH):
            found = encode(self._texts[start : start + TEXTS_A_BATCH], add_special_tokens=False)
            count += sum(len(ids) for ids in [each.ids for each in found])
        return count

    def close(self) -> None:
        """Nothing is open."""


class OwnTokenize(TokenizerAlone):
    """This package: `tokenize` from the file to samples that are written, or from the texts in memory."""

    def __init__(self, from_file: bool) -> None:
        self._from_file = from_file

    def prepare(self) -> str:
        """Import tokenizers and the package."""
        super().prepare()
        self._package = import_or_explain("loaderx.tokens")
        return str(import_or_explain("loaderx").__version__)

    def encode(self, dest: Path) -> int:
        """Tokenize and pack; the number of tokens."""
        result = self._package.tokenize(
            self._file if self._from_file else iter(self._texts),
            dest,
            self._tokenizer,
            eos_id=self._tokenizer.token_to_id(EOS),
            sample_size=SAMPLE_SIZE,
            progress=False,
        )
        return int(result.tokens)


def read_texts(file: Path) -> list[str]:
    """Return the texts of a file of documents."""
    with file.open("rb") as lines:
        return [json.loads(line)["text"] for line in lines]


def list_readers() -> dict[str, Contender]:
    """Return all contenders by their names, ours first."""
    hints: dict[Parser, str] = {"json": OWN_HINT, "orjson": EXTRA_HINT}
    every = [
        *(
            Contender(f"{name}, {parser}", "loaderx", partial(OwnReader, parser), hint)
            for name in ("loaderx", "plain file", "line store")
            for parser, hint in hints.items()
        ),
        *(
            Contender(f"{parser} alone", parser, partial(ParserAlone, parser), hint)
            for parser, hint in hints.items()
        ),
        Contender("data-forager", FORAGER_FOLDER, ForagerReader, LEGACY_HINT),
        Contender("wc -l", "wc", WordCount, "install GNU's coreutils"),
        Contender("tokenizer alone", "tokenizers", TokenizerAlone, EXTRA_HINT),
        Contender("tokenize, from a file", "loaderx", partial(OwnTokenize, True), EXTRA_HINT),
        Contender("tokenize, from memory", "loaderx", partial(OwnTokenize, False), EXTRA_HINT),
    ]
    return {contender.name: contender for contender in every}
