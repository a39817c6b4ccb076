"""Choosing a codec: by what each makes of some records, and by a rule."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

from loaderx.arrays.dataset import Dataset
from loaderx.arrays.sampling import RaggedSamples, Samples, SliceSamples, shuffled
from loaderx.arrays.sources import Sliced, as_records, as_slices
from loaderx.store.format import (
    DEFAULT_LEVELS,
    DICTIONARY_CODECS,
    MAX_ITEM_BYTES,
    MIN_ITEM_BYTES,
    UNSHUFFLED,
    WIDE,
)
from loaderx.store.options import Codec, check_count, check_level
from loaderx.store.training import train_on
from loaderx.store.trial import try_codec

DEFAULT_CODEC: Final[Codec] = "zstd"

# zstd advises a dictionary of a hundredth of its samples, and its own default is this much at most.
_DICT_MAX_BYTES = 112_640
_DICT_MIN_BYTES = 1024
SAMPLED_FOR_EACH_BYTE: Final = 100

# What is compressed of the data: milliseconds' work at level 3, and a quarter of it where a level is slow.
_SAMPLED_BYTES = 4 << 20
_SLOWLY_SAMPLED_BYTES = 1 << 20
_SLOW_LEVEL = 12
_MOST_RECORDS = 4096
# Of long records pieces are, for so many places say more than one.
_PLACES = 4
# What `write_ragged` reads at a time unless told otherwise.
_HEAD_BYTES = 64 << 20

# A dictionary is tried where records are small and there are some to learn from beside those it is tried on. However
# small it is to be, the one that is written learns from so many bytes too: zstd makes none of a few records.
_SMALL_BYTES = 4096
_LEAST_RECORDS = 256
LEARNT_BYTES: Final = 384 << 10

# How many percent compressing, or a dictionary, has to save to be chosen; and shuffling.
_LEAST_GAIN = 10
_LEAST_GAIN_BY_SHUFFLING = 5


@dataclass(frozen=True, slots=True)
class CodecTrial:
    """What a codec made of the sampled records.

    Attributes
    ----------
    codec : str
    level : int
        zstd's; 0 of "raw".
    stored_bytes : int
        Bytes that it stores them in, with their share of a dictionary.
    ratio : float
        Bytes of the records for each of these.
    decode_mib_per_s : float
        MiB of records that one thread reads in a second, from memory.
    """

    codec: Codec
    level: int
    stored_bytes: int
    ratio: float
    decode_mib_per_s: float


@dataclass(frozen=True, slots=True)
class CodecChoice:
    """A codec, and why it was chosen. Printed, it is both, and a table of the candidates.

    Attributes
    ----------
    codec : str
    reason : str
    candidates : tuple of CodecTrial
        From simple to complicated; none where there was nothing to try them on.
    sampled_records, sampled_bytes : int
        What they were tried on.
    """

    codec: Codec
    reason: str
    candidates: tuple[CodecTrial, ...]
    sampled_records: int
    sampled_bytes: int

    def __str__(self) -> str:
        lines = [f"{self.codec}: {self.reason}"]
        if self.candidates:
            lines.append(f"{'codec':<17} {'level':>5} {'stored bytes':>12} {'ratio':>8} {'decode MiB/s':>12}")
        lines += [
            f"{trial.codec:<17} {trial.level:>5} {trial.stored_bytes:>12,} {trial.ratio:>7.2f}x "
            f"{trial.decode_mib_per_s:>12,.0f}"
            for trial in self.candidates
        ]
        return "\n".join(lines)


def choose_codec(
    data: npt.ArrayLike | Sliced | Dataset | Iterable[npt.ArrayLike],
    *,
    level: int | None = None,
    dict_size: int | None = None,
) -> CodecChoice:
    """Choose the codec that ``codec="auto"`` would.

    Parameters
    ----------
    data : array, Sliced or Dataset; or iterable of array_like
        What has `dtype`, `shape` and slices along axis 0 is taken as `write_dataset` takes it, anything else as
        `write_ragged` does: each array is a record. Of an iterable that is no sequence the first 64 MiB are consumed.
    level, dict_size
        As in `write_dataset`.

    Returns
    -------
    CodecChoice

    Raises
    ------
    SchemaError, RecordTooLargeError, OptionError
        As from `write_dataset` and `write_ragged`.

    Notes
    -----
    Every candidate compresses the same records, up to 4 MiB spread over the data, and reads them again. Candidates are
    "raw", "zstd", "zstd_shuffle" where the dtype has items of 2 to 255 bytes, and those with a dictionary where records
    have 4 KiB at most in the mean and 256 of them were sampled; the dictionary learns from half of the sample, and all
    are tried on the other. From simple to complicated, in that order, the next one is taken where it stores 10 % less
    than the one before, or 5 % less where it only adds shuffling. Sizes alone decide, so the same data has the same
    codec; how fast it is read is for you to look at.

    Examples
    --------
    >>> waves = np.sin(np.arange(160 * 4096, dtype=np.float32) / 50).reshape(160, 4096)
    >>> choice = choose_codec(waves)
    >>> choice.codec, [trial.codec for trial in choice.candidates]
    ('zstd_shuffle', ['raw', 'zstd', 'zstd_shuffle'])
    >>> choose_codec([np.arange(3), np.arange(50)]).codec
    'zstd_shuffle'
    """
    level = check_level(level)
    dict_size = check_dict_size(dict_size)
    target = Path("data")  # which errors name, for there is no path
    samples: Samples
    if isinstance(data, Dataset) or (hasattr(data, "dtype") and hasattr(data, "shape")):
        source, n, schema = as_slices(target, data, DEFAULT_CODEC)
        samples = SliceSamples(source, n, schema.item_bytes, schema.dtype.itemsize)
    else:
        records, _ = as_records(target, data, None, None, DEFAULT_CODEC, explicit=False)
        samples = RaggedSamples(target, data, records, _HEAD_BYTES)
    return choose(samples, level, dict_size)


def check_dict_size(dict_size: int | None) -> int | None:
    """Return the most bytes of a dictionary, or raise `OptionError`."""
    return None if dict_size is None else check_count("dict_size", dict_size, least=1, most=1 << 30)


def dictionary_bytes(total_bytes: int | None, dict_size: int | None) -> int:
    """Return the most bytes that a dictionary for so much data may have, where the caller asked for `dict_size`."""
    if dict_size is not None:
        return dict_size
    known = _DICT_MAX_BYTES if total_bytes is None else total_bytes // SAMPLED_FOR_EACH_BYTE
    return max(_DICT_MIN_BYTES, min(_DICT_MAX_BYTES, known))


def choose(samples: Samples, level: int | None, dict_size: int | None) -> CodecChoice:
    """Choose a codec (`choose_codec`)."""
    n_bytes = _SAMPLED_BYTES if level is None or level < _SLOW_LEVEL else _SLOWLY_SAMPLED_BYTES
    taken = [record for record in samples.take(n_bytes, _MOST_RECORDS, n_bytes // _PLACES) if record.nbytes]
    if not taken:
        return CodecChoice(
            DEFAULT_CODEC, "there is no data to try codecs on, and this is the default", (), 0, 0
        )
    n_taken = sum(record.nbytes for record in taken)
    learnt: list[memoryview] = []
    if len(taken) >= _LEAST_RECORDS and n_taken <= _SMALL_BYTES * len(taken):
        # By no pattern: data that repeats itself, questions and answers in turn, would be judged by one of them alone.
        order = shuffled(len(taken))[: len(taken) * 2 * LEARNT_BYTES // max(n_taken, 2 * LEARNT_BYTES)]
        half = len(order) // 2
        taken, learnt = (
            [taken[at] for at in np.sort(part).tolist()] for part in (order[half:], order[:half])
        )
    trials = _try_all(samples, taken, learnt, level, dict_size)
    ahead = [trials[0]]
    for trial in trials[1:]:
        least = _least_gain(ahead[-1].codec, trial.codec)
        if trial.stored_bytes * 100 <= ahead[-1].stored_bytes * (100 - least):
            ahead.append(trial)
    chosen = ahead[-1]
    return CodecChoice(
        chosen.codec,
        _reason(ahead, trials),
        tuple(trials),
        len(taken),
        sum(record.nbytes for record in taken),
    )


def _try_all(
    samples: Samples,
    taken: list[memoryview],
    learnt: list[memoryview],
    level: int | None,
    dict_size: int | None,
) -> list[CodecTrial]:
    """Try the codecs that the data allows, from simple to complicated."""
    records = memoryview(b"".join(taken))
    lens = np.array([record.nbytes for record in taken], np.uint32)
    item_bytes = samples.item_bytes
    total_bytes = samples.total_bytes()
    codecs: list[Codec] = ["raw", "zstd", "zstd_shuffle"]
    if learnt:
        codecs += ["zstd_dict", "zstd_shuffle_dict"]
    trials = []
    for codec in codecs:
        if codec in UNSHUFFLED and not MIN_ITEM_BYTES <= item_bytes <= MAX_ITEM_BYTES:
            continue
        dictionary = None
        if codec in DICTIONARY_CODECS:
            trained = _learn(learnt, dict_size, item_bytes if codec in UNSHUFFLED else None)
            if isinstance(trained, str):
                continue
            dictionary = trained
        used = DEFAULT_LEVELS[codec] if level is None or codec == "raw" else level
        stored_bytes, read_s = try_codec(records, lens, codec, used, dictionary, item_bytes)
        if dictionary is not None:
            stored_bytes += _share(records.nbytes, total_bytes, dict_size)
        speed = records.nbytes / (1 << 20) / max(read_s, 1e-9)
        trials.append(CodecTrial(codec, used, stored_bytes, records.nbytes / stored_bytes, speed))
    return trials


def _learn(learnt: list[memoryview], dict_size: int | None, item_size: int | None) -> bytes | str:
    """Return a dictionary like the one that would be trained on all of the data, or why there is none."""
    sizes = np.array([record.nbytes for record in learnt], np.int64)
    target = dictionary_bytes(int(sizes.sum()), None)
    if dict_size is not None:
        target = min(target, dict_size)
    return train_on(memoryview(b"".join(learnt)), sizes, target, item_size)


def _share(n_bytes: int, total_bytes: int | None, dict_size: int | None) -> int:
    """Return what these bytes of the data bear of the dictionary's, which all of the data shares."""
    if total_bytes is None:
        return n_bytes // SAMPLED_FOR_EACH_BYTE
    size = min(dictionary_bytes(total_bytes, dict_size), max(total_bytes, 1))
    return size * n_bytes // max(total_bytes, n_bytes)


def _least_gain(simpler: Codec, codec: Codec) -> int:
    only_shuffles = simpler != "raw" and (simpler in DICTIONARY_CODECS) == (codec in DICTIONARY_CODECS)
    return _LEAST_GAIN_BY_SHUFFLING if only_shuffles else _LEAST_GAIN


def _gain(trial: CodecTrial, simpler: CodecTrial) -> float:
    return 1 - trial.stored_bytes / simpler.stored_bytes


def _reason(ahead: list[CodecTrial], trials: list[CodecTrial]) -> str:
    """Say why the last of those that were ahead, one after the other, was chosen."""
    raw, chosen = trials[0], ahead[-1]
    if chosen is raw:
        best = min(trials[1:], key=lambda trial: trial.stored_bytes)
        return (
            f"no codec saves {_LEAST_GAIN}%; the best, {best.codec}, saves {max(0.0, _gain(best, raw)):.1%}"
        )
    simpler = "".join(
        f", {_gain(chosen, trial):.0%} smaller than {trial.codec}" for trial in ahead[1:-1][-1:]
    )
    parts = [f"{_gain(chosen, raw):.0%} smaller than raw{simpler}"]
    if chosen.codec in DICTIONARY_CODECS and chosen.level == DEFAULT_LEVELS[chosen.codec]:
        parts.append(f"slow to write at level {chosen.level} (3 is the fast choice)")
    if chosen.codec in UNSHUFFLED:
        parts.append(f"needs format version {WIDE.number}, which loaderx 0.7.3 cannot read")
    return "; ".join(parts)
