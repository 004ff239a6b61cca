"""Open fields: what a job leaves unsaid, as a distribution, and what each possibility does to the step.

What software usually does is known by framework, device generation and date. Probabilities are what the releases of these
years ship as their default (1: always) or what their users were seen to choose; they are judgements, not counts, and wide
where nobody states them. Dates are those of the first release with the kernel: FlashAttention arXiv 2205.14135 (2022-06) and
2307.08691 (2023-07), FlashAttention-3 and cuDNN 9 in Transformer Engine (2024-03), torch.compile over FSDP (2024-03), CUDA
graphs in Megatron-Core's recipes for Blackwell (2025-01).

Every open field is, independently, one of a few values with these odds. A value moves the step by the ratio of the step's
outlines with and without it. Predictions stand at the mean of the logarithm over all possibilities; the band holds them:

    ln step = ln step(assumed) + sum_fields ln ratio(value),     value ~ odds

Formats, recomputation, chunks and routing of runs whose table or job file does not state them have odds of the same kind
(`usual_*`): judgements, each with what speaks for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import sqrt
from typing import Any
from zlib import crc32

import numpy as np

from ..core.arrays import Floats
from ..cost.block_cost import BlockCostModel
from ..cost.efficiency import Efficiency
from ..framework.base import EAGER, FUSED, Framework
from ..framework.frameworks import framework_of
from ..framework.software import LINEAR, OF_EXPERTS, SOFTWARE_VALUES, VENDOR, Software
from ..plan.plan import ParallelPlan
from ..system.hardware import Cluster, Device
from ..workload.base.workload import Workload, kinds_of
from .surrogate import seconds_under

Odds = tuple[tuple[Any, float], ...]  # values and their probabilities; the first is the most likely one
NEW = "9999"  # the date of software whose date is not stated
NOTHING_STATED = Software()
NETWORK = "cluster.network"  # its values are factors on the bandwidth between nodes
VIRTUAL_STAGES = "virtual_stages"  # above 1 under the interleaved schedule, else under plain 1F1B
IMBALANCE = "model.moe.imbalance"
# Where nobody states a fabric: the vendor's reference design, or one with half or with twice its ports per device. Judgement;
# that less is as likely as more was chosen in sight of the rows that leave it out.
USUAL_NETWORK: Odds = ((1.0, 0.6), (0.5, 0.2), (2.0, 0.2))


@dataclass(frozen=True)
class Usual:
    """One rule: the odds of a field where all conditions hold.

    Attributes:
        field: of `Software`.
        odds: values with probabilities that add up to one, most likely first.
        frameworks: names it holds for; empty: all of `style`.
        style: `fused`, `eager`, or empty for any.
        generations: of the device; empty: all.
        since, until: dates, from the first and before the second.
        beside: values of `cross_entropy` that are stated; empty: any, or none.
        tuning: that is stated or assumed; empty: any.
    """

    field: str
    odds: Odds
    frameworks: tuple[str, ...] = ()
    style: str = ""
    generations: tuple[str, ...] = ()
    since: str = ""
    until: str = NEW + "-99"
    beside: tuple[str, ...] = ()
    tuning: str = ""

    def holds(self, framework: Framework, generation: str, stated: Software) -> bool:
        """Whether all of its conditions are met."""
        date = stated.date or NEW
        return (
            (not self.beside or stated.cross_entropy in self.beside)
            and (not self.tuning or stated.tuning == self.tuning)
            and (not self.frameworks or framework.name in self.frameworks)
            and (not self.style or framework.style == self.style)
            and (not self.generations or generation in self.generations)
            and self.since <= date < self.until
        )


def _sure(value: Any) -> Odds:
    return ((value, 1.0),)


_HOPPER_ON = ("hopper", "blackwell")
_NATIVE = ("jax",)  # compiled whole
# The first rule that holds decides.
RULES = (
    # attention
    Usual("attention", _sure("fused_softmax"), style=FUSED, until="2022-06"),
    Usual("attention", (("fused_softmax", 0.6), ("eager", 0.4)), until="2022-06"),
    Usual("attention", (("flash1", 0.7), ("fused_softmax", 0.3)), style=FUSED, until="2023-07"),
    Usual("attention", (("flash1", 0.8), ("eager", 0.2)), until="2023-07"),
    Usual("attention", (("flash2", 0.6), ("flash3", 0.4)), style=FUSED, generations=_HOPPER_ON, until="2024-03"),
    Usual("attention", (("flash3", 0.85), ("flash2", 0.15)), style=FUSED, generations=_HOPPER_ON),
    Usual("attention", (("flash3", 0.7), ("flash2", 0.3)), generations=("blackwell",)),
    Usual("attention", (("flash2", 0.85), ("flash3", 0.15)), style=EAGER, generations=("hopper",)),
    Usual("attention", (("flash3", 0.6), ("flash2", 0.4)), generations=("hopper",)),
    Usual("attention", _sure("flash2")),
    # norms and elementwise kernels; Liger's `apply_liger_kernel_to_*` puts in all of them with its loss
    *(
        Usual(name, (("fused", 0.8), ("eager", 0.2)), style=EAGER, beside=(LINEAR,))
        for name in ("norm", "activation", "rope")
    ),
    Usual("norm", _sure("fused"), style=FUSED),
    Usual("norm", _sure("fused"), frameworks=("nanotron",)),  # flash-attn's Triton RMSNorm
    Usual("norm", (("eager", 0.7), ("fused", 0.3)), style=EAGER),
    Usual("norm", (("fused", 0.8), ("eager", 0.2))),
    # Of the next three the less likely value moves a step by less than 1%: the likely one is taken as sure.
    Usual("activation", _sure("eager"), style=EAGER),
    Usual("activation", _sure("fused")),
    Usual("rope", _sure("fused"), frameworks=(*_NATIVE, "nanotron")),
    Usual("rope", _sure("eager"), style=EAGER),
    Usual("rope", _sure("eager"), style=FUSED, until="2023-09"),
    Usual("rope", _sure("fused")),
    Usual("cross_entropy", _sure("compiled"), frameworks=_NATIVE),
    Usual("cross_entropy", _sure("eager")),
    Usual("optimizer", (("fused", 0.7), ("eager", 0.3)), style=EAGER),
    Usual("optimizer", _sure("fused")),
    # how kernels are started
    Usual("compile", (((False), 0.75), ((True), 0.25)), frameworks=("fsdp",), since="2024-03"),
    Usual("compile", _sure(False)),
    Usual(
        "cuda_graphs",  # recipes of NVIDIA for Blackwell set them (Megatron-Bridge, MLPerf Training since v5.0)
        (("layers", 0.85), ("none", 0.15)),
        frameworks=("megatron-core",),
        generations=("blackwell",),
        since="2025-01",
        tuning=VENDOR,
    ),
    Usual(
        "cuda_graphs",
        (("none", 0.5), ("layers", 0.5)),
        frameworks=("megatron-core",),
        generations=("blackwell",),
        since="2025-01",
    ),
    Usual("cuda_graphs", _sure("none")),
    # DeepEP was published in 2025-02; Megatron-Core has it in its flex dispatcher, recipes of NVIDIA use it or HybridEP.
    Usual(
        "dispatcher",
        (("deepep", 0.8), ("alltoall", 0.1), ("hybridep", 0.1)),
        frameworks=("megatron-core",),
        generations=_HOPPER_ON,
        since="2025-03",
        tuning=VENDOR,
    ),
    Usual(
        "dispatcher",
        (("alltoall", 0.6), ("deepep", 0.4)),
        frameworks=("megatron-core", "fsdp", "other", ""),
        generations=_HOPPER_ON,
        since="2025-03",
    ),
    Usual("dispatcher", _sure("alltoall")),
    # Counts go to the host in Megatron-Core and torchtitan; compiled programs have static shapes, DeepSpeed drops by default.
    Usual(
        "expert_counts",
        _sure("device"),
        frameworks=(*_NATIVE, "mindspore", "paddle", "deepspeed", "megatron-deepspeed"),
    ),
    Usual("expert_counts", _sure("host")),
    # GroupedLinear of Transformer Engine 1.8; before, Megatron-Core had CUTLASS kernels. DeepSpeed loops over its modules.
    Usual("expert_products", _sure("streams"), frameworks=("megatron-core",), since="2024-07"),
    Usual("expert_products", _sure("apart"), frameworks=("deepspeed", "megatron-deepspeed")),
    Usual("expert_products", _sure("grouped")),
    Usual("tuning", (("typical", 0.65), ("vendor", 0.35))),
)


def usual_odds(name: str, framework: Framework, generation: str, stated: Software = NOTHING_STATED) -> Odds:
    """Values of a field of `Software` and their probabilities, most likely first; `stated` is known of it."""
    return next(rule.odds for rule in RULES if rule.field == name and rule.holds(framework, generation, stated))


def open_degrees(plan: ParallelPlan, model: Workload, framework: str | Framework) -> tuple[tuple[str, Odds], ...]:
    """Degrees of the plan that nobody stated and that may be otherwise than assumed, with their odds: etp.

    Notes:
        Megatron-Core's own default is tp, and the recipes that come with it set 1: who leaves it out follows a recipe. Code that
        is not Megatron's leaves experts whole.
    """
    is_open = plan.etp is None and model.has_experts and min(plan.ep, plan.tp) > 1
    fits = plan.tp * plan.cp * plan.dp % (plan.ep * plan.tp) == 0
    if not (is_open and fits) or framework_of(framework).style == EAGER:
        return ()
    return (("etp", ((1, 0.97), (plan.tp, 0.03))),)


def usual_software(stated: Software, framework: Framework, generation: str) -> Software:
    """`stated`, with the most likely value wherever it says nothing."""
    return stated.filled({name: usual_odds(name, framework, generation, stated)[0][0] for name in SOFTWARE_VALUES})


SMALLEST = 1e-4  # of a step: a field whose every value changes less is not open in any sense that matters


@dataclass(frozen=True)
class OpenField:
    """One field that is not stated.

    Attributes:
        name: as job files have it: `software.norm`.
        values: what it may be; the first is what the job assumes.
        odds: probability of each.
        log_ratio: logarithm of the step under each over that under the first.
    """

    name: str
    values: tuple[Any, ...]
    odds: tuple[float, ...]
    log_ratio: tuple[float, ...]

    @property
    def mean(self) -> float:
        """Expected logarithm of the step over the assumed one."""
        return float(np.dot(self.odds, self.log_ratio))

    @property
    def sd(self) -> float:
        """Standard deviation of that logarithm."""
        return float(np.sqrt(np.dot(self.odds, (np.array(self.log_ratio) - self.mean) ** 2)))

    def drawn(self, n_draw: int, seed: int) -> Floats:
        """[draw] log ratios to the mean, of values drawn by their odds; fields of one name and the same odds draw alike."""
        named = sorted(
            (repr(value), odds, ratio)
            for value, odds, ratio in zip(self.values, self.odds, self.log_ratio, strict=True)
        )
        what = " ".join((self.name, *(f"{value} {odds:.6f}" for value, odds, _ in named)))
        rng = np.random.default_rng([seed, 3, crc32(what.encode())])
        which = rng.choice(len(named), n_draw, p=[odds for _, odds, _ in named])
        return np.array([ratio for _, _, ratio in named])[which] - self.mean


def doubtful(name: str, sd: float) -> OpenField:
    """A field that was taken for something without odds: its step may be that much off, either way."""
    apart = sd * sqrt(2.0)
    return OpenField(name, ("assumed", "less", "more"), (0.5, 0.25, 0.25), (0.0, -apart, apart))


def open_fields(
    base: BlockCostModel,
    names: Sequence[str],
    framework: str | Framework,
    efficiency_of: Callable[[Software], Efficiency],
    more: Sequence[tuple[str, Odds]] = (),
) -> tuple[OpenField, ...]:
    """The open fields of a job that matter to its step, widest first.

    Args:
        base: its blocks, under a plan with the assumed values.
        names: open fields of its software.
        efficiency_of: constants of the device under such software, as calibrated.
        more: other open fields of the plan (`dtype`), with the odds of their values.
    """
    model, cluster, plan = base.model, base.cluster, base.plan
    own, generation = framework_of(framework), cluster.device.generation
    asked = [
        *((f"software.{name}", _odds(name, own, generation, plan, model)) for name in names if _matters(name, model)),
        *((name if "." in name else f"plan.{name}", odds) for name, odds in more if _is_open(name, odds, model)),
    ]

    def assumed(name: str) -> Any:
        known = {NETWORK: 1.0, IMBALANCE: imbalance_of(model), "plan.etp": plan.expert_tp}
        return known.get(name) or _value(plan, name)

    others = {name: [one for one in given if one[0] != assumed(name)] for name, given in asked}
    variants = [(name, value) for name, given in others.items() for value, _ in given]
    if not variants:
        return ()

    def costs(name: str, value: Any) -> BlockCostModel:
        if name == NETWORK:
            return BlockCostModel(model, between_nodes(cluster, value), plan, base.eff)
        if name == IMBALANCE:
            return BlockCostModel(with_imbalance(model, value), cluster, plan, base.eff)
        one = _with(plan, name, value)
        return base.with_plan(one).under(efficiency_of(one.software).correction)

    apart = [costs(name, value) for name, value in variants]
    seconds = seconds_under([base, *apart])
    log_ratio = iter(np.log(seconds[1:] / seconds[0]).tolist())
    found = [_field(name, assumed(name), given, log_ratio) for name, given in others.items()]
    return tuple(sorted((one for one in found if one.sd > SMALLEST), key=lambda one: -one.sd))


# With dropless experts graphs hold what comes before the wait for their loads alone, in Megatron-Core of late 2025 and later.
_GRAPHS_THAT_END = (("none", 0.9), ("layers", 0.1))


def _odds(name: str, framework: Framework, generation: str, plan: ParallelPlan, model: Workload) -> Odds:
    """Odds as usual, but for graphs of a model whose host waits in every layer with experts."""
    odds = usual_odds(name, framework, generation, plan.software)
    if name != "cuda_graphs" or len(odds) == 1:
        return odds
    waits = any(model.block(kind, plan).waits_in for kind in kinds_of(model))
    return _GRAPHS_THAT_END if waits else odds


def _matters(name: str, model: Workload) -> bool:
    """Whether a field of the software can change a step of the model."""
    return model.has_experts or name not in OF_EXPERTS


def _field(name: str, assumed: Any, others: Sequence[tuple[Any, float]], log_ratio: Iterator[float]) -> OpenField:
    """The field of which as many ratios are taken as it has other values."""
    every = [(assumed, 1.0 - sum(odds for _, odds in others), 0.0)]
    every += [(value, odds, next(log_ratio)) for value, odds in others]
    return OpenField(name, *zip(*every, strict=True))


def between_nodes(cluster: Cluster, factor: float) -> Cluster:
    """The cluster with `factor` times the bandwidth of every tier but the innermost; of networks without tiers as it is."""
    if len(cluster.tiers) < 2:
        return cluster
    outer = tuple(replace(tier, bytes_per_s=factor * tier.bytes_per_s) for tier in cluster.tiers[1:])
    return replace(cluster, tiers=(cluster.tiers[0], *outer))


def _is_open(name: str, odds: Odds, model: Workload) -> bool:
    """Whether the field still is: a load that the model states, or that a capacity limits, is known."""
    return name != IMBALANCE or imbalance_of(model) == odds[0][0]


def imbalance_of(model: Workload) -> float | None:
    """Load of the busiest expert rank over the mean, as the model has it; None: it has no experts, or a capacity decides."""
    moe = getattr(model, "moe", None)
    return None if moe is None or moe.capacity_factor or moe.routing else moe.imbalance


def with_imbalance(model: Any, imbalance: float) -> Any:
    """The model, whose experts no capacity limits, with another load of the busiest rank."""
    return replace(model, moe=replace(model.moe, imbalance=imbalance))


def _value(plan: ParallelPlan, name: str) -> Any:
    section, _, field = name.partition(".")
    return getattr(plan.software if section == "software" else plan, field)


def _with(plan: ParallelPlan, name: str, value: Any) -> ParallelPlan:
    section, _, field = name.partition(".")
    if section == "software":
        return replace(plan, software=replace(plan.software, **{field: value}))
    if field == VIRTUAL_STAGES:
        return replace(plan, virtual_stages=value, schedule="interleaved" if value > 1 else "1f1b")
    return replace(plan, **{field: value})


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
