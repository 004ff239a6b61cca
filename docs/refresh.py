"""Writes the output that README.md and the pages show, and the picture, anew: `python docs/refresh.py` in a checkout.

Runs every block after `<!-- run -->` that is followed by an `<!-- output -->` block, and puts what it prints there.
"""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PICTURE = "docs/llama3_405b_16384.png"
INSIDE = r"((?:(?!```).)*)"  # of a block
PAIR = re.compile(rf"(<!-- run -->\n```(\w+)\n{INSIDE}```\n<!-- output -->\n```text\n){INSIDE}(```)", re.DOTALL)


def output(arguments: list[str]) -> str:
    """What Python prints when run with `arguments`."""
    return subprocess.run(
        [sys.executable, *arguments], cwd=ROOT, check=True, capture_output=True, text=True, encoding="utf-8"
    ).stdout


def printed(language: str, code: str) -> str:
    """What a block prints."""
    if language == "python":
        return output(["-c", code])
    return "".join(output(["-m", "prism_jax", *shlex.split(line)[1:]]) for line in code.strip().splitlines())


def main() -> None:
    """Refreshes all pages with outputs."""
    for page in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))):
        text = page.read_text(encoding="utf-8")
        if PAIR.search(text):
            page.write_text(PAIR.sub(lambda m: m[1] + printed(m[2], m[3]) + m[5], text), encoding="utf-8")
    output(["-m", "prism_jax", "predict", "llama3_405b_16384", "--plot", PICTURE, "--quiet"])


if __name__ == "__main__":
    main()
