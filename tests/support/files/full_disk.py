"""Runs commands whose files may not grow beyond a size, as on a full disk; in a process of its own, which a crash would end.

`python -m tests.support.files.full_disk` reads a JSON list of `[arguments, targets, shares]` from stdin and prints what became of
each as a line of JSON. Every command runs once without a limit, which says how large its targets are; limits are shares of it.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import resource
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from prism_jax.cli.app import main

OLD = b"as it was"
RESUMED = ".partial"  # what a command goes on from is not there before


def run(arguments: Sequence[str], targets: Sequence[str], shares: Sequence[float]) -> dict[str, Any]:
    """Exit code without a limit, and at each share of the largest target: size, code, stderr, and what is left."""
    with _quiet():
        code = main(arguments)
    largest = max(Path(target).stat().st_size for target in targets)
    return {"code": code, "limited": [_limited(arguments, targets, int(share * largest)) for share in shares]}


def _limited(arguments: Sequence[str], targets: Sequence[str], size: int) -> dict[str, Any]:
    folder = Path(targets[0]).parent
    for file in folder.iterdir():
        file.unlink()
    for target in targets:
        if not target.endswith(RESUMED):
            Path(target).write_bytes(OLD)
            Path(target).chmod(0o600)
    before = {file.name for file in folder.iterdir()}
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    with _quiet() as said:
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, limits[1]))
        try:
            code = main(arguments)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    changed = [target for target in targets if _is_changed(Path(target))]
    more = sorted({file.name for file in folder.iterdir()} - before)
    return {"size": size, "code": code, "said": said.getvalue(), "changed": changed, "more": more}


def _is_changed(target: Path) -> bool:
    return target.exists() and (target.read_bytes() != OLD or target.stat().st_mode & 0o777 != 0o600)


@contextlib.contextmanager
def _quiet() -> Any:
    said = io.StringIO()
    with open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere), contextlib.redirect_stderr(said):
        yield said


if __name__ == "__main__":
    for case in json.load(sys.stdin):
        print(json.dumps(run(*case)), flush=True)
