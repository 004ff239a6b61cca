"""Software: which kernels and which way of running them a training job uses, where that decides how long its step takes.

Every field may stay open (None): `software.usual` then says what that framework does on such a device at that date, and how sure
that is. `compile` fuses what its eager kernels leave apart.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from ..core.errors import Problem

UNFUSED_ATTENTION = ("eager", "fused_softmax")
FLASH_ATTENTION = ("flash1", "flash2", "flash3")
ATTENTION_KERNELS = (*UNFUSED_ATTENTION, *FLASH_ATTENTION)
EAGER, FUSED = "eager", "fused"
FUSION = (EAGER, FUSED)
COMPILED_LOSS, LINEAR, CUT = "compiled", "linear", "cut"
CROSS_ENTROPY = (EAGER, COMPILED_LOSS, FUSED, LINEAR, CUT)
CUDA_GRAPHS = ("none", "layers", "step")
ALL_TO_ALL, ALL_GATHER, DEEPEP, HYBRIDEP, ALL_REDUCE = "alltoall", "allgather", "deepep", "hybridep", "allreduce"
DISPATCHERS = (ALL_TO_ALL, ALL_GATHER, DEEPEP, HYBRIDEP, ALL_REDUCE)
ONCE_PER_NODE = (DEEPEP, HYBRIDEP)
ON_HOST, ON_DEVICE = "host", "device"
GROUPED, STREAMS, APART = "grouped", "streams", "apart"
VENDOR, TYPICAL = "vendor", "typical"
DATE = re.compile(r"[0-9]{4}(-(0[1-9]|1[0-2])(-[0-9]{2})?)?")
DATE_FORM = 'a year, or year and month, as text in quotes: "2024-05"'
SOFTWARE_VALUES: dict[str, tuple[Any, ...]] = {
    "attention": ATTENTION_KERNELS,
    "norm": FUSION,
    "activation": FUSION,
    "rope": FUSION,
    "cross_entropy": CROSS_ENTROPY,
    "optimizer": FUSION,
    "compile": (False, True),
    "cuda_graphs": CUDA_GRAPHS,
    "dispatcher": DISPATCHERS,
    "expert_counts": (ON_HOST, ON_DEVICE),
    "expert_products": (GROUPED, STREAMS, APART),
    "tuning": (TYPICAL, VENDOR),
}
OF_EXPERTS = ("dispatcher", "expert_counts", "expert_products")  # fields that mean nothing without experts
COMPILED = ("norm", "activation", "rope")  # what a compiler fuses by itself
# Host time per kernel over that of eager code. Compiled: one call starts a fused kernel without autograd and dispatch. Graphs:
# one launch starts all kernels of a layer (Transformer Engine `make_graphed_callables`), or all of a step.
COMPILED_HOST, LAYER_GRAPHS = 0.5, 0.05


@dataclass(frozen=True)
class Software:
    """Choices of the software that runs a job; None: not stated.

    Attributes:
        attention: eager: separate kernels for scores, scale, mask, softmax and values, as plain PyTorch runs them;
            fused_softmax: scale, mask and softmax in one (Megatron-LM 2021); flash1, flash2: FlashAttention 1 and 2, and
            PyTorch's SDPA of the same years; flash3: FlashAttention-3 and 4, cuDNN's fused attention, Transformer Engine.
        norm: eager: an RMSNorm of separate PyTorch operations in fp32; fused: one kernel (Apex, Transformer Engine, Liger,
            Triton). LayerNorm is one kernel in PyTorch itself.
        activation: eager: SiLU and product (or bias and GELU) apart; fused: one kernel.
        rope: eager: rotation by slices, products and a sum; fused: one kernel.
        cross_entropy: eager: the loss by separate kernels over fp32 logits; compiled: operations that a compiler joins (XLA,
            Megatron-Core's native fusion), whose exponentials stay in fp32; fused: one kernel over logits in 16 bits, with their
            gradient in their place (Liger, Apex, Transformer Engine); linear: joined with the output product, chunk by chunk of
            the tokens, so that all logits are never there at once (Liger's fused linear cross entropy); cut: logits never leave
            the chip (cut cross entropy), and are computed again in the backward pass.
        optimizer: eager: multi-tensor operations one after another (PyTorch `foreach`); fused: one kernel (Apex, `fused=True`).
        compile: the model is compiled (torch.compile): elementwise operations are fused, fewer kernels are started.
        cuda_graphs: layers: kernels of the layers are replayed from graphs; step: the whole step is; none: each is started.
        dispatcher: of tokens to experts. alltoall: every copy of a token travels by itself (NCCL all-to-all); deepep, hybridep:
            one copy per node, or per GPU inside one, that needs it (Megatron-Core's flex dispatcher); allgather: every rank of
            the group gets all tokens, results are reduced and scattered; allreduce: the same, with results summed everywhere.
        expert_counts: where it is known how many tokens experts get. host: it waits for them in every layer, so that it does not
            run ahead of the device, and no graph holds what follows; device: shapes are those of a compiled program, of a
            capacity, or of buffers for the worst case.
        expert_products: of the experts of a device. grouped: one kernel for all (torch._grouped_mm, CUTLASS, MegaBlocks);
            streams: a library call for each, on several streams (Transformer Engine's GroupedLinear); apart: modules one after
            another.
        tuning: vendor: settings that the vendor of the device has tuned for a published result or recipe (MLPerf submissions,
            performance pages, recipes followed to the letter); typical: what everybody else reaches.
        cross_entropy_chunks: parts of the tokens that `linear` works on one after another, and that `eager` casts to fp32 one
            after another (torchtune, torchtitan); 0: as Liger chooses, and one.
        date: of the software, "2024-05", "2024" or a day; empty: as the newest that was measured (`calibration.key.years_of`).

    Notes:
        bytes and launches of each choice: `workload/transformer`, `host_share`; speeds of attention kernels: `cost/presets`.
    """

    attention: str | None = None
    norm: str | None = None
    activation: str | None = None
    rope: str | None = None
    cross_entropy: str | None = None
    optimizer: str | None = None
    compile: bool | None = None
    cuda_graphs: str | None = None
    tuning: str | None = None
    date: str = ""
    cross_entropy_chunks: int = 0
    dispatcher: str | None = None
    expert_counts: str | None = None
    expert_products: str | None = None

    @property
    def open_fields(self) -> tuple[str, ...]:
        """Names of the choices that are not stated."""
        return tuple(name for name in SOFTWARE_VALUES if getattr(self, name) is None)

    @property
    def host_share(self) -> float:
        """Host time of a kernel's start over that of eager code."""
        return self._graph_share * (COMPILED_HOST if self.compile else 1.0)

    @property
    def outside_graphs(self) -> float:
        """Host time of a kernel's start that no graph holds, over that of one that graphs hold where there are some."""
        return 1.0 / (self._graph_share or 1.0)

    @property
    def _graph_share(self) -> float:
        return {"layers": LAYER_GRAPHS, "step": 0.0}.get(self.cuda_graphs or "", 1.0)

    @property
    def waits_for_counts(self) -> bool:
        """Whether the host waits for the loads of dropless experts.

        Notes:
            A graph of a whole step has no place to wait. HybridEP sizes its buffers beforehand, as graphs of layers need them.
        """
        is_free = self.cuda_graphs == "step" or (self.dispatcher == HYBRIDEP and self.cuda_graphs == "layers")
        return self.expert_counts == ON_HOST and not is_free

    def is_eager(self, name: str) -> bool:
        """Whether the kernels of `name` run apart; what is not stated does not, and a compiler fuses."""
        return getattr(self, name) == EAGER and not (self.compile and name in COMPILED)

    def filled(self, values: dict[str, Any]) -> Software:
        """Software with `values` where nothing is stated."""
        return replace(self, **{name: values[name] for name in self.open_fields if name in values})


def software_problems(software: Software) -> Iterator[Problem]:
    """Values that no field of it takes."""
    if software.date and not DATE.fullmatch(software.date):
        yield Problem("software.date", f"{software.date!r} must be {DATE_FORM}")
    for name, known in SOFTWARE_VALUES.items():
        value = getattr(software, name)
        if value is not None and value not in known:
            yield Problem(f"software.{name}", f"{value!r} is unknown; known are {', '.join(map(str, known))}")
