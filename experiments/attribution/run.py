"""Which source makes the spread of a step, which its tail, and how much do sources only cause together?

python experiments/attribution/run.py [--only JOB ...] [--check] [--plot FILE]

Sobol indices of the step time T and of 1[T > p95] by independent source, Shapley values of p95 by owner; see README.md.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

import yaml

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from experiments.attribution.plot import draw
from experiments.common import check_or_keep, start
from prism_jax.explain.explain import attribute
from prism_jax.explain.types import Attribution, SobolIndices, words
from prism_jax.job.load_job import load_job

HERE = Path(__file__).resolve().parent
EXPECTED = HERE / "expected.json"
# Three to four of the standard errors that the columns *_error hold; the figures of one seed differ by libraries alone.
TOLERANCES = {"first": 0.08, "total": 0.04, "first_error": 0.02, "total_error": 0.02, "value": 0.06, "error": 0.02}
TOLERANCES |= {"additivity": 1e-9, "interaction": 0.08, "interaction_error": 0.02, "alone": 0.06, "last": 0.06}
MOST_S = 120.0  # of one core, for the three jobs together


def figures_of(name: str, found: Attribution) -> dict[str, dict[str, float]]:
    """Rows of `expected.json` of a job."""
    rows = {}
    for what, own in (("T", found.step_time), ("slow", found.slow_step)):
        rows |= {f"{name} {what} {source}": _indices(own, source) for source in own.first}
        rows[f"{name} {what}"] = {"interaction": own.remainder, "interaction_error": own.remainder_error}
    p95 = found.p95
    for owner, value in p95.value_s.items():
        parts = {"value": value, "error": p95.error_s[owner], "alone": p95.alone_s[owner], "last": p95.last_s[owner]}
        rows[f"{name} p95 {owner}"] = {part: seconds / p95.total_s for part, seconds in parts.items()}
    rows[f"{name} p95"] = {"additivity": sum(p95.value_s.values()) / p95.total_s - 1.0}
    return rows


def _indices(own: SobolIndices, source: str) -> dict[str, float]:
    return {part: getattr(own, part)[source] for part in ("first", "first_error", "total", "total_error")}


def tell(name: str, found: Attribution) -> None:
    """Prints the shares of a job."""
    print(f"-- {name}: share of variance alone, and with others; (1 - sum) is made together")
    for what, own in (("step time", found.step_time), ("step > p95", found.slow_step)):
        print(f"  {what}: sources together {own.remainder:.3f} +- {own.remainder_error:.3f}")
        for source in own.first:
            first, total = f"{own.first[source]:6.3f} +- {own.first_error[source]:.3f}", own.total[source]
            print(f"    {words(source):<30} {first}   {total:6.3f} +- {own.total_error[source]:.3f}")
    p95 = found.p95
    print(f"  p95 above the step without variability: {p95.total_s:.4g} +- {p95.total_error_s:.2g} s")
    for owner, value in p95.value_s.items():
        share, error = value / p95.total_s, p95.error_s[owner] / p95.total_s
        others = f"alone {p95.alone_s[owner] / p95.total_s:6.1%}, removed {p95.last_s[owner] / p95.total_s:6.1%}"
        print(f"    {words(owner):<30} {share:6.1%} +- {error:.1%}   {others}")


def main() -> int:
    start()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", default=None, help="jobs")
    parser.add_argument("--check", action="store_true", help="exit 1 where a figure is not as expected")
    parser.add_argument("--plot", metavar="FILE")
    arguments = parser.parse_args()
    config = yaml.safe_load((HERE / "config.yaml").read_text())
    started, every, rows = time.process_time(), {}, {}
    for name in config["jobs"] if arguments.only is None else arguments.only:
        every[name] = attribute(load_job(name), key=config["seed"], p=config["p"])
        tell(name, every[name])
        rows |= figures_of(name, every[name])
    print(f"{time.process_time() - started:.0f} s of processors (bar: {MOST_S:.0f} s for three jobs)")
    if arguments.plot:
        Path(arguments.plot).write_bytes(draw(every))
    return check_or_keep(rows, EXPECTED, arguments.check, TOLERANCES)


if __name__ == "__main__":
    sys.exit(main())
