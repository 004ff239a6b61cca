"""Steps of the examples on one GPU: captured without one and predicted, against what `measure.py` found on it.

    python experiments/capture/measured_gpu/run.py [measured.json]

Captures are those of `prism-jax capture examples/capture/NAME.py:build --fusion eager`, of the programs that XLA compiled
where `measure_jax.py` ran, and, without a GPU, of `prism-jax capture measure_jax.py:NAME --world 1` (`NAME_jax_cpu`). Alone:
kernels by the kernel model of microbenchmarks, without what steps are slower by.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from experiments.common import start
from prism_jax import CapturedModel, Job, ParallelPlan, presets, read_capture
from prism_jax.cost.compute import op_seconds
from prism_jax.cost.efficiency import CostCorrection
from prism_jax.framework.software import Software
from prism_jax.prediction.predict import explain_step
from prism_jax.system import catalog
from prism_jax.workload.base.workload import distinct_runs
from prism_jax.workload.captured.check import plan_fields

HERE = Path(__file__).resolve().parent
WAYS = {"eager": ("eager", Software(compile=False)), "compiled": ("inductor", Software(compile=True))}
DEVICES = {"NVIDIA H200": "h200", "NVIDIA H100 80GB HBM3": "h100-sxm"}
COLUMNS = (
    "measured",
    "p95/p50",
    "kernels",
    "predicted",
    "error",
    "90% of models",
    "GPU active",
    "error",
    "alone",
    "host",
)


def job_of(name: str, way: str, device: str) -> Job:
    """An example on one device."""
    fusion, software = WAYS[way]
    program = read_capture(HERE / "captures" / f"{name}.capture.gz")
    program = program if program.source in ("hlo", "jax") else replace(program, fusion=fusion)  # fused already
    known = {field: value for field, value in plan_fields(program).items() if field != "state_dtypes"}
    plan = ParallelPlan(**known, software=software)
    cluster = catalog.default_cluster(device, 1)
    return Job(
        name=name,
        model=CapturedModel(program),
        cluster=cluster,
        plan=plan,
        variability=presets.variability("h100-default"),
    )


def captures_of(name: str) -> Iterator[str]:
    """The capture of a step, and the one that was made without a GPU where the other was not."""
    yield name
    if (HERE / "captures" / f"{name}_cpu.capture.gz").exists():
        yield f"{name}_cpu"


def alone_s(job: Job) -> float:
    """Seconds of the kernels of a step, each by itself, as microbenchmarks have it."""
    eff = replace(job.efficiency, correction=CostCorrection(), in_step=1.0)
    tables = [job.model.block(run.kind, job.plan).kernels for run in distinct_runs(job.model)]
    return sum(float(op_seconds(table, job.cluster.device, job.plan.dtype, eff).sum()) for table in tables)


def row_of(label: str, job: Job, found: dict[str, float]) -> str:
    """A line of the table."""
    told = explain_step(job)
    p50, band = told.step_time_s.p50, told.model_band_s
    kernels_s = found.get("kernels_s", math.nan)
    cells = (
        f"{1e3 * found['p50_s']:.2f}",
        f"{found['p95_s'] / found['p50_s']:.3f}",
        "" if math.isnan(kernels_s) else f"{1e3 * kernels_s:.2f}",
        f"{1e3 * p50:.2f}",
        f"{p50 / found['p50_s'] - 1.0:+.0%}",
        f"{1e3 * band.p5:.1f} to {1e3 * band.p95:.1f}",
        f"{1e3 * told.gpu_active_s:.2f}",
        "" if math.isnan(kernels_s) else f"{told.gpu_active_s / kernels_s - 1.0:+.0%}",
        f"{1e3 * alone_s(job):.2f}",
        f"{1e3 * told.host_s:.2f}",
    )
    return f"{label:<24}" + "".join(f"{cell:>15}" for cell in cells)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("measured", type=Path, nargs="?", default=HERE / "measured.json")
    asked = parser.parse_args()
    start()
    measured = json.loads(asked.measured.read_text(encoding="utf-8"))
    print(f"{measured['gpu']}, torch {measured['torch']}; milliseconds")
    print(f"{'step':<24}" + "".join(f"{column:>15}" for column in COLUMNS))
    for step, found in measured["steps"].items():
        name, way = step.split()
        for capture in captures_of(name):
            print(row_of(f"{capture} {way}", job_of(capture, way, DEVICES[measured["gpu"]]), found))


if __name__ == "__main__":
    main()
