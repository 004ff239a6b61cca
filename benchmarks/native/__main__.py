"""Brute force next to the same recurrence written by hand in C (levels.c): the share of what the processor can do.

    python -m benchmarks.native [JOB ...]

Both run the same levels with the same random numbers on one core, at widths of 256, 512 and 1,024 columns, in turns; the answers
must agree. Printed: millions of GPU steps per processor second of each, and the ratio of the best of both. Needs a C compiler
and AVX-512.
"""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=1 --xla_cpu_multi_thread_eigen=false"

import jax
import jax.numpy as jnp
import numpy as np

from prism_jax import load_job
from prism_jax.graph import draws
from prism_jax.graph.members import ExplicitMembers
from prism_jax.graph.propagate import CallNoise, CommFactors, propagate
from prism_jax.simulate.columns import compiler_options
from prism_jax.simulate.inputs import regime_factors
from prism_jax.simulate.program import Program, lower

JOBS = ("llama3_405b_16384", "gpt3_175b_1024")
WIDTHS = (256, 512, 1024)
GPUS_PER_RUN = 1 << 18  # GPU steps of one run, about
REPEATS = 5
AGREE = 1e-5  # relative


class Graph(ctypes.Structure):
    """As in levels.c."""

    _fields_ = (
        [
            (name, ctypes.c_int)
            for name in ("n_level", "n_lane", "n_factor", "n_member", "n_dep", "depth", "n_axis", "n_knot")
        ]
        + [(name, ctypes.c_float) for name in ("call_slope", "p2p_sd")]
        + [(name, ctypes.c_void_p) for name in ("compute_s", "call_sd", "comm_s", "comm_sd", "lag_s", "end_compute_s")]
        + [(name, ctypes.c_void_p) for name in ("end_comm_s", "dep", "regime", "chain")]
    )


def main() -> None:
    """Prints a line for each job and width."""
    with tempfile.TemporaryDirectory() as folder:
        libraries = {width: _library(width, Path(folder)) for width in WIDTHS}
    for name in sys.argv[1:] or JOBS:
        program, rates = lower(load_job(name)), []
        for width, library in libraries.items():
            ours, by_hand, error = _rates(program, width, library)
            rates.append((ours, by_hand))
            print(f"{name}, {width} columns: {ours / 1e6:.2f} M GPU steps/s, in C {by_hand / 1e6:.2f}, ratio "
                  f"{ours / by_hand:.2f}; answers differ by {error:.1e}", flush=True)  # fmt: skip
        best = [max(each) for each in zip(*rates, strict=True)]
        print(f"{name}, best width of each: ratio {best[0] / best[1]:.2f}")


def _library(width: int, folder: Path) -> ctypes.CDLL:
    built = folder / f"levels{width}.so"
    flags = ["-O3", "-march=native", "-ffast-math", "-shared", "-fPIC", f"-DPAIRS={width // 2}"]
    subprocess.run(["cc", *flags, str(Path(__file__).with_name("levels.c")), "-o", str(built)], check=True)
    library = ctypes.CDLL(str(built))
    library.constants(*(_pointer(np.array(x, np.float32)) for x in (draws._SINE, draws._COSINE, draws._LOG)))
    return library


def _rates(program: Program, width: int, library: ctypes.CDLL) -> tuple[float, float, float]:
    """GPU steps per processor second, ours and in C, and the largest relative difference of the answers."""
    n_gpu = program.n_member * program.n_lane * width  # of a chunk
    n_chunk = max(2, GPUS_PER_RUN // n_gpu)
    rng = np.random.default_rng(0)
    shape = (n_chunk, len(program.gpu), program.n_member, program.n_lane, width)
    chip = (1.0 + 0.02 * rng.standard_normal(shape)).astype(np.float32)
    keys = rng.integers(0, 1 << 32, size=(n_chunk, 2), dtype=np.uint32)
    regime = np.asarray(regime_factors(program, np.zeros(1)), np.float32)
    link = np.ones((len(program.link), program.n_lane, width), np.float32)

    @jax.jit
    def run(chip: jax.Array, keys: jax.Array) -> jax.Array:
        def one(chunk: tuple[jax.Array, jax.Array]) -> jax.Array:
            noise = CallNoise(chunk[1], program.compute_residual, program.comm_residual)
            return propagate(
                program.arrays, ExplicitMembers(chunk[0]), CommFactors(jnp.asarray(link), jnp.asarray(regime)), noise
            )[0]

        return jax.lax.map(one, (chip, keys))

    compiled = run.lower(chip, keys).compile(compiler_options=compiler_options("cpu"))
    graph, kept = _graph(program, regime[0])
    end = np.zeros((n_chunk, width), np.float32)

    def by_hand() -> np.ndarray:
        if library.run_chunks(n_chunk, ctypes.byref(graph), _pointer(chip), _pointer(keys), _pointer(end)):
            raise SystemExit(f"{program.n_lane} lanes are too many for the C program")
        return end

    ours_s, ours, by_hand_s, theirs = _in_turns(lambda: np.asarray(compiled(chip, keys)), by_hand)
    del kept
    total = n_chunk * n_gpu
    return total / ours_s, total / by_hand_s, float(np.abs(theirs / ours - 1.0).max())


def _graph(program: Program, regime: np.ndarray) -> tuple[Graph, list[np.ndarray]]:
    """The graph as C reads it, and the arrays that must live as long."""
    arrays, compute, comm = program.arrays, program.compute_residual, program.comm_residual
    if compute is not None and len(compute.knots):
        raise SystemExit("the C program knows no bends in the residual of compute")
    chain = np.zeros(2) if comm is None else np.concatenate([[comm.offset, comm.slope], comm.knots, comm.bends])
    floats = [arrays.compute_s, arrays.call_sd, arrays.comm_s, arrays.comm_sd, arrays.lag_s, arrays.end_compute_s]
    kept = [np.ascontiguousarray(x, np.float32) for x in (*floats, arrays.end_comm_s)]
    kept += [np.ascontiguousarray(arrays.dep, np.int32)]
    kept += [np.ascontiguousarray(regime[[*arrays.axes, -2, -1]], np.float32), np.ascontiguousarray(chain, np.float32)]
    n_level, n_lane, n_axis = arrays.comm_s.shape
    graph = Graph(
        n_level, n_lane, len(program.gpu), program.n_member, arrays.dep.shape[2], arrays.depth, n_axis,
        -1 if comm is None else len(comm.knots), 0.0 if compute is None else float(compute.slope), float(arrays.p2p_sd),
        *(_pointer(x) for x in kept),
    )  # fmt: skip
    return graph, kept


def _in_turns(
    first: Callable[[], np.ndarray], second: Callable[[], np.ndarray]
) -> tuple[float, np.ndarray, float, np.ndarray]:
    """Least processor seconds and the answer of each."""
    answers, least = [first(), second().copy()], [float("inf")] * 2
    for _ in range(REPEATS):
        for k, run in enumerate((first, second)):
            started = time.process_time()
            run()
            least[k] = min(least[k], time.process_time() - started)
    return least[0], answers[0], least[1], answers[1]


def _pointer(array: np.ndarray) -> ctypes.c_void_p:
    return array.ctypes.data_as(ctypes.c_void_p)


if __name__ == "__main__":
    main()
