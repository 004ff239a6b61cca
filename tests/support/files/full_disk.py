"""Runs commands whose files may not grow beyond a size, as on a full disk; in a process of its own, which a crash would end.

`python -m tests.support.files.full_disk` reads a JSON list of `[line, resumed, inputs, folder, shares]` from stdin and prints
what became of each as a line of JSON. Every command runs once without a limit: what it writes are its targets, and limits are
shares of the largest one. Every run has a fresh copy of the inputs as its working directory.
"""

import contextlib
import io
import json
import os
import resource
import shlex
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from prism_jax.shell.app import main

OLD = b"as it was"


def run(line: str, resumed: Sequence[str], inputs: str, folder: str, shares: Sequence[float]) -> dict[str, Any]:
    """Exit code without a limit, the targets, and at each share of the largest one what `_limited` says.

    Args:
        line: what is typed after `prism-jax`.
        resumed: files that a run may leave on purpose, since the next one goes on from them.
    """
    words = [*shlex.split(line), "-q"]
    before = _afresh(inputs, folder)
    with _quiet():
        code = main(words)
    sizes = {file.name: file.stat().st_size for file in Path(folder).iterdir() if file.name not in before}
    targets = sorted(set(sizes) | set(resumed))
    kept = [target for target in targets if target not in resumed]  # what a command goes on from is not there before
    limits = [int(share * max(sizes.values())) for share in shares]
    found = []
    for limit in limits:
        _afresh(inputs, folder)
        found.append(_limited(words, Path(folder), targets, kept, limit))
    return {"code": code, "targets": targets, "limited": found}


def _afresh(inputs: str, folder: str) -> set[str]:
    """A fresh copy of the inputs to work in; their names."""
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(inputs, folder)
    os.chdir(folder)
    return set(os.listdir(folder))


def _limited(words: Sequence[str], folder: Path, targets: list[str], kept: list[str], size: int) -> dict[str, Any]:
    """What a run said and left: size, code, stderr, targets that changed, and files that were not there before."""
    for target in kept:
        (folder / target).write_bytes(OLD)
        (folder / target).chmod(0o600)
    before = set(os.listdir(folder))
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    with _quiet() as said:
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, limits[1]))
        try:
            code = main(words)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    changed = [target for target in targets if _is_changed(folder / target)]
    more = sorted(set(os.listdir(folder)) - before)
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
