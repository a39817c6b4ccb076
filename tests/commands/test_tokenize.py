"""``tokenize``: a tokenizer.json and JSONL files, or a line that says what is wrong."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from loaderx import Dataset
from loaderx.tokens import TokensDataset, tokenize
from tests.commands.conftest import Run
from tests.tokens.kit import contents, some_texts, write_jsonl

pytestmark = pytest.mark.needs_tokenizers

TEXTS = some_texts(60, seed=9)
Fails = Callable[..., str]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a tokenizer of bytes, which pads and cuts, and a file of documents."""
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers

    folder = tmp_path_factory.mktemp("made")
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    tokenizer.train_from_iterator(
        TEXTS,
        trainers.BpeTrainer(
            vocab_size=300, special_tokens=["<eos>"], initial_alphabet=alphabet, show_progress=False
        ),
    )
    tokenizer.enable_padding(length=16)
    tokenizer.enable_truncation(4)
    tokenizer.save(str(folder / "tokenizer.json"))
    write_jsonl(folder / "a.jsonl", [{"text": text} for text in TEXTS])
    return folder


def expected(made: Path, dest: Path, **options: Any) -> Path:
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(made / "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.no_truncation()
    tokenize(made / "a.jsonl", dest, tokenizer, **{"eos_id": 0, "sample_size": 16, **options})
    return dest


def test_writes_what_tokenize_does(run: Run, made: Path, tmp_path: Path) -> None:
    there = expected(made, tmp_path / "expected")
    words = [
        "tokenize",
        made / "a.jsonl",
        tmp_path / "t",
        "--tokenizer",
        made / "tokenizer.json",
        "--sample-size",
        16,
    ]
    code, out, err = run(*words, "--eos", "<eos>")
    assert (code, err) == (0, "")
    assert contents(tmp_path / "t") == contents(there)
    dataset = Dataset(there)
    assert out.startswith(f"{tmp_path / 't'}: {len(dataset)} samples of 16 uint16 tokens, 60 documents, ")
    # The id is as good as the token; and what is complete is left alone.
    code, out, err = run(*words, "--eos", "0")
    assert (code, err) == (0, "") and out.endswith("; complete already\n")


def test_json_and_every_option(run: Run, made: Path, tmp_path: Path) -> None:
    write_jsonl(tmp_path / "in" / "b.jsonl", [
        {"body": "one"}, {"body": ""}, {}, {"body": [{"type": "user", "text": "two"}, {"type": "x", "text": "three"}]}
    ])  # fmt: skip
    code, out, err = run(
        "tokenize", tmp_path / "in", tmp_path / "t", "--tokenizer", made / "tokenizer.json", "--eos", "<eos>",
        "--sample-size", 8, "--text", "body", "--packing", "best_fit", "--window", 5, "--last", "pad", "--pad", "7",
        "--side-stream", "loss_mask", "--side-stream", "positions", "--masked-type", "user", "--mask-eos",
        "--skip-bad", "--codec", "raw", "--dtype", "int32", "--pattern", "*.jsonl", "--json",
    )  # fmt: skip
    assert (code, err) == (0, "")
    facts = json.loads(out)
    dataset = TokensDataset(tmp_path / "t")
    assert facts == {
        "path": str(tmp_path / "t"), "samples": len(dataset), "sample_size": 8, "dtype": "int32", "documents": 2,
        "skipped": {"empty": 1, "missing": 1}, "tokens": facts["tokens"], "dropped_tokens": 0,
        "pad_tokens": len(dataset) * 8 - facts["tokens"], "was_complete": False,
    }  # fmt: skip
    assert dataset.names == ("tokens", "positions", "loss_mask")


def test_documents_as_records(run: Run, made: Path, tmp_path: Path) -> None:
    there = expected(made, tmp_path / "expected", sample_size=None)
    words = ["tokenize", made / "a.jsonl", tmp_path / "t", "--tokenizer", made / "tokenizer.json", "--quiet"]
    assert run(*words, "--sample-size", "none", "--eos", "<eos>") == (0, "", "")
    assert contents(tmp_path / "t") == contents(there)


def test_what_is_wrong_is_one_line(fails: Fails, made: Path, tmp_path: Path) -> None:
    words: list[object] = ["tokenize", made / "a.jsonl", tmp_path / "t"]
    tokenizer: list[object] = ["--tokenizer", made / "tokenizer.json"]
    assert "--tokenizer" in fails(*words)
    assert "--eos is missing" in fails(*words, *tokenizer)
    assert "no token '<end>'" in fails(*words, *tokenizer, "--eos", "<end>")
    assert "no token '9999" in fails(*words, *tokenizer, "--eos", "9" * 5000)
    assert "--dtype is ','" in fails(*words, *tokenizer, "--eos", "0", "--dtype", ",")
    assert "No such file" in fails(*words, "--tokenizer", tmp_path / "none.json", "--eos", "0")
    (tmp_path / "bad.json").write_text("{}")
    assert "not a tokenizer.json" in fails(*words, "--tokenizer", tmp_path / "bad.json", "--eos", "0")
    assert "--sample-size: 'many' is no number" in fails(*words, *tokenizer, "--sample-size", "many")
    assert "nothing" in fails("tokenize", tmp_path / "nothing", tmp_path / "t", *tokenizer, "--eos", "0")
    write_jsonl(tmp_path / "bad.jsonl", [{"text": "one"}, {"txt": "two"}])
    line = fails("tokenize", tmp_path / "bad.jsonl", tmp_path / "t", *tokenizer, "--eos", "0")
    assert line == (
        f"loaderx tokenize: {tmp_path}/bad.jsonl, line 2 (document 1): it has no key 'text'; it has 'txt'"
    )
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bad.json", "bad.jsonl"]


def test_errors_have_the_commands_words(run: Run, fails: Fails, made: Path, tmp_path: Path) -> None:
    write_jsonl(tmp_path / "a.jsonl", [{"text": "one"}])
    words: list[object] = [
        "tokenize",
        tmp_path / "a.jsonl",
        tmp_path / "t",
        "--tokenizer",
        made / "tokenizer.json",
    ]
    line = fails(*words, "--eos", "99999")
    assert line.startswith("loaderx tokenize: --eos is 99999, and the vocabulary's ids are 0 to ")
    assert line.endswith("their number as --vocab-size")
    assert "--pad is 5000" in fails(
        *words, "--eos", "0", "--last", "pad", "--pad", "5000", "--vocab-size", "5000"
    )
    line = fails(*words, "--eos", "0", "--packing", "best_fit", "--last", "drop")
    assert line.startswith("loaderx tokenize: --last is ") and "--packing best_fit" in line
    line = fails(*words, "--sample-size", "none", "--last", "pad")
    assert line.startswith("loaderx tokenize: --last is 'pad', and --sample-size none packs nothing")
    assert "--pad is 7, and nothing is filled up: it is for --last pad" in fails(
        *words, "--eos", "0", "--pad", "7"
    )
    assert "--pattern is 'b*'" in fails(*words, "--eos", "0", "--pattern", "b*")
    assert run(*words, "--eos", "0", "--sample-size", 2, "--vocab-size", 99_999, "--quiet") == (0, "", "")
    assert TokensDataset(tmp_path / "t").dtype == "uint32"
    line = fails(*words, "--eos", "0", "--sample-size", 3, "--vocab-size", 99_999)
    assert "--sample-size was 2, and is 3. Choose another DEST, or --overwrite" in line
    (tmp_path / "b.jsonl").write_text('{"text"\n')
    assert "with --skip-bad" in fails(
        "tokenize", tmp_path / "b.jsonl", tmp_path / "u", *words[3:], "--eos", "0"
    )


def test_nothing_in_it_is_warned_of(run: Run, made: Path, tmp_path: Path) -> None:
    path = write_jsonl(tmp_path / "a.jsonl", [{"text": "one"}, {"text": "two"}])
    words: list[object] = ["--tokenizer", made / "tokenizer.json", "--eos", "0", "--json"]
    code, _, err = run("tokenize", path, tmp_path / "t", *words)
    assert (code, err) == (
        0, f"loaderx tokenize: warning: {tmp_path}/t has no samples: 8 tokens are fewer than a sample has\n"
    )  # fmt: skip
    code, _, err = run("tokenize", path, tmp_path / "u", *words, "--text", "body", "--skip-bad")
    assert code == 0 and err.endswith("u has no samples: all 2 documents were skipped\n")
    path.write_text("")
    code, _, err = run("tokenize", path, tmp_path / "v", *words)
    assert code == 0 and err.endswith("v has no samples: there are no documents\n")


def test_what_an_index_lacks_is_one_line(run: Run, made: Path, tmp_path: Path) -> None:
    write_jsonl(tmp_path / "in" / "a.jsonl", [{"text": "one"}])
    assert run("index", tmp_path / "in").code == 0
    write_jsonl(tmp_path / "in" / "b.jsonl", [{"text": "two"}])
    words: list[object] = [
        "--tokenizer",
        made / "tokenizer.json",
        "--eos",
        "0",
        "--sample-size",
        2,
        "--quiet",
    ]
    assert run("tokenize", tmp_path / "in", tmp_path / "t", *words) == (
        0, "", f"loaderx tokenize: warning: {tmp_path}/in: its index lacks 1 new file ({tmp_path}/in/b.jsonl): only "
        f"what is indexed is tokenized. Index the rest by python -m loaderx index {tmp_path}/in --update\n",
    )  # fmt: skip
    assert run("index", tmp_path / "in", "--update").code == 0
    assert run("tokenize", tmp_path / "in", tmp_path / "u", *words) == (0, "", "")


def test_without_tokenizers_it_says_what_to_install(
    fails: Fails, made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "tokenizers", None)
    line = fails(
        "tokenize", made / "a.jsonl", tmp_path / "t", "--tokenizer", made / "tokenizer.json", "--eos", "0"
    )
    assert "pip install tokenizers" in line


def test_ctrl_c_and_again(start: Callable[..., subprocess.Popen[str]], made: Path, tmp_path: Path) -> None:
    path = write_jsonl(tmp_path / "a.jsonl", [{"text": text * 40} for text in TEXTS * 200])
    words = [
        "tokenize",
        path,
        tmp_path / "t",
        "--tokenizer",
        made / "tokenizer.json",
        "--eos",
        "0",
        "--window",
        200,
    ]
    process = start("loaderx", *words)
    deadline = time.monotonic() + 60
    table = tmp_path / "t.unfinished" / "data" / "sums.zr"
    while not (table.exists() and table.stat().st_size > 3000) and time.monotonic() < deadline:
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (130, "loaderx tokenize: interrupted\n")
    assert sorted(found.name for found in tmp_path.iterdir()) == ["a.jsonl", "t.unfinished"]
    process = start("loaderx", *words)
    assert process.communicate(timeout=120)[1] == "" and process.returncode == 0
    there = contents(tmp_path / "t")
    shutil.rmtree(tmp_path / "t")
    process = start("loaderx", *words)
    assert process.communicate(timeout=120)[1] == "" and process.returncode == 0
    assert contents(tmp_path / "t") == there
