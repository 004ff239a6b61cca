# pyright: reportArgumentType=false
# (of pandas without stubs, every expression may be of any type)
"""Power and seconds against clocks and power limits, and power of whole jobs, on what was left out; and the shipped presets.

python experiments/power/run.py [--data FOLDER] [--check] [--update] [--presets]

Whole models, networks and runs are left out; of a workload that was left out, the row at the top clock or limit alone is known.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

import jax
import numpy as np
import pandas as pd

import experiments.extra_fits  # noqa: F401  (makes the fits known by name)
import inference
from experiments.common import check, start
from experiments.power import jobs, tables
from experiments.power.scaling import llama
from experiments.power_fit.predict import Predicted, law_of, predicted, trivial

HERE = Path(__file__).resolve().parent
SHARED = HERE.parents[1] / ".." / "shared" / "data"
SEED = 0
TOLERANCES = dict.fromkeys(("time_p90", "power_p90", "energy_p90", "time_most", "power_most", "energy_most"), 0.01)


def fitted(table: pd.DataFrame) -> inference.Fit:
    """By the mode, as hold-outs do."""
    return inference.fit(table, model="power", method="map", key=jax.random.key(SEED))


def from_others(train: pd.DataFrame, left_out: pd.DataFrame) -> Predicted:
    """`left_out` from its top rows and a fit to `train`."""
    fit = fitted(train)
    return predicted(fit.data, fit.draws, inference.measured(left_out, "power").frame)


def figures(found: list[Predicted]) -> dict[str, float]:
    """Median, 90% and largest relative errors of the law, and median and 90% of the trivial prediction."""
    out = {}
    plain = [trivial(each.data) for each in found]
    for name, law, other in (
        ("time", [each.time for each in found], [time for time, _ in plain]),
        ("power", [each.power for each in found], [power for _, power in plain]),
        ("energy", [each.energy for each in found], [time * power for time, power in plain]),
    ):
        errors, trivial_errors = (np.abs(np.concatenate(each) - 1.0) for each in (law, other))
        out |= {
            f"{name}_median": float(np.median(errors)),
            f"{name}_p90": float(np.quantile(errors, 0.9)),
            f"{name}_most": float(errors.max()),
            f"{name}_trivial": float(np.median(trivial_errors)),
            f"{name}_trivial_p90": float(np.quantile(trivial_errors, 0.9)),
        }
    return {name: round(value, 4) for name, value in out.items()}


def study(data: Path) -> dict[str, dict[str, float]]:
    """Row of the README -> its figures."""
    sweeps, limits = tables.clock_sweeps(data), tables.power_limits(data)
    both = pd.concat([sweeps, limits], ignore_index=True)
    out = {}
    a100 = both["device"] == "A100"
    for name in ("bloom", "gpt3-175b"):
        one = a100 & (both["workload"] == name)
        out[f"A100 clocks, {name} left out"] = figures([from_others(both[~one], both[one])])
    a40 = (both["device"] == "A40") & both["clock_mhz"].notna()
    stages = [a40 & (both["stage"] == stage) for stage in sorted(set(both[a40]["stage"]))]
    out["A40 clocks, stages left out"] = figures([from_others(both[~one], both[one]) for one in stages])
    networks = [both["workload"] == name for name in sorted(set(limits["workload"]))]
    out["power limits, networks left out"] = figures([from_others(both[~one], both[one]) for one in networks])
    found = jobs.left_out(tables.job_power(data))
    out["power of jobs, runs left out"] = {
        name: round(float(value), 4)
        for name, value in (
            ("power_median", np.median(found.law)),
            ("power_most", found.law.max()),
            ("power_trivial", np.median(found.tdp)),
            ("power_trivial_most", found.tdp.max()),
            ("node_median", np.median(found.node)),
        )
    }
    return out | llama()


def presets(data: Path) -> None:
    """What `prism_jax/system/presets/power.toml` states of the devices measured, and of the population."""
    both = pd.concat([tables.clock_sweeps(data), tables.power_limits(data)], ignore_index=True)
    fit = fitted(both)
    for device in (*fit.data.devices, "population"):
        law = law_of(fit.data, fit.draws, device)
        print(
            f"{device}: idle_share {law.idle_share:.3f} exponent {law.exponent:.2f} floor_clock {law.floor_clock:.3f}"
        )


def main() -> int:
    """Exit code: 1 where `--check` finds that a figure has moved."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=SHARED)
    parser.add_argument("--check", action="store_true", help="compare with expected.json")
    parser.add_argument("--update", action="store_true", help="write expected.json")
    parser.add_argument("--presets", action="store_true", help="print the laws that ship")
    chosen = parser.parse_args()
    start()
    if chosen.presets:
        presets(chosen.data)
        return 0
    found = study(chosen.data)
    for row, values in found.items():
        print(row)
        for name, value in values.items():
            print(f"    {name:20} {value:.4f}")
    if chosen.update:
        (HERE / "expected.json").write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")
    return check(found, HERE / "expected.json", TOLERANCES) if chosen.check else 0


if __name__ == "__main__":
    sys.exit(main())
