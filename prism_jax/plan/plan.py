"""ParallelPlan: how a model and a global batch are spread over devices, and what that implies for groups and tiers.

Which device plays which part: member of a group, pipeline stage, replica.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from ..core.bounds import MOST_DEVICES, MOST_ELEMENTS, MOST_LAYERS, MOST_SAMPLES, MOST_TOKENS, check_bounds
from ..core.errors import PlanError, Problem
from ..core.kernels import RECOMPUTE as RECOMPUTE
from ..framework.software import FLASH_ATTENTION, Software as Software
from ..schedule.base import PipelineSchedule
from ..schedule.registry import resolve_schedule
from .fields import CORE_ATTENTION, ELEMENT_BYTES, UNIFORM, StateDtypes as StateDtypes, TableSharding as TableSharding

DEFAULT_SCHEDULE = "1f1b"
SHARDING = ("none", "fsdp", "hsdp")
AXES = ("tp", "cp", "dp", "pp")
LEAST_BUCKET, BUCKET_PER_RANK = 40_000_000, 1_000_000  # elements; Megatron-LM


@dataclass(frozen=True)
class Overlap:
    """Which communication runs beside compute instead of in front of it."""

    dp: bool = True
    tp: bool = False
    pp: bool = True


@dataclass(frozen=True)
class ParallelPlan:
    """Degrees, batch, schedule, sharding, precision and placement order.

    Notes:
        `n_devices = tp * cp * dp * pp`. `ep` reuses ranks of dp x cp and divides their product.
        `sharding = fsdp` shards parameters over all of dp (ZeRO-3); `hsdp` over groups of `dp_shard` inside dp.
    """

    micro_batch: int  # sequences
    global_batch: int  # sequences
    seq_len: int = 0  # tokens; 0: the samples are no sequences
    tp: int = 1
    pp: int = 1
    dp: int = 1
    cp: int = 1
    ep: int = 1
    virtual_stages: int = 1
    schedule: str | PipelineSchedule = DEFAULT_SCHEDULE  # a name of `schedule.registry.SCHEDULES`, or an object
    sequence_parallel: bool = False
    zero_stage: int = 0  # 0 none, 1 optimizer state, 2 and gradients, 3 and parameters
    sharding: str = "none"
    dp_shard: int = 0  # hsdp only: size of the sharding group
    recompute: str = "none"  # one of `RECOMPUTE`
    recompute_method: str = UNIFORM  # of full: uniform | block, as in Megatron-LM
    recompute_num_layers: int = 0  # see `recomputation`; 0: not given
    recompute_modules: tuple[str, ...] = (CORE_ATTENTION,)  # of selective: some of `recomputation.MODULES`
    dtype: str = "bf16"  # of the matrix products: one of `precision.DTYPES`
    bf16_layers: int | None = (
        None  # whose products stay in 16 bits under fewer; None: as the recipe has it, see `precision`
    )
    state_dtypes: StateDtypes = field(default_factory=StateDtypes)
    attention: str = "flash"  # flash | unfused, where `software` does not say which kernel
    software: Software = field(default_factory=Software)
    overlap: Overlap = field(default_factory=Overlap)
    axis_order: tuple[str, ...] = AXES  # innermost first: neighbours on the fastest tier
    layer_split: tuple[int, ...] = ()  # layers per model chunk; empty: as even as possible
    fused_grad_accumulation: bool | None = (
        None  # into their fp32 sum inside the matrix product; None: as the job's framework does
    )
    shard_copies: bool | None = (
        None  # between sharded parameters and the buffers of their collectives; None: as the job's framework does
    )
    grouped_queries: bool | None = (
        None  # that share keys are the rows of one product in unfused attention; None: as the job's framework does
    )
    offload_optimizer: bool = False  # states and update on the host, as in ZeRO-Offload
    grad_bucket: int | None = None  # gradients reduced in one collective under overlap.dp; None: see `bucket_elements`
    tables: TableSharding = field(default_factory=TableSharding)  # embedding tables over devices

    def __post_init__(self) -> None:
        for name in (
            "micro_batch",
            "global_batch",
            "tp",
            "pp",
            "dp",
            "cp",
            "ep",
            "virtual_stages",
            "grad_bucket",
        ):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise PlanError.of(Problem(name, f"{value}, but it must be at least 1"))
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
        check_bounds(PlanError, "", MOST_DEVICES, dp_shard=self.dp_shard)
        check_bounds(PlanError, "", MOST_SAMPLES, micro_batch=self.micro_batch, global_batch=self.global_batch)
        check_bounds(PlanError, "", MOST_TOKENS, seq_len=self.seq_len)
        check_bounds(PlanError, "", MOST_ELEMENTS, grad_bucket=self.grad_bucket)
        if self.n_devices > MOST_DEVICES:
            product = f"tp*cp*dp*pp = {self.tp}*{self.cp}*{self.dp}*{self.pp} = {self.n_devices}"
            raise PlanError(f"{product}, but at most {MOST_DEVICES:,} devices are simulated")

    @property
    def n_devices(self) -> int:
        """Devices of the job."""
        return self.tp * self.cp * self.dp * self.pp

    @property
    def pipeline_schedule(self) -> PipelineSchedule:
        """`schedule` as an object.

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
        """One of `software.ATTENTION_KERNELS`; a flash kernel that nobody names is the second."""
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
    def shard_group(self) -> int:
        """Ranks of dp over which *parameters* are sharded and gathered per layer; 1 if they are not."""
        if self.sharding == "hsdp":
            return self.dp_shard
        if self.sharding == "fsdp" or self.zero_stage == 3:
            return self.dp
        return 1

    @property
    def element_bytes(self) -> float:
        """Bytes of an activation, and of a weight as it is computed with."""
        return 4.0 if self.dtype == "fp32" else 2.0

    @property
    def grad_sum_bytes(self) -> float:
        """Bytes of an element of the buffer that gradients are summed in; fp32 unless the plan says otherwise."""
        own = self.state_dtypes.grad_reduce
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
        return self.tp * self.cp * max(self.shard_group, -(-self.ep // self.cp))

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
        """Devices from the first to the last member of one group along `axis`, inclusive of what lies between."""
        return self.stride(axis) * getattr(self, axis)


def device_layout(plan: ParallelPlan) -> NDArray[np.int32]:
    """Device index [member, lane, replica] of every rank, under the plan's axis order.

    Members count tp fastest, then cp, then the dp ranks tied to the group (neighbours along dp); replicas are the rest of dp.
    """
    grid = {axis: np.arange(getattr(plan, axis)) * plan.stride(axis) for axis in ("tp", "cp", "dp", "pp")}
    tied = plan.n_member // (plan.tp * plan.cp)
    dp = grid["dp"].reshape(-1, tied).T  # [tied, replica]
    member = dp[:, None, None, :] + grid["cp"][None, :, None, None] + grid["tp"][None, None, :, None]
    member = member.reshape(plan.n_member, 1, -1)
    return (member + grid["pp"][None, :, None]).astype(np.int32)
