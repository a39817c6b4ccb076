"""``demo``, with small stand-ins for scikit-learn's digits and for the time that measuring takes."""

from __future__ import annotations

import json
import os
import signal
import sys
import tempfile
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest

from loaderx import Dataset, write_dataset
from loaderx.commands import demo, training
from loaderx.store import files
from tests.commands.conftest import Run, listing

IMAGES = np.random.default_rng(0).integers(0, 17, (1797, 8, 8)).astype(np.float64)
LABELS = np.arange(1797) % 10


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Serve digits without scikit-learn, measure little, and keep temporary folders within the test's."""
    datasets = ModuleType("sklearn.datasets")
    datasets.load_digits = lambda: SimpleNamespace(images=IMAGES, target=LABELS)  # type: ignore[attr-defined]
    package = ModuleType("sklearn")
    package.datasets = datasets  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "sklearn", package)
    monkeypatch.setitem(sys.modules, "sklearn.datasets", datasets)
    monkeypatch.setattr(demo, "SPEED_BYTES", 2 << 20)
    monkeypatch.setattr(demo, "ROUND_BATCHES", 3)
    monkeypatch.setattr(demo, "TRAIN_STEPS", 20)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))


def test_text(run: Run, tmp_path: Path) -> None:
    code, out, err = run("demo")
    assert (code, err) == (0, "")
    assert listing(tmp_path) == []
    for part in (
        "1,797 handwritten digits from scikit-learn: 8 x 8 pixels\n",
        "images.npy -> images.zr",
        "labels.npy -> labels.zr",
        "zstd_dict",
        "8 batches of up to 256 images and labels, every bit the same\n",
        "accuracy on the other 300: ",
        "stopped at step 10 and resumed in a new process: the same weights, bit for bit\n",
        "numpy memory map",
        "loaderx raw",
        "loaderx zstd",
        'write_dataset("images.zr", images)',
    ):
        assert part in out, out
    assert max(map(len, out.splitlines())) <= 100


def test_json(run: Run, tmp_path: Path) -> None:
    code, out, err = run("demo", "--json")
    assert (code, err, out.count("\n")) == (0, "", 1)
    facts = json.loads(out)
    assert (facts["records"], facts["batches_checked"]) == (1797, 8)
    assert facts["sizes"]["images"]["bytes_in"] == IMAGES.nbytes
    assert facts["sizes"]["images"]["bytes_out"] < IMAGES.nbytes
    assert facts["sizes"]["images, raw"]["ratio"] == 1.0
    assert set(facts["training"]) == {
        "steps",
        "accuracy",
        "batches_per_s",
        "waited",
        "resumed_at",
        "same_weights",
    }
    assert (facts["training"]["steps"], facts["training"]["resumed_at"]) == (20, 10)
    assert facts["training"]["same_weights"] is True
    assert 0 <= facts["training"]["accuracy"] <= 1
    assert 0 <= facts["training"]["waited"] <= 1
    assert set(facts["speed_mib_per_s"]) == {"numpy memory map", "loaderx raw", "loaderx zstd"}
    assert min(facts["speed_mib_per_s"].values()) > 0
    assert listing(tmp_path) == []


@pytest.mark.parametrize("kind", ["new", "empty"])
def test_dir_keeps_the_files(run: Run, tmp_path: Path, kind: str) -> None:
    folder = tmp_path / "new/kept"
    if kind == "empty":
        folder.mkdir(parents=True)
    code, out, err = run("demo", "--dir", folder)
    assert (code, err) == (0, "")
    assert (
        f"\nimages.npy, labels.npy, images.zr, labels.zr are in {folder}.\n\nNext, with your own array:\n"
        in out
    )
    assert sorted(os.listdir(folder)) == ["images.npy", "images.zr", "labels.npy", "labels.zr"]
    for name, array in (("images", IMAGES), ("labels", LABELS)):
        np.testing.assert_array_equal(np.load(folder / f"{name}.npy"), array)
        with Dataset(folder / f"{name}.zr") as dataset:
            np.testing.assert_array_equal(dataset[:], array)


@pytest.mark.parametrize("name", ["thesis.txt", *demo.KEPT])
def test_dir_that_is_not_empty_is_refused(fails: Callable[..., str], tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("years of work")
    line = fails("demo", "--dir", tmp_path)
    assert (
        line == f"loaderx demo: {tmp_path} is not empty (it holds {name}); give a folder that is new or empty"
    )
    assert listing(tmp_path) == [name]
    assert (tmp_path / name).read_text() == "years of work"
    assert fails("demo", "--dir", tmp_path / name) == f"loaderx demo: {tmp_path}/{name} is not a folder"


def test_dir_of_an_earlier_demo_is_refused(run: Run, fails: Callable[..., str], tmp_path: Path) -> None:
    assert run("demo", "--dir", tmp_path / "kept").code == 0
    names = listing(tmp_path)
    assert "is not empty (it holds images.npy, images.zr, labels.npy and 1 more)" in fails(
        "demo", "--dir", tmp_path / "kept"
    )
    assert listing(tmp_path) == names


def test_dir_given_as_nothing_is_refused(
    fails: Callable[..., str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert "argument --dir: it is empty, where a path is expected" in fails("demo", "--dir", "")
    assert listing(tmp_path) == []


def test_dir_that_fills_meanwhile_keeps_what_came(
    fails: Callable[..., str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def measure_while_somebody_saves(*_details: object) -> dict[str, float]:
        (tmp_path / "kept/images.npy").write_text("years of work")
        return {}

    monkeypatch.setattr(demo, "measure_speed", measure_while_somebody_saves)
    assert "is not empty (it holds images.npy)" in fails("demo", "--dir", tmp_path / "kept", "--json")
    assert listing(tmp_path) == ["kept", "kept/images.npy"]
    assert (tmp_path / "kept/images.npy").read_text() == "years of work"


@pytest.mark.parametrize("number", range(1, 5))
@pytest.mark.parametrize("moment", ["before", "after"])
def test_dir_is_as_it_was_when_stopped_while_the_files_are_moved(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, moment: str
) -> None:
    real, moves = files.rename, []

    def rename(source: Path, target: Path) -> None:
        chosen = target.parent == tmp_path / "new/kept" and target.name in demo.KEPT
        if chosen:
            moves.append(target.name)
        if chosen and len(moves) == number and moment == "before":
            signal.raise_signal(signal.SIGINT)
        real(source, target)
        if chosen and len(moves) == number and moment == "after":
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(demo, "measure_speed", lambda *_details: {})
    monkeypatch.setattr(files, "rename", rename)
    outcome = run("demo", "--dir", tmp_path / "new/kept")
    assert (outcome.code, outcome.err) == (130, "loaderx demo: interrupted\n")
    assert listing(tmp_path) == []


def test_a_mismatch_exits_1(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = demo.convert_digits

    def convert_other_labels(folder: Path, images: np.ndarray, labels: np.ndarray, say: object) -> object:
        changed = labels.copy()
        changed[42] = 7
        return real(folder, images, changed, say)  # type: ignore[arg-type]

    monkeypatch.setattr(demo, "convert_digits", convert_other_labels)
    code, _, err = run("demo")
    assert code == 1
    assert err.startswith("loaderx demo: ")
    assert err.endswith("labels.zr: record 42 is not the same as in the array\n") and err.count("\n") == 1
    assert listing(tmp_path) == []


def test_without_scikit_learn(
    fails: Callable[..., str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "sklearn", None)
    assert "pip install scikit-learn" in fails("demo", "--json")
    assert listing(tmp_path) == []


def test_weights_that_differ_end_the_demo_with_1(
    run: Run, fails: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The stopped training is saved with one weight changed."""
    save = training.Trainer.save

    def save_changed(trainer: training.Trainer, path: Path) -> None:
        trainer.model.weights[3, 4] += 1e-9
        save(trainer, path)

    monkeypatch.setattr(training.Trainer, "save", save_changed)
    code, out, err = run("demo", "--json")
    assert (code, out) == (1, "")
    assert "weights" in err and "step 10" in err


def test_a_process_that_cannot_go_on_is_an_error(
    fails: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(training.Trainer, "save", lambda trainer, path: path.write_bytes(b"no checkpoint"))
    assert "process that goes on with the training failed" in fails("demo", "--json")


def test_a_classifier_learns_digits_that_can_be_told_apart(tmp_path: Path) -> None:
    """One pixel of each class is bright: the training finds which."""
    labels = np.arange(600) % 10
    images = np.random.default_rng(0).integers(0, 5, (600, 8, 8)).astype(np.float64)
    images[np.arange(600), labels % 8, labels // 8] = 16
    write_dataset(tmp_path / "images.zr", images)
    write_dataset(tmp_path / "labels.zr", labels)
    with closing(training.Trainer(tmp_path / "images.zr", tmp_path / "labels.zr", 500)) as trainer:
        took = trainer.run(60)
    assert took.steps == 60
    assert took.seconds >= took.wait_s >= 0
    tested = training.flatten({"image": images[500:], "label": labels[500:]})
    assert (trainer.model.scores(tested["image"]).argmax(axis=1) == tested["label"]).all()
