"""Estimates in a report that stand beside an interval, wherever they are: what a reader would hold against each other.

A report in plain types writes an interval in one of these ways; a new way of writing one belongs here.

| where | estimate | interval |
|---|---|---|
| `X` beside `X_interval` or `X_interval_s` | X, X_s, or X of `predicted_s` | a pair |
| `correlation_across_gpus` beside `correlation_interval_90` | it | a pair |
| `gain` beside `posterior_interval`, `model_interval` | gain | a pair |
| p50, p95, ... beside `interval` | each | its pair in `interval` |
| `median`, `after` or `p50` beside `p5` and `p95` | it | both |
| `predicted_s` beside `low_s` and `high_s` | it | both |
| `step_time_s` beside `epistemic_s` | each quantile | its low and high |
| `step_time_s` beside `tail` | p95 and p99, also over p50 | low and high |
| `step_time_s` beside `model_band_s` | p50 | p5 and p95 |
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

OF_GAIN = ("posterior", "model")
ROUNDING = 1e-9  # relative: quantiles of equal numbers


class Estimate(NamedTuple):
    """One estimate with its interval."""

    where: str
    value: float
    low: float
    high: float

    @property
    def is_inside(self) -> bool:
        """Whether the interval holds the estimate."""
        off = ROUNDING * max(abs(self.low), abs(self.high), abs(self.value))
        return self.low - off <= self.value <= self.high + off


def estimates(plain: Any, where: str = "") -> Iterator[Estimate]:
    """All estimates of a report in plain types that stand beside an interval."""
    if isinstance(plain, list):
        for index, item in enumerate(plain):
            yield from estimates(item, f"{where}[{index}]")
    if isinstance(plain, dict):
        yield from (Estimate(f"{where}.{name}", *found) for name, found in _beside(plain))
        for key, item in plain.items():
            if "error" not in key:  # Monte Carlo errors of quantiles are no quantiles
                yield from estimates(item, f"{where}.{key}")


def _beside(facts: dict[str, Any]) -> Iterator[tuple[str, tuple[float, float, float]]]:
    for key, pair in facts.items():
        name = key.removesuffix("_s").removesuffix("_interval")
        if key.endswith(("_interval", "_interval_s")) and pair is not None:
            value = facts.get(name, facts.get(f"{name}_s", facts.get("predicted_s", {}).get(name)))
            yield key, ((facts["gain"] if name in OF_GAIN else value), *pair)
    if "correlation_interval_90" in facts:
        yield "correlation", (facts["correlation_across_gpus"], *facts["correlation_interval_90"])
    for name, pair in (facts.get("interval") or {}).items():
        yield name, (facts[name], *pair)
    if {"p5", "p95"} <= facts.keys() and isinstance(facts["p5"], float):
        for name in {"median", "after", "p50"} & facts.keys():
            yield name, (facts[name], facts["p5"], facts["p95"])
    if {"predicted_s", "low_s", "high_s"} <= facts.keys() and facts["low_s"] is not None:
        yield "predicted_s", (facts["predicted_s"], facts["low_s"], facts["high_s"])
    if "step_time_s" in facts and "model_band_s" in facts:
        for name, band in (facts.get("epistemic_s") or {}).items():
            yield f"epistemic {name}", (facts["step_time_s"][name], band["low"], band["high"])
        yield from _of_tails(facts["step_time_s"], facts.get("tail") or {})
        band = facts["model_band_s"]
        yield "model band", (facts["step_time_s"]["p50"], band["p5"], band["p95"])


def _of_tails(times: dict[str, float], tail: dict[str, Any]) -> Iterator[tuple[str, tuple[float, float, float]]]:
    for name, band in tail.get("over_p50", {}).items():
        yield f"tail over p50 {name}", (times[name] / times["p50"] - 1.0, band["low"], band["high"])
    for name, band in tail.get("measured_s", {}).items():
        yield f"tail measured {name}", (times[name], band["low"], band["high"])
