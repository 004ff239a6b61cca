"""A program from user code: every stage built, every different one run once."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from ...core.errors import DataError
from ...workload.captured.check import check_program
from ...workload.captured.program import RankClass, RankProgram
from ..front_end import CaptureRequest, load_function, place_in, user_errors
from . import adapter
from .classes import ASSUMPTION, OPTIMIZER, rank_class
from .contract import Built, RankLayout, checked, data_parallel_size, mesh_axes, pipeline_axis, rank_of_stage
from .recorder import Recorder
from .run_step import run_step

# pyright: reportMissingImports=false


_DEFAULT = "build"
_HINT = "the value of a tensor decides what runs, but a capture has no values. Take it from a size or a setting instead"


@dataclass(frozen=True)
class _Found:
    """Captured rows and facts of one stage."""

    rank_class: RankClass
    assumptions: tuple[str, ...]
    samples: int
    tokens: int


def capture_program(request: CaptureRequest) -> RankProgram:
    """The program of the job.

    Raises:
        DataError: the user's code raises, breaks the contract or lets data decide; names file and line.
    """
    path = Path(request.path)
    build = load_function(path, request.defined or _DEFAULT)
    axes = mesh_axes(request.axes, request.n_ranks())
    world = request.n_ranks()
    capture = _Capture(
        path,
        build,
        axes,
        world,
        accumulates=(request.micro_batches or 1) > 1,
        fold=request.options.get("fold", "yes") != "no",
        every_rank=request.options.get("ranks") == "all",
    )
    found = capture.stages()
    micro_batches = request.micro_batches or 1
    samples = request.samples_per_step or found[0].samples * micro_batches * data_parallel_size(axes)
    tokens = found[0].tokens if request.tokens_per_sample is None else request.tokens_per_sample
    assumed = dict.fromkeys(text for one in found for text in one.assumptions)
    program = RankProgram(
        name=request.name or path.stem,
        world=world,
        axes=axes,
        classes=tuple(one.rank_class for one in found),
        micro_batches=micro_batches,
        samples_per_step=samples,
        tokens_per_sample=tokens,
        fusion=request.fusion or "eager",
        source="torch",
        versions={"torch": torch.__version__.split("+")[0]},
        assumptions=(ASSUMPTION, OPTIMIZER, *assumed),
    )
    _check_axes(program, path)
    return check_program(program)


@dataclass
class _Capture:
    path: Path
    build: Callable[..., Any]
    axes: Mapping[str, int]
    world: int
    accumulates: bool
    fold: bool
    every_rank: bool

    def stages(self) -> list[_Found]:
        """One class per stage; stages that are built alike are run once. Or one class for all ranks that run the same rows."""
        n_stages = self.axes.get(pipeline_axis(self.axes), 1)
        per_stage = self.world // n_stages
        seen: dict[Any, _Found] = {}
        made: list[_Found] = []
        for stage in range(n_stages):
            first = rank_of_stage(self.axes, stage)
            ranks = [first + step for step in range(per_stage)] if self.every_rank else [first]
            runs = [self._rank(rank, stage, n_stages, {} if self.every_rank else seen) for rank in ranks]
            made += _grouped(runs, stage, per_stage)
        return made

    def _rank(self, rank: int, stage: int, n_stages: int, seen: dict[Any, _Found]) -> _Found:
        recorder = Recorder(self.axes)
        with (
            adapter.fake_world(rank, dict(self.axes), self.world) as mesh,
            adapter.fake_tensors(recorder.paused, recorder.reduces),
        ):
            layout = RankLayout(mesh, torch.device("cpu"), rank, self.world, self.axes, n_stages, stage)
            built = self._built(layout)
            key = _likeness(built, is_first=stage == 0)
            if key not in seen:
                seen[key] = self._run(built, recorder, stage, n_stages)
            return seen[key]

    def _built(self, layout: RankLayout) -> Built:
        takes_layout = bool(inspect.signature(self.build).parameters)
        where = f"{self.path}: {getattr(self.build, '__name__', 'build')}"
        with self._errors("building the model"):
            value = self.build(layout) if takes_layout else self.build()
        if layout.n_stages > 1 and "stage" not in layout.asked:
            raise DataError(
                f"{where}: never asked for layout.stage, but there are {layout.n_stages} stages. Build that part."
            )
        return checked(value, torch, where)

    def _run(self, built: Built, recorder: Recorder, stage: int, n_stages: int) -> _Found:
        with self._errors("running the step"):
            facts = run_step(built, recorder, str(self.path), is_first=stage == 0, accumulates=self.accumulates)
        found = rank_class(recorder, facts, built.model, stage, self.world // n_stages, fold=self.fold)
        first = next(one for one in built.inputs if isinstance(one, torch.Tensor))
        is_sequence = not first.dtype.is_floating_point and first.dim() > 1
        samples = first.shape[0] if first.dim() else 1
        return _Found(found, facts.assumptions, samples, first.shape[1] if is_sequence else 0)

    @contextmanager
    def _errors(self, doing: str) -> Iterator[None]:
        """Turns errors of user code into messages with the line; those of missing values with a remedy."""
        with user_errors(self.path, doing):
            try:
                yield
            except adapter.DATA_DEPENDENT as error:
                raise DataError(f"{place_in(self.path, error)}: {doing}: {_HINT} ({error.func})") from error


def _grouped(runs: list[_Found], stage: int, n_ranks: int) -> list[_Found]:
    """One of all that have the same rows, with the number of their ranks."""
    alike: dict[Any, list[_Found]] = {}
    for one in runs:
        alike.setdefault((one.rank_class.rows, one.rank_class.repeats), []).append(one)
    found: list[_Found] = []
    for number, same in enumerate(alike.values()):
        name = f"stage{stage}" + (f".{number}" if number else "")
        ranks = n_ranks * len(same) // len(runs)
        found.append(replace(same[0], rank_class=replace(same[0].rank_class, name=name, stage=stage, n_ranks=ranks)))
    return found


def _likeness(built: Built, *, is_first: bool) -> Any:
    """Equal for stages that run the same rows."""
    modules = tuple((name, type(module).__qualname__) for name, module in built.model.named_modules())
    names = tuple("".join("*" if c.isdigit() else c for c in name) + kind for name, kind in modules)
    shapes = tuple((tuple(one.shape), one.dtype) for one in built.model.parameters())
    inputs = tuple((tuple(one.shape), one.dtype) for one in built.inputs if isinstance(one, torch.Tensor))
    return names, shapes, inputs, built.loss is None, is_first, built.optimizer


def _check_axes(program: RankProgram, path: Path) -> None:
    """Every dimension of the mesh must be used by a collective.

    Raises:
        DataError: names the one that is not, and how to use it.
    """
    used = {row.axis for one in program.classes for row, _ in one.comms}
    for axis, size in program.axes.items():
        role = program.role(axis)
        if size == 1 or axis in used or role in ("pp", ""):
            continue
        remedy = f'parallelize_module(model, layout.mesh["{axis}"], ...)'
        if role == "dp":
            remedy = f'DistributedDataParallel(model, process_group=layout.mesh.get_group("{axis}")) or fully_shard'
        raise DataError(
            f"{path}: nothing is exchanged over {axis}={size}: the model is not made parallel over it. Use {remedy}."
        )
