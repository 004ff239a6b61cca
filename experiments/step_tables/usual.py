"""What a published run may have done where its table says nothing: recomputation by framework, formats by device. Odds."""

from __future__ import annotations

from prism_jax.calibration.open_fields import Odds
from prism_jax.framework.software import VENDOR
from prism_jax.system.hardware import Device

# Recomputation where nobody states it, by framework. DeepSpeed's lineage checkpoints every layer: the published configurations of
# GPT-NeoX (`checkpoint-activations: true` in configs/*.yml) and the scripts of Megatron-DeepSpeed (`--checkpoint-activations`).
_RECOMPUTE: dict[str, Odds] = {"megatron-deepspeed": (("full", 0.8), ("none", 0.2))}


def usual_recompute(framework: str) -> Odds:
    """What a run of that framework may have recomputed, most likely first."""
    return _RECOMPUTE.get(framework, (("none", 1.0),))


# Number formats of products where nobody states them, by generation.
_DTYPES: tuple[tuple[str, Odds], ...] = (
    ("volta", (("fp16", 0.9), ("fp32", 0.1))),
    ("ampere", (("bf16", 0.75), ("fp16", 0.25))),
    ("hopper", (("bf16", 0.75), ("fp8", 0.25))),
    ("blackwell", (("fp8", 0.5), ("bf16", 0.25), ("nvfp4", 0.25))),
)
# Vendors and who submits benchmarks with them use the fastest format that converges: NVIDIA and its partners have trained
# language models for MLPerf Training in fp8 on Hopper since v3.0, on Blackwell in fp8 and (v5.1) in nvfp4.
_DTYPES_OF_VENDORS: tuple[tuple[str, Odds], ...] = (
    ("hopper", (("fp8", 0.9), ("bf16", 0.1))),
    ("blackwell", (("fp8", 0.6), ("nvfp4", 0.35), ("bf16", 0.05))),
)


def usual_dtypes(device: Device, tuning: str | None = None) -> Odds:
    """Formats that a run on that device may have used; those that the device lacks are left out.

    Args:
        tuning: as in `Software`.
    """
    known = (*(_DTYPES_OF_VENDORS if tuning == VENDOR else ()), *_DTYPES)
    given = next((odds for generation, odds in known if generation == device.generation), (("bf16", 1.0),))
    able = [(name, odds) for name, odds in given if name in device.peak_flops_per_s]
    whole = sum(odds for _, odds in able)
    return tuple((name, odds / whole) for name, odds in able)
