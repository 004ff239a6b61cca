"""Fields of a plan with rules of their own: number formats, recomputation, and how embedding tables are spread over devices.

*Formats* of products below 16 bits: bytes of an input, and the passes that make it of a 16-bit tensor. One with block scales
has a scale per 16 or 32 neighbours along the dimension that is summed over, which is not the same in a product and in that of
its weight gradient, so a tensor that both read is quantised twice: by rows and by columns.

- fp8: `fp8_recipe` says what shares a scale. delayed: a tensor, by the largest elements of earlier steps; one pass writes the
  copy, the transposed one is fused into other passes. tensorwise (current): a tensor, after a pass for its largest element.
  rowwise: a row of what a product reads, so that a weight gradient wants columns: one pass for rows, two for columns.
  blockwise: 128 elements, or 128 x 128 of a weight; one pass writes both copies. mxfp8: as the dtype mxfp8.
- mxfp8, mxfp4: an 8-bit scale per 32 elements; one pass reads the tensor and writes both copies.
- nvfp4: an 8-bit scale per 16 elements and one fp32 scale per tensor, which needs the largest element first (a pass that only
  reads). What enters a weight gradient goes through a random Hadamard transform, a pass of its own; gradients are rounded
  stochastically within these passes.

Source: Transformer Engine (`cast_transpose`, `hadamard_transform`, recipes); torchao `Float8LinearConfig`; arXiv 2412.19437
section 3.3.2 (blocks); OCP Microscaling Formats 1.0; arXiv 2509.25149.

*Recomputation.* Megatron-LM: `full` checkpoints whole layers (`uniform`: all layers, `recompute_num_layers` of them per
checkpoint, by default 1; `block`: the first `recompute_num_layers` layers of every model chunk); `selective` computes the
parts named by `recompute_modules` again. torchtitan: its `full` is Megatron-LM's; `selective_op` saves the results of
attention and of every other matrix product (`selective_ac_option = "op"`); `selective_layer` checkpoints every
`recompute_num_layers`-th layer (`"2"`). Source: Megatron-LM, megatron/core/transformer/transformer_config.py; torchtitan,
distributed/activation_checkpoint.py.

*Tables*; parts go where they balance best, unless devices are named: `table@3`, `column:2@0,5`.

    table          whole, on one device              row       rows over all devices      dp   a copy on every device
    column:4       columns in 4 parts                row:4     rows in 4 parts
    hybrid         copies of the rows that are read often, the others over all devices
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from math import ceil
from typing import Annotated, Any, NamedTuple, Protocol

from ..core.bounds import MOST_DEVICES
from ..core.errors import PlanError, Problem
from ..core.registry import Registry


@dataclass(frozen=True)
class PlanField:
    """Description of a field of a plan, from which checks of job files and of `--set`, and the page of all fields, follow.

    Attributes:
        about: description in one line.
        known: names of which it, or each of its items, must be one; a registry is asked when a value is checked.
        least, most: bounds of a number; None: what its type and default say, 1 or 0 for a whole number.
        or_auto: `auto` may be written in its place.
        read: makes the value of what is written.
        takes: values that `read` takes, in words.
    """

    about: str
    known: Iterable[str] | Registry[Any] | None = None
    least: float | None = None
    most: float | None = None
    or_auto: bool = False
    read: Callable[[Any], Any] | None = None
    takes: str = ""


class PlanFields(Protocol):
    """Fields and properties of a `ParallelPlan` that laws in this folder read."""

    @property
    def seq_len(self) -> int: ...
    @property
    def micro_batch(self) -> int: ...
    @property
    def n_micro_batch(self) -> int: ...
    @property
    def dp(self) -> int: ...
    @property
    def n_chunk(self) -> int: ...
    @property
    def dtype(self) -> str: ...
    @property
    def element_bytes(self) -> float: ...
    @property
    def bf16_layers(self) -> int | None: ...
    @property
    def fp8_recipe(self) -> str | None: ...
    @property
    def state_dtypes(self) -> StateDtypes: ...
    @property
    def optimizer(self) -> str: ...
    @property
    def sharding(self) -> str: ...
    @property
    def zero_stage(self) -> int: ...
    @property
    def shard_group(self) -> int: ...
    @property
    def data_group(self) -> tuple[int, int]: ...
    @property
    def offload_optimizer(self) -> float: ...
    @property
    def offload_parameters(self) -> bool: ...
    @property
    def offload_gradients(self) -> bool | None: ...
    @property
    def recompute(self) -> str: ...
    @property
    def recompute_method(self) -> str: ...
    @property
    def recompute_num_layers(self) -> int: ...
    @property
    def recompute_modules(self) -> tuple[str, ...]: ...


class Precision(NamedTuple):
    """A format of the inputs of matrix products.

    Attributes:
        input_bytes: of one element, with its share of the block scales.
        n_copies: of a tensor that a product and a weight gradient read: 2 if quantised by rows and by columns.
        n_scan: passes that read the tensor before it can be quantised.
        is_fused: one pass writes both copies.
        kernel: of the product, where another one than that of one scale per tensor; a name of `Efficiency.gemm_recipes`.
    """

    input_bytes: float
    n_copies: int
    n_scan: int = 0
    is_fused: bool = True
    kernel: str = ""

    def copies(self, in_weight_gradient: bool) -> int:
        """Copies of a tensor that a pass writes."""
        return self.n_copies if in_weight_gradient else 1

    def passes(self, in_weight_gradient: bool) -> int:
        """Kernels that make them; every one reads the tensor."""
        return self.n_scan + (1 if self.is_fused else self.copies(in_weight_gradient))


QUANTISED = {
    "fp8": Precision(1.0, 1),
    "mxfp8": Precision(1.0 + 1 / 32, 2),
    "mxfp4": Precision(0.5 + 1 / 32, 2),
    "nvfp4": Precision(0.5 + 1 / 16, 2, n_scan=1, is_fused=False),
}
"""Plan dtypes whose products read quantised inputs."""
FP8_RECIPES = {
    "delayed": QUANTISED["fp8"],
    "tensorwise": Precision(1.0, 1, n_scan=1),
    "current": Precision(1.0, 1, n_scan=1),
    "rowwise": Precision(1.0, 2, n_scan=1, is_fused=False, kernel="rowwise"),
    "blockwise": Precision(1.0 + 4 / 128, 2, kernel="blockwise"),
    "mxfp8": QUANTISED["mxfp8"],
}
"""Parts of a tensor that share a scale under dtype fp8. `current` is Transformer Engine's name of torchao's `tensorwise`."""
FP8_FAMILY = ("fp8", "mxfp8")
DTYPES = ("bf16", "fp16", *QUANTISED, "fp32")

# Blocks whose products stay in bf16: the first 2 and the last 8 of 62 (arXiv 2509.25149, section 3 and appendix A).
_NVFP4_IN_BF16, _OF_BLOCKS = 10, 62


def precision_of(plan: PlanFields) -> Precision | None:
    """Returns how the inputs of matrix products are quantised; None: not at all. An open recipe is `delayed`."""
    own = QUANTISED.get(plan.dtype)
    return FP8_RECIPES.get(plan.fp8_recipe or "delayed", own) if plan.dtype == "fp8" else own


def share_in_bf16(plan: PlanFields, n_layers: int) -> float:
    """Share of a model's layers whose products stay in 16 bits under a quantised dtype.

    Notes:
        None: as the recipe has it: in nvfp4 10 of 62 layers, rounded up; in other formats no layer.
    """
    if plan.dtype not in QUANTISED:
        return 0.0
    n = plan.bf16_layers
    if n is None:
        n = ceil(n_layers * _NVFP4_IN_BF16 / _OF_BLOCKS) if plan.dtype == "nvfp4" else 0
    return min(n / n_layers, 1.0)


ELEMENT_BYTES = {"fp32": 4.0, "bf16": 2.0, "fp16": 2.0, "fp8": 1.0}
GRAD_DTYPES = ("fp32", "bf16", "fp16")
MOMENT_DTYPES = ("fp32", "bf16", "fp16", "fp8")
MAIN_PARAM_BYTES = {"fp32": 4.0, "fp32_remainder": 2.0, "fp16": 2.0, "bf16": 2.0, "none": 0.0}


@dataclass(frozen=True)
class StateDtypes:
    """Formats of gradients, master parameters and optimizer state.

    Attributes:
        grad_reduce: of the buffer that gradients are summed in and reduced from; None: as the framework does. bf16: Megatron-LM
            `--grad-reduce-in-bf16`. Under fsdp and hsdp it is the format of the exchange alone (torchtitan
            `mixed_precision_reduce`): sharded gradients have the format of the parameters.
        main_grads: as the optimizer reads them; a buffer in 16 bits is copied to fp32 for the update (`--main-grads-dtype`).
            None: fp32, or without a master copy as the parameters.
        main_params: the copy that the optimizer updates, the master copy (`--main-params-dtype`); fp32_remainder: the 16 bits
            that bf16 parameters lack (Megatron-LM `store_param_remainders`, precision-aware optimizer). none, or the format of
            the parameters themselves: there is no copy. Under fsdp and hsdp it is the format of the sharded parameters
            themselves (torchtitan `training.dtype`).
        exp_avg, exp_avg_sq: moments (`--exp-avg-dtype`, `--exp-avg-sq-dtype`). None: fp32, or without a master copy as the
            parameters.
        fp8_params: parameters are kept, or under fsdp and hsdp gathered, in fp8 (Megatron-LM `--fp8-param-gather`, torchtitan
            `enable_fsdp_float8_all_gather`); embedding, head and norms stay in 16 bits.

    Source: Megatron-LM, docs/source/api-guide/dist_optimizer.md and arguments.py; torchtitan, config/job_config.py.
    """

    grad_reduce: Annotated[
        str | None, PlanField("format of the buffer that gradients are reduced from; by default as the framework does")
    ] = None
    main_grads: Annotated[
        str | None,
        PlanField("format of gradients as the optimizer reads them; by default fp32, or as parameters without a copy"),
    ] = None
    main_params: Annotated[
        str,
        PlanField(
            "format of the copy of parameters that the optimizer updates; none, or the format of the parameters: no copy"
        ),
    ] = "fp32"
    exp_avg: Annotated[
        str | None,
        PlanField("format of the first moment; by default fp32, or as the parameters where they have no copy"),
    ] = None
    exp_avg_sq: Annotated[
        str | None,
        PlanField("format of the second moment; by default fp32, or as the parameters where they have no copy"),
    ] = None
    fp8_params: Annotated[bool, PlanField("parameters are kept or gathered in fp8")] = False


STATE_DTYPE_VALUES = {
    "grad_reduce": GRAD_DTYPES,
    "main_grads": GRAD_DTYPES,
    "main_params": tuple(MAIN_PARAM_BYTES),
    "exp_avg": MOMENT_DTYPES,
    "exp_avg_sq": MOMENT_DTYPES,
}


# Scales of e5m6 are powers of two of tiles of 1 x 128 (arXiv 2412.19437, section 3.3.3): an exponent of 8 bits each.
SAVED_BYTES = {"fp8": 1.0, "e5m6": 1.5 + 1.0 / 128}


@dataclass(frozen=True)
class SavedDtypes:
    """Formats in which activations wait for the backward pass, where they are narrower than those that are computed with.

    Attributes:
        activation_input: of what an MLP's activation function reads, in dense layers and experts. fp8: Megatron-LM
            `--activation-func-fp8-input-store`, DeepSeek-V3 (arXiv 2412.19437, section 3.3.3).
        attention_output: of what attention hands to its output projection. e5m6: 12 bits, DeepSeek-V3 (as above).
    """

    activation_input: Annotated[
        str | None,
        PlanField("format of the inputs of MLPs' activation functions; by default as computed", known=SAVED_BYTES),
    ] = None
    attention_output: Annotated[
        str | None, PlanField("format of the output of attention; by default as computed", known=SAVED_BYTES)
    ] = None


def saved_bytes(dtype: str | None, usual: float) -> float:
    """Bytes of an element that is saved in `dtype`; None: in its own, of `usual` bytes."""
    return usual if dtype is None else SAVED_BYTES[dtype]


def updates_shards(plan: PlanFields) -> bool:
    """Whether FSDP shards the parameters themselves, which the optimizer then updates: they are cast when they are gathered."""
    return plan.sharding in ("fsdp", "hsdp")


def optimizer_on_host(plan: PlanFields) -> float:
    """Share of the optimizer that runs on the host: as stated; all of it where FSDP keeps its parameters there."""
    return 1.0 if plan.offload_parameters and updates_shards(plan) else plan.offload_optimizer


def gradients_on_host(plan: PlanFields) -> bool:
    """Whether gradients leave the device as soon as a layer has them, for an optimizer on the host.

    Notes:
        Only those that this rank alone keeps: of sharded gradients, or without data parallelism.
    """
    if plan.offload_parameters and updates_shards(plan):
        return True
    is_own = plan.zero_stage >= 2 or plan.shard_group > 1 or plan.data_group[1] == 1
    return bool(plan.offload_gradients) and plan.offload_optimizer > 0.0 and is_own


def parse_share(written: object) -> float:
    """A share of 0 to 1, or true and false for all and nothing.

    Raises:
        PlanError: neither.
    """
    if isinstance(written, bool):
        return float(written)
    if not isinstance(written, (int, float)) or not 0.0 <= written <= 1.0:
        raise PlanError.of(Problem("", f"{written!r}, but it must be true, false or a share of 0 to 1"))
    return float(written)


UNIFORM, BLOCK = "uniform", "block"
METHODS = (UNIFORM, BLOCK)
CORE_ATTENTION = "core_attn"
MODULES = (CORE_ATTENTION, "mlp_act", "moe_act", "layernorm", "mla_up_proj", "mlp", "moe", "shared_experts")
OPTIONS = {"recompute_method": UNIFORM, "recompute_num_layers": 0, "recompute_modules": (CORE_ATTENTION,)}
"""Fields of a plan that say more about its kind of recomputation, and their defaults."""
_OF_KIND = {
    "recompute_method": ("full",),
    "recompute_num_layers": ("full", "selective_layer"),
    "recompute_modules": ("selective",),
}


def recomputed_modules(plan: PlanFields) -> tuple[str, ...]:
    """Modules that run again by themselves; none unless recomputation is selective."""
    return plan.recompute_modules if plan.recompute == "selective" else ()


def layers_per_checkpoint(plan: PlanFields) -> int:
    """Layers that are brought back at once under full recomputation."""
    if plan.recompute != "full" or plan.recompute_method == BLOCK:
        return 1
    return max(plan.recompute_num_layers, 1)


def share_of_layers(plan: PlanFields, n_layers: int) -> float:
    """Share of a model's layers that recompute.

    Notes:
        `block` counts layers of a chunk; where chunks are of uneven size the share is that of the mean chunk.
    """
    if plan.recompute == "selective_layer":
        return 1.0 / max(plan.recompute_num_layers, 1)
    if plan.recompute == "full" and plan.recompute_method == BLOCK:
        return min(1.0, plan.recompute_num_layers * plan.n_chunk / n_layers)
    return 1.0


def recompute_problems(plan: PlanFields) -> Iterator[Problem]:
    """Options that contradict the kind of recomputation."""
    if plan.recompute_method not in METHODS:
        yield Problem("recompute_method", f"{plan.recompute_method!r} is unknown; known are {', '.join(METHODS)}")
    for name in plan.recompute_modules:
        if name not in MODULES:
            yield Problem("recompute_modules", f"{name!r} is unknown; known are {', '.join(MODULES)}")
    for name, kinds in _OF_KIND.items():
        if getattr(plan, name) != OPTIONS[name] and plan.recompute not in kinds:
            text = f"is given, but recompute = {plan.recompute}. It goes with recompute={' or '.join(kinds)}."
            yield Problem(name, text)
    if plan.recompute == "selective" and not plan.recompute_modules:
        yield Problem("recompute_modules", "is empty. Name a module, or use recompute=none.")
    if _needs_layers(plan) and plan.recompute_num_layers < 1:
        yield Problem("recompute_num_layers", "is missing: how many layers", is_missing=True)


def _needs_layers(plan: PlanFields) -> bool:
    is_block = plan.recompute == "full" and plan.recompute_method == BLOCK
    return is_block or plan.recompute == "selective_layer"


AUTO, HYBRID = "auto", "hybrid"
WAYS = ("table", "row", "column", "dp", HYBRID)
_FORMS = "table, row, row:4, column:4, dp or hybrid"
_WRITTEN = re.compile(rf"({'|'.join(WAYS)})(?::(\d{{1,9}}))?(?:@(\d{{1,9}}(?:,\d{{1,9}})*))?")


@dataclass(frozen=True)
class TableShard:
    """The sharding of one table.

    Attributes:
        way: one of `WAYS`.
        n_part: row and column: parts; 0: one per device. Of table 1, of dp and hybrid 0.
        devices: holders of part 0, 1, ...; empty: where they balance best.
    """

    way: str
    n_part: int = 0
    devices: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if self.way not in WAYS:
            raise PlanError.of(Problem("tables", f"{self.way!r}, but it must be one of {', '.join(WAYS)}"))
        fixed = {"table": 1, "dp": 0, HYBRID: 0}.get(self.way, self.n_part)
        if self.n_part not in (0, fixed) or not 0 <= self.n_part <= MOST_DEVICES:
            raise PlanError.of(Problem("tables", f"{self}: only row and column have parts"))
        object.__setattr__(self, "n_part", fixed)
        if self.devices and len(self.devices) != (self.n_part or len(self.devices)):
            raise PlanError.of(Problem("tables", f"{self}: {self.n_part} parts on {len(self.devices)} devices"))
        if self.devices and (self.way in ("dp", HYBRID) or len(set(self.devices)) < len(self.devices)):
            raise PlanError.of(Problem("tables", f"{self}: a copy is on every device, and a device holds one part"))
        if self.way == "column" and self.n_part == 0:
            raise PlanError.of(Problem("tables", "column, but it needs its number of parts. Write column:4."))

    def __str__(self) -> str:
        parts = f":{self.n_part}" if self.way in ("row", "column") and self.n_part else ""
        return f"{self.way}{parts}" + (f"@{','.join(map(str, self.devices))}" if self.devices else "")


@dataclass(frozen=True)
class TableSharding:
    """Distribution of a model's embedding tables over devices.

    Attributes:
        of: (table, how it is sharded); tables that are not named are sharded as `usual` says.
        usual: auto: as balances best; hybrid: all of them so.
        node_size: devices that first sum up and exchange pooled vectors among themselves, before these cross the network
            (TorchRec `table_row_wise`, HugeCTR `hier_auto`); 0: all exchange with all. A job fills it in from its cluster.
    """

    of: tuple[tuple[str, TableShard], ...] = ()
    usual: str = AUTO
    node_size: int = 0

    @property
    def written(self) -> str | dict[str, str]:
        """Value in job files: auto or hybrid, or table: text."""
        return {name: str(shard) for name, shard in self.of} or self.usual

    @property
    def by_table(self) -> dict[str, TableShard]:
        """Table -> how it is sharded."""
        return dict(self.of)


def parse_sharding(written: object) -> TableSharding:
    """`auto`, `hybrid`, or a mapping of tables to texts that `parse_shard` reads.

    Raises:
        PlanError: neither.
    """
    if written in (AUTO, HYBRID):
        return TableSharding(usual=str(written))
    if not isinstance(written, Mapping) or not all(isinstance(one, str) for pair in written.items() for one in pair):
        raise PlanError.of(Problem("tables", f"must be {AUTO}, {HYBRID}, or a mapping of tables to {_FORMS}"))
    return TableSharding(tuple((name, parse_shard(text)) for name, text in written.items()))


def parse_shard(text: str) -> TableShard:
    """Reads `column:4@0,1,2,3` as a `TableShard`.

    Raises:
        PlanError: not of that form.
    """
    found = _WRITTEN.fullmatch(text.replace(" ", ""))
    if not found:
        raise PlanError.of(Problem("tables", f"{text!r}, but it must be {_FORMS}, perhaps with @devices"))
    way, n_part, devices = found.groups()
    return TableShard(way, int(n_part or 0), tuple(map(int, devices.split(","))) if devices else ())
