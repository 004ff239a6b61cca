"""Sphinx configuration of the site: `make docs`. Reads the pages of this folder and the docstrings; needs no network."""

from __future__ import annotations

import inspect
import re
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any, get_type_hints

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "docs")]

import reference  # noqa: E402  (both are found through the line above)

from prism_jax import __version__  # noqa: E402

reference.write()

project = "prism-jax"
author = "prism-jax contributors"
copyright = author
release = version = __version__
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
source_suffix = {".md": "markdown"}
exclude_patterns: list[str] = []
smartquotes = False  # --set is an option
html_theme = "furo"
html_title = f"prism-jax {__version__}"
html_copy_source = False
myst_heading_anchors = 4  # anchors as in the links between pages
autodoc_typehints = "description"
autodoc_typehints_format = "short"
autodoc_member_order = "bysource"
autodoc_class_signature = "separated"
napoleon_use_ivar = True
napoleon_custom_sections = ["Randomness"]
nitpick_ignore_regex = [
    ("py:.*", r".*")
]  # types of other libraries, and inner ones, have no entry; links between pages are checked

OUTSIDE = re.compile(r"\[((?:[^\[\]]|\[[^\]]*\])*)\]\((\.\./[^)\s]*)\)")


def name_files_outside(app, docname: str, source: list[str]) -> None:
    """Turns links to files of the repository that are no pages of the site into their text and path."""

    def told(found: re.Match[str]) -> str:
        text, target = found.groups()
        path = (Path(app.srcdir) / docname).parent.joinpath(target.partition("#")[0]).resolve()
        if path.is_relative_to(app.srcdir):
            return found[0]
        name = path.relative_to(ROOT).as_posix()
        return text if name in text else f"{text} (`{name}`)"

    source[0] = OUTSIDE.sub(told, source[0])


def as_markdown(app, what: str, name: str, of: object, options: object, lines: list[str]) -> None:
    """Docstrings have Markdown's code, `so`, and characters that mean something else to Sphinx."""
    text = re.sub(r"(?<!`)`([^`\n]+)`(?!`)", r"``\1``", "\n".join(lines))
    parts = re.split(r"(``[^`]+``)", text)
    lines[:] = "".join(
        part if part.startswith("``") else re.sub(r"([*|]|_(?=\W))", r"\\\1", part) for part in parts
    ).split("\n")


def plain_types(app, of: Any, bound_method: bool) -> None:
    """Types of parameters without what the command line knows of them."""
    with suppress(TypeError, ValueError, NameError, AttributeError):
        hints, signature = get_type_hints(inspect.unwrap(of)), inspect.signature(of)
        of.__signature__ = signature.replace(
            parameters=[
                item.replace(annotation=hints.get(item.name, item.annotation)) for item in signature.parameters.values()
            ]
        )


def setup(app) -> dict[str, bool]:
    """Registers the hook."""
    app.connect("source-read", name_files_outside)
    app.connect("autodoc-before-process-signature", plain_types)
    app.connect("autodoc-process-docstring", as_markdown, priority=100)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
