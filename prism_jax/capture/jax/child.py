"""The process that compiles: `python -m prism_jax.capture.jax.child FILE NAME FOLDER`; writes about.json and step.txt.

It runs the user's file, with the virtual devices that its environment asks for, and nothing of the step itself.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from ...errors import PrismError
from ..user_code import load_function, user_errors
from .contract import step_of
from .described import described


def main(file: str, name: str, folder: str) -> int:
    """Exit code: 0 where the step was compiled, 2 where it could not be."""
    try:
        about, text = _compile(Path(file), name)
    except PrismError as error:
        about, text = {"error": str(error)}, ""
    if text:
        (Path(folder) / "step.txt").write_text(text, encoding="utf-8")
    (Path(folder) / "about.json").write_text(json.dumps(about), encoding="utf-8")
    return 0 if text else 2


def _compile(path: Path, name: str) -> tuple[dict[str, Any], str]:
    found = load_function(path, name)
    module = sys.modules[found.__module__] if getattr(found, "__module__", "") in sys.modules else None
    step = step_of(path, name, found, module)
    with user_errors(path, f"compiling {name}"):
        lowered = step.lower()
        compiled = lowered if hasattr(lowered, "as_text") and hasattr(lowered, "memory_analysis") else lowered.compile()
        text = compiled.as_text()
    return described(step, module), str(text or "")


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:4]))
