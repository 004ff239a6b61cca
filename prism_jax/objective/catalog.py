"""The objectives by name: those that ship with the package and those that a caller adds. No NumPy: `show` lists them."""

from __future__ import annotations

from collections.abc import Iterator

from .._core.registry import Registry
from ..errors import DataError
from .money import GPU_HOURS_NEED, cost_per_million_tokens, gpu_hours_per_million_tokens
from .objective import Objective
from .statistics import Cvar, Quantile, SmoothQuantile, mean

QUANTILES = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99, "p999": 0.999}


def _shipped() -> Iterator[Objective]:
    yield Objective("mean", "mean step time", mean)
    for name, p in QUANTILES.items():
        about = "median step time" if p == 0.5 else f"step time that {100 * p:g} % of steps do not exceed"
        yield Objective(name, about, Quantile(p), SmoothQuantile(p))
    yield Objective("cvar95", "mean of the slowest 5 % of steps", Cvar(0.95))
    yield Objective(
        "gpu_hours_per_mtoken",
        "GPU-hours per million tokens",
        gpu_hours_per_million_tokens,
        needs=GPU_HOURS_NEED,
        unit="GPU-hours",
    )
    yield Objective(
        "cost_per_mtoken",
        "price of a million tokens; needs a price per GPU-hour",
        cost_per_million_tokens,
        needs=(*GPU_HOURS_NEED, "price_per_gpu_hour"),
        unit="money",
    )


OBJECTIVES: Registry[Objective] = Registry("objective", _shipped, error=DataError)
