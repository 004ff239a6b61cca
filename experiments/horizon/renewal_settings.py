"""Settings in which the exact renewal form and the event simulation both apply."""

from __future__ import annotations

from dataclasses import dataclass

import jax
import numpy as np

from prism_jax.core.arrays import Floats
from prism_jax.horizon.run import expected_time
from prism_jax.horizon.simulated_run import simulate
from prism_jax.horizon.worlds import ProgramKey, RunConstants, RunDraws, SlowArrays, Threats


@dataclass(frozen=True)
class RenewalSettings:
    """Interval, wait for a checkpoint, seconds behind, outage, interruptions per second, number of intervals; [setting]."""

    interval_s: Floats
    blocking_s: Floats
    behind_s: Floats
    outage_s: Floats
    rate_s: Floats
    n_interval: Floats

    def expected_s(self) -> Floats:
        """By the exact form; the last checkpoint is not waited for, and before the first none can be lost."""
        work_s = self.n_interval * self.interval_s
        outage_s = self.outage_s + self.behind_s
        whole = expected_time(work_s, self.interval_s, self.blocking_s, outage_s, self.rate_s)
        # the first interval has no checkpoint behind it that might not be loadable yet
        return whole - self._one(outage_s) + self._one(self.outage_s)

    def _one(self, outage_s: Floats) -> Floats:
        return expected_time(self.interval_s, self.interval_s, self.blocking_s, outage_s, self.rate_s)

    def simulated(self, n_world: int, key: jax.Array) -> Floats:
        """Wall time, seconds; [setting, world]."""

        def worlds(values: Floats) -> Floats:
            return np.repeat(values, n_world)

        inputs = RunDraws(
            scale_s=worlds(1.0 / self.rate_s)[None],
            n_interval=worlds(self.n_interval).astype(int),
            interval_s=worlds(self.interval_s),
            first_s=worlds(self.interval_s),
            checkpoint_s=worlds(self.blocking_s),
            planned_s=worlds(0.0 * self.rate_s),
            background_s=worlds(self.behind_s),
            restart_s=worlds(self.outage_s),
            swap_s=worlds(self.outage_s),
        )
        none, zero = np.zeros(0), np.zeros(1)
        threats = Threats(np.ones(1), zero, zero, zero, zero)
        setting = RunConstants(threats, SlowArrays(none, none, none, none, none), np.array(1.0), np.array(0.0))
        return simulate(inputs, setting, ProgramKey(1, 0, 0), key).clock_s.reshape(len(self.rate_s), n_world)

    def relative_errors(self, key: jax.Array, error: float = 1.3e-3) -> Floats:
        """Simulated over exact mean less one, with as many worlds as it takes for a standard error of `error`."""
        found = []
        for i in range(len(self.rate_s)):
            one = RenewalSettings(*(values[i : i + 1] for values in vars(self).values()))
            exact_s = one.expected_s()[0]
            pilot = one.simulated(2000, jax.random.fold_in(key, 2 * i))[0]
            n_world = int(np.clip((pilot.std() / exact_s / error) ** 2, 2000, 400_000))
            n_world = 1 << (n_world - 1).bit_length()  # few shapes
            times = one.simulated(n_world, jax.random.fold_in(key, 2 * i + 1))[0]
            found.append(times.mean() / exact_s - 1.0)
        return np.array(found)


def renewal_settings(n: int, seed: int) -> RenewalSettings:
    """`n` settings with lambda(D + w) from .001 to 5, evenly on a log scale; every second checkpoint is written behind."""
    rng = np.random.default_rng(seed)
    exponent = np.geomspace(1e-3, 5.0, n)
    span_s = rng.uniform(100.0, 5000.0, n)
    rate_s = exponent / span_s
    blocking_s = rng.uniform(1e-3, 0.5, n) * span_s
    behind_s = np.where(np.arange(n) % 2 == 1, np.minimum(rng.uniform(0.0, 1.0, n) * span_s, 0.5 / rate_s), 0.0)
    outage_s = rng.uniform(0.0, 0.5, n) / rate_s
    n_interval: Floats = np.maximum(10.0, np.round(20.0 / exponent))  # so that no setting goes without interruptions
    return RenewalSettings(span_s - blocking_s, blocking_s, behind_s, outage_s, rate_s, n_interval)
