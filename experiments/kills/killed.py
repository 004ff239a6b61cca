"""A command as a process of its own that dies by `kill -9`: after a while, or before one of its file operations.

Processes are forked from one that has imported everything, so that a run is its own work and no start of Python.
"""

from __future__ import annotations

import io
import json
import os
import shlex
import signal
import sys
import time
import warnings
import zipfile
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

CHANGING = frozenset({"os.rename", "os.remove", "os.chmod", "os.link", "os.symlink", "os.mkdir", "os.truncate"})
TIMED = ("elapsed_s", "record")  # what an archive says of its own making


class Ended(NamedTuple):
    """How a run ended.

    Attributes:
        code: exit code; -9 where it was killed.
        elapsed_s: seconds it ran.
        n_operation: file operations in its folder that change something; where it was not killed.
    """

    code: int
    elapsed_s: float
    n_operation: int


def ran(line: str, folder: Path, *, after_s: float | None = None, before_operation: int | None = None) -> Ended:
    """A run of `prism-jax LINE` in `folder`, killed with its whole process group where a moment is given.

    Args:
        after_s: seconds to live.
        before_operation: number of the file operation, from 0, that it does not live to do.
    """
    reading, writing = os.pipe()
    started = time.monotonic()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # of JAX, whose threads have not started yet
        pid = os.fork()
    if pid == 0:
        os.close(reading)
        _child(line, folder, writing, before_operation)
    os.setpgid(pid, pid)  # which the child does too: whoever comes first, before it is killed
    os.close(writing)
    if after_s is not None:
        _kill_after(pid, after_s)
    with os.fdopen(reading, "rb") as pipe:
        told = pipe.read()  # until the process has ended
    _, status = os.waitpid(pid, 0)
    return Ended(os.waitstatus_to_exitcode(status), time.monotonic() - started, int(told or 0))


def files_in(folder: Path) -> dict[str, bytes]:
    """Name -> content."""
    files = sorted(file for file in folder.rglob("*") if file.is_file())
    return {str(file.relative_to(folder)): file.read_bytes() for file in files}


def same(a: bytes | None, b: bytes | None, name: str) -> bool:
    """Whether two files hold the same; what an archive or a report says of the time of its making is left out."""
    if a == b or a is None or b is None:
        return a == b
    if name.endswith(".json"):
        return _untimed(a) == _untimed(b)
    return name.endswith(".npz") and _content(a) == _content(b)


def _untimed(report: bytes) -> dict[str, Any] | None:
    """What a report says; None where it is damaged."""
    try:
        return {key: value for key, value in json.loads(report).items() if key not in TIMED}
    except ValueError:
        return None


def _content(archive: bytes) -> dict[str, Any] | None:
    """Entry -> its bytes, or what its JSON says; None where it is damaged."""
    try:
        with zipfile.ZipFile(io.BytesIO(archive)) as opened:
            found: dict[str, Any] = {name: opened.read(name) for name in opened.namelist()}
    except zipfile.BadZipFile:
        return None
    about = json.loads(found.pop("about.json", b"{}"))
    return found | {"about": {key: value for key, value in about.items() if key not in TIMED}}


def _kill_after(pid: int, after_s: float) -> None:
    deadline = time.monotonic() + after_s
    while (left_s := deadline - time.monotonic()) > 0.0:
        if os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT):
            return
        time.sleep(min(left_s, 0.005))
    os.killpg(pid, signal.SIGKILL)


def _child(line: str, folder: Path, writing: int, before_operation: int | None) -> None:
    """Runs the command and never returns."""
    code = 1
    try:
        os.setpgid(0, 0)
        os.chdir(folder)
        nowhere = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1, 2):
            os.dup2(nowhere, stream)
        counted = _count_operations(folder, before_operation)
        from prism_jax.shell.app import main

        code = main(shlex.split(line))
        os.write(writing, str(len(counted)).encode())
    finally:
        os._exit(code)


def _count_operations(folder: Path, before: int | None) -> list[str]:
    """The file operations from now on that change something in `folder`; the process dies before number `before`."""
    counted: list[str] = []
    inside = f"{folder.resolve()}{os.sep}"

    def seen(event: str, arguments: tuple[Any, ...]) -> None:
        if event not in CHANGING and not (event == "open" and _is_written(arguments)):
            return
        path = arguments[0]
        if isinstance(path, (str, Path)) and os.path.abspath(path).startswith(inside):
            if len(counted) == before:
                os.kill(os.getpid(), signal.SIGKILL)
            counted.append(event)

    sys.addaudithook(seen)
    return counted


def _is_written(arguments: tuple[Any, ...]) -> bool:
    flags = arguments[2] if len(arguments) > 2 and isinstance(arguments[2], int) else 0
    return bool(flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT))


def moments(ended: Ended, n: int, rng: np.random.Generator) -> list[dict[str, Any]]:
    """`n` random moments of a run: every other one before a file operation, the others at any time."""
    times = [{"after_s": float(at)} for at in rng.uniform(0.0, ended.elapsed_s, n - n // 2)]
    return times + [{"before_operation": int(at)} for at in rng.integers(0, ended.n_operation, n // 2)]
