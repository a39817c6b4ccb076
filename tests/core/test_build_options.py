"""setup.py: the variables it reads, the order in which it looks for zstd, and what its errors say."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def setup_py() -> ModuleType:
    """Return setup.py as a module; it calls setup() only when it is run."""
    spec = importlib.util.spec_from_file_location("loaderx_setup", ROOT / "setup.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    # dataclasses look their module up there
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(autouse=True)
def plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Start without any variable that setup.py reads."""
    for name in ("LOADERX_ZSTD", "LOADERX_ZSTD_PREFIX", "LOADERX_OPENMP", "CFLAGS", "PKG_CONFIG"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def compiler() -> SimpleNamespace:
    """Return what setup.py uses of a setuptools compiler object."""
    return SimpleNamespace(compiler_so=["cc", "-fPIC"], linker_exe=["cc"])


@pytest.fixture
def compiler_without_openmp(tmp_path: Path) -> SimpleNamespace:
    """Return a compiler that refuses -fopenmp with twenty lines."""
    script = tmp_path / "cc"
    lines = "for n in $(seq 20); do echo line $n; done"
    script.write_text(f'#!/bin/sh\ncase "$*" in *-fopenmp*) {lines}; exit 1;; esac\nexec cc "$@"\n')
    script.chmod(0o755)
    return SimpleNamespace(compiler_so=[str(script), "-fPIC"], linker_exe=[str(script)])


def make_zstd(prefix: Path, version: str) -> Path:
    """Install something under `prefix` that answers as libzstd does to the questions of setup.py."""
    (prefix / "include").mkdir(parents=True)
    (prefix / "lib").mkdir()
    (prefix / "include" / "zstd.h").write_text("const char* ZSTD_versionString(void);\n")
    (prefix / "include" / "zdict.h").write_text("#include <stddef.h>\nunsigned ZDICT_isError(size_t code);\n")
    source = prefix / "zstd.c"
    source.write_text(
        f'const char* ZSTD_versionString(void) {{ return "{version}"; }}\n'
        "unsigned ZDICT_isError(unsigned long code) { return code != 0; }\n"
    )
    library = prefix / "lib" / "libzstd.so"
    subprocess.run(["cc", "-shared", "-fPIC", str(source), "-o", str(library)], check=True)
    return prefix


def make_pkg_config(folder: Path, answer: str) -> Path:
    """Make a pkg-config that answers every question with `answer`."""
    script = folder / "pkg-config"
    script.write_text(f"#!/bin/sh\n{answer}\n")
    script.chmod(0o755)
    return script


def test_every_module_is_listed(setup_py: ModuleType) -> None:
    assert {path.stem for path in (ROOT / "loaderx" / "_core").glob("*.pyx")} == set(setup_py.MODULES)


def test_options_by_default(setup_py: ModuleType) -> None:
    assert setup_py.read_options() == ("auto", None, "auto")


def test_options_as_given(setup_py: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOADERX_ZSTD", "system")
    monkeypatch.setenv("LOADERX_ZSTD_PREFIX", "somewhere")
    monkeypatch.setenv("LOADERX_OPENMP", "require")
    assert setup_py.read_options() == ("system", Path("somewhere"), "require")


@pytest.mark.parametrize(
    ("variables", "words"),
    [
        ({"LOADERX_ZSTD": "static"}, ["LOADERX_ZSTD=static", "system", "bundled"]),
        ({"LOADERX_OPENMP": "yes"}, ["LOADERX_OPENMP=yes", "require", "off"]),
        (
            {"LOADERX_ZSTD": "bundled", "LOADERX_ZSTD_PREFIX": "somewhere"},
            ["LOADERX_ZSTD=bundled", "LOADERX_ZSTD_PREFIX=somewhere", "contradict", "unset one"],
        ),
    ],
)
def test_options_refused(
    setup_py: ModuleType, monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], words: list[str]
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(setup_py.BuildError) as caught:
        setup_py.read_options()
    assert all(word in str(caught.value) for word in words)


@pytest.mark.parametrize(
    ("given", "flags"),
    [("", ["-O3", "-g0"]), ("-g", ["-O3"]), ("-O1 -fno-inline", ["-g0"]), ("-Og -ggdb", [])],
)
def test_cflags_win(
    setup_py: ModuleType, monkeypatch: pytest.MonkeyPatch, given: str, flags: list[str]
) -> None:
    monkeypatch.setenv("CFLAGS", given)
    assert setup_py.optimisation_flags() == flags


def test_refusal_is_one_message_without_traceback(tmp_path: Path) -> None:
    command = [sys.executable, "setup.py", "-q", "build_ext", "-b", str(tmp_path), "-t", str(tmp_path)]
    done = subprocess.run(
        command,
        cwd=ROOT,
        env=os.environ | {"LOADERX_ZSTD": "none"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert "loaderx cannot be built." in done.stderr
    assert "LOADERX_ZSTD=none" in done.stderr
    assert "Traceback" not in done.stderr


class TestTools:
    """Compiler and other programs."""

    def test_failure_carries_the_last_lines(self, setup_py: ModuleType) -> None:
        program = "print('\\n'.join(f'line {n}.' for n in range(40))); raise SystemExit(3)"
        with pytest.raises(setup_py.BuildError) as caught:
            setup_py.run_tool([sys.executable, "-c", program], "counting", "count less")
        text = str(caught.value)
        assert "counting" in text and "exit code 3" in text and "To mend it: count less." in text
        assert "line 39." in text and "line 25." in text and "line 24." not in text

    def test_program_that_is_absent(self, setup_py: ModuleType, tmp_path: Path) -> None:
        with pytest.raises(setup_py.BuildError, match="could not be run"):
            setup_py.run_tool([str(tmp_path / "nothing")], "running nothing")

    def test_no_cython(
        self, setup_py: ModuleType, compiler: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(setup_py.importlib.util, "find_spec", lambda name: None)
        with pytest.raises(setup_py.BuildError, match=r"Cython is not installed\nTo mend it: "):
            setup_py.check_toolchain(compiler)

    def test_no_compiler(self, setup_py: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(setup_py.importlib.util, "find_spec", lambda name: True)
        with pytest.raises(setup_py.BuildError, match=r"no C compiler.*\nTo mend it: install one"):
            setup_py.check_toolchain(SimpleNamespace(compiler_so=[str(tmp_path / "cc")]))

    def test_no_headers(
        self, setup_py: ModuleType, compiler: SimpleNamespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(setup_py.importlib.util, "find_spec", lambda name: True)
        monkeypatch.setattr(setup_py.sysconfig, "get_path", lambda name: str(tmp_path))
        with pytest.raises(setup_py.BuildError, match=r"Python\.h\nTo mend it: install them"):
            setup_py.check_toolchain(compiler)


class TestPrefix:
    """LOADERX_ZSTD_PREFIX."""

    def test_missing_is_an_error(
        self, setup_py: ModuleType, compiler: SimpleNamespace, tmp_path: Path
    ) -> None:
        with pytest.raises(setup_py.BuildError) as caught:
            setup_py.find_zstd(compiler, "auto", tmp_path / "absent", tmp_path / "work")
        text = str(caught.value)
        for word in ("LOADERX_ZSTD_PREFIX=", "absent/include/zstd.h", "absent/lib/libzstd.*", "To mend it:"):
            assert word in text
        assert not (tmp_path / "work").exists()

    def test_is_used_first(self, setup_py: ModuleType, compiler: SimpleNamespace, tmp_path: Path) -> None:
        prefix = make_zstd(tmp_path / "zstd", "1.5.9")
        zstd = setup_py.find_zstd(compiler, "auto", prefix, tmp_path / "work")
        assert (zstd.source, zstd.version) == ("prefix", "1.5.9")
        assert f"-Wl,-rpath,{prefix / 'lib'}" in zstd.link_args

    def test_too_old(self, setup_py: ModuleType, compiler: SimpleNamespace, tmp_path: Path) -> None:
        prefix = make_zstd(tmp_path / "zstd", "1.4.9")
        with pytest.raises(setup_py.BuildError, match=r"libzstd 1\.4\.9 is too old, 1\.5\.0 or newer"):
            setup_py.find_zstd(compiler, "auto", prefix, tmp_path / "work")


class TestSystem:
    """pkg-config, and what follows when it finds nothing."""

    @pytest.mark.parametrize("version", ["1.4.10", "0.9.9"])
    def test_too_old(
        self,
        setup_py: ModuleType,
        compiler: SimpleNamespace,
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
        version: str,
    ) -> None:
        monkeypatch.setenv("PKG_CONFIG", str(make_pkg_config(tmp_path, f"echo {version}")))
        with pytest.raises(setup_py.BuildError) as caught:
            setup_py.find_zstd(compiler, "system", None, tmp_path)
        assert f"libzstd {version} is too old" in str(caught.value)
        assert "unset LOADERX_ZSTD" in str(caught.value)

    def test_described_but_unusable(
        self, setup_py: ModuleType, compiler: SimpleNamespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        answer = (
            'case "$1" in --cflags) echo -I/nowhere;; --libs) echo -lnot_there_either;; *) echo 1.5.9;; esac'
        )
        monkeypatch.setenv("PKG_CONFIG", str(make_pkg_config(tmp_path, answer)))
        with pytest.raises(setup_py.BuildError, match="zstd from the system: cc failed"):
            setup_py.find_zstd(compiler, "system", None, tmp_path)

    def test_found(
        self, setup_py: ModuleType, compiler: SimpleNamespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        prefix = make_zstd(tmp_path / "zstd", "1.5.9")
        libs = f"-L{prefix}/lib -lzstd -Wl,-rpath,{prefix}/lib"
        answer = (
            f'case "$1" in --cflags) echo -I{prefix}/include;; --libs) echo "{libs}";; *) echo 1.5.9;; esac'
        )
        monkeypatch.setenv("PKG_CONFIG", str(make_pkg_config(tmp_path, answer)))
        zstd = setup_py.find_zstd(compiler, "auto", None, tmp_path)
        assert (zstd.source, zstd.version, zstd.objects) == ("system", "1.5.9", [])

    def test_nothing_found_falls_back(
        self, setup_py: ModuleType, compiler: SimpleNamespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("PKG_CONFIG", str(tmp_path / "no-pkg-config"))
        monkeypatch.setattr(setup_py, "build_bundled_zstd", lambda compiler, folder: ("bundled", folder))
        assert setup_py.find_zstd(compiler, "auto", None, tmp_path) == ("bundled", tmp_path)

    def test_bundled_does_not_ask_the_system(
        self, setup_py: ModuleType, compiler: SimpleNamespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv(
            "PKG_CONFIG", str(make_pkg_config(tmp_path, f"touch {tmp_path}/asked; echo 1.5.9"))
        )
        monkeypatch.setattr(setup_py, "build_bundled_zstd", lambda compiler, folder: "bundled")
        assert setup_py.find_zstd(compiler, "bundled", None, tmp_path) == "bundled"
        assert not (tmp_path / "asked").exists()

    def test_neither_names_both(
        self, setup_py: ModuleType, compiler: SimpleNamespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("PKG_CONFIG", str(tmp_path / "no-pkg-config"))
        for name, value in {"PIP_NO_INDEX": "1", "PIP_CONFIG_FILE": os.devnull, "PIP_FIND_LINKS": ""}.items():
            monkeypatch.setenv(name, value)
        with pytest.raises(setup_py.BuildError) as caught:
            setup_py.find_zstd(compiler, "auto", None, tmp_path / "work")
        text = str(caught.value)
        for word in ("no-pkg-config could not be run", "fetching the zstd source", "| ERROR:", "To mend it:"):
            assert word in text


class TestOpenmp:
    """The probe and LOADERX_OPENMP."""

    def test_off(self, setup_py: ModuleType, compiler: SimpleNamespace) -> None:
        assert setup_py.find_openmp(compiler, "off") == (None, "switched off by LOADERX_OPENMP=off")

    def test_absent(self, setup_py: ModuleType, compiler_without_openmp: SimpleNamespace) -> None:
        date, why_not = setup_py.find_openmp(compiler_without_openmp, "auto")
        assert date is None
        assert "line 20" in why_not

    def test_required(self, setup_py: ModuleType, compiler_without_openmp: SimpleNamespace) -> None:
        with pytest.raises(setup_py.BuildError, match=r"LOADERX_OPENMP=require(.|\n)*line 20\nTo mend it: "):
            setup_py.find_openmp(compiler_without_openmp, "require")


@pytest.mark.parametrize(
    ("module", "openmp", "has_zstd", "has_openmp"),
    [
        ("maps", "201511", False, False),
        ("checksum", "201511", False, True),
        ("gather", "201511", True, True),
        ("gather", None, True, False),
    ],
)
def test_flags_of_a_module(
    setup_py: ModuleType, module: str, openmp: str | None, has_zstd: bool, has_openmp: bool
) -> None:
    zstd = setup_py.Zstd("system", "1.5.9", ["-Izstd"], ["-lzstd"])
    extension = next(found for found in setup_py.list_extensions() if found.name.endswith(f".{module}"))
    setup_py.configure_extension(extension, zstd, openmp)
    macros = dict(extension.define_macros)
    assert macros.get("LOADERX_ZSTD_SOURCE") == ('"system"' if has_zstd else None)
    assert ("-lzstd" in extension.extra_link_args) == has_zstd
    assert ("-fopenmp" in extension.extra_compile_args) == has_openmp
    assert ("-fopenmp" in extension.extra_link_args) == has_openmp
    assert not any(flag.startswith("-march") for flag in extension.extra_compile_args)
