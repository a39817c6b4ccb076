"""Arguments that look right and are not, and what the error says to do instead."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from loaderx import CorruptRecordError, OptionError, Zrecord, verify
from tests.store.samples import fill, numbered


@pytest.mark.parametrize("value", ["no", 0, 1, None, [True]])
def test_flags_are_true_or_false(value: Any, store_path: Path) -> None:
    with pytest.raises(OptionError, match=r"verify is .*: give True or False") as caught:
        Zrecord(store_path, verify=value)
    assert (caught.value.option, caught.value.value) == ("verify", value) and not store_path.exists()
    with Zrecord(store_path, verify=np.bool_(True)) as z:
        fill(z, numbered(0, 3))
        assert z.verify is True
        with pytest.raises(OptionError, match="exact is"):
            z.gather([0], bytearray(6), 6, exact=value)


@pytest.mark.parametrize("value", [True, "bar", 1])
def test_progress_is_called(value: Any, store_path: Path) -> None:
    with Zrecord(store_path) as z:
        fill(z, numbered(0, 3))
    with pytest.raises(OptionError, match="progress is"):
        verify(store_path, progress=value)


@pytest.mark.parametrize("mask", [np.array([True, False, True]), [True, False, True]])
def test_a_mask_is_no_list_of_indices(mask: Any, store_path: Path) -> None:
    with Zrecord(store_path) as z:
        fill(z, numbered(0, 3))
        for call in (z.delete, z.lengths, z.gather_packed):
            with pytest.raises(TypeError, match=r"store\.zr: .*not bool: give np\.flatnonzero\(mask\)"):
                call(mask)
        z.delete(np.flatnonzero(mask))
        assert len(z) == 1


def test_text_has_no_bytes_of_its_own(store_path: Path) -> None:
    with Zrecord(store_path) as z:
        with pytest.raises(TypeError, match=r"a str has no bytes to store: encode it first"):
            z.append("text", 1, 4)
        with pytest.raises(TypeError, match="encode it first"), z.appending() as append:
            append.add_var("text", [0], [4])
        assert len(z) == 0


def test_a_wrong_length_is_not_called_damage_alone(store_path: Path) -> None:
    """A healthy record and a wrong argument look the same to the store."""
    with Zrecord(store_path) as z:
        z.append(b"abc", 1, 3)
        with pytest.raises(CorruptRecordError) as caught:
            z.gather_stacked([0], 4)
    message = str(caught.value)
    assert "has 3 bytes where 4 are expected. Either it was appended so" in message
    assert "4 is wrong (an argument" in message and "its table entry is damaged" in message
