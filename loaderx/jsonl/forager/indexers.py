"""data-forager's indexers: made with all their options, and run when they are called."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from loaderx.errors import OptionError
from loaderx.jsonl.build import build_index
from loaderx.jsonl.forager.columns import AuxColumns, Columns, TokenColumn
from loaderx.jsonl.forager.parts import AuxDataGenerator, Part
from loaderx.jsonl.forager.token_files import TokenFiles, write_token_files
from loaderx.store.options import check_count
from loaderx.tokens.encoders import as_encoder
from loaderx.tokens.ids import choose_dtype

_PATTERN = "**/*.[jJ][sS][oO][nN][lL]"


def create_default_jsonl_indexer(
    input_base_path: str | os.PathLike[str], name: str | None = None
) -> Callable[[], None]:
    """Return what indexes the JSONL files of a folder, and those of folders within, when it is called.

    Parameters
    ----------
    input_base_path : str or os.PathLike
        The index will be ``index`` in it; one that is there is replaced (`loaderx.jsonl.build_index`).
    name : str, optional
        Not used.
    """

    def index() -> None:
        build_index(input_base_path, _PATTERN)

    return index


def create_tokenize_and_index_jsonl_text_func(
    tokenizer_func: Callable[[str], Any],
    eos_idx: int,
    input_base_path: str | os.PathLike[str] | None = None,
    input_file_paths: Sequence[str | os.PathLike[str]] | None = None,
    output_base_path: str | os.PathLike[str] | None = None,
    index_store: None = None,
    process_text_line_func: Callable[[bytes], str] | None = None,
    logger: Any = None,
    name: str | None = None,
    *,
    token_dtype: npt.DTypeLike = np.uint16,
    sample_size: int | None = None,
    base_output_path: str | os.PathLike[str] | None = None,
    file_name_postfix: str = "tokenized-samples",
) -> Callable[[], None]:
    """Return what makes files of token samples and their index, when it is called.

    Parameters
    ----------
    tokenizer_func : callable
        From a text to its ids: a list, an array, or an object with `ids`. Or a tokenizer of Hugging Face's.
    eos_idx : int
        The id that stands behind each document, where samples have one size.
    input_base_path : str or os.PathLike, optional
        The folder whose JSONL files are read, those of folders within too, in natural order.
    input_file_paths : sequence of str or os.PathLike, optional
        The files to read in place of those, in their order.
    output_base_path : str or os.PathLike, optional
        Where the folders ``index`` and ``tokenized-samples`` will be; None: `input_base_path`.
    index_store : None
        Nothing else: an index is files.
    process_text_line_func : callable, optional
        From a line, with its end, to the text; None: the line's "text".
    logger, name : optional
        Not used.
    token_dtype : dtype_like
        Of the tokens. An id that does not fit is an error.
    sample_size : int, optional
        Tokens in each sample: documents are joined, with EOS behind each, and cut; what is left at the end is not
        written. None: each document is a sample, as it is.
    base_output_path : str or os.PathLike, optional
        Where the files of tokens will be; None: ``tokenized-samples``.
    file_name_postfix : str
        A file ``part2.jsonl`` becomes ``part2-POSTFIX.bin``.

    Returns
    -------
    callable
        Takes nothing. Raises `DocumentError` for a line that has no text, or whose ids do not fit (names file and
        line), FileExistsError where a file of tokens is there already, and `OptionError` where an index is. Files and
        index appear when they are complete.

    Raises
    ------
    OptionError
        Neither files nor a folder are given, or nowhere to write to; `eos_idx` does not fit `token_dtype`.

    Notes
    -----
    The files are those that data-forager 0.2.0 writes, byte for byte, but that blank lines are left out, on which it
    ends with an error. What is new has more: `loaderx.tokens.tokenize` goes on where it was killed, chooses the dtype,
    and writes a compressed dataset.
    """
    dtype = choose_dtype(token_dtype, None, [("eos_idx", eos_idx if sample_size is not None else None)])
    column = TokenColumn(
        as_encoder(tokenizer_func, False),
        dtype,
        None if sample_size is None else eos_idx,
        process_text_line_func,
    )
    return _indexer(
        column,
        sample_size,
        input_base_path,
        input_file_paths,
        output_base_path,
        index_store,
        base_output_path,
        file_name_postfix,
    )


def create_tokenize_and_index_with_aux_func(
    process_parts_func: Callable[[bytes], Sequence[Part]],
    tokenizer_func: Callable[[str], Any],
    eos_idx: int,
    aux_generators: Mapping[str, AuxDataGenerator],
    input_base_path: str | os.PathLike[str] | None = None,
    input_file_paths: Sequence[str | os.PathLike[str]] | None = None,
    output_base_path: str | os.PathLike[str] | None = None,
    index_store: None = None,
    logger: Any = None,
    name: str | None = None,
    *,
    token_dtype: npt.DTypeLike = np.uint32,
    sample_size: int = 4096,
    base_output_path: str | os.PathLike[str] | None = None,
    file_name_postfix: str = "tokenized-samples",
) -> Callable[[], None]:
    """Return what makes files of token samples with other arrays beside the tokens, when it is called.

    Parameters
    ----------
    process_parts_func : callable
        From a line, with its end, to the parts of the document: objects with `type` and `text`, such as `Part`.
    tokenizer_func, eos_idx
        As in `create_tokenize_and_index_jsonl_text_func`; each part is encoded by itself.
    aux_generators : mapping of str to AuxDataGenerator
        By its name, what gives the values of an array.
    input_base_path, input_file_paths, output_base_path, index_store, logger, name
        As in `create_tokenize_and_index_jsonl_text_func`.
    token_dtype, sample_size, base_output_path, file_name_postfix
        The same.

    Returns
    -------
    callable
        As that of `create_tokenize_and_index_jsonl_text_func`. A `DocumentError` it is too where a generator gives
        values that do not fit its dtype, or not as many as there are tokens.

    Raises
    ------
    OptionError
        As there; or there is no generator, or one named "tokens".
    """
    if not aux_generators or "tokens" in aux_generators:
        raise OptionError(
            "aux_generators is empty, or has 'tokens': give a generator for each array beside the tokens",
            option="aux_generators",
            value=aux_generators,
        )
    dtype = choose_dtype(token_dtype, None, [("eos_idx", eos_idx)])
    columns = AuxColumns(
        as_encoder(tokenizer_func, False), dtype, eos_idx, process_parts_func, dict(aux_generators)
    )
    return _indexer(
        columns,
        sample_size,
        input_base_path,
        input_file_paths,
        output_base_path,
        index_store,
        base_output_path,
        file_name_postfix,
    )


def _indexer(
    columns: Columns,
    sample_size: int | None,
    input_base_path: str | os.PathLike[str] | None,
    input_file_paths: Sequence[str | os.PathLike[str]] | None,
    output_base_path: str | os.PathLike[str] | None,
    index_store: None,
    base_output_path: str | os.PathLike[str] | None,
    file_name_postfix: str,
) -> Callable[[], None]:
    if index_store is not None:
        raise OptionError(
            "index_store is given: an index is files here, in the folder that output_base_path names",
            option="index_store",
            value=index_store,
        )
    if input_base_path is None and input_file_paths is None:
        raise OptionError(
            "neither input_base_path nor input_file_paths is given: give one of them",
            option="input_base_path",
            value=None,
        )
    base = output_base_path or input_base_path
    if base is None:
        raise OptionError(
            "neither output_base_path nor input_base_path is given: say where the index is to be",
            option="output_base_path",
            value=None,
        )
    if sample_size is not None:
        sample_size = check_count("sample_size", sample_size, least=1)

    def tokenize_and_index() -> None:
        plan = TokenFiles.planned(
            base, input_base_path, input_file_paths, _PATTERN, base_output_path, file_name_postfix
        )
        write_token_files(plan, columns, sample_size)

    return tokenize_and_index
