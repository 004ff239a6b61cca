# pyright: reportArgumentType=false, reportAttributeAccessIssue=false, reportReturnType=false
# (of pandas without stubs, every expression may be of any type)
"""How far tails of systems lie from those of the presets: scores with systems left out, and the posterior that ships.

python experiments/variability_presets/tails.py [--data ../shared/data] [--ship]

With a system (or a whole machine) left out, everything comes from the others: stalls and bulk of the preset, and the posterior.
The rival is a log-normal law of the others' excesses. `--ship` fits all systems by NUTS and writes the draws of `predict`.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from pathlib import Path

import jax
import numpy as np
import pandas as pd
from scipy import stats

from experiments.variability_presets.score import machine
from experiments.variability_presets.stalls import QUANTILES, bulk_of, fit_stalls, implied
from experiments.variability_presets.tail_model import REFERENCE_LOG2_GPUS, TAIL, Tails, TailsData
from experiments.variability_presets.temporal import configurations, step_series
from inference.engine.laplace import fit_map
from inference.engine.nuts import sample
from inference.engine.program import Settings, program, traced

ROOT = Path(__file__).resolve().parents[2]
TARGET = ROOT / "prism_jax" / "variability" / "presets" / "tails.json"
LEVELS = (0.95, 0.99)
N_SHIP = 64
N_NEW = 8  # systems drawn for every draw of the posterior


def preset_excess(table: pd.DataFrame, kept: pd.DataFrame) -> np.ndarray:
    """p95/p50 - 1 and p99/p50 - 1 of the preset that `kept` amounts to, for the configurations of `table`, [configuration, 2]."""
    stalls, bulk = fit_stalls(kept), bulk_of(kept)
    found = np.zeros((len(table), 2))
    for family in table.family.unique():
        mine = (table.family == family).to_numpy()
        values = implied(table.gpus[mine].to_numpy(float), bulk[str(family)], stalls)
        found[mine] = values[:, [QUANTILES.index(level) for level in LEVELS]]
    return found


def tails_data(table: pd.DataFrame, kept: pd.DataFrame, counts: np.ndarray) -> TailsData:
    """What the model is fitted to; configurations whose `counts` is 0 are left out."""
    measured = table[[f"q{level:g}" for level in LEVELS]].to_numpy()
    return TailsData(
        own=np.where(table.submitter.str.contains("NVIDIA"), -0.5, 0.5),
        log2_gpus=np.log2(table.gpus.to_numpy(float)) - REFERENCE_LOG2_GPUS,
        log_ratio=np.log(measured / preset_excess(table, kept)),
        counts=counts,
    )


def left_out(series: pd.DataFrame, group: pd.Series, table: pd.DataFrame, of_table: pd.Series) -> pd.DataFrame:
    """Scores [group] of excesses whose group is left out: log density, in the 90% interval or not, kind of site known or not."""
    made, rows = None, []
    for name in of_table.unique():
        out = (of_table == name).to_numpy()
        data = tails_data(table, series[group != name], (~out).astype(float))
        made = program(Tails(), data, jax.random.key(0)) if made is None else made.given(traced(data)[0])
        drawn = fit_map(made, Settings(n_approximate_draw=500), jax.random.key(1)).draws
        draws = {site: value[0] for site, value in drawn.items()}
        excess = np.log(table[[f"q{level:g}" for level in LEVELS]].to_numpy())
        rows += [{"group": name} | _scores(data, draws, i, excess[i], excess[~out]) for i in np.flatnonzero(out)]
    return pd.DataFrame(rows).groupby("group").mean()


def _scores(
    data: TailsData, draws: Mapping[str, np.ndarray], i: int, log_excess: np.ndarray, others: np.ndarray
) -> dict[str, float]:
    """Of one configuration."""
    rng, found = np.random.default_rng(i), {}
    wide = np.exp(draws["growth"] * data.log2_gpus[i])[:, None] * draws["scale"]
    new_kind = stats.norm.ppf((np.arange(9) + 0.5) / 9) * Tails.NEW_KIND
    for kind, sides in (("known", [data.own[i]]), ("new", new_kind)):
        middle = np.concatenate([draws["kind"] * side for side in sides])
        scale = np.tile(wide, (len(sides), 1))
        new = np.repeat(middle, N_NEW)[:, None] + np.repeat(scale, N_NEW, axis=0) * rng.standard_t(
            TAIL, (len(scale) * N_NEW, 2)
        )
        for at, level in enumerate(LEVELS):
            value = data.log_ratio[i, at]
            density = stats.t.pdf((value - middle) / scale[:, at], TAIL) / scale[:, at]
            low, high = np.quantile(new[:, at], (0.05, 0.95))
            found |= {
                f"log score {level:g} {kind}": float(np.log(density.mean())),
                f"inside {level:g} {kind}": float(low <= value <= high),
                f"width {level:g} {kind}": float(high - low),
            }
    for at, level in enumerate(LEVELS):
        law = stats.norm(others[:, at].mean(), others[:, at].std(ddof=1))
        low, high = law.interval(0.9)
        found[f"log score {level:g} log-normal"] = float(law.logpdf(log_excess[at]))
        found[f"inside {level:g} log-normal"] = float(low <= log_excess[at] <= high)
        found[f"width {level:g} log-normal"] = float(high - low)
    return found


def shipped(series: pd.DataFrame) -> dict[str, object]:
    """Draws of the posterior of all systems, thinned, to four digits."""
    table = configurations(series)
    data = tails_data(table, series, np.ones(len(table)))
    made = program(Tails(), data, jax.random.key(0))
    found = sample(made, Settings(n_chain=2, n_warmup=300, n_draw=400), jax.random.key(2))
    thin = np.linspace(0, found.diverging.size - 1, N_SHIP).round().astype(int)
    draws = {site: found.draws[site].reshape(found.diverging.size, -1)[thin] for site in Tails.reported}
    return {
        "written_by": "experiments/variability_presets/tails.py --ship",
        "source": f"{len(table)} configurations of {table.system.nunique()} systems, MLPerf Training v3.0-v5.1 step series "
        "(mlcommons/training_results_*, Apache-2.0)",
        "reference_log2_gpus": REFERENCE_LOG2_GPUS,
        "tail": TAIL,
        "new_kind": Tails.NEW_KIND,
        **{site: np.round(np.squeeze(value), 4).tolist() for site, value in draws.items()},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=ROOT / ".." / "shared" / "data")
    parser.add_argument("--ship", action="store_true")
    args = parser.parse_args()
    series = step_series(args.data)
    table = configurations(series)
    with jax.enable_x64(True):
        for what, by in (("system", lambda rows: rows.submitter + "/" + rows.system), ("machine", machine)):
            found = left_out(series, by(series), table, by(table))
            print(f"each {what} left out, {len(found)} of them; means over {what}s")
            for level in LEVELS:
                for kind in ("known", "new", "log-normal"):
                    score, inside, width = (
                        found[f"{name} {level:g} {kind}"].mean() for name in ("log score", "inside", "width")
                    )
                    print(
                        f"  p{100 * level:g}/p50 - 1, {kind:<10} 90% interval holds {inside:.1%}, "
                        f"width {width:.2f}, log score {score:.3f}"
                    )
        if args.ship:
            TARGET.write_text(json.dumps(shipped(series), indent=1) + "\n", encoding="utf-8")
            print(f"wrote {TARGET}")


if __name__ == "__main__":
    main()
