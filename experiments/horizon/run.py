"""What do failures, checkpoints and variability cost from 1,024 to 131,072 GPUs, and does it agree with what was published?

python experiments/horizon/run.py [--worlds 500] [--plot FILE]

Prints: the published times to failure, each from the law without it; the goodput of two dated jobs from their own rates; goodput
over size, checkpoint policy and preset; the days that variability costs, by its size and by what varies.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import replace

import jax
import numpy as np

from experiments.common import start
from prism_jax import load_job, predict
from prism_jax.core.arrays import Floats
from prism_jax.core.errors import SpecError
from prism_jax.horizon.checkpoint import BEHIND, DISK, Checkpoint, PlannedStop, Recovery
from prism_jax.horizon.reliability import Reliability
from prism_jax.horizon.reliability_file import preset
from prism_jax.horizon.run import TrainingRun
from prism_jax.horizon.simulated_run import simulated_run
from prism_jax.horizon.steps import StepSum
from prism_jax.variability.families import Normal
from prism_jax.variability.tree import ClassVariability, Variability

HOUR_S, DAY_S = 3600.0, 86400.0
STEP = StepSum(7.16, 7.01, 0.05, 0.01, 0.9, 0.03)  # of the shipped example of 16,384 GPUs, at every size
STATES_BYTES = 14.0 * 405.9e9
RESTART_S = 660.0  # median of 504 B200, arXiv 2605.09370
SIZES = (1024, 4096, 16384, 65536, 131072)
N_STEPS = 12_000  # a day; the mean hardly depends on it, its spread over worlds shrinks with it
PRESETS = ("llama3-2024", "rsc-1", "rsc-2", "b200-504")
SAID = {
    "1 h, waits": "every hour, training waits",
    "best, waits": "best interval, training waits",
    "best, behind": "best interval, written behind",
}
LINE = {"markersize": 4, "linewidth": 1.2, "elinewidth": 1.0, "capsize": 2}
ANCHORS = {1024: 7.9, 16384: 1.8, 131072: 0.23}  # hours; RSC-1, arXiv 2410.21680: measured, projected, projected
BLOOM_GOODPUT, OPT_GOODPUT = (0.918, 0.925, 0.936), (0.56, 0.584, 0.60)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--worlds", type=int, default=500)
    parser.add_argument("--plot", metavar="FILE", help="write a picture of the sweep (.png, .pdf, .svg)")
    given = parser.parse_args()
    start()
    anchors()
    bloom(given.worlds)
    opt(given.worlds)
    rows = list(sweep(given.worlds))
    print_sweep(rows)
    extra_days()
    if given.plot:
        picture(rows, given.plot)


def anchors() -> None:
    """A node rate and a job rate from two of the three published times, the third predicted."""
    print(
        "RSC-1, time to failure, hours: a rate per node and one per job through two published values, the third left out"
    )
    for left, hours in ANCHORS.items():
        (a, t_a), (b, t_b) = ((size, value) for size, value in ANCHORS.items() if size != left)
        node = (1 / t_b - 1 / t_a) / ((b - a) / 8)
        job = 1 / t_a - node * a / 8
        told = 1.0 / (node * left / 8 + job)
        print(f"  {left:7,} GPUs: {told:7.3g} (published {hours:g}, {100 * (told / hours - 1):+.0f} %); node rate alone "
              f"{1 / (preset('rsc-1').hazards[0].per_node_h * left / 8):.3g}")  # fmt: skip
    shipped = ", ".join(f"{preset('rsc-1').mttf_h(size, 8):.3g} at {size:,}" for size in ANCHORS)
    print(f"  shipped preset (measured node rate, job rate from 1,024 GPUs): {shipped}")
    print(f"  Llama 3 preset at 16,384: {preset('llama3-2024').mttf_h(16384, 8):.3g} (published 3.09: its own counts)")


def bloom(n_worlds: int) -> None:
    """82,072 steps of 105.6 s; a checkpoint of 40 s every 100 steps; evaluation 12 min every 1,000; seven planned restarts."""
    print(
        f"BLOOM-176B, goodput from its own rates; measured {BLOOM_GOODPUT[1]} ({BLOOM_GOODPUT[0]} to {BLOOM_GOODPUT[2]})"
    )
    for hours in (0.2, 0.5, 1.0):
        stops = (
            PlannedStop(1000 * 105.6, 720.0),
            PlannedStop(2602 * HOUR_S / 7, hours * HOUR_S),
        )
        run = TrainingRun(
            82_072,
            StepSum.fixed(105.6),
            384,
            8,
            preset("bloom-2022"),
            Checkpoint(40.0, load_s=40.0, interval_s=100 * 105.6),
            Recovery(hours * HOUR_S, spares=2, planned=stops),
        )
        print(f"  restart {hours:g} h (not published): {told_goodput(run, n_worlds)}")


def opt(n_worlds: int) -> None:
    """33 days of steps; neither interval nor restart time is published, so that this is a response, not a prediction."""
    print(
        f"OPT-175B, goodput over what is not published; measured {OPT_GOODPUT[1]} ({OPT_GOODPUT[0]} to {OPT_GOODPUT[2]})"
    )
    for interval_h in (0.5, 2.0, 4.0):
        for restart_h in (0.5, 2.0, 4.0, 8.0):
            run = TrainingRun(
                int(33 * DAY_S / 60.0),
                StepSum.fixed(60.0),
                1024,
                8,
                preset("opt-2021"),
                Checkpoint(60.0, load_s=120.0, interval_s=interval_h * HOUR_S),
                Recovery(restart_h * HOUR_S, spares=4),
            )
            print(f"  checkpoint every {interval_h:g} h, restart {restart_h:g} h: {told_goodput(run, n_worlds)}")


def told_goodput(run: TrainingRun, n_worlds: int) -> str:
    """Mean and 90% interval over worlds, with the largest losses."""
    found = simulated_run(run, key=jax.random.key(0), n_world=n_worlds)
    low, high = np.quantile(found.goodput, (0.05, 0.95))
    shares = {name: float(value.mean()) / found.mean_s for name, value in found.seconds.items()}
    lost = sorted(shares.items(), key=lambda item: -item[1])[1:5]
    parts = ", ".join(f"{name} {100 * share:.2f} %" for name, share in lost if share > 0)
    return f"{found.goodput.mean():.3f} ({low:.3f} to {high:.3f}); {parts}"


def policies(n_gpus: int) -> dict[str, Checkpoint]:
    """Of a model of 405 B parameters."""
    n_node = n_gpus // 8
    waits, behind = (Checkpoint.of_bytes(STATES_BYTES, n_node, tiers) for tiers in ((DISK,), BEHIND))
    return {
        "1 h, waits": replace(waits, interval_s=HOUR_S),
        "best, waits": waits,
        "best, behind": behind,
    }


def sweep(n_worlds: int) -> Iterator[tuple[str, int, str, float, float, float, float]]:
    """Preset, GPUs, policy, interval, and goodput: mean, 5%, 95%; steps are as long at every size."""
    for name in PRESETS:
        for n_gpus in SIZES:
            for policy, checkpoint in policies(n_gpus).items():
                found: Reliability = preset(name)
                run = TrainingRun(N_STEPS, STEP, n_gpus, 8, found, checkpoint, Recovery(RESTART_S))
                told = _goodput(run, n_worlds)
                yield name, n_gpus, policy, run.interval_s, float(told.mean()), *np.quantile(told, (0.05, 0.95))


def _goodput(run: TrainingRun, n_worlds: int) -> Floats:
    """[world] goodput; NaN where so many interruptions are possible that no end can be simulated."""
    try:
        return simulated_run(run, key=jax.random.key(1), n_world=n_worlds).goodput
    except SpecError:
        return np.full(n_worlds, np.nan)


def print_sweep(rows: list[tuple[str, int, str, float, float, float, float]]) -> None:
    """A line for each preset and size."""
    print(
        f"goodput of {N_STEPS:,} steps of a 405 B model, restart {RESTART_S / 60:g} min; interval in minutes in brackets"
    )
    for name in PRESETS:
        for n_gpus in SIZES:
            own = [row for row in rows if row[:2] == (name, n_gpus)]
            cells = "; ".join(
                f"{row[2]} {'no end' if np.isnan(row[4]) else f'{row[4]:.3f}'} [{row[3] / 60:.3g}]" for row in own
            )
            print(f"  {name:<12} {n_gpus:>7,} GPUs, MTTF {preset(name).mttf_h(n_gpus, 8):6.3g} h: {cells}")


def extra_days() -> None:
    """Days that variability adds to a run of 100 days of noise-free steps, by its size, by what varies and by job."""
    print("days that variability adds to 100 days of noise-free steps")
    for name in ("llama3_405b_16384", "llama3_405b_65536"):
        job = load_job(name)
        for cv in (0.01, 0.03, 0.09):
            family = Normal(cv)
            kinds = {
                "GPUs differ for good": Variability(classes={"gemm": ClassVariability(gpu=family)}),
                "nodes differ for good": Variability(classes={"gemm": ClassVariability(node=family)}),
                "every call": Variability(classes={"gemm": ClassVariability(call=family)}),
                "the whole step": Variability(step=family),
            }
            days = {}
            for kind, variability in kinds.items():
                found = predict(replace(job, variability=variability), key=jax.random.key(0))
                days[kind] = round(100.0 * (found.mean_s / found.deterministic_s - 1.0), 1) + 0.0  # no -0.0
            print(
                f"  {name}, GEMM cv {100 * cv:g} %: " + ", ".join(f"{kind} {value:.1f}" for kind, value in days.items())
            )


def picture(rows: list[tuple[str, int, str, float, float, float, float]], file: str) -> None:
    """Goodput over size, one panel per preset."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    from prism_jax.core.picture import INDIGO, ROSE, TEAL, style

    with style():
        figure = Figure(figsize=(12.0, 4.4), layout="constrained")
        FigureCanvasAgg(figure)
        axes = figure.subplots(1, len(PRESETS), sharey=True)
        for ax, name in zip(axes, PRESETS, strict=True):
            for policy, colour, aside in zip(SAID, (ROSE, TEAL, INDIGO), (0.92, 1.0, 1.09), strict=True):
                own = np.array([(row[1], *row[4:]) for row in rows if row[0] == name and row[2] == policy]).T
                mean, reach = (
                    own[1],
                    np.abs(own[2:] - own[1]),
                )  # bars beside each other, as bands would cover each other
                ax.errorbar(aside * own[0], mean, reach, fmt="o-", color=colour, label=SAID[policy], **LINE)
            ax.set_xscale("log", base=2)
            ax.set_xticks(SIZES, [f"{size:,}" for size in SIZES], rotation=40, ha="right", rotation_mode="anchor")
            ax.minorticks_off()
            ax.set_title(name)
            ax.set_xlabel("GPUs")
        axes[0].set_ylabel("goodput: mean, and 90% of worlds")
        axes[0].set_ylim(0.0, 1.03)
        axes[0].legend(title="checkpoints", fontsize="small", title_fontsize="small", loc="lower left")
        figure.savefig(file)


if __name__ == "__main__":
    main()
