"""PipelineSchedule: everything that one pipeline schedule decides, from the order of ops to closed forms of memory and time.

A schedule of one's own needs a name and `orders`; whatever else it leaves out has a default that is right for any order:
chunks dealt out to the stages in turn, activations counted along the order, a lower bound of nothing but busy time.
"""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar

from ..core.arrays import Counts, Flags, Floats
from ..core.errors import PlanError, Problem
from ..core.lazy import np
from .order import Orders, PipelineWork, Placement, ScheduleOrder, StepOps, peak_activations, peak_logits

MOST_TRIED = 4096  # numbers of micro-batches that are tried for a remedy


@dataclass(frozen=True)
class PipelineSchedule(ABC):
    """A kind of pipeline schedule; compared by value, so that its parameters must be hashable.

    Degrees are named as in `ParallelPlan`: pp stages, n_micro_batch micro-batches, virtual_stages model chunks per stage.

    Attributes:
        name: as plans and job files spell it.
        fixed_virtual_stages: the only number of chunks per stage that it runs; None if it runs several.
        overlaps_passes: ops may hold a forward and a backward, so that the communication of one hides behind the other.
        fills_one_way: stage s starts after chunks 0 .. s-1 have run the same micro-batch forward, one after the other.
        loss_goes_back_at_once: the last chunk's backward follows its forward, so that one micro-batch of logits is held.
        drains_one_way: the step ends after the last gradient of stage s has gone back through chunks s-1 .. 0.
    """

    name: str
    fixed_virtual_stages: ClassVar[int | None] = 1
    overlaps_passes: ClassVar[bool] = False
    fills_one_way: ClassVar[bool] = False
    drains_one_way: ClassVar[bool] = False
    loss_goes_back_at_once: ClassVar[bool] = False

    def __str__(self) -> str:
        return self.name

    @property
    def about(self) -> str:
        """Description in one line: the first of the class's docstring."""
        return self.description.partition("\n")[0]

    @property
    def description(self) -> str:
        """Docstring of the class."""
        return inspect.getdoc(type(self)) or ""

    # Order and placement

    @abstractmethod
    def orders(self, pp: int, n_micro_batch: int, virtual_stages: int) -> Orders:
        """Ops of every stage in the order in which they run; called with degrees without `problems` only."""

    def ops(self, pp: int, n_micro_batch: int, virtual_stages: int) -> StepOps:
        """Returns the ops of `orders` as arrays; `ArraySchedule`, which makes arrays sooner than objects, replaces it."""
        return StepOps.of(self.orders(pp, n_micro_batch, virtual_stages))

    def placements(self, pp: int, virtual_stages: int) -> tuple[tuple[int, ...], ...]:
        """Stages, [direction][chunk]; one direction unless micro-batches enter at both ends."""
        return (tuple(chunk % pp for chunk in range(pp * virtual_stages)),)

    def direction(self, micro_batch: int, n_micro_batch: int) -> int:
        """Returns the index of the `placements` that a micro-batch follows."""
        return 0

    def lay_out(self, pp: int, n_micro_batch: int, virtual_stages: int) -> ScheduleOrder:
        """Order of all ops of one step.

        Raises:
            PlanError: one of `problems`, or an op that holds a forward and a backward unless `overlaps_passes`.
        """
        for problem in self.problems(pp, n_micro_batch, virtual_stages):
            raise PlanError.of(problem)
        ops = self.ops(pp, n_micro_batch, virtual_stages)
        if not self.overlaps_passes and ops.overlaps_passes.any():
            raise PlanError(
                f"schedule {self.name} runs a forward and a backward at the same time. Set overlaps_passes = True in it."
            )
        placement = Placement(
            self.placements(pp, virtual_stages), tuple(self.direction(m, n_micro_batch) for m in range(n_micro_batch))
        )
        return ScheduleOrder(self.name, pp, n_micro_batch, virtual_stages, ops, placement)

    def chunks_of_stage(self, stage: int, pp: int, virtual_stages: int) -> tuple[int, ...]:
        """Chunks whose parameters live on `stage`, in model order."""
        return _chunks_of_stages(self, pp, virtual_stages)[stage]

    def stage_shares(self, pp: int, virtual_stages: int) -> Floats:
        """Share of a chunk's micro-batches that a stage runs, [chunk, stage]: 1, or less where several stages share it."""
        held = np.zeros((pp * virtual_stages, pp))
        for stage in range(pp):
            held[[*self.chunks_of_stage(stage, pp, virtual_stages)], stage] = 1.0
        return held / held.sum(axis=1, keepdims=True)

    # Conditions

    def layout_problem(self, pp: int, virtual_stages: int) -> str:
        """Returns what is wrong with the degrees for any number of micro-batches: constraint and remedy; empty if nothing is."""
        fixed = self.fixed_virtual_stages
        if fixed is None or virtual_stages == fixed:
            return ""
        return (
            f"runs {fixed} model chunk(s) per stage, but virtual_stages = {virtual_stages}. "
            f"Set virtual_stages={fixed}, or schedule=interleaved for more."
        )

    def enough_micro_batches(self, pp: int, n_micro_batch: Counts, virtual_stages: int) -> Flags:
        """Whether each of the numbers of micro-batches [plan] can be laid out on `pp` stages."""
        return n_micro_batch >= 1

    def micro_batches_needed(self, pp: int, virtual_stages: int) -> str:
        """The condition of `enough_micro_batches` in words."""
        return "at least 1 micro-batch per replica"

    def problems(self, pp: int, n_micro_batch: int, virtual_stages: int) -> Iterator[Problem]:
        """Every condition that the degrees do not meet; without any, the schedule can be laid out."""
        degrees = {"pp": pp, "n_micro_batch": n_micro_batch, "virtual_stages": virtual_stages}
        too_small = [(name, value) for name, value in degrees.items() if value < 1]
        for name, value in too_small:
            yield Problem("schedule", f"{self.name} needs at least 1 of each, but {name} = {value}. Try {name}=1.")
        if too_small:
            return
        wrong = self.layout_problem(pp, virtual_stages)
        if wrong:
            yield Problem("schedule", f"{self.name} {wrong}")
        more = n_micro_batch + np.arange(min(4 * pp, MOST_TRIED) + 1, dtype=np.int64)
        enough = self.enough_micro_batches(pp, more, virtual_stages)
        if not enough[0]:
            n = int(more[enough.argmax()])
            remedy = (
                f"Try n_micro_batch={n} (global_batch = {n} * dp * micro_batch)." if enough.any() else "Try another pp."
            )
            yield Problem(
                "schedule",
                f"{self.name} needs {self.micro_batches_needed(pp, virtual_stages)}, "
                f"but pp = {pp} and n_micro_batch = {n_micro_batch}. {remedy}",
            )

    # Memory

    def in_flight(self, stage: int, pp: int, n_micro_batch: int, virtual_stages: int, kept_for_w: float = 1.0) -> float:
        """Peak number of chunk-activations that a stage holds, in the unit of `activations`.

        Args:
            stage: 0 .. pp - 1.
            pp, n_micro_batch, virtual_stages: degrees.
            kept_for_w: fraction of an activation that stays between B and W, 0-1; matters where they are ops of their own.

        Raises:
            PlanError: the schedule cannot be laid out.
        """
        return _counted_activations(self, pp, n_micro_batch, virtual_stages, kept_for_w)[stage]

    def in_flight_of_chunks(
        self, stage: int, pp: int, n_micro_batch: int, virtual_stages: int, sizes: Sequence[float]
    ) -> tuple[float, ...]:
        """Activations that a stage holds of each of its chunks at its fullest; evenly, unless a schedule knows better.

        Args:
            sizes: of one activation of every chunk of the stage, in model order, in any unit.

        Raises:
            PlanError: the schedule cannot be laid out.
        """
        return (self.in_flight(stage, pp, n_micro_batch, virtual_stages) / len(sizes),) * len(sizes)

    def logits_held(self, stage: int, pp: int, n_micro_batch: int, virtual_stages: int) -> int:
        """Peak number of micro-batches of logits on a stage; 0 on stages without the last chunk.

        Raises:
            PlanError: the schedule cannot be laid out.
        """
        if self.loss_goes_back_at_once:
            return one_if_last(self, stage, pp, virtual_stages)
        return _counted_logits(self, pp, n_micro_batch, virtual_stages)[stage]

    # Time

    def step_s(self, work: PipelineWork) -> Floats:
        """Estimate of the noise-free step time without transfers between stages, seconds, [plan]."""
        return work.bound_s


class ArraySchedule(PipelineSchedule):
    """A schedule that is written down as arrays; it defines `ops`."""

    @abstractmethod
    def ops(self, pp: int, n_micro_batch: int, virtual_stages: int) -> StepOps:
        """Ops of every stage; called with degrees without `problems` only."""

    def orders(self, pp: int, n_micro_batch: int, virtual_stages: int) -> Orders:
        """Returns the ops of every stage as objects."""
        return self.ops(pp, n_micro_batch, virtual_stages).orders()


def one_if_last(schedule: PipelineSchedule, stage: int, pp: int, virtual_stages: int) -> int:
    """1 on stages with the last chunk, else 0: logits where its backward follows at once."""
    return int(pp * virtual_stages - 1 in schedule.chunks_of_stage(stage, pp, virtual_stages))


@lru_cache(maxsize=1024)
def _chunks_of_stages(schedule: PipelineSchedule, pp: int, virtual_stages: int) -> tuple[tuple[int, ...], ...]:
    held: list[set[int]] = [set() for _ in range(pp)]
    for stages in schedule.placements(pp, virtual_stages):
        for chunk, stage in enumerate(stages):
            held[stage].add(chunk)
    return tuple(tuple(sorted(own)) for own in held)


@lru_cache(maxsize=256)
def _counted_activations(
    schedule: PipelineSchedule, pp: int, n_micro_batch: int, virtual_stages: int, kept_for_w: float
) -> tuple[float, ...]:
    return tuple(peak_activations(schedule.lay_out(pp, n_micro_batch, virtual_stages), kept_for_w))


@lru_cache(maxsize=256)
def _counted_logits(schedule: PipelineSchedule, pp: int, n_micro_batch: int, virtual_stages: int) -> tuple[int, ...]:
    return tuple(peak_logits(schedule.lay_out(pp, n_micro_batch, virtual_stages)))
