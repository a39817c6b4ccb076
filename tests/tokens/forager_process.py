"""Runs data-forager in a process of its own: ``python forager_process.py`` with a request as JSON on standard input."""

from __future__ import annotations

import contextlib
import io
import json
import sys


def utf8(text: str) -> list[int]:
    return list(text.encode())


def parts_of(line: bytes) -> list[object]:
    from data_forager.sample_generators.aux import Part

    return [Part(type=part["type"], text=part["text"]) for part in json.loads(line)["parts"]]


def main() -> None:
    request = json.load(sys.stdin)
    import numpy as np
    from data_forager.datasets.tokens import TokensDataset
    from data_forager.datasets.tokens_with_aux import TokensWithAuxDataset
    from data_forager.indexers.tokenization_indexer import (
        create_tokenize_and_index_jsonl_text_func,
        create_tokenize_and_index_with_aux_func,
    )
    from data_forager.sample_generators.aux import LossMaskGenerator

    dtype = np.dtype(request["dtype"])
    common = {
        "tokenizer_func": utf8,
        "eos_idx": request["eos_id"],
        "input_base_path": request["base"],
        "output_base_path": request["output"],
        "sample_size": request["sample_size"],
        "token_dtype": dtype,
    }
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        if request["masked"]:
            mask = LossMaskGenerator(mask_eos=request["mask_eos"])
            create_tokenize_and_index_with_aux_func(
                process_parts_func=parts_of, aux_generators={"loss_mask": mask}, **common
            )()
            dataset = TokensWithAuxDataset.create_from_index_on_filesystem(request["output"])
        else:
            create_tokenize_and_index_jsonl_text_func(**common)()
            dataset = TokensDataset.create_from_index_on_filesystem(request["output"], token_dtype=dtype)
        samples = [dataset[i] for i in range(len(dataset))]
    if request["masked"]:
        answer = [{name: values.tolist() for name, values in sample.items()} for sample in samples]
    else:
        answer = [sample.tolist() for sample in samples]
    print(json.dumps(answer))


if __name__ == "__main__":
    main()
