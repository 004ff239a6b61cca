"""Files that hold captured programs: those of `prism-jax capture`, and those of other programs that are read as such."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

from ..._core.registry import Registry
from ...errors import DataError
from ...workload.captured.kernel_times import KernelTimes
from ...workload.captured.program import RankProgram
from .read_capture import is_capture, read_capture


@dataclass(frozen=True)
class CapturedFile:
    """One kind of file, or folder.

    Attributes:
        name: of the kind.
        about: what it is, in words.
        recognises: whether a path is one, by its name and how it begins.
        read: the program; raises `DataError` that names the place and the remedy.
    """

    name: str
    about: str
    recognises: Callable[[Path], bool]
    read: Callable[[Path], RankProgram]


OWN = CapturedFile("capture", "a file that `prism-jax capture` wrote", is_capture, read_capture)
SHIPPED = ("prism_jax.io.execution.captured_file",)  # modules with a `CAPTURED_FILE`, imported when a file is looked at


def _shipped() -> Iterator[CapturedFile]:
    yield OWN
    for name in SHIPPED:
        yield import_module(name).CAPTURED_FILE


CAPTURED_FILES: Registry[CapturedFile] = Registry("captured file", _shipped, error=DataError)


def kernel_times(path: str | Path) -> KernelTimes:
    """Measured kernels in a profile.

    Raises:
        DataError: as `execution.kernel_times.read_kernel_times`.
    """
    return import_module("prism_jax.io.execution.kernel_times").read_kernel_times(path)


def captured_file(path: str | Path) -> CapturedFile | None:
    """The kind of captured program that `path` is; None for everything else."""
    return next((one for one in CAPTURED_FILES if one.recognises(Path(path))), None)


def read_captured_program(path: str | Path) -> RankProgram:
    """The program in a file of any kind; a file of no known kind is read as one of ours.

    Raises:
        DataError: as the reader of that kind.
    """
    return (captured_file(path) or OWN).read(Path(path))
