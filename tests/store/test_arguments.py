"""Arguments that look right and are not, and what the error says to do instead."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from loaderx import CorruptRecordError, DestinationError, NotAStoreError, OptionError, Zrecord, verify
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


@pytest.mark.parametrize(
    ("values", "kind", "says"),
    [
        ([3.0, 3.0], TypeError, "must be integers, not float64: convert them"),
        ([True, True], TypeError, "must be integers, not bool"),
        (["3", "3"], TypeError, "must be integers, not <U1"),
        ([[3], [3, 3]], TypeError, "must be a sequence of integers"),
        (3, OptionError, r"must have one dimension, not 0: give \[3\]"),
        ([[3, 3]], OptionError, "must have one dimension, not 2"),
        ([3, 2**63], OptionError, "holds 9223372036854775808, and no store"),
        (np.array([3, 2**63], np.uint64), OptionError, "holds 9223372036854775808, and no store"),
        ([3, 2**70], OptionError, "holds 1180591620717411303424, and no store"),
    ],
)
def test_bytes_of_records_are_named_as_the_argument_is(
    values: Any, kind: type[Exception], says: str, store_path: Path
) -> None:
    with Zrecord(store_path) as z:
        z.append(b"onetwo", 2, 3)
        calls: list[tuple[str, Any]] = [
            ("lens", lambda: z.append_var(b"onetwo", [0, 3], values)),
            ("offsets", lambda: z.append_var(b"onetwo", values, [3, 3])),
            ("offsets", lambda: z.gather_var([0, 1], bytearray(6), values)),
            ("sizes", lambda: z.train_dict(b"onetwo", values, 100)),
        ]
        for argument, call in calls:
            with pytest.raises(kind, match=rf"store\.zr: {argument} {says}") as caught:
                call()
            if isinstance(caught.value, OptionError):
                assert caught.value.option == argument
        assert len(z) == 2
        z.append_var(b"onetwo", (0, 3), np.array([3, 3], np.uint64))
        z.append_var(b"", [], [])
        assert z.gather_packed([2, 3])[0].tobytes() == b"onetwo"


def test_indices_of_a_wrong_type_name_the_store(store_path: Path) -> None:
    with Zrecord(store_path) as z:
        fill(z, numbered(0, 3))
        with pytest.raises(TypeError, match=r"store\.zr: indices must be integers, not float64"):
            z.lengths([1.0])
        with pytest.raises(TypeError, match=r"store\.zr: indices must be a sequence of integers"):
            z.lengths([[1], [1, 2]])


@pytest.mark.parametrize("sizes", [[2**62] * 4, np.array([2**62, 2**62], np.uint64), [2**63 - 1] * 2])
def test_sizes_of_samples_that_add_up_to_more_than_64_bits(sizes: Any, store_path: Path) -> None:
    total = sum(int(size) for size in sizes)
    with Zrecord(store_path, "zstd_dict") as z:
        with pytest.raises(DestinationError, match=f"the sizes add up to {total} bytes, and there are 1000"):
            z.train_dict(b"x" * 1000, sizes, 1000)
        with pytest.raises(OptionError, match="sizes holds -1: give the bytes of each sample"):
            z.train_dict(b"x" * 1000, [3, -1], 1000)
        assert not z.has_dict()


@pytest.mark.parametrize(
    ("pad", "says"),
    [
        (".", r"not str: encode it, pad\.encode\(\)"),
        (0, r"not int: give bytes, such as b'\\0', or for items of several bytes np\.int32"),
        (None, "not NoneType: give bytes"),
        ([1, 2], "not list: give bytes"),
    ],
)
def test_a_pad_that_has_no_bytes(pad: Any, says: str, store_path: Path) -> None:
    with Zrecord(store_path) as z:
        z.append(b"abc", 1, 3)
        with pytest.raises(TypeError, match=r"store\.zr: pad must be bytes or another buffer, " + says):
            z.gather_padded([0], 4, pad)


@pytest.mark.parametrize(
    "pad", [np.int32(7), np.array([7], np.int32), bytearray(b"\7\0\0\0"), memoryview(b"\7\0\0\0")]
)
def test_a_pad_is_any_buffer_and_counts_by_its_bytes(pad: Any, store_path: Path) -> None:
    with Zrecord(store_path) as z:
        z.append(np.array([1, 2], np.int32), 1, 8)
        data, _ = z.gather_padded([0], 16, pad)
        assert data.view(np.int32).tolist() == [[1, 2, 7, 7]]
        with pytest.raises(OptionError, match="its length, here 4, divides"):
            z.gather_padded([0], 18, pad)


def test_a_codec_that_does_not_compress_has_no_level(store_path: Path) -> None:
    with pytest.raises(OptionError, match="level is 1, and codec 'raw' compresses nothing") as caught:
        Zrecord(store_path, "raw", level=1)
    assert (caught.value.option, caught.value.value) == ("level", 1) and not store_path.exists()
    with pytest.raises(OptionError, match="level is 99"):
        Zrecord(store_path, "raw", level=99)
    with Zrecord(store_path, "zstd", level=1) as z:
        z.append(b"abc", 1, 3, "raw")


@pytest.mark.parametrize("codec", ["zstd_shuffle", "zstd_shuffle_dict"])
def test_training_for_numbers_asks_how_large_they_are(codec: Any, store_path: Path) -> None:
    """Samples that are not shuffled would make a dictionary that records which are do not match."""
    numbers = np.arange(20_000, dtype="<i4")
    with Zrecord(store_path, codec) as z:
        with pytest.raises(OptionError, match=rf"store\.zr: codec '{codec}' needs item_size") as caught:
            z.train_dict(numbers, [200] * 400, 1024)
        assert caught.value.option == "item_size" and not z.has_dict()
        assert (
            z.train_dict(numbers, [200] * 400, 1024, item_size=4) == (store_path / "dict.zr").stat().st_size
        )
    with Zrecord(store_path) as z:  # of which nobody knows what the dictionary is for
        z.train_dict(numbers, [200] * 400, 1024)


def test_a_file_is_no_store_in_any_mode(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"abc")
    (tmp_path / "link").symlink_to(tmp_path / "nothing")
    for name in ("file", "link"):
        for mode in ("a", "r"):
            with pytest.raises(
                NotAStoreError, match=rf"{name}: not a Zrecord store: this is not a directory"
            ):
                Zrecord(tmp_path / name, mode=mode)  # type: ignore[arg-type]
    assert (tmp_path / "file").read_bytes() == b"abc"
