"""Search over plans: evaluations per second, error and speed of tail scores, the whole space, coverage of promised gains.

    python benchmarks/search.py unlike        noise-free times of 1,000 plans at random, nothing costed or laid out before
    python benchmarks/search.py evaluate      noise-free evaluations per core-second: the whole space, all plans exactly (minutes)
    python benchmarks/search.py tail          plans scored on their tail per core-second, and their error
    python benchmarks/search.py whole         a whole search in a new process, without and with programs: seconds and memory
    python benchmarks/search.py promise       40 searches of a small space: is the gain on fresh draws inside its interval?

`unlike`, `evaluate` and `tail` run on one core. Core-seconds are processor time of the process, so that other load hardly counts.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
from dataclasses import replace

import numpy as np

JOB = "gpt3_175b_1024"
N_SCORED = 1000
N_REFERENCE = 5  # plans whose error is measured
N_SEED = 24
PLAIN_DRAWS = 1000
N_REPEAT = 40
N_RESAMPLE = 20_000
N_TRUTH_SEED = 256  # the truth errs by a sixth of what a promise does


def unlike(job_name: str) -> None:
    """Costs, orders and times of plans of many pipelines, first and again (Calculon: 36 a second, arXiv 2309.01857's program)."""
    from prism_jax.job.load_job import load_job
    from prism_jax.search.evaluate import Evaluator
    from prism_jax.search.plan_costs import FEASIBLE
    from prism_jax.search.space import default_space

    job = load_job(job_name)
    space = default_space(job, any_framework=True)
    feasible = np.flatnonzero(Evaluator(job, space).bounds().reason == FEASIBLE)
    numbers = np.sort(np.random.default_rng(0).choice(feasible, N_SCORED, replace=False))
    evaluator = Evaluator(job, space)
    for run in ("first", "again"):
        cpu = time.process_time()
        tables = [table for table, _ in evaluator.tables(numbers)]
        pipelines = {(table.layout, int(m)) for table in tables for m in np.unique(table.n_micro_batch)}
        times = np.concatenate(evaluator.times_of(tables))
        cpu = time.process_time() - cpu
        print(
            f"{run}: {len(times):,} plans of {len(pipelines)} pipelines in {cpu:.1f} core-seconds: {len(times) / cpu:,.0f}/s"
        )


def evaluate(job_name: str) -> None:
    """Bounds and exact times of every plan, twice."""
    from prism_jax.job.load_job import load_job
    from prism_jax.search.evaluate import Evaluator
    from prism_jax.search.space import default_space

    job = load_job(job_name)
    evaluator = Evaluator(job, default_space(job, any_framework=True))
    for run in ("cold", "warm"):
        clock, cpu = time.perf_counter(), time.process_time()
        screen = evaluator.bounds()
        bounds_cpu = time.process_time() - cpu
        evaluator.simulate(screen)
        clock, cpu = time.perf_counter() - clock, time.process_time() - cpu
        print(
            f"{run}: {screen.n_plans:,} plans ({screen.n_feasible:,} feasible, each timed exactly) in {clock:.1f} s, "
            f"{cpu:.1f} core-seconds ({bounds_cpu:.1f} for costs and bounds): {screen.n_plans / cpu:,.0f} plans per core-second, "
            f"{screen.n_feasible / cpu:,.0f} feasible ones"
        )


def tail(job_name: str) -> None:
    """Scores of the plans in reach; error against `predict` with many columns."""
    import jax

    from prism_jax.job.load_job import load_job
    from prism_jax.result.objective import OBJECTIVES, PlanObjective
    from prism_jax.search.evaluate import Evaluator, TailScorer
    from prism_jax.search.racing import ROUNDS
    from prism_jax.search.space import default_space
    from prism_jax.simulate.predict import predict

    job = load_job(job_name)
    evaluator, p95 = Evaluator(job, default_space(job, any_framework=True)), PlanObjective(OBJECTIVES.named("p95"))
    screen = evaluator.bounds()
    evaluator.simulate(screen, 1.1 * evaluator.fastest(screen))
    numbers = screen.order()[:N_SCORED]
    columns = ROUNDS[-1]
    for run in ("cold", "warm"):
        clock, cpu = time.perf_counter(), time.process_time()
        TailScorer(evaluator, 0).samples(numbers, columns)
        clock, cpu = time.perf_counter() - clock, time.process_time() - cpu
        print(
            f"{run}: {len(numbers)} plans x {columns} columns: {len(numbers) / cpu:.0f} per core-second ({clock:.1f} s)"
        )
    chosen = numbers[np.linspace(0, len(numbers) - 1, N_REFERENCE).astype(int)]
    scores = np.stack([p95.of(TailScorer(evaluator, seed).samples(chosen, columns)) for seed in range(1, N_SEED + 1)])
    for k, number in enumerate(chosen):
        plan = evaluator.plan(int(number))
        found = predict(replace(job, plan=plan), key=jax.random.key(77), n_samples=16_384, pad=True)
        truth, error = found.quantile(0.95), scores[:, k] / found.quantile(0.95) - 1.0
        slope = (found.quantile(0.96) - found.quantile(0.94)) / 0.02
        plain = np.sqrt(0.95 * 0.05 / PLAIN_DRAWS) * slope / truth
        rmse = np.sqrt((error**2).mean())
        print(
            f"  {plan.schedule:<12} p95 {truth:.4f} s ± {found.mc_error(0.95) / truth:.3%}: RMSE {rmse:.3%}, "
            f"bias {error.mean():+.3%}; {PLAIN_DRAWS:,} plain draws would err by {plain:.3%}"
        )


def whole(job_name: str) -> None:
    """In new processes: nothing compiled before, and again with what the first has kept."""
    code = (
        "import resource, sys, time; t = time.perf_counter()\n"
        "from prism_jax.shell.app import main\n"
        "code = main(['search', sys.argv[1]])\n"
        "print(f'{time.perf_counter() - t:.1f} s, {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20:.2f} GiB')"
    )
    with tempfile.TemporaryDirectory() as folder:
        for run in ("cold", "warm"):
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            environment = {**os.environ, "JAX_COMPILATION_CACHE_DIR": folder}
            subprocess.run([sys.executable, "-c", code, job_name], env=environment, check=True)
            now = resource.getrusage(resource.RUSAGE_CHILDREN)
            print(f"{run}: {now.ru_utime - before.ru_utime:.1f} user seconds")


def promise(job_name: str) -> None:
    """Searches with different seeds; the truth of each winner's gain from many more draws."""

    from prism_jax.job.load_job import load_job
    from prism_jax.result.objective import OBJECTIVES, PlanObjective
    from prism_jax.search.evaluate import Evaluator, TailScorer
    from prism_jax.search.exhaustive import search
    from prism_jax.search.plan_table import PlanTable
    from prism_jax.search.space import default_space

    job, p95 = load_job(job_name), PlanObjective(OBJECTIVES.named("p95"))
    small = replace(
        default_space(job, any_framework=True),
        tp=(4, 8),
        pp=(4, 8),
        cp=(1,),
        micro_batch=(1, 2),
        zero_stage=(1,),
        sharding=("none",),
        schedule=("1f1b", "interleaved"),
        virtual_stages=(1, 2, 3),
    )
    evaluator, inside, winners = Evaluator(job, small), 0, {}
    for repeat in range(N_REPEAT):
        study = search(job, small, seed=1_000 * repeat)
        plan = study.best.plan
        if plan not in winners:
            pair = [PlanTable.of(p) for p in (job.plan, plan)]
            scorers = [TailScorer(evaluator, 900_000 + k) for k in range(N_TRUTH_SEED)]
            values = np.array([[float(p95.of(s.samples_of(t, 512))[0]) for t in pair] for s in scorers])
            winners[plan] = float((1.0 - values[:, 1] / values[:, 0]).mean())
        assert study.promise is not None
        low, high = study.promise.gain_interval
        inside += low <= winners[plan] <= high
    print(
        f"{inside} of {N_REPEAT} promised gains hold on fresh draws ({inside / N_REPEAT:.1%}); {len(winners)} different winners"
    )


ONE_CORE = ("unlike", "evaluate", "tail")
PARTS = {"unlike": unlike, "evaluate": evaluate, "tail": tail, "whole": whole, "promise": promise}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", choices=[*PARTS, []], default=[*PARTS])
    parser.add_argument("--job", default=JOB)
    arguments = parser.parse_args()
    for name in arguments.parts:
        if name in ONE_CORE and hasattr(os, "sched_setaffinity"):  # before JAX starts its threads
            os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
        print(f"-- {name}: {arguments.job}")
        PARTS[name](arguments.job)


if __name__ == "__main__":
    main()
