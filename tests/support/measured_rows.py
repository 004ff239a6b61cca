"""Made-up tables of measured steps: a handful of configurations on three sites, with times that follow from known corrections."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from prism_jax.calibration.calibration import Calibration, shipped
from prism_jax.calibration.key import CalibrationKey, Level
from prism_jax.calibration.surrogate import surrogate_of, surrogate_seconds
from prism_jax.cost.efficiency import CostCorrection, efficiency
from prism_jax.plan.plan import ParallelPlan
from prism_jax.system.catalog import cluster
from prism_jax.validation.score import MeasuredRow
from prism_jax.workload.catalog import model

from .jobs import STATED

PLANS = (
    ParallelPlan(1, 64, 4096, dp=16, sharding="fsdp"),
    ParallelPlan(2, 64, 4096, dp=32, sharding="fsdp"),
    ParallelPlan(1, 64, 4096, tp=8, dp=8, zero_stage=1, sequence_parallel=True),
    ParallelPlan(1, 64, 4096, tp=4, pp=2, dp=4, zero_stage=1),
)
MODELS = ("llama-2-7b", "llama-2-13b")
SITES = {  # source: cluster, framework
    "site A": ("dgx-a100", "megatron-core"),
    "site B": ("dgx-h100", "megatron-core"),
    "site C": ("dgx-h100", "fsdp"),
}


def measured_rows(
    correction: CostCorrection | None = None, spread: float = 0.0, batches: Sequence[int] = (64,)
) -> list[MeasuredRow]:
    """Rows of all sites, measured where `correction` holds (the shipped calibration if not given), with log noise."""
    rng = np.random.default_rng(3)
    rows = []
    for source, (machine, framework) in SITES.items():
        plans = [replace(plan, global_batch=size) for size in batches for plan in PLANS]
        for number, plan in enumerate(plans):
            spec, devices = model(MODELS[number % 2]), cluster(machine, plan.n_devices)
            generation = devices.device.generation
            plan = replace(plan, software=STATED)
            holds = correction or shipped().correction(CalibrationKey.of(devices.device, framework, STATED))
            seconds = float(surrogate_seconds(surrogate_of(spec, devices, plan, efficiency(generation)), holds))
            seconds *= float(np.exp(spread * rng.normal()))
            row = MeasuredRow(f"{source} {number}", source, seconds, None, spec, devices, plan, framework=framework)
            rows.append(row)
    return rows


def with_measured(row: MeasuredRow, seconds: float) -> MeasuredRow:
    """The row with another time."""
    return replace(row, measured_s=seconds)


def only_misfit(scale: float, n_draw: int = 128) -> Calibration:
    """The shipped corrections without any doubt, and configurations that are off by `scale` times a Student-t."""
    known, ones = shipped(), np.ones(n_draw)
    terms = tuple(
        replace(term, sd=0.0, value=np.repeat(term.value.mean(axis=0, keepdims=True), n_draw, axis=0))
        for term in known.terms
        if term.level != Level.DATE  # whose years are a doubt of their own, where the date is not stated
    )
    return replace(
        known, terms=terms, site_sd=0.0 * ones, misfit=scale * ones, misfit_sd=0.0 * ones, site=None, width=None
    )
