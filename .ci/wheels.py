"""Make a built wheel fit to be given away, and check that it is.

The zstd licence is put in by setup.py, which is what links zstd. libgomp comes in later, when auditwheel
copies it beside the modules, so its licence is added here, right after: an unrepaired wheel has no libgomp.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from runner import Log, must, say

LIBGOMP_LICENCES = Path(__file__).parent / "licences" / "libgomp"
OPENMP_MODULES = ("gather", "survey", "compress", "checksum", "ranges")


def repair_wheel(wheel: Path, folder: Path, python: Path, env: dict[str, str]) -> Path:
    """Return the wheel that auditwheel makes of `wheel`, with libgomp and its licence inside."""
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        must([str(python), "-m", "auditwheel", "repair", str(wheel), "-w", scratch], env=env)
        (repaired,) = Path(scratch).glob("*.whl")
        must([str(python), "-m", "wheel", "unpack", str(repaired), "-d", scratch], env=env)
        (tree,) = (path for path in Path(scratch).iterdir() if path.is_dir())
        if any(tree.glob("*.libs/libgomp*")):
            add_licences(tree, "libgomp", LIBGOMP_LICENCES)
        target = folder / "repaired"
        target.mkdir()
        must([str(python), "-m", "wheel", "pack", str(tree), "-d", str(target)], env=env)
    (packed,) = target.glob("*.whl")
    return packed


def add_licences(tree: Path, name: str, licences: Path) -> None:
    """Put the files of `licences` into an unpacked wheel's licence folder and name them in its metadata."""
    (info,) = tree.glob("*.dist-info")
    target = info / "licenses" / name
    target.mkdir(parents=True)
    lines = ""
    for licence in sorted(licences.iterdir()):
        (target / licence.name).write_bytes(licence.read_bytes())
        lines += f"License-File: {name}/{licence.name}\n"
    metadata = info / "METADATA"
    own = "License-File: LICENSE\n"
    metadata.write_text(metadata.read_text("utf-8").replace(own, own + lines, 1), "utf-8")


def needed_libraries(library: Path) -> list[str]:
    """Return the shared libraries that an ELF file asks for."""
    dynamic = subprocess.run(
        ["readelf", "-dW", str(library)], capture_output=True, text=True, check=True
    ).stdout
    return re.findall(r"\(NEEDED\)\s+Shared library: \[(.+?)\]", dynamic)


def exported_functions(library: Path) -> list[str]:
    """Return the functions that an ELF file defines for others."""
    table = subprocess.run(
        ["readelf", "--dyn-syms", "-W", str(library)], capture_output=True, text=True, check=True
    )
    rows = [line.split() for line in table.stdout.splitlines()]
    return [row[7] for row in rows if len(row) > 7 and row[3] == "FUNC" and row[6] != "UND"]


def check_wheel(log: Log, wheel: Path, folder: Path) -> None:
    """Check tag, modules, libraries and licences of a repaired wheel."""
    log.check("one wheel for every CPython from 3.11 on", "-cp311-abi3-manylinux" in wheel.name, wheel.name)
    tree = folder / "unpacked"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tree)
        for info in archive.infolist():
            say(f"{info.file_size:>9} {info.filename}")
    modules = {path.name.split(".")[0]: path for path in (tree / "loaderx" / "_core").glob("*.so")}
    say(f"modules: {', '.join(sorted(modules))}")
    for name, path in sorted(modules.items()):
        needed = needed_libraries(path)
        log.check(
            f"{name} asks for no libzstd", not any("zstd" in library for library in needed), " ".join(needed)
        )
        exported = exported_functions(path)
        log.check(
            f"{name} exports its init function only", exported == [f"PyInit_{name}"], " ".join(exported[:5])
        )
    for name in OPENMP_MODULES:
        needed = needed_libraries(modules[name]) if name in modules else []
        inside = [
            library
            for library in needed
            if library.startswith("libgomp") and any(tree.glob(f"*.libs/{library}"))
        ]
        log.check(f"{name} uses the OpenMP inside the wheel", bool(inside), " ".join(inside))
    (info_folder,) = tree.glob("*.dist-info")
    metadata = (info_folder / "METADATA").read_text("utf-8")
    for licence, words in {
        "LICENSE": "MIT License",
        "zstd/LICENSE": "BSD License",
        "libgomp/COPYING3": "GNU GENERAL PUBLIC LICENSE",
        "libgomp/COPYING.RUNTIME": "GCC RUNTIME LIBRARY EXCEPTION",
    }.items():
        path = info_folder / "licenses" / licence
        good = (
            path.is_file() and words in path.read_text("utf-8") and f"License-File: {licence}\n" in metadata
        )
        log.check(f"the wheel holds and names the licence {licence}", good)
    sources = [path.name for path in tree.rglob("*") if path.suffix in {".pyx", ".c", ".h"}]
    log.check("no sources in the wheel", not sources, " ".join(sources))
    for name in ("loaderx/py.typed", "loaderx/_core/gather.pyi"):
        log.check(f"the wheel holds {name}", (tree / name).is_file())


if __name__ == "__main__":
    sys.exit("this is a part of .ci/run")
