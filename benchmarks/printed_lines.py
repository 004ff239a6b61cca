"""Lines of code that make what people see: `python -m benchmarks.printed_lines [FOLDER]`.

Counts functions and methods in files that lay out pages (they import `core.page`), and the printers of text and HTML, without
docstrings, comments and blank lines; fields, which are the JSON, and `shell/`, which runs commands, do not count.
"""

from __future__ import annotations

import ast
import sys
from pathlib import Path

PRINTERS = ("page_text.py", "page_html.py")


def code_lines(path: Path) -> int:
    """Returns lines of code in functions and methods of a file."""
    text = path.read_text(encoding="utf-8")
    functions = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.FunctionDef)]
    docstrings = [one.body[0] for one in functions if ast.get_docstring(one) is not None]
    inside, told = (
        {at for one in nodes for at in range(one.lineno, (one.end_lineno or one.lineno) + 1)}
        for nodes in (functions, docstrings)
    )
    rows = [text.splitlines()[at - 1].strip() for at in inside - told]
    return sum(bool(row) and not row.startswith("#") for row in rows)


def builders(root: Path) -> dict[str, int]:
    """Returns lines by file, of printers and of files that lay out pages."""
    found = {}
    for path in sorted((root / "prism_jax").rglob("*.py")):
        imports = (
            node for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))) if isinstance(node, ast.ImportFrom)
        )
        lays_out = any((node.module or "").endswith("core.page") for node in imports) and path.parent.name != "shell"
        if lays_out or path.name in PRINTERS:
            found[str(path.relative_to(root))] = code_lines(path)
    return found


def main() -> None:
    """Prints lines by file, most first, and their sum."""
    found = builders(Path(sys.argv[1] if len(sys.argv) > 1 else "."))
    for name, n in sorted(found.items(), key=lambda one: -one[1]):
        print(f"{n:6d}  {name}")
    print(f"{sum(found.values()):6d}  in {len(found)} files")


if __name__ == "__main__":
    main()
