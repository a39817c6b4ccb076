"""The stages of .ci/run. Each works on a fresh copy of the tree and relies on nothing installed by hand."""

from __future__ import annotations

import functools
import hashlib
import itertools
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from runner import Log, Stage, StageError, execute, must, run_stages, say
from wheels import check_wheel, repair_wheel

ROOT = Path(__file__).resolve().parent.parent
TORCH_PYTHON = (3, 11)
MATRIX_CASES = 48

# Tests that need more than `.[test]`; with --require=all the absence of what they need is a failure.
BEYOND_TEST_EXTRA = (
    "needs_peer or needs_network or needs_torch or needs_jax or needs_ray or needs_cold_files or needs_open_files"
    " or needs_bounds or needs_tokenizers or needs_kjv or needs_pyarrow"
)

# Imports the named modules in this order, then lets each do some work beside the others.
NEIGHBOURS_PROGRAM = """
import importlib, sys, tempfile
for name in sys.argv[1:]:
    importlib.import_module(name)
import numpy as np, pyarrow, torch, zstandard
import loaderx
array = np.random.default_rng(0).integers(0, 9, (2048, 4096), dtype=np.uint8)
index = np.random.default_rng(1).integers(0, 2048, 1024)
with tempfile.TemporaryDirectory() as folder:
    for codec in ("raw", "zstd"):
        loaderx.write_dataset(f"{folder}/{codec}.zr", array, codec, progress=False)
        with loaderx.Dataset(f"{folder}/{codec}.zr", threads=2) as dataset:
            for _ in range(3):
                assert (dataset.__getitems__(index) == array[index]).all()
                assert (torch.ones(300, 300) @ torch.ones(300, 300)).sum() == 300**3
data = array.tobytes()
assert zstandard.decompress(zstandard.compress(data)) == data
assert pyarrow.decompress(pyarrow.compress(data, "zstd"), len(data), "zstd").to_pybytes() == data
"""


@dataclass(frozen=True)
class Interpreter:
    """A CPython that is present here."""

    path: Path
    version: tuple[int, int, int]

    @property
    def name(self) -> str:
        return ".".join(map(str, self.version))


class Pipeline:
    """The stages, and the folders they hand on to each other under `work`, which is removed at the end."""

    def __init__(self, work: Path) -> None:
        self.work = work
        self.interpreters = find_interpreters()
        self.main = self.interpreters[0]
        self.wheel: Path | None = None
        scratch = work / "tmp"
        scratch.mkdir()
        # Tests that drop root's rights walk through these folders as somebody else.
        work.chmod(0o755)
        scratch.chmod(0o1777)
        kept = {
            name: value for name, value in os.environ.items() if not name.startswith(("LOADERX_", "PYTEST_"))
        }
        for name in ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "CFLAGS", "PKG_CONFIG_PATH"):
            kept.pop(name, None)
        settings = {"CI": "true", "LOADERX_OPENMP": "require", "TMPDIR": str(scratch)}
        settings |= {"PIP_NO_INPUT": "1", "PIP_DISABLE_PIP_VERSION_CHECK": "1", "PYTHONUNBUFFERED": "1"}
        self.env = kept | settings

    def stages(self) -> list[Stage]:
        """Return the stages in order: the general first, the special last; two run at a time, not both in "readme"."""
        stages = [
            Stage("system", self.prepare_system),
            Stage("readme-1", self.run_readme_first, ("system",), "readme"),
            Stage("readme-2", self.run_readme_second, ("readme-1",), "readme"),
            Stage("style", self.check_style, ("readme-1",), "readme"),
            Stage("types", self.check_types, ("readme-2",), "readme"),
            Stage("docs", self.build_docs, ("readme-1",), "readme"),
            Stage("peers", self.run_peers, ("readme-2",), "readme"),
            Stage("bundled", self.run_bundled),
            Stage("fallback", self.run_fallback, ("bundled",)),
            Stage("one-thread", self.run_one_thread, ("system",)),
            Stage("wheel", self.build_wheel),
        ]
        for interpreter in self.interpreters:
            test = functools.partial(self.test_wheel, interpreter)
            stages.append(Stage(f"wheel-{interpreter.name}", test, ("wheel",)))
        stages.append(Stage("neighbours", self.run_neighbours, ("wheel",)))
        return stages

    # ---- Tools ---------------------------------------------------------------------------------------------

    def copy_tree(self, name: str) -> Path:
        """Return a fresh copy of what git tracks, and of what it would track."""
        target = self.work / name
        command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
        listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
        for path in filter(None, listed.split("\0")):
            if (ROOT / path).is_file():
                (target / path).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / path, target / path)
        return target

    def make_venv(self, name: str, interpreter: Interpreter | None = None) -> dict[str, str]:
        """Make a virtual environment and return the variables of a shell in which it is active."""
        folder = self.work / name
        must([str((interpreter or self.main).path), "-m", "venv", str(folder)], env=self.env)
        return self.env | {
            "VIRTUAL_ENV": str(folder),
            "PATH": f"{folder / 'bin'}{os.pathsep}{self.env['PATH']}",
        }

    def check_build(
        self, log: Log, env: dict[str, str], source: str, folder: Path, openmp: bool = True
    ) -> None:
        """Check what the package says it was built with."""
        program = "import loaderx, json; print(json.dumps(loaderx.build_info()))"
        output = must([python_of(env), "-c", program], env=env, cwd=folder)
        log.check(f"zstd comes from: {source}", f'"zstd_source": "{source}"' in output, output.strip())
        has_openmp = re.search(r'"openmp": \d+', output) is not None
        log.check(f"built {'with' if openmp else 'without'} OpenMP", has_openmp == openmp)

    # ---- Stages --------------------------------------------------------------------------------------------

    def prepare_system(self, log: Log) -> None:
        """Install zstd's development files with apt where they are absent."""
        for interpreter in self.interpreters:
            say(f"CPython {interpreter.name}: {interpreter.path}")
        ask = ["pkg-config", "--modversion", "libzstd"]
        if shutil.which("pkg-config") is None or execute(ask)[0]:
            if shutil.which("apt-get") is None or os.geteuid() != 0:
                raise StageError(
                    "libzstd's development files and pkg-config are absent and cannot be installed"
                )
            env = self.env | {"DEBIAN_FRONTEND": "noninteractive"}
            must(["apt-get", "update", "-q"], env=env, quiet=True)
            must(["apt-get", "install", "-q", "-y", "libzstd-dev", "pkg-config"], env=env, quiet=True)
        log.check("libzstd and pkg-config are present", execute(ask)[0] == 0)

    def readme_command(self, extra: str) -> str:
        """Return the command of README.md that installs `extra`."""
        text = (ROOT / "README.md").read_text("utf-8")
        found = re.findall(rf'^\s*(?:\$ )?(pip install -e "\.\[{extra}\]" && .+?)\s*$', text, re.MULTILINE)
        if not found:
            raise StageError(f'README.md has no line that starts with: pip install -e ".[{extra}]" && ')
        return str(found[0])

    def run_readme_first(self, log: Log) -> None:
        """Build the package and run the demo as the README says, with the system's zstd."""
        tree = self.copy_tree("readme")
        self.readme_env = self.make_venv("readme-venv")
        log.command(
            "README's first command",
            ["bash", "-c", self.readme_command("demo")],
            env=self.readme_env,
            cwd=tree,
        )
        self.check_build(log, self.readme_env, "system", tree)

    def run_readme_second(self, log: Log) -> None:
        """Run the tests as the README says."""
        tree, report = self.work / "readme", self.work / "readme.xml"
        log.pytest(["bash", "-c", self.readme_command("test")], report, env=self.readme_env, cwd=tree)

    def check_style(self, log: Log) -> None:
        """Lint, check the format."""
        tree = self.work / "readme"
        pip_install(self.readme_env, "-r", str(ROOT / ".ci" / "requirements-check.txt"))
        log.command("ruff check", ["ruff", "check", "."], env=self.readme_env, cwd=tree)
        log.command("ruff format", ["ruff", "format", "--check", "."], env=self.readme_env, cwd=tree)

    def check_types(self, log: Log) -> None:
        """Check the types, and the stubs of the compiled modules against the modules."""
        tree, env = self.work / "readme", self.readme_env
        pip_install(env, "-r", str(ROOT / ".ci" / "requirements-check.txt"))
        log.command("mypy --strict", ["mypy", "--strict"], env=env, cwd=tree)
        stubs = sorted((tree / "loaderx" / "_core").glob("*.pyi"))
        modules = [f"loaderx._core.{stub.stem}" for stub in stubs]
        command = [python_of(env), "-m", "mypy.stubtest", "--mypy-config-file", "pyproject.toml"]
        command += ["--allowlist", ".ci/stubtest-allowlist.txt", *modules]
        log.command(f"stubtest of {len(modules)} modules", command, env=env, cwd=tree)

    def build_docs(self, log: Log) -> None:
        """Check that the page of benchmarks is what its results give, and build; a warning is an error."""
        tree = self.work / "readme"
        pip_install(self.readme_env, "-r", str(ROOT / ".ci" / "requirements-check.txt"))
        command = ["sphinx-build", "-W", "--keep-going", "-q", "-b", "html", "docs", str(self.work / "html")]
        log.command("sphinx-build -W", command, env=self.readme_env, cwd=tree)
        check = [python_of(self.readme_env), "-m", "benchmarks", "docs", "--check-table"]
        log.command("benchmarks --check-table", check, env=self.readme_env, cwd=tree)

    def run_peers(self, log: Log) -> None:
        """Run the tests that need other packages, the matrix with loaderx 0.7.3 among them."""
        tree, peers = self.work / "readme", self.work / "peers"
        env = self.readme_env | {"LOADERX_TEST_PEERS": str(peers)}
        pip_install(env, "-r", str(ROOT / ".ci" / "requirements-frameworks.txt"))
        must([python_of(env), "-m", "tests.peers", str(peers)], env=env, cwd=tree)
        command = [python_of(env), "-m", "pytest", "tests", "--require=all", "-m", BEYOND_TEST_EXTRA]
        output = log.pytest(command, self.work / "peers.xml", env=env, cwd=tree)
        counted = re.search(r"interop with loaderx 0\.7\.3: (\d+) cases", output)
        cases = int(counted[1]) if counted else 0
        log.notes.append(f"interop with loaderx 0.7.3: {cases} cases")
        log.check(f"the matrix has {MATRIX_CASES} cases", cases == MATRIX_CASES, f"{cases} ran")

    def run_bundled(self, log: Log) -> None:
        """Build with the bundled zstd, asked for, and test it."""
        env = self.make_venv("bundled-venv") | {"LOADERX_ZSTD": "bundled"}
        tree = self.install_tree(log, "bundled", env)
        self.bundled = hashes_of_modules(tree)
        self.test_build(log, "bundled", tree, env)

    def run_fallback(self, log: Log) -> None:
        """Build with the bundled zstd because pkg-config finds none, which gives the same as asking for it."""
        nothing = self.work / "nothing"
        nothing.mkdir()
        env = self.make_venv("fallback-venv") | {"PKG_CONFIG_LIBDIR": str(nothing)}
        tree = self.install_tree(log, "fallback", env)
        built = hashes_of_modules(tree)
        names = built.keys() | self.bundled.keys()
        others = sorted(name for name in names if built.get(name) != self.bundled.get(name))
        say(f"modules: {len(built)}; other bytes than in the stage bundled: {', '.join(others) or 'none'}")
        if others:
            self.test_build(log, "fallback", tree, env)
        else:
            log.check("the modules are byte for byte those that the stage bundled has tested", bool(built))

    def run_one_thread(self, log: Log) -> None:
        """Build without OpenMP: the same code has to work on one thread."""
        env = self.make_venv("one-thread-venv") | {"LOADERX_OPENMP": "off"}
        tree = self.install_tree(log, "one-thread", env, source="system", openmp=False)
        self.test_build(log, "one-thread", tree, env)

    def install_tree(
        self, log: Log, name: str, env: dict[str, str], source: str = "bundled", openmp: bool = True
    ) -> Path:
        """Install a fresh copy of the tree and what its tests need, check its build, return its folder."""
        tree = self.copy_tree(name)
        pip_install(env, "-e", ".[test]", cwd=tree)
        self.check_build(log, env, source, tree, openmp)
        return tree

    def test_build(self, log: Log, name: str, tree: Path, env: dict[str, str]) -> None:
        """Run the tests of what is compiled and of the store."""
        # Locks and recovery are the same whatever the core was built with, and the longest.
        longest = ("locks", "recovery", "interrupted", "beside_writer")
        apart = [f"--ignore=tests/store/test_{name}.py" for name in longest]
        command = [python_of(env), "-m", "pytest", "tests/core", "tests/store", *apart]
        log.pytest(command, self.work / f"{name}.xml", env=env, cwd=tree)

    def build_wheel(self, log: Log) -> None:
        """Build the source distribution, from it the wheel, repair it and look inside."""
        tree = self.copy_tree("sdist")
        env = self.make_venv("wheel-venv") | {"LOADERX_ZSTD": "bundled"}
        pip_install(env, "-r", str(ROOT / ".ci" / "requirements-wheel.txt"))
        folder = self.work / "wheel"
        folder.mkdir()
        # Without further options `build` makes the wheel from the source distribution, not from the tree.
        must([python_of(env), "-m", "build", "--outdir", str(folder), str(tree)], env=env, quiet=True)
        (built,) = folder.glob("*.whl")
        (self.sdist,) = folder.glob("*.tar.gz")
        log.check("the wheel builds from the source distribution", True, built.name)
        wheel = repair_wheel(built, folder, Path(python_of(env)), env)
        check_wheel(log, wheel, folder)
        log.command("abi3audit", ["abi3audit", "--strict", str(wheel)], env=env)
        self.wheel = wheel

    def test_wheel(self, interpreter: Interpreter, log: Log) -> None:
        """Install the wheel for `interpreter` and test it outside the tree; build its source there too."""
        folder = self.work / f"outside-{interpreter.name}"
        folder.mkdir()
        env = self.make_venv(f"{folder.name}-venv", interpreter)
        pip_install(env, f"{self.wheel}[test]")
        if interpreter != self.main:
            # The other stages build with one interpreter only, and the headers of another may say less.
            command = [python_of(env), "-m", "pip", "wheel", "-q", "--no-deps", "-w", str(folder)]
            log.command("the source distribution builds", [*command, str(self.sdist)], env=env)
        self.check_build(log, env, "bundled", folder)
        program = "import loaderx; print(loaderx.__file__)"
        where = must([python_of(env), "-c", program], env=env, cwd=folder).strip()
        log.check("the wheel is what is tested", where.startswith(env["VIRTUAL_ENV"]), where)
        shutil.copy2(ROOT / "pyproject.toml", folder)
        shutil.copytree(ROOT / "tests", folder / "tests", ignore=shutil.ignore_patterns("__pycache__"))
        # Only the files that have such tests: the others need not even import without the source tree.
        files = sorted((folder / "tests").rglob("test_*.py"))
        marked = [str(file) for file in files if "mark.wheel" in file.read_text("utf-8")]
        command = [python_of(env), "-m", "pytest", "-m", "wheel", *marked]
        log.pytest(command, self.work / f"{folder.name}.xml", env=env, cwd=folder)

    def run_neighbours(self, log: Log) -> None:
        """Import the wheel beside packages that bring their own OpenMP and zstd, in every order."""
        with_torch = [it for it in self.interpreters if it.version[:2] == TORCH_PYTHON]
        if not with_torch:
            raise StageError(f"there is no CPython {'.'.join(map(str, TORCH_PYTHON))} to install torch for")
        env = self.make_venv("neighbours-venv", with_torch[0])
        pip_install(env, str(self.wheel), "-r", str(ROOT / ".ci" / "requirements-neighbours.txt"))

        def run_order(order: tuple[str, ...]) -> tuple[str, subprocess.CompletedProcess[str]]:
            command = [python_of(env), "-c", NEIGHBOURS_PROGRAM, *order]
            done = subprocess.run(
                command,
                env=env,
                cwd=self.work,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=120,
            )
            return ", ".join(order), done

        orders = itertools.permutations(("loaderx", "torch", "pyarrow", "zstandard"))
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            for order, done in pool.map(run_order, orders):
                detail = f"exit code {done.returncode}\n{done.stderr[-2000:]}" if done.returncode else ""
                log.check(f"import and gather in the order {order}", not done.returncode, detail)


def python_of(env: dict[str, str]) -> str:
    """Return the interpreter of an active virtual environment."""
    return str(Path(env["VIRTUAL_ENV"], "bin", "python"))


def hashes_of_modules(tree: Path) -> dict[str, str]:
    """Return the compiled modules in a tree by their names, with a hash of each."""
    modules = (tree / "loaderx" / "_core").glob("*.so")
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in modules}


def pip_install(env: dict[str, str], *arguments: str, cwd: Path | None = None) -> None:
    """Install into an active virtual environment."""
    must([python_of(env), "-m", "pip", "install", "-qq", *arguments], env=env, cwd=cwd)


def find_interpreters() -> list[Interpreter]:
    """Return every CPython from 3.11 on: the one this runs on, those on PATH, those that pyenv installed."""
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    on_path = [shutil.which(f"python3{minor}") for minor in ("", ".11", ".12", ".13", ".14", ".15")]
    paths = [sys.executable, *filter(None, on_path), *map(str, sorted(pyenv.glob("versions/*/bin/python")))]
    ask = (
        "import sys, venv; print(sys.implementation.name, sys.base_prefix, *sys.version_info[:3], sep='\\n')"
    )
    found: dict[str, Interpreter] = {}
    for path in paths:
        done = subprocess.run([path, "-c", ask], capture_output=True, text=True, check=False)
        if done.returncode:
            continue
        implementation, prefix, *numbers = done.stdout.splitlines()
        major, minor, micro = map(int, numbers)
        if implementation == "cpython" and (major, minor) >= (3, 11):
            found.setdefault(prefix, Interpreter(Path(path), (major, minor, micro)))
    return list(found.values())


def main(chosen: set[str]) -> int:
    """Run the chosen stages, or all, in a folder that is removed at the end."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("terminated"))
    with tempfile.TemporaryDirectory(prefix="loaderx-ci-", ignore_cleanup_errors=True) as folder:
        return run_stages(Pipeline(Path(folder).resolve()).stages(), chosen)


if __name__ == "__main__":
    sys.exit(main(set(sys.argv[1:])))
