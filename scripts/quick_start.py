"""Prints the Python of the README's quick start: all ```python blocks under the first heading that starts with "Quick start"."""

from __future__ import annotations

import re
import sys
from pathlib import Path


def quick_start(markdown: str) -> str:
    """Source text of the quick start.

    Raises:
        SystemExit: there is none, which must fail the run that wants to execute it.
    """
    section = re.search(r"^#+ *Quick start.*?$(.*?)(?=^#|\Z)", _without_code_comments(markdown), re.M | re.S | re.I)
    blocks = re.findall(r"^```python\n(.*?)^```", section[1], re.M | re.S) if section else []
    if not blocks:
        raise SystemExit("the README has no ```python block under a heading that starts with `Quick start`")
    return "\n".join(blocks).replace(_HASH, "#")


_HASH = "\0"


def _without_code_comments(markdown: str) -> str:
    """`markdown` with the # inside fenced blocks hidden, so that a comment does not look like a heading."""
    return re.sub(r"^```.*?^```", lambda block: block[0].replace("#", _HASH), markdown, flags=re.M | re.S)


if __name__ == "__main__":
    print(quick_start(Path(sys.argv[1]).read_text(encoding="utf-8")))
