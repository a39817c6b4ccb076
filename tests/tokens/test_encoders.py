"""Encoders of every kind, in this process and in others: the same files."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from array import array
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from loaderx import DocumentError, OptionError, TokenizeError
from loaderx.tokens import tokenize
from tests.tokens.kit import EOS, contents, samples_of, some_texts, utf8, write_jsonl

TEXTS = some_texts(700, seed=5)


class FakeEncoding:
    def __init__(self, ids: list[int]) -> None:
        self.ids = ids


class FakeTokenizer:
    """What `tokenizers.Tokenizer` has, as far as it is used."""

    padding: Any = None
    truncation: Any = None

    def __init__(self, extra: int = 0) -> None:
        self.extra = extra
        self.batches: list[int] = []

    def get_vocab_size(self) -> int:
        return 256

    def get_vocab(self) -> dict[str, int]:
        return {str(at): at for at in [*range(255), 299]}

    def to_str(self) -> str:
        return f"tokenizer {self.extra}"

    def encode_batch(self, texts: list[str], add_special_tokens: bool = True) -> list[FakeEncoding]:
        self.batches.append(len(texts))
        begin = [298] if add_special_tokens else []
        return [FakeEncoding(begin + utf8(text)) for text in texts]


class FakeTransformersTokenizer:
    is_fast = True

    def __len__(self) -> int:
        return 300

    def get_vocab(self) -> dict[str, int]:
        return {str(at): at for at in range(300)}

    def convert_ids_to_tokens(self, ids: Any) -> Any: ...

    def __call__(self, texts: list[str], **options: Any) -> dict[str, Any]:
        assert isinstance(texts, list) and options["padding"] is False and options["truncation"] is False
        begin = [298] if options["add_special_tokens"] else []
        return {"input_ids": [begin + utf8(text) for text in texts]}


def expected(tmp_path: Path, **options: Any) -> dict[str, tuple[int, str]]:
    """Return the files of a run with the function, but for what says which encoder it was."""
    tokenize(
        TEXTS, tmp_path / "expected", utf8, eos_id=EOS, sample_size=16, dtype="uint16", window=50, **options
    )
    return without_manifest(tmp_path / "expected")


def without_manifest(folder: Path) -> dict[str, tuple[int, str]]:
    found = contents(folder)
    del found["tokens.json"]
    return found


@pytest.mark.parametrize("make", [FakeTokenizer, FakeTransformersTokenizer])
@pytest.mark.parametrize("workers", [0, 2])
def test_tokenizers_encode_batches(tmp_path: Path, make: type[Any], workers: int) -> None:
    tokenizer = make()
    result = tokenize(
        TEXTS, tmp_path / "t", tokenizer, eos_id=EOS, sample_size=16, window=50, workers=workers
    )
    assert result.dtype == "uint16"  # the largest id is 299, whatever the vocabulary's size
    assert without_manifest(tmp_path / "t") == expected(tmp_path)
    if make is FakeTokenizer and workers == 0:
        assert max(tokenizer.batches) > 100


@pytest.mark.parametrize("make", [FakeTokenizer, FakeTransformersTokenizer])
def test_special_tokens_are_added_by_wish(tmp_path: Path, make: type[Any]) -> None:
    tokenize(["a"], tmp_path / "t", make(), eos_id=EOS, sample_size=3, add_special_tokens=True)
    assert samples_of(tmp_path / "t") == [[298, 97, EOS]]


def test_a_tokenizer_that_pads_or_cuts_is_refused(tmp_path: Path) -> None:
    for setting in "padding", "truncation":
        tokenizer = FakeTokenizer()
        setattr(tokenizer, setting, {"length": 8})
        with pytest.raises(OptionError, match=rf"no_{setting}\(\)"):
            tokenize(TEXTS, tmp_path / "t", tokenizer, eos_id=EOS)


def test_another_tokenizer_is_another_run(tmp_path: Path) -> None:
    tokenize(["a"], tmp_path / "t", FakeTokenizer(), eos_id=EOS, sample_size=2)
    assert tokenize(["a"], tmp_path / "t", FakeTokenizer(), eos_id=EOS, sample_size=2).was_complete
    with pytest.raises(ValueError, match="encode was 'tokenizer"):
        tokenize(["a"], tmp_path / "t", FakeTokenizer(1), eos_id=EOS, sample_size=2)


class FailingTokenizer(FakeTokenizer):
    def encode_batch(self, texts: list[str], add_special_tokens: bool = True) -> list[FakeEncoding]:
        if "fails" in texts:
            raise ValueError("cannot")
        return super().encode_batch(texts, add_special_tokens)


@pytest.mark.parametrize("workers", [0, 1])
def test_the_text_that_fails_a_batch_is_found(tmp_path: Path, workers: int) -> None:
    texts = [*TEXTS[:600], "fails", *TEXTS[600:]]
    with pytest.raises(DocumentError, match="document 600: encode raised ValueError: cannot"):
        tokenize(texts, tmp_path / "t", FailingTokenizer(), eos_id=EOS, workers=workers)


REUSED_ARRAY = np.zeros(1000, np.int64)
REUSED_LIST: list[int] = []
REUSED_ITEMS = array("H")
REUSED_ENCODING = FakeEncoding([])


def into_array(text: str) -> Any:
    ids = utf8(text)
    REUSED_ARRAY[: len(ids)] = ids
    return REUSED_ARRAY[: len(ids)]


def into_list(text: str) -> list[int]:
    REUSED_LIST[:] = utf8(text)
    return REUSED_LIST


def into_items(text: str) -> Any:
    REUSED_ITEMS[:] = array("H", utf8(text))
    return REUSED_ITEMS


def into_encoding(text: str) -> FakeEncoding:
    REUSED_ENCODING.ids = into_list(text)
    return REUSED_ENCODING


def into_view(text: str) -> Any:
    return memoryview(into_array(text))


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("encode", [into_array, into_list, into_items, into_encoding, into_view])
def test_an_encoder_may_use_its_memory_again(tmp_path: Path, encode: Any, workers: int) -> None:
    tokenize(TEXTS, tmp_path / "t", encode, eos_id=EOS, sample_size=None, workers=workers)
    assert samples_of(tmp_path / "t") == [utf8(text) for text in TEXTS]


@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("packing", ["stream", "best_fit"])
def test_any_number_of_processes_writes_the_same(tmp_path: Path, workers: int, packing: Any) -> None:
    path = write_jsonl(tmp_path / "a.jsonl", ({"text": text} for text in TEXTS))
    options: dict[str, Any] = {
        "eos_id": EOS, "sample_size": 16, "window": 50, "packing": packing, "side_streams": ["document_ids"]
    }  # fmt: skip
    tokenize(path, tmp_path / "none", utf8, **options)
    tokenize(path, tmp_path / "some", utf8, workers=workers, **options)
    assert contents(tmp_path / "none") == contents(tmp_path / "some")


def negative(text: str) -> list[int]:
    return [-1] if text == "fails" else [1]


def test_an_id_that_does_not_fit_is_named_from_a_process(tmp_path: Path) -> None:
    with pytest.raises(DocumentError, match="document 650: id -1") as caught:
        tokenize([*TEXTS[:650], "fails", *TEXTS], tmp_path / "t", negative, eos_id=EOS, workers=2)
    assert caught.value.document == 650


def test_what_cannot_be_sent_is_named(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="a lambda has no name") as caught:
        tokenize(TEXTS, tmp_path / "t", lambda text: utf8(text), eos_id=EOS, workers=2)
    assert caught.value.option == "encode"

    def local(text: str) -> list[int]:
        return utf8(text)

    with pytest.raises(OptionError, match="defined inside another function"):
        tokenize(TEXTS, tmp_path / "t", local, eos_id=EOS, workers=2)
    assert list(tmp_path.iterdir()) == []


def dying(text: str) -> list[int]:
    if text == TEXTS[300]:
        os.kill(os.getpid(), signal.SIGKILL)
    return utf8(text)


def test_a_worker_that_dies_is_an_error(tmp_path: Path) -> None:
    started = time.monotonic()
    with pytest.raises(TokenizeError, match="a worker process died"):
        tokenize(TEXTS * 3, tmp_path / "t", dying, eos_id=EOS, workers=2)
    assert time.monotonic() - started < 60


PROGRAM = """
import os, sys
from pathlib import Path
from loaderx.tokens import tokenize
from tests.tokens.test_encoders import slow, TEXTS

if __name__ == "__main__":
    Path(sys.argv[1]).write_text(str(os.getpid()))
    tokenize(TEXTS, sys.argv[2], slow, eos_id=256, workers=2)
"""


def slow(text: str) -> list[int]:
    time.sleep(0.05)
    return utf8(text)


def children(pid: int) -> list[int]:
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            continue
        if int(fields[1]) == pid:
            found.append(int(path.parent.name))
    return found


def test_workers_end_with_a_killed_parent(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(textwrap.dedent(PROGRAM))
    root = Path(__file__).parents[2]
    process = subprocess.Popen(
        [sys.executable, str(program), str(tmp_path / "pid"), str(tmp_path / "t")],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(root)},
    )
    try:
        deadline = time.monotonic() + 60
        while len(workers := children(process.pid)) < 3 and time.monotonic() < deadline:
            time.sleep(0.05)
        assert len(workers) >= 3  # two, and what watches over shared memory
    finally:
        process.kill()
        process.wait()
    deadline = time.monotonic() + 30
    while any(Path(f"/proc/{pid}").exists() for pid in workers) and time.monotonic() < deadline:
        time.sleep(0.05)
    left = [pid for pid in workers if Path(f"/proc/{pid}").exists()]
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    assert not left


def hang(text: str) -> list[int]:
    time.sleep(600)
    return utf8(text)


@pytest.mark.parametrize("encode", ["slow", "hang"])
def test_ctrl_c_ends_a_run_with_workers(tmp_path: Path, encode: str) -> None:
    program = tmp_path / "program.py"
    program.write_text(textwrap.dedent(PROGRAM).replace("slow", encode))
    process = subprocess.Popen(
        [sys.executable, str(program), str(tmp_path / "pid"), str(tmp_path / "t")],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    try:
        deadline = time.monotonic() + 60
        while len(workers := children(process.pid)) < 3 and time.monotonic() < deadline:
            time.sleep(0.05)
        assert len(workers) >= 3
        # Long enough for workers to have begun: before that a Ctrl-C ends them anyhow.
        while not all(map(ignores_ctrl_c, encoding(workers))) and time.monotonic() < deadline:
            time.sleep(0.05)
        time.sleep(0.5)
        os.killpg(process.pid, signal.SIGINT)
        _, told = process.communicate(timeout=30)  # both encoders need far longer
        assert process.returncode and b"KeyboardInterrupt" in told
    finally:
        process.kill()
        process.wait()
    deadline = time.monotonic() + 10
    while any(Path(f"/proc/{pid}").exists() for pid in workers) and time.monotonic() < deadline:
        time.sleep(0.05)
    left = [pid for pid in workers if Path(f"/proc/{pid}").exists()]
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    assert not left


def encoding(pids: list[int]) -> list[int]:
    """Return which of the children encode; the other watches over shared memory."""
    return [pid for pid in pids if b"spawn_main" in Path(f"/proc/{pid}/cmdline").read_bytes()]


def ignores_ctrl_c(pid: int) -> bool:
    status = Path(f"/proc/{pid}/status").read_text()
    return bool(int(status.partition("SigIgn:")[2].split()[0], 16) >> (signal.SIGINT - 1) & 1)


def test_memory_is_bounded(tmp_path: Path) -> None:
    """A run over many documents takes no more memory than one over few."""
    program = """
        import sys
        from tests.conftest import rss_anon_bytes
        from loaderx.tokens import tokenize
        from tests.tokens.kit import utf8_array

        most = 0
        def texts(n):
            global most
            for at in range(n):
                if at % 50 == 0:
                    most = max(most, rss_anon_bytes())
                yield "x" * 10_000

        tokenize(texts(int(sys.argv[2])), sys.argv[1], utf8_array, eos_id=256, packing="best_fit", window=100)
        print(most)
    """
    found = []
    for n in 2_000, 10_000:
        run = subprocess.run(
            [sys.executable, "-c", textwrap.dedent(program), str(tmp_path / str(n)), str(n)],
            env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
            capture_output=True,
            text=True,
            check=True,
        )
        found.append(int(run.stdout))
    assert found[1] < found[0] + (16 << 20)
