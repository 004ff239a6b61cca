"""RankProgram: a training step as one rank of every kind runs it, operation by operation and collective by collective.

Sizes are those of one rank and micro-batch. Whoever reads a program (PyTorch, JAX, execution traces) makes these rows and nothing
else; what they cost is decided later, by the kernel model and the network of the cluster that they are predicted on.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from math import isfinite

from ...core.content import ByContent
from ...core.errors import Problem, SpecError

OWN_KERNELS = ("gemm", "conv", "attention", "embedding")  # kinds with a kernel of their own
OP_KINDS = (*OWN_KERNELS, "memory", "none")
PHASES = ("F", "B", "W", "opt")  # forward; gradient of the inputs; gradient of the weights; once per step
COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "send", "recv", "permute")
PURPOSES = ("activations", "parameters", "gradients", "")
DTYPES = ("fp64", "fp32", "tf32", "bf16", "fp16", "fp8", "fp4", "int64", "int32", "int16", "int8", "bool")
SIZES_OF = {"gemm": ("batch", "m", "n", "k"), "attention": ("batch_heads", "q", "kv", "d_qk", "d_v")}
SIZES_OF["conv"] = SIZES_OF["gemm"]
MOST = 1e30  # of FLOPs and bytes of a row
MOST_SIZE = 2**40  # of a dimension
MOST_COUNT = 2**31  # of equal rows in a row
MOST_SIZES = 16  # dimensions


@dataclass(frozen=True, slots=True)
class CapturedOp:
    """One operation on the device, or `count` equal ones in a row.

    Attributes:
        name: as the program calls it: aten::mm, dot_general.
        kind: gemm | conv | attention | embedding | memory (pointwise, reductions, copies) | none (views: no work on the device).
        phase: F | B | W | opt (once per step: optimizer).
        dtype: of its inputs: one of `DTYPES`.
        shape: gemm: (batch, m, n, k); conv: the same of the implicit product; attention: (batch x heads, q, kv, d_qk, d_v); of
            others what there is, or empty.
        flops: multiply-adds count 2.
        n_bytes: of device memory, inputs and outputs.
        module: path of the layer.
        stream: of the device; 0 computes.
        fusible: pointwise or a reduction, which a fusion policy may merge with its neighbours.
        causal: attention of which the upper triangle is not computed; `flops` are without it.
        seconds: measured, alone on the device that it was measured on; None: by the kernel model.
        output_bytes: of `n_bytes`, what it writes; 0: not known, half of them.
        chain: rows further on in whose place one kernel does this and what lies between, see `chains`; 0: its last row, or none.
        chain_bytes: of device memory that this kernel moves, at its last row; None: `n_bytes`; 0: nothing is left to do.
    """

    name: str
    kind: str
    phase: str
    dtype: str
    shape: tuple[int, ...] = ()
    flops: float = 0.0
    n_bytes: float = 0.0
    module: str = ""
    count: int = 1
    stream: int = 0
    fusible: bool = False
    causal: bool = False
    seconds: float | None = None
    output_bytes: float = 0.0
    chain: int = 0
    chain_bytes: float | None = None

    def __post_init__(self) -> None:
        _check_word("kind", self.kind, OP_KINDS)
        _check_word("phase", self.phase, PHASES)
        _check_word("dtype", self.dtype, DTYPES)
        for name in ("flops", "n_bytes", "seconds", "output_bytes", "chain_bytes"):
            object.__setattr__(self, name, _amount(name, getattr(self, name)))
        _check_count("count", self.count, 1)
        _check_count("stream", self.stream, 0)
        _check_count("chain", self.chain, 0)
        _check_shape(self.kind, self.shape)

    @property
    def sizes(self) -> tuple[int, int, int, int]:
        """Sizes (m, n, k, batch) of a product; zeros for other operations."""
        if self.kind not in ("gemm", "conv"):
            return 0, 0, 0, 0
        batch, m, n, k = self.shape
        return m, n, k, batch


@dataclass(frozen=True, slots=True)
class CapturedComm:
    """One collective of a group that this rank belongs to, or `count` equal ones in a row.

    Attributes:
        collective: one of `COLLECTIVES`.
        axis: name of the mesh dimension, one of the axes of the program: tp, dp, fsdp, group0.
        ranks, stride: members of the group, and the distance between the numbers of neighbours: which links it crosses.
        n_bytes: as `system.network.Network.collective` counts them: the buffer of an all-reduce, the gathered size of an
            all-gather, the unreduced size of a reduce-scatter, what one rank sends to all (itself included) of an all-to-all.
        dtype: of its elements.
        asynchronous: other rows may run at the same time, until `wait`.
        wait: index, in the rows of the class, of the first row that needs its result; None: the end of its phase where it is
            asynchronous, else the next row. Inside a repeat a row that is not behind this one is meant in the next run: the index
            of the row itself is a collective that is fetched one run ahead.
        purpose: activations | parameters (gathered weights) | gradients (of weights); empty: as `exchange_of` guesses.
        seconds: measured; None: by the network of the cluster.
    """

    collective: str
    axis: str
    ranks: int
    stride: int
    n_bytes: float
    dtype: str
    phase: str
    module: str = ""
    count: int = 1
    asynchronous: bool = False
    wait: int | None = None
    purpose: str = ""
    seconds: float | None = None

    def __post_init__(self) -> None:
        _check_word("collective", self.collective, COLLECTIVES)
        _check_word("phase", self.phase, PHASES)
        _check_word("dtype", self.dtype, DTYPES)
        _check_word("purpose", self.purpose, PURPOSES)
        for name in ("n_bytes", "seconds"):
            object.__setattr__(self, name, _amount(name, getattr(self, name)))
        for name in ("ranks", "stride", "count"):
            _check_count(name, getattr(self, name), 1)
        if self.wait is not None:
            _check_count("wait", self.wait, 0)
        if not self.axis:
            raise SpecError.of(Problem("axis", "'', but it must name a dimension of the mesh"))

    @property
    def law(self) -> str:
        """Name of the collective in networks."""
        return "p2p" if self.collective in ("send", "recv", "permute") else self.collective


CapturedRow = CapturedOp | CapturedComm


def _check_word(field: str, value: str, known: tuple[str, ...]) -> None:
    if value not in known:
        words = ", ".join(one for one in known if one)
        raise SpecError.of(Problem(field, f"{str(value)[:60]!r}, but it must be one of {words}"))


def _amount(field: str, value: float | None) -> float | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not (isfinite(value) and 0.0 <= value <= MOST):
        raise SpecError.of(Problem(field, f"{str(value)[:60]}, but it must be a number from 0 to {MOST:g}"))
    return float(value)


def whole_number(field: str, value: int, least: int, most: int) -> Iterator[Problem]:
    """The problem of a count that is no whole number between its bounds."""
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        yield Problem(field, f"{str(value)[:60]}, but it must be a whole number from {least} to {most:,}")


def _check_count(field: str, value: int, least: int) -> None:
    for problem in whole_number(field, value, least, MOST_COUNT):
        raise SpecError.of(problem)


def _check_shape(kind: str, shape: tuple[int, ...]) -> None:
    names = SIZES_OF.get(kind)
    if names is not None and len(shape) != len(names):
        raise SpecError.of(Problem("shape", f"{len(shape)} sizes, but {kind} has {len(names)}: ({', '.join(names)})"))
    if len(shape) > MOST_SIZES:
        raise SpecError.of(Problem("shape", f"{len(shape)} sizes, but there are at most {MOST_SIZES}"))
    for size in shape:
        if isinstance(size, bool) or not isinstance(size, int) or not 0 <= size <= MOST_SIZE:
            text = f"{str(size)[:60]} among its sizes, but they must be whole numbers from 0 to {MOST_SIZE:,}"
            raise SpecError.of(Problem("shape", text))


FUSIONS = ("eager", "fused", "inductor", "megatron", "xla")
COUNTED = ("gemm", "conv", "attention")  # whose FLOPs are those of a model; those of the rest are never the limit
ROLES = ("tp", "cp", "ep", "etp", "dp", "pp")
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
        n_parameters: with which a rank computes, before they are divided over data-parallel ranks.
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
        """Operations, with the number of times that each runs."""
        return ((row, n) for row, n in self.counted if isinstance(row, CapturedOp))

    @property
    def comms(self) -> Iterator[tuple[CapturedComm, int]]:
        """Collectives, with the number of times that each runs."""
        return ((row, n) for row, n in self.counted if isinstance(row, CapturedComm))

    @property
    def counted(self) -> Iterator[tuple[CapturedRow, int]]:
        """All rows, with the number of times that each runs."""
        times = self.times
        return ((row, row.count * times[index]) for index, row in enumerate(self.rows))

    @property
    def times(self) -> list[int]:
        """Number of times that the repeat of each row runs, [row]."""
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
        source: kind of the source: torch, jax, hlo, et.
        versions: of that software.
        assumptions: made where the code does not state a fact, one sentence each; not compared: a sentence names files as
            they were typed, and rows hold what follows from them.
        roles: axis -> tp, cp, ep, etp, dp or pp, where its name does not say which one it is.
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
    assumptions: tuple[str, ...] = field(default=(), compare=False)
    roles: Mapping[str, str] = field(default_factory=dict)
    n_parameters: float = 0.0
    model_kind: str = ""

    def role(self, axis: str) -> str:
        """Returns the axis of a plan that a dimension of the mesh is; empty where neither its name nor the program says so."""
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
        """Number of rows of all classes."""
        return sum(len(one.rows) for one in self.classes)

    @property
    def slowest_classes(self) -> tuple[RankClass, ...]:
        """The class of every pipeline stage, [stage]: of several, the one with most FLOPs and bytes, which sets the pace."""
        found: dict[int, RankClass] = {}
        for one in self.classes:
            if one.stage not in found or _weight(one) > _weight(found[one.stage]):
                found[one.stage] = one
        return tuple(found[stage] for stage in range(self.n_stage))

    def n_params(self) -> int:
        """Parameters as captured, or of all stages and tensor-parallel ranks."""
        tp = self.degree("tp")
        return round(self.n_parameters or sum(one.n_parameters * tp for one in self.slowest_classes))


def _weight(one: RankClass) -> tuple[float, float]:
    return one.flops(), sum(op.n_bytes * n for op, n in one.ops)


def exchange_of(comm: CapturedComm, role: str) -> str:
    """Returns what a collective carries: activations, parameters or gradients; without a purpose guessed by axis and phase."""
    if comm.purpose:
        return comm.purpose
    if role != "dp":
        return "activations"
    if comm.collective in ("all_reduce", "reduce_scatter") and comm.phase != "F":
        return "gradients"
    return "parameters" if comm.collective in ("all_gather", "broadcast") else "activations"
