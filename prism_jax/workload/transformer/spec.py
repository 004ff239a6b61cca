"""Decoder-only transformer architectures: dense GPT and Llama style, MoE, MLA, windows; exact parameter and FLOP counts.

The dimensions are those of `sizes.py`; the counting is in `params.py`, and `TransformerSpec` offers it as methods.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import gcd

from ...core.errors import Problem, SpecError
from ...framework.software import FUSED
from ...plan.packing import mean_over_lengths
from ...plan.plan import ParallelPlan
from ..base.workload import Block, BlockRun, Split, WorkloadDefaults
from . import blocks, params
from .adapters import adapter_params, check_adapters
from .mixers import MixerSpec as MixerSpec, WindowSpec as WindowSpec
from .params import LayerParams, TokenFlops
from .shard import Shard
from .sizes import AdapterSpec as AdapterSpec, MLASpec as MLASpec, MoESpec as MoESpec, TransformerSizes


@dataclass(frozen=True)
class TransformerSpec(TransformerSizes, WorkloadDefaults):
    """A decoder-only transformer; all sizes are counts.

    Notes:
        `n_params` is the main model, as published; multi-token-prediction modules are counted by `mtp_params`.
        FLOP methods do include them, since training runs them.
    """

    def __post_init__(self) -> None:
        TransformerSizes.__post_init__(self)
        check_adapters(self)

    # --- workload: see `base.Workload` ---

    @property
    def sample_unit(self) -> str:
        """Unit in which throughput is counted: tokens."""
        return "tokens"

    @property
    def sure_software(self) -> dict[str, str]:
        """Choices of the software that the architecture leaves no room for: LayerNorm is one kernel wherever it runs.

        Optional in a `Workload`: one without it leaves all choices to the software.
        """
        return sure_software(self)

    @property
    def has_experts(self) -> bool:
        """Whether any layer has experts."""
        return self.moe is not None

    @property
    def layout(self) -> tuple[BlockRun, ...]:
        """Embedding, layers, head, multi-token-prediction modules."""
        return blocks.layout(self)

    def groups(self, plan: ParallelPlan) -> tuple[tuple[str, float], ...]:
        """Dense parameters, and experts, which expert parallelism divides; with adapters the frozen ones apart."""
        return blocks.groups(self, plan.expert_split)

    def frozen_groups(self, plan: ParallelPlan) -> dict[str, float]:
        """Groups without gradients, and bytes of one of their parameters; none unless adapters are trained."""
        return blocks.frozen_groups(self, plan)

    def block(self, kind: str, plan: ParallelPlan) -> Block:
        """One block under a plan."""
        return blocks.block(self, kind, plan)

    def boundary_bytes(self, plan: ParallelPlan) -> float:
        """Hidden states of a micro-batch, of all tensor-parallel ranks together."""
        return plan.element_bytes * Shard.of(self, plan).tokens * self.hidden

    def step_flops(self, plan: ParallelPlan, *, recomputed: bool) -> float:
        """FLOPs of a step on all devices, see `model_flops_per_token`; unfused attention computes the whole square of scores."""
        causal = plan.is_flash  # means nothing where all tokens see all others

        def per_token(length: int) -> float:
            again = 0.0
            if recomputed:
                own = plan if length == plan.seq_len else replace(plan, seq_len=length)
                again = params.recomputed_flops_per_token(self, own, causal)
            return self.model_flops_per_token(length, causal) + again

        mean = mean_over_lengths(plan, per_token) if causal else per_token(plan.seq_len)
        return float(self.units_per_step(plan)) * mean

    def whole_matrix_flops(self, plan: ParallelPlan) -> float:
        """Model FLOPs of a step as Megatron-LM counted them until 2025: the whole matrix of scores, masked ones included.

        Source: Megatron-LM `num_floating_point_operations` as in its issue 831 (2024-05), NeMo's formulas, MaxText before its PR
        1988 (2025-07), which names Megatron-LM as halving it by then; with packed documents the whole square of each.
        """
        per_token = mean_over_lengths(plan, lambda length: self.model_flops_per_token(length, False))
        return float(self.units_per_step(plan)) * per_token

    def splits(self, plan: ParallelPlan) -> dict[str, Split]:
        """Attention heads, tokens of a sequence, experts."""
        experts = self.moe.n_experts if self.moe is not None else 1
        return {
            "tp": Split(gcd(self.n_heads, self.mixer.n_heads) if self.mixer else self.n_heads, "attention heads"),
            "cp": Split(plan.seq_len, "tokens of a sequence"),
            "ep": Split(experts, "experts"),
        }

    def deeper(self, n: int) -> TransformerSpec:
        """Returns the same model with `n` more layers."""
        return replace(self, n_layers=self.n_layers + n)

    def with_defaults_written(self) -> TransformerSpec:
        """Returns the same model with its defaults written out (n_kv_heads, head_dim, biases, width of shared experts)."""
        moe = replace(self.moe, shared_ffn_hidden=self.moe.shared_width) if self.moe is not None else None
        head_dim = self.qk_head_dim if self.mla is None else 0
        biases = {"qkv_bias": self.has_qkv_bias, "mlp_bias": self.has_mlp_bias}
        return replace(self, n_kv_heads=self.kv_heads, head_dim=head_dim, moe=moe, **biases)

    def problems(self, plan: ParallelPlan) -> Iterator[Problem]:
        """A transformer reads sequences, whose length the plan must give."""
        if plan.seq_len < 1:
            yield Problem("seq_len", "is missing", is_missing=True)
        if self.mixer is not None and plan.cp > 1:
            yield Problem("cp", f"{plan.cp}, but layers with a mixer hand their state on in order. Use cp=1.")
        if self.mixer is not None and plan.recompute == "selective_op":
            yield Problem(
                "recompute", "selective_op, but that is known of layers with attention only. Use full or none."
            )

    # --- parameters ---

    def layer_params(self, layer: int) -> LayerParams:
        """Parameters of one layer by piece (attention, MLP, router, experts, shared, norms).

        Raises:
            SpecError: there is no such layer.
        """
        if not 0 <= layer < self.n_layers:
            raise SpecError(f"model {self.name} has layers 0 to {self.n_layers - 1}; there is no layer {layer}")
        return params.layer_params(self, layer)

    def embedding_params(self) -> int:
        """Token embedding and learned positions."""
        return params.embedding_params(self)

    def head_params(self) -> int:
        """Output projection to the vocabulary; 0 when tied to the embedding."""
        return params.head_params(self)

    def final_norm_params(self) -> int:
        """Parameters of the norm before the head."""
        return params.norm_params(self)

    def mtp_params(self) -> int:
        """Own parameters of the multi-token-prediction modules (they share embedding and head)."""
        return params.mtp_params(self)

    def n_params(self) -> int:
        """All parameters of the main model, without multi-token-prediction modules."""
        return self.n_params_non_embedding() + self.embedding_params() + self.head_params()

    def n_params_trained(self) -> int:
        """Parameters that have gradients: those of the adapters, or all."""
        if self.adapters is None:
            return self.n_params()
        sorts = blocks.sorts_of_layers(self).values()
        return sum(n * sum(adapter_params(self, self.is_moe_layer(layer))) for layer, n in sorts)

    def n_params_active(self) -> int:
        """Parameters that serve one token (top-k routed experts), input embedding and head included."""
        return self.n_params() - self._inactive_experts()

    def n_params_non_embedding(self) -> int:
        """Layers and final norm: without token and position embeddings and without the head."""
        layers = sum(n * params.layer_params(self, layer).total for layer, n in blocks.sorts_of_layers(self).values())
        return layers + self.final_norm_params()

    def _inactive_experts(self) -> int:
        if self.moe is None:
            return 0
        idle = self.moe.n_experts - self.moe.top_k
        expert = params.mlp_params(self, self.moe.ffn_hidden, self.moe.token_width(self.hidden))
        return self.n_moe_layers * idle * expert

    # --- FLOPs ---

    def token_flops(self, seq_len: int, causal: bool = True) -> TokenFlops:
        """Forward matrix-product FLOPs of one token by piece, for sequences of `seq_len` tokens."""
        return params.token_flops(self, seq_len, causal)

    def train_flops_per_token(self, seq_len: int, causal: bool = True, recompute: str = "none") -> float:
        """FLOPs of one token in forward and backward; `recompute` adds those of recomputation.

        Source: arXiv 2104.04473 eq. 3 (recompute = full, causal = False) and 2205.05198 appendix A (none).
        """
        return params.train_flops_per_token(self, seq_len, causal, recompute)

    def model_flops_per_token(self, seq_len: int, causal: bool = True) -> float:
        """FLOPs of one token that training needs, the numerator of MFU.

        Notes:
            Training in full: three times the forward. With adapters a frozen matrix costs the forward and its input gradient,
            two times its forward; scores and adapters cost three times theirs.
        """
        return params.model_flops_per_token(self, seq_len, causal)


def sure_software(sizes: TransformerSizes) -> dict[str, str]:
    """Choices that layers of these sizes leave no room for."""
    rotary = {} if sizes.position == "rope" else {"rope": FUSED}
    return rotary | ({} if sizes.norm == "rms" else {"norm": FUSED})
