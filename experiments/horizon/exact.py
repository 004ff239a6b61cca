"""Does the event simulation agree with the exact renewal form where both apply?

python experiments/horizon/exact.py [--settings 200]

Draws settings with lambda(D + w) from .001 to 5, outages up to half a mean life, and checkpoints written behind the steps in
every second one; simulates each until its mean is known to .13%; prints the largest difference, and what a first-order line
says.
"""

from __future__ import annotations

import argparse

import jax
import numpy as np

from experiments.common import start
from experiments.horizon.renewal_settings import renewal_settings

BAR = 0.005


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--settings", type=int, default=200)
    n = parser.parse_args().settings
    start()
    settings = renewal_settings(n, seed=4)
    errors = settings.relative_errors(key=jax.random.key(1))
    outside = int((np.abs(errors) > BAR).sum())
    print(f"{n} settings: largest difference {100 * np.abs(errors).max():.3f} %, root mean square "
          f"{100 * np.sqrt((errors**2).mean()):.3f} %, beyond {100 * BAR:g} %: {outside}")  # fmt: skip
    span_s = settings.interval_s + settings.blocking_s
    outage_s = settings.outage_s + settings.behind_s
    line = (1.0 - settings.rate_s * (outage_s + 0.5 * settings.interval_s)) / (
        1.0 + settings.blocking_s / settings.interval_s
    )
    exact = settings.n_interval * settings.interval_s / settings.expected_s()
    exponent = settings.rate_s * span_s
    for low, high in ((1e-3, 0.1), (0.1, 0.5), (0.5, 2.0), (2.0, 5.01)):
        part = (exponent >= low) & (exponent < high)
        print(f"  lambda(D + w) {low:g} to {high:.3g}: useful share {exact[part].min():.3f} to {exact[part].max():.3f}; "
              f"first-order line {line[part].min():.2f} to {line[part].max():.2f}")  # fmt: skip


if __name__ == "__main__":
    main()
