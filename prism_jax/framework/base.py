"""Framework: what a piece of training software decides about a step, as one value; no model, plan or measured row is needed.

Its parts: which plans it can run and how close to full its devices may be planned (`Capabilities`), what it holds in memory
where frameworks differ (`MemoryOptions`, bytes; the default is Megatron-LM), and how far measured peaks lie from predicted ones
(`PeakLaw`, a log-normal law of their ratio, learnt by experiments/memory_validation/megatron_ci.py on case families that it
left out). `FRAMEWORKS.add(Framework("mine", "what it is"))` adds one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import exp, log
from statistics import NormalDist
from typing import Protocol

from ..core.errors import SpecError


@dataclass(frozen=True)
class Capabilities:
    """Values of a plan that a framework has; None: all. A search stays within them.

    Attributes:
        schedules: pipeline schedules; empty: no pipelines.
        zero_stages: of parameters that are not sharded by FSDP.
        sharding: as in `ParallelPlan`.
        recompute: as in `ParallelPlan`.
        max_tp, max_cp: largest degrees.
        sequence_parallel: whether it has sequence parallelism.
        even_chunks: every model chunk of a pipeline holds as many layers, unless layers are placed by hand.
        source: where that is written.
    """

    schedules: tuple[str, ...] | None = None
    zero_stages: tuple[int, ...] | None = None
    sharding: tuple[str, ...] | None = None
    recompute: tuple[str, ...] | None = None
    max_tp: int | None = None
    max_cp: int | None = None
    sequence_parallel: bool = True
    even_chunks: bool = False
    source: str = ""


ANYTHING = Capabilities()


GIB, MIB = 2.0**30, 2.0**20


@dataclass(frozen=True)
class MemoryOptions:
    """Choices of a framework that change what it holds in memory.

    Attributes:
        grad_bytes: per parameter, of the buffer gradients are accumulated in. 4: fp32 main gradients, which Megatron-LM
            keeps for bf16 training (docs/source/api-guide/dist_optimizer.md: 18 bytes per parameter, `6 + 12/d` with the
            distributed optimizer); 2: gradients in the model's dtype (ZeRO paper, arXiv 1910.02054, section 3.1).
        model_grad_bytes: per parameter, of low-precision gradients kept in addition to that buffer.
        optimizer_bytes: per parameter: Adam's fp32 master copy and two moments; a plan's `state_dtypes` take off what they save.
        fp8_copy_bytes: per parameter of a layer, of its fp8 copy and the transposed one, which Transformer Engine keeps from the
            first micro-batch of a step to the last; none where parameters are sharded, or are in fp8 themselves
            (supported by the memory that two of Megatron-LM's functional tests log with and without fp8, not measured apart).
        keeps_gathered_inputs: under sequence parallelism the gathered input of a column-parallel product is saved
            instead of gathered again in the backward pass.
        weighted_experts: the router's weights multiply what the second projection of an expert reads, whose output is then not
            kept for their gradients; False: they multiply that output. Source: Megatron-LM, `TEGroupedMLP.forward`
            (`permuted_probs`), from `FIRST_WEIGHTED` on. Where no kernel joins activation and weight, which those of gates do,
            the activation before its weight is kept, too.
        fused_gate: silu(gate) * up in one kernel, which saves its two inputs only.
        logits_peak_bytes: per logit, while the loss is computed: bf16 logits and their fp32 copy (6), which an
            in-place softmax reuses; 10 if an eager softmax writes to a tensor of its own, 12 with the gradients of PyTorch's.
        dropout: None: the GPT recipe (LayerNorm, plain MLP) has it, Llama-style models do not.
        bucket_elements: parameters per gradient bucket of ZeRO-2 and up. Source: Megatron-LM, `ddp_bucket_size`
            default max(40e6, 1e6 * dp); we take the constant part.
        n_gathered_layers: layers held unsharded at a time under parameter sharding: the current one and the one
            prefetched (PyTorch FSDP `backward_prefetch=BACKWARD_PRE`).
        workspace_bytes: of cuBLAS and Transformer Engine, held by the allocator from the first product on. PyTorch gives each
            of two threads (forward, autograd) 32 MiB on Hopper and later, Transformer Engine has 32 MiB of its own
            (`CUDABlas.cpp`, `getChosenWorkspaceSize`; `transformer_engine/pytorch/module/base.py`).
        expert_workspace_bytes: in addition, of a model with experts: 32 MiB for each of the four streams of a grouped product.
        context_bytes: CUDA context and kernels.
        nccl_bytes: per communicator. NCCL allocates NCCL_BUFFSIZE = 4 MiB per channel, direction and protocol group
            (NCCL user guide, environment variables); with 16-24 channels about 0.2 GiB.
        fragmentation: share of the activations and temporaries that the caching allocator holds but cannot reuse: blocks
            of odd sizes, and blocks that a communication stream still owns. The default is an allowance; what Megatron-LM
            allocates is met without it (experiments/memory_validation).
    """

    grad_bytes: float = 4.0
    model_grad_bytes: float = 0.0
    optimizer_bytes: float = 12.0
    fp8_copy_bytes: float = 2.0
    keeps_gathered_inputs: bool = False
    weighted_experts: bool = True
    fused_gate: bool = True
    logits_peak_bytes: float = 6.0
    dropout: bool | None = None
    bucket_elements: float = 40e6
    n_gathered_layers: int = 2
    workspace_bytes: float = 96 * MIB
    expert_workspace_bytes: float = 128 * MIB
    context_bytes: float = 0.65 * GIB
    nccl_bytes: float = 0.2 * GIB
    fragmentation: float = 0.05


MEGATRON = MemoryOptions()
# The peaks of Megatron-LM's own tests with experts rise between the recordings of April 7 and 9 (megatron_ci of the shared data).
FIRST_WEIGHTED = "2025-04-08"


INTERVAL = (0.05, 0.95)


@dataclass(frozen=True)
class PeakLaw:
    """Log-normal law of measured / predicted peak memory of one device.

    Attributes:
        median: of the ratio.
        log_sd: standard deviation of its logarithm, > 0.
        expert_median, expert_log_sd: the same of models with experts, whose peak depends on how tokens are routed.
    """

    median: float
    log_sd: float
    expert_median: float
    expert_log_sd: float

    def _log_ratio(self, has_experts: bool) -> NormalDist:
        if has_experts:
            return NormalDist(log(self.expert_median), self.expert_log_sd)
        return NormalDist(log(self.median), self.log_sd)

    def interval_bytes(self, predicted_bytes: float, has_experts: bool) -> tuple[float, float]:
        """90% interval of the peak that would be measured, bytes."""
        law = self._log_ratio(has_experts)
        low, high = (predicted_bytes * exp(law.inv_cdf(p)) for p in INTERVAL)
        return low, high

    def not_fit_prob(self, predicted_bytes: float, capacity_bytes: float, has_experts: bool) -> float:
        """Probability that a measured peak exceeds the capacity."""
        return 1.0 - self._log_ratio(has_experts).cdf(log(capacity_bytes / predicted_bytes))


WITHOUT_PEAKS = PeakLaw(1.0, 0.161, 1.0, 0.169)
"""Of frameworks none of whose peaks were compared: nanotron's law, the widest that was measured, without its median; with experts
the variance that Megatron-LM's peaks with experts have is added."""


FUSED, EAGER, ANY_STYLE = "fused", "eager", ""
STYLES = (FUSED, EAGER, ANY_STYLE)
AS_MEGATRON = "as Megatron-LM: no peaks of this framework were compared"


class LayerShape(Protocol):
    """Sizes of a model's layers that a layer split may ask for, in elements."""

    @property
    def n_layers(self) -> int: ...
    @property
    def hidden(self) -> int: ...
    @property
    def n_heads(self) -> int: ...
    @property
    def qk_head_dim(self) -> int: ...
    @property
    def ffn_hidden(self) -> int: ...
    @property
    def vocab(self) -> int: ...


LayerSplit = Callable[[LayerShape, int], tuple[int, ...]]


@dataclass(frozen=True)
class PlanDefaults:
    """Choices of a framework where a plan leaves a field open (None); every name is a field of `ParallelPlan`.

    Attributes:
        offload_gradients: with an optimizer on the host gradients leave the device during the backward pass, and not after it.
        host_threads: of a process that updates parameters on the host: 1 under torchrun and Ray, which set OMP_NUM_THREADS so;
            0: the processes of a node share all cores.
        fused_grad_accumulation: weight gradients are added to their fp32 sum inside the matrix product, as by Megatron-LM's
            gradient accumulation fusion, and not in a pass of its own.
        shard_copies: sharded parameters are copied out of the buffer in which they were gathered, and their gradients into the
            one from which they are scattered, as FSDP2 (`fully_shard`) does and FSDP1 does not. Measured steps do not say which
            of the two they ran, so no framework has it by itself: calibrations hold it.
        grouped_queries: unfused attention multiplies all queries that share keys and values as one product, as XLA does with an
            einsum over groups; PyTorch and Megatron-LM repeat keys and values for a product per head.
        etp: 0: experts are split over tp as everything else is; None: whole experts where there is expert parallelism.
        fp8_recipe: what shares a scale of dtype fp8: Transformer Engine's own default, or torchao's.
    """

    offload_gradients: bool = False
    host_threads: int = 1
    fused_grad_accumulation: bool = True
    shard_copies: bool = False
    grouped_queries: bool = False
    fp8_recipe: str = "delayed"
    etp: int | None = None


@dataclass(frozen=True)
class Framework:
    """Training software, as far as it decides how long a step takes and what it holds in memory.

    Attributes:
        name: what job files call it.
        about: one line for `prism-jax show frameworks`.
        style: `fused`: hand-fused or compiled kernels and a thin host loop (Megatron and its kin, JAX); `eager`: PyTorch modules
            as written; empty: not known. Frameworks of one style share what measured steps say about it.
        plan_defaults: what it does where a plan leaves a field open.
        memory: what it holds where frameworks differ.
        memory_source: what those numbers rest on, in words.
        peak_law: how far measured peaks lie from what follows from `memory`.
        memory_margin: share of a device's memory that a search leaves free for the error of the memory model. The default is
            enough for all of 43 peaks measured with Megatron-LM, half of it for 40 (experiments/memory_validation).
        capabilities: which plans it can run.
        layer_split: (model, pp) -> layers of every pipeline stage as it deals them out by itself, for readers of measured runs;
            None: as even as possible. A job's own layers stay where its plan puts them.

    Raises:
        SpecError: the style is none of `STYLES`.
    """

    name: str
    about: str = ""
    style: str = ANY_STYLE
    plan_defaults: PlanDefaults = PlanDefaults()
    memory: MemoryOptions = MEGATRON
    memory_source: str = AS_MEGATRON
    peak_law: PeakLaw = WITHOUT_PEAKS
    memory_margin: float = 0.1
    capabilities: Capabilities = ANYTHING
    layer_split: LayerSplit | None = None

    def __post_init__(self) -> None:
        if self.style not in STYLES:
            known = ", ".join(repr(style) for style in STYLES)
            raise SpecError(f"style = {self.style!r} of framework {self.name!r}, but it must be one of {known}")
