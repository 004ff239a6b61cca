"""Training software, as far as it decides how fast a step is: names, and whether its kernels are fused or run one by one.

`fused`: Megatron and its kin, JAX: hand-fused or compiled kernels, a thin host loop. `eager`: PyTorch modules as written.
"""

from __future__ import annotations

from ..errors import SpecError
from ..hints import did_you_mean

FUSED = {
    "megatron-core": "Megatron-Core and what is built on it: NeMo, Megatron-Bridge, Primus",
    "megatron-2021": "Megatron-LM before sequence parallelism and the distributed optimizer, 2019-22",
    "megatron-deepspeed": "Megatron-DeepSpeed and GPT-NeoX",
    "flagscale": "FlagScale and FlagPerf, on Megatron",
    "libai": "OneFlow LiBai",
    "jax": "MaxText, PaxML, T5X and other JAX code",
    "paddle": "PaddleNLP",
}
EAGER = {
    "fsdp": "PyTorch FSDP 1 and 2 under any trainer",
    "deepspeed": "DeepSpeed ZeRO without Megatron",
    "nanotron": "Hugging Face nanotron",
    "colossalai": "Colossal-AI",
}
# Weight gradients are added to their fp32 sum in a pass of its own (nanotron `FP32GradientAccumulator`), not inside the product
# as by Megatron-LM's gradient accumulation fusion. DeepSpeed does either, by precision and version: not listed.
ACCUMULATE_APART = ("nanotron",)
OTHER = "other"  # known, none of these
UNKNOWN = ""
FRAMEWORKS = (*FUSED, *EAGER, OTHER, UNKNOWN)


def style_of(framework: str) -> str:
    """`fused`, `eager`, or empty where that is not known."""
    return "fused" if framework in FUSED else "eager" if framework in EAGER else ""


def check_framework(name: str) -> None:
    """Refuses a framework that is none of `FRAMEWORKS`.

    Raises:
        SpecError: it is unknown; names those that are.
    """
    if name not in FRAMEWORKS:
        known = [one for one in FRAMEWORKS if one]
        raise SpecError(f"framework {name!r} is unknown; known are {', '.join(known)}{did_you_mean(name, known)}")
