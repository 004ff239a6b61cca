"""FrontEnd, one way of capturing a program, and CaptureRequest, its input.

A new front end is a module with a `FRONT_END`, and its name here; that of jobs of ours is below. What a request says of a program
stands in the place of what the program says of itself. A function that a user's own file defines is loaded by path, and its
mistakes are told as such: the file is run, as `python file.py` would, so capture only code that you trust.
"""

from __future__ import annotations

import importlib.util
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from importlib import import_module
from math import prod
from pathlib import Path
from typing import Any

from ..core.errors import DataError, PrismError
from ..core.registry import Registry
from ..tables.streams import example_files
from ..workload.captured.check import check_program
from ..workload.captured.program import RankProgram

# Fields of a request -> the options that state them.
STATED_BY = {
    "world": "--world",
    "axes": "an axis of the mesh (--tp, --dp, --axis, ...)",
    "micro_batches": "--micro-batches",
    "samples_per_step": "--samples",
    "tokens_per_sample": "--tokens",
    "fusion": "--fusion",
    "name": "--name",
    "options": "--option",
}


@dataclass(frozen=True)
class CaptureRequest:
    """Source and settings of a capture.

    Attributes:
        source: a file, or a file and what it defines: train.py:build.
        world: ranks of the job; None: the product of `axes`, or what the source says.
        axes: dimension of the mesh -> its size, in the order in which they were given.
        micro_batches: of a step, per data-parallel rank; None: as the source says, else 1.
        samples_per_step: of the whole job; None: as the source says.
        tokens_per_sample: None: as the source says, else 0 (samples are no sequences).
        fusion: how pointwise operations are merged; None: as the front end assumes.
        name: of the program; empty: that of the source.
        options: of the front end alone, as texts.
    """

    source: str
    world: int | None = None
    axes: Mapping[str, int] = field(default_factory=dict)
    micro_batches: int | None = None
    samples_per_step: int | None = None
    tokens_per_sample: int | None = None
    fusion: str | None = None
    name: str = ""
    options: Mapping[str, str] = field(default_factory=dict)

    @property
    def path(self) -> str:
        """File of the source, without the name that it defines."""
        head, colon, tail = self.source.rpartition(":")
        return head if colon and tail.isidentifier() and head else self.source

    @property
    def defined(self) -> str:
        """Name that the file defines: `build` of train.py:build; empty where nothing is named."""
        return self.source[len(self.path) + 1 :]

    def n_ranks(self) -> int:
        """Number of ranks of the job.

        Raises:
            DataError: the axes do not divide it.
        """
        along = prod(self.axes.values())
        world = self.world or along
        if world % along:
            sizes = " * ".join(f"{axis}={size}" for axis, size in self.axes.items())
            raise DataError(f"--world: {world:,}, but the axes {sizes} = {along:,} do not divide it")
        return world

    def refuse_stated(self, fields: Sequence[str], remedy: str) -> None:
        """Refuses options that the source decides by itself, so that no request is ignored.

        Args:
            fields: of this request, that may not be stated.
            remedy: where it is stated instead.

        Raises:
            DataError: one of them is stated.
        """
        for field_name in fields:
            if getattr(self, field_name):
                raise DataError(f"{self.source}: {STATED_BY[field_name]} cannot be stated for it. {remedy}")

    def check_options(self, known: Mapping[str, str]) -> None:
        """Refuses options that a front end does not have; `known` describes each.

        Raises:
            DataError: names those that it has.
        """
        for name in self.options:
            if name not in known:
                told = "; ".join(f"{one}: {words}" for one, words in known.items()) or "none"
                raise DataError(f"--option {name}: unknown here. Options of this front end: {told}")


@dataclass(frozen=True)
class FrontEnd:
    """One way of capturing a program.

    Attributes:
        name: for `--front-end`, and the `source` of the programs it makes.
        about: its sources, in one line.
        recognises: whether a source is one of its own, by the name of the file and how it begins; must not run it.
        capture: makes the program; imports what it needs by itself, so that listing front ends imports nothing.
    """

    name: str
    about: str
    recognises: Callable[[CaptureRequest], bool]
    capture: Callable[[CaptureRequest], RankProgram]


SHIPPED = (
    "prism_jax.capture.execution.front_end",
    "prism_jax.capture.front_end",
    "prism_jax.capture.jax.front_end",
    "prism_jax.capture.hlo.front_end",
    "prism_jax.capture.torch.front_end",
)  # modules with a `FRONT_END`, asked in this order whether a source is theirs


def _shipped() -> Iterator[FrontEnd]:
    for name in SHIPPED:
        yield import_module(name).FRONT_END


FRONT_ENDS: Registry[FrontEnd] = Registry("front end", _shipped, error=DataError)


def front_end_for(request: CaptureRequest, name: str = "") -> FrontEnd:
    """The front end called `name`, or the first one that recognises the source.

    Raises:
        DataError: there is none; says which ones there are.
    """
    if name:
        return FRONT_ENDS.named(name)
    for one in FRONT_ENDS:
        if one.recognises(request):
            return one
    known = "; ".join(f"{one.name}: {one.about}" for one in FRONT_ENDS)
    absent = "" if Path(request.path).exists() else " There is no such file."
    raise DataError(f"{request.source}: no front end knows what this is.{absent} Name one by --front-end: {known}")


def overridden(program: RankProgram, request: CaptureRequest) -> RankProgram:
    """Returns the program with the values that a request states in place of the source's, ranks aside.

    Raises:
        SpecError: they do not fit it.
    """
    names = ("micro_batches", "samples_per_step", "tokens_per_sample", "fusion", "name")
    given = {name: value for name in names if (value := getattr(request, name))}
    return check_program(replace(program, **given)) if given else program


_ENDINGS = (".yaml", ".yml", ".toml")
_OF_THE_JOB = ("world", "axes", "micro_batches", "samples_per_step", "tokens_per_sample")


def _is_job(request: CaptureRequest) -> bool:
    """A job file, or the name of a shipped job."""
    return Path(request.source).suffix in _ENDINGS or request.source in example_files()


def _of_job(request: CaptureRequest) -> RankProgram:
    """The program of a job; degrees and batch are those of the job.

    Raises:
        DataError: other ones are asked for.
    """
    request.check_options({})
    request.refuse_stated(_OF_THE_JOB, "Degrees and batch are those of the job: change its plan.")
    from ..job.load_job import load_job  # a quarter of a second, which sources that are no jobs do not pay
    from .from_job import program_of_job

    program = program_of_job(load_job(request.source))
    return overridden(program, request)


FRONT_END = FrontEnd("spec", "a job file of prism-jax, or the name of a shipped job", _is_job, _of_job)


_MODULE = "prism_jax_user_code"


@contextmanager
def user_errors(path: Path, doing: str) -> Iterator[None]:
    """Turns errors of a user's code into a `DataError` with the last line of the file that was reached."""
    try:
        yield
    except PrismError:
        raise
    except (Exception, SystemExit) as error:
        raise DataError(f"{place_in(path, error)}: {doing}: {type(error).__name__}: {_first_line(error)}") from error


def place_in(path: Path, error: BaseException) -> str:
    """`file:line` of the deepest frame in the user's file; the file alone if none is."""
    own = [
        frame.lineno for frame in traceback.extract_tb(error.__traceback__) if Path(frame.filename) == path.resolve()
    ]
    line = error.lineno if isinstance(error, SyntaxError) else own[-1] if own else None
    return f"{path}:{line}" if line else str(path)


def _first_line(error: BaseException) -> str:
    return (str(error).strip() or "no message").splitlines()[0][:400]


def load_function(path: Path, name: str) -> Callable[..., Any]:
    """The function `name` of a Python file.

    Raises:
        DataError: no such file or function, or the file raises.
    """
    if not path.is_file():
        raise DataError(f"{path}: no such file")
    full = path.resolve()
    spec = importlib.util.spec_from_file_location(_MODULE, full)
    if spec is None or spec.loader is None:
        raise DataError(f"{path}: not a Python file (.py)")
    module = importlib.util.module_from_spec(spec)
    sys.modules[_MODULE] = module
    sys.path.insert(0, str(full.parent))
    try:
        with user_errors(path, "reading the file"):
            spec.loader.exec_module(module)
    finally:
        sys.path.remove(str(full.parent))
    found = getattr(module, name, None)
    if not callable(found):
        own = [
            key
            for key, value in vars(module).items()
            if callable(value) and getattr(value, "__module__", "") == _MODULE
        ]
        known = ", ".join(own[:8]) or "no function"
        raise DataError(f"{path}: does not define a function {name}; it has {known}. Name one: {path}:NAME")
    return found
