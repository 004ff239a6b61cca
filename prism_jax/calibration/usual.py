"""Usual formats, recomputation, chunks and routing of runs whose table or job file does not state them. Odds.

Judgements as those of `open_fields`, each with what speaks for it.
"""

from __future__ import annotations

from ..framework.software import VENDOR
from ..plan.plan import ParallelPlan
from ..system.hardware import Device
from .open_fields import Odds

# Recomputation where nobody states it, by framework. DeepSpeed's lineage checkpoints every layer: the published configurations of
# GPT-NeoX (`checkpoint-activations: true` in configs/*.yml) and the scripts of Megatron-DeepSpeed (`--checkpoint-activations`).
_RECOMPUTE: dict[str, Odds] = {"megatron-deepspeed": (("full", 0.8), ("none", 0.2))}


def usual_recompute(framework: str) -> Odds:
    """Odds of what a run of that framework recomputed, most likely first."""
    return _RECOMPUTE.get(framework, (("none", 1.0),))


# Number formats of products where nobody states them, by generation.
_DTYPES: tuple[tuple[str, Odds], ...] = (
    ("volta", (("fp16", 0.9), ("fp32", 0.1))),
    ("ampere", (("bf16", 0.75), ("fp16", 0.25))),
    ("hopper", (("bf16", 0.75), ("fp8", 0.25))),
    ("blackwell", (("fp8", 0.5), ("bf16", 0.25), ("nvfp4", 0.25))),
    ("cdna3", (("bf16", 0.6), ("fp8", 0.4))),
    ("cdna4", (("fp8", 0.5), ("bf16", 0.3), ("mxfp4", 0.2))),
)
# Vendors and who submits benchmarks with them use the fastest format that converges: NVIDIA and its partners have trained
# language models for MLPerf Training in fp8 on Hopper since v3.0, on Blackwell in fp8 and (v5.1) in nvfp4.
_DTYPES_OF_VENDORS: tuple[tuple[str, Odds], ...] = (
    ("hopper", (("fp8", 0.9), ("bf16", 0.1))),
    ("blackwell", (("fp8", 0.6), ("nvfp4", 0.35), ("bf16", 0.05))),
    ("cdna3", (("fp8", 0.8), ("bf16", 0.2))),
    ("cdna4", (("fp8", 0.5), ("mxfp4", 0.4), ("bf16", 0.1))),
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


# Where nobody says how tokens are routed: benchmarks force a balance, training with a balancing loss or bias is near it.
USUAL_ROUTING: Odds = ((1.0, 0.8), (1.25, 0.15), (1.6, 0.05))

# Chunks per stage where a source says that schedules were 1F1B or interleaved: NVIDIA's recipes mostly interleave. Judgement.
_INTERLEAVED_ODDS = 0.7


def usual_virtual_stages(n_layers: int, plan: ParallelPlan) -> Odds:
    """Chunks per stage: one, or what gives chunks of one or two layers."""
    if plan.pp == 1 or plan.n_micro_batch < plan.pp or plan.n_micro_batch % plan.pp:
        return ()
    able = [n for n in (n_layers // plan.pp, n_layers // (2 * plan.pp)) if n > 1 and n_layers % (n * plan.pp) == 0]
    return (*((n, _INTERLEAVED_ODDS / len(able)) for n in able), (1, 1.0 - _INTERLEAVED_ODDS)) if able else ()
