"""RankProgram: a training step as one rank of every kind runs it; what a capture writes and a prediction reads."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from ..._core.content import ByContent
from .rows import CapturedComm, CapturedOp, CapturedRow

FUSIONS = ("eager", "fused", "inductor", "megatron", "xla")
COUNTED = ("gemm", "conv", "attention")  # whose FLOPs are those of a model; those of the rest are never the limit
ROLES = ("tp", "cp", "ep", "dp", "pp")
# What axes of meshes are usually called -> the axis of a plan that they are.
USUAL_ROLES = {
    **{name: name for name in ROLES},
    **dict.fromkeys(("tensor", "model", "mp", "tensor_parallel"), "tp"),
    **dict.fromkeys(("sp", "context", "sequence", "seq"), "cp"),
    **dict.fromkeys(("expert", "experts"), "ep"),
    **dict.fromkeys(("fsdp", "hsdp", "ddp", "data", "replica", "replicate", "dp_replicate", "batch"), "dp"),
    **dict.fromkeys(("shard", "dp_shard", "zero"), "dp"),
    **dict.fromkeys(("stage", "stages", "pipeline", "pipe"), "pp"),
}
SHARDED = ("fsdp", "hsdp", "shard", "dp_shard", "zero")  # axes over which parameters are usually divided


@dataclass(frozen=True, slots=True)
class Repeat:
    """Rows `start` to `stop` (exclusive) of a class run `times` times in a row: layers of one kind, trips of a loop."""

    start: int
    stop: int
    times: int


AMOUNTS = ("n_parameters", "sends_bytes", "saved_bytes", "n_expert_parameters")


@dataclass(frozen=True)
class RankClass:
    """Ranks that run the same program.

    Attributes:
        name: of the class, unique in its program.
        n_ranks: how many they are.
        stage: part of the model that it runs, from 0 in model order: a pipeline stage, or one of several chunks of a stage.
        rows: of one micro-batch, in the order in which the program issues them; rows of phase opt run once per step.
        repeats: parts of the rows that run several times; they do not overlap.
        n_parameters: that a rank computes with, before they are divided over data-parallel ranks.
        sends_bytes: activations that the stage hands to the next one, of one rank and micro-batch.
        saved_bytes: kept between the forward and the backward pass of a micro-batch; None: not known.
        n_expert_parameters: of `n_parameters`, those of which every rank of ep has others.
    """

    name: str
    n_ranks: int
    stage: int
    rows: tuple[CapturedRow, ...]
    repeats: tuple[Repeat, ...] = ()
    n_parameters: float = 0.0
    sends_bytes: float = 0.0
    saved_bytes: float | None = None
    n_expert_parameters: float = 0.0

    def __post_init__(self) -> None:
        for name in AMOUNTS:
            value = getattr(self, name)
            object.__setattr__(self, name, float(value) if isinstance(value, int) else value)

    @property
    def ops(self) -> Iterator[tuple[CapturedOp, int]]:
        """Its operations, and how often each runs."""
        return ((row, n) for row, n in self.counted if isinstance(row, CapturedOp))

    @property
    def comms(self) -> Iterator[tuple[CapturedComm, int]]:
        """Its collectives, and how often each runs."""
        return ((row, n) for row, n in self.counted if isinstance(row, CapturedComm))

    @property
    def counted(self) -> Iterator[tuple[CapturedRow, int]]:
        """Its rows, and how often each runs."""
        times = self.times
        return ((row, row.count * times[index]) for index, row in enumerate(self.rows))

    @property
    def times(self) -> list[int]:
        """[row] how often its repeat runs."""
        times = [1] * len(self.rows)
        for repeat in self.repeats:
            times[repeat.start : repeat.stop] = [repeat.times] * (repeat.stop - repeat.start)
        return times

    def flops(self, *phases: str) -> float:
        """FLOPs of products, convolutions and attention of a rank and a micro-batch; of all phases but opt if none is given."""
        wanted = phases or ("F", "B", "W")
        return sum(op.flops * n for op, n in self.ops if op.phase in wanted and op.kind in COUNTED)


@dataclass(frozen=True, eq=False)
class RankProgram(ByContent):
    """A training step, as captured from its code on one machine.

    Attributes:
        name: of the program.
        world: ranks of the job that was captured.
        axes: dimension of the mesh -> its size; rows name these.
        classes: kinds of ranks; together they have at least one for every stage.
        micro_batches: of a step, per data-parallel rank.
        samples_per_step: of the whole job.
        tokens_per_sample: 0 where samples are no sequences.
        fusion: how pointwise operations are merged: one of `FUSIONS`.
        source: what was read: torch, jax, hlo, et.
        versions: of that software.
        assumptions: what was assumed where the code does not say it, one sentence each.
        roles: axis -> tp, cp, ep, dp or pp, where its name does not say which one it is.
        n_parameters: of the whole model; 0: the sum over classes and tensor-parallel ranks.
        model_kind: kind of model (transformer, encoder, cnn, ...) whose measured corrections apply; empty: as its rows suggest.
    """

    name: str
    world: int
    axes: Mapping[str, int]
    classes: tuple[RankClass, ...]
    micro_batches: int
    samples_per_step: int
    tokens_per_sample: int = 0
    fusion: str = "eager"
    source: str = ""
    versions: Mapping[str, str] = field(default_factory=dict)
    assumptions: tuple[str, ...] = ()
    roles: Mapping[str, str] = field(default_factory=dict)
    n_parameters: float = 0.0
    model_kind: str = ""

    def role(self, axis: str) -> str:
        """Which axis of a plan a dimension of the mesh is; empty where neither its name nor the program says so."""
        return self.roles.get(axis) or USUAL_ROLES.get(axis.lower(), "")

    def degree(self, role: str) -> int:
        """Ranks along an axis of a plan: the product over the mesh dimensions that it stands for."""
        degree = 1
        for axis, size in self.axes.items():
            degree *= max(size, 1) if self.role(axis) == role else 1
        return degree

    @property
    def n_stage(self) -> int:
        """Parts of the model: pipeline stages, or all chunks of theirs."""
        return 1 + max((one.stage for one in self.classes), default=-1)

    @property
    def virtual_stages(self) -> int:
        """Parts of the model on every pipeline stage."""
        return max(self.n_stage // self.degree("pp"), 1)

    @property
    def n_rows(self) -> int:
        """Rows of all classes."""
        return sum(len(one.rows) for one in self.classes)


def exchange_of(comm: CapturedComm, role: str) -> str:
    """What a collective carries: activations, parameters or gradients, guessed by axis and phase where its purpose is blank."""
    if comm.purpose:
        return comm.purpose
    if role != "dp":
        return "activations"
    if comm.collective in ("all_reduce", "reduce_scatter") and comm.phase != "F":
        return "gradients"
    return "parameters" if comm.collective in ("all_gather", "broadcast") else "activations"
