"""Writes the output that README.md, guides and tutorials show, and the picture, anew: `python docs/refresh.py` in a checkout.

Runs every block after `<!-- run -->` that is followed by an `<!-- output -->` block, and puts what it prints there. All blocks of
a tutorial run, one after the other in a folder of their own. `python docs/refresh.py docs/plans.md` renews one page.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Callable
from contextlib import chdir, redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
PICTURE = "docs/llama3_405b_16384.png"
INSIDE = r"((?:(?!```).)*)"  # of a block
BLOCK = re.compile(rf"(<!-- run -->\n```(\w+)\n{INSIDE}```\n)(?:(<!-- output -->\n```text\n){INSIDE}(```))?", re.DOTALL)


def command_output(command: str, folder: Path) -> str:
    """What a command prints."""
    words = [sys.executable, "-m", "prism_jax", *shlex.split(command, comments=True)[1:]]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        words, cwd=folder, env=environment, check=True, stdout=subprocess.PIPE, text=True, encoding="utf-8"
    )
    return done.stdout


def printed(language: str, code: str, folder: Path, names: dict[str, Any]) -> str:
    """What a block prints; Python finds and leaves `names`."""
    if language != "python":
        return "".join(command_output(line, folder) for line in code.strip().splitlines())
    out = StringIO()
    with chdir(folder), redirect_stdout(out):
        exec(compile(code, "page.md", "exec"), names)
    return out.getvalue()


def refreshed(text: str, runs: Callable[[re.Match[str]], str], in_turn: bool) -> str:
    """The page with outputs as they are now; blocks without an output run only where the next may need them."""

    def block(found: re.Match[str]) -> str:
        if found[4] is None and not in_turn:
            return found[0]
        out = runs(found)
        return found[0] if found[4] is None else found[1] + found[4] + out + found[6]

    return BLOCK.sub(block, text)


def refresh(page: Path) -> None:
    """Renews one page."""
    text, in_turn, names = page.read_text(encoding="utf-8"), page.parent.name == "tutorials", {}
    if "<!-- output -->" not in text:
        return
    with tempfile.TemporaryDirectory() as folder:
        where = Path(folder) if in_turn else ROOT
        new = refreshed(text, lambda found: printed(found[2], found[3], where, names if in_turn else {}), in_turn)
    page.write_text(new, encoding="utf-8")


def main() -> None:
    """Renews all pages, or those that are named."""
    sys.path.insert(0, str(ROOT))
    named = [Path(name).resolve() for name in sys.argv[1:]]
    for page in named or (
        ROOT / "README.md",
        *sorted((ROOT / "docs").glob("*.md")),
        *sorted((ROOT / "docs/tutorials").glob("*.md")),
    ):
        refresh(page)
    if not named:
        command_output(f"prism-jax predict llama3_405b_16384 --plot {PICTURE} --quiet", ROOT)


if __name__ == "__main__":
    main()
