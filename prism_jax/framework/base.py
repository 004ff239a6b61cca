"""Framework: what a piece of training software decides about a step, as one value.

A new framework is one file with one of these and a line in `framework/__init__.py`, or none for a caller who registers their own:
`FRAMEWORKS.add(Framework("mine", "what it is"))`. Nothing here depends on a model, a plan or a measured row.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from ..errors import SpecError
from .capabilities import ANYTHING, Capabilities
from .memory_options import MEGATRON, MemoryOptions
from .peak_law import WITHOUT_PEAKS, PeakLaw
from .recognition import SourcePattern

FUSED, EAGER, ANY_STYLE = "fused", "eager", ""
STYLES = (FUSED, EAGER, ANY_STYLE)
AS_MEGATRON = "as Megatron-LM: no peaks of this framework were compared"


class LayerShape(Protocol):
    """What a layer split may ask of a model: sizes of its layers, in elements."""

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
    """What a framework does where a plan leaves a field open (None); every name is a field of `ParallelPlan`.

    Attributes:
        fused_grad_accumulation: weight gradients are added to their fp32 sum inside the matrix product, as by Megatron-LM's
            gradient accumulation fusion, and not in a pass of its own.
        shard_copies: sharded parameters are copied out of the buffer in which they were gathered, and their gradients into the
            one from which they are scattered, as FSDP2 (`fully_shard`) does and FSDP1 does not. Measured steps do not say which
            of the two they ran, so no framework has it by itself: calibrations hold it.
        grouped_queries: unfused attention multiplies all queries that share keys and values as one product, as XLA does with an
            einsum over groups; PyTorch and Megatron-LM repeat keys and values for a product per head.
    """

    fused_grad_accumulation: bool = True
    shard_copies: bool = False
    grouped_queries: bool = False


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
        memory_margin: share of a device's memory that a search leaves free for the error of the memory model. The default is what
            40 of 43 peaks measured with Megatron-LM ask for, all but one plan with experts (experiments/memory_validation).
        capabilities: which plans it can run.
        layer_split: (model, pp) -> layers of every pipeline stage as it deals them out by itself, for readers of measured runs;
            None: as even as possible. A job's own layers stay where its plan puts them.
        patterns: what a published run says of itself when it ran on this framework.

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
    patterns: tuple[SourcePattern, ...] = ()

    def __post_init__(self) -> None:
        if self.style not in STYLES:
            known = ", ".join(repr(style) for style in STYLES)
            raise SpecError(f"style = {self.style!r} of framework {self.name!r}, but it must be one of {known}")
