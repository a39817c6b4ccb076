"""data-forager 0.2.0 and loaderx: what the one writes, the other reads, and what both write is the same."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from loaderx import jsonl, tokens
from loaderx.jsonl import forager
from tests.peers import find_peer

pytestmark = pytest.mark.needs_peer("data-forager")

PEER = "data-forager"
PROCESS = Path(__file__).with_name("forager_process.py")
EOS = 7

Ask = Callable[..., Any]

OBJECTS = {
    "part10.jsonl": [{"id": n, "text": f"ten {n} " + "x" * (n * 37 % 90)} for n in range(70)],
    "part2.jsonl": [{"id": -n, "text": "zwei äöü \u2028 \U0001f409" * (n % 4)} for n in range(41)],
    "deep er/part1.jsonl": [{"id": 0.5, "text": "one"}],
    "deep er/[a]#b.jsonl": [{"id": None, "text": "odd name"}, {"id": True, "text": ""}],
}


@pytest.fixture
def ask(tmp_path_factory: pytest.TempPathFactory) -> Ask:
    """Return a function that calls one of `forager_process` in a process of its own."""
    folder = find_peer(PEER)
    assert folder is not None
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "LOADERX_"))
    }
    environment["PYTHONPATH"] = str(folder)

    def call(name: str, **arguments: Any) -> Any:
        scratch = tmp_path_factory.mktemp("asked")
        request, answer = scratch / "request.json", scratch / "answer.json"
        request.write_text(json.dumps({"call": name, "arguments": arguments}, default=str))
        run = subprocess.run(
            [sys.executable, "-S", str(PROCESS), str(request), str(answer)],
            env=environment,
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert run.returncode == 0, run.stderr
        return json.loads(answer.read_text())

    return call


@pytest.fixture
def base(tmp_path: Path) -> Path:
    """Return a folder of JSONL files."""
    return make_corpus(tmp_path / "corpus")


def make_corpus(base: Path) -> Path:
    for name, objects in OBJECTS.items():
        path = base / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(
            b"".join(json.dumps(found, ensure_ascii=False).encode() + b"\n" for found in objects)
        )
    # the last line has no end, and line ends are of both kinds
    (base / "part2.jsonl").write_bytes((base / "part2.jsonl").read_bytes().replace(b"\n", b"\r\n")[:-2])
    return base


def tokenizer(text: str) -> list[int]:
    return [byte + 300 for byte in text.encode()]


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


# --- the index of lines ---------------------------------------------------------------------------------------------


def test_their_index_opens_here(ask: Ask, base: Path) -> None:
    ask("index_jsonl", base=base)
    expected = ask("read_jsonl", base=base)
    assert len(expected) == sum(map(len, OBJECTS.values()))
    for dataset in (jsonl.JsonlDataset(base), forager.JsonlDataset.create_from_index_on_filesystem(base)):
        with dataset:
            assert [dataset[index] for index in range(len(dataset))] == expected
            assert dataset.__getitems__(range(len(dataset))) == expected
    with jsonl.TextLinesDataset(base) as lines:
        assert [json.loads(line) for line in lines] == expected


def test_our_index_opens_there(ask: Ask, base: Path) -> None:
    forager.create_default_jsonl_indexer(base)()
    with forager.JsonlDataset.create_from_index_on_filesystem(str(base)) as dataset:
        assert ask("read_jsonl", base=base) == list(dataset)
        assert len(dataset) == sum(map(len, OBJECTS.values()))
        raw = [dataset.raw(index) for index in range(len(dataset))]
    theirs = [bytes.fromhex(line) for line in ask("read_lines", base=base)]
    assert [line.rstrip(b"\r\n") for line in theirs] == raw


def test_both_indices_are_the_same(ask: Ask, base: Path, tmp_path: Path) -> None:
    other = make_corpus(tmp_path / "other")
    ask("index_jsonl", base=base)
    jsonl.build_index(other)
    named = [(folder / "index/file_location.txt").read_text().splitlines() for folder in (base, other)]
    assert sorted(named[0]) == sorted(named[1])
    # the rows of each file are the same, whichever comes first
    rows = [
        np.fromfile(folder / "index/sample_locations.bin", "<u8").reshape(-1, 3) for folder in (base, other)
    ]
    for name in named[0]:
        mine, theirs = (
            found[found[:, 0] == names.index(name)][:, 1:].tolist()
            for found, names in zip(rows, named, strict=True)
        )
        assert mine == theirs


def test_the_index_of_one_file_opens_there(ask: Ask, base: Path) -> None:
    jsonl.build_index(base / "part10.jsonl")
    assert ask("read_jsonl", base=base, folder="part10.jsonl.index") == OBJECTS["part10.jsonl"]
    with forager.JsonlDataset.create_from_index_on_filesystem(base, "part10.jsonl.index") as dataset:
        assert list(dataset) == OBJECTS["part10.jsonl"]


def test_an_index_that_was_updated_opens_there(ask: Ask, base: Path) -> None:
    jsonl.build_index(base)
    with open(base / "part10.jsonl", "a") as file:
        file.write('{"id": "new"}\n')
    jsonl.update_index(base)
    with jsonl.JsonlDataset(base) as dataset:
        assert dataset[-1] == {"id": "new"}
        assert ask("read_jsonl", base=base) == list(dataset)


def test_plain_text_lines(ask: Ask, tmp_path: Path) -> None:
    base = tmp_path / "text"
    base.mkdir()
    paths = [base / "a.txt", base / "b.txt"]
    paths[0].write_bytes("one\nzw\u2028ei\r\nthree \0 \x85\n".encode())
    paths[1].write_bytes(b"last\nwithout an end")
    ask("index_text", base=base, paths=[str(path) for path in paths])
    with jsonl.TextLinesDataset(base) as dataset:
        assert list(dataset) == ["one", "zw\u2028ei", "three \0 \x85", "last", "without an end"]
    (base / "index").rename(tmp_path / "theirs")
    jsonl.build_index(base, "*.txt")
    for name in ("file_location.txt", "sample_locations.bin"):
        assert (base / "index" / name).read_bytes() == (tmp_path / "theirs" / name).read_bytes()
    with jsonl.TextLinesDataset(base) as dataset:
        lines = [bytes.fromhex(line).rstrip(b"\r\n").decode() for line in ask("read_lines", base=base)]
        assert lines == list(dataset)


# --- tokens ---------------------------------------------------------------------------------------------------------

SIZES = [16, 1, 100, 5000, 1 << 20, None]


@pytest.mark.parametrize("sample_size", SIZES)
def test_files_of_tokens_are_the_same(sample_size: int | None, ask: Ask, base: Path, tmp_path: Path) -> None:
    other = make_corpus(tmp_path / "other")
    ask("tokenize", eos=EOS, input_base_path=base, sample_size=sample_size)
    forager.create_tokenize_and_index_jsonl_text_func(
        input_base_path=other, tokenizer_func=tokenizer, eos_idx=EOS, sample_size=sample_size
    )()
    assert contents(other) == contents(base)
    assert len(contents(base)) == 2 * len(OBJECTS) + 2


def test_tokens_open_on_both_sides(ask: Ask, base: Path, tmp_path: Path) -> None:
    for sample_size in (100, None):
        outputs = [tmp_path / f"{who} {sample_size}" for who in ("theirs", "ours")]
        options = {"input_base_path": str(base), "sample_size": sample_size}
        ask("tokenize", eos=EOS, dtype="int32", output_base_path=outputs[0], **options)
        forager.create_tokenize_and_index_jsonl_text_func(
            tokenizer, EOS, output_base_path=outputs[1], token_dtype=np.int32, **options
        )()
        expected = ask("read_tokens", base=outputs[1], dtype="int32")
        assert len(expected) > 40
        for output in outputs:
            with forager.TokensDataset.create_from_index_on_filesystem(
                output, token_dtype=np.int32
            ) as dataset:
                assert [dataset[index].tolist() for index in range(len(dataset))] == expected
                assert [sample.tolist() for sample in dataset[3:40:5]] == expected[3:40:5]
                assert [sample.tolist() for sample in dataset.__getitems__([5, 0, 5])] == [
                    expected[5],
                    expected[0],
                    expected[5],
                ]
                assert dataset[0].dtype == np.int32


def test_chosen_files_and_folders(ask: Ask, base: Path, tmp_path: Path) -> None:
    paths = [str(base / "part10.jsonl"), str(base / "deep er" / "part1.jsonl")]
    for output, call in ((tmp_path / "theirs", ask), (tmp_path / "ours", None)):
        options = {
            "input_file_paths": paths,
            "output_base_path": str(output),
            "base_output_path": str(output / "elsewhere"),
            "file_name_postfix": "ids",
            "sample_size": 32,
        }
        if call is not None:
            call("tokenize", eos=EOS, **options)
        else:
            forager.create_tokenize_and_index_jsonl_text_func(tokenizer, EOS, **options)()
    assert contents(tmp_path / "ours") == contents(tmp_path / "theirs")
    assert sorted(contents(tmp_path / "ours"))[:2] == ["elsewhere/part1-ids.bin", "elsewhere/part10-ids.bin"]


def test_a_function_gets_each_line_as_it_is(ask: Ask, base: Path, tmp_path: Path) -> None:
    other = make_corpus(tmp_path / "other")
    ask("tokenize_text", eos=EOS, input_base_path=base, sample_size=50)
    forager.create_tokenize_and_index_jsonl_text_func(
        tokenizer, EOS, other, process_text_line_func=bytes.decode, sample_size=50
    )()
    assert contents(other) == contents(base)


# --- tokens in parts ------------------------------------------------------------------------------------------------


def make_parts(base: Path) -> Path:
    base.mkdir()
    kinds = ["system", "prompt", "response", "text"]
    for name, n in (("a.jsonl", 20), ("b.jsonl", 3)):
        documents = [
            {"parts": [{"type": kinds[(at + k) % 4], "text": "word " * (at * k % 5)} for k in range(at % 4)]}
            for at in range(n)
        ]
        (base / name).write_text("".join(json.dumps(document) + "\n" for document in documents))
    return base


class Positions:
    dtype = np.dtype(np.int32)

    def generate(self, part_type: str, num_tokens: int, *, part_tokens: list[int] | None = None) -> list[int]:
        assert part_tokens is not None and len(part_tokens) == num_tokens
        return [len(part_type) + position for position in range(num_tokens)]

    def generate_for_eos(self) -> int:
        return -1


def parts(line: bytes) -> list[forager.Part]:
    return [forager.Part(**part) for part in json.loads(line)["parts"]]


def test_arrays_beside_the_tokens(ask: Ask, tmp_path: Path) -> None:
    theirs, ours = make_parts(tmp_path / "theirs"), make_parts(tmp_path / "ours")
    ask("tokenize_parts", eos=EOS, input_base_path=theirs, sample_size=24)
    generators = {"loss_mask": forager.LossMaskGenerator(), "a_position": Positions()}
    forager.create_tokenize_and_index_with_aux_func(
        parts, tokenizer, EOS, generators, input_base_path=ours, sample_size=24
    )()
    assert contents(ours) == contents(theirs)

    expected = ask("read_aux", base=ours)
    assert len(expected) > 5
    assert {name: dtype for name, (dtype, _) in expected[0].items()} == {
        "tokens": "uint32",
        "a_position": "int32",
        "loss_mask": "uint8",
    }
    for folder in (theirs, ours):
        with forager.TokensWithAuxDataset.create_from_index_on_filesystem(folder) as dataset:
            found = [dataset[index] for index in range(len(dataset))]
            assert [
                {name: [str(a.dtype), a.tolist()] for name, a in sample.items()} for sample in found
            ] == expected
            for sample, other in zip(dataset[:], found, strict=True):
                assert all(np.array_equal(sample[name], other[name]) for name in other)
        with tokens.TokensDataset(folder) as stream:
            batch = stream.__getitems__([1, 0])
            assert batch["loss_mask"].tolist() == [expected[1]["loss_mask"][1], expected[0]["loss_mask"][1]]
        with forager.TokensDataset.create_from_index_on_filesystem(folder, token_dtype=np.uint32) as alone:
            assert [sample.tolist() for sample in alone[:]] == [sample["tokens"][1] for sample in expected]


@pytest.mark.parametrize("options", [{"seed": 3}, {"seed": 3, "random_order": True}, {"seed": 0}])
def test_the_same_samples_are_chosen(options: dict[str, Any], ask: Ask) -> None:
    chosen = forager.SubsampledDataset(range(1000), 0.07, **options)
    expected = ask("subsample", length=1000, subsample_factor=0.07, **options)
    assert [chosen[index] for index in range(len(chosen))] == expected
    assert chosen.__getitems__([5, 0]) == [expected[5], expected[0]]
