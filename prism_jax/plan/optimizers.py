"""Optimizers: the state each keeps per parameter, and further reads and writes of its update. Bytes.

| name | kept per parameter | source |
|---|---|---|
| adam, adamw, lamb | exp_avg, exp_avg_sq | arXiv 1412.6980, 1711.05101, 1904.00962 |
| sgd | nothing | - |
| sgd_momentum, lion, muon | exp_avg | arXiv 2302.06675, 2502.16982 |
| adam_mini | exp_avg, one exp_avg_sq per block of a matrix, below 0.1% | arXiv 2406.16793 |
| adagrad, rmsprop | exp_avg_sq | - |
| ademamix, grokadamw | exp_avg twice, exp_avg_sq | arXiv 2409.03137 |
| adafactor | sums of rows and columns of exp_avg_sq: (m + n) / mn of a matrix of m x n, below 0.1% | arXiv 1804.04235 |
| *_8bit | the same in 8 bits, with an fp32 scale per block of 256 | arXiv 2110.02861, bitsandbytes, torchao |
| *_4bit | the same in 4 bits, with an fp32 scale per block of 128 | arXiv 2309.01507, torchao |
| paged_* | the same in memory that the device and the host share, so that they need no place on the device | bitsandbytes |

There is also the copy that is updated, a *master copy*, where the format of `state_dtypes.main_params` is not that of the
parameters themselves; `none` says that there is none. Without one PyTorch's optimizers make their states, and autograd its
gradients, in the format of the parameters: so it is assumed where `state_dtypes` says nothing (torch/optim/adam.py).

Muon orthogonalises the momentum of every matrix of a layer by five Newton-Schulz iterations; embedding, head and norms keep
Adam's states. See `cost/step_end.py`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from ..core.errors import PlanError, Problem
from ..core.registry import did_you_mean
from .fields import ELEMENT_BYTES, MAIN_PARAM_BYTES, PlanFields

FIRST, SECOND = "exp_avg", "exp_avg_sq"
# Bits of a quantised moment -> elements that share a scale; `blocksize` of bitsandbytes, `block_size` of torchao.
BLOCK_SIZE = {8: 256, 4: 128}


@dataclass(frozen=True)
class Optimizer:
    """State that an optimizer keeps, and how it runs.

    Attributes:
        moments: states of a parameter's size, by the field of `StateDtypes` that says their format.
        eager_bytes: of passes beyond one fused update, per parameter in fp32, where multi-tensor operations run apart.
        bits: of moments that are quantised by blocks; 0: they are not.
        is_paged: moments may lie on the host.
        is_orthogonal: matrices of layers are orthogonalised, and only these have `moments`; the rest has Adam's.
    """

    name: str
    moments: tuple[str, ...] = ()
    eager_bytes: float = 0.0
    bits: int = 0
    is_paged: bool = False
    is_orthogonal: bool = False


# Of Adam: decay 8, first moment 8, second 12, root 8, division 8, sum 8, update 4. The others by the same count.
_PLAIN = (
    Optimizer("adamw", (FIRST, SECOND), 56.0),
    Optimizer("adam", (FIRST, SECOND), 56.0),
    Optimizer("lamb", (FIRST, SECOND), 80.0),  # norms of parameters and updates, and the product of both
    Optimizer("sgd", (), 8.0),
    Optimizer("sgd_momentum", (FIRST,), 16.0),
    Optimizer("lion", (FIRST,), 36.0),
    Optimizer("adagrad", (SECOND,), 28.0),
    Optimizer("rmsprop", (SECOND,), 28.0),
    Optimizer("adafactor", (), 64.0),  # square, means, outer product, root, product, clipping
    Optimizer("adam_mini", (FIRST,), 36.0),
    Optimizer("ademamix", (FIRST, FIRST, SECOND), 72.0),
    Optimizer("grokadamw", (FIRST, FIRST, SECOND), 72.0),
    Optimizer("muon", (FIRST,), 16.0, is_orthogonal=True),
)
_QUANTISED = {
    8: ("adamw", "adam", "lion", "sgd_momentum", "adagrad", "rmsprop", "lamb", "ademamix"),
    4: ("adamw", "adam"),
}
_PAGED = ("adamw", "adam", "lion", "ademamix")


def _known() -> dict[str, Optimizer]:
    plain = {one.name: one for one in _PLAIN}
    narrow = {
        f"{name}_{bits}bit": replace(plain[name], name=f"{name}_{bits}bit", bits=bits)
        for bits, names in _QUANTISED.items()
        for name in names
    }
    can_page = {name: one for name, one in (plain | narrow).items() if name.removesuffix("_8bit") in _PAGED}
    paged = {f"paged_{name}": replace(one, name=f"paged_{name}", is_paged=True) for name, one in can_page.items()}
    return plain | narrow | paged


OPTIMIZERS = _known()
"""Name -> optimizer."""
# Words of libraries' names that say how an update runs, not what it keeps; and other names of the same.
_SAYS_NOTHING = re.compile(
    r"torch|fused|foreach|apex|hf|distributed|dist|32bit|deepspeed|cpu|optim\b|bnb|bitsandbytes|decoupled|stable"
)
_SAME = {
    "momentum": "sgd_momentum", "sgdm": "sgd_momentum", "nesterov": "sgd_momentum", "sgdmomentum": "sgd_momentum",
    "sgdwithmomentum": "sgd_momentum", "sgdnesterov": "sgd_momentum", "lars": "sgd_momentum", "muonclip": "muon",
    "adamwfp8": "adamw_8bit", "adamfp8": "adam_8bit",
    # z in place of the first moment (arXiv 2405.15682)
    "schedulefreeadamw": "adamw", "adamwschedulefree": "adamw",
    "schedulefreesgd": "sgd_momentum", "sgdschedulefree": "sgd_momentum",
    "nadam": "adam", "nadamw": "adamw", "radam": "adam", "adamax": "adam",
}  # fmt: skip


def parse_optimizer(written: object) -> str:
    """Returns the name in `OPTIMIZERS` of an optimizer in any library's spelling: adamw_torch_fused, PagedAdamW8bit, FusedAdam.

    Raises:
        PlanError: no optimizer of that name; with those that are known.
    """
    if isinstance(written, str):
        text = written.rpartition(".")[2].lower()
        flat = re.sub(r"[^a-z0-9]", "", _SAYS_NOTHING.sub("", text))
        found = _BY_LETTERS.get(flat)
        if found:
            return found
    raise PlanError.of(Problem("optimizer", f"{written!r} is unknown{did_you_mean(written, OPTIMIZERS)}"))


def _by_letters() -> dict[str, str]:
    found = {name.replace("_", ""): name for name in OPTIMIZERS}
    for name in OPTIMIZERS:
        if OPTIMIZERS[name].bits:
            base, bits = name.removesuffix(f"_{OPTIMIZERS[name].bits}bit").replace("_", ""), OPTIMIZERS[name].bits
            found |= {f"{base}{bits}": name, f"{bits}bit{base}": name, f"{base}bnb{bits}bit": name}
    return _SAME | found


_BY_LETTERS = _by_letters()


def parameter_dtype(plan: PlanFields) -> str:
    """Format of the parameters that a pass computes with, before they are quantised for products."""
    return plan.dtype if plan.dtype in ("fp32", "fp16") else "bf16"


def has_master(plan: PlanFields) -> bool:
    """Whether the updated parameter has a format of its own; parameters in fp32 are updated themselves."""
    return plan.dtype != "fp32" and plan.state_dtypes.main_params not in ("none", parameter_dtype(plan))


def updated_bytes(plan: PlanFields) -> float:
    """Returns the bytes of the parameter that is updated: the master copy, or the parameter itself."""
    return MAIN_PARAM_BYTES[plan.state_dtypes.main_params] if has_master(plan) else plan.element_bytes


def main_gradient_bytes(plan: PlanFields) -> float:
    """Returns the bytes of a gradient as the optimizer reads it: as stated; else fp32, or without a master as parameters."""
    own = plan.state_dtypes.main_grads
    return ELEMENT_BYTES[own or ("fp32" if has_master(plan) else parameter_dtype(plan))]


def moments_bytes(plan: PlanFields, optimizer: Optimizer | None = None) -> float:
    """Returns the bytes of all moments of a parameter.

    Args:
        optimizer: None: the plan's.
    """
    optimizer = OPTIMIZERS[plan.optimizer] if optimizer is None else optimizer
    if optimizer.bits:
        return len(optimizer.moments) * (optimizer.bits / 8.0 + 4.0 / BLOCK_SIZE[optimizer.bits])
    usual = "fp32" if has_master(plan) else parameter_dtype(plan)
    return float(sum(ELEMENT_BYTES[getattr(plan.state_dtypes, name) or usual] for name in optimizer.moments))


def rest_moments_bytes(plan: PlanFields) -> float:
    """Returns the bytes of all moments of a parameter of embedding or head, which no optimizer orthogonalises."""
    own = OPTIMIZERS[plan.optimizer]
    return moments_bytes(plan, OPTIMIZERS["adamw"] if own.is_orthogonal else own)


def eager_bytes(plan: PlanFields) -> float:
    """Traffic per parameter of an update in separate passes, beyond one fused pass."""
    return OPTIMIZERS[plan.optimizer].eager_bytes * updated_bytes(plan) / ELEMENT_BYTES["fp32"]
