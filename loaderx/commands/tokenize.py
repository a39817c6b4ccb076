"""``tokenize``: JSONL files as a dataset of token samples, with a tokenizer of Hugging Face's."""

from __future__ import annotations

import argparse
import contextlib
import json
import re
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from loaderx.commands.bar import late_bar
from loaderx.commands.paths import parse_path
from loaderx.commands.program import DONE, CommandError, complain, listed, say, shown
from loaderx.commands.sizes import count
from loaderx.errors import (
    LoaderxError,
    MissingDependencyError,
    OptionError,
    StaleIndexWarning,
    StateMismatchError,
)
from loaderx.tokens import TokenizeResult, tokenize
from loaderx.tokens.sides import SIDE_DTYPES

DESCRIPTION = """\
Turn the documents of JSONL files into samples of tokens for training: a dataset that loaderx.Dataset and
loaderx.tokens.TokensDataset read. SOURCE is a file, a folder of *.jsonl files, or a store of lines; several files are
read in the order in which they are named.

DEST appears when it is complete. Whatever stops the command, run it again: it goes on behind the last documents that
were written, and the files are in the end those of a run that nothing has stopped. Where DEST is complete nothing is
done.

Padding and truncation that the tokenizer's file asks for are not done.

Exit code: 0 done, 2 wrong usage, a document without text, other options than those of the run that has begun, or an
error with files, 130 interrupted.
"""


# Of a number that could be an id.
_MOST_DIGITS = 20
_MOST_SHOWN = 100

_PREFIX = "loaderx tokenize"

#: What an option of `tokenize` is called here.
_FLAGS = {
    "source": "SOURCE",
    "dest": "DEST",
    "eos_id": "--eos",
    "pad_id": "--pad",
    "side_streams": "--side-stream",
    "masked_types": "--masked-type",
    "add_special_tokens": "--special-tokens",
    **{
        name: f"--{name.replace('_', '-')}"
        for name in (
            "sample_size", "text", "pattern", "dtype", "vocab_size", "packing", "window", "last", "mask_eos",
            "allow_empty", "codec", "level", "workers", "overwrite",
        )
    },
}  # fmt: skip
#: What messages say of it in Python, and what it is here.
_WORDS = (
    (re.compile(r"\boverwrite=True"), "--overwrite"),
    (re.compile(r"\ballow_empty=True"), "--allow-empty"),
    (re.compile(r"\bon_error='skip'"), "--skip-bad"),
    (re.compile(r"\bsample_size=None"), "--sample-size none"),
    (re.compile(r"\bworkers=(\d+)"), r"--workers \1"),
    (re.compile(r'\b(packing|last)="(\w+)"'), r"--\1 \2"),
    (re.compile(r"\bvocab_size\b"), "--vocab-size"),
    (re.compile(r"\banother dest\b"), "another DEST"),
    (re.compile(r"\ba dest of its own\b"), "a DEST of its own"),
    (re.compile(r"\bupdate_index, or (?=python -m)"), ""),
    (re.compile(r"\bbuild_index, or (?=python -m)"), ""),
    (re.compile(r"\bwrite_lines, or (?=python -m)"), ""),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument(
        "sources", metavar="SOURCE", nargs="+", type=parse_path, help="where the documents are"
    )
    parser.add_argument("dest", metavar="DEST", type=parse_path, help="the dataset to write")
    parser.add_argument(
        "--tokenizer", metavar="FILE", type=parse_path, required=True, help="a tokenizer.json"
    )
    parser.add_argument(
        "--eos",
        metavar="TOKEN",
        help="what stands behind each document: a token of the tokenizer's, or an id; needed for samples of one size",
    )
    parser.add_argument(
        "--sample-size",
        metavar="N",
        type=_size,
        default=1024,
        help="tokens in a sample (default: %(default)s); none: every document is a record, without EOS",
    )
    parser.add_argument("--text", metavar="KEY", default="text", help="the text's key (default: %(default)s)")
    parser.add_argument(
        "--pattern",
        metavar="PATTERN",
        help="which files of a folder; an index of others is not used (default: its index's, or **/*.jsonl)",
    )
    parser.add_argument(
        "--vocab-size",
        metavar="N",
        type=int,
        help="ids that the model has, where these are more than the tokenizer's (default: the tokenizer's)",
    )
    parser.add_argument(
        "--dtype", metavar="DTYPE", default="auto", help="default: the smallest that is enough"
    )
    parser.add_argument(
        "--packing", choices=("stream", "best_fit"), default="stream", help="default: %(default)s"
    )
    parser.add_argument(
        "--window", metavar="N", type=int, help="documents that are packed together (best_fit: 8192)"
    )
    parser.add_argument(
        "--last",
        choices=("drop", "pad", "keep"),
        help="samples that are not full (default: drop; best_fit: pad)",
    )
    parser.add_argument("--pad", metavar="TOKEN", help="what fills samples up (default: that of --eos)")
    parser.add_argument(
        "--side-stream",
        dest="side_streams",
        action="append",
        default=[],
        choices=tuple(SIDE_DTYPES),
        help="write this beside the tokens; may be given several times",
    )
    parser.add_argument(
        "--masked-type",
        dest="masked_types",
        action="append",
        metavar="TYPE",
        help="a type of parts left out of the loss; may be given several times (default: prompt and system)",
    )
    parser.add_argument("--mask-eos", action="store_true", help="leave EOS out of the loss, too")
    parser.add_argument(
        "--special-tokens",
        action="store_true",
        help="have the tokenizer put its special tokens around each text",
    )
    parser.add_argument("--allow-empty", action="store_true", help="take documents without a character")
    parser.add_argument(
        "--skip-bad",
        action="store_true",
        help="pass over lines without a text, and count them, instead of ending",
    )
    parser.add_argument(
        "--codec", choices=("raw", "zstd", "zstd_shuffle"), default="zstd", help="default: %(default)s"
    )
    parser.add_argument("--level", metavar="N", type=int, help="zstd's level (default: 3)")
    parser.add_argument(
        "--workers",
        metavar="N",
        type=int,
        default=0,
        help="processes to encode in (default: the tokenizer's threads)",
    )
    parser.add_argument(
        "--overwrite", action="store_true", help="replace the dataset at DEST, or begin it anew"
    )
    parser.add_argument(
        "--quiet", action="store_true", help="no progress bar, no line on stdout; --json still prints"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object, and no progress bar")


def run(options: argparse.Namespace) -> int:
    """Write the dataset and print what is in it."""
    tokenizer = _load(options.tokenizer)
    _check(options)
    masked = {} if options.masked_types is None else {"masked_types": options.masked_types}
    with _in_its_words(), late_bar("tokenize", shown=not (options.json or options.quiet)) as bar:
        result = tokenize(
            options.sources[0] if len(options.sources) == 1 else options.sources,
            options.dest,
            tokenizer,
            eos_id=_find_id(tokenizer, "--eos", options.eos),
            sample_size=options.sample_size,
            dtype=options.dtype,
            vocab_size=options.vocab_size,
            text=options.text,
            packing=options.packing,
            last=options.last,
            pad_id=_find_id(tokenizer, "--pad", options.pad),
            window=options.window,
            side_streams=options.side_streams,
            mask_eos=options.mask_eos,
            add_special_tokens=options.special_tokens,
            allow_empty=options.allow_empty,
            on_error="skip" if options.skip_bad else "raise",
            pattern=options.pattern,
            codec=options.codec,
            level=options.level,
            workers=options.workers,
            overwrite=options.overwrite,
            progress=_where_known(bar),
            **masked,
        )
    if options.json:
        say(json.dumps(_facts(options.dest, options.sample_size, result)))
    elif not options.quiet:
        say(_line(options.dest, options.sample_size, result))
    if not result.samples:
        complain(_PREFIX, f"warning: {shown(options.dest)} has no samples: {_why_none(result)}")
    return DONE


def _check(options: argparse.Namespace) -> None:
    """Refuse what `tokenize` would, where the words for it are others."""
    if options.eos is None and options.sample_size is not None:
        raise CommandError(
            "--eos is missing: samples of one size need a token that stands between documents, such as --eos '<eos>'; "
            "with --sample-size none every document is a record"
        )


@contextlib.contextmanager
def _in_its_words() -> Iterator[None]:
    """Have errors and warnings name the command's options, not those of the function."""
    with warnings.catch_warnings():
        show = warnings.showwarning

        def reworded(message: Warning | str, category: type[Warning], *place: Any, **others: Any) -> None:
            show(
                _reword(str(message)) if issubclass(category, StaleIndexWarning) else message,
                category,
                *place,
                **others,
            )

        warnings.showwarning = reworded
        try:
            yield
        except LoaderxError as error:
            text = str(error)
            if isinstance(error, OptionError):
                text = re.sub(
                    rf"^{re.escape(error.option)}(?= )", _FLAGS.get(error.option, error.option), text
                )
            if isinstance(error, StateMismatchError):
                for name in error.mismatches:
                    text = text.replace(f" {name} was ", f" {_FLAGS.get(name, name)} was ", 1)
            raise CommandError(_reword(text)) from error


def _reword(text: str) -> str:
    for pattern, words in _WORDS:
        text = pattern.sub(words, text)
    return text


def _why_none(result: TokenizeResult) -> str:
    if result.documents:
        return f"{count(result.tokens, 'token')} are fewer than a sample has"
    n_skipped = sum(result.skipped.values())
    return f"all {count(n_skipped, 'document')} were skipped" if n_skipped else "there are no documents"


def _size(text: str) -> int | None:
    if text == "none":
        return None
    try:
        return int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text[:40]!r} is no number, and not none") from None


def _load(path: Path) -> Any:
    try:
        from tokenizers import Tokenizer
    except ImportError:
        raise MissingDependencyError(
            "this command needs the package tokenizers, which is not installed: pip install tokenizers",
            package="tokenizers",
        ) from None
    data = path.read_bytes()
    try:
        tokenizer = Tokenizer.from_buffer(data)
    except Exception as error:  # its own errors are of no class but this one
        raise CommandError(f"{path}: not a tokenizer.json: {error}") from None
    tokenizer.no_padding()
    tokenizer.no_truncation()
    return tokenizer


def _find_id(tokenizer: Any, option: str, token: str | None) -> int | None:
    if token is None:
        return None
    # Digits first: each is a token of most vocabularies, and none of them ends a text.
    is_number = token.isascii() and token.isdigit() and len(token) <= _MOST_DIGITS
    found: int | None = int(token) if is_number else tokenizer.token_to_id(token)
    if found is None:
        raise CommandError(f"{option}: the tokenizer has no token {token[:_MOST_SHOWN]!r}")
    return found


def _where_known(bar: Callable[[int, int], None]) -> Callable[[int, int | None], None]:
    """Return what is told of progress; where nobody knows how much there is, there is no bar."""

    def tell(done_bytes: int, total_bytes: int | None) -> None:
        if total_bytes is not None:
            bar(done_bytes, total_bytes)

    return tell


def _facts(path: Path, sample_size: int | None, result: TokenizeResult) -> dict[str, Any]:
    return {
        "path": str(path),
        "samples": result.samples,
        "sample_size": sample_size,
        "dtype": result.dtype.name,
        "documents": result.documents,
        "skipped": dict(result.skipped),
        "tokens": result.tokens,
        "dropped_tokens": result.dropped_tokens,
        "pad_tokens": result.pad_tokens,
        "was_complete": result.was_complete,
    }


def _line(path: Path, sample_size: int | None, result: TokenizeResult) -> str:
    size = "" if sample_size is None else f"{sample_size:,} "
    beside = []
    if result.dropped_tokens:
        beside.append(f"{result.dropped_tokens:,} dropped")
    if result.pad_tokens:
        beside.append(f"{result.pad_tokens:,} padding")
    told = f"{count(result.samples, 'sample')} of {size}{result.dtype} tokens"
    told += f", {count(result.documents, 'document')}, {count(result.tokens, 'token')}"
    told += f" ({', '.join(beside)})" if beside else ""
    if result.skipped:
        kinds = listed([f"{n:,} {kind}" for kind, n in sorted(result.skipped.items())])
        told += f"; skipped {count(sum(result.skipped.values()), 'document')} ({kinds})"
    return f"{shown(path)}: {told}{'; complete already' if result.was_complete else ''}"
