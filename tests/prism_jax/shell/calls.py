"""Many calls of the command line in one process of their own, so that one that never ends fails its test and nothing else."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[3]
_RUN = """
import contextlib, io, json, sys
from prism_jax.shell.app import main
for name, arguments in json.load(sys.stdin).items():
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main(arguments)
    print(json.dumps([name, code, out.getvalue(), err.getvalue()]), flush=True)
"""


class Said(NamedTuple):
    """What one call returned and printed."""

    code: int
    out: str
    err: str


def said(calls: Mapping[str, Sequence[str]], folder: Path, *, timeout_s: float = 120.0) -> dict[str, Said]:
    """Every call by its name; those after one that hangs are missing."""
    found: dict[str, Said] = {}
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", _RUN]
    try:
        done = subprocess.run(
            command,
            input=json.dumps(calls),
            capture_output=True,
            text=True,
            cwd=folder,
            env=environment,
            timeout=timeout_s,
        )
        text = done.stdout
    except subprocess.TimeoutExpired as late:
        text = late.stdout.decode() if isinstance(late.stdout, bytes) else late.stdout or ""
    for line in text.splitlines():
        name, *rest = json.loads(line)
        found[name] = Said(*rest)
    return found
