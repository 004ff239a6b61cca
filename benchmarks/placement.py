"""Placement on fleets as slow as measured ones: against baselines, against brute force, with free splits, and its own promises.

    python benchmarks/placement.py [--data ../shared/data] [--only fleets small promise slow_nic] [--fleets 30] [--first 0]

A fleet is drawn from per-GPU medians of a matrix product on a cluster of 392 V100 (nodes of four; two measured nodes make one of
eight), or from the preset fitted to it where the measurements are absent. Seconds are of this machine.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import time
from dataclasses import replace
from pathlib import Path

import jax
import numpy as np

from experiments.common import start
from prism_jax import Job, load_job
from prism_jax.placement.draws import N_SHARED
from prism_jax.placement.evaluator import problem_of
from prism_jax.placement.fleet import fleet_of
from prism_jax.placement.place import Effort, PlacementResult, fresh_steps, place
from prism_jax.placement.report import AS_GIVEN, OPTIMISED
from prism_jax.placement.splits import exact_problem
from prism_jax.result.spread import Gain
from prism_jax.simulate.inputs import known_gpus
from prism_jax.simulate.predict import predict
from prism_jax.variability.config import preset
from prism_jax.variability.score_map import NormalScoreMap

ROOT = Path(__file__).resolve().parents[1]
EXAMPLE = str(ROOT / "examples" / "llama3_405b_16384.yaml")
PLAIN = ["plan.schedule=1f1b", "plan.virtual_stages=1"]
LARGE = [*PLAIN, "plan.dp=8", "plan.global_batch=512"]  # 128 nodes: 16 stages x 8 replicas, 64 micro-batches
SMALL = [*PLAIN, "plan.pp=4", "plan.dp=2", "plan.global_batch=64"]  # 8 nodes, 20,160 different assignments
KERNEL = "SGEMM (cuBLAS, median of reps)"
N_SMALL, N_PROMISE = 6, 40
FEWEST_GPUS = 4  # of a measured node
BASELINES = ("as_given", "random_best_of_1000", "sorted", "annealed")


def measured_nodes(data: Path) -> np.ndarray | None:
    """Slowdown of the GPUs of whole measured nodes over the median GPU [node, 4]; None without measurements."""
    file = data / "variability" / "gpu_kernels.csv.gz"
    if not file.exists():
        return None
    times: dict[str, dict[str, list[float]]] = {}
    with gzip.open(file, "rt", encoding="utf-8") as text:
        for row in csv.DictReader(text):
            if row["kernel"] == KERNEL and row["node_key"]:
                times.setdefault(row["node_key"], {}).setdefault(row["gpu_uuid"], []).append(float(row["duration"]))
    medians = [np.array([np.median(own) for own in gpus.values()]) for gpus in times.values()]
    usual = float(np.median(np.concatenate(medians)))
    whole = [own[:FEWEST_GPUS] / usual for own in medians if len(own) >= FEWEST_GPUS]
    return np.stack(whole)


def fleet(nodes: np.ndarray | None, n_node: int, seed: int) -> np.ndarray:
    """Slowdowns [node, 8] of a random fleet."""
    rng = np.random.default_rng(seed)
    if nodes is not None:
        return np.concatenate([nodes[rng.integers(0, len(nodes), n_node)] for _ in range(2)], axis=1)
    tree = preset("v100-longhorn").of("gemm")
    gpu = NormalScoreMap.from_family(tree.gpu)(rng.standard_normal((n_node, 8)))
    return gpu * NormalScoreMap.from_family(tree.node)(rng.standard_normal((n_node, 1)))


def fleets(nodes: np.ndarray | None, first: int, count: int) -> None:
    """128 nodes, splits free."""
    job = load_job(EXAMPLE, LARGE)
    print("128 nodes; p95 over the best of as given, random, sorted and annealed, on fresh draws")
    print("fleet  best baseline (s)   even splits   relaxed   free splits   over as given   seconds")
    found = []
    for seed in range(first, first + count):
        started = time.perf_counter()
        result = place(job, fleet(nodes, 128, seed), key=jax.random.key(seed), splits=True)
        found.append(row(result))
        best, even, relaxed, free, gain, name = found[-1]
        print(
            f"{seed:>5}  {best:.3f} {name:<12} {even:>+10.3%} {relaxed:>+10.3%} {free:>+12.3%} {gain:>14.2%} "
            f"{time.perf_counter() - started:>10.1f}",
            flush=True,
        )
    even, relaxed, free, gain = (np.array([r[i] for r in found]) for i in (1, 2, 3, 4))
    print(
        f"even splits: worst {even.max():+.3%} behind the best baseline (bar: 0.3%); better or equal in {(even <= 0).mean():.0%}"
    )
    print(f"relaxation alone: median {np.median(relaxed):+.3%}, worst {relaxed.max():+.3%}")
    print(f"free splits: better in {(free < 0).mean():.0%} of {count} fleets (bar: 90%); median {np.median(free):+.3%}")
    print(f"gain over as given: median {np.median(gain):.2%}, {gain.min():.2%} to {gain.max():.2%}")


def row(result: PlacementResult) -> tuple[float, float, float, float, float, str]:
    """Best baseline (s, and its name), and how far even splits, the relaxation and free splits lie above it; gain as a share."""
    reached = {method: result.value(method)[0] for method in result.batches_s}
    name = min(BASELINES, key=lambda method: reached[method])
    best = reached[name]
    even = reached.get("even_splits", reached["optimised"])
    gain = result.gain.value_s / reached["as_given"]
    return best, even / best - 1, reached["relaxed"] / best - 1, reached["optimised"] / best - 1, gain, name


def small(nodes: np.ndarray | None) -> None:
    """8 nodes, where every assignment can be tried."""
    job = load_job(EXAMPLE, SMALL)
    print("8 nodes; p95 above the best of all assignments, fresh draws (bar: 0.5%)")
    for seed in range(N_SMALL):
        result = place(job, fleet(nodes, 8, 1000 + seed), key=jax.random.key(seed))
        best = result.value("brute_force")[0]
        names = ("random_best_of_1000", "sorted", "annealed", "relaxed", "optimised")
        print(
            f"{seed:>5}  " + "  ".join(f"{name} {result.value(name)[0] / best - 1:+.3%}" for name in names), flush=True
        )


def gain_on(job: Job, slowdown: np.ndarray, result: PlacementResult, *, key: jax.Array) -> Gain:
    """What a placement is worth over the nodes as given on other draws, or on other slowdowns of the same nodes.

    Args:
        job: the one that was placed.
        slowdown: as in `place`; of the nodes of `result`.
        result: of `place`.
        key: of the draws; as many as the result was reported on.
    """
    problem = problem_of(job, fleet_of(slowdown, job.cluster.node_size, job.model.kernel_classes))
    chosen = problem if result.splits is None else exact_problem(problem, result.splits)
    first = result.batches_s[OPTIMISED]
    n_fresh = first.size // N_SHARED
    seats = [np.array(result.assignments[method], dtype=np.int32)[None] for method in (AS_GIVEN, OPTIMISED)]
    steps = [fresh_steps(p, a, key, n_fresh)[0] for p, a in zip((problem, chosen), seats, strict=True)]
    batches = dict(zip((AS_GIVEN, OPTIMISED), steps, strict=True))
    return replace(result, batches_s=batches).gain


def promise(nodes: np.ndarray | None, first: int) -> None:
    """Whether a promised gain is seen on fresh draws."""
    job: Job = load_job(EXAMPLE, LARGE)
    quick, inside, above = Effort(n_random=100, n_step=500, n_relaxed=0), 0, 0
    for seed in range(first, first + N_PROMISE):
        slow = fleet(nodes, 128, 2000 + seed)
        result = place(job, slow, key=jax.random.key(seed), effort=quick)
        seen = gain_on(job, slow, result, key=jax.random.key(10_000 + seed)).value_s
        inside += result.gain.low_s <= seen <= result.gain.high_s
        above += seen > result.gain.value_s
    print(
        f"promised gain: inside its 90% interval in {inside} of {N_PROMISE} repeats (bar: 85 to 95%); "
        f"fresh draws show more in {above}"
    )


SLOW_NIC = {  # examples, with fields that leave few enough nodes
    "llama2_7b_fsdp_64": [],
    "vit_h_14_64": [],
    "t5_11b_256": [],
    "bert_large_1024": [],
    "gpt3_175b_1024": [],
    "llama3_405b_16384": LARGE,
}


def slow_nic(first: int, count: int) -> None:
    """One NIC at half its rate among nodes that are alike: with a spare; without one, against the best of all its positions."""
    quick = Effort(n_random=20, n_step=100, n_relaxed=0, n_fresh=128)
    print(
        "one NIC at half its rate: left out with one spare (bar: all); p95 over the best position (bar: 0.1%); brute force"
    )
    for name, overrides in SLOW_NIC.items():
        job = load_job(str(ROOT / "examples" / f"{name}.yaml"), overrides)
        n_slot, left_out = job.plan.n_devices // job.cluster.node_size, 0
        for seed in range(first, first + count):
            bad = int(np.random.default_rng(seed).integers(n_slot + 1))
            found = place(job, one_slow_nic(job, n_slot + 1, bad), key=jax.random.key(seed), spares=1, effort=quick)
            left_out += found.left_out == (bad,)
        alike = one_slow_nic(job, n_slot, 0)
        problem = problem_of(job, fleet_of(alike, job.cluster.node_size, job.model.kernel_classes))
        seats = np.tile(np.arange(n_slot, dtype=np.int32), (n_slot + 1, 1))
        for slot in range(n_slot):
            seats[slot, [0, slot]] = seats[slot, [slot, 0]]
        seats[-1] = place(job, alike, key=jax.random.key(first), effort=quick).assignment
        p95 = np.quantile(fresh_steps(problem, seats, jax.random.key(99), 512).reshape(n_slot + 1, -1), 0.95, axis=1)
        over, worst = (p / p95[:-1].min() - 1 for p in (p95[-1], p95.max()))
        print(
            f"{name:<20} {left_out} of {count}; {over:+.3%} (worst position {worst:+.3%}); {in_full(job, n_slot)}",
            flush=True,
        )


def in_full(job: Job, n_slot: int) -> str:
    """Quantiles with one slow NIC in the middle against brute force, in their combined errors, and what it costs."""
    nics = {"nic": one_slow_nic(job, n_slot, n_slot // 2)["nic"]}
    known = known_gpus(nics, job.plan.n_devices, job.model.kernel_classes)
    columns = predict(job, key=0, n_samples=2048, known=known)
    every = predict(job, key=1, n_samples=1024, known=known, method="brute_force")
    away = [
        (columns.quantile(p) - every.quantile(p)) / np.hypot(columns.mc_error(p), every.mc_error(p))
        for p in (0.5, 0.95)
    ]
    cost = columns.quantile(0.5) / predict(job, key=0, n_samples=2048).quantile(0.5) - 1.0
    return f"p50, p95 {away[0]:+.1f}, {away[1]:+.1f} errors from brute force (the NIC costs {cost:.2%})"


def one_slow_nic(job: Job, n_node: int, slow: int) -> dict[str, dict[int, float]]:
    """Slowdowns of nodes that are alike but for the NICs of one, at half their rate."""
    size = job.cluster.node_size
    nics = dict.fromkeys(range(slow * size, (slow + 1) * size), 2.0)
    return {"all": dict.fromkeys(range(n_node * size), 1.0), "nic": nics}


def main() -> None:
    start()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=ROOT.parent / "shared" / "data")
    parser.add_argument(
        "--only",
        nargs="+",
        choices=("fleets", "small", "promise", "slow_nic"),
        default=["small", "promise", "fleets", "slow_nic"],
    )
    parser.add_argument("--fleets", type=int, default=30)
    parser.add_argument("--first", type=int, default=0)
    asked = parser.parse_args()
    nodes = measured_nodes(asked.data)
    source = f"measured, {len(nodes)} nodes of {FEWEST_GPUS}" if nodes is not None else "preset v100-longhorn"
    print(f"slowdowns: {source}; jax {jax.__version__}, {len(jax.devices())} devices")
    if "small" in asked.only:
        small(nodes)
    if "promise" in asked.only:
        promise(nodes, asked.first)
    if "fleets" in asked.only:
        fleets(nodes, asked.first, asked.fleets)
    if "slow_nic" in asked.only:
        slow_nic(asked.first, asked.fleets)


if __name__ == "__main__":
    main()
