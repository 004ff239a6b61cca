# pyright: reportArgumentType=false
"""Collectives model on scales left out: 2 to 64 A100 and 4 to 512 GH200, each scale predicted from the others.

    python experiments/variability_study/score_collectives.py [--data ../shared/data] [--table a100|gh200] [--law LAW|all]

Error: mean |predicted / measured - 1| over the rows of the left-out scale, median prediction (`collectives_score`). Beside it,
fitted *in-sample* by least squares of log seconds: alpha-beta and the four-parameter sigmoid; these reproduce the known figures
(A100, in place, 2 to 64 GPUs: .449 .269 .160 .185 .183 .211 and .175 .109 .104 .125 .134 .231), and the nearest scale's curve.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import jax
import numpy as np
import pandas as pd

from inference.collectives.data import COLUMNS, CollectivesData
from inference.collectives.laws import LAWS
from inference.collectives.model import Collectives
from inference.engine.program import Settings
from inference.fitting.fit import posterior as sample

ALPS = "boeschf/nccl-benchmark-on-alps-2025"
SHOWN = ("mape", "mape_in_place", "mape_alpha_beta", "mape_sigmoid", "mape_nearest", "median_ape")


def read(folder: Path, table: str) -> pd.DataFrame:
    """Rows under canonical names, in seconds."""
    name = "allreduce_a100_ib.csv" if table == "a100" else "collectives.csv.gz"
    raw = pd.read_csv(folder / "collectives" / name, low_memory=False)
    if table == "gh200":
        raw = raw.loc[raw["source_repo"] == ALPS]
    names = {alias: column.name for column in COLUMNS for alias in column.aliases}
    frame = raw.rename(columns={name: names[name] for name in raw.columns if name in names})
    renamed = {"time_us_out_of_place", "time_us_in_place", "time_us"} & set(raw.columns)
    for name in renamed:
        frame[names[name]] *= 1e-6
    return frame


def posterior(model: Collectives, data: CollectivesData, n: int, seed: int) -> dict[str, np.ndarray]:
    """NUTS, one chain of `n` + `n`."""
    settings = Settings(n_chain=1, n_warmup=n, n_draw=n)
    drawn = sample(model, data, "nuts", jax.random.key(seed), settings=settings).draws
    return {name: value.reshape(-1, *value.shape[2:]) for name, value in drawn.items()}


def leave_one_scale_out(table: pd.DataFrame, model: Collectives, n: int, scales: list[int]) -> pd.DataFrame:
    """One row per scale."""
    out = []
    for scale in scales:
        begun = time.perf_counter()
        held = table["n_gpus"] == scale
        data = model.prepare(table[~held])
        draws = posterior(model, data, n, scale)
        (score,) = model.score(data, draws, table[held], "n_gpus", jax.random.key(1000 + scale))
        figures = dict(score.extra)
        only_in_place = table[held].assign(in_place="in")
        if "duration_in_place_s" in table:
            only_in_place["duration_s"] = only_in_place["duration_in_place_s"]
            only_in_place = only_in_place.drop(columns="duration_in_place_s")
        else:
            only_in_place = only_in_place[table[held]["in_place"] == "in"]
        (inside,) = model.score(data, draws, only_in_place, "n_gpus", jax.random.key(1000 + scale))
        figures["mape_in_place"] = inside.extra["mape"]
        figures["mape_alpha_beta"], figures["mape_sigmoid"] = (
            inside.extra[f"mape_{k}"] for k in ("alpha_beta", "sigmoid")
        )
        out.append(
            {
                "n_gpus": scale,
                **figures,
                "coverage_90": score.coverage_90,
                "ks": score.ks,
                "s": time.perf_counter() - begun,
            }
        )
        print(pd.DataFrame(out[-1:]).round(3).to_string(index=False, header=len(out) == 1), flush=True)
    return pd.DataFrame(out)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--table", choices=("a100", "gh200", "both"), default="both")
    parser.add_argument("--law", choices=(*LAWS, "all"), default=Collectives().size_law)
    parser.add_argument("--scales", type=int, nargs="*")
    parser.add_argument("--n", type=int, default=300, help="warm-up and draws")
    args = parser.parse_args()
    for name in ("a100", "gh200") if args.table == "both" else (args.table,):
        table = read(args.data, name)
        scales = args.scales or sorted(int(n) for n in table["n_gpus"].unique() if n > 1)
        for law in LAWS if args.law == "all" else (args.law,):
            print(f"\n{name}, law {law}")
            result = leave_one_scale_out(table, Collectives(law), args.n, scales)
            geometric = np.exp(np.log(result[list(SHOWN)]).mean())
            print("geometric mean over scales", {k: round(float(v), 4) for k, v in geometric.items()})
            beaten = (result["mape_in_place"] < result["mape_alpha_beta"]).sum()
            print(
                f"below in-sample alpha-beta at {beaten} of {len(result)} scales; coverage {result['coverage_90'].mean():.3f}"
            )


if __name__ == "__main__":
    jax.config.update("jax_enable_x64", True)
    main()
