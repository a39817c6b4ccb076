"""``demo``: convert real images, read them back in shuffled batches, train on them, stop and go on, and measure."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from loaderx import Dataset, DictionaryError, MissingDependencyError
from loaderx.commands import training
from loaderx.commands.bits import first_different
from loaderx.commands.conversion import Conversion, Settings, convert_source, verify
from loaderx.commands.npy_files import NpyFiles
from loaderx.commands.paths import parse_path
from loaderx.commands.program import DONE, CommandError, MismatchError, listed
from loaderx.commands.sizes import count, format_bytes, format_ratio, mib_per_s, ratio
from loaderx.store import files
from loaderx.store.create import make_directories, remove_directories
from loaderx.store.options import Codec

DESCRIPTION = """\
Convert scikit-learn's handwritten digits (1,797 real images with their labels) to stores, read them back in shuffled
batches and compare every batch with the arrays; train a classifier on the endless loader, once at a stretch and once
stopped half-way and resumed in a new process, and compare the weights; show sizes and speed. Takes some seconds and
about 200 MiB of temporary disk space. Needs scikit-learn: pip install scikit-learn

Exit code: 0 done, 1 a batch or a weight differs, 2 an error, 130 interrupted.
"""

BATCH_SIZE = 256

#: Steps of the training, and the part of the digits that it sees; it is tested with the others.
TRAIN_STEPS = 1000
TRAIN_PART = 5 / 6

#: Bytes of the array that speed is measured on: far more than the processor's caches hold.
SPEED_BYTES = 64 << 20

#: Batches in a timed round, and rounds; every contender runs once in each round, so that all see the same machine.
ROUND_BATCHES = 100
ROUNDS = 7

IMAGES_NPY, LABELS_NPY, IMAGES_STORE, LABELS_STORE = "images.npy", "labels.npy", "images.zr", "labels.zr"

#: What is left in the folder of --dir.
KEPT = (IMAGES_NPY, LABELS_NPY, IMAGES_STORE, LABELS_STORE)

#: Start of the name of the folder worked in.
WORK_PREFIX = "loaderx-demo-"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument(
        "--dir",
        metavar="DIR",
        type=parse_path,
        help=f"work in this folder, which must be new or empty, and leave {', '.join(KEPT)} there when all went well "
        "(default: a temporary one)",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(options: argparse.Namespace) -> int:
    """Run the demo from the first line to the last."""
    say: Callable[[str], None] = (lambda _text: None) if options.json else print
    with work_folder(options.dir) as folder:
        images, labels = load_digits()
        height, width = images.shape[1:]
        say(f"{count(len(images), 'handwritten digit')} from scikit-learn: {height} x {width} pixels")
        say("")
        facts: dict[str, Any] = {"records": len(images)}
        facts["sizes"] = convert_digits(folder, images, labels, say)
        facts["batches_checked"] = check_batches(folder, images, labels, say)
        facts["training"] = train_digits(folder, images, labels, say)
        facts["speed_mib_per_s"] = measure_speed(folder, images, say)
    if options.dir is not None:
        say(f"{', '.join(KEPT)} are in {options.dir}.")
        say("")
    say(NEXT_STEPS)
    if options.json:
        print(json.dumps(facts))
    return DONE


NEXT_STEPS = """\
Next, with your own array:

    from loaderx import DataLoader, Dataset, write_dataset
    write_dataset("images.zr", images)            # any array or memory map, a record for each item
    dataset = Dataset("images.zr")
    batch = dataset[[5, 3, 42]]                   # any records, in any order, as one array
    for batch in DataLoader({"image": dataset}):  # batch["image"], without end
        ...

or from the shell:  python -m loaderx convert images.npy images.zr"""


def load_digits() -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Give the images, float64 (1797, 8, 8), and the labels, int64 (1797,).

    Raises
    ------
    MissingDependencyError
        If scikit-learn is not installed.
    """
    try:
        from sklearn import datasets
    except ImportError as error:
        raise MissingDependencyError(
            "the demo needs scikit-learn for its images: pip install scikit-learn",
            package="scikit-learn",
            extra="demo",
        ) from error
    digits = datasets.load_digits()
    return digits.images, digits.target


@contextmanager
def work_folder(chosen: Path | None) -> Iterator[Path]:
    """Give a temporary folder to work in, and leave what is kept of it in the chosen one when all went well.

    Raises
    ------
    CommandError
        If the chosen folder holds anything, so that nobody's files are overwritten.
    """
    if chosen is None:
        with tempfile.TemporaryDirectory(prefix=WORK_PREFIX) as name:
            yield Path(name)
        return
    check_empty(chosen)
    made = make_directories(chosen)
    try:
        with tempfile.TemporaryDirectory(prefix=WORK_PREFIX, dir=chosen) as name:
            yield Path(name)
            check_empty(chosen, but=Path(name).name)
            _move_kept(Path(name), chosen)
    except BaseException:
        remove_directories(made)
        raise


def _move_kept(work: Path, chosen: Path) -> None:
    """Move what is kept into the chosen folder: all of it, or nothing."""
    try:
        for kept in KEPT:
            files.rename(work / kept, chosen / kept)
    except BaseException:
        for kept in KEPT:
            # By what stands where, not by a count: a signal may come between a move and its being counted.
            if not (work / kept).exists() and (chosen / kept).exists():
                files.rename(chosen / kept, work / kept)
        raise


def check_empty(folder: Path, *, but: str | None = None) -> None:
    """Check that a folder holds nothing, or only what is called `but`, or that there is none.

    Raises
    ------
    CommandError
        If it holds something, or is no folder.
    """
    if not os.path.lexists(folder):
        return
    if not folder.is_dir():
        raise CommandError(f"{folder} is not a folder")
    others = sorted(entry.name for entry in folder.iterdir() if entry.name != but)
    if others:
        raise CommandError(
            f"{folder} is not empty (it holds {listed(others, 3)}); give a folder that is new or empty"
        )


def convert_digits(
    folder: Path, images: np.ndarray[Any, Any], labels: np.ndarray[Any, Any], say: Callable[[str], None]
) -> dict[str, dict[str, Any]]:
    """Write the arrays as .npy, convert them, and show what each codec makes of the images.

    Returns
    -------
    dict
        By store or codec: bytes in and out, and their ratio.
    """
    say("1. Convert")
    np.save(folder / IMAGES_NPY, images)
    np.save(folder / LABELS_NPY, labels)
    sizes = {
        "images": _convert(folder / IMAGES_NPY, folder / IMAGES_STORE, say),
        "labels": _convert(folder / LABELS_NPY, folder / LABELS_STORE, say),
    }
    others: tuple[Codec, ...] = ("raw", "zstd_dict")
    with tempfile.TemporaryDirectory(prefix="codecs-", dir=folder) as name:
        for codec in others:
            try:
                sizes[f"images, {codec}"] = _convert(
                    folder / IMAGES_NPY, Path(name, f"{codec}.zr"), say, codec
                )
            except DictionaryError as error:
                say(f"   {codec}: {error}")
    say("")
    return {what: _size_facts(conversion) for what, conversion in sizes.items()}


def check_batches(
    folder: Path, images: np.ndarray[Any, Any], labels: np.ndarray[Any, Any], say: Callable[[str], None]
) -> int:
    """Read every record once in shuffled batches and compare each batch with the arrays.

    Returns
    -------
    int
        Number of batches.

    Raises
    ------
    MismatchError
        Names the first record that differs.
    """
    say("2. Read shuffled batches and compare them with the arrays")
    order = np.random.default_rng(0).permutation(len(images))
    batches = [order[start : start + BATCH_SIZE] for start in range(0, len(order), BATCH_SIZE)]
    with Dataset(folder / IMAGES_STORE) as image_records, Dataset(folder / LABELS_STORE) as label_records:
        for batch in batches:
            for records, array in ((image_records, images), (label_records, labels)):
                difference = first_different(records[batch], array[batch])
                if difference is not None:
                    raise MismatchError(
                        f"{records.path}: record {batch[difference]} is not the same as in the array"
                    )
    say(f"   {len(batches)} batches of up to {BATCH_SIZE} images and labels, every bit the same")
    say("")
    return len(batches)


def train_digits(
    folder: Path, images: np.ndarray[Any, Any], labels: np.ndarray[Any, Any], say: Callable[[str], None]
) -> dict[str, Any]:
    """Train at a stretch; then stopped half-way and resumed in a new process; and compare the weights.

    Returns
    -------
    dict
        Accuracy on the digits that were not trained on, batches a second, and the part of the time that the loop waited
        for a batch.

    Raises
    ------
    MismatchError
        The weights differ.
    CommandError
        The new process failed.
    """
    num_trained = int(len(images) * TRAIN_PART)
    num_tested = len(images) - num_trained
    say(
        f"3. Train a softmax classifier on {count(num_trained, 'digit')}: {TRAIN_STEPS:,} batches of up to "
        f"{training.BATCH_SIZE} from the endless loader"
    )
    stores = folder / IMAGES_STORE, folder / LABELS_STORE, num_trained
    with closing(training.Trainer(*stores)) as trainer:
        took = trainer.run(TRAIN_STEPS)
        model = trainer.model
    with closing(training.Trainer(*stores)) as trainer:
        trainer.run(TRAIN_STEPS // 2)
        trainer.save(folder / training.CHECKPOINT)
    command = [sys.executable, "-m", training.__name__, str(folder), str(num_trained), str(TRAIN_STEPS)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        reason = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
        raise CommandError(f"the process that goes on with the training failed: {reason}")
    with np.load(folder / training.FINISHED, allow_pickle=False) as resumed:
        for name, array in (("weights", model.weights), ("bias", model.bias)):
            if resumed[name].tobytes() != array.tobytes():
                raise MismatchError(
                    f"the {name} of the training that was stopped at step {TRAIN_STEPS // 2} and resumed are not those "
                    "of the one that was not"
                )
    tested = training.flatten({"image": images[num_trained:], "label": labels[num_trained:]})
    accuracy = float((model.scores(tested["image"]).argmax(axis=1) == tested["label"]).mean())
    say(f"   accuracy on the other {num_tested:,}: {100 * accuracy:.1f} %")
    rate, waited = took.steps / took.seconds, took.wait_s / took.seconds
    say(f"   {rate:,.0f} batches/s; the loop waited for the loader {100 * waited:.0f} % of the time")
    say(f"   stopped at step {TRAIN_STEPS // 2} and resumed in a new process: the same weights, bit for bit")
    say("")
    return {
        "steps": took.steps,
        "accuracy": accuracy,
        "batches_per_s": rate,
        "waited": waited,
        "resumed_at": TRAIN_STEPS // 2,
        "same_weights": True,
    }


def measure_speed(folder: Path, images: np.ndarray[Any, Any], say: Callable[[str], None]) -> dict[str, float]:
    """Time random batches of the digits repeated to `SPEED_BYTES`, beside a memory-mapped .npy.

    Returns
    -------
    dict
        MiB/s by contender, the median of the rounds.
    """
    repeats = -(-SPEED_BYTES // images.nbytes)
    many = np.tile(images, (repeats, 1, 1))[: SPEED_BYTES // images[0].nbytes]
    say(
        f"4. Speed: the digits repeated to {format_bytes(many.nbytes)}, random batches of {BATCH_SIZE} records"
    )
    with tempfile.TemporaryDirectory(prefix="speed-", dir=folder) as name:
        array_path = Path(name, "many.npy")
        np.save(array_path, many)
        codecs: tuple[Codec, ...] = ("raw", "zstd")
        for codec in codecs:
            convert_source(NpyFiles([array_path]), Path(name, f"{codec}.zr"), Settings(codec=codec))
        mapped = np.load(array_path, mmap_mode="r", allow_pickle=False)
        with Dataset(Path(name, "raw.zr")) as raw, Dataset(Path(name, "zstd.zr")) as zstd:
            speeds = time_gathers(
                {
                    "numpy memory map": mapped.__getitem__,
                    "loaderx raw": raw.__getitems__,
                    "loaderx zstd": zstd.__getitems__,
                },
                num_records=len(many),
                batch_bytes=BATCH_SIZE * many[0].nbytes,
            )
    for contender, speed in speeds.items():
        say(f"   {contender:<17} {speed:>9,.0f} MiB/s   {speed / speeds['numpy memory map']:.2f}x")
    say("")
    return speeds


def time_gathers(
    gathers: dict[str, Callable[[np.ndarray[Any, Any]], Any]], *, num_records: int, batch_bytes: int
) -> dict[str, float]:
    """Time gathers of random batches in turn.

    Parameters
    ----------
    gathers : dict of str to callable
        Each takes the indices of a batch.
    num_records : int
        Indices are drawn below it.
    batch_bytes : int
        Bytes of a batch.

    Returns
    -------
    dict
        MiB/s of each, the median of the rounds after one that warms up.
    """
    generator = np.random.default_rng(1)
    rates: dict[str, list[float]] = {name: [] for name in gathers}
    for _ in range(1 + ROUNDS):
        batches = generator.integers(num_records, size=(ROUND_BATCHES, BATCH_SIZE))
        for name, gather in gathers.items():
            started = time.perf_counter()
            for batch in batches:
                gather(batch)
            rates[name].append(mib_per_s(ROUND_BATCHES * batch_bytes, time.perf_counter() - started))
    return {name: float(np.median(values[1:])) for name, values in rates.items()}


def _convert(
    array_path: Path, store_path: Path, say: Callable[[str], None], codec: Codec | None = None
) -> Conversion:
    source = NpyFiles([array_path])
    conversion = convert_source(source, store_path, Settings(codec=codec, force=True))
    verify(source, conversion)
    what = f"{array_path.name} -> {store_path.name}"
    size = f"{format_bytes(conversion.bytes_in):>9} -> {format_bytes(conversion.bytes_out):>9}"
    extra = (
        f" + {format_bytes(conversion.dictionary_bytes)} dictionary" if conversion.dictionary_bytes else ""
    )
    say(
        f"   {what:<26} {conversion.codec:<9} {size}  "
        f"{format_ratio(conversion.bytes_in, conversion.bytes_out)}{extra}"
    )
    return conversion


def _size_facts(conversion: Conversion) -> dict[str, Any]:
    return {
        "codec": conversion.codec,
        "bytes_in": conversion.bytes_in,
        "bytes_out": conversion.bytes_out,
        "dictionary_bytes": conversion.dictionary_bytes,
        "ratio": ratio(conversion.bytes_in, conversion.bytes_out),
    }
