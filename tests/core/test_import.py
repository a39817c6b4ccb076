"""An import of the package that is broken off: an exception, and never the end of the process."""

from __future__ import annotations

import subprocess
import sys

import pytest

#: Raises where a module is looked for that the first compiled module needs, and tries again.
SCRIPT = """\
import importlib, sys

class Broken:
    def find_spec(self, name, path=None, target=None):
        if name == "inspect":
            raise %s

module = sys.argv[1]
sys.modules.pop("inspect", None)
sys.meta_path.insert(0, Broken())
try:
    importlib.import_module(module)
except BaseException as error:
    print(type(error).__name__)
del sys.meta_path[0]
importlib.import_module(module)
print("imported")
"""

MODULES = [
    "loaderx",
    "loaderx._core.gather",
    "loaderx._core.survey",
    "loaderx._core.compress",
    "loaderx._core.threads",
]


@pytest.mark.parametrize("error", ["KeyboardInterrupt", "ImportError"])
@pytest.mark.parametrize("module", MODULES)
def test_an_import_that_is_broken_off(module: str, error: str) -> None:
    done = subprocess.run([sys.executable, "-c", SCRIPT % error, module], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, f"{error}\nimported\n"), done.stderr
