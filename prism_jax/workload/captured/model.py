"""CapturedModel: a captured program as a workload, whose blocks are its pipeline stages."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from ...core.content import ByContent
from ...core.errors import Problem, SpecError
from ...plan.plan import ParallelPlan
from ..base.workload import DENSE, BlockRun, Split, WorkloadDefaults
from .block import EXPERT, SHARDED, CapturedBlock
from .check import FIXED, check_program, gathers_parameters, is_sequence_parallel, plan_fields
from .fusion import fused
from .program import AMOUNTS, RankClass, RankProgram


@dataclass(frozen=True, eq=False)
class CapturedModel(WorkloadDefaults, ByContent):
    """Model that is given by the operations of its ranks.

    Attributes:
        program: as it was captured.

    Raises:
        SpecError: the program contradicts itself.
    """

    program: RankProgram

    def __post_init__(self) -> None:
        check_program(self.program)
        plan_fields(self.program)

    @property
    def name(self) -> str:
        """Name of the program."""
        return self.program.name

    @property
    def sample_unit(self) -> str:
        """Tokens where samples are sequences."""
        return "tokens" if self.program.tokens_per_sample else "samples"

    @property
    def has_experts(self) -> bool:
        """Whether ranks exchange tokens with experts."""
        return self.program.degree("ep") > 1

    @cached_property
    def calibrated_as(self) -> str:
        """Kind of model whose corrections apply, by the largest part of its work: empty for transformers."""
        if self.program.model_kind:
            return "" if self.program.model_kind == "transformer" else self.program.model_kind
        ops = [op for one in self.program.classes for op, _ in one.ops]
        if attention := [op for op in ops if op.kind == "attention"]:
            return "" if any(op.causal for op in attention) else "encoder"
        return "cnn" if any(op.kind == "conv" for op in ops) else ""

    @property
    def sure_software(self) -> dict[str, object]:
        """Software settings that follow from the fusion policy."""
        return {"compile": self.program.fusion in ("inductor", "xla")}

    @cached_property
    def stages(self) -> tuple[RankClass, ...]:
        """Class that sets the pace of each stage, with kernels merged, [stage]."""
        return tuple(fused(one, self.program.fusion) for one in self.program.slowest_classes)

    @property
    def layout(self) -> tuple[BlockRun, ...]:
        """One block for every captured stage; equal neighbours are a run."""
        runs: list[BlockRun] = []
        for kind in self._kinds:
            if runs and runs[-1].kind == kind:
                runs[-1] = runs[-1]._replace(count=runs[-1].count + 1)
            else:
                runs.append(BlockRun(kind, 1, is_unit=False))
        return tuple(runs)

    @cached_property
    def _kinds(self) -> tuple[str, ...]:
        """Name of the block of each stage, [stage]; stages that run the same have one name."""
        first: dict[tuple[object, ...], str] = {}
        return tuple(
            first.setdefault((one.rows, one.repeats, *(getattr(one, name) for name in AMOUNTS)), f"stage_{stage}")
            for stage, one in enumerate(self.stages)
        )

    def groups(self, plan: ParallelPlan) -> tuple[tuple[str, float], ...]:
        """One way; sharded parameters are gathered by the rows themselves."""
        if plan.shard_group > 1 and gathers_parameters(self.program):
            return ((SHARDED, plan.shard_group),)
        ep = self.program.degree("ep")
        return ((DENSE, 1), (EXPERT, plan.expert_split)) if ep > 1 else ((DENSE, 1),)

    def block(self, kind: str, plan: ParallelPlan) -> CapturedBlock:
        """The stage of that name."""
        return CapturedBlock(self.program, self.stages[self._kinds.index(kind)], plan)

    def boundary_bytes(self, plan: ParallelPlan) -> float:
        """The largest that a stage hands on."""
        own = max((_sent(one) for one in self.stages), default=0.0)
        return own * (plan.tp if is_sequence_parallel(self.program) else 1)

    def n_params(self) -> int:
        """Number of parameters of the program."""
        return self.program.n_params()

    def units_per_step(self, plan: ParallelPlan) -> int:
        """Tokens or samples of a step."""
        return plan.global_batch * (self.program.tokens_per_sample or 1)

    def step_flops(self, plan: ParallelPlan, *, recomputed: bool) -> float:
        """FLOPs of all rows on all devices; recomputed rows are among them and cannot be distinguished."""
        per_rank = sum(one.flops() for one in self.stages)
        return per_rank * plan.n_micro_batch * plan.tp * plan.cp * plan.dp

    def deeper(self, n: int) -> CapturedModel:
        """A capture has no other depth.

        Raises:
            SpecError: always.
        """
        raise SpecError(f"{self.name}: a capture has the stages that it was captured with. Capture the deeper model.")

    def splits(self, plan: ParallelPlan) -> dict[str, Split]:
        """The degrees that it was captured with."""
        kinds = {"tp": "tensor", "cp": "context", "ep": "expert"}
        told = {axis: f"{kind}-parallel ranks of the capture" for axis, kind in kinds.items()}
        return {axis: Split(self.program.degree(axis), text) for axis, text in told.items()}

    def problems(self, plan: ParallelPlan) -> Iterator[Problem]:
        """Fields that the rows were written under and that the plan changes."""
        own = plan_fields(self.program)
        for name in self.fixed_fields:
            captured = own.get(name, getattr(_DEFAULTS, name))
            if _written_alike(name, getattr(plan, name)) != _written_alike(name, captured):
                text = (
                    f"{getattr(plan, name)}, but the program was captured with {captured}. Keep it, or capture again."
                )
                yield Problem(name, text)
        if self.program.n_stage % plan.n_chunk:
            n = self.program.n_stage
            text = f"{plan.pp}: pp * virtual_stages = {plan.n_chunk} does not divide the {n} stages of the capture"
            yield Problem("pp", text)

    @property
    def fixed_fields(self) -> tuple[str, ...]:
        """Fields of a plan that have one value only."""
        return FIXED


_DEFAULTS = ParallelPlan(micro_batch=1, global_batch=1)


def _written_alike(name: str, value: object) -> object:
    """Values of a field under which the rows are the same have one name: ZeRO-1 and 2 exchange alike."""
    return 1 if name == "zero_stage" and value == 2 else value


def _sent(one: RankClass) -> float:
    if one.sends_bytes:
        return one.sends_bytes
    return max((comm.n_bytes for comm, _ in one.comms if comm.collective == "send" and comm.phase == "F"), default=0.0)
