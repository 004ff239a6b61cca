"""Lists words that people should not have to puzzle over: `python scripts/words.py [--root DIR] [--count]`.

Docstrings begin with a verb and an object, or with the noun that they describe, never with a word that only points somewhere
(What, That, Those, Of, The same); docstrings, messages, help texts and pages of documentation do not use the phrases of
`PHRASES`, each of which has a plain word. Each finding is printed as file:line, with the remedy; the exit code is then 1.
"""

from __future__ import annotations

import argparse
import ast
import re
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CODE = ("prism_jax", "inference")
PAGES = ("README.md", "docs")
POINTING = re.compile(r"(What|That|Those|Of|The same|Whatever|Theirs|Its)\b")
PHRASES = {  # what is not written -> what is
    r"\bbeside\b(?!:)": "next to, together with, during, or at the same time as",  # a field of this name may be listed
    r"\bowners? of the (tail|p95)\b": "source(s) of variability",
    r"\bowns? (the|its) (tail|p95)\b": "causes",
    r"\bdear(er|est)?\b": "expensive, costly or slow",
    r"\bwithout an end in sight\b": "did not finish within ...",
    r"\bwhat no other beats\b": "Pareto-optimal",
    r"\bnothing is said of\b": "... not stated",
    r"\bis no part of\b": "is not valid in",
    r"\bfor ever\b": "never ends, or longer than ...",
    r"\bat hand\b": "available",
    r"\bsay(s)? nothing of\b": "does not state",
    r"\bwhatever they are\b": "of any kind",
    r"\bwith nothing (beside|next to) anything\b": "without any overlap",
}  # regular expressions; case does not matter


@dataclass(frozen=True, order=True)
class Finding:
    """One place to be reworded.

    Attributes:
        path: of the file, below the root.
        line: in the file.
        found: the words.
        remedy: what to write instead.
    """

    path: str
    line: int
    found: str
    remedy: str

    def __str__(self) -> str:
        """`path:line: "words": remedy`."""
        return f'{self.path}:{self.line}: "{self.found}": {self.remedy}'


def findings(root: Path = ROOT) -> list[Finding]:
    """All places in code and documentation below `root`."""
    found: list[Finding] = []
    for folder in CODE:
        for file in sorted((root / folder).rglob("*.py")):
            found += _in_code(file.relative_to(root).as_posix(), file.read_text(encoding="utf-8"))
    for name in PAGES:
        place = root / name
        for file in sorted(place.rglob("*.md")) if place.is_dir() else [place]:
            found += _in_page(file.relative_to(root).as_posix(), file.read_text(encoding="utf-8"))
    return sorted(found)


def _in_code(path: str, text: str) -> Iterator[Finding]:
    nodes = list(ast.walk(ast.parse(text)))
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    docstrings = {}
    for node in nodes:
        if isinstance(node, documented) and node.body and isinstance(node.body[0], ast.Expr):
            value = node.body[0].value
            if isinstance(value, ast.Constant) and isinstance(value.value, str):
                docstrings[id(value)] = value
    for value in docstrings.values():
        match = POINTING.match(value.value)
        if match:
            yield Finding(
                path, value.lineno, " ".join(value.value.split()[:5]), "begin with a verb and its object, or the noun"
            )
    for node in nodes:
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield from _phrases(path, node.lineno, node.value)


def _in_page(path: str, text: str) -> Iterator[Finding]:
    for number, line in enumerate(text.splitlines(), start=1):
        yield from _phrases(path, number, line)


def _phrases(path: str, first_line: int, text: str) -> Iterator[Finding]:
    for pattern, remedy in PHRASES.items():
        for match in re.finditer(pattern, text, re.IGNORECASE):
            yield Finding(path, first_line + text.count("\n", 0, match.start()), match.group(), remedy)


def main() -> int:
    """Prints what is found."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", type=Path, default=ROOT)
    parser.add_argument("--count", action="store_true", help="counts per remedy and folder in the place of the list")
    asked = parser.parse_args()
    found = findings(asked.root)
    if asked.count:
        for (remedy, folder), number in Counter(
            (one.remedy, one.path.rsplit("/", 1)[0]) for one in found
        ).most_common():
            print(f"{number:>5}  {folder:<40} {remedy}")
        print(len(found))
    else:
        print("\n".join(map(str, found)))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
