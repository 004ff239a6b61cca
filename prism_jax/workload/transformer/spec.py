"""Decoder-only transformer architectures: dense GPT and Llama style, MoE, MLA; exact parameter and FLOP counts.

The dimensions are those of `sizes.py`; the counting is in `params.py` and `flops.py`, and `TransformerSpec` offers it as methods.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from ...errors import SpecError
from . import flops, params
from .flops import TokenFlops
from .params import LayerParams
from .sizes import MLASpec as MLASpec, MoESpec as MoESpec, TransformerSizes


@dataclass(frozen=True)
class TransformerSpec(TransformerSizes):
    """A decoder-only transformer; all sizes are counts.

    Notes:
        `n_params` is the main model, as published; multi-token-prediction modules are counted by `mtp_params`.
        FLOP methods do include them, since training runs them.
    """

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
        return params.norm_params(self)

    def mtp_params(self) -> int:
        """Own parameters of the multi-token-prediction modules (they share embedding and head)."""
        return params.mtp_params(self)

    def n_params(self) -> int:
        """All parameters of the main model, without multi-token-prediction modules."""
        return self.n_params_non_embedding() + self.embedding_params() + self.head_params()

    def n_params_active(self) -> int:
        """Parameters that serve one token (top-k routed experts), input embedding and head included."""
        return self.n_params() - self._inactive_experts()

    def n_params_non_embedding(self) -> int:
        """Layers and final norm: without token and position embeddings and without the head."""
        n_dense = self.n_layers - self.n_moe_layers
        dense = n_dense * params.layer_params(self, 0).total if n_dense else 0
        sparse = self.n_moe_layers * params.layer_params(self, self.n_layers - 1).total
        return dense + sparse + self.final_norm_params()

    def _inactive_experts(self) -> int:
        if self.moe is None:
            return 0
        idle = self.moe.n_experts - self.moe.top_k
        return self.n_moe_layers * idle * params.mlp_params(self, self.moe.ffn_hidden)

    # --- FLOPs ---

    def token_flops(self, seq_len: int, causal: bool = True) -> TokenFlops:
        """Forward matrix-product FLOPs of one token by piece, for sequences of `seq_len` tokens."""
        return _token_flops(self, seq_len, causal)

    def flops_per_token(self, seq_len: int, causal: bool = True) -> float:
        """Forward matrix-product FLOPs of one token: projections, scores, MLP, logits.

        Args:
            seq_len: tokens of one sequence.
            causal: count only keys that a token may see; False is the convention of the Megatron papers.
        """
        return _token_flops(self, seq_len, causal).total

    def train_flops_per_token(self, seq_len: int, causal: bool = True, recompute: str = "none") -> float:
        """FLOPs of one token in forward and backward; `recompute` adds what is computed twice.

        Source: arXiv 2104.04473 eq. 3 (recompute = full, causal = False) and 2205.05198 appendix A (none).
        """
        return flops.train_flops_per_token(self, seq_len, causal, recompute)

    def flops_per_token_6n(self) -> float:
        """The 6N convention: 6 FLOPs per active parameter that a matrix product meets; no attention scores.

        Notes:
            N leaves out the input embedding and learned positions (lookups) and counts the head even when it is tied.
        """
        matrices = self.n_params_active() - self.embedding_params() - self.head_params()
        return 6.0 * (matrices + self.vocab * self.hidden)


@lru_cache(maxsize=1024)
def _token_flops(spec: TransformerSpec, seq_len: int, causal: bool) -> TokenFlops:
    return flops.token_flops(spec, seq_len, causal)
