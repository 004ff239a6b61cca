"""AdapterSpec: low-rank adapters beside the frozen matrices of a transformer: which matrices, and what becomes of the base.

An adapter on a frozen matrix W (n_in x n_out) adds `x A B` to `x W` with A (n_in x r) and B (r x n_out). Nothing else is
trained. A target is named as Hugging Face names the module (`q_proj`), or as Megatron-LM names the fused one (`linear_qkv`),
which has one A for all that it makes.

Source: LoRA arXiv 2106.09685; quantised base weights arXiv 2305.14314 (nf4, double quantisation: 4.127 bits per weight); GPTQ
arXiv 2210.17323 with one fp16 scale and one 4-bit zero per 128 weights.
"""

from __future__ import annotations

from dataclasses import dataclass

from ...bounds import MOST_WIDTH, check_bounds
from ...errors import SpecError

KINDS = ("lora",)
QUANTISED_BYTES = {"none": None, "nf4": 0.5 + (1 + 4 / 256) / 64, "int4": 0.5 + (2 + 0.5) / 128}
"""Bytes of a frozen weight with its share of the scales; None: the plan's own format."""
DEQUANTISE_LAUNCHES = {"none": 0.0, "nf4": 3.0, "int4": 1.0}
"""Kernels that bring a matrix back; the scales of nf4 are quantised themselves (bitsandbytes: scales, their offset, weights)."""

GROUPS = {
    "attention": ("q_proj", "k_proj", "v_proj", "q_a_proj", "q_b_proj", "kv_a_proj_with_mqa", "kv_b_proj", "o_proj"),
    "mlp": ("gate_proj", "up_proj", "down_proj"),
}
GROUPS["all"] = GROUPS["attention"] + GROUPS["mlp"]
FUSED = {"linear_qkv": ("q_proj", "k_proj", "v_proj"), "linear_fc1": ("gate_proj", "up_proj")}
ALIASES = {"linear_proj": "o_proj", "linear_fc2": "down_proj"}
TARGETS = (*GROUPS, *GROUPS["all"], *FUSED, *ALIASES)


@dataclass(frozen=True)
class AdapterSpec:
    """Fine-tuning of low-rank adapters; everything else is frozen.

    Attributes:
        rank: r; 0: nothing has weights to train in the layers, but gradients pass through them (prompt tuning).
        kind: lora.
        targets: names of modules, or attention | mlp | all for every matrix there.
        quantised: format of the frozen matrices of the layers: none | nf4 | int4; brought back to 16 bits before every product.
        fused: the adapter's result is added within its product (Unsloth, fused-ops plugins); else scaling and sum are passes of
            their own, as in eager PEFT.
        dropout: probability on the input of every adapter; only whether there is any matters to time and memory.

    Raises:
        SpecError: an unknown name, a negative rank, a probability outside [0, 1).
    """

    rank: int
    targets: tuple[str, ...] = ("attention",)
    kind: str = "lora"
    quantised: str = "none"
    fused: bool = False
    dropout: float = 0.0

    def __post_init__(self) -> None:
        if isinstance(self.rank, bool) or not isinstance(self.rank, int) or self.rank < 0:
            raise SpecError(f"adapters: rank = {self.rank!r}, but it must be a whole number, 0 or more")
        check_bounds(SpecError, "adapters", MOST_WIDTH, rank=self.rank)
        if not self.targets:
            raise SpecError(f"adapters: targets is empty. Name some of {', '.join(TARGETS)}.")
        for name in self.targets:
            if name not in TARGETS:
                raise SpecError(f"adapters: target {name!r} is unknown. Use some of {', '.join(TARGETS)}.")
        for field, known in (("kind", KINDS), ("quantised", tuple(QUANTISED_BYTES))):
            if getattr(self, field) not in known:
                text = f"{getattr(self, field)!r} is unknown. Use one of {', '.join(known)}."
                raise SpecError(f"adapters: {field} = {text}")
        if not 0.0 <= self.dropout < 1.0:
            raise SpecError(f"adapters: dropout = {self.dropout}, but it must be at least 0 and below 1")
