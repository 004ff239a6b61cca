"""How good is the assignment of embedding tables that `prism-jax shard` finds?

python experiments/sharding/run.py [--tasks 30] [--large 6] [--check] [--update]

Small tasks (5 to 8 tables on 4 A100, tables whole) against every assignment: noise-free, and mean and p95 under look-ups that
vary by 10%, on draws that the search has not seen. Large tasks (52 tables on 8 A100) against the lower bound, whole and with
tables that may be cut, spread or copied. Assignments per second of the evaluator.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from experiments.common import check, known, start
from experiments.sharding.tasks import problem, problems
from prism_jax.core.arrays import Floats
from prism_jax.core.write_file import to_json, write_text
from prism_jax.result.objective import OBJECTIVES, PlanObjective
from prism_jax.sharding.assignment import steps, values
from prism_jax.sharding.problem import ShardingProblem
from prism_jax.sharding.search import nominal, shard
from prism_jax.sharding.sharders import SHARDERS
from prism_jax.sharding.task import ShardingTask, lookup_factors

HERE = Path(__file__).resolve().parent
EXPECTED = HERE / "expected.json"
SPREAD = 0.1
N_EXAM = 1024  # steps of the draws on which assignments are compared
SEED = 7
CLOSE = 0.10  # the criterion of the paper: an assignment within 10% of the best is right
OF_PAPER = ("random", "naive", "chunk", "size_greedy", "lookup_greedy", "norm_lookup_greedy", "size_lookup_greedy")


def every_assignment(n_table: int, n_gpus: int) -> np.ndarray:
    """[table, assignment] all, but for the names of GPUs, which are alike: a table goes to a used GPU or to the next one."""
    found = [(0,)]
    for _ in range(n_table - 1):
        found = [(*own, code) for own in found for code in range(min(max(own) + 2, n_gpus))]
    return np.array(found).T


def exam(own: ShardingProblem) -> ShardingTask:
    """The task under draws that no search sees; noise-free where nothing varies."""
    if not own.varies:
        return own.task(own.uncut)
    names = [table.name for table in own.tables]
    return own.task(own.uncut, lookup_factors(names, own.spread, N_EXAM, SEED + 1, "exam"))


def regret(own: ShardingProblem, objective: PlanObjective) -> tuple[float, float, float]:
    """Excess over the best of all assignments: of the search, and of the best and the median sharder of the paper."""
    task = exam(own)
    best = float(values(task, every_assignment(len(own.tables), own.n_ranks), objective.of).min())
    found = shard(own, objective, seed=SEED)
    chosen = float(values(task, found.best.columns, objective.of)[0])
    rng = np.random.default_rng(SEED)
    others = [values(task, SHARDERS.named(name).assign(task, rng)[:, None], objective.of)[0] for name in OF_PAPER]
    return chosen / best - 1.0, float(min(others)) / best - 1.0, float(np.median(others)) / best - 1.0


def small(n: int, name: str, spread: float) -> dict[str, float]:
    """Regrets over small tasks."""
    objective = PlanObjective(OBJECTIVES.named(name))
    found = np.array([regret(own, objective) for own in problems(n, 4, 5, 8, spread=spread)])
    ours, best, median = found.T
    return {
        "mean": float(ours.mean()),
        "worst": float(ours.max()),
        "within": float((ours <= CLOSE).mean()),
        "best_sharder_mean": float(best.mean()),
        "median_sharder_mean": float(median.mean()),
    }


def gaps(n: int, split: bool) -> Iterator[tuple[float, float]]:
    """Share above the lower bound of the noise-free step, and seconds, of every large task."""
    objective = PlanObjective(OBJECTIVES.named("mean"))
    for seed in range(n):
        own = problem(52, 8, seed, split=split)
        found = shard(own, objective, seed=SEED)
        reached = float(steps(own.task(found.best.cuts), found.best.columns)[0, 0])
        yield reached / found.bound[0] - 1.0, reached


def large(n: int) -> dict[str, dict[str, float]]:
    """Gaps over large tasks, whole and split, and what splitting is worth."""
    whole, split = (np.array(list(gaps(n, may_split))) for may_split in (False, True))
    rows = {"large whole": whole[:, 0], "large split": split[:, 0]}
    found = {name: {"mean": float(gap.mean()), "worst": float(gap.max())} for name, gap in rows.items()}
    found["large split"]["saved"] = float(1.0 - (split[:, 1] / whole[:, 1]).mean())
    return found


def per_second(spread: float) -> float:
    """Assignments per second of 52 tables on 8 GPUs: noise-free, or the p95 of 128 steps each."""
    own = problem(52, 8, 0, spread=spread)
    names = [table.name for table in own.tables]
    task = own.task(own.uncut, lookup_factors(names, own.spread, 128, 0, "speed") if spread else None)
    codes = np.random.default_rng(0).integers(8, size=(52, 4000))
    objective = PlanObjective(OBJECTIVES.named("p95")).of if spread else nominal
    values(task, codes[:, :100], objective)
    begin = time.perf_counter()
    values(task, codes, objective)
    return codes.shape[1] / (time.perf_counter() - begin)


def all_4_to_the_8(own: ShardingProblem) -> Floats:
    """Noise-free steps of all 65,536 assignments of a task of 8 tables, GPUs told apart."""
    codes = np.stack(np.unravel_index(np.arange(4**8), (4,) * 8))
    return values(own.task(own.uncut), codes, nominal)


def main() -> int:
    """Prints the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tasks", type=int, default=30, help="small tasks")
    parser.add_argument("--large", type=int, default=6, help="large tasks")
    parser.add_argument("--check", action="store_true", help="compare with expected.json")
    parser.add_argument("--update", action="store_true", help="write expected.json")
    options = parser.parse_args()
    start()
    one = problem(8, 4, 0)
    alike = values(one.task(one.uncut), every_assignment(8, 4), nominal).min() / all_4_to_the_8(one).min() - 1.0
    print(
        f"best of all 65,536 assignments against that of the {every_assignment(8, 4).shape[1]:,} unlike ones: {alike:.1e}"
    )
    found = {f"small {name}": small(options.tasks, name, SPREAD) for name in ("mean", "p95")}
    found = {"small noise-free": small(options.tasks, "mean", 0.0)} | found | large(options.large)
    for row, figures in found.items():
        print(f"{row:<18}" + "  ".join(f"{name} {value:.2%}" for name, value in figures.items()))
    for name, spread in (("noise-free", 0.0), ("p95 of 128 steps", SPREAD)):
        print(f"assignments per second, 52 tables on 8 GPUs, {name}: {per_second(spread):,.0f}")
    if options.update:
        write_text(EXPECTED, to_json(known(EXPECTED) | found) + "\n")
    return check(found, EXPECTED) if options.check else 0


if __name__ == "__main__":
    sys.exit(main())
