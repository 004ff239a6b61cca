"""Do stated Monte Carlo errors and guarantees hold as often as they say? Shares of repeats under other seeds.

    python experiments/stated_errors/run.py [--seeds 8] [--brute-seeds 6] [--guarantee-seeds 400] [--out FILE] [--check]

Prints, and with `--out` writes, three figures: the share of quantiles within 1.96 stated errors of a closed form, the same of the
default method against brute force over 25 jobs, and per job, method and number of samples the share of seeds in which the
guarantee of the p95 held where it was stated. `--check` exits with 1 where one is outside its bar.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from experiments.common import start
from experiments.stated_errors.measure import BOUNDED, METHODS, against_brute_force, against_truth, held, shares_within

BAR, LEAST_HELD = (0.92, 0.98), 0.985


def measured(n_seed: int, n_brute_seed: int, n_step: int, n_guarantee_seed: int) -> dict[str, Any]:
    """All figures."""
    return {
        "within 1.96 of a closed form": shares_within(against_truth(n_seed)),
        "within 1.96 of brute force": shares_within(against_brute_force(n_brute_seed, n_step)),
        "guarantee": {
            f"{name}, {method} {n}": vars(found) | {"share": found.share}
            for name, job in BOUNDED.items()
            for method, n in METHODS
            for found in [held(job, method, n, range(n_guarantee_seed))]
        },
    }


def outside(figures: dict[str, Any]) -> list[str]:
    """Which figures are outside their bar."""
    shares = {name: found["all"] for name, found in figures.items() if name != "guarantee"}
    wrong = [f"{name}: {share:.3f}" for name, share in shares.items() if not BAR[0] <= share <= BAR[1]]
    held_too_rarely = [
        f"{name}: {row['share']:.4f}" for name, row in figures["guarantee"].items() if row["share"] < LEAST_HELD
    ]
    return wrong + held_too_rarely


def main() -> int:
    """Prints all figures; the exit code."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--seeds", type=int, default=8, help="per job with a closed form")
    options.add_argument("--brute-seeds", type=int, default=6, help="per job that is compared with brute force")
    options.add_argument("--steps", type=int, default=4096, help="of brute force")
    options.add_argument("--guarantee-seeds", type=int, default=400, help="per job, method and number of samples")
    options.add_argument("--out", type=Path, help="JSON to write")
    options.add_argument("--check", action="store_true")
    given = options.parse_args()
    start()
    figures = measured(given.seeds, given.brute_seeds, given.steps, given.guarantee_seeds)
    text = json.dumps(figures, indent=2)
    print(text)
    if given.out:
        given.out.write_text(text + "\n", encoding="utf-8")
    wrong = outside(figures)
    print("\n".join(wrong) or "all within their bars", file=sys.stderr)
    return int(given.check and bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
