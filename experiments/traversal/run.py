"""The traversal of host programs against an event simulator that shares no code with it, and how long it takes.

python experiments/traversal/run.py [--programs 1000] [--check]
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

import jax
import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from prism_jax.host.program import COMPUTE, Action, Call, HostProgram, host_program
from prism_jax.host.traverse import LAUNCH_S, traverse
from tests.prism_jax.host.events import padded, random_ranks, simulated_ends

BAR = 1e-9  # relative
N_RANK, N_LAYER, N_DRAW = 128, 100, 512


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--programs", type=int, default=1000)
    parser.add_argument("--check", action="store_true", help="exit 1 where the bar is missed")
    given = parser.parse_args()
    with jax.enable_x64(True):
        error = largest_error(given.programs)
    print(f"{given.programs:,} random programs: largest relative difference {error:.1e} (bar {BAR:.0e})")
    seconds = warm_seconds()
    print(f"{N_RANK} ranks x {4 * N_LAYER} calls, {N_LAYER} collectives, {N_DRAW} draws: p95 in {seconds:.2f} s, warm")
    seconds = warm_seconds(n_draw=1)
    print(f"the same, one draw: {1e3 * seconds:.1f} ms")
    if given.check:
        raise SystemExit(int(error > BAR))


def largest_error(n_program: int) -> float:
    """Over all ranks of random programs."""
    rng, errors = np.random.default_rng(0), []
    for _ in range(n_program):
        ranks, starts = random_ranks(rng)
        found = np.asarray(traverse(padded(host_program(ranks, starts))).end_s)[: len(ranks)]
        errors.append(np.abs(found / simulated_ends(ranks, starts, LAUNCH_S) - 1.0).max())
    return float(max(errors))


def warm_seconds(n_draw: int = N_DRAW) -> float:
    """Seconds of the second call: drawn work of every rank, the p95 of the step."""
    program, rng = layers(), np.random.default_rng(1)
    busy_s = program.busy_s * rng.lognormal(0.0, 0.05, (n_draw, *program.busy_s.shape))
    busy_s = busy_s.astype(np.float32)
    for _ in range(2):
        started = time.perf_counter()
        np.quantile(np.asarray(traverse(program, busy_s=busy_s).step_s), 0.95)
        seconds = time.perf_counter() - started
    return seconds


def layers() -> HostProgram:
    """Ranks that compute, exchange and wait for the exchange, layer after layer."""
    layer = [
        Call(Action.KERNEL, COMPUTE, gap_s=2e-5, call_s=5e-6, busy_s=1e-4),
        Call(Action.KERNEL, COMPUTE, gap_s=2e-5, call_s=5e-6, busy_s=1e-4),
        Call(Action.COLLECTIVE, COMPUTE, gap_s=2e-5, call_s=5e-6, busy_s=5e-5),
        Call(Action.JOIN, COMPUTE, gap_s=5e-6),
    ]
    return host_program([layer * N_LAYER] * N_RANK)


if __name__ == "__main__":
    main()
