"""What training costs: GPU time and money per token, of the mean step, which decides the total of many steps."""

from __future__ import annotations

from .outcome import Array, Outcome
from .statistics import mean

S_PER_HOUR = 3600.0
MILLION = 1e6
GPU_HOURS_NEED = ("n_devices", "tokens_per_step")


def gpu_hours_per_million_tokens(outcome: Outcome) -> Array:
    """GPU-hours that a million tokens take on average.

    Raises:
        DataError: number of devices or tokens per step are not known.
    """
    hours = mean(outcome) / S_PER_HOUR * outcome.known("n_devices")
    return hours / outcome.known("tokens_per_step") * MILLION


def cost_per_million_tokens(outcome: Outcome) -> Array:
    """Price of a million tokens on average, in the currency of the price per GPU-hour.

    Raises:
        DataError: number of devices, tokens per step or the price are not known.
    """
    return gpu_hours_per_million_tokens(outcome) * outcome.known("price_per_gpu_hour")
