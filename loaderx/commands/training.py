"""The demo's training: a softmax classifier in NumPy on the endless loader, which can stop and go on elsewhere.

``python -m loaderx.commands.training FOLDER RECORDS STEP`` goes on from the checkpoint in a folder, in a new process.
"""

from __future__ import annotations

import json
import sys
import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from loaderx import DataLoader, Dataset

BATCH_SIZE = 256
SEED = 7
LEARNING_RATE = 0.5

CHECKPOINT, FINISHED = "checkpoint.npz", "finished.npz"


class Part:
    """Some records of a dataset as a stream: those below a bound, so that the others can be tested with.

    Parameters
    ----------
    dataset : Dataset
    length : int
    """

    def __init__(self, dataset: Dataset, length: int) -> None:
        self._dataset = dataset
        self._length = length

    def __len__(self) -> int:
        return self._length

    def __getitems__(self, idxs: npt.NDArray[np.uint64]) -> npt.NDArray[Any]:
        """Return a batch; every index is below the length."""
        return self._dataset.__getitems__(idxs)


@dataclass
class Model:
    """A linear classifier: ``images @ weights + bias``.

    Attributes
    ----------
    weights : ndarray of float64, shape (pixels, classes)
    bias : ndarray of float64, shape (classes,)
    """

    weights: npt.NDArray[np.float64]
    bias: npt.NDArray[np.float64]

    def scores(self, images: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """Return the scores of each class, shape (n, classes)."""
        # Not by matrix products of the BLAS, whose sums may depend on how many threads it has just now.
        scores: npt.NDArray[np.float64] = np.einsum("ip,pc->ic", images, self.weights) + self.bias
        return scores

    def learn(self, images: npt.NDArray[np.float64], labels: npt.NDArray[np.int64]) -> None:
        """Take one step down the gradient of the cross entropy."""
        scores = self.scores(images)
        scores -= scores.max(axis=1, keepdims=True)
        errors = np.exp(scores)
        errors /= errors.sum(axis=1, keepdims=True)
        errors[np.arange(len(labels)), labels] -= 1
        errors /= len(labels)
        self.weights -= LEARNING_RATE * np.einsum("ip,ic->pc", images, errors)
        self.bias -= LEARNING_RATE * errors.sum(axis=0)


@dataclass(frozen=True)
class Run:
    """What a run of some steps took, times in seconds."""

    steps: int
    seconds: float
    wait_s: float


def flatten(batch: dict[str, npt.NDArray[Any]]) -> dict[str, npt.NDArray[Any]]:
    """Return images as rows of pixels from 0 to 1: what the loader's workers do with a batch."""
    images = batch["image"].astype(np.float64)
    return {"image": images.reshape(len(images), -1) / 16, "label": batch["label"]}


class Trainer:
    """A model, and the loader that feeds it; both begin, or go on from a checkpoint.

    Parameters
    ----------
    image_store, label_store : pathlib.Path
    num_records : int
        How many records, from the first, are trained on.
    checkpoint : pathlib.Path, optional
        What `save` wrote.
    """

    def __init__(
        self, image_store: Path, label_store: Path, num_records: int, checkpoint: Path | None = None
    ) -> None:
        with ExitStack() as opened:
            images = opened.enter_context(Dataset(image_store))
            labels = opened.enter_context(Dataset(label_store))
            streams = {"image": Part(images, num_records), "label": Part(labels, num_records)}
            self.loader = opened.enter_context(
                DataLoader(streams, 2, BATCH_SIZE, mode="cyclic", seed=SEED, transform=flatten)
            )
            if checkpoint is None:
                num_classes = int(labels[:].max()) + 1
                num_pixels = int(np.prod(images.shape))
                self.model = Model(np.zeros((num_pixels, num_classes)), np.zeros(num_classes))
            else:
                with np.load(checkpoint, allow_pickle=False) as saved:
                    self.model = Model(saved["weights"], saved["bias"])
                    self.loader.load_state_dict(json.loads(str(saved["loader"])))
            self._opened = opened.pop_all()

    def run(self, until_step: int) -> Run:
        """Train up to a step."""
        first, waited = self.loader.step, self.loader.stats().wait_s
        began = time.perf_counter()
        while self.loader.step < until_step:
            batch = next(self.loader)
            self.model.learn(batch["image"], batch["label"])
        seconds = time.perf_counter() - began
        return Run(self.loader.step - first, seconds, self.loader.stats().wait_s - waited)

    def save(self, path: Path) -> None:
        """Write the model and the loader's state."""
        state = json.dumps(self.loader.state_dict())
        np.savez(path, weights=self.model.weights, bias=self.model.bias, loader=np.array(state))

    def close(self) -> None:
        """Close the loader and its datasets."""
        self._opened.close()


def main(folder: Path, num_records: int, until_step: int) -> None:
    """Go on from the checkpoint in a folder with the stores, up to a step, and save there what comes of it."""
    trainer = Trainer(folder / "images.zr", folder / "labels.zr", num_records, folder / CHECKPOINT)
    try:
        trainer.run(until_step)
        trainer.save(folder / FINISHED)
    finally:
        trainer.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
