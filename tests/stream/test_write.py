"""`Stream.write`: items as records of a store, or of a store for each name."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from loaderx import Dataset, RaggedDataset, Zrecord
from loaderx.errors import (
    DictionaryError,
    NotAStoreError,
    OptionError,
    SchemaError,
    StoreLockedError,
    StreamError,
)
from loaderx.jsonl import JsonlDataset
from loaderx.loader.dataloader import DataLoader
from loaderx.store import files
from loaderx.stream import Stream


def of(*items: Any) -> Stream:
    """Return a stream of items in two shards."""
    half = len(items) // 2
    return Stream.from_shards([items[:half], items[half:]])


def image(i: int) -> np.ndarray[Any, Any]:
    return np.full((2, 3), i, np.uint8)


def sample(i: int) -> dict[str, Any]:
    return {"image": image(i), "label": i % 3, "name": f"a{i}\n", "raw": b"x" * i, "ids": list(range(i % 4))}


def read(path: Path) -> list[Any]:
    """Return all records of a store as Python's values."""
    if (path / "lines.json").exists():
        return list(JsonlDataset(path)[:])
    schema = json.loads((path / "schema.json").read_text())
    if schema.get("ragged"):
        ragged = RaggedDataset(path)
        return [ragged[i].tolist() for i in range(len(ragged))]
    records: list[Any] = Dataset(path)[:].tolist()
    return records


def contents(folder: Path) -> dict[str, Any]:
    """Return the records of all stores below a folder, and the bytes of other files."""
    found: dict[str, Any] = {}
    for path in sorted(folder.rglob("*")):
        if (path / "meta.zr").exists():
            with Zrecord(path, mode="r") as store:
                packed, splits = store.gather_packed(range(len(store)))
                found[str(path)] = packed.tobytes(), splits.tolist()
        elif path.is_file() and not (path.parent / "meta.zr").exists():
            found[str(path)] = path.read_bytes()
    return found


@pytest.mark.parametrize(
    ("items", "kind", "records"),
    [
        pytest.param([1, 2, 3], "array", [1, 2, 3], id="ints"),
        pytest.param([1, 2.5], "array", [1.0, 2.5], id="ints_and_floats"),
        pytest.param([True, False], "array", [True, False], id="bools"),
        pytest.param([np.float32(1), np.float32(2)], "array", [1.0, 2.0], id="scalars"),
        pytest.param([image(1), image(2)], "array", [image(1).tolist(), image(2).tolist()], id="images"),
        pytest.param([[1, 2], [3, 4]], "array", [[1, 2], [3, 4]], id="lists_of_one_length"),
        pytest.param([[1, 2], [3]], "ragged", [[1, 2], [3]], id="lists"),
        pytest.param([[], [1], []], "ragged", [[], [1], []], id="empty_lists"),
        pytest.param([np.ones((2, 2)), np.ones((1, 2))], "ragged", [[[1, 1], [1, 1]], [[1, 1]]], id="rows"),
        pytest.param([b"ab", b"", bytearray(b"c")], "ragged", [[97, 98], [], [99]], id="bytes"),
        pytest.param([{"a": 1}, {"b": None}], "lines", [{"a": 1}, {"b": None}], id="dicts"),
        pytest.param([{"a": np.int64(1)}, {"a": 2}], "columns", None, id="dicts_with_arrays"),
        pytest.param([1, None], "lines", [1, None], id="numbers_and_none"),
        pytest.param([1, True], "lines", [1, True], id="numbers_and_bools"),
        pytest.param([2**64, 1], "lines", [2**64, 1], id="beyond_64_bits"),
        pytest.param([["a"], [1, [2]]], "lines", [["a"], [1, [2]]], id="nested"),
        pytest.param([2**60 + 1, 0.5], "lines", [2**60 + 1, 0.5], id="no_float_holds_it"),
        pytest.param([[2**60 + 1, 0.5]], "lines", [[2**60 + 1, 0.5]], id="no_float_holds_it_in_a_list"),
        pytest.param([-(2**63), 2**63], "lines", [-(2**63), 2**63], id="no_dtype_holds_both"),
        pytest.param([2**63, 1], "array", [2**63, 1], id="uint64"),
        pytest.param([[2**63 + 1, 1], [1, 2]], "array", [[2**63 + 1, 1], [1, 2]], id="uint64_in_lists"),
        pytest.param([1 + 2j, 3.5, 1], "array", [1 + 2j, 3.5 + 0j, 1 + 0j], id="complex"),
    ],
)
def test_what_items_become(tmp_path: Path, items: list[Any], kind: str, records: list[Any]) -> None:
    written = of(*items).write(tmp_path / "a.zr")
    assert (written.kind, written.first, written.records) == (kind, 0, len(items))
    if kind == "columns":
        assert read(tmp_path / "a.zr" / "a.zr") == [1, 2]
    else:
        assert read(tmp_path / "a.zr") == records
        assert written.stores == {}


def test_text_is_stored_as_it_is(tmp_path: Path) -> None:
    texts = ["one", "", "zwei \u00fc \u2028 x", '"quoted"']
    of(*texts).write(tmp_path / "a.zr")
    assert list(JsonlDataset(tmp_path / "a.zr", parse=bytes.decode)[:]) == texts


def test_dtypes_stay(tmp_path: Path) -> None:
    of(np.float16(1), np.float16(2)).write(tmp_path / "a.zr")
    assert Dataset(tmp_path / "a.zr").dtype == np.float16
    of({"a": np.arange(2, dtype=">u4")}, {"a": np.arange(3, dtype=">u4")}).write(tmp_path / "b")
    assert RaggedDataset(tmp_path / "b" / "a.zr").dtype == np.dtype(">u4")


def test_columns(tmp_path: Path) -> None:
    samples = [sample(i) for i in range(50)]
    written = of(*samples).write(tmp_path / "c")
    assert written.kind == "columns"
    assert written.stores == {name: tmp_path / "c" / f"{name}.zr" for name in samples[0]}
    assert sorted(path.name for path in (tmp_path / "c").iterdir()) == sorted(
        f"{name}.zr" for name in samples[0]
    )
    found = {name: read(path) for name, path in written.stores.items()}
    assert found == {
        "image": [item["image"].tolist() for item in samples],
        "label": [item["label"] for item in samples],
        "name": [item["name"] for item in samples],
        "raw": [list(item["raw"]) for item in samples],
        "ids": [item["ids"] for item in samples],
    }
    sizes = [np.dtype(int).itemsize * (1 + i % 4) + 6 + i + len(json.dumps(f"a{i}\n")) for i in range(50)]
    assert written.record_bytes == sum(sizes)


def test_columns_of_a_kind_asked_for(tmp_path: Path) -> None:
    of({"n": 1, "t": "a"}, {"n": 2, "t": "b"}).write(tmp_path / "c", kind="columns")
    assert read(tmp_path / "c" / "n.zr") == [1, 2]
    assert read(tmp_path / "c" / "t.zr") == ["a", "b"]


def test_columns_are_streams_of_a_loader(tmp_path: Path) -> None:
    written = of(*map(sample, range(40))).write(tmp_path / "c")
    streams = {name: Dataset(written.stores[name]) for name in ("image", "label")}
    with DataLoader(streams, num_workers=0, batch_size=8) as loader:
        batch = next(loader)
    assert (batch["image"][:, 0, 0] % 3).tolist() == batch["label"].tolist()


@pytest.mark.parametrize("kind", ["array", "ragged", "lines"])
def test_a_kind_asked_for(tmp_path: Path, kind: Any) -> None:
    of([1, 2], [3, 4]).write(tmp_path / "a.zr", kind=kind)
    assert read(tmp_path / "a.zr") == [[1, 2], [3, 4]]
    assert of([5, 6]).write(tmp_path / "a.zr").kind == kind


@pytest.mark.parametrize("chunk_bytes", [1, 100, 64 << 20])
def test_parts_make_no_difference(tmp_path: Path, chunk_bytes: int) -> None:
    samples = [sample(i) for i in range(60)]
    written = of(*samples).write(tmp_path / "c", chunk_bytes=chunk_bytes)
    assert read(written.stores["ids"]) == [item["ids"] for item in samples]
    assert read(written.stores["image"])[59] == image(59).tolist()
    assert written.records == 60


def test_appending(tmp_path: Path) -> None:
    of(*map(sample, range(10))).write(tmp_path / "c")
    written = of(*map(sample, range(10, 13))).write(tmp_path / "c")
    assert (written.first, written.records) == (10, 3)
    assert read(tmp_path / "c" / "label.zr") == [i % 3 for i in range(13)]
    assert read(tmp_path / "c" / "name.zr") == [f"a{i}\n" for i in range(13)]
    of("a").write(tmp_path / "t.zr")
    assert of("b").write(tmp_path / "t.zr").first == 1
    assert list(JsonlDataset(tmp_path / "t.zr", parse=bytes.decode)[:]) == ["a", "b"]


def test_appending_converts_where_no_value_changes(tmp_path: Path) -> None:
    of(np.float32(1)).write(tmp_path / "a.zr")
    of(2, 3).write(tmp_path / "a.zr")
    assert read(tmp_path / "a.zr") == [1.0, 2.0, 3.0]
    with pytest.raises(SchemaError, match=r"item 0 .*int64 values that float32 does not have"):
        of(2**24 + 1).write(tmp_path / "a.zr")


def test_overwriting(tmp_path: Path) -> None:
    for path, first, second in [
        (tmp_path / "a.zr", of(1, 2), of("x")),
        (tmp_path / "c", of({"a": b"1", "b": b""}), of({"b": b"2", "a": 3})),
    ]:
        first.write(path)
        assert second.write(path, overwrite=True).first == 0
    assert list(JsonlDataset(tmp_path / "a.zr", parse=bytes.decode)[:]) == ["x"]
    assert read(tmp_path / "c" / "a.zr") == [3]
    assert sorted(path.name for path in (tmp_path / "c").iterdir()) == ["a.zr", "b.zr"]


FIRST = {"single": [1, 2], "columns": [{"a": b"1", "b": 2}, {"a": b"3", "b": 4}]}


@pytest.mark.parametrize("way", ["new", "append", "overwrite"])
@pytest.mark.parametrize("kind", ["single", "columns"])
@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_what_breaks_off_leaves_what_was_there(
    tmp_path: Path, way: str, kind: str, error: type[BaseException]
) -> None:
    path = tmp_path / "here" / "a"
    items = FIRST[kind]
    if way != "new":
        of(*items).write(path)
    before = contents(tmp_path)

    def break_off(item: Any, number: int) -> Any:
        if number == 30:
            raise error("broken off")
        return item

    stream = Stream.from_shards([items * 20]).map(break_off, with_index=True)
    with pytest.raises(StreamError if error is ValueError else error, match="broken off"):
        stream.write(path, chunk_bytes=10, overwrite=way == "overwrite")
    assert contents(tmp_path) == before
    assert path.exists() == (way != "new")
    stream = Stream.from_shards([items * 20])
    assert stream.write(path, overwrite=way == "overwrite").records == 40  # and nothing is in its way


def test_columns_are_appended_to_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "c"
    of(*map(sample, range(10))).write(path)
    before = {store.name: len(Zrecord(store, mode="r")) for store in path.iterdir()}
    real, calls = files.write_at, 0

    def fail_late(file: Any, data: Any, at: int) -> Any:
        # The commit of a store is a write of 4 bytes; that of the second one fails.
        nonlocal calls
        if len(data) == 4:
            calls += 1
            if calls == 2:
                raise OSError(28, "No space left on device")
        return real(file, data, at)

    monkeypatch.setattr(files, "write_at", fail_late)
    with pytest.raises(Exception, match="No space left"):
        of(*map(sample, range(10))).write(path)
    monkeypatch.undo()
    assert {store.name: len(Zrecord(store, mode="r")) for store in path.iterdir()} == before


def test_stores_out_of_step_are_not_appended_to(tmp_path: Path) -> None:
    of({"a": b"1", "b": 2}).write(tmp_path / "c")
    of(3).write(tmp_path / "c" / "b.zr")
    with pytest.raises(SchemaError, match=r"stores differ in length .*'a.zr': 1, 'b.zr': 2"):
        of({"a": b"1", "b": 2}).write(tmp_path / "c")


@pytest.mark.parametrize("codec", ["raw", "zstd", "zstd_dict", "zstd_shuffle", "zstd_shuffle_dict", "auto"])
def test_codecs(tmp_path: Path, codec: Any) -> None:
    rng = np.random.default_rng(0)
    arrays = [rng.integers(0, 50, 40).cumsum() for _ in range(400)]
    items = [{"a": array, "t": f"text {i}"} for i, array in enumerate(arrays)]
    written = of(*items).write(tmp_path / "c", codec=codec, chunk_bytes=20_000)
    assert np.array_equal(Dataset(written.stores["a"])[:], np.stack(arrays))
    assert read(written.stores["t"]) == [item["t"] for item in items]
    schema = json.loads((written.stores["a"] / "schema.json").read_text())
    assert schema["codec"] == codec or codec == "auto"


def test_a_dictionary_needs_data(tmp_path: Path) -> None:
    with pytest.raises(DictionaryError):
        of(1, 2).write(tmp_path / "a.zr", codec="zstd_dict")
    assert not (tmp_path / "a.zr").exists()
    assert of("a", "b").write(tmp_path / "a.zr").kind == "lines"  # lines do without where they may


def test_level_is_used(tmp_path: Path) -> None:
    items = [" ".join(f"{i * j % 97} of {j}" for j in range(200)) for i in range(100)]
    for level in (1, 19):
        of(*items).write(tmp_path / f"{level}", codec="zstd", level=level)
    low, high = (Zrecord(tmp_path / f"{level}", mode="r").stats()["live_bytes"] for level in (1, 19))
    assert high < low
    with pytest.raises(OptionError, match="level"):
        of(1).write(tmp_path / "a.zr", codec="raw", level=3)


def test_from_a_state_the_rest_is_written(tmp_path: Path) -> None:
    stream = Stream.from_shards([range(100)]).shuffle(20, seed=1)
    passing = iter(stream)
    seen = [next(passing) for _ in range(37)]
    stream.load_state_dict(json.loads(json.dumps(passing.state_dict())))
    assert stream.write(tmp_path / "a.zr").records == 63
    assert seen + read(tmp_path / "a.zr") == list(stream)


def test_epochs_and_workers(tmp_path: Path) -> None:
    stream = Stream.from_shards([range(50)]).shuffle(20).map(abs, num_workers=2).prefetch(4)
    stream.set_epoch(3)
    expected = list(stream)
    stream.write(tmp_path / "a.zr")
    assert read(tmp_path / "a.zr") == expected


def test_counts(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"a": 1}\n{"a"\n{"a": 2}\n')
    written = Stream.from_jsonl(path, on_error="skip").write(tmp_path / "a.zr")
    assert (written.records, written.counts) == (2, [{"step": "source", "skipped": 1}])


REFUSED = [
    pytest.param(lambda: of(1).repeat(), {}, OptionError, "has no end", id="endless"),
    pytest.param(lambda: of(1, 2).batch(2), {}, OptionError, "items are batches", id="batches"),
    pytest.param(lambda: of(1), {"kind": "arrays"}, OptionError, "kind is 'arrays'", id="kind"),
    pytest.param(lambda: of(1), {"codec": "lz4"}, OptionError, "codec is 'lz4'", id="codec"),
    pytest.param(lambda: of(1), {"chunk_bytes": 0}, OptionError, "chunk_bytes is 0", id="chunk_bytes"),
    pytest.param(lambda: of(1), {"progress": 3}, OptionError, "progress is 3", id="progress"),
    pytest.param(lambda: of(), {}, SchemaError, "gave no item", id="nothing"),
    pytest.param(
        lambda: of(1, "a"), {"kind": "array"}, SchemaError, "make no arrays of one dtype", id="no_array"
    ),
    pytest.param(lambda: of([1], [1, 2]), {"kind": "array"}, SchemaError, "make no arrays", id="no_shape"),
    pytest.param(lambda: of(1, 2), {"kind": "ragged"}, SchemaError, "make no arrays", id="no_rows"),
    pytest.param(lambda: of(1, 2), {"kind": "columns"}, SchemaError, "made of dicts", id="no_dicts"),
    pytest.param(lambda: of({}), {"kind": "columns"}, SchemaError, "no names", id="no_names"),
    pytest.param(lambda: of({1: b""}), {}, SchemaError, "the name 1,", id="name_that_is_a_number"),
    pytest.param(lambda: of({"../a": b""}), {}, SchemaError, "rename it", id="name_with_a_slash"),
    pytest.param(
        lambda: of({"a": b"", "b": 1}, {"a": b""}), {}, SchemaError, "item 1 has no 'b'", id="missing_name"
    ),
    pytest.param(
        lambda: of({"a": b""}, {"a": b"", "c": 1}), {}, SchemaError, r"item 1 has \['c'\]", id="another_name"
    ),
    pytest.param(
        lambda: of({"a": b""}, 3), {"kind": "columns"}, SchemaError, "made of dicts", id="dict_and_not"
    ),
    pytest.param(lambda: of("a\nb"), {}, SchemaError, "has a line end within", id="line_end"),
    pytest.param(lambda: of({"a": float("nan")}), {}, SchemaError, "cannot be a line of JSON", id="nan"),
    pytest.param(
        lambda: of({"a": Decimal(1)}), {}, SchemaError, "type Decimal is nothing that JSON has", id="type"
    ),
    pytest.param(lambda: of("\ud800"), {}, SchemaError, "cannot be a line", id="surrogate"),
    pytest.param(
        lambda: of((image(1), 2)), {}, SchemaError, "type ndarray is nothing", id="tuple_with_an_array"
    ),
    pytest.param(
        lambda: of(np.ma.masked_array([1, 2], [True, False])),
        {},
        SchemaError,
        "lose its mask",
        id="masked",
    ),
    pytest.param(
        lambda: Stream.from_shards([[0] * 2000, [0.5]]), {}, SchemaError, "item 2000 ", id="late_float"
    ),
    pytest.param(
        lambda: Stream.from_shards([[[1]] * 2000, [[1, 2]]]),
        {},
        SchemaError,
        "kind 'ragged' takes",
        id="late_length",
    ),
]


@pytest.mark.parametrize(("make", "options", "error", "message"), REFUSED)
def test_what_is_refused(
    tmp_path: Path, make: Callable[[], Stream], options: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        make().write(tmp_path / "a.zr", **options)
    assert list(tmp_path.iterdir()) == []


def test_an_error_says_which_item_it_is(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"a": 1}\n{"a": 2}\n{"b": 3}\n')
    with pytest.raises(SchemaError, match=rf"item 2 has no 'a'.*\(the item of {path}, byte 18\)"):
        Stream.from_jsonl(path).write(tmp_path / "c", kind="columns")


def test_what_is_there_is_respected(tmp_path: Path) -> None:
    of(1).write(tmp_path / "a.zr")
    of({"a": b"1"}).write(tmp_path / "c")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "notes.txt").write_text("mine")
    before = contents(tmp_path)
    for make, name, options, error, message in [
        (lambda: of({"b": b"1"}), "c", {}, SchemaError, "item 0 has no 'a'"),
        (lambda: of({"b": b"1"}), "c", {"overwrite": True}, NotAStoreError, "holds a.zr, of which"),
        (lambda: of(1), "c", {"overwrite": True}, NotAStoreError, "is a folder of stores, such as a.zr"),
        (lambda: of(1), "c", {"kind": "array"}, SchemaError, "there are records of kind 'columns'"),
        (
            lambda: of({"a": b"1"}),
            "a.zr",
            {"overwrite": True},
            NotAStoreError,
            "is a store, and columns need",
        ),
        (
            lambda: of({"a": b"1"}),
            "other",
            {},
            NotAStoreError,
            "holds other files than stores, such as 'notes.txt'",
        ),
        (lambda: of("a"), "other", {}, NotAStoreError, "notes.txt"),
        (lambda: of({"a": b"1"}), "other/notes.txt", {}, NotAStoreError, "is not a folder"),
    ]:
        with pytest.raises(error, match=message):
            make().write(tmp_path / name, **options)  # type: ignore[operator]
    assert contents(tmp_path) == before


def test_columns_into_an_empty_folder(tmp_path: Path) -> None:
    (tmp_path / "c").mkdir()
    of({"a": b"1"}).write(tmp_path / "c")
    assert [path.name for path in (tmp_path / "c").iterdir()] == ["a.zr"]


def test_memory_is_let_go_of(tmp_path: Path) -> None:
    living = 0

    class Counted:
        def __init__(self) -> None:
            nonlocal living
            living += 1

        def __del__(self) -> None:
            nonlocal living
            living -= 1

        def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray[Any, Any]:
            return np.zeros(100, np.uint8)

    most = 0

    def items() -> Iterator[Counted]:
        nonlocal most
        for _ in range(3000):
            yield Counted()
            most = max(most, living)

    assert Stream.from_generator(items).write(tmp_path / "a.zr", chunk_bytes=1000).records == 3000
    assert most < 1100  # the first 1,024 say what all become


def test_progress(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("loaderx.stream.write._REPORTED_S", 0.0)
    path = tmp_path / "a.txt"
    path.write_text("".join(f"{i:0999}\n" for i in range(3000)))
    told: list[tuple[int, int | None]] = []
    Stream.from_text(path).write(tmp_path / "a.zr", progress=lambda done, total: told.append((done, total)))
    done = [each for each, _ in told]
    assert done == sorted(done)
    assert told[-1] == (999 * 3000, 999 * 3000)
    assert len(set(done)) > 100
    told.clear()
    Stream.from_generator(lambda: range(3000)).write(
        tmp_path / "b.zr", progress=lambda done, total: told.append((done, total))
    )
    assert told[-1] == (24_000, 24_000)  # a pass that has ended is all there is
    assert told[0] == (0, None)


def test_an_item_that_holds_itself(tmp_path: Path) -> None:
    item: dict[str, Any] = {"a": 1}
    item["b"] = item
    with pytest.raises(SchemaError, match=r"cannot be a line of JSON"):
        of(item).write(tmp_path / "a.zr")


# ---- Other writers of the same place ------------------------------------------------------------------------------


def meanwhile(items: list[Any], number: int, action: Callable[[], object]) -> Stream:
    """Return a stream during which something happens, when it comes to an item."""

    def act(item: Any, at: int) -> Any:
        if at == number:
            action()
        return item

    return Stream.from_shards([items]).map(act, with_index=True)


def fail() -> None:
    raise ValueError("broken off")


ROW = {"a": b"x", "b": 1}


def test_what_another_has_appended_is_not_taken_back(tmp_path: Path) -> None:
    path = tmp_path / "c"
    of(ROW).write(path)
    stream = meanwhile([ROW] * 2000, 0, lambda: of(*[ROW] * 20).write(path))
    with pytest.raises(StreamError, match="broken off"):
        stream.map(lambda item, at: fail() if at == 1500 else item, with_index=True).write(
            path, chunk_bytes=10
        )
    assert {store.name: len(Zrecord(store, mode="r")) for store in path.iterdir()} == {"a.zr": 21, "b.zr": 21}


@pytest.mark.parametrize("other", [[ROW], [{"c": b"1"}], [3]])
def test_new_columns_do_not_replace_what_came_meanwhile(tmp_path: Path, other: list[Any]) -> None:
    path = tmp_path / "c"
    stream = meanwhile([ROW] * 2000, 1500, lambda: of(*other).write(path))
    with pytest.raises(NotAStoreError, match="another writer has put stores there meanwhile"):
        stream.write(path, chunk_bytes=10)
    expected = tmp_path / "expected"
    of(*other).write(expected)
    assert list(contents(path).values()) == list(contents(expected).values())
    assert [each.name for each in tmp_path.iterdir() if each.name[0] == "."] == []


def test_a_new_store_does_not_replace_what_came_meanwhile(tmp_path: Path) -> None:
    path = tmp_path / "a.zr"
    stream = meanwhile([1] * 2000, 1500, lambda: of(7).write(path))
    with pytest.raises(NotAStoreError, match="another writer has put something there meanwhile"):
        stream.write(path, chunk_bytes=10)
    assert read(path) == [7]


def test_overwriting_columns_waits_for_their_writer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "c"
    of(ROW).write(path)
    monkeypatch.setattr("loaderx.store.folders._TIMEOUT_S", 0.1)
    with Zrecord(path / "b.zr") as writer:
        writer.append(bytes(8), 1, 8)
        with pytest.raises(StoreLockedError):
            of({"a": b"y", "b": 2}).write(path, overwrite=True)
        assert len(writer) == 2
    assert read(path / "a.zr") == [[120]]
    assert [each.name for each in path.iterdir() if each.name[0] == "."] == []
