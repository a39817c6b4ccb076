"""``demo``, with small stand-ins for scikit-learn's digits and for the time that measuring takes."""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest

from loaderx import Dataset
from loaderx.commands import demo
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
    assert set(facts["speed_mib_per_s"]) == {"numpy memory map", "loaderx raw", "loaderx zstd"}
    assert min(facts["speed_mib_per_s"].values()) > 0
    assert listing(tmp_path) == []


def test_dir_keeps_the_files_and_can_be_used_again(run: Run, tmp_path: Path) -> None:
    for _ in range(2):
        code, out, err = run("demo", "--dir", tmp_path / "new/kept")
        assert (code, err) == (0, "")
        assert f"The arrays and stores are in {tmp_path}/new/kept." in out
        assert sorted(os.listdir(tmp_path / "new/kept")) == [
            "images.npy",
            "images.zr",
            "labels.npy",
            "labels.zr",
        ]
    with Dataset(tmp_path / "new/kept/images.zr") as images:
        np.testing.assert_array_equal(images[:], IMAGES)


def test_dir_with_other_files_is_refused(fails: Callable[..., str], tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("years of work")
    assert f"{tmp_path} holds other files (thesis.txt)" in fails("demo", "--dir", tmp_path)
    assert listing(tmp_path) == ["thesis.txt"]


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
    assert 'pip install "loaderx[demo]"' in fails("demo")
    assert listing(tmp_path) == []
