"""Who may import whom: the levels of the package, the optional packages, and the environment variables.

`find_violations` reads every import under a package folder, those inside functions too, and names file and line of
each that breaks a rule; the tests apply it to loaderx and to planted mistakes.
"""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

PACKAGE = "loaderx"
ROOT = Path(__file__).resolve().parent.parent / PACKAGE

#: Level of each part: a module imports from lower levels and from its own part only. A part within a part is another
#: part: of several that a module's name begins with it belongs to the longest.
LEVELS = {
    "errors": 0,
    "_env": 0,
    "_starting": 0,
    "_version": 0,
    "_core": 1,
    "store": 2,
    "remote": 2,
    "arrays": 3,
    "jsonl": 3,
    "loader": 4,
    "tokens": 4,
    "shards": 5,
    "stream": 5,
    "jsonl.forager": 5,
    "ray": 6,
    "torch": 6,
    "jax": 6,
    "commands": 6,
    "convert": 6,
    "__main__": 6,
}

#: Siblings that may nevertheless import one another: the entry points are thin covers of `commands`, and a variable
#: that is wrong is an error like any other.
SIBLINGS = {("convert", "commands"), ("__main__", "commands"), ("_env", "errors")}

#: `loaderx/__init__.py` imports parts up to this level at once, higher ones inside `__getattr__` only.
EAGER_LEVEL = 3

#: What pip installs with loaderx; used anywhere, but only NumPy is imported before it is needed.
EAGER_PACKAGES = {"numpy"}
RUNTIME_PACKAGES = {"numpy", "tqdm", "zstandard"}

#: Optional packages, and the parts, or single modules of parts, that may import them.
OPTIONAL_PACKAGES = {
    "obstore": {"remote"},
    "orjson": {"jsonl"},
    # Rows of files become Python's in one module; tables are made of items in the other.
    "pyarrow": {"stream/arrow_rows.py", "stream/formats.py"},
    "datasets": {"stream"},
    # A stream gives its items as tensors or arrays of theirs where with_format asks for it: in this module of it alone,
    # and when it is iterated, so that a stream costs nobody a framework who does not ask for one.
    "torch": {"torch", "stream/formats.py"},
    "jax": {"jax", "stream/formats.py"},
    "ray": {"ray"},
    "ml_dtypes": {"arrays", "commands"},
    "sklearn": {"commands"},
    "tokenizers": {"commands"},
}

#: Known to type checkers only: fit under TYPE_CHECKING.
TYPING_PACKAGES = {"_typeshed"}

#: Adapters that are imported only by someone who has the package: they may import it at their top.
ADAPTERS = {"torch", "jax", "ray"}

#: `_core` knows bytes and indices: no dtypes, no JSON, and never the C interface of NumPy.
CORE_FORBIDS = {"numpy", "json", "zstandard", "tqdm"}

CYTHON_PACKAGES = {"cython", "libc", "cpython", "openmp", "posix"}


@dataclass(frozen=True)
class Import:
    """One import: where it stands, what it names, and whether it runs when its module is imported."""

    file: Path
    line: int
    target: str
    eager: bool


def _absolute(target: str | None, dots: int, module: tuple[str, ...], is_package: bool) -> str:
    if dots == 0:
        return target or ""
    base = module[: len(module) - dots + (1 if is_package else 0)]
    return ".".join([*base, *([target] if target else [])])


def _typing_only(node: ast.If) -> bool:
    return "TYPE_CHECKING" in ast.dump(node.test)


def _python_imports(
    tree: ast.AST, file: Path, module: tuple[str, ...], eager: bool = True
) -> Iterator[Import]:
    is_package = file.name == "__init__.py"
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield Import(file, node.lineno, alias.name, eager)
        elif isinstance(node, ast.ImportFrom):
            target = _absolute(node.module, node.level, module, is_package)
            if (
                target.split(".")[0] == PACKAGE
            ):  # from loaderx import store: what is imported may be a part, too
                for alias in node.names:
                    yield Import(file, node.lineno, f"{target}.{alias.name}", eager)
            else:
                yield Import(file, node.lineno, target, eager)
        elif (
            isinstance(node, ast.Call) and _called(node.func) in ("import_module", "__import__") and node.args
        ):
            argument = node.args[0]
            if isinstance(argument, ast.Constant) and isinstance(argument.value, str):
                dots = len(argument.value) - len(argument.value.lstrip("."))
                yield Import(
                    file, node.lineno, _absolute(argument.value[dots:], dots, module, is_package), eager
                )
            yield from _python_imports(node, file, module, eager)
        else:
            inside = isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda))
            # a body under TYPE_CHECKING never runs, but the levels hold for it all the same
            inside = inside or (isinstance(node, ast.If) and _typing_only(node))
            yield from _python_imports(node, file, module, eager and not inside)


def _called(function: ast.expr) -> str:
    if isinstance(function, ast.Attribute):
        return function.attr
    return function.id if isinstance(function, ast.Name) else ""


_CYTHON_IMPORT = re.compile(
    r"^(?P<indent>[ \t]*)(?:from[ \t]+(?P<source>[\w.]+)[ \t]+(?:cimport|import)[ \t]+(?P<names>[\w ,.*()]*)"
    r"|(?:cimport|import)[ \t]+(?P<targets>[\w., ]+))",
    re.MULTILINE,
)


def _without_strings(text: str) -> str:
    """Blank comments and triple-quoted strings, keeping the line numbers."""
    pattern = r'"""(?:.|\n)*?"""|\'\'\'(?:.|\n)*?\'\'\'|#[^\n]*'
    return re.sub(pattern, lambda found: "\n" * found.group().count("\n"), text)


def _cython_imports(text: str, file: Path, module: tuple[str, ...]) -> Iterator[Import]:
    plain = _without_strings(text)
    for found in _CYTHON_IMPORT.finditer(plain):
        line = plain.count("\n", 0, found.start()) + 1
        eager = not found["indent"]
        if found["targets"]:
            targets = [part.split(" as ")[0].strip() for part in found["targets"].split(",")]
        else:
            source = found["source"]
            dots = len(source) - len(source.lstrip("."))
            source = _absolute(source[dots:], dots, module, False)
            names = [name.strip(" ()") for name in (found["names"] or "").split(",")]
            targets = [f"{PACKAGE}.{name}" for name in names] if source == PACKAGE else [source]
        for target in targets:
            if target:
                yield Import(file, line, target, eager)


def read_imports(root: Path) -> Iterator[Import]:
    """Yield every import of the package's sources."""
    for file in sorted(root.rglob("*")):
        if file.suffix not in (".py", ".pyi", ".pyx", ".pxd", ".pxi"):
            continue
        module = (PACKAGE, *file.relative_to(root).with_suffix("").parts)
        text = file.read_text(encoding="utf-8")
        if file.suffix in (".py", ".pyi"):
            if module[-1] == "__init__":
                module = module[:-1]
            yield from _python_imports(ast.parse(text), file, module)
        else:
            yield from _cython_imports(text, file, module)


def _part(root: Path, file: Path) -> str:
    names = file.relative_to(root).parts
    return _part_of([*names[:-1], names[-1].split(".")[0]])


def _part_of(names: list[str]) -> str:
    """Return the part that a module or a name in it belongs to: the longest in `LEVELS`, or else the first name."""
    beginnings = [".".join(names[:n]) for n in range(len(names), 0, -1)]
    return next((name for name in beginnings if name in LEVELS), names[0])


def _judge(root: Path, found: Import) -> str | None:
    """Return what is wrong with an import, or None."""
    part = _part(root, found.file)
    top, *rest = found.target.split(".")
    level = LEVELS.get(part)
    if part != "__init__" and level is None:
        return f"{part!r} has no level: add it to LEVELS"
    if top == PACKAGE:
        return _judge_own(part, level, _part_of(rest) if rest else "__init__", found.eager)
    if found.file.suffix in (".pyx", ".pxd", ".pxi") and top in CYTHON_PACKAGES:
        return None
    if part == "_core" and top in CORE_FORBIDS:
        return f"_core knows only bytes and indices, and imports {top}"
    if top in OPTIONAL_PACKAGES:
        if not {part, found.file.relative_to(root).as_posix()} & OPTIONAL_PACKAGES[top]:
            return f"{top} belongs to {', '.join(sorted(OPTIONAL_PACKAGES[top]))}, not to {part}"
        if found.eager and part not in ADAPTERS:
            return f"{top} is optional, and imported before it is used"
        return None
    if top in RUNTIME_PACKAGES:
        if found.eager and top not in EAGER_PACKAGES:
            return f"{top} is imported before it is used"
        return None
    if top in sys.stdlib_module_names or (top in TYPING_PACKAGES and not found.eager):
        return None
    return f"{top} is no dependency of {PACKAGE}"


def _judge_own(part: str, level: int | None, target: str, eager: bool) -> str | None:
    if target == part:
        return None
    if target not in LEVELS:
        if level is not None and level > EAGER_LEVEL:
            return None  # a public name: the package stands below this part
        return f"imports {PACKAGE}.{target}, which is no part with a level"
    if part == "__init__":
        if LEVELS[target] > EAGER_LEVEL and eager:
            return f"the package imports {target} of level {LEVELS[target]} at once"
        return None
    assert level is not None
    if LEVELS[target] < level or (part, target) in SIBLINGS:
        return None
    return f"{part} of level {level} imports {target} of level {LEVELS[target]}"


_ENVIRONMENT = re.compile(r"\b(?:environb?|getenvb?|putenv|unsetenv|secure_getenv|setenv)\b")


def _environment_lines(root: Path) -> Iterator[tuple[Path, int]]:
    """Yield each place outside `_env.py` that touches the environment."""
    for file in sorted(root.rglob("*")):
        if file.suffix in (".pyx", ".pxd", ".pxi"):
            lines = _without_strings(file.read_text(encoding="utf-8")).split("\n")
            yield from ((file, number) for number, line in enumerate(lines, 1) if _ENVIRONMENT.search(line))
        elif file.suffix == ".py" and file != root / "_env.py":
            for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
                names: list[str] = []
                if isinstance(node, ast.Attribute):
                    names = [node.attr]
                elif isinstance(node, ast.ImportFrom) and node.module == "os":
                    names = [alias.name for alias in node.names]
                if any(_ENVIRONMENT.fullmatch(name) for name in names):
                    yield file, node.lineno


def find_violations(root: Path) -> list[str]:
    """Return every broken rule as ``file:line: what``."""
    found = []
    for item in read_imports(root):
        fault = _judge(root, item)
        if fault:
            found.append(f"{item.file.relative_to(root.parent)}:{item.line}: {fault}")
    for file, line in _environment_lines(root):
        found.append(f"{file.relative_to(root.parent)}:{line}: only _env.py reads the environment")
    return found


def test_the_package_keeps_its_levels() -> None:
    assert (ROOT / "__init__.py").is_file()
    assert len(list(read_imports(ROOT))) > 20
    violations = find_violations(ROOT)
    assert not violations, "\n" + "\n".join(violations)


def test_every_part_has_a_level() -> None:
    parts = {
        _part(ROOT, file)
        for file in ROOT.rglob("*")
        if file.suffix in (".py", ".pyx") and file.parent != ROOT
    }
    parts |= {file.stem for file in ROOT.glob("*.py")} - {"__init__"}
    assert parts - LEVELS.keys() == set()
    assert {"errors", "_core", "store", "arrays"} <= parts


PLANTED = [
    pytest.param("store/zrecord.py", "import os\nfrom loaderx.arrays import dataset", 2, "imports arrays", id="up"),
    pytest.param("store/zrecord.py", "from loaderx import arrays", 1, "imports arrays", id="from_package"),
    pytest.param("store/zrecord.py", "from ..arrays.dataset import Dataset", 1, "imports arrays", id="relative"),
    pytest.param("store/zrecord.py", "def f():\n    import loaderx.loader", 2, "imports loader", id="in_function"),
    pytest.param("store/zrecord.py", "class A:\n    def f(self):\n        from loaderx.loader import x", 3, "loader",
                 id="in_method"),
    pytest.param("store/zrecord.py", "import importlib\nimportlib.import_module('loaderx.arrays')", 2,
                 "imports arrays", id="import_module"),
    pytest.param("store/zrecord.py", "try:\n    import numpy\nexcept ImportError:\n    import loaderx.arrays", 4,
                 "imports arrays", id="in_except"),
    pytest.param("store/zrecord.py", "from loaderx import Zrecord", 1, "no part with a level", id="public_name"),
    pytest.param("store/zrecord.py", "from loaderx.remote import ranges", 1, "imports remote", id="sibling"),
    pytest.param("arrays/dataset.py", "from loaderx.jsonl import index", 1, "imports jsonl", id="sibling_of_arrays"),
    pytest.param("errors.py", "from loaderx._env import x", 1, "imports _env", id="sibling_of_errors"),
    pytest.param("_core/gather.pyx", "cimport cython\nfrom loaderx.store.format cimport x", 2, "imports store",
                 id="cimport"),
    pytest.param("_core/gather.pyx", "def f():\n    from loaderx.store import x", 2, "imports store", id="pyx_import"),
    pytest.param("_core/gather.pyx", "cimport numpy as cnp", 1, "imports numpy", id="numpy_c_api"),
    pytest.param("_core/build_info.py", "import json", 1, "imports json", id="json_in_core"),
    pytest.param("_core/gather.pyi", "from loaderx.arrays import x", 1, "imports arrays", id="stub"),
    pytest.param("__init__.py", "from loaderx.loader import DataLoader", 1, "imports loader of level 4", id="eager"),
    pytest.param("arrays/dtypes.py", "import ml_dtypes", 1, "before it is used", id="optional_at_top"),
    pytest.param("arrays/dtypes.py", "if True:\n    import ml_dtypes", 2, "before it is used", id="optional_in_if"),
    pytest.param("arrays/dtypes.py", "def f():\n    import torch", 2, "torch belongs to stream/formats.py, torch",
                 id="foreign_optional"),
    pytest.param("stream/map.py", "def f():\n    import torch", 2, "torch belongs to stream/formats.py, torch",
                 id="foreign_module"),
    pytest.param("stream/formats.py", "import jax.numpy", 1, "before it is used", id="optional_at_top_of_its_module"),
    pytest.param("stream/origins.py", "def f():\n    import pyarrow.parquet", 2, "pyarrow belongs to",
                 id="foreign_module_within"),
    pytest.param("loader/steps.py", "def f():\n    import jax", 2, "jax belongs to", id="foreign_part"),
    pytest.param("arrays/write.py", "import tqdm", 1, "before it is used", id="tqdm_at_top"),
    pytest.param("arrays/write.py", "def f():\n    import pandas", 2, "no dependency", id="no_dependency"),
    pytest.param("arrays/write.py", "import os\nx = os.environ", 2, "only _env.py", id="environ"),
    pytest.param("arrays/write.py", "import os\nx = os.getenv('LOADERX_X')", 2, "only _env.py", id="getenv"),
    pytest.param("arrays/write.py", "from os import environ", 1, "only _env.py", id="from_os_import"),
    pytest.param("_core/threads.pyx", "from libc.stdlib cimport free, getenv", 1, "only _env.py", id="c_getenv"),
    pytest.param("arrays/write.py", "import _typeshed", 1, "no dependency", id="typing_only"),
    pytest.param("jsonl/dataset.py", "from loaderx.jsonl import forager", 1,
                 "jsonl of level 3 imports jsonl.forager of level 5", id="part_within"),
    pytest.param("jsonl/dataset.py", "from . import forager", 1, "imports jsonl.forager", id="part_within_relative"),
    pytest.param("jsonl/dataset.py", "import loaderx.jsonl.forager.datasets", 1, "imports jsonl.forager",
                 id="module_of_part_within"),
    pytest.param("tokens/dataset.py", "from loaderx.jsonl.forager import x", 1, "imports jsonl.forager",
                 id="part_within_another"),
    pytest.param("jsonl/forager.py", "from loaderx.stream import x", 1, "jsonl.forager of level 5 imports stream",
                 id="out_of_part_within"),
    pytest.param("jsonl/forager/datasets.py", "from loaderx.commands import x", 1, "imports commands",
                 id="out_of_folder_within"),
    pytest.param("helpers.py", "import os", 1, "has no level", id="unknown_part"),
]  # fmt: skip


def _plant(folder: Path, name: str, text: str) -> Path:
    root = folder / PACKAGE
    (root / name).parent.mkdir(parents=True, exist_ok=True)
    (root / name).write_text(text + "\n", encoding="utf-8")
    return root


@pytest.mark.parametrize(("name", "text", "line", "words"), PLANTED)
def test_a_planted_violation_is_found(name: str, text: str, line: int, words: str, tmp_path: Path) -> None:
    root = _plant(tmp_path, name, text)
    violations = find_violations(root)
    assert len(violations) == 1, violations
    assert violations[0].startswith(f"{PACKAGE}/{name}:{line}: ")
    assert words in violations[0]


ALLOWED = [
    (
        "arrays/dataset.py",
        "import numpy as np\nfrom loaderx.errors import X\nfrom loaderx.store.zrecord import Y",
    ),
    ("arrays/dtypes.py", "def f():\n    import ml_dtypes"),
    ("arrays/schema.py", "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from _typeshed import x"),
    ("arrays/write.py", "def f():\n    from tqdm import tqdm"),
    (
        "arrays/ragged.py",
        "from loaderx.arrays import indexing\nfrom . import padding\nfrom .schema import read",
    ),
    (
        "_core/gather.pyx",
        '"""\nimport loaderx.store\n"""\ncimport openmp\n# import numpy\nfrom libc.stdlib cimport free',
    ),
    ("_env.py", "import os\nx = os.environ.get('LOADERX_X')"),
    ("__main__.py", "from loaderx.commands import info\nfrom loaderx.arrays import x"),
    ("convert.py", "from loaderx.commands.convert import main"),
    ("commands/info.py", "from loaderx import Dataset, errors"),
    (
        "stream/formats.py",
        "def f():\n    import torch\n    import jax.numpy\n    import pyarrow\nfrom loaderx.errors import X",
    ),
    ("torch.py", "import torch\nfrom loaderx.loader import DataLoader"),
    ("jsonl/forager.py", "from loaderx.jsonl import build_index\nfrom loaderx.tokens.dataset import T"),
    (
        "jsonl/forager/tokens.py",
        "from loaderx.jsonl.forager.datasets import D\nfrom . import aux\nfrom .. import walk",
    ),
    (
        "__init__.py",
        "from loaderx.arrays.dataset import D\ndef __getattr__(name):\n    from loaderx.loader import L",
    ),
]


@pytest.mark.parametrize(("name", "text"), ALLOWED, ids=[name for name, _ in ALLOWED])
def test_what_is_allowed_is_not_reported(name: str, text: str, tmp_path: Path) -> None:
    root = _plant(tmp_path, name, text)
    assert find_violations(root) == []
    assert list(read_imports(root)) != []


# --- what `import loaderx` itself brings in ------------------------------------------------------------------------

#: Standard modules that take milliseconds, or start machinery: none is needed to read a store.
HEAVY = {
    "argparse", "asyncio", "concurrent", "ctypes", "doctest", "email", "http", "logging", "multiprocessing", "pydoc",
    "sqlite3", "ssl", "subprocess", "tkinter", "unittest", "urllib.request", "xml", "zipfile",
}  # fmt: skip


def _modules_after(statement: str) -> set[str]:
    code = f"{statement}; import sys, json; print(json.dumps(sorted(sys.modules)))"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(json.loads(run.stdout))


def test_import_brings_in_nothing_heavy() -> None:
    new = _modules_after("import numpy, loaderx") - _modules_after("import numpy")
    assert "loaderx" in new
    foreign = {name.split(".")[0] for name in new} - set(sys.stdlib_module_names) - {PACKAGE, "numpy"}
    # cython_runtime and _cython_x_y_z are made by the extension modules themselves
    foreign = {name for name in foreign if not re.fullmatch(r"_?cython_\w+", name)}
    assert foreign == set()
    assert {name for name in new for heavy in HEAVY if name == heavy or name.startswith(heavy + ".")} == set()


def test_import_leaves_the_higher_levels_alone() -> None:
    new = _modules_after("import loaderx")
    own = {_part_of(name.split(".")[1:]) for name in new if name.startswith(PACKAGE + ".")}
    assert {part for part in own if LEVELS[part] > EAGER_LEVEL} == set()
    assert {"errors", "store", "arrays"} <= own
