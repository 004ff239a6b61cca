"""Recipes of docs/extending.md, run as they are printed."""

import subprocess
import sys
from pathlib import Path

EXTENDING = Path(__file__).parents[2] / "docs" / "extending.md"


def printed(title: str, more: str) -> str:
    """What the code of the section `title`, followed by `more`, prints in a process of its own, since it adds to a registry."""
    section = EXTENDING.read_text(encoding="utf-8").partition(f"## {title}\n")[2]
    code = section.partition("```python\n")[2].partition("```")[0]
    assert code
    return subprocess.run([sys.executable, "-c", code + more], capture_output=True, text=True, check=True).stdout
