"""ParallelPlan: how a model and a global batch are spread over devices: groups, tiers, and which device plays which part."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from math import lcm
from typing import TYPE_CHECKING, Annotated

from ..core.bounds import MOST_DEVICES, MOST_ELEMENTS, MOST_LAYERS, MOST_SAMPLES, MOST_TOKENS, check_bounds
from ..core.errors import PlanError, Problem
from ..core.kernels import RECOMPUTE as RECOMPUTE
from ..core.lazy import np
from ..framework.software import FLASH_ATTENTION, Software as Software
from ..schedule.base import PipelineSchedule
from ..schedule.registry import SCHEDULES, resolve_schedule
from .fields import (
    CORE_ATTENTION,
    DTYPES,
    ELEMENT_BYTES,
    FP8_RECIPES,
    METHODS,
    MODULES,
    UNIFORM,
    PlanField,
    SavedDtypes as SavedDtypes,
    StateDtypes as StateDtypes,
    TableSharding as TableSharding,
    parse_sharding,
    parse_share,
    updates_shards,
)
from .optimizers import OPTIMIZERS, has_master, parse_optimizer
from .packing import Data as Data, law_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray


DEFAULT_SCHEDULE = "1f1b"
_SHARE = "true, false, or a share of 0 to 1"
SHARDING = ("none", "fsdp", "hsdp")
AXES = ("tp", "cp", "dp", "pp")
LEAST_BUCKET, BUCKET_PER_RANK = 40_000_000, 1_000_000  # elements; Megatron-LM


@dataclass(frozen=True)
class Overlap:
    """Communication that runs during compute instead of in front of it."""

    dp: Annotated[bool, PlanField("communication of data parallelism runs during compute")] = True
    tp: Annotated[bool, PlanField("communication of tensor parallelism runs during compute")] = False
    pp: Annotated[bool, PlanField("communication of pipeline parallelism runs during compute")] = True


@dataclass(frozen=True)
class ParallelPlan:
    """Degrees, batch, schedule, sharding, precision and placement order.

    Notes:
        `n_devices = tp * cp * dp * pp`. Experts are laid out anew over the ranks of a stage: each is split over `etp` of them,
        and `ep` such groups share out all experts, so `ep * etp` divides tp x cp x dp.
        Ranks of dp and of cp hold the same parameters, so both share them out: `sharding = fsdp` over all of dp x cp (ZeRO-3),
        `hsdp` over groups of `dp_shard` x cp.
    """

    micro_batch: Annotated[int, PlanField("sequences of one micro-batch")]
    global_batch: Annotated[int, PlanField("sequences of one step, a multiple of dp * micro_batch")]
    seq_len: Annotated[int, PlanField("tokens of a sequence; 0 for models whose samples are no sequences")] = 0
    tp: Annotated[int, PlanField("tensor parallelism")] = 1
    pp: Annotated[int, PlanField("pipeline parallelism: stages")] = 1
    dp: Annotated[
        int,
        PlanField(
            "data parallelism; auto, or left out where cluster.n_devices is given: as many as fill the cluster",
            or_auto=True,
        ),
    ] = 1
    cp: Annotated[int, PlanField("context parallelism")] = 1
    ep: Annotated[int, PlanField("expert parallelism; ep * etp divides tp * cp * dp")] = 1
    etp: Annotated[
        int | None,
        PlanField(
            "tensor parallelism of experts; 0: as tp; by default 1 (whole experts) where ep is above 1, else as tp",
            least=0,
        ),
    ] = None  # the default of frameworks that split experts as everything else is 0; see `expert_tp`
    virtual_stages: Annotated[int, PlanField("model chunks per stage (interleaved, zb_v, dualpipe)")] = 1
    schedule: Annotated[str | PipelineSchedule, PlanField("order of the pipeline's passes", known=SCHEDULES)] = (
        DEFAULT_SCHEDULE  # a name, or an object
    )
    sequence_parallel: Annotated[bool, PlanField("activations between tensor-parallel regions are split over tp")] = (
        False
    )
    zero_stage: Annotated[
        int, PlanField("split over dp x cp: 1 optimizer state, 2 and gradients, 3 and parameters", least=0, most=3)
    ] = 0
    sharding: Annotated[
        str, PlanField("fsdp: parameters are split over dp x cp; hsdp: over groups of dp_shard x cp", known=SHARDING)
    ] = "none"
    dp_shard: Annotated[int, PlanField("ranks of dp in a sharding group, for hsdp; all of cp are in it, too")] = 0
    recompute: Annotated[
        str, PlanField("which activations are computed again in the backward pass", known=RECOMPUTE)
    ] = "none"
    recompute_method: Annotated[
        str, PlanField("for full: choice of layers, as Megatron-LM names it", known=METHODS)
    ] = UNIFORM
    recompute_num_layers: Annotated[int, PlanField("for full: number of layers, see the method; 0: not given")] = 0
    recompute_modules: Annotated[tuple[str, ...], PlanField("for selective: names of modules", known=MODULES)] = (
        CORE_ATTENTION,
    )
    dtype: Annotated[str, PlanField("number format of the matrix products", known=DTYPES)] = "bf16"
    fp8_recipe: Annotated[
        str | None,
        PlanField(
            "for dtype fp8: extent of a scale; by default as the framework does: delayed, tensorwise under FSDP",
            known=FP8_RECIPES,
        ),
    ] = None
    bf16_layers: Annotated[
        int | None,
        PlanField(
            "layers whose products stay in 16 bits under a dtype of fewer; by default as the recipe has it", least=0
        ),
    ] = None
    state_dtypes: Annotated[
        StateDtypes, PlanField("number formats of gradients, master parameters and optimizer state")
    ] = field(default_factory=StateDtypes)
    saved_dtypes: Annotated[SavedDtypes, PlanField("number formats of activations that wait for the backward pass")] = (
        field(default_factory=SavedDtypes)
    )
    attention: Annotated[
        str,
        PlanField("flash or unfused, where software.attention does not say which kernel", known=("flash", "unfused")),
    ] = "flash"
    software: Software = field(default_factory=Software)
    data: Data = field(default_factory=Data)
    overlap: Annotated[Overlap, PlanField("which communication overlaps compute")] = field(default_factory=Overlap)
    axis_order: Annotated[
        tuple[str, ...], PlanField("order of the axes, the one of neighbouring ranks first", known=AXES)
    ] = AXES  # neighbours are on the fastest tier
    layer_split: Annotated[tuple[int, ...], PlanField("layers of every model chunk; empty: as even as possible")] = ()
    fused_grad_accumulation: Annotated[
        bool | None,
        PlanField("weight gradients are summed inside the product; by default as the framework does"),
    ] = None  # into their fp32 sum
    shard_copies: Annotated[
        bool | None,
        PlanField("sharded parameters and gradients are copied to and from buffers of collectives, as by FSDP2"),
    ] = None  # as the job's framework does
    grouped_queries: Annotated[
        bool | None,
        PlanField("unfused attention: queries that share keys are one product; by default as the framework does"),
    ] = None
    optimizer: Annotated[
        str,
        PlanField(
            "optimizer, which decides the states kept per parameter",
            read=parse_optimizer,
            takes=f"one of {', '.join(OPTIMIZERS)}",
        ),
    ] = "adamw"
    optimizer_in_backward: Annotated[
        bool, PlanField("parameters are updated within the backward pass, and their gradients freed at once")
    ] = False
    offload_optimizer: Annotated[
        float,
        PlanField("share of the optimizer, states and update, on the host", read=parse_share, takes=_SHARE),
    ] = 0.0
    offload_parameters: Annotated[
        bool, PlanField("sharded parameters on the host; under fsdp and hsdp with gradients and optimizer")
    ] = False
    offload_gradients: Annotated[
        bool | None,
        PlanField(
            "gradients leave as layers make them, for an optimizer on the host; by default as the framework does"
        ),
    ] = None
    offload_activations: Annotated[
        float, PlanField("share of saved activations on the host", read=parse_share, takes=_SHARE)
    ] = 0.0
    host_threads: Annotated[
        int | None,
        PlanField(
            "threads of a process that updates on the host; 0: all cores; by default as the framework does", least=0
        ),
    ] = None
    grad_bucket: Annotated[
        int | None,
        PlanField(
            "gradients reduced in one collective; by default 1,000,000 per data-parallel rank, at least 40,000,000"
        ),
    ] = None  # under overlap.dp; None: see `bucket_elements`
    tables: Annotated[
        TableSharding,
        PlanField(
            "placement of a recommendation model's embedding tables; tables not named are placed as balances best",
            read=parse_sharding,
            takes="auto, hybrid, or table: table, row, row:n, column:n, dp or hybrid, with @devices",
        ),
    ] = field(default_factory=TableSharding)

    def __post_init__(self) -> None:
        for name in ("micro_batch", "global_batch", "tp", "pp", "dp", "cp", "ep", "virtual_stages", "grad_bucket"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise PlanError.of(Problem(name, f"{value}, but it must be at least 1"))
        object.__setattr__(self, "optimizer", parse_optimizer(self.optimizer))
        for name in ("offload_optimizer", "offload_activations"):
            object.__setattr__(self, name, parse_share(getattr(self, name)))
        if self.etp is not None and self.etp < 0:
            raise PlanError.of(Problem("etp", f"{self.etp}, but it must be at least 1, or 0: as tp"))
        self._check_bounds()
        if sorted(self.axis_order) != sorted(AXES):
            text = f"{list(self.axis_order)}, but it must be an order of {list(AXES)}"
            raise PlanError.of(Problem("axis_order", text))

    def _check_bounds(self) -> None:
        layers = {
            "pp": self.pp,
            "virtual_stages": self.virtual_stages,
            "recompute_num_layers": self.recompute_num_layers,
        }
        check_bounds(PlanError, "", MOST_LAYERS, **layers, bf16_layers=self.bf16_layers)
        check_bounds(PlanError, "", MOST_DEVICES, **{axis: getattr(self, axis) for axis in ("tp", "dp", "cp", "ep")})
        check_bounds(PlanError, "", MOST_DEVICES, dp_shard=self.dp_shard, etp=self.etp)
        check_bounds(PlanError, "", MOST_SAMPLES, micro_batch=self.micro_batch, global_batch=self.global_batch)
        check_bounds(PlanError, "", MOST_TOKENS, seq_len=self.seq_len)
        check_bounds(PlanError, "", MOST_ELEMENTS, grad_bucket=self.grad_bucket)
        if self.n_devices > MOST_DEVICES:
            product = f"tp*cp*dp*pp = {self.tp}*{self.cp}*{self.dp}*{self.pp} = {self.n_devices}"
            raise PlanError(f"{product}, but at most {MOST_DEVICES:,} devices are simulated")

    @property
    def n_devices(self) -> int:
        """Number of devices of the job."""
        return self.tp * self.cp * self.dp * self.pp

    @property
    def pipeline_schedule(self) -> PipelineSchedule:
        """The schedule as an object.

        Raises:
            PlanError: an unknown name.
        """
        return resolve_schedule(self.schedule)

    @property
    def schedule_name(self) -> str:
        """`schedule` as a text, known or not."""
        return str(self.schedule)

    @property
    def attention_kernel(self) -> str:
        """One of `software.ATTENTION_KERNELS`; an unspecified flash kernel is the second."""
        return self.software.attention or ("fused_softmax" if self.attention == "unfused" else "flash2")

    @property
    def is_flash(self) -> bool:
        """Whether scores never reach device memory."""
        return self.attention_kernel in FLASH_ATTENTION

    @property
    def n_chunk(self) -> int:
        """Model chunks of all stages."""
        return self.pp * self.virtual_stages

    @property
    def n_micro_batch(self) -> int:
        """Micro-batches per replica and step."""
        return self.global_batch // (self.dp * self.micro_batch)

    @property
    def computed(self) -> ParallelPlan:
        """The plan of the mean work: with the padding of its sequences, and the documents that attention sees."""
        if not self.data.is_drawn:
            return self
        law = law_of(self)
        return replace(self, seq_len=law.seq_len, data=Data(law.lengths))

    @property
    def tokens_per_sequence(self) -> float:
        """Tokens of documents in a sequence, in the mean; without padding."""
        return law_of(self).real_tokens if self.data.is_drawn else float(self.seq_len)

    @property
    def shard_group(self) -> int:
        """Ranks of dp x cp over which *parameters* are sharded and gathered per layer; 1 if they are not.

        Source: torchtitan (mesh `dp_shard_cp`); Megatron-LM shards over `dp_cp` groups.
        """
        if self.sharding == "hsdp":
            return self.dp_shard * self.cp
        return self.dp * self.cp if self.shards_parameters else 1

    @property
    def shards_parameters(self) -> bool:
        """Whether parameters are sharded at all, over however many ranks there are."""
        return updates_shards(self) or self.zero_stage == 3

    @property
    def expert_tp(self) -> int:
        """Ranks that one expert is split over.

        Source: Megatron-LM, `--expert-tensor-parallel-size` (since Megatron-Core 0.9; its own default is tp, the recipes of
            Megatron-Bridge and Megatron-MoE-ModelZoo set 1); torchtitan, `expert_tensor_parallel_degree` (1).
        """
        if self.etp is None:
            return 1 if self.ep > 1 else self.tp
        return self.etp or self.tp

    @property
    def expert_split(self) -> float:
        """Number of ranks of dp x cp that experts are shared out among; below 1 where ranks of tp hold the same experts, too."""
        return self.ep * self.expert_tp / self.tp

    @property
    def expert_layout(self) -> tuple[int, int]:
        """(distance of the ranks that split an expert, distance of those that share experts out)."""
        if self.expert_tp == self.tp:
            return self.stride("tp"), self.data_group[0]
        nearest = min(self.stride(axis) for axis in ("tp", "cp", "dp"))
        return nearest, nearest * self.expert_tp

    @property
    def tied(self) -> int:
        """Ranks of dp that synchronise inside every op, through parameter sharding or experts."""
        ranks = self.tp * self.cp
        return max(self.shard_group // self.cp, lcm(self.ep * self.expert_tp, ranks) // ranks)

    @property
    def element_bytes(self) -> float:
        """Bytes of an activation, and of a weight as it is computed with."""
        return 4.0 if self.dtype == "fp32" else 2.0

    @property
    def grad_sum_bytes(self) -> float:
        """Bytes of an element of the buffer that gradients are summed in: as stated; else fp32, or as uncopied parameters."""
        own = self.state_dtypes.grad_reduce
        if not has_master(self) and (own is None or self.shard_group > 1):
            return self.element_bytes
        return 4.0 if own is None or self.shard_group > 1 else ELEMENT_BYTES[own]

    @property
    def data_group(self) -> tuple[int, int]:
        """(stride, size) of the ranks that share parameters: dp and cp together."""
        return min(self.stride("dp"), self.stride("cp")), self.dp * self.cp

    @property
    def bucket_elements(self) -> int:
        """Gradients reduced in one collective where the plan says nothing: more of them the more ranks.

        Source: Megatron-LM, `core/distributed/distributed_data_parallel.py`: buckets that grow with the data-parallel size keep
        rings bound by bandwidth; an explicit `--ddp-bucket-size` is taken as it is.
        """
        if self.grad_bucket is not None:
            return self.grad_bucket
        return max(LEAST_BUCKET, BUCKET_PER_RANK * self.dp * self.cp)

    @property
    def n_member(self) -> int:
        """Ranks of one stage that synchronise inside every op: tp x cp x the dp ranks tied by ep or parameter sharding."""
        return self.tp * self.cp * self.tied

    @property
    def n_replica(self) -> int:
        """Independent columns that meet only at the end of the step."""
        return self.n_devices // (self.pp * self.n_member)

    def stride(self, axis: str) -> int:
        """Distance in devices between neighbours along `axis` under `axis_order`."""
        stride = 1
        for name in self.axis_order:
            if name == axis:
                return stride
            stride *= getattr(self, name)
        raise PlanError(f"unknown axis {axis!r}; axes are {list(AXES)}")

    def span(self, axis: str) -> int:
        """Devices from the first to the last member of one group along `axis`, including all between."""
        return self.stride(axis) * getattr(self, axis)


def device_layout(plan: ParallelPlan) -> NDArray[np.int32]:
    """Device index [member, lane, replica] of every rank, under the plan's axis order.

    Members count tp fastest, then cp, then the dp ranks tied to the group (neighbours along dp); replicas are the rest of dp.
    """
    grid = {axis: np.arange(getattr(plan, axis)) * plan.stride(axis) for axis in ("tp", "cp", "dp", "pp")}
    dp = grid["dp"].reshape(-1, plan.tied).T  # [tied, replica]
    member = dp[:, None, None, :] + grid["cp"][None, :, None, None] + grid["tp"][None, None, :, None]
    member = member.reshape(plan.n_member, 1, -1)
    return (member + grid["pp"][None, :, None]).astype(np.int32)


def replicas_with(plan: ParallelPlan, devices: Iterable[int]) -> NDArray[np.bool_]:
    """Tell which replicas [replica] hold at least one of the devices."""
    held: NDArray[np.bool_] = np.isin(device_layout(plan), np.fromiter(devices, np.int64))
    return np.logical_or.reduce(held, axis=(0, 1))
