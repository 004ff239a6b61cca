"""What a transformer layer computes again in its backward pass, and what it need not save for that.

A module is named as Megatron-LM names it (`--recompute-modules`); kernels and saved tensors are those of `ops` and
`saved_tensors`. torchtitan's `selective_op` saves the results of attention and of every other matrix product in the order in
which a Llama layer runs them (query, value, gate, down), and computes everything else again, a mixture of experts as a whole.

Source: Megatron-LM, megatron/core/transformer (`recompute_modules`); torchtitan, distributed/activation_checkpoint.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ...plan.plan import ParallelPlan
from ...plan.recomputation import recomputed_modules, share_of_layers
from ..base import Comm
from .op_lists.attention import CORE
from .sizes import TransformerSizes

LAYER_INPUT, MLP_OUTPUT = "layer input", "mlp output"
_CORE_TENSORS = ("attention log-sum-exp", "softmax output", "softmax dropout mask", "softmax dropout output")
_EVERYTHING = "*"


def _whole(*names: str) -> dict[str, float]:
    return dict.fromkeys(names, 1.0)


def _inner(prefix: str) -> dict[str, float]:
    return _whole(f"{prefix} activation input", f"{prefix} gate output", f"{prefix} down projection input")


@dataclass(frozen=True)
class Again:
    """Shares, 1 for the whole; "*" stands for every name.

    Attributes:
        kernels: of forward kernels that run again.
        dropped: of saved tensors that are not saved.
        comms: of forward collectives that run again, by axis, or by axis and kind.
        added: tensors that are saved only because of it.
    """

    kernels: Mapping[str, float] = field(default_factory=dict)
    dropped: Mapping[str, float] = field(default_factory=dict)
    comms: Mapping[str, float] = field(default_factory=dict)
    added: tuple[str, ...] = ()

    def kernel_share(self, name: str) -> float:
        """Of a forward kernel that runs again."""
        return self.kernels.get(name, self.kernels.get(_EVERYTHING, 0.0))

    def saved_share(self, name: str) -> float:
        """Of a tensor that is saved."""
        return 1.0 - self.dropped.get(name, self.dropped.get(_EVERYTHING, 0.0))

    def comm_share(self, comm: Comm) -> float:
        """Of a forward collective that runs again."""
        by_kind = self.comms.get(f"{comm.axis} {comm.kind}", self.comms.get(comm.axis, 0.0))
        return self.comms.get(_EVERYTHING, by_kind)

    def __or__(self, other: Again) -> Again:
        """Both; what both name counts once."""
        return Again(
            {**self.kernels, **other.kernels},
            {**self.dropped, **other.dropped},
            {**self.comms, **other.comms},
            (*self.added, *other.added),
        )


_MOE_KERNELS = _whole("router", "permute", "unpermute", "experts_in", "experts_act", "experts_out")
_SHARED = Again(_whole("shared_in", "shared_act", "shared_out"), _inner("shared expert"))
_MOE = _SHARED | Again(
    _MOE_KERNELS,
    _whole("router scores", "permuted tokens", "expert output") | _inner("expert"),
    {"tp": 0.5, "ep": 1.0},  # of attention and MLP, one
)
_MLP = Again(_whole("mlp_in", "mlp_act", "mlp_out"), _inner("mlp"), {"tp": 0.5})
_MODULES = {
    "core_attn": Again(dict.fromkeys(CORE, 1.0), _whole(*_CORE_TENSORS)),
    "moe_act": Again(_whole("experts_act"), _whole("expert gate output", "expert down projection input")),
    "layernorm": Again(_whole("norms"), _whole("qkv projection input", "mlp input", "router input")),
    "mlp": _MLP,
    "moe": _MOE,
    "shared_experts": _SHARED,
}
_LATENT = Again(_whole("q_up", "kv_up", "rope", "assemble_kv"), _whole("query", "key", "value"))
FULL = Again({_EVERYTHING: 1.0}, {_EVERYTHING: 1.0}, {_EVERYTHING: 1.0}, (LAYER_INPUT,))
NOTHING = Again()


def recomputed(model: TransformerSizes, plan: ParallelPlan, is_moe: bool) -> Again:
    """What a layer that recomputes does again under `plan`; see `share_of_layers` for how many do."""
    match plan.recompute:
        case "full" | "selective_layer":
            return FULL
        case "selective_op":
            return _alternate_products(model) | (_MOE if is_moe else NOTHING)
        case _:
            total = NOTHING
            for name in recomputed_modules(plan):
                total = total | _module(model, name)
            return total


def recomputing_share(model: TransformerSizes, plan: ParallelPlan) -> float:
    """Share of the layers that do what `recomputed` says."""
    return share_of_layers(plan, model.n_layers)


def _module(model: TransformerSizes, name: str) -> Again:
    if name == "mla_up_proj":
        return _LATENT if model.mla is not None else NOTHING
    return _MODULES[name]


def _alternate_products(model: TransformerSizes) -> Again:
    """Query, value, gate and down projection are saved; key, output and up projection run again."""
    width = model.q_dim + 2 * model.kv_dim
    gated = model.gated
    kernels = _whole("norms", "residuals", "rope", "qk_norm", "latent_norms", "assemble_kv", "attention_out", "mlp_act")
    kernels |= {"qkv": model.kv_dim / width, "q_up": 1.0, "kv_up": 1.0}
    kernels |= {"mlp_in": 0.5, "mlp_out": 0.0} if gated else {"mlp_in": 0.0, "mlp_out": 1.0}
    dropped = _whole("qkv projection input", "key", "mlp norm input", "mlp input", "router input")
    dropped |= _whole("mlp gate output", "mlp down projection input", "query before norm", "key before norm")
    dropped |= _whole("output norm inputs")
    dropped |= {"mlp activation input": 0.5 if gated else 0.0}
    return Again(kernels, dropped, {"tp all_gather": 1.0, "tp all_reduce": 1.0}, (MLP_OUTPUT,) if gated else ())
