"""How far measured peaks of memory lie from predicted ones: a log-normal law of their ratio, by framework.

Learnt from measured peaks by experiments/memory_validation/megatron_ci.py, which scores it on case families that it left out.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import exp, log
from statistics import NormalDist

INTERVAL = (0.05, 0.95)


@dataclass(frozen=True)
class PeakLaw:
    """Log-normal law of measured / predicted peak memory of one device.

    Attributes:
        median: of the ratio.
        log_sd: standard deviation of its logarithm, > 0.
        expert_median, expert_log_sd: the same of models with experts, whose peak depends on how tokens are routed.
    """

    median: float
    log_sd: float
    expert_median: float
    expert_log_sd: float

    def _log_ratio(self, has_experts: bool) -> NormalDist:
        if has_experts:
            return NormalDist(log(self.expert_median), self.expert_log_sd)
        return NormalDist(log(self.median), self.log_sd)

    def interval_bytes(self, predicted_bytes: float, has_experts: bool) -> tuple[float, float]:
        """90 % interval of the peak that would be measured, bytes."""
        law = self._log_ratio(has_experts)
        low, high = (predicted_bytes * exp(law.inv_cdf(p)) for p in INTERVAL)
        return low, high

    def not_fit_prob(self, predicted_bytes: float, capacity_bytes: float, has_experts: bool) -> float:
        """Probability that a measured peak exceeds the capacity."""
        return 1.0 - self._log_ratio(has_experts).cdf(log(capacity_bytes / predicted_bytes))


WITHOUT_PEAKS = PeakLaw(1.0, 0.161, 1.0, 0.182)
"""Of frameworks none of whose peaks were compared: nanotron's law, the widest that was measured, without its median."""
