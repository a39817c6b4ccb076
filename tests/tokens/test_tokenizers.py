"""With the real `tokenizers`: a small BPE, trained on the text it encodes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from loaderx.tokens import TokensDataset, tokenize
from tests.tokens import oracle
from tests.tokens.kit import contents, ids_of, samples_of, some_texts, write_jsonl

pytestmark = pytest.mark.needs_tokenizers

TEXTS = some_texts(600, seed=7, longest=300)


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    """Return a tokenizer of 400 ids, the first one EOS, whose post-processor adds another one."""
    from tokenizers import Tokenizer, models, pre_tokenizers, processors, trainers

    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    made.train_from_iterator(
        TEXTS,
        trainers.BpeTrainer(
            vocab_size=400, special_tokens=["<eos>", "<bos>"], initial_alphabet=alphabet, show_progress=False
        ),
    )
    made.post_processor = processors.TemplateProcessing(single="<bos> $A", special_tokens=[("<bos>", 1)])
    return made


def test_it_writes_what_the_tokenizer_gives(tmp_path: Path, tokenizer: Any) -> None:
    path = write_jsonl(tmp_path / "a.jsonl", ({"text": text} for text in TEXTS))
    result = tokenize(path, tmp_path / "t", tokenizer, eos_id=0, sample_size=32)
    assert result.dtype == np.uint16
    documents = [
        oracle.document_tokens(number, [("text", tokenizer.encode(text, add_special_tokens=False).ids)], 0)
        for number, text in enumerate(TEXTS)
    ]
    expected = ids_of(oracle.stream(documents, 32))
    assert samples_of(tmp_path / "t") == expected
    tokenize(path, tmp_path / "best", tokenizer, eos_id=0, sample_size=32, packing="best_fit", window=100)
    assert samples_of(tmp_path / "best") == ids_of(oracle.best_fit(documents, 32, 100))


def test_special_tokens_by_wish(tmp_path: Path, tokenizer: Any) -> None:
    tokenize(TEXTS, tmp_path / "t", tokenizer, eos_id=0, sample_size=None, add_special_tokens=True)
    assert samples_of(tmp_path / "t") == [tokenizer.encode(text).ids for text in TEXTS]


def test_its_own_function_is_a_function(tmp_path: Path, tokenizer: Any) -> None:
    tokenize(TEXTS, tmp_path / "t", tokenizer.encode, eos_id=0, sample_size=None)
    assert samples_of(tmp_path / "t") == [tokenizer.encode(text).ids for text in TEXTS]


def test_in_processes_it_writes_the_same(tmp_path: Path, tokenizer: Any) -> None:
    for workers in 0, 2:
        tokenize(
            TEXTS, tmp_path / str(workers) / "t", tokenizer, eos_id=0, sample_size=32, window=100, workers=workers,
            side_streams=["positions"],
        )  # fmt: skip
    assert contents(tmp_path / "0") == contents(tmp_path / "2")


def test_one_that_pads_is_refused(tmp_path: Path, tokenizer: Any) -> None:
    from tokenizers import Tokenizer

    padding = Tokenizer.from_str(tokenizer.to_str())
    padding.enable_padding(length=8)
    with pytest.raises(ValueError, match=r"no_padding\(\)"):
        tokenize(TEXTS, tmp_path / "t", padding, eos_id=0)
    padding.no_padding()
    padding.enable_truncation(8)
    with pytest.raises(ValueError, match=r"no_truncation\(\)"):
        tokenize(TEXTS, tmp_path / "t", padding, eos_id=0)


def test_reading_needs_no_tokenizer(tmp_path: Path, tokenizer: Any) -> None:
    tokenize(TEXTS, tmp_path / "t", tokenizer, eos_id=0, sample_size=32)
    code = (
        "import sys, loaderx.tokens as t; d = t.TokensDataset(sys.argv[1]); print(len(d), d.dtype, "
        "[name for name in ('tokenizers', 'torch', 'transformers') if name in sys.modules])"
    )
    run = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "t")], capture_output=True, text=True, check=True
    )
    assert run.stdout.strip() == f"{len(TokensDataset(tmp_path / 't'))} uint16 []"
