"""How Sphinx builds these pages: ``sphinx-build -W -b html docs docs/_build/html``."""

from __future__ import annotations

import re

import loaderx

project = "loaderx"
author = "The loaderx authors"
copyright = "2026, The loaderx authors"
release = version = loaderx.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
# What the adapters import need not be installed where the pages are built.
autodoc_mock_imports = ["torch", "jax"]
exclude_patterns = ["_build"]
html_theme = "furo"
html_title = f"loaderx {release}"

# Headings get anchors, so that pages can link to each other's sections.
myst_heading_anchors = 3

# The docstrings are numpydoc's, and say types on their own lines: in the signature they would stand twice.
napoleon_google_docstring = False
napoleon_use_ivar = True
napoleon_use_rtype = False
autodoc_typehints = "none"
autodoc_member_order = "bysource"

# Single backticks in docstrings link to what these pages describe. Everything of ours has to be found; parameters,
# dictionary keys and expressions (lower case), and the words of type lines ("array_like of int"), are not objects.
default_role = "py:obj"
nitpicky = True
nitpick_ignore_regex = [
    (r"py:obj", r"[a-z_*\"'(].*|[A-Z]+[0-9]*|Append"),
    (r"py:class", r"(?!(.*\.)?(Zrecord|Dataset|RaggedDataset|[A-Z]\w+Error)$).*"),
]


_RAISES = re.compile(r":raises (?P<names>[\w., ]+):\s*(?P<text>.*)")


def escape_shapes(app, what, name, obj, options, lines: list[str]) -> None:
    """Keep the star of "shape (n, *shape)" from opening an emphasis."""
    lines[:] = [re.sub(r"(?<=[(, ])\*(?=\w)", r"\\*", line) if " shape (" in line else line for line in lines]


def join_raises(app, what, name, obj, options, lines: list[str]) -> None:
    """Give the exceptions of a docstring one list, each linked; napoleon takes "A, B" for the name of one."""
    begin = next((at for at, line in enumerate(lines) if _RAISES.match(line)), len(lines))
    items: list[str] = []
    rest: list[str] = []
    for line in lines[begin:]:
        found = _RAISES.match(line)
        if found:
            names = ", ".join(f":py:exc:`{name}`" for name in found["names"].split(", "))
            items.append(f"    * {names}" + (f": {found['text']}" if found["text"] else ""))
        elif rest or (line and not line.startswith(" ")):
            rest.append(line)
        elif line:
            items.append(f"      {line.strip()}")
    if items:
        lines[begin:] = [":Raises:", *items, "", *rest]


def find_public(app, env, node, contnode):
    """Find `Zrecord` from the page of a class that is documented under the module it lives in."""
    if node["refdomain"] != "py":
        return None
    python, target = env.get_domain("py"), f"loaderx.{node['reftarget']}"
    return python.resolve_xref(env, node["refdoc"], app.builder, node["reftype"], target, node, contnode)


def setup(app) -> None:
    """Register the hooks: one before napoleon's own (which has priority 500), one after it."""
    app.connect("autodoc-process-docstring", escape_shapes, priority=400)
    app.connect("autodoc-process-docstring", join_raises, priority=600)
    app.connect("missing-reference", find_public)
